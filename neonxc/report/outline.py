"""A tree as nested lists, row by row."""

from __future__ import annotations

from dataclasses import dataclass

from neonxc.report.contents import TreeNode

OPEN_NODES = 16  # the largest; the others are folded


@dataclass
class Row:
    """A node of the tree in its place.

    Attributes
    ----------
    at, end : int
        Its number; its branch is ``at`` to ``end - 1``.
    node : TreeNode
    answer : {"", "yes", "no"}
        To the parent's test.
    unfolded : bool
    closing : int
        How many lists end behind it.
    """

    at: int
    end: int
    node: TreeNode
    answer: str
    unfolded: bool
    closing: int


def outline(tree: list[TreeNode]) -> list[Row]:
    """Rows of the nodes in preorder: a template writes them one after the other, however deep the tree is."""
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
