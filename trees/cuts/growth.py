"""Growth policies: cut until every leaf has one center, or always cut the leaf with the largest gain.

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
from math import nan
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch

from neonxc.rules.intervals import Intervals
from neonxc.trees.cuts.exact_sums import counts_by_label
from neonxc.trees.cuts.nodes import Cut, Node, children, root

if TYPE_CHECKING:
    from neonxc.trees.cuts.search import Search
    from neonxc.trees.fit.problem import Problem

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
            if len(node.centers) == 1:
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
    search.split(node, cut, both, [len(child.centers) > 1 for child in both])
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
