"""Drawings of a threshold tree: indented text, Graphviz source, a matplotlib figure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from neonxc.rules.wording import counts
from neonxc.trees.tree import ThresholdTree, as_tree
from neonxc.trees.wording import NodeWords, node_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from neonxc.trees.estimator import TreeExplainer

# Of a figure, in points
FONT, LINE = 8.5, 11.0
PAD, APART = 5.0, 9.0  # around the text of a box, between boxes
BETWEEN = 30.0  # rows, where edges run
THINNEST, THICKEST = 0.8, 6.0  # edges, of few and of all training points
LARGEST = 20_000.0  # side of a figure; canvases have less than 65536 pixels
COLUMN = 20  # characters in which names are wrapped


def export_text(
    tree: ThresholdTree | TreeExplainer,
    feature_names: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
    precision: int | None = None,
    show_samples: bool = True,
) -> str:
    """Write a tree as indented lines, a line for every branch.

    Parameters
    ----------
    tree : ThresholdTree or fitted tree explainer
    feature_names : sequence of str, one per column, optional
        Default: the tree's own, or x[0], x[1], ...
    class_names : sequence of str, one per cluster, optional
        In the order of ``tree.classes``, which are the default.
    precision : int, optional
        Significant digits of thresholds; more where two thresholds of one column would look the same. Default: as
        many as tell the training values of the column apart.
    show_samples : bool
        Whether to tell how many training points there are, and at leaves how many are of other clusters.

    Returns
    -------
    str

    Examples
    --------
    >>> import numpy as np
    >>> from neonxc.trees import IMM
    >>> from neonxc.trees.drawing import export_text
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
        if node or leaf:  # the root's test is told by its branches
            lines.append(line)
    return "\n".join(lines)


def export_graphviz(
    tree: ThresholdTree | TreeExplainer,
    feature_names: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
    precision: int | None = None,
) -> str:
    """Write a tree in the DOT language of Graphviz.

    Leaves have the colour of their cluster, the paler the more of their training points are of others. At a
    test, mistakes are the training points that it sends where no leaf has their cluster. Edges are as thick as
    the share of training points that take them.

    Parameters
    ----------
    tree : ThresholdTree or fitted tree explainer
    feature_names : sequence of str, one per column, optional
        Default: the tree's own, or x[0], x[1], ...
    class_names : sequence of str, one per cluster, optional
        In the order of ``tree.classes``, which are the default.
    precision : int, optional
        Significant digits of thresholds; more where two thresholds of one column would look the same. Default: as
        many as tell the training values of the column apart.

    Returns
    -------
    str
    """
    tree = as_tree(tree)
    words, color = node_words(tree, feature_names, class_names, precision), _colors(tree)
    lines = [
        "digraph tree {",
        "    graph [ordering=out, bgcolor=transparent];",
        '    node [shape=box, style="rounded,filled", fillcolor=white, color="#737373", fontname=Helvetica];',
        '    edge [color="#8c8c8c", fontcolor="#595959", fontname=Helvetica, arrowhead=none];',
    ]
    for node, word in enumerate(words):
        label = "\\n".join(_quoted(line) for line in (*word.title(), *word.details))
        line, fill = color(word)
        looks = "" if word.cluster is None else f', color="{line}", fillcolor="{fill}"'
        lines.append(f'    {node} [label="{label}"{looks}];')
    for node in range(tree.n_nodes):
        for child, answer in _answers(tree, node):
            width = _thickness(words[child], words[0])
            lines.append(f'    {node} -> {child} [label=" {answer} ", penwidth={width:.2f}];')
    return "\n".join([*lines, "}"]) + "\n"


