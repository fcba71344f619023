"""How a tree grows: until every leaf has one center, or leaf by leaf, the best first."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Protocol

import torch

from neonxc.trees.builder import TreeBuilder
from neonxc.trees.problem import Cut, Node, Problem

Step = tuple[Cut, int, int]
"""A cut, and the places of its children."""


class Separator(Protocol):
    """A criterion that separates centers."""

    def cut(self, node: Node) -> Cut | None:
        """The best cut that separates two of the node's centers; None if there is none."""

    def split(self, node: Node, cut: Cut, children: tuple[Node, Node]) -> None:
        """Hand on to the children what the criterion keeps for a node."""


class Gain(Protocol):
    """A criterion that says what splitting a leaf is worth."""

    def bound(self, node: Node) -> float:
        """At most the gain of splitting the node; 0 where it shall stay a leaf."""

    def best(self, node: Node) -> tuple[float, int, int] | None:
        """The best cut's gain, its column and its code; None where there is none."""

    def split(self, node: Node, cut: Cut, children: tuple[Node, Node]) -> None:
        """Hand on to the children what the criterion keeps for a node."""


@torch.inference_mode()  # operations start sooner
def separate_centers(problem: Problem, criterion: Separator, builder: TreeBuilder) -> list[Node]:
    """Split nodes until each has one center; return the leaves."""
    leaves, open_ = [], [problem.root()]
    while open_:
        node = open_.pop()
        if len(node.centers) == 1:
            leaves.append(node)
            continue
        cut = criterion.cut(node)
        if cut is None:
            raise ValueError(
                f"the centers of clusters {node.centers.tolist()[:5]} are the same in every column, so that no "
                "cut separates them; leave one of them out, or explain the labels by CART, which needs no centers"
            )
        children = problem.children(node, cut, builder.split(node.id, cut))
        criterion.split(node, cut, children)
        open_ += children[::-1]
    return leaves


@torch.inference_mode()
def best_first(
    problem: Problem, criterion: Gain, builder: TreeBuilder, leaves: list[Node], max_leaves: int
) -> list[Node]:
    """Split the leaf that gains most until there are `max_leaves` or none gains any more; return the leaves.

    A leaf's cut is searched for only when its bound is the greatest.
    """
    # Of equals the first node wins, however loose their bounds are
    heap: list[tuple[float, int, Node, tuple[int, int] | None]] = []
    done: list[Node] = []
    for node in leaves:
        heapq.heappush(heap, (-criterion.bound(node), node.id, node, None))
    while heap and len(heap) + len(done) < max_leaves:
        priority, _, node, best = heapq.heappop(heap)
        if best is None:
            found = criterion.best(node) if priority < 0 else None
            if found is None:
                done.append(node)
            else:
                heapq.heappush(heap, (-found[0], node.id, node, found[1:]))
            continue
        cut = problem.cut(node, *best)
        children = problem.children(node, cut, builder.split(node.id, cut))
        criterion.split(node, cut, children)
        for child in children:
            heapq.heappush(heap, (-criterion.bound(child), child.id, child, None))
    return done + [entry[2] for entry in heap]


@torch.inference_mode()
def replayed(
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
