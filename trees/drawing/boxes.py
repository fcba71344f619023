"""Drawing of a tree with a box for every node, parents above their children."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from neonxc.trees.drawing.canvas import FONT, GREY, LONGEST, Canvas, Histogram, text_width, wrapped
from neonxc.trees.rules import NodeWords, caption
from neonxc.trees.tree import ThresholdTree

# In points
LINE = 11.0  # height of a line of text
# padding of the text of a box, distance of boxes
PAD = 5.0
MARGIN = 9.0
BETWEEN = 30.0  # distance of rows, in which edges are drawn
CHART = 92.0, 34.0  # size of a histogram in a box
FOOT = 6.8  # space below it for the mark of a threshold
SMALL = 0.8  # size of the caption relative to the text of the boxes


class Boxes:
    """A drawing of a tree with a box for every node.

    Every leaf has a slot of the same width, and parents stand midway between their children. A parent is at least
    half a slot inside the slots of its leaves. Boxes of one row are therefore at least 1 slot apart where both are
    leaves, 1.5 where one is, and 2 where none is; the slot width follows.

    Attributes
    ----------
    places : ndarray [nodes, 2]
        Centres of all nodes in points; the second axis points downwards.
    width, height : float
        Size of the drawing, in points.
    """

    def __init__(self, tree: ThresholdTree, words: list[NodeWords], charts: Mapping[int, Histogram]) -> None:
        self.words = words
        self.charts = charts
        self.titles = [_broken(word.title) for word in words]
        self.sizes = np.array([self._size(node) for node in range(tree.n_nodes)])
        widths, heights = self.sizes.T
        is_test = (tree.feature >= 0).numpy()
        depths = tree.depths.numpy()

        # the slot is so wide that two leaves, a leaf and a test, and two tests beside each other do not overlap
        leaf = widths[~is_test].max(initial=-MARGIN) + MARGIN
        test = widths[is_test].max(initial=-MARGIN) + MARGIN
        slot = max(leaf, (leaf + test) / 3, test / 2)
        x = np.zeros(tree.n_nodes)
        x[~is_test] = np.arange(tree.n_leaves) * slot
        for node in is_test.nonzero()[0][::-1]:  # children come after their parents
            x[node] = x[[*words[node].children]].mean()
        x -= (x - widths / 2).min() - MARGIN
        self.width = float((x + widths / 2).max()) + MARGIN

        rows = np.zeros(tree.depth + 1)
        np.maximum.at(rows, depths, heights)
        ends = MARGIN + np.cumsum(rows + BETWEEN)  # where the next row begins
        self.places = np.stack([x, (ends - BETWEEN - rows / 2)[depths]], 1)
        self.bends = ((rows + BETWEEN) / 2)[depths]  # from a node to where its edges turn
        self.height = float(ends[-1]) - BETWEEN + MARGIN
        self.caption = "\n".join(wrapped(caption(words), (self.width - 2 * MARGIN) / SMALL))
        self.height += LINE * len(self.caption.splitlines())

    def draw(self, ax: Axes | None) -> Axes:
        """Draw all boxes and edges, with more space between them if the axes are larger."""
        canvas = Canvas(ax, self.width, self.height)
        stretched = np.array([canvas.width / self.width, canvas.height / self.height])
        positions = (self.places * stretched).tolist()
        bends = (self.bends * stretched[1]).tolist()
        style: dict[str, Any] = {"ha": "center", "va": "center", "multialignment": "center"}
        hole = {"boxstyle": "square,pad=0.15", "fc": canvas.ax.figure.get_facecolor(), "ec": "none"}
        for node, word in enumerate(self.words):
            x, y = positions[node]
            width, height = self.sizes[node]
            bend = y + bends[node]
            for child, answer in zip(word.children, ("yes", "no"), strict=False):
                child_x, child_y = positions[child]
                corners = [(x, y), (x, bend), (child_x, bend), (child_x, child_y)]
                canvas.line(*corners, color="0.6", width=self.words[child].edge)
                # the answer is near the test if the edge is long
                distance = max(-BETWEEN, min(BETWEEN, (child_x - x) / 2))
                canvas.text(x + distance, bend, answer, 0.85 * FONT, bbox=hole, **style)
            canvas.box(x, y, width, height, word.look, line=1.2, rounding=3.4)
            top = y - height / 2 + PAD
            title = LINE * len(self.titles[node])
            canvas.text(x, top + title / 2, "\n".join(self.titles[node]), weight="bold", **style)
            if node in self.charts:
                left = x - CHART[0] / 2
                bottom = top + title + 2 + CHART[1] - FOOT
                self.charts[node].draw(canvas, left, bottom, CHART[0], CHART[1] - FOOT)
            details = y + height / 2 - PAD - LINE * len(word.details) / 2
            canvas.text(x, details, "\n".join(word.details), color="0.2", **style)
        canvas.text(MARGIN, canvas.height - MARGIN / 2, self.caption, SMALL * FONT, color=GREY, va="bottom")
        return canvas.finish()

    def _size(self, node: int) -> tuple[float, float]:
        """Return the width and height of a node's box, in points."""
        title = self.titles[node]
        details = self.words[node].details
        widths = [text_width(line, weight="bold") for line in title] + [text_width(line) for line in details]
        height = LINE * (len(title) + len(details)) + 2 * PAD
        if node in self.charts:
            widths.append(CHART[0])
            height = height + CHART[1] + 4
        return max(widths) + 2 * PAD, height


def _broken(lines: list[str]) -> list[str]:
    """Break the lines of a title that are too long."""
    return [short for line in lines for short in wrapped(line, LONGEST, len)]
