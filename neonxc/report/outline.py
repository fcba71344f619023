"""Rows of a tree, from which the template writes nested lists."""

from __future__ import annotations

from dataclasses import dataclass

from neonxc.report.contents import TreeNode

OPEN_NODES = 16  # the largest nodes are unfolded at first, all others folded


@dataclass
class Row:
    """A node of the tree, with its place in the nested lists.

    Attributes
    ----------
    at, end : int
        Number of the node, and the end of its branch, which consists of the nodes ``at`` to ``end - 1``.
    node : TreeNode
        The node itself.
    answer : {"", "yes", "no"}
        Answer to the test of the parent node that leads here; empty for the root.
    unfolded : bool
        Whether the children are visible when the page is opened.
    closing : int
        Number of lists that end after this row.
    """

    at: int
    end: int
    node: TreeNode
    answer: str
    unfolded: bool
    closing: int


def outline(tree: list[TreeNode]) -> list[Row]:
    """Return one row per node in preorder, so that the template needs no recursion, however deep the tree is."""
    ends = list(range(1, len(tree) + 1))
    for at in reversed(range(1, len(tree))):
        ends[tree[at].parent] = max(ends[tree[at].parent], ends[at])
    inner = [at for at, node in enumerate(tree) if node.left >= 0]
    unfolded = set(sorted(inner, key=lambda at: -tree[at].samples)[:OPEN_NODES])
    closing = [0] * len(tree)
    for at in inner:
        closing[ends[at] - 1] += 1
    return [
        Row(at, ends[at], node, _answer(tree, at), at in unfolded, closing[at]) for at, node in enumerate(tree)
    ]


def _answer(tree: list[TreeNode], at: int) -> str:
    if tree[at].parent < 0:
        return ""
    return "yes" if tree[tree[at].parent].left == at else "no"
