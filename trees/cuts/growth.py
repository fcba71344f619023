"""Growing a tree: its nodes, the cuts that divide their points and centers, and the order in which nodes are cut.

A cut is found as a code b: points with codes up to b go left. Its threshold is midway between the greatest
value of the node's points and centers on the left and the least one on the right (:func:`cut_above`), rounded
to the type of the table such that both are still on their sides (:func:`between`).

Growth policies:

================  =======================================================  =======================================
function          node that is cut next                                    until
================  =======================================================  =======================================
separate_centers  every node of a level that has several centers           every leaf has one center
best_first        the leaf whose best cut has the largest gain             there are `max_leaves`, or no gain
grow_with_tests   every node for which there is a test                     no test is left
================  =======================================================  =======================================
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import inf, nan
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch
from torch import Tensor

from neonxc.rules.intervals import Intervals, contains
from neonxc.trees.cuts.exact_sums import counts_by_label

if TYPE_CHECKING:
    from neonxc.trees.criteria.sums import Sum
    from neonxc.trees.cuts.search import Search
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
        Number of the node in the :class:`Grown`.
    rows : Tensor [points] of int64
        Indices of the points that reach the node, in ascending order.
    centers : Tensor [centers] of int64
        Indices of the reference centers that reach the node; empty if the tree does not separate centers.
    n, mass : int, float
        Number of points over all processes, and their total weight.
    n_centers : int
        Number of centers.
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
    relative_rounding : float
        The :meth:`rounding` in units of the size. Each of the n terms of a sum is rounded by at most
        ``2 * eps * size``; see :mod:`neonxc.trees.cuts.search`.
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
    relative_rounding: float = field(init=False)
    n_centers: int = field(init=False)

    def __post_init__(self) -> None:
        self.n_centers = len(self.centers)
        self.relative_rounding = 4 * (self.n + 1) * torch.finfo(torch.float64).eps

    def rounding(self, size: float) -> float:
        """Largest rounding error of a difference of two sums over the node's points, of terms of a total size."""
        return self.relative_rounding * size

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


Step = tuple[Cut, int, int]
"""A cut, and the numbers of its two children."""


class Grown:
    """A growing tree: lists with one entry per node, in the order in which the nodes were created.

    Attributes
    ----------
    leaves : list of Node
    clusters : dict of int to int, or None
        The reference cluster of every leaf by its number; None if every leaf is a cluster of its own.
    """

    def __init__(self, leaves: Iterable[Node] = ()) -> None:
        self.feature = [-1]
        self.code = [-1]
        self.threshold = [nan]
        self.left = [-1]
        self.right = [-1]
        self.intervals: list[Intervals] = [()]
        self.leaves = list(leaves)
        self.clusters: dict[int, int] | None = None

    def split(self, node: int, cut: Cut) -> tuple[int, int]:
        """Turn a leaf into an inner node with the test of `cut`; return the numbers of its children."""
        first = len(self.feature)
        self.feature[node] = cut.feature
        self.code[node] = cut.code
        self.threshold[node] = cut.threshold
        self.intervals[node] = cut.intervals
        self.left[node] = first
        self.right[node] = first + 1
        for values in (self.feature, self.code, self.left, self.right):
            values += [-1, -1]
        self.threshold += [nan, nan]
        self.intervals += [(), ()]
        return first, first + 1

    def preorder(self) -> list[int]:
        """Node numbers in preorder: each node, then its left branch, then its right branch."""
        order = []
        stack = [0]
        while stack:
            node = stack.pop()
            order.append(node)
            if self.feature[node] >= 0:
                stack += [self.right[node], self.left[node]]
        return order


# --- nodes and their cuts ---


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
        if node.n_centers:
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
    if node.n_centers:
        centers_left = columns.centers[feature].index_select(0, node.centers) <= code
        centers = problem.centers[:, feature].index_select(0, node.centers)
        is_left = torch.cat([is_left, centers_left])
        low = torch.cat([low, centers])
        high = torch.cat([high, centers])

    ends_at_cut = _around(low, high, is_left)
    if problem.sharded:
        ends_at_cut = problem.reduce(ends_at_cut, "max")
    below, minus_above = ends_at_cut.tolist()
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


def select(numbers: Tensor, mask: Tensor) -> Tensor:
    """Select the numbers [n] where a mask is True."""
    if numbers.device.type != "cpu":
        return numbers.masked_select(mask)
    # four times faster than indexing by the mask, and six times faster than torch
    return torch.from_numpy(numbers.numpy().compress(mask.numpy()))


# --- growth policies ---


class Entry(NamedTuple):
    """A leaf that best-first growth may split. The least entry is the next: ties go to the lowest number."""

    priority: float  # minus the gain of the best cut or, while that is unknown, minus its upper bound
    id: int
    node: Node
    best: Any  # the search's best cut; None if it is unknown


