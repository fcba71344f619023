"""Drawing of a tree as a list that fits on paper, with a line per leaf that begins with if, else if or else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from neonxc.common.numbers import text
from neonxc.trees.drawing.looks import FONT, GREY, node_colors, text_width, wrapped
from neonxc.trees.fitted.tree import ThresholdTree
from neonxc.trees.rules.wording import NodeWords

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from neonxc.trees.drawing.histograms import Histogram

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

    def __init__(self, tree: ThresholdTree, words: list[NodeWords], charts: Mapping[int, Histogram]) -> None:
        self.tree, self.words, self.charts = tree, words, charts
        self.rows = rows_of(tree)
        leaves = [words[node] for node in tree.leaves.tolist()]
        self.most = max(word.samples for word in leaves) or 1.0
        numbers = [text(n) for word in words for n in (word.samples, word.mistakes)]
        number = max(text_width(one) for one in [*numbers, "mistakes"]) + 8
        for row in self.rows:
            if words[row.node].cluster is not None:
                row.name = wrapped(words[row.node].name, partial(_fits, NAME))
        name = max(text_width(line) for row in self.rows for line in row.name) + 12
        chart = CHART[0] + 12 if charts else 0.0
        most = PAGE[0] - 2 * MARGIN - chart - name - BAR - 2 * number - 16
        for row in self.rows:
            room = most - self._indent(row) - 20
            row.lines = wrapped(self._text_of(row), partial(_fits, room))
            least = CHART[1] if charts else 0.0
            row.height = max(LINE * max(len(row.lines), len(row.name)), least) + GAP
        wide = max(self._indent(row) + text_width(line) for row in self.rows for line in row.lines)
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
            while self.words[self.rows[last].node].cluster is None:  # a group comes with its first leaf
                last += 1
                need += self.rows[last].height
            if need > left and pages[-1]:
                pages.append([])
                left = room - sum(self.rows[j].height for j in row.above)
            pages[-1].append(i)
            left -= row.height
        return pages

    def height(self, page: list[int]) -> float:
        """Return the height of a page, in points."""
        repeated = self.rows[page[0]].above
        return HEAD + FOOT + sum(self.rows[i].height for i in (*repeated, *page))

    def draw(self, ax: Axes, scale: float, page: list[int], number: int = 1, pages: int = 1) -> None:
        """Draw a page, reduced by `scale`. The origin of the axes is the top left corner."""
        points = 72 / ax.figure.dpi / scale
        ax.set(xlim=(0, ax.bbox.width * points), ylim=(ax.bbox.height * points, 0))
        y = HEAD
        for x, title, side in self._titles():
            ax.text(x, HEAD - 7, title, size=SMALL * scale, color=GREY, ha=side, va="baseline")
        draw = _Drawn(self, ax, scale)
        draw.line((MARGIN, HEAD - 3), (self.mistakes, HEAD - 3))
        for i in self.rows[page[0]].above:
            draw.row(self.rows[i], y, again=True)
            y += self.rows[i].height
        for i in page:
            draw.row(self.rows[i], y)
            y += self.rows[i].height
        draw.line((MARGIN, y + 2), (self.mistakes, y + 2))
        draw.finish()
        ax.text(MARGIN, y + 12, MEANING, size=SMALL * scale, color=GREY)
        ax.text(MARGIN, y + 22, MISTAKES, size=SMALL * scale, color=GREY)
        if pages > 1:
            where = f"page {number} of {pages}"
            ax.text(self.mistakes, y + 22, where, size=SMALL * scale, color=GREY, ha="right")

    def _titles(self) -> Iterator[tuple[float, str, str]]:
        yield MARGIN, "rule", "left"
        if self.charts:
            yield self.chart + CHART[0] / 2, "distribution", "center"
        yield self.name, "cluster", "left"
        yield self.samples, "samples", "right"
        yield self.mistakes, "mistakes", "right"

    def _indent(self, row: Row) -> float:
        return INDENT * len(row.above)

    def _text_of(self, row: Row) -> str:
        if row.test is None:
            return row.word
        left = bool(self.tree.left[row.test] == row.node)
        return f"{row.word} {self.words[row.test].branch(left)}"


def _fits(room: float, line: str) -> bool:
    return text_width(line) <= room


class _Drawn:
    """The axes on which rows are drawn."""

    def __init__(self, outline: Outline, ax: Axes, scale: float) -> None:
        from neonxc.plot.images import cluster_colors

        self.outline, self.ax, self.scale = outline, ax, scale
        self.lines: list[tuple[tuple[float, float], tuple[float, float]]] = []
        self.leaders = list(self.lines)
        self.patches: list[Any] = []
        self.colors, self.of_cluster = node_colors(outline.tree), cluster_colors(len(outline.tree.classes))

    def row(self, row: Row, top: float, again: bool = False) -> None:
        """Draw a row at a height; `again` if it is repeated on a later page."""
        outline, word = self.outline, self.outline.words[row.node]
        middle = top + (row.height - GAP) / 2
        self._rails(row, top, middle)
        x = MARGIN + outline._indent(row)
        first = middle - LINE * (len(row.lines) - 1) / 2
        for i, line in enumerate(row.lines):
            opening = row.word if i == 0 else ""
            y = first + LINE * i
            self._text(x, y, opening, color=GREY)
            rest, after = line[len(opening) :].lstrip(), x + (text_width(opening) + SPACE if opening else INDENT)
            self._text(after, y, rest + (" (continued)" if again and i == len(row.lines) - 1 else ""))
        if again:
            return
        end = x + text_width(row.lines[-1]) + 6
        if row.test is not None and row.test in outline.charts:
            place = outline.chart, middle + CHART[1] / 2 - 3, CHART[0], 4 - CHART[1]
            self.ax.add_collection(outline.charts[row.test].draw(*place, self.of_cluster), autolim=False)
        elif row.name and outline.name - end > 12:
            self.leaders.append(((end, middle), (outline.name - 6, middle)))
        shade = "0.1" if row.name else GREY
        if row.name:
            self._leaf(row, word, middle)
        self._text(outline.samples, middle, text(word.samples), ha="right", color=shade)
        if row.name:
            self._text(outline.mistakes, middle, text(word.mistakes), ha="right", color=shade)

    def line(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Add a text to those that are drawn together at the end."""
        self.lines.append((start, end))

    def finish(self) -> None:
        """Draw the collected texts and lines; single artists would take most of the time."""
        from matplotlib.collections import LineCollection, PatchCollection

        width = 0.7 * self.scale
        rails = LineCollection(self.lines, colors="0.7", linewidths=width, zorder=1)
        leaders = LineCollection(self.leaders, colors="0.8", linewidths=width, linestyles=[(0, (1, 3))], zorder=1)
        for found in (rails, leaders, PatchCollection(self.patches, match_original=True, zorder=1)):
            self.ax.add_collection(found, autolim=False)

    def _leaf(self, row: Row, word: NodeWords, middle: float) -> None:
        """Draw the cluster's name in its colour, and a bar of its samples with the mistakes in white."""
        from matplotlib.patches import FancyBboxPatch, Rectangle

        outline = self.outline
        line, fill = self.colors(word)
        width, height = max(map(text_width, row.name)) + 6, LINE * len(row.name) - 0.5
        box = FancyBboxPatch(
            (outline.name, middle - height / 2), width, height, boxstyle="round,pad=0,rounding_size=2.5"
        )
        box.set(facecolor=fill, edgecolor=line, linewidth=0.8 * self.scale)
        self.patches.append(box)
        for i, name in enumerate(row.name):
            self._text(outline.name + 3, middle + LINE * (i - (len(row.name) - 1) / 2), name)
        full = BAR * word.samples / outline.most
        right = full * (1 - word.mistakes / word.samples) if word.samples > 0 else 0.0
        for wide, color in ((full, "none"), (right, line)):
            bar = Rectangle((outline.bar, middle - 3), wide, 6, facecolor=color, edgecolor=line)
            bar.set_linewidth(0.6 * self.scale)
            self.patches.append(bar)

    def _rails(self, row: Row, top: float, middle: float) -> None:
        """Draw the lines at the left that connect the rows of a group."""
        level = len(row.above)
        for one in range(1, level + 1):
            x = MARGIN + INDENT * (one - 1) + 4
            if one == level:
                self.line((x, top - GAP), (x, top + row.height if one in row.rails else middle))
                self.line((x, middle), (x + INDENT - 6, middle))
            elif one in row.rails:
                self.line((x, top - GAP), (x, top + row.height))

    def _text(self, x: float, y: float, text: str, **style: Any) -> None:
        if text:
            style = {"color": "0.1", "va": "center_baseline"} | style
            self.ax.text(x, y, text, size=FONT * self.scale, parse_math=False, **style)
