"""The problem that a tree explainer solves: points, the columns that are cut, and the reference clustering."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from neonxc.common.processes import ALONE, Ranks
from neonxc.rules.intervals import Intervals, contains
from neonxc.trees.cuts.codes import CodedColumns
from neonxc.trees.cuts.entries import SparseColumns
from neonxc.trees.cuts.exact_sums import counts_by_label, exact_total, rounded, select
from neonxc.trees.fit.points import DataMatrix
from neonxc.trees.tree import canonical_columns

if TYPE_CHECKING:
    from neonxc.trees.fit.mixed import MixedTable


@dataclass
class Node:
    """A node of a growing tree.

    Attributes
    ----------
    id : int
        Number of the node in the :class:`~neonxc.trees.cuts.builder.TreeBuilder`.
    rows : Tensor [points] of int64
        Indices of the points that reach the node, in ascending order.
    centers : Tensor [centers] of int64
        Indices of the reference centers that reach the node; empty if the tree does not separate centers.
    n, mass : int, float
        Number of points over all processes, and their total weight.
    sides : frozenset of (feature, whether to the left)
        Columns and directions of the tests on the path to the node.
    clusters : (Tensor, Tensor) or None
        The reference clusters of the points and the mass of each, if computed.
    state : Any
        Result of :meth:`~neonxc.trees.criteria.criterion.Criterion.open`, set when `opened` is True.
    slack : float
        Scores that differ by at most this value are ties, because the difference may be a rounding error.
    sums, entries : sequence of Sum, SparseEntries or None
        What is summed, and the sparse entries of the node.
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
    sums: Sequence[Any] = ()
    entries: Any = None

    def rounding(self, size: float) -> float:
        """Largest rounding error of a sum over the node's points of terms of a total size."""
        return 4 * (self.n + 1) * torch.finfo(torch.float64).eps * size

    def without_centers(self) -> Node:
        """A node with the same points but no centers, so that it can be split further."""
        return Node(self.id, self.rows, self.centers[:0], self.n, self.mass, self.sides)


