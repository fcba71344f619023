"""How a tree grows: until every leaf has one center, or leaf by leaf, the best first."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import torch

from neonxc.trees.builder import TreeBuilder
from neonxc.trees.problem import Cut, Node, Problem
from neonxc.trees.rounds import MOST
from neonxc.trees.search import Search

Step = tuple[Cut, int, int]
"""A cut, and the places of its children."""


class Splits(Protocol):
    """A way to find the best cuts of nodes: :class:`~neonxc.trees.search.Search` with any criterion, for one."""

    problem: Problem

    def bound(self, node: Node) -> float:
        """At most the gain of splitting the node; minus infinity where it stays a leaf."""

    def best(self, node: Node) -> Any:
        """What is known of the best cut; None if there is none."""

    def gain(self, node: Node, best: Any) -> float:
        """What that cut gains; minus infinity where the node stays a leaf all the same."""

    def cut(self, node: Node, best: Any) -> Cut:
        """The cut."""

    def split(self, node: Node, cut: Cut, children: tuple[Node, Node]) -> None:
        """Hand on to the children what is kept for a node."""


@torch.inference_mode()  # operations start sooner
def separate_centers(search: Search, builder: TreeBuilder) -> list[Node]:
    """Split nodes, level by level, until each has one center; return the leaves."""
    problem = search.problem
    leaves, level = [], [problem.root()]
    step = 1 if problem.ranks.alone else MOST  # one by one, what is kept for a node is gone before the next one
    while level:
        leaves += [node for node in level if len(node.centers) == 1]
        open_ = [node for node in level if len(node.centers) > 1]
        parts = [open_[first : first + step] for first in range(0, len(open_), step)]
        level = [child for part in parts for child in _split(search, builder, part)]
        problem.note()
    return leaves


def _split(search: Search, builder: TreeBuilder, nodes: list[Node]) -> list[Node]:
    """The children of nodes whose sums over processes are taken together."""
    problem = search.problem
    cuts = problem.at_once([partial(_separating, search, node) for node in nodes])
    ids = [builder.split(node.id, cut) for node, cut in zip(nodes, cuts, strict=True)]
    steps = [partial(_children, search, *step) for step in zip(nodes, cuts, ids, strict=True)]
    return [child for children in problem.at_once(steps) for child in children]


def _separating(search: Search, node: Node) -> Cut:
    """The best cut of a node of several centers."""
    best = search.best(node)
    if best is None:
        raise ValueError(
            f"the centers of clusters {node.centers.tolist()[:5]} are the same in every column, so that no cut "
            "separates them; leave one of them out, or explain the labels by CART, which needs no centers"
        )
    return search.cut(node, best)


def _children(search: Search, node: Node, cut: Cut, ids: tuple[int, int]) -> tuple[Node, Node]:
    """The children of a node, with what is kept for those that are cut again."""
    children = search.problem.children(node, cut, ids)
    search.split(node, cut, children, [len(child.centers) > 1 for child in children])
    return children


@torch.inference_mode()
def best_first(search: Splits, builder: TreeBuilder, leaves: list[Node], max_leaves: int) -> list[Node]:
    """Split the leaf that gains most until there are `max_leaves` or none gains any more; return the leaves.

    A leaf's cut is searched for only when its bound is the greatest.
    """
    problem = search.problem
    # Of equals the first node wins, however loose their bounds are
    heap: list[tuple[float, int, Node, Any]] = []
    done: list[Node] = []
    _push(heap, search, leaves)
    while heap and len(heap) + len(done) < max_leaves:
        priority, _, node, best = heapq.heappop(heap)
        if best is None:
            best = search.best(node) if priority < torch.inf else None
            problem.note()
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
    """Add nodes with the bounds of what splitting them gains."""
    bounds = search.problem.at_once([partial(search.bound, node) for node in nodes])
    for node, bound in zip(nodes, bounds, strict=True):
        heapq.heappush(heap, (-bound, node.id, node, None))


@torch.inference_mode()
def grow_with_tests(
    problem: Problem, root: int, test: Callable[[int, Node], Step | None]
) -> tuple[TreeBuilder, list[tuple[int, Node]]]:
    """Grow a tree whose tests are known.

    Parameters
    ----------
    root : int
        What `test` calls the root.
    test : callable
        Number of a place, and the node that is there -> its cut and the numbers of its children; None for a leaf.

    Returns
    -------
    builder : TreeBuilder
    leaves : list of (number, Node)
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
    """The leaf of every point, [n], as the builder numbers it; on the CPU."""
    result = torch.empty(n, dtype=torch.int64, device=leaves[0].rows.device)
    for leaf in leaves:
        result[leaf.rows] = leaf.id
    return result.cpu()
