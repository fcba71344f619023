"""Nodes of a growing tree, and the cuts that divide their points and centers.

A cut is found as a code b: points with codes up to b go left. Its threshold is midway between the greatest
value of the node's points and centers on the left and the least one on the right (:func:`cut_above`), rounded
to the type of the table such that both are still on their sides (:func:`between`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from neonxc.rules.intervals import Intervals, contains
from neonxc.trees.cuts.exact_sums import select

if TYPE_CHECKING:
    from neonxc.trees.criteria.sums import Sum
    from neonxc.trees.cuts.sparse_columns import SparseEntries
    from neonxc.trees.fit.problem import Problem


class Part(NamedTuple):
    """What a node is made from: its number, points, centers and the tests on its path."""

    id: int
    rows: Tensor
    centers: Tensor
    sides: frozenset[tuple[int, bool]]


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
    sums: Sequence[Sum] = ()
    entries: SparseEntries | None = None

    def rounding(self, size: float) -> float:
        """Largest rounding error of a difference of two sums over the node's points, of terms of a total size.

        Each of the n terms of a sum is rounded by at most ``2 * eps * size``; see :mod:`neonxc.trees.cuts.search`.
        """
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
    rows = torch.arange(problem.n, device=problem.device)
    centers = torch.arange(problem.k, device=problem.device)
    return make_nodes(problem, [Part(0, rows, centers, frozenset())])[0]


def make_nodes(problem: Problem, parts: Sequence[Part]) -> list[Node]:
    """Create nodes and count their points in one reduction over all processes."""
    counts = [float(len(part.rows)) for part in parts]
    masses = counts
    if problem.weight is not None:
        sums = [problem.weight.index_select(0, part.rows).sum() for part in parts]
        masses = torch.stack(sums).tolist()
    if problem.sharded:
        both = torch.tensor([counts, masses], dtype=torch.float64)
        counts, masses = problem.reduce(both).tolist()
    return [
        Node(part.id, part.rows, part.centers, int(n), mass, part.sides)
        for part, n, mass in zip(parts, counts, masses, strict=True)
    ]


def children(problem: Problem, node: Node, cut: Cut, ids: tuple[int, int]) -> tuple[Node, Node]:
    """Create the nodes on the two sides of a cut."""
    column = problem.canonical_columns[cut.feature]

    def child(id: int, goes_left: bool, points: Tensor, centers: Tensor) -> Part:
        child_centers = node.centers
        if len(child_centers):
            child_centers = child_centers.masked_select(centers)
        return Part(id, select(node.rows, points), child_centers, node.sides | {(column, goes_left)})

    parts = [
        child(ids[0], True, cut.left, cut.centers_left),
        child(ids[1], False, ~cut.left, ~cut.centers_left),
    ]
    left, right = make_nodes(problem, parts)
    return left, right


def cut_above(problem: Problem, node: Node, feature: int, code: int) -> Cut:
    """Create the cut above a code; its threshold is midway between the node's values on the two sides."""
    columns = problem.columns
    codes = columns.column(feature).index_select(0, node.rows)
    left = codes <= code
    # numbers that are on the left or on the right: the values, or the ends of the bins that occur
    ends = columns.ends
    if ends is None:
        is_left = left
        low = high = problem.table.column(feature).index_select(0, node.rows).to(torch.float64)
    else:
        present = torch.bincount(codes, minlength=ends.high.shape[1]).nonzero()[:, 0]
        is_left = present <= code
        low = ends.low[feature, present]
        high = ends.high[feature, present]

    centers_left = node.centers.to(torch.bool)
    if len(node.centers):
        centers_left = columns.centers[feature].index_select(0, node.centers) <= code
        centers = problem.centers[:, feature].index_select(0, node.centers)
        is_left = torch.cat([is_left, centers_left])
        low = torch.cat([low, centers])
        high = torch.cat([high, centers])

    below, minus_above = problem.reduce(_around(low, high, is_left), "max").tolist()
    below, above = _finite_ends(below, -minus_above)
    threshold = between(below, above, problem.table.dtype)
    return Cut(feature, code, threshold, left, centers_left)


def cut_at(problem: Problem, node: Node, feature: int, threshold: float, intervals: Intervals = ()) -> Cut:
    """Create a cut from a threshold or intervals, which need not lie between codes."""
    test = intervals or ((-inf, threshold),)
    left = contains(test, problem.table.column(feature, node.rows))
    centers_left = contains(test, problem.centers[node.centers, feature])
    return Cut(feature, -1, threshold, left, centers_left, intervals)


def _around(low: Tensor, high: Tensor, is_left: Tensor) -> Tensor:
    """Maximum of `high` over the left side, and of minus `low` over the right side; -inf for an empty side."""
    if not len(is_left):
        return high.new_full((2,), -torch.inf)
    on_left = high.where(is_left, -torch.inf)
    on_right = (-low).where(~is_left, -torch.inf)
    return torch.stack([on_left, on_right]).amax(1)


def _finite_ends(low: float, high: float) -> tuple[float, float]:
    """Replace infinite ends, which stand for sides without points, by finite ones with a gap between the two."""
    if low == -inf:
        low = high - 1 if high < inf else 0.0
    if high == inf:
        high = low + 1
    return low, high


def between(low: float, high: float, dtype: Any = None, share: float = 0.5) -> float:
    """A number between two others such that ``low <= number < high``, also when it is rounded to `dtype`."""
    middle = low * (1 - share) + high * share
    is_float = isinstance(dtype, torch.dtype) and dtype.is_floating_point
    if not is_float:
        return middle if low <= middle < high else low

    if dtype != torch.float64:
        middle = torch.tensor(middle, dtype=dtype).item()
    if low <= middle < high:
        return middle
    below = torch.tensor(high, dtype=dtype)  # becomes the largest number of the type below `high`
    if below.item() >= high:
        below = below.nextafter(torch.tensor(-torch.inf, dtype=dtype))
    return below.item()
