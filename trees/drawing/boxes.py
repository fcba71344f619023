"""Drawing of a tree with a box for every node, parents above their children."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from neonxc.trees.drawing.looks import (
    FONT,
    GREY,
    LINE,
    LONGEST,
    answers,
    node_colors,
    text_width,
    thickness,
    wrapped,
)
from neonxc.trees.fitted.tree import ThresholdTree
from neonxc.trees.rules.wording import MISTAKES, NodeWords

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

    from neonxc.trees.drawing.histograms import Histogram

# In points
PAD, APART = 5.0, 9.0  # padding of the text of a box, distance of boxes
BETWEEN = 30.0  # distance of rows, in which edges are drawn
CHART = 92.0, 34.0  # size of a histogram in a box
SMALL = 0.8  # size of the caption relative to the text of the boxes


class Boxes:
    """A drawing of a tree with a box for every node.

    Every leaf has a slot of the same width, and parents stand midway between their children. A parent is at least
    half a slot inside the slots of its leaves. Boxes of one row are therefore at least 1 slot apart where both are
    leaves, 1.5 where one is, and 2 where none is; the slot width follows.

    Attributes
    ----------
    x, y : list of float
        Centres of all nodes in points; y points downwards.
    width, height : float
        Size of the drawing, in points.
    """

    def __init__(self, tree: ThresholdTree, words: list[NodeWords], charts: Mapping[int, Histogram]) -> None:
        self.tree, self.words, self.charts = tree, words, charts
        sizes = [self._size(node) for node in range(tree.n_nodes)]
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
        self.caption: list[str] = []
        if any(word.cluster is None and word.mistakes for word in words):
            room = (self.width - 2 * APART) / SMALL
            self.caption = wrapped(MISTAKES, lambda line: text_width(line) <= room)
            self.height += LINE * len(self.caption)

    def draw(self, ax: Axes, scale: float) -> None:
        """Draw all boxes and edges, reduced by `scale`."""
        ax.set(xlim=(0, self.width), ylim=(self.height, 0))
        colors = node_colors(self.tree)
        for node, word in enumerate(self.words):
            self._draw_edges(ax, node, scale)
            self._draw_box(ax, node, colors(word), scale)
        if self.caption:
            style: dict[str, Any] = {"size": SMALL * FONT * scale, "color": GREY, "va": "bottom"}
            ax.text(APART, self.height - APART / 2, "\n".join(self.caption), **style)

    def _size(self, node: int) -> tuple[float, float]:
        """Return the width and height of a node's box, in points."""
        title, details = _lines(self.words[node])
        widths = [text_width(line, weight="bold") for line in title] + [text_width(line) for line in details]
        height = LINE * (len(title) + len(details))
        if node in self.charts:
            widths, height = [*widths, CHART[0]], height + CHART[1] + 4
        return max(widths) + 2 * PAD, height + 2 * PAD

    def _draw_box(self, ax: Axes, node: int, colors: tuple[str, str], scale: float) -> None:
        from matplotlib.offsetbox import AnnotationBbox, DrawingArea, TextArea, VPacker

        from neonxc.plot.images import cluster_colors

        line, fill = colors
        common = {"size": FONT * scale, "multialignment": "center", "linespacing": 1.2, "parse_math": False}
        styles: tuple[dict[str, Any], ...] = ({"weight": "bold", "color": "0.1"}, {"color": "0.2"})
        parts: list[Artist] = [
            TextArea("\n".join(lines), textprops=common | style, multilinebaseline=True)
            for lines, style in zip(_lines(self.words[node]), styles, strict=True)
        ]
        if node in self.charts:
            width, height = (scale * side for side in CHART)
            area = DrawingArea(width, height)
            foot = height / 5  # space for the mark of the threshold
            bars = self.charts[node].draw(0, foot, width, height - foot, cluster_colors(len(self.tree.classes)))
            area.add_artist(bars)
            parts.insert(1, area)
        content = VPacker(children=parts, align="center", pad=0, sep=2 * scale if node in self.charts else 1)
        boxstyle = f"round,pad={PAD / FONT},rounding_size=0.4"
        look = {"boxstyle": boxstyle, "facecolor": fill, "edgecolor": line, "linewidth": 1.2 * scale}
        place = self.x[node], self.y[node]
        ax.add_artist(AnnotationBbox(content, place, fontsize=FONT * scale, annotation_clip=False, bboxprops=look))

    def _draw_edges(self, ax: Axes, node: int, scale: float) -> None:
        from matplotlib.lines import Line2D

        x, y, bend = self.x[node], self.y[node], self.bends[node]
        hole = {"boxstyle": "square,pad=0.15", "facecolor": ax.figure.get_facecolor(), "edgecolor": "none"}
        style: dict[str, Any] = {"size": 0.85 * FONT * scale, "ha": "center", "va": "center", "bbox": hole}
        for child, answer in answers(self.tree, node):
            to, width = self.x[child], scale * thickness(self.words[child], self.words[0])
            corners = [x, x, to, to], [y, bend, bend, self.y[child]]
            ax.add_line(Line2D(*corners, color="0.6", linewidth=width, zorder=1))
            near = max(-BETWEEN, min(BETWEEN, (to - x) / 2))  # the answer is near the test if the edge is long
            ax.text(x + near, bend, answer, zorder=2, **style)


def _lines(word: NodeWords) -> tuple[list[str], list[str]]:
    """Return the lines of the title, in a narrow column, and of the counts."""
    title = [line for part in word.title() for line in wrapped(part, lambda line: len(line) <= LONGEST)]
    return title, word.details
