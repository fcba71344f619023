"""Axes on which trees are drawn in points, line breaks of their texts, and histograms of tested columns."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite
from typing import Any

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

FONT = 8.5  # in points
GREY = "0.45"
LONGEST = 20  # maximum number of characters of a name in a line
BINS = 24  # of a histogram


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
            ax = pyplot.figure(figsize=(width / 72, height / 72)).add_axes((0, 0, 1, 1))
        sides = np.array([ax.bbox.width, ax.bbox.height]) * 72 / ax.figure.dpi
        self.ax = ax
        self.scale = min(1.0, *(sides / (width, height)).tolist())
        self.width, self.height = (sides / self.scale).tolist()
        ax.set_axis_off()
        ax.set(xlim=(0, self.width), ylim=(self.height, 0))
        self.patches: list[Patch] = []
        self.lines: list[tuple[Any, ...]] = []

    def text(self, x: float, y: float, text: str, size: float = FONT, **style: Any) -> None:
        """Write a text, whose middle line is at `y` by default."""
        style = {"color": "0.1", "va": "center_baseline"} | style
        if text:
            self.ax.text(x, y, text, size=size * self.scale, parse_math=False, **style)

    def line(
        self, *corners: tuple[float, float], color: str = "0.7", width: float = 0.7, dotted: bool = False
    ) -> None:
        """Draw a line through the corners, below all patches."""
        style = (0, (1, 3)) if dotted else "solid"
        self.lines.append((corners, color, width * self.scale, style))

    def box(
        self, x: float, y: float, width: float, height: float, look: tuple[str, str], line: float, rounding: float
    ) -> None:
        """Draw a box with rounded corners, centred at (x, y), in the colours of its edge and its face."""
        corner = (x - width / 2, y - height / 2)
        style = f"round,pad=0,rounding_size={rounding}"
        lines = {"ec": look[0], "lw": line * self.scale}
        self.patches.append(FancyBboxPatch(corner, width, height, boxstyle=style, fc=look[1], **lines))

    def finish(self) -> Axes:
        """Draw the collected lines and patches; single artists would take most of the time."""
        if self.lines:
            corners, colors, widths, styles = map(list, zip(*self.lines, strict=True))
            lines = LineCollection(corners, colors=colors, linewidths=widths, linestyles=styles, zorder=1)
            self.ax.add_collection(lines, autolim=False)
        self.ax.add_collection(PatchCollection(self.patches, match_original=True, zorder=2), autolim=False)
        return self.ax


@lru_cache(maxsize=10_000)
def text_width(text: str, weight: str = "normal") -> float:
    """Return the width of a line of text, in points."""
    font = FontProperties(size=FONT, weight=weight)
    return float(text_to_path.get_text_width_height_descent(text, font, ismath=False)[0])


def wrapped(text: str, max_width: float, width: Callable[[str], float] = text_width) -> list[str]:
    """Break a text into lines after spaces and underscores, and within names that are too long."""
    tied = re.sub(r"(?<=[≤>]) |(?<= in) (?=[\[(])|(?<=^or) ", "\N{NO-BREAK SPACE}", text)  # bounds and their signs
    lines = [""]
    for word in re.findall(rf"[^ _]{{1,{LONGEST}}}[ _]*|[ _]+", tied):
        if lines[-1] and width(lines[-1] + word.rstrip()) > max_width:
            lines.append("")
        lines[-1] += word
    return [line.rstrip() for line in lines]


@dataclass(frozen=True)
class Histogram:
    """Histogram of the points at a test by the tested column.

    Attributes
    ----------
    edges : ndarray [bins + 1]
    counts : ndarray [bins, clusters]
    bounds : list of float
        The bounds of the test. A single bound is an edge of the histogram.
    """

    edges: np.ndarray
    counts: np.ndarray
    bounds: list[float]

    def draw(self, canvas: Canvas, x: float, y: float, width: float, height: float) -> None:
        """Draw stacked bars in the clusters' colours, and mark the bounds; the lower left corner is at (x, y)."""
        low, high = self.edges[[0, -1]]
        edges = x + (np.array(self.edges) - low) / (high - low) * width
        marks = x + (np.array(self.bounds) - low) / (high - low) * width
        tops = y - height * np.cumsum(self.counts, 1) / max(self.counts.sum(1).max(), 1)
        palette = colors(self.counts.shape[1])
        size = height / 12
        patches: list[Patch] = [Rectangle((x, y), width, -0.4, fc="0.6")]
        for i, k in zip(*self.counts.nonzero(), strict=True):
            bottom = tops[i, k - 1] if k else y
            bin_width = edges[i + 1] - edges[i]
            corner = edges[i] + 0.04 * bin_width, bottom
            patches.append(Rectangle(corner, 0.92 * bin_width, tops[i, k] - bottom, fc=palette[k]))
        for mark in marks:  # a triangle below the axis, and a line
            foot = [(mark - size, y + 2 * size), (mark + size, y + 2 * size), (mark, y)]
            patches.append(Polygon(foot, fc="0.1"))
            patches.append(Rectangle((mark - 0.35, y), 0.7, -height, fc="0.1"))
        for patch in patches:
            patch.set_linewidth(0)
        canvas.ax.add_collection(PatchCollection(patches, match_original=True, zorder=3), autolim=False)


def histograms(tree: ThresholdTree, X: TableLike) -> dict[int, Histogram]:
    """Count the points of X at every test, by the tested column and the cluster of their leaf.

    Missing numbers are counted beside the smallest or the largest value, depending on the side to which the tree
    sends them. A category is 1, and all others are 0.
    """
    used, values, nodes_at = paths_of(tree, X)
    label = tree.label[nodes_at[-1]].numpy()
    columns = dict(zip(used.tolist(), values.detach().double().cpu().numpy().T, strict=True))
    clusters = np.arange(len(tree.classes) + 1) - 0.5
    of_tests = {}
    for node in (tree.feature >= 0).nonzero()[:, 0].tolist():
        is_inside = (nodes_at[int(tree.depths[node])] == node).numpy()
        bounds = [bound for pair in tree.tests[node] for bound in pair if isfinite(bound)]
        tested = columns[int(tree.feature[node])][is_inside]
        edges = _edges(tested, bounds)
        counts, _, _ = np.histogram2d(tested, label[is_inside], [edges, clusters])
        of_tests[node] = Histogram(edges, counts, bounds)
    return of_tests


def _edges(values: np.ndarray, bounds: list[float]) -> np.ndarray:
    """Return the edges of equal bins over all values, one of which is the first bound."""
    numbers = np.append(values, bounds)
    low = numbers.min()
    high = numbers.max()
    width = (high - low) / BINS or 1.0
    if (values == np.round(values)).all():
        width = max(1.0, np.ceil(width))
    middle = bounds[0] if bounds else low
    n_below = max(int(np.ceil((middle - low) / width)), 1)
    n_above = max(int(np.ceil((high - middle) / width)), 1)
    edges = middle + width * np.arange(-n_below, n_above + 1)
    edges[0] = min(edges[0], low)
    edges[-1] = max(edges[-1], high)
    edges = np.unique(edges)
    return edges if len(edges) > 1 else np.array([low - 0.5, low + 0.5])
