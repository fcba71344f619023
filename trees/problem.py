"""A reference clustering that a tree shall explain, and the nodes of the tree while it grows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from neonxc.ranks import ALONE, Ranks
from neonxc.rules.intervals import Intervals, contains
from neonxc.trees.codes import Columns
from neonxc.trees.decoding import same_tests
from neonxc.trees.entries import SparseColumns
from neonxc.trees.exact import rounded, rounded_, tally, total_of
from neonxc.trees.ordering import chosen
from neonxc.trees.rounds import Rounds
from neonxc.trees.table import Table

if TYPE_CHECKING:
    from neonxc.trees.journal import Journal
    from neonxc.trees.mixed import Mixed


@dataclass
class Node:
    """A node of a growing tree.

    Attributes
    ----------
    id : int
        Its number in the :class:`~neonxc.trees.builder.TreeBuilder`.
    rows : Tensor [points] of int64
        The points that reach it, in order.
    centers : Tensor [centers] of int64
        The reference centers that do; empty where centers play no part.
    n, mass : int, float
        How many points these are, and their weight.
    sides : frozenset of (feature, whether to the left)
        The tests on its path, each direction once.
    clusters : (Tensor, Tensor) or None
        The reference clusters of its points and the mass of each, where they are known.
    state : Any
        What the criterion keeps for it, once it is `opened`.
    slack : float
        Scores that differ by no more are equal but for rounding.
    kept, entries, views : list or None, Entries or None, and dict
        What the search keeps for it.
    """

    id: int
    rows: Tensor
    centers: Tensor
    n: int
    mass: float
    sides: frozenset[tuple[int, bool]] = frozenset()
    clusters: tuple[Tensor, Tensor] | None = None
    state: Any = None
    opened: bool = False
    slack: float = 0.0
    kept: Any = None
    entries: Any = None
    views: dict[int, Any] = field(default_factory=dict)

    def without_centers(self) -> Node:
        """The same points in a node that grows on whatever centers it has."""
        return Node(self.id, self.rows, self.centers[:0], self.n, self.mass, self.sides)


@dataclass(frozen=True)
class Cut:
    """A test on codes and on values, and whom it sends to the left: of a node's points, and of its centers.

    With `intervals`, one or two pairs ``(low, high)``, points with ``low < x <= high`` for one of them go left;
    then `threshold` is NaN.
    """

    feature: int
    code: int
    threshold: float
    left: Tensor
    centers_left: Tensor
    intervals: tuple[tuple[float, float], ...] = ()


@dataclass
class Problem:
    """Points, the columns that are cut, and the reference clustering.

    Attributes
    ----------
    table : Table
    columns : Columns or SparseColumns
    centers : Tensor [k, d] of float64
        Reference centers, in the units of the columns.
    labels : Tensor [n] of int64
        Reference clusters.
    weight : Tensor [n] of float64 or None
        Rounded so that sums are exact.
    space, space_centers
        Points and centers in the space in which costs are measured, where that is not the columns' own.
    metric : {"l2", "l1"}
        Costs are squared Euclidean or Manhattan distances.
    given_distances : Tensor [n, k] or None
        Distances to `space_centers`, where they are known already.
    mixed : Mixed or None
        What the table is made from, if that has categories or missing values.
    ranks : Ranks
        The processes that hold further points, in the same codes.
    journal : Journal or None
        The cuts that were found so far, where they are written to a file.
    n_total : int
        Points of all processes.
    """

    table: Table
    columns: Columns | SparseColumns
    centers: Tensor
    labels: Tensor
    weight: Tensor | None
    space: Table
    space_centers: Tensor
    metric: str = "l2"
    given_distances: Tensor | None = None
    mixed: Mixed | None = None
    ranks: Ranks = ALONE
    journal: Journal | None = None

    def __post_init__(self) -> None:
        self.n_total = self.n if self.ranks.alone else int(self.reduce(torch.tensor(self.n)))
        self._distances: Tensor | None = None
        if self.weight is not None:
            self.weight = rounded(self.weight, total_of(self.weight, self.ranks))

    @property
    def n(self) -> int:
        """Points."""
        return self.table.n

    @property
    def sharded(self) -> bool:
        """Whether other processes hold further points."""
        return not self.ranks.alone

    def reduce(self, values: Tensor, operation: str = "sum") -> Tensor:
        """Sums over the points here -> those over all points; with "max", greatest values."""
        return self.ranks.sum(values) if operation == "sum" else self.ranks.max(values)

    def note(self) -> None:
        """Write the cuts that were found so far to the checkpoint, if there is one."""
        if self.journal is not None:
            self.journal.write()

    def at_once(self, works: Sequence[Callable[[], Any]]) -> list[Any]:
        """What several works return, whose sums over processes are taken in one call."""
        return self.ranks.run(works) if isinstance(self.ranks, Rounds) else [work() for work in works]

    def least(self, values: Tensor) -> float:
        """The least of one value per point."""
        none = values.new_full((1,), -torch.inf)
        return -float(self.reduce(torch.cat([-values, none]).amax(0, keepdim=True), "max"))

    @property
    def k(self) -> int:
        """Reference clusters."""
        return len(self.centers)

    @property
    def device(self) -> torch.device:
        """Where the computation takes place."""
        return self.labels.device

    @property
    def filled(self) -> Table:
        """The table without gaps: centers are means of its points."""
        return self.table if self.mixed is None else self.mixed.filled

    @property
    def dense(self) -> Columns:
        """The columns, where all codes are there."""
        assert isinstance(self.columns, Columns)
        return self.columns

    @cached_property
    def same(self) -> Sequence[int]:
        """For every column the first one that tests the same, but for where missing numbers go."""
        return range(self.table.d) if self.mixed is None else same_tests(self.mixed.encoding)

    @cached_property
    def variances(self) -> Tensor:
        """What variances of columns are divided by before they are compared, [d].

        1 where costs are those of the columns themselves, and for categories; else the columns' own variances.
        """
        if self.space is self.table:
            return torch.ones(self.table.d, dtype=torch.float64, device=self.device)
        variances = self.table.variances(self.root().rows, self.weight, self.ranks)
        return variances if self.mixed is None else variances.where(self.mixed.numbers, 1)

    @property
    def distances(self) -> Tensor:
        """Distance of every point to every reference center, as its cost counts it, [n, k] of float64.

        They are multiples of a power of 2 that is so small that it does not matter: sums of them, and of
        differences between them, are exact.
        """
        if self._distances is None:
            found = self.given_distances
            if found is None:
                found = self.space.distances(self.space_centers, self.metric)
            self._distances = rounded_(found, total_of(found.amax(1), self.ranks))  # made for this fit alone
        return self._distances

    def exact(self, values: Tensor) -> Tensor:
        """Values of points, [..., points], rounded so that sums of them over all processes are exact."""
        return rounded(values, total_of(values, self.ranks)[..., None])

    def weighted(self, costs: Tensor, rows: Tensor, total: float | None = None) -> Tensor:
        """Costs of some points, [m, points], times their weights: sums of them are exact as well.

        Parameters
        ----------
        total : float, optional
            What the points cost at most; default: the sum of their greatest costs.
        """
        weight = self.weights(rows)
        if weight is None:
            return costs
        costs = costs * weight
        most = total_of(costs.abs().amax(0), self.ranks) if total is None else costs.new_tensor(total)
        return rounded_(costs, most)

    def cost(self, labels: Tensor) -> float:
        """What the points cost at the reference centers of some clusters [n]."""
        costs = self.distances.gather(1, labels[:, None]).T
        return float(self.reduce(self.weighted(costs, torch.arange(self.n, device=self.device)).sum()))

    def weights(self, rows: Tensor) -> Tensor | None:
        """Weights of some points."""
        return None if self.weight is None else self.weight.index_select(0, rows)

    def node(
        self, id: int, rows: Tensor, centers: Tensor, sides: frozenset[tuple[int, bool]] = frozenset()
    ) -> Node:
        """A node of some points and centers."""
        return self.nodes([(id, rows, centers, sides)])[0]

    def nodes(self, parts: list[tuple[int, Tensor, Tensor, frozenset[tuple[int, bool]]]]) -> list[Node]:
        """Several nodes, whose points are counted in one call over all processes."""
        counts = [float(len(part[1])) for part in parts]
        masses = counts
        if self.weight is not None:
            masses = torch.stack([self.weight.index_select(0, part[1]).sum() for part in parts]).tolist()
        if self.sharded:
            counts, masses = self.reduce(torch.tensor([counts, masses], dtype=torch.float64)).tolist()
        return [
            Node(id, rows, centers, int(n), mass, sides)
            for (id, rows, centers, sides), n, mass in zip(parts, counts, masses, strict=True)
        ]

    def clusters(self, node: Node) -> tuple[Tensor, Tensor]:
        """The reference clusters of a node's points, and the mass of each."""
        if node.clusters is None:
            own = self.labels.index_select(0, node.rows)
            mass = self.reduce(tally(own, self.k, self.weights(node.rows)))
            there = mass.nonzero()[:, 0]
            node.clusters = there, mass[there]
        return node.clusters

    def goes_left(self, node: Node, cut: Cut) -> Tensor:
        """Whether points go left, [n]; right for those of the node."""
        if not cut.intervals:
            return self.columns.column(cut.feature) <= cut.code
        left = torch.zeros(self.n, dtype=torch.bool, device=self.device)
        left[node.rows] = cut.left
        return left

    def points(self, rows: Tensor) -> Tensor:
        """Some points in float64 where costs are measured, [points, p], without what all have in common."""
        table = self.space.take(rows)
        return table.columns(0, table.d).T.to(torch.float64) - self.space_centers[0]

    def positions(self, rows: Tensor, clusters: Tensor) -> Tensor:
        """Labels of some points as positions in a list of clusters."""
        place = torch.zeros(self.k, dtype=torch.int64, device=self.device)
        place[clusters] = torch.arange(len(clusters), device=self.device)
        return place.index_select(0, self.labels.index_select(0, rows))

    def root(self) -> Node:
        """The node of all points and centers."""
        return self.node(0, torch.arange(self.n, device=self.device), torch.arange(self.k, device=self.device))

    def cut(self, node: Node, feature: int, code: int) -> Cut:
        """The test between two codes of a column, with its threshold midway between the values in the node."""
        codes = self.columns.column(feature).index_select(0, node.rows)
        sides, centers_left = codes <= code, node.centers.to(torch.bool)
        left, ends = sides, self.columns.ends
        if ends is not None:
            below, above, sides = ends.of(feature, codes, code)
        else:
            below = above = self.table.column(feature).index_select(0, node.rows).to(torch.float64)
        if len(node.centers):
            centers_left = self.columns.centers[feature].index_select(0, node.centers) <= code
            own = self.centers[:, feature].index_select(0, node.centers)
            sides = torch.cat([sides, centers_left])
            below, above = torch.cat([below, own]), torch.cat([above, own])
        found = self.reduce(_around(below, above, sides), "max").tolist()
        low, high = _ends(found[0], -found[1])
        threshold = between(low, high, self.table.dtype)
        if ends is not None:
            threshold = between(*ends.beside(feature, code, threshold, (low, high)), self.table.dtype)
        return Cut(feature, code, threshold, left, centers_left)

    def cut_at(self, node: Node, feature: int, threshold: float, intervals: Intervals = ()) -> Cut:
        """The test of a threshold, or of intervals, that need not be one between codes."""
        side = intervals or ((-inf, threshold),)
        left = contains(side, self.table.column(feature, node.rows))
        return Cut(feature, -1, threshold, left, contains(side, self.centers[node.centers, feature]), intervals)

    def children(self, node: Node, cut: Cut, ids: tuple[int, int]) -> tuple[Node, Node]:
        """The nodes on the two sides of a cut."""

        def child(id: int, left: bool) -> tuple[int, Tensor, Tensor, frozenset[tuple[int, bool]]]:
            points, centers = (side if left else ~side for side in (cut.left, cut.centers_left))
            own = node.centers.masked_select(centers) if len(node.centers) else node.centers
            return id, chosen(node.rows, points), own, node.sides | {(self.same[cut.feature], left)}

        left, right = self.nodes([child(ids[0], True), child(ids[1], False)])
        return left, right


def _around(below: Tensor, above: Tensor, left: Tensor) -> Tensor:
    """The greatest of the values `below` on the left and of minus those `above` on the right, -inf for none."""
    if not len(left):
        return below.new_full((2,), -torch.inf)
    return torch.stack([below.where(left, -torch.inf), (-above).where(~left, -torch.inf)]).amax(1)


def _ends(low: float, high: float) -> tuple[float, float]:
    """Two numbers with a gap between them, also where nobody goes left, or right, or nobody is there at all."""
    if low == float("-inf"):
        low = high - 1 if high < float("inf") else 0.0
    return low, low + 1 if high == float("inf") else high


def between(low: float, high: float, dtype: Any = None, share: float = 0.5) -> float:
    """A number between two, such that ``low <= number < high`` also as a number of the data's type."""
    middle = low * (1 - share) + high * share
    if not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        return middle if low <= middle < high else low
    if dtype != torch.float64:
        middle = torch.tensor(middle, dtype=dtype).item()
    if low <= middle < high:
        return middle
    below = torch.tensor(high, dtype=dtype)  # the greatest number of the type below `high`: no point is in between
    if below.item() >= high:
        below = below.nextafter(torch.tensor(-torch.inf, dtype=dtype))
    return below.item()
