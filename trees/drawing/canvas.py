"""Axes on which trees are drawn in points, line breaks of their texts, and colours of their nodes."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from neonxc.common.colours import colors
from neonxc.trees.fitted.tree import ThresholdTree
from neonxc.trees.rules.wording import NodeWords

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FONT = 8.5  # in points
GREY = "0.45"
LONGEST = 20  # maximum number of characters of a name in a line


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
        from matplotlib import pyplot

        if ax is None:
            ax = pyplot.figure(figsize=(width / 72, height / 72)).add_axes((0, 0, 1, 1))
        points = 72 / ax.figure.dpi
        self.ax, self.scale = ax, min(1.0, ax.bbox.width * points / width, ax.bbox.height * points / height)
        self.width, self.height = (side * points / self.scale for side in (ax.bbox.width, ax.bbox.height))
        ax.set_axis_off()
        ax.set(xlim=(0, self.width), ylim=(self.height, 0))
        self.patches: list[Any] = []
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
        self.lines.append((corners, color, width * self.scale, (0, (1, 3)) if dotted else "solid"))

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        colors: tuple[str, str],
        line: float,
        rounding: float,
    ) -> None:
        """Draw a box with rounded corners, centred at (x, y), in the colours of its edge and its face."""
        from matplotlib.patches import FancyBboxPatch

        corner, style = (x - width / 2, y - height / 2), f"round,pad=0,rounding_size={rounding}"
        patch = FancyBboxPatch(corner, width, height, boxstyle=style, ec=colors[0], fc=colors[1])
        patch.set_linewidth(line * self.scale)
        self.patches.append(patch)

    def finish(self) -> Axes:
        """Draw the collected lines and patches; single artists would take most of the time."""
        from matplotlib.collections import LineCollection, PatchCollection

        if self.lines:
            corners, colors, widths, styles = map(list, zip(*self.lines, strict=True))
            lines = LineCollection(corners, colors=colors, linewidths=widths, linestyles=styles, zorder=1)
            self.ax.add_collection(lines, autolim=False)
        self.ax.add_collection(PatchCollection(self.patches, match_original=True, zorder=2), autolim=False)
        return self.ax


def node_colors(tree: ThresholdTree, words: list[NodeWords]) -> list[tuple[str, str]]:
    """Return the colours of the lines and the faces of all nodes; leaves are paler the more mistakes they make."""
    table = colors(len(tree.classes))
    found = []
    for word in words:
        if word.cluster is None:
            found.append(("#737373", "#ffffff"))
            continue
        line = table[word.cluster]
        purity = 1 - word.mistakes / word.samples if word.samples > 0 else 1.0
        strength = 0.08 + 0.42 * purity**2  # pale enough for black text
        parts = [round(255 * (1 - strength * (1 - int(line[at : at + 2], 16) / 255))) for at in (1, 3, 5)]
        found.append((line, "#{:02x}{:02x}{:02x}".format(*parts)))
    return found


@lru_cache(maxsize=10_000)
def text_width(text: str, size: float = FONT, weight: str = "normal") -> float:
    """Return the width of a line of text, in points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(size=size, weight=weight)
    return float(text_to_path.get_text_width_height_descent(text, font, ismath=False)[0])


def wrapped(text: str, room: float, width: Callable[[str], float] = text_width) -> list[str]:
    """Break a text into lines after spaces and underscores, and within names that are too long."""
    tied = re.sub(r"(?<=[≤>]) |(?<= in) (?=[\[(])|(?<=^or) ", "\N{NO-BREAK SPACE}", text)  # bounds and their signs
    lines = [""]
    for part in re.findall(rf"[^ _]{{1,{LONGEST}}}[ _]*|[ _]+", tied):
        if lines[-1] and width(lines[-1] + part.rstrip()) > room:
            lines.append("")
        lines[-1] += part
    return [line.rstrip() for line in lines]
