"""Axes on which trees are drawn in points, line breaks of their texts, and histograms of tested columns.

Canvas. A point of the drawing is 1/72 inch, or less on axes that are too small for the drawing:

    scale = min(1, width of the axes / width of the drawing, the same of the heights)

The axes go from 0 to their size / scale, to the right and downwards. Positions are data coordinates, which
matplotlib scales by itself; sizes of fonts and widths of lines are in real points and are multiplied by the scale.

Histogram of a test, over the values v of its column among the points that reach it. The bins (low, high] have one
width w, and one of their edges is the first bound b of the test. A point at b is in the bin on the left of b, as
the test x <= b sends it left:

    w = (max - min) / BINS; if all v are whole, the next whole number, at least 1       min, max over v and bounds
    edges = b + w * (-ceil((b - min) / w), ..., ceil((max - b) / w)), at least one bin on each side

where w is at least the distance of neighboring float64 at the largest |v|, so that no two edges are equal. The bar
of a bin is stacked from the clusters of the leaves that its points reach, in the order of the classes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite
from typing import Any, NamedTuple

import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PatchCollection
from matplotlib.font_manager import FontProperties
from matplotlib.patches import FancyBboxPatch, Patch, Polygon, Rectangle
from matplotlib.textpath import text_to_path

from neonxc.common.colours import colors
from neonxc.common.types import TableLike
from neonxc.trees.tree import ThresholdTree, paths_of

POINTS_PER_INCH = 72
FONT = 8.5  # in points
GREY = "0.45"
LONGEST = 20  # maximum number of characters of a name in a line
BINS = 24  # of a histogram, if its column has other than whole numbers
BAR_WIDTH = 0.92  # of a histogram, relative to its bin
AXIS_WIDTH = 0.4  # of the line below the bars, in points
MARK_WIDTH = 0.7  # of the line at a bound, in points


class Line(NamedTuple):
    """A line that :meth:`Canvas.finish` draws."""

    corners: tuple[tuple[float, float], ...]
    color: str
    width: float  # in points on paper


class Canvas:
    """Axes without a frame, whose unit is a point and whose origin is the top left corner.

    Parameters
    ----------
    ax : matplotlib.axes.Axes or None
        Axes to draw into, at a scale at which the drawing fits; None makes a figure of the drawing's size.
    width, height : float
        Size of the drawing.

    Attributes
    ----------
    width, height : float
        Size of the axes, which may be larger, in points of the drawing.
    patches : list of Patch
        Patches that :meth:`finish` draws, the first one at the bottom.
    """

    def __init__(self, ax: Axes | None, width: float, height: float) -> None:
        if ax is None:
            inches = (width / POINTS_PER_INCH, height / POINTS_PER_INCH)
            ax = pyplot.figure(figsize=inches).add_axes((0, 0, 1, 1))
        points_per_pixel = POINTS_PER_INCH / ax.figure.dpi
        ax_width = ax.bbox.width * points_per_pixel
        ax_height = ax.bbox.height * points_per_pixel
        self.ax = ax
        self.scale = min(1.0, ax_width / width, ax_height / height)
        self.width = float(ax_width / self.scale)
        self.height = float(ax_height / self.scale)
        ax.set_axis_off()
        ax.set(xlim=(0, self.width), ylim=(self.height, 0))
        self.patches: list[Patch] = []
        self.lines: list[Line] = []

    def text(self, x: float, y: float, text: str, size: float = FONT, **style: Any) -> None:
        """Write a text, whose middle line is at `y` by default; `style` are properties of matplotlib's `Text`."""
        if not text:
            return
        style = {"color": "0.1", "va": "center_baseline"} | style
        self.ax.text(x, y, text, size=size * self.scale, parse_math=False, **style)

    def line(self, *corners: tuple[float, float], color: str, width: float) -> None:
        """Draw a line through the corners, below all patches."""
        self.lines.append(Line(corners, color, width * self.scale))

    def box(
        self, x: float, y: float, width: float, height: float, look: tuple[str, str], line: float, rounding: float
    ) -> None:
        """Draw a box with rounded corners, centred at (x, y), in the colours of its edge and its face."""
        corner = (x - width / 2, y - height / 2)
        shape = f"round,pad=0,rounding_size={rounding}"
        edge_color, face_color = look
        patch = FancyBboxPatch(corner, width, height, boxstyle=shape, ec=edge_color, fc=face_color)
        patch.set_linewidth(line * self.scale)
        self.patches.append(patch)

    def finish(self) -> Axes:
        """Draw the collected lines and patches; single artists would take most of the time."""
        if self.lines:
            lines = LineCollection(
                [line.corners for line in self.lines],
                colors=[line.color for line in self.lines],
                linewidths=[line.width for line in self.lines],
                zorder=1,
            )
            self.ax.add_collection(lines, autolim=False)
        patches = PatchCollection(self.patches, match_original=True, zorder=2)
        self.ax.add_collection(patches, autolim=False)
        return self.ax


@lru_cache(maxsize=10_000)
def text_width(text: str, weight: str = "normal") -> float:
    """Return the width of a line of text, in points."""
    font = FontProperties(size=FONT, weight=weight)
    width, _, _ = text_to_path.get_text_width_height_descent(text, font, ismath=False)
    return float(width)