@dataclass(frozen=True)
class Cut:
    """A test of a column, as a code and as a threshold, and which points and centers of the node it sends left.

    If `intervals` has one or two pairs ``(low, high)``, points with ``low < x <= high`` for one of them go left,
    and `threshold` is NaN.
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
    table : DataMatrix
        The columns that are cut.
    columns : CodedColumns or SparseColumns
        The codes of the columns.
    centers : Tensor [k, d] of float64
        Reference centers, in the units of the columns.
    labels : Tensor [n] of int64
        Reference clusters, 0 to k - 1.
    weight : Tensor [n] of float64 or None
        Weights of the points, rounded so that sums are exact.
    space, space_centers : DataMatrix, Tensor [k, p]
        Points and centers in the space in which costs are measured, which is `table` itself unless the reference
        is a pipeline or the table has categories or missing values.
    metric : {"l2", "l1"}
        Costs are squared Euclidean ("l2") or Manhattan ("l1") distances.
    given_distances : Tensor [n, k] or None
        Distances to `space_centers`, if they have been computed already.
    mixed : MixedTable or None
        The data frame from which the table was made, if that has categories or missing values.
    ranks : Ranks
        The processes that share the rows; all use the same codes.
    n_total : int
        Number of points of all processes.
    """

    table: DataMatrix
    columns: CodedColumns | SparseColumns
    centers: Tensor
    labels: Tensor
    weight: Tensor | None
    space: DataMatrix
    space_centers: Tensor
    metric: str = "l2"
    given_distances: Tensor | None = None
    mixed: MixedTable | None = None
    ranks: Ranks = ALONE

    def __post_init__(self) -> None:
        self.n_total = self.n if self.ranks.alone else int(self.reduce(torch.tensor(self.n)))
        self._distances: Tensor | None = None
        if self.weight is not None:
            self.weight = rounded(self.weight, exact_total(self.weight, self.ranks))

    @property
    def n(self) -> int:
        """Number of points of this process."""
        return self.table.n

    @property
    def sharded(self) -> bool:
        """Whether the rows are distributed over several processes."""
        return not self.ranks.alone

    def reduce(self, values: Tensor, operation: str = "sum") -> Tensor:
        """Add values (or take their maximum, with "max") over all processes."""
        return self.ranks.sum(values) if operation == "sum" else self.ranks.max(values)

    def least(self, values: Tensor) -> float:
        """Minimum of one value per point over all processes."""
        none = values.new_full((1,), -torch.inf)
        return -float(self.reduce(torch.cat([-values, none]).amax(0, keepdim=True), "max"))

    @property
    def k(self) -> int:
        """Number of reference clusters."""
        return len(self.centers)

    @property
    def device(self) -> torch.device:
        """Device of the computation."""
        return self.labels.device

    @property
    def filled(self) -> DataMatrix:
        """The table with missing values filled in; centers are means of its points."""
        return self.table if self.mixed is None else self.mixed.filled

    @property
    def dense(self) -> CodedColumns:
        """The codes of a table that is not sparse."""
        assert isinstance(self.columns, CodedColumns)
        return self.columns

    @cached_property
    def canonical_columns(self) -> Sequence[int]:
        """For every column, the first column with the same tests up to the side of missing numbers."""
        return range(self.table.d) if self.mixed is None else canonical_columns(self.mixed.encoding)

    @cached_property
    def variances(self) -> Tensor:
        """Factors by which variances of columns are divided before they are compared, [d].

        They are 1 if costs are measured in the columns themselves, and for categories. Otherwise they are the
        variances of the columns over all points.
        """
        if self.space is self.table:
            return torch.ones(self.table.d, dtype=torch.float64, device=self.device)
        variances = self.table.variances(self.root().rows, self.weight, self.ranks)
        return variances if self.mixed is None else variances.where(self.mixed.encoding.is_number, 1)

    @property
    def distances(self) -> Tensor:
        """Cost of every point at every reference center, [n, k] of float64.

        The costs are rounded to multiples of a tiny power of 2, so that sums of them and of their differences are
        exact.
        """
        if self._distances is None:  # no cached_property, whose lock several shards in one process would wait for
            found = self.given_distances
            if found is None:
                found = self.space.distances(self.space_centers, self.metric)
            self._distances = rounded(found, exact_total(found.amax(1), self.ranks), found)
        return self._distances

    def exact(self, values: Tensor) -> Tensor:
        """Round values [..., points] so that their sums over all processes are exact."""
        return rounded(values, exact_total(values, self.ranks)[..., None])

    def weighted(self, costs: Tensor, rows: Tensor, total: float | None = None) -> Tensor:
        """Multiply costs [m, points] by the weights of the points, and round them so that sums are exact.

        Parameters
        ----------
        costs : Tensor [m, points]
        rows : Tensor [points] of int64
            Indices of the points.
        total : float, optional
            Upper bound of the total cost. Default: the sum of the largest cost of every point.
        """
        weight = self.weights(rows)
        if weight is None:
            return costs
        costs = costs * weight
        most = exact_total(costs.abs().amax(0), self.ranks) if total is None else costs.new_tensor(total)
        return rounded(costs, most, costs)

    def cost(self, labels: Tensor) -> float:
        """Total cost of the points at the reference centers of the clusters `labels` [n]."""
        costs = self.distances.gather(1, labels[:, None]).T
        return float(self.reduce(self.weighted(costs, torch.arange(self.n, device=self.device)).sum()))

    def weights(self, rows: Tensor) -> Tensor | None:
        """Weights of a subset of the points; None if there are no weights."""
        return None if self.weight is None else self.weight.index_select(0, rows)

    def node(
        self, id: int, rows: Tensor, centers: Tensor, sides: frozenset[tuple[int, bool]] = frozenset()
    ) -> Node:
        """Create a node with the given points and centers."""
        return self.nodes([(id, rows, centers, sides)])[0]

    def nodes(self, parts: list[tuple[int, Tensor, Tensor, frozenset[tuple[int, bool]]]]) -> list[Node]:
        """Create several nodes and count their points in one reduction over all processes."""
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
            mass = self.reduce(counts_by_label(own, self.k, self.weights(node.rows)))
            present = mass.nonzero()[:, 0]
            node.clusters = present, mass[present]
        return node.clusters

    def goes_left(self, node: Node, cut: Cut) -> Tensor:
        """Mask of the points that go left, [n]; only the entries of the node's points are meaningful."""
        if not cut.intervals:
            return self.columns.column(cut.feature) <= cut.code
        left = torch.zeros(self.n, dtype=torch.bool, device=self.device)
        left[node.rows] = cut.left
        return left

    def points(self, rows: Tensor) -> Tensor:
        """Points in the space of the costs, relative to the first center, [points, p] of float64."""
        table = self.space.take(rows)
        return table.columns(0, table.d).T.to(torch.float64) - self.space_centers[0]

    def positions(self, rows: Tensor, clusters: Tensor) -> Tensor:
        """Positions of the labels of a subset of the points in a list of clusters."""
        place = torch.zeros(self.k, dtype=torch.int64, device=self.device)
        place[clusters] = torch.arange(len(clusters), device=self.device)
        return place.index_select(0, self.labels.index_select(0, rows))

    def root(self) -> Node:
        """The root node, with all points and centers."""
        return self.node(0, torch.arange(self.n, device=self.device), torch.arange(self.k, device=self.device))

    def cut(self, node: Node, feature: int, code: int) -> Cut:
        """Create the cut above a code; its threshold is midway between the node's values on the two sides."""
        codes = self.columns.column(feature).index_select(0, node.rows)
        sides, centers_left = codes <= code, node.centers.to(torch.bool)
        left, ends = sides, self.columns.ends
        if ends is not None:
            present = torch.bincount(codes, minlength=ends.high.shape[1]).nonzero()[:, 0]
            below, above, sides = ends.high[feature, present], ends.low[feature, present], present <= code
        else:
            below = above = self.table.column(feature).index_select(0, node.rows).to(torch.float64)
        if len(node.centers):
            centers_left = self.columns.centers[feature].index_select(0, node.centers) <= code
            own = self.centers[:, feature].index_select(0, node.centers)
            sides = torch.cat([sides, centers_left])
            below, above = torch.cat([below, own]), torch.cat([above, own])
        found = self.reduce(around(below, above, sides), "max").tolist()
        threshold = between(*open_ends(found[0], -found[1]), self.table.dtype)
        return Cut(feature, code, threshold, left, centers_left)

    def cut_at(self, node: Node, feature: int, threshold: float, intervals: Intervals = ()) -> Cut:
        """Create a cut from a threshold or intervals, which need not lie between codes."""
        side = intervals or ((-inf, threshold),)
        left = contains(side, self.table.column(feature, node.rows))
        return Cut(feature, -1, threshold, left, contains(side, self.centers[node.centers, feature]), intervals)

    def children(self, node: Node, cut: Cut, ids: tuple[int, int]) -> tuple[Node, Node]:
        """Create the nodes on the two sides of a cut."""

        def child(id: int, left: bool) -> tuple[int, Tensor, Tensor, frozenset[tuple[int, bool]]]:
            points, centers = (side if left else ~side for side in (cut.left, cut.centers_left))
            own = node.centers.masked_select(centers) if len(node.centers) else node.centers
            return id, select(node.rows, points), own, node.sides | {(self.canonical_columns[cut.feature], left)}

        left, right = self.nodes([child(ids[0], True), child(ids[1], False)])
        return left, right


def around(below: Tensor, above: Tensor, left: Tensor) -> Tensor:
    """Maximum of `below` over the left side, and of minus `above` over the right side; -inf for an empty side."""
    if not len(left):
        return below.new_full((2,), -torch.inf)
    return torch.stack([below.where(left, -torch.inf), (-above).where(~left, -torch.inf)]).amax(1)


def open_ends(low: float, high: float) -> tuple[float, float]:
    """Replace infinite ends, which stand for sides without points, by finite ones with a gap between the two."""
    if low == float("-inf"):
        low = high - 1 if high < float("inf") else 0.0
    return low, low + 1 if high == float("inf") else high


def between(low: float, high: float, dtype: Any = None, share: float = 0.5) -> float:
    """A number between two others such that ``low <= number < high``, also when it is rounded to `dtype`."""
    middle = low * (1 - share) + high * share
    if not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        return middle if low <= middle < high else low
    if dtype != torch.float64:
        middle = torch.tensor(middle, dtype=dtype).item()
    if low <= middle < high:
        return middle
    below = torch.tensor(high, dtype=dtype)  # becomes the largest number of the type below `high`
    if below.item() >= high:
        below = below.nextafter(torch.tensor(-torch.inf, dtype=dtype))
    return below.item()
