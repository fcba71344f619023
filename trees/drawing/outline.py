"""Drawing of a tree as a list that fits on paper, with a line per leaf that begins with if, else if or else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from matplotlib.axes import Axes

from neonxc.common.numbers import text
from neonxc.trees.drawing.canvas import FONT, GREY, Canvas, Histogram, text_width, wrapped
from neonxc.trees.fitted.tree import ThresholdTree
from neonxc.trees.rules import NodeWords

# In points
PAGE = 540.0, 720.0  # 7.5 x 10 inches, which fit on A4 and on letter paper
LINE, GAP = 10.0, 2.0  # height of a line of text, distance of rows
INDENT, MARGIN = 13.0, 6.0
HEAD, FOOT = 18.0, 28.0
BAR, CHART = 46.0, (80.0, 17.0)  # sizes of a full bar of samples and of a histogram
NAME = 110.0  # maximum width of a cluster's name before it is broken
SMALL, SPACE = 0.85 * FONT, 3.5
MEANING = "Read from the top: a line applies where no line above it in its group does."
MISTAKES = "Mistakes: samples of other clusters."


@dataclass
class Row:
    """A branch of the tree: a leaf, or a group of rows that are indented below it.

    Attributes
    ----------
    word : str
        The first word of the line: if, else if, else.
    test : int or None
        The node whose test leads to the branch; None for the last one of a group.
    node : int
        The node that the branch leads to.
    above : tuple of int
        The rows below which it is indented, from the outermost on.
    rails : set of int
        The levels at which further rows follow.
    """

    word: str
    test: int | None
    node: int
    above: tuple[int, ...]
    rails: set[int] = field(default_factory=set)
    name: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    height: float = 0.0


def rows_of(tree: ThresholdTree) -> list[Row]:
    """List the branches with few indents: the side of a test with fewer leaves comes first.

    The other side continues at the same level, as "else if". Only the smaller side is indented, so that a tree of
    n leaves has at most log2(n) levels, and no indent at all if every test cuts off a leaf.
    """
    leaves = [int(feature < 0) for feature in tree.feature.tolist()]
    left, right = tree.left.tolist(), tree.right.tolist()
    for node in reversed(range(tree.n_nodes)):  # children come after their parents
        if left[node] >= 0:
            leaves[node] = leaves[left[node]] + leaves[right[node]]
    rows: list[Row] = []

    def group(node: int, above: tuple[int, ...]) -> None:
        word = "if"
        while left[node] >= 0:
            near, far = left[node], right[node]
            if leaves[near] > leaves[far]:
                near, far = far, near
            rows.append(Row(word, node, near, above))
            if left[near] >= 0:
                group(near, (*above, len(rows) - 1))
            word, node = "else if", far
        rows.append(Row("else" if word != "if" else "always", None, node, above))

    group(0, ())
    below: set[int] = set()  # levels of the next rows
    for row in reversed(rows):
        row.rails = set(below)
        level = len(row.above)
        below = {one for one in below if one < level} | {level}
    return rows


class Outline:
    """A drawing of a tree as a list, on one page as high as needed or on pages that can be printed.

    Attributes
    ----------
    width : float
        Width of the drawing, in points.
    """

    def __init__(self, tree: ThresholdTree, words: list[NodeWords], charts: Mapping[Any, Histogram]) -> None:
        self.words, self.charts = words, charts
        self.rows = rows_of(tree)
        self.most = max(words[node].samples for node in tree.leaves.tolist()) or 1.0
        numbers = [text(n) for word in words for n in (word.samples, word.mistakes)]
        number = max(map(text_width, [*numbers, "mistakes"])) + 8
        for row in self.rows:
            if not words[row.node].children:
                row.name = wrapped(words[row.node].title[0], NAME)
        name = max(text_width(line) for row in self.rows for line in row.name) + 12
        chart = CHART[0] + 12 if charts else 0.0
        most = PAGE[0] - 2 * MARGIN - chart - name - BAR - 2 * number - 16
        wide = 0.0
        for row in self.rows:
            said = row.word
            if row.test is not None:
                said += " " + words[row.test].branches[words[row.test].children.index(row.node)]
            indent = INDENT * len(row.above)
            row.lines = wrapped(said, most - indent - 20)
            least = CHART[1] if charts else 0.0
            row.height = max(LINE * max(len(row.lines), len(row.name)), least) + GAP
            wide = max([wide, *(indent + text_width(line) for line in row.lines)])
        self.chart = MARGIN + max(min(wide + 20, most), 120.0)
        self.name = self.chart + chart
        self.bar = self.name + name + 8
        self.samples = self.bar + BAR + number
        self.mistakes = self.samples + number
        self.width = self.mistakes + MARGIN

    def pages(self) -> list[list[int]]:
        """Return the rows of every page; the first line of a group is on the page of its first leaf."""
        pages: list[list[int]] = [[]]
        room = PAGE[1] - HEAD - FOOT
        left = room
        for i, row in enumerate(self.rows):
            need, last = row.height, i
            while self.words[self.rows[last].node].children:  # a group comes with its first leaf
                last += 1
                need += self.rows[last].height
            if need > left and pages[-1]:
                pages.append([])
                left = room - sum(self.rows[j].height for j in row.above)
            pages[-1].append(i)
            left -= row.height
        return pages

    def draw(self, ax: Axes | None, page: list[int], number: int = 1, pages: int = 1) -> Axes:
        """Draw a page, on which the lines above its first one are repeated."""
        again = self.rows[page[0]].above
        rows = [self.rows[i] for i in (*again, *page)]
        canvas = Canvas(ax, self.width, HEAD + FOOT + sum(row.height for row in rows))
        small: dict[str, Any] = {"size": SMALL, "color": GREY, "va": "baseline"}
        titles = (
            (MARGIN, "rule", "left"),
            (self.chart + CHART[0] / 2, "distribution" * bool(self.charts), "center"),
            (self.name, "cluster", "left"),
            (self.samples, "samples", "right"),
            (self.mistakes, "mistakes", "right"),
        )
        for x, title, side in titles:
            canvas.text(x, HEAD - 7, title, ha=side, **small)
        canvas.line((MARGIN, HEAD - 3), (self.mistakes, HEAD - 3))
        y = HEAD
        for i, row in enumerate(rows):
            middle = y + (row.height - GAP) / 2
            end = self._rule(canvas, row, y, middle, " (continued)" * (i < len(again)))
            if i >= len(again):
                if row.test in self.charts:
                    place = self.chart, middle + CHART[1] / 2 - 3, CHART[0], CHART[1] - 4
                    self.charts[row.test].draw(canvas, *place)
                elif row.name and self.name - end > 12:
                    canvas.line((end, middle), (self.name - 6, middle), color="0.8", dotted=True)
                self._counts(canvas, row, middle)
            y += row.height
        canvas.line((MARGIN, y + 2), (self.mistakes, y + 2))
        canvas.text(MARGIN, y + 12, MEANING, **small)
        canvas.text(MARGIN, y + 22, MISTAKES, **small)
        canvas.text(self.mistakes, y + 22, f"page {number} of {pages}" * (pages > 1), ha="right", **small)
        return canvas.finish()

    def _rule(self, canvas: Canvas, row: Row, top: float, middle: float, after: str) -> float:
        """Write a line and the rails at its left, which connect the rows of a group; return where it ends."""
        level = len(row.above)
        for one in range(1, level + 1):
            x = MARGIN + INDENT * (one - 1) + 4
            if one in row.rails or one == level:
                canvas.line((x, top - GAP), (x, top + row.height if one in row.rails else middle))
            if one == level:
                canvas.line((x, middle), (x + INDENT - 6, middle))
        x, y = MARGIN + INDENT * level, middle - LINE * (len(row.lines) - 1) / 2
        canvas.text(x, y, row.word, color=GREY)
        lines = [row.lines[0][len(row.word) :].lstrip(), *row.lines[1:]]
        lines[-1] += after
        for i, line in enumerate(lines):
            canvas.text(x + (INDENT if i else text_width(row.word) + SPACE), y + LINE * i, line)
        return x + text_width(row.lines[-1]) + 6

    def _counts(self, canvas: Canvas, row: Row, middle: float) -> None:
        """Write the samples; at a leaf also its cluster, its mistakes, and a bar in which they are white."""
        word, color = self.words[row.node], "0.1" if row.name else GREY
        canvas.text(self.samples, middle, text(word.samples), ha="right", color=color)
        if not row.name:
            return
        canvas.text(self.mistakes, middle, text(word.mistakes), ha="right")
        width, height = max(map(text_width, row.name)) + 6, LINE * len(row.name) - 0.5
        canvas.box(self.name + width / 2, middle, width, height, word.look, line=0.8, rounding=2.5)
        for i, name in enumerate(row.name):
            canvas.text(self.name + 3, middle + LINE * (i - (len(row.name) - 1) / 2), name)
        full = BAR * word.samples / self.most
        right = full * (1 - word.mistakes / word.samples) if word.samples > 0 else 0.0
        for wide, fill in ((full, "none"), (right, word.look[0])):
            canvas.box(self.bar + wide / 2, middle, wide, 6, (word.look[0], fill), line=0.6, rounding=0)
