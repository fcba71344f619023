"""Growth policies: cut until every leaf has one center, or always cut the leaf with the largest gain."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from neonxc.trees.cuts.builder import TreeBuilder
from neonxc.trees.cuts.exact_sums import counts_by_label
from neonxc.trees.cuts.search import Search
from neonxc.trees.fit.problem import Cut, Node, Problem

Leaves = tuple[TreeBuilder, list[Node]]
"""A growing tree and its leaves."""
Grown = tuple[TreeBuilder, list[Node], dict[int, int] | None]
"""A grown tree, its leaves, and the reference cluster of every leaf (None: leaves are clusters)."""
Step = tuple[Cut, int, int]
"""A cut, and the numbers of its two children."""


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
def separate_centers(search: Search, builder: TreeBuilder) -> list[Node]:
    """Split nodes, level by level, until each has one center; return the leaves."""
    leaves, level = [], [search.problem.root()]
    while level:
        leaves += [node for node in level if len(node.centers) == 1]
        level = [child for node in level if len(node.centers) > 1 for child in _split(search, builder, node)]
    return leaves


def _split(search: Search, builder: TreeBuilder, node: Node) -> tuple[Node, Node]:
    """Split a node that has several centers."""
    best = search.best(node)
    if best is None:
        raise ValueError(
            f"the centers of clusters {node.centers.tolist()[:5]} are the same in every column, so no cut "
            "separates them; leave out all but one of them, or explain the labels by CART, which needs no centers"
        )
    cut = search.cut(node, best)
    children = search.problem.children(node, cut, builder.split(node.id, cut))
    search.split(node, cut, children, [len(child.centers) > 1 for child in children])
    return children


@torch.inference_mode()
def best_first(search: Splits, builder: TreeBuilder, leaves: list[Node], max_leaves: int) -> list[Node]:
    """Split the leaf with the largest gain until there are `max_leaves` or no gain is left; return the leaves.

    The best cut of a leaf is searched only when the upper bound of its gain is the largest.
    """
    problem = search.problem
    # Entries (-gain or -bound, number of the node, node, best cut if known): ties go to the lowest number
    heap: list[tuple[float, int, Node, Any]] = []
    done: list[Node] = []
    _push(heap, search, leaves)
    while heap and len(heap) + len(done) < max_leaves:
        priority, _, node, best = heapq.heappop(heap)
        if best is None:
            best = search.best(node) if priority < torch.inf else None
            gain = -torch.inf if best is None else search.gain(node, best)
            if gain == -torch.inf:
                done.append(node)
            else:
                heapq.heappush(heap, (-gain, node.id, node, best))
            continue
        cut = search.cut(node, best)
        children = problem.children(node, cut, builder.split(node.id, cut))
        search.split(node, cut, children)
        _push(heap, search, children)
    return done + [entry[2] for entry in heap]


def _push(heap: list[tuple[float, int, Node, Any]], search: Splits, nodes: Sequence[Node]) -> None:
    """Add nodes to the heap with the upper bounds of their gains."""
    for node in nodes:
        heapq.heappush(heap, (-search.bound(node), node.id, node, None))


@torch.inference_mode()
def grow_with_tests(
    problem: Problem, root: int, test: Callable[[int, Node], Step | None]
) -> tuple[TreeBuilder, list[tuple[int, Node]]]:
    """Grow a tree from given tests.

    Parameters
    ----------
    problem : Problem
    root : int
        Number of the root in the caller's numbering.
    test : callable
        ``test(number, node)`` returns the cut of a node and the numbers of its children, or None for a leaf.

    Returns
    -------
    builder : TreeBuilder
    leaves : list of (number, Node)
        The leaves, with the caller's numbers.
    """
    builder, leaves, open_ = TreeBuilder(), [], [(root, problem.root())]
    while open_:
        place, node = open_.pop()
        step = test(place, node)
        if step is None:
            leaves.append((place, node))
            continue
        cut, left, right = step
        children = problem.children(node, cut, builder.split(node.id, cut))
        open_ += [(right, children[1]), (left, children[0])]
    return builder, leaves


def leaf_of_points(leaves: list[Node], n: int) -> torch.Tensor:
    """Leaf of every point in the builder's numbering, [n], on the CPU."""
    result = torch.empty(n, dtype=torch.int64, device=leaves[0].rows.device)
    for leaf in leaves:
        result[leaf.rows] = leaf.id
    return result.cpu()


def label_leaves(problem: Problem, leaves: list[Node], leaf_labels: str) -> dict[int, int] | None:
    """Assign a reference cluster to every leaf; None if every leaf is a cluster of its own."""
    if leaf_labels == "own":
        return None
    rule = cheapest if leaf_labels == "surrogate" else majority
    return {leaf.id: rule(problem, leaf) for leaf in leaves}


def cheapest(problem: Problem, node: Node) -> int:
    """Find the cluster whose reference center has the least cost for a node's points."""
    distances = problem.distances.index_select(0, node.rows).T
    return int(problem.reduce(problem.weighted(distances, node.rows).sum(1)).argmin())


def majority(problem: Problem, node: Node) -> int:
    """Find the most frequent reference cluster of a node's points."""
    own = problem.labels.index_select(0, node.rows)
    return int(problem.reduce(counts_by_label(own, problem.k, problem.weights(node.rows))).argmax())
