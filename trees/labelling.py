"""Which cluster a leaf is: the rules behind ``leaf_labels``."""

from __future__ import annotations

from neonxc.trees.exact import tally
from neonxc.trees.problem import Node, Problem

LEAF_LABELS = ("surrogate", "majority", "own")


def check_leaf_labels(value: str) -> None:
    """Refuse another way of labelling leaves."""
    if value not in LEAF_LABELS:
        raise ValueError(f"leaf_labels needs one of {', '.join(LEAF_LABELS)}, got {value!r}")


def label_leaves(problem: Problem, leaves: list[Node], leaf_labels: str) -> dict[int, int] | None:
    """The reference cluster of every leaf; None where leaves are clusters of their own."""
    if leaf_labels == "own":
        return None
    rule = cheapest if leaf_labels == "surrogate" else majority
    return {leaf.id: rule(problem, leaf) for leaf in leaves}


def cheapest(problem: Problem, node: Node) -> int:
    """The cluster at whose reference center a node's points cost least."""
    distances = problem.distances.index_select(0, node.rows).T
    return int(problem.reduce(problem.weighted(distances, node.rows).sum(1)).argmin())


def majority(problem: Problem, node: Node) -> int:
    """The most frequent reference cluster of a node's points."""
    own = problem.labels.index_select(0, node.rows)
    return int(problem.reduce(tally(own, problem.k, problem.weights(node.rows))).argmax())
