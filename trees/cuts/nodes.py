"""Nodes of a growing tree, and the cuts that divide their points and centers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from neonxc.rules.intervals import Intervals, contains
from neonxc.trees.cuts.exact_sums import select

if TYPE_CHECKING:
    from neonxc.trees.fit.problem import Problem

Part = tuple[int, Tensor, Tensor, frozenset[tuple[int, bool]]]
"""Number, points, centers and sides of a node."""


@dataclass
class Node:
    """A node of a growing tree.

    Attributes
    ----------
    id : int
        Number of the node in the :class:`~neonxc.trees.cuts.growth.Grown`.
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


def root(problem: Problem) -> Node:
    """The root node, with all points and centers."""
    points, centers = (torch.arange(number, device=problem.device) for number in (problem.n, problem.k))
    return make_nodes(problem, [(0, points, centers, frozenset())])[0]


def make_nodes(problem: Problem, parts: Sequence[Part]) -> list[Node]:
    """Create nodes and count their points in one reduction over all processes."""
    counts = [float(len(part[1])) for part in parts]
    masses = counts
    if problem.weight is not None:
        masses = torch.stack([problem.weight.index_select(0, part[1]).sum() for part in parts]).tolist()
    if problem.sharded:
        counts, masses = problem.reduce(torch.tensor([counts, masses], dtype=torch.float64)).tolist()
    return [
        Node(id, rows, centers, int(n), mass, sides)
        for (id, rows, centers, sides), n, mass in zip(parts, counts, masses, strict=True)
    ]


def children(problem: Problem, node: Node, cut: Cut, ids: tuple[int, int]) -> tuple[Node, Node]:
    """Create the nodes on the two sides of a cut."""

    def child(id: int, left: bool) -> Part:
        points, centers = (side if left else ~side for side in (cut.left, cut.centers_left))
        own = node.centers.masked_select(centers) if len(node.centers) else node.centers
        return id, select(node.rows, points), own, node.sides | {(problem.canonical_columns[cut.feature], left)}

    left, right = make_nodes(problem, [child(ids[0], True), child(ids[1], False)])
    return left, right


def cut_above(problem: Problem, node: Node, feature: int, code: int) -> Cut:
    """Create the cut above a code; its threshold is midway between the node's values on the two sides."""
    columns = problem.columns
    codes = columns.column(feature).index_select(0, node.rows)
    sides = codes <= code
    centers_left = node.centers.to(torch.bool)
    left = sides
    ends = columns.ends
    if ends is not None:
        present = torch.bincount(codes, minlength=ends.high.shape[1]).nonzero()[:, 0]
        below = ends.high[feature, present]
        above = ends.low[feature, present]
        sides = present <= code
    else:
        below = above = problem.table.column(feature).index_select(0, node.rows).to(torch.float64)
    if len(node.centers):
        centers_left = columns.centers[feature].index_select(0, node.centers) <= code
        own = problem.centers[:, feature].index_select(0, node.centers)
        sides = torch.cat([sides, centers_left])
        below = torch.cat([below, own])
        above = torch.cat([above, own])
    found = problem.reduce(_around(below, above, sides), "max").tolist()
    threshold = between(*_open_ends(found[0], -found[1]), problem.table.dtype)
    return Cut(feature, code, threshold, left, centers_left)


def cut_at(problem: Problem, node: Node, feature: int, threshold: float, intervals: Intervals = ()) -> Cut:
    """Create a cut from a threshold or intervals, which need not lie between codes."""
    side = intervals or ((-inf, threshold),)
    left = contains(side, problem.table.column(feature, node.rows))
    return Cut(feature, -1, threshold, left, contains(side, problem.centers[node.centers, feature]), intervals)


def _around(below: Tensor, above: Tensor, left: Tensor) -> Tensor:
    """Maximum of `below` over the left side, and of minus `above` over the right side; -inf for an empty side."""
    if not len(left):
        return below.new_full((2,), -torch.inf)
    return torch.stack([below.where(left, -torch.inf), (-above).where(~left, -torch.inf)]).amax(1)


def _open_ends(low: float, high: float) -> tuple[float, float]:
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
