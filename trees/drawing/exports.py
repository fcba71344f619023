"""Export of threshold trees as indented text and as Graphviz source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from neonxc.rules.wording import counts
from neonxc.trees.drawing.canvas import node_colors
from neonxc.trees.fitted.tree import ThresholdTree, as_tree
from neonxc.trees.rules.wording import caption, node_words

if TYPE_CHECKING:
    from neonxc.trees.estimator import TreeExplainer


def export_text(
    tree: ThresholdTree | TreeExplainer,
    feature_names: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
    precision: int | None = None,
    show_samples: bool = True,
) -> str:
    """Write a tree as indented lines, one line per branch.

    Parameters
    ----------
    tree : ThresholdTree or fitted tree explainer
    feature_names : sequence of str, one per column, optional
        Default: the tree's own, or x[0], x[1], ...
    class_names : sequence of str, one per cluster, optional
        Names of the clusters in the order of ``tree.classes``, which are the default.
    precision : int, optional
        Significant digits of thresholds; more where two thresholds of one column would look the same. Default: as
        many as tell the training values of the column apart.
    show_samples : bool
        Whether to show the number of training points and, at leaves, how many of them belong to other clusters.

    Returns
    -------
    str

    Examples
    --------
    >>> import numpy as np
    >>> from neonxc.trees import IMM, export_text
    >>> X = np.array([[0.0, 0], [0, 1], [4, 0], [4, 1]])
    >>> tree = IMM(n_clusters=2, random_state=0).fit(X, labels=[0, 0, 1, 1]).tree_
    >>> print(export_text(tree, feature_names=["width", "height"]))
    |--- width ≤ 2: cluster 0 (2 samples, 0 mistakes)
    |--- width > 2: cluster 1 (2 samples, 0 mistakes)
    """
    tree = as_tree(tree)
    words = node_words(tree, feature_names, class_names, precision)
    lines = []
    for node, (parent, depth) in enumerate(zip(tree.parents.tolist(), tree.depths.tolist(), strict=True)):
        line = "" if node == 0 else "|   " * (depth - 1) + "|--- "
        if node:
            line += words[parent].branch(left=bool(tree.left[parent] == node))
        leaf = words[node].cluster is not None
        if leaf:
            line += (": " if node else "") + words[node].name
        if show_samples:
            line += f" ({counts(words[node].samples, words[node].mistakes if leaf else None)})"
        if node or leaf:  # the root's test is part of its branches
            lines.append(line)
    return "\n".join(lines)


def export_graphviz(
    tree: ThresholdTree | TreeExplainer,
    feature_names: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
    precision: int | None = None,
) -> str:
    """Write a tree in the DOT language of Graphviz.

    Leaves have the colour of their cluster, which is paler the more of their training points belong to other
    clusters. The width of an edge is the share of training points that take it.

    Parameters
    ----------
    tree : ThresholdTree or fitted tree explainer
    feature_names : sequence of str, one per column, optional
        Default: the tree's own, or x[0], x[1], ...
    class_names : sequence of str, one per cluster, optional
        Names of the clusters in the order of ``tree.classes``, which are the default.
    precision : int, optional
        Significant digits of thresholds; more where two thresholds of one column would look the same. Default: as
        many as tell the training values of the column apart.

    Returns
    -------
    str
    """
    tree = as_tree(tree)
    words = node_words(tree, feature_names, class_names, precision)
    lines = [
        "digraph tree {",
        "    graph [ordering=out, bgcolor=transparent];",
        '    node [shape=box, style="rounded,filled", fillcolor=white, color="#737373", fontname=Helvetica];',
        '    edge [color="#8c8c8c", fontcolor="#595959", fontname=Helvetica, arrowhead=none];',
    ]
    if text := _quoted(caption(words)):
        style = f'labelloc=b, fontsize=10, fontcolor="#737373", fontname=Helvetica, label="{text}"'
        lines[1] = lines[1].replace("];", f", {style}];")
    edges = []
    for node, (word, (line, fill)) in enumerate(zip(words, node_colors(tree, words), strict=True)):
        label = "\\n".join(_quoted(line) for line in (*word.title(), *word.details))
        looks = f', color="{line}", fillcolor="{fill}"' * (word.cluster is not None)
        lines.append(f'    {node} [label="{label}"{looks}];')
        for child, answer in zip(word.children, ("yes", "no"), strict=False):
            edges.append(f'    {node} -> {child} [label=" {answer} ", penwidth={words[child].edge:.2f}];')
    return "\n".join([*lines, *edges, "}"]) + "\n"


def _quoted(text: str) -> str:
    """Escape a text for a quoted string of DOT, where backslashes and HTML's entities have a meaning."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;")
