"""Rules that assign a reference cluster to a leaf, as chosen by ``leaf_labels``."""

from __future__ import annotations

from neonxc.trees.exact import tally
from neonxc.trees.problem import Node, Problem


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
    return int(problem.reduce(tally(own, problem.k, problem.weights(node.rows))).argmax())