def wrapped(text: str, max_width: float, width: Callable[[str], float] = text_width) -> list[str]:
    """Break a text into lines after spaces and underscores, and within names that are too long.

    Parameters
    ----------
    text : str
    max_width : float
        A line is wider only if it is a single word.
    width : callable
        Returns the width of a line, such as its length in points or its number of characters.
    """
    # bounds stay with their signs: "≤ 3", "> 3", "in [1, 2]", and "or ..." of a second interval
    tied = re.sub(r"(?<=[≤>]) |(?<= in) (?=[\[(])|(?<=^or) ", "\N{NO-BREAK SPACE}", text)
    words = re.findall(rf"[^ _]{{1,{LONGEST}}}[ _]*|[ _]+", tied)
    lines = [""]
    for word in words:
        longer = lines[-1] + word
        is_first = not lines[-1]
        if is_first or width(longer.rstrip()) <= max_width:
            lines[-1] = longer
        else:
            lines.append(word)
    return [line.rstrip() for line in lines]


@dataclass(frozen=True)
class Histogram:
    """Histogram of the points at a test by the tested column.

    Attributes
    ----------
    edges : ndarray [bins + 1]
    counts : ndarray [bins, clusters]
        Number of points in every bin, by the cluster of their leaf.
    bounds : list of float
        The finite bounds of the test, the first of which is an edge.
    """

    edges: np.ndarray
    counts: np.ndarray
    bounds: list[float]

    def draw(self, canvas: Canvas, x: float, y: float, width: float, height: float) -> None:
        """Draw stacked bars in the clusters' colours, and mark the bounds; the lower left corner is at (x, y)."""
        low = self.edges[0]
        high = self.edges[-1]
        edges = x + (self.edges - low) / (high - low) * width
        marks = x + (np.array(self.bounds) - low) / (high - low) * width
        patches: list[Patch] = [Rectangle((x, y), width, -AXIS_WIDTH, fc="0.6")]

        # the y at which the bars of every bin and cluster end, below which those of earlier clusters are stacked
        highest = max(self.counts.sum(1).max(), 1)
        stacked = np.cumsum(self.counts, 1)
        tops = y - height * stacked / highest
        bottoms = y - height * (stacked - self.counts) / highest
        palette = colors(self.counts.shape[1])
        for bin, cluster in zip(*self.counts.nonzero(), strict=True):
            bin_width = edges[bin + 1] - edges[bin]
            left = edges[bin] + (1 - BAR_WIDTH) / 2 * bin_width
            bottom = bottoms[bin, cluster]
            bar_height = tops[bin, cluster] - bottom
            bar = Rectangle((left, bottom), BAR_WIDTH * bin_width, bar_height, fc=palette[cluster])
            patches.append(bar)

        # a bound is marked by a triangle below the axis, and by a line
        size = height / 12
        for mark in marks:
            corners = [(mark - size, y + 2 * size), (mark + size, y + 2 * size), (mark, y)]
            patches.append(Polygon(corners, fc="0.1"))
            patches.append(Rectangle((mark - MARK_WIDTH / 2, y), MARK_WIDTH, -height, fc="0.1"))
        for patch in patches:
            patch.set_linewidth(0)
        canvas.ax.add_collection(PatchCollection(patches, match_original=True, zorder=3), autolim=False)


def histograms(tree: ThresholdTree, X: TableLike) -> dict[int, Histogram]:
    """Count the points of X at every test, by the tested column and the cluster of their leaf.

    Missing numbers are counted beside the smallest or the largest value, depending on the side to which the tree
    sends them. A category is 1, and all others are 0.
    """
    paths = paths_of(tree, X)
    label = tree.label[paths.nodes[-1]].numpy()
    values = paths.values.detach().double().cpu().numpy()
    values_of = dict(zip(paths.columns.tolist(), values.T, strict=True))
    of_tests = {}
    for node in (tree.feature >= 0).nonzero()[:, 0].tolist():
        depth = int(tree.depths[node])
        is_inside = (paths.nodes[depth] == node).numpy()
        column = values_of[int(tree.feature[node])][is_inside]
        bounds = [bound for interval in tree.tests[node] for bound in interval if isfinite(bound)]
        edges = _edges(column, bounds)
        bin = np.searchsorted(edges, column, side="left") - 1
        bin = np.maximum(bin, 0)  # the smallest value is at the edge of the first bin
        counts = np.zeros((len(edges) - 1, len(tree.classes)))
        np.add.at(counts, (bin, label[is_inside]), 1)
        of_tests[node] = Histogram(edges, counts, bounds)
    return of_tests


def _edges(values: np.ndarray, bounds: list[float]) -> np.ndarray:
    """Return the edges of equal bins over all values, one of which is the first bound."""
    numbers = np.append(values, bounds)
    low = numbers.min()
    high = numbers.max()
    width = (high - low) / BINS or 1.0
    width = max(width, np.spacing(max(abs(low), abs(high))))
    is_whole = bool((values == np.round(values)).all())
    if is_whole:
        width = max(1.0, np.ceil(width))

    fixed = low  # a test that all numbers pass has no finite bound
    if bounds:
        fixed = bounds[0]
    n_below = max(int(np.ceil((fixed - low) / width)), 1)
    n_above = max(int(np.ceil((high - fixed) / width)), 1)
    edges = fixed + width * np.arange(-n_below, n_above + 1)
    # rounding must not leave out the smallest or the largest value
    edges[0] = min(edges[0], low)
    edges[-1] = max(edges[-1], high)
    return edges