class Splits(Protocol):
    """Interface of a search for the best cut of a node, such as :class:`~neonxc.trees.cuts.search.Search`."""

    problem: Problem

    def bound(self, node: Node) -> float:
        """Upper bound of the gain of splitting the node; minus infinity if it stays a leaf."""

    def best(self, node: Node) -> Any:
        """Description of the best cut; None if the node can't be cut."""

    def gain(self, node: Node, best: Any) -> float:
        """Gain of the best cut; minus infinity if the node stays a leaf."""

    def cut(self, node: Node, best: Any) -> Cut:
        """The best cut, with its threshold or intervals."""

    def split(self, node: Node, cut: Cut, children: tuple[Node, Node]) -> None:
        """Pass on to the children what was stored for the node."""


@torch.inference_mode()  # reduces the overhead of small operations
def separate_centers(search: Search) -> Grown:
    """Split nodes, level by level, until each has one center."""
    grown = Grown()
    level = [root(search.problem)]
    while level:
        next_level: list[Node] = []
        for node in level:
            if node.n_centers == 1:
                grown.leaves.append(node)
            else:
                next_level += _split(search, grown, node)
        level = next_level
    return grown


def _split(search: Search, grown: Grown, node: Node) -> tuple[Node, Node]:
    """Split a node that has several centers."""
    best = search.best(node)
    if best is None:
        raise ValueError(
            f"the centers of clusters {node.centers.tolist()[:5]} are the same in every column, so no cut "
            "separates them; leave out all but one of them, or explain the labels by CART, which needs no centers"
        )
    cut = search.cut(node, best)
    ids = grown.split(node.id, cut)
    both = children(search.problem, node, cut, ids)
    search.split(node, cut, both, [child.n_centers > 1 for child in both])
    return both


@torch.inference_mode()
def best_first(search: Splits, grown: Grown, max_leaves: int) -> Grown:
    """Split the leaf with the largest gain until there are `max_leaves` or no gain is left; centers do not matter.

    The best cut of a leaf is searched only when the upper bound of its gain is the largest.
    """
    heap: list[Entry] = []
    done: list[Node] = []
    _push(heap, search, [leaf.without_centers() for leaf in grown.leaves])
    while heap and len(heap) + len(done) < max_leaves:
        priority, _, node, best = heapq.heappop(heap)
        if best is None:  # the gain of its best cut is at most the bound: it may not be the next any more
            best = search.best(node) if priority < torch.inf else None
            gain = -torch.inf if best is None else search.gain(node, best)
            if gain == -torch.inf:
                done.append(node)
            else:
                heapq.heappush(heap, Entry(-gain, node.id, node, best))
            continue
        cut = search.cut(node, best)
        ids = grown.split(node.id, cut)
        both = children(search.problem, node, cut, ids)
        search.split(node, cut, both)
        _push(heap, search, both)
    grown.leaves = done + [entry.node for entry in heap]
    return grown


def _push(heap: list[Entry], search: Splits, nodes: Sequence[Node]) -> None:
    """Add nodes to the heap with the upper bounds of their gains."""
    for node in nodes:
        heapq.heappush(heap, Entry(-search.bound(node), node.id, node, None))


@torch.inference_mode()
def grow_with_tests(problem: Problem, first: int, test: Callable[[int, Node], Step | None]) -> Grown:
    """Grow a tree from given tests.

    Parameters
    ----------
    problem : Problem
    first : int
        Number of the root in the caller's numbering.
    test : callable
        ``test(number, node)`` returns the cut of a node and the numbers of its children, or None for a leaf.
    """
    grown = Grown()
    stack = [(first, root(problem))]
    while stack:
        number, node = stack.pop()
        step = test(number, node)
        if step is None:
            grown.leaves.append(node)
            continue
        cut, left, right = step
        ids = grown.split(node.id, cut)
        left_child, right_child = children(problem, node, cut, ids)
        stack += [(right, right_child), (left, left_child)]
    return grown


def label_leaves(problem: Problem, grown: Grown, leaf_labels: str) -> Grown:
    """Assign a reference cluster to every leaf, unless every leaf is a cluster of its own."""
    if leaf_labels == "own":
        grown.clusters = None
        return grown
    rule = cheapest if leaf_labels == "surrogate" else majority
    grown.clusters = {leaf.id: rule(problem, leaf) for leaf in grown.leaves}
    return grown


def cheapest(problem: Problem, node: Node) -> int:
    """Find the cluster whose reference center has the least cost for a node's points."""
    distances = problem.distances.index_select(0, node.rows).T  # [k, points]
    costs = problem.weighted(distances, node.rows).sum(1)
    return int(problem.reduce(costs).argmin())


def majority(problem: Problem, node: Node) -> int:
    """Find the most frequent reference cluster of a node's points."""
    labels = problem.labels.index_select(0, node.rows)
    counts = counts_by_label(labels, problem.k, problem.weights(node.rows), problem.ranks)
    return int(counts.argmax())
