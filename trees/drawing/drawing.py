"""Drawings of threshold trees, and their export as indented text and as Graphviz source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neonxc.common.types import TableLike
from neonxc.rules.wording import counts
from neonxc.trees.rules import Names, caption, node_words
from neonxc.trees.tree import ThresholdTree, as_tree

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from neonxc.trees.estimator import TreeExplainer


def plot_tree(
    tree: ThresholdTree | TreeExplainer,
    feature_names: Names = None,
    class_names: Names = None,
    precision: int | None = None,
    ax: Axes | None = None,
    X: TableLike | None = None,
) -> Axes:
    """Draw a tree for the screen and for paper.

    Every node has a box: white boxes for tests, and below them the leaves in the colours of their clusters, which
    are paler the more of their training points belong to other clusters. The width of an edge is the share of
    training points that take it. Trees of more than about twenty leaves are easier to read as text
    (:func:`export_text`), by Graphviz (:func:`export_graphviz`) or in a report (:func:`neonxc.explain`).

    Parameters
    ----------
    tree : ThresholdTree or fitted tree explainer
    feature_names : sequence of str, one per column, or mapping, optional
        A mapping gives new names to some columns, by their own names or their positions. Default: the tree's own,
        or x[0], x[1], ...
    class_names : sequence of str, one per cluster, or mapping, optional
        Names of the clusters in the order of ``tree.classes``, or by their labels, which are the default.
    precision : int, optional
        Significant digits of thresholds; more where two thresholds of one column would look the same. Default: as
        many as tell the training values of the column apart.
    ax : matplotlib.axes.Axes, optional
        Axes to draw into; the text shrinks until the tree fits. Default: a new pyplot figure of the size of the
        tree.
    X : array-like, data frame, sparse matrix or tensor [n, features], optional
        Points, such as the training data. Every test then has a histogram of its column over the points that reach
        it, in the colours of the clusters that the tree predicts, with a mark at the threshold.

    Returns
    -------
    matplotlib.axes.Axes
        ``ax.figure.savefig(path)`` writes the figure, which is also pyplot's current one unless `ax` was given.

    Raises
    ------
    ValueError
        If the number of names is wrong, or if X is invalid as in :meth:`ThresholdTree.predict`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from neonxc.trees import IMM, plot_tree
    >>> X = load_iris(as_frame=True).data
    >>> plot_tree(IMM(3, random_state=0).fit(X), X=X).figure.savefig("tree.pdf")  # doctest: +SKIP
    """
    tree = as_tree(tree)
    from neonxc.trees.drawing.boxes import Boxes  # which imports matplotlib, as the next; it is optional
    from neonxc.trees.drawing.canvas import histograms

    words = node_words(tree, feature_names, class_names, precision)
    charts = {} if X is None else histograms(tree, X)
    return Boxes(tree, words, charts).draw(ax)


def export_text(
    tree: ThresholdTree | TreeExplainer,
    feature_names: Names = None,
    class_names: Names = None,
    precision: int | None = None,
    show_samples: bool = True,
) -> str:
    """Write a tree as indented lines, one line per branch.

    Parameters
    ----------
    tree : ThresholdTree or fitted tree explainer
    feature_names : sequence of str, one per column, or mapping, optional
        A mapping gives new names to some columns, by their own names or their positions. Default: the tree's own,
        or x[0], x[1], ...
    class_names : sequence of str, one per cluster, or mapping, optional
        Names of the clusters in the order of ``tree.classes``, or by their labels, which are the default.
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
    reached_by = {0: ""}
    for word in words:
        reached_by |= zip(word.children, word.branches, strict=True)
    lines = []
    for node, (word, depth) in enumerate(zip(words, tree.depths.tolist(), strict=True)):
        is_leaf = not word.children
        texts = [reached_by[node]] if reached_by[node] else []
        if is_leaf and word.title[0]:
            texts.append(word.title[0])
        if not texts:  # the root's test is part of its branches
            continue
        line = ": ".join(texts)
        if node > 0:
            line = "|   " * (depth - 1) + "|--- " + line
        if show_samples:
            mistakes = word.mistakes if is_leaf else None
            line += f" ({counts(word.samples, mistakes)})"
        lines.append(line)
    return "\n".join(lines)


def export_graphviz(
    tree: ThresholdTree | TreeExplainer,
    feature_names: Names = None,
    class_names: Names = None,
    precision: int | None = None,
) -> str:
    """Write a tree in the DOT language of Graphviz.

    Leaves have the colour of their cluster, which is paler the more of their training points belong to other
    clusters. The width of an edge is the share of training points that take it.

    Parameters
    ----------
    tree : ThresholdTree or fitted tree explainer
    feature_names : sequence of str, one per column, or mapping, optional
        A mapping gives new names to some columns, by their own names or their positions. Default: the tree's own,
        or x[0], x[1], ...
    class_names : sequence of str, one per cluster, or mapping, optional
        Names of the clusters in the order of ``tree.classes``, or by their labels, which are the default.
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
    text = _quoted(caption(words))
    if text:
        style = f'labelloc=b, fontsize=10, fontcolor="#737373", fontname=Helvetica, label="{text}"'
        lines[1] = lines[1].replace("];", f", {style}];")
    edges = []
    for node, word in enumerate(words):
        label = "\\n".join(_quoted(line) for line in word.title + word.details)
        look = ""
        if not word.children:
            look = ', color="{}", fillcolor="{}"'.format(*word.look)
        lines.append(f'    {node} [label="{label}"{look}];')
        for child, answer in zip(word.children, ("yes", "no"), strict=False):
            edges.append(f'    {node} -> {child} [label=" {answer} ", penwidth={words[child].edge:.2f}];')
    return "\n".join([*lines, *edges, "}"]) + "\n"


def _quoted(text: str) -> str:
    """Escape a text for a quoted string of DOT, where backslashes and HTML's entities have a meaning."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;")
