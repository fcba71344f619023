"""Drawing of a tree with a box for every node, parents above their children.

Lengths are in points (1/72 inch). The origin is the top left corner, x points to the right, and y downwards.

1. Box. It holds the lines of its text, one below the other, and maybe a histogram between title and counts:

       width    widest line (or CHART_WIDTH) + 2 PADDING
       height   LINE_HEIGHT * lines (+ CHART_HEIGHT + CHART_SPACE) + 2 PADDING

2. x. The leaves stand in slots of one width s, from left to right, and a test stands midway between its children:

       x_leaf = s * (number of the leaf)          x_test = (x_left + x_right) / 2

3. s. A test is at least s / 2 to the right of its first leaf and to the left of its last one, and two nodes of one
   row have no leaf in common. Their centres are therefore at least s apart if both are leaves, 3/2 s if one is a
   test, and 2 s if both are. With l and t, the widths of the widest leaf and the widest test plus MARGIN, boxes
   are at least MARGIN apart if

       s >= l               3/2 s >= (l + t) / 2               2 s >= t

4. y. The nodes of one depth r form a row, as high as its highest box:

       y_r = MARGIN + h_r / 2 + sum of (h_q + ROW_GAP) over the rows q < r

5. Edges lead from the centre of a test straight down to the middle of the gap below its row, there to the x of the
   child, and down to the child's centre. Boxes hide what is below them.

Axes that are larger than the drawing stretch the distances of the centres, and leave the boxes as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from neonxc.trees.drawing.canvas import FONT, GREY, LONGEST, Canvas, Histogram, text_width, wrapped
from neonxc.trees.rules import NodeWords, caption
from neonxc.trees.tree import ThresholdTree

# lengths in points, for text of the size FONT
LINE_HEIGHT = 11.0
PADDING = 5.0  # between the edge of a box and its text
MARGIN = 9.0  # between boxes of a row, and around the drawing
ROW_GAP = 30.0  # between rows, where the edges turn
CHART_WIDTH = 92.0  # of a histogram
CHART_HEIGHT = 34.0  # with CHART_FOOT
CHART_FOOT = 6.8  # below the bars, for the mark of a threshold
CHART_SPACE = 4.0  # half of it above the histogram, half below
CAPTION_SCALE = 0.8  # size of the caption's font relative to that of the boxes
ANSWER_SCALE = 0.85  # the same of "yes" and "no"
CENTERED: dict[str, Any] = {"ha": "center", "va": "center", "multialignment": "center"}


class Boxes:
    """A drawing of a tree with a box for every node.

    Attributes
    ----------
    titles : list of list of str
        Title of every node, broken into lines.
    sizes : ndarray [nodes, 2]
        Width and height of every box.
    centers : ndarray [nodes, 2]
        Centres of all boxes.
    bends : ndarray [nodes]
        Distance from the centre of a test down to the bend of its edges.
    caption : str
        Explanation of the counts below the tree, with line breaks; empty if none is needed.
    width, height : float
        Size of the drawing.
    """

    def __init__(self, tree: ThresholdTree, words: list[NodeWords], charts: Mapping[int, Histogram]) -> None:
        self.words = words
        self.charts = charts
        self.titles = [_broken(word.title) for word in words]
        self.sizes = np.array([self._size(node) for node in range(tree.n_nodes)])

        # columns: the leftmost box begins behind the margin
        x = self._slots(tree)
        half_widths = self.sizes[:, 0] / 2
        x += MARGIN - (x - half_widths).min()
        self.width = float((x + half_widths).max()) + MARGIN

        # rows
        row_of_node = tree.depths.numpy()
        row_heights = np.zeros(tree.depth + 1)
        np.maximum.at(row_heights, row_of_node, self.sizes[:, 1])
        next_tops = MARGIN + np.cumsum(row_heights + ROW_GAP)  # where the row below begins
        row_centers = next_tops - ROW_GAP - row_heights / 2
        self.centers = np.stack([x, row_centers[row_of_node]], 1)
        self.bends = ((row_heights + ROW_GAP) / 2)[row_of_node]

        max_width = (self.width - 2 * MARGIN) / CAPTION_SCALE
        caption_lines = wrapped(caption(words), max_width)
        self.caption = "\n".join(caption_lines)
        self.height = float(next_tops[-1]) - ROW_GAP + MARGIN
        if self.caption:
            self.height += LINE_HEIGHT * len(caption_lines)

    def _size(self, node: int) -> tuple[float, float]:
        """Return the width and height of a node's box."""
        title = self.titles[node]
        details = self.words[node].details
        widths = [text_width(line, weight="bold") for line in title]
        widths += [text_width(line) for line in details]
        height = LINE_HEIGHT * (len(title) + len(details)) + 2 * PADDING
        if node in self.charts:
            widths.append(CHART_WIDTH)
            height = height + CHART_HEIGHT + CHART_SPACE
        return max(widths) + 2 * PADDING, height

    def _slots(self, tree: ThresholdTree) -> np.ndarray:
        """Return the x of every box, [nodes], if the first leaf is at 0."""
        is_test = (tree.feature >= 0).numpy()
        widths = self.sizes[:, 0]
        leaf = widths[~is_test].max() + MARGIN
        test = widths[is_test].max(initial=-MARGIN) + MARGIN  # 0 if there are no tests
        slot = max(leaf, (leaf + test) / 3, test / 2)

        x = np.zeros(tree.n_nodes)
        x[~is_test] = np.arange(tree.n_leaves) * slot
        for node in is_test.nonzero()[0][::-1]:  # children come after their parents
            left, right = self.words[node].children
            x[node] = (x[left] + x[right]) / 2
        return x

    def draw(self, ax: Axes | None) -> Axes:
        """Draw all boxes and edges, with more space between them if the axes are larger."""
        canvas = Canvas(ax, self.width, self.height)
        stretch = np.array([canvas.width / self.width, canvas.height / self.height])
        centers = (self.centers * stretch).tolist()
        bends = (self.bends * stretch[1]).tolist()
        for node, word in enumerate(self.words):
            x, y = centers[node]
            for child, answer in zip(word.children, ("yes", "no"), strict=False):  # a leaf has no children
                self._draw_edge(canvas, (x, y), centers[child], y + bends[node], answer, self.words[child].edge)
            self._draw_box(canvas, node, x, y)
        bottom = canvas.height - MARGIN / 2
        canvas.text(MARGIN, bottom, self.caption, CAPTION_SCALE * FONT, color=GREY, va="bottom")
        return canvas.finish()

    def _draw_edge(
        self,
        canvas: Canvas,
        parent: tuple[float, float],
        child: tuple[float, float],
        bend: float,
        answer: str,
        width: float,
    ) -> None:
        """Draw the edge from a test to a child, which turns at the height `bend`, and the answer of the child."""
        x, _ = parent
        child_x, _ = child
        canvas.line(parent, (x, bend), (child_x, bend), child, color="0.6", width=width)

        # the answer is in the middle of the level part, but near the test if that is long
        offset = (child_x - x) / 2
        offset = max(-ROW_GAP, min(ROW_GAP, offset))
        background = canvas.ax.figure.get_facecolor()
        gap: dict[str, Any] = {"boxstyle": "square,pad=0.15", "fc": background, "ec": "none"}
        canvas.text(x + offset, bend, answer, ANSWER_SCALE * FONT, bbox=gap, **CENTERED)

    def _draw_box(self, canvas: Canvas, node: int, x: float, y: float) -> None:
        """Draw a box with its centre at (x, y): from the top its title, its histogram and its counts."""
        word = self.words[node]
        width, height = self.sizes[node]
        canvas.box(x, y, width, height, word.look, line=1.2, rounding=3.4)

        title = self.titles[node]
        title_top = y - height / 2 + PADDING
        title_height = LINE_HEIGHT * len(title)
        canvas.text(x, title_top + title_height / 2, "\n".join(title), weight="bold", **CENTERED)

        if node in self.charts:
            chart_top = title_top + title_height + CHART_SPACE / 2
            bar_height = CHART_HEIGHT - CHART_FOOT
            self.charts[node].draw(canvas, x - CHART_WIDTH / 2, chart_top + bar_height, CHART_WIDTH, bar_height)

        details_bottom = y + height / 2 - PADDING
        details_height = LINE_HEIGHT * len(word.details)
        canvas.text(x, details_bottom - details_height / 2, "\n".join(word.details), color="0.2", **CENTERED)


def _broken(lines: list[str]) -> list[str]:
    """Break the lines of a title that are too long."""
    broken = []
    for line in lines:
        broken += wrapped(line, LONGEST, len)
    return broken