def plot_tree(
    tree: ThresholdTree | TreeExplainer,
    feature_names: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
    precision: int | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw a tree: tests in white boxes, leaves in the colours of their clusters, side by side.

    Leaves are the paler the more of their training points are of other clusters. At a test, mistakes are the
    training points that it sends where no leaf has their cluster. Edges are as thick as the share of training
    points that take them.

    Parameters
    ----------
    tree : ThresholdTree or fitted tree explainer
    feature_names : sequence of str, one per column, optional
        Default: the tree's own, or x[0], x[1], ...
    class_names : sequence of str, one per cluster, optional
        In the order of ``tree.classes``, which are the default.
    precision : int, optional
        Significant digits of thresholds; more where two thresholds of one column would look the same. Default: as
        many as tell the training values of the column apart.
    ax : matplotlib.axes.Axes, optional
        Where to draw; text shrinks until the tree fits into it. Default: a figure as large as the tree needs,
        outside pyplot's registry.

    Returns
    -------
    matplotlib.axes.Axes
        Its ``figure`` shows itself in a notebook and is kept with ``figure.savefig(path)``.
    """
    from matplotlib import pyplot

    tree = as_tree(tree)
    words, color = node_words(tree, feature_names, class_names, precision), _colors(tree)
    layout = _Layout(tree, words)
    if ax is None:
        scale = min(1.0, LARGEST / max(layout.width, layout.height))
        ax = pyplot.figure(figsize=(layout.width * scale / 72, layout.height * scale / 72)).add_axes((0, 0, 1, 1))
    else:
        points = 72 / ax.figure.dpi
        scale = min(1.0, ax.bbox.width * points / layout.width, ax.bbox.height * points / layout.height)
    ax.set(xlim=(0, layout.width), ylim=(layout.height, 0))
    ax.set_axis_off()
    for node, word in enumerate(words):
        _draw_edges(ax, tree, words, layout, node, scale)
        _draw_box(ax, word, layout.x[node], layout.y[node], color(word), scale)
    return ax


class _Layout:
    """Centres of all nodes in points, y downwards: a slot for every leaf, parents midway between children.

    A parent is at least half a slot inside the slots of its leaves. So boxes of one row are at least 1 slot apart
    where both are leaves, 1.5 where one is, and 2 where none is: as wide has a slot to be.
    """

    def __init__(self, tree: ThresholdTree, words: list[NodeWords]) -> None:
        sizes = [_size(word) for word in words]
        widths: dict[bool, float] = {True: 0.0, False: 0.0}  # of tests, of leaves
        for word, (width, _) in zip(words, sizes, strict=True):
            widths[word.cluster is None] = max(widths[word.cluster is None], width + APART)
        inner, leaf = widths[True], widths[False]
        slot = max(leaf, (leaf + inner) / 3, inner / 2)
        self.x = [0.0] * tree.n_nodes
        for i, node in enumerate(tree.leaves.tolist()):
            self.x[node] = i * slot
        for node in reversed(range(tree.n_nodes)):  # children come after their parents
            if words[node].cluster is None:
                self.x[node] = (self.x[int(tree.left[node])] + self.x[int(tree.right[node])]) / 2
        left = min(x - size[0] / 2 for x, size in zip(self.x, sizes, strict=True)) - APART
        self.x = [x - left for x in self.x]
        self.width = max(x + size[0] / 2 for x, size in zip(self.x, sizes, strict=True)) + APART

        depths = tree.depths.tolist()
        rows = [0.0] * (tree.depth + 1)
        for depth, size in zip(depths, sizes, strict=True):
            rows[depth] = max(rows[depth], size[1])
        tops = [APART + sum(rows[:depth]) + BETWEEN * depth for depth in range(len(rows))]
        self.y = [tops[depth] + rows[depth] / 2 for depth in depths]
        self.bends = [tops[depth] + rows[depth] + BETWEEN / 2 for depth in depths]  # where a node's edges turn
        self.height = tops[-1] + rows[-1] + APART


def _size(word: NodeWords) -> tuple[float, float]:
    """Width and height of a node's box, in points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    width = 0.0
    for lines, weight in zip(_lines(word), ("bold", "normal"), strict=True):
        font = FontProperties(size=FONT, weight=weight)
        for line in lines:
            width = max(width, text_to_path.get_text_width_height_descent(line, font, ismath=False)[0])
    return width + 2 * PAD, LINE * sum(map(len, _lines(word))) + 2 * PAD


def _draw_box(ax: Axes, word: NodeWords, x: float, y: float, colors: tuple[str, str], scale: float) -> None:
    from matplotlib.offsetbox import AnnotationBbox, TextArea, VPacker

    line, fill = colors
    common = {"size": FONT * scale, "multialignment": "center", "linespacing": 1.2, "parse_math": False}
    parts = [
        TextArea("\n".join(lines), textprops=common | style, multilinebaseline=True)
        for lines, style in zip(_lines(word), ({"weight": "bold", "color": "0.1"}, {"color": "0.2"}), strict=True)
    ]
    content = VPacker(children=[*parts], align="center", pad=0, sep=1)
    boxstyle = f"round,pad={PAD / FONT},rounding_size=0.4"
    look = {"boxstyle": boxstyle, "facecolor": fill, "edgecolor": line, "linewidth": 1.2 * scale}
    ax.add_artist(AnnotationBbox(content, (x, y), fontsize=FONT * scale, annotation_clip=False, bboxprops=look))


def _draw_edges(
    ax: Axes, tree: ThresholdTree, words: list[NodeWords], layout: _Layout, node: int, scale: float
) -> None:
    from matplotlib.lines import Line2D

    x, y, bend = layout.x[node], layout.y[node], layout.bends[node]
    ground = ax.figure.get_facecolor()
    hole = {"boxstyle": "square,pad=0.15", "facecolor": ground, "edgecolor": "none"}
    style: dict[str, Any] = {"size": 0.85 * FONT * scale, "ha": "center", "va": "center", "bbox": hole}
    for child, answer in _answers(tree, node):
        to, width = layout.x[child], scale * _thickness(words[child], words[0])
        ax.add_line(
            Line2D([x, x, to, to], [y, bend, bend, layout.y[child]], color="0.6", linewidth=width, zorder=1)
        )
        near = max(-BETWEEN, min(BETWEEN, (to - x) / 2))  # on a long way, the answer is looked for at the test
        ax.text(x + near, bend, answer, zorder=2, **style)


def _answers(tree: ThresholdTree, node: int) -> list[tuple[int, str]]:
    """A test's children, and its answer for them."""
    return [(int(tree.left[node]), "yes"), (int(tree.right[node]), "no")] if tree.feature[node] >= 0 else []


def _lines(word: NodeWords) -> tuple[list[str], list[str]]:
    """The title, in a narrow column but with bounds next to their signs, and the counts."""
    tied = [
        re.sub(r"(?<=[≤>]) |(?<= in) (?=[\[(])|(?<=^or) ", "\N{NO-BREAK SPACE}", part) for part in word.title()
    ]
    return [line for part in tied for line in _wrapped(part)], word.details


def _wrapped(text: str) -> list[str]:
    """Lines of a title, which goes on in the next one after a space or an underscore."""
    lines = [""]
    for part in re.findall(rf"[^ _]{{1,{COLUMN}}}[ _]*|[ _]+", text):
        if lines[-1] and len(lines[-1]) + len(part.rstrip()) > COLUMN:
            lines.append("")
        lines[-1] += part
    return [line.rstrip() for line in lines]


def _thickness(child: NodeWords, root: NodeWords) -> float:
    return max(THINNEST, THICKEST * child.samples / root.samples) if root.samples > 0 else THINNEST


def _colors(tree: ThresholdTree) -> Callable[[NodeWords], tuple[str, str]]:
    """Colours of a node's line and area."""
    from matplotlib.colors import to_hex

    from neonxc.plot.images import cluster_colors

    table = cluster_colors(len(tree.classes))

    def colors(word: NodeWords) -> tuple[str, str]:
        if word.cluster is None:
            return "#737373", "#ffffff"
        red, green, blue, _ = table(word.cluster)
        purity = 1 - word.mistakes / word.samples if word.samples > 0 else 1.0
        strength = 0.08 + 0.42 * purity**2  # never so strong that black text is hard to read
        pale = (1 - strength * (1 - red), 1 - strength * (1 - green), 1 - strength * (1 - blue))
        return to_hex((red, green, blue)), to_hex(pale)

    return colors


def _quoted(text: str) -> str:
    """Text inside a quoted string of DOT, where backslashes and HTML's entities have a meaning."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;")
