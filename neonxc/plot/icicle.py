"""An icicle of layers: clusters as boxes, and their parts to the right of them.

With the box [y, y + h] of a parent of n rows, and parts of n_1, n_2, ... rows, part j has the box of the height
h n_j / n below those of the parts before it. Rows that are in no part leave a gap at the end of the parent's box.
"""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from neonxc.common.colours import colors
from neonxc.common.numbers import plural, text
from neonxc.common.shortening import shortened
from neonxc.hierarchy.forks import ROOT
from neonxc.hierarchy.verdicts import PARTLY, SEPARATED, SLICES

if TYPE_CHECKING:
    from neonxc.hierarchy.result import Layers, Split

GREY = "#c9cdd2"
UNKNOWN = "#ffffff"
BOX_WIDTH = 2.3  # inches
LETTERS = 30  # in a line of that width
LINE = 0.145  # inches that a line of text is high
ROW_HEIGHT = 0.36  # inches of a box of a name in two lines
MIN_HEIGHT = 3.2
MAX_HEIGHT = 12.0
PALE = 0.55  # opacity of colours, on which black text is read


class Box(NamedTuple):
    """The box of a cluster, in rows of the root."""

    depth: int
    top: float
    height: float


def layers(found: Layers, *, title: str | None = None) -> Figure:
    """Draw the splits of layers as an icicle, from left to right, with the rows of clusters as heights.

    Parts that are separated have the colour of their cluster, slices of one cloud are grey, and parts of which it
    is not known are white.

    Parameters
    ----------
    found : Layers
        Result of :func:`neonxc.layers`.
    title : str, optional

    Returns
    -------
    matplotlib.figure.Figure
    """
    boxes = _boxes(found)
    n_layers = 1 + max(box.depth for box in boxes.values())
    n_leaves = len(boxes) - len({split.parent for split in found.splits})
    height = min(max(MIN_HEIGHT, ROW_HEIGHT * n_leaves), MAX_HEIGHT)
    figure = Figure(figsize=(BOX_WIDTH * n_layers + 0.2, height + 0.5), layout="constrained", dpi=200)
    axes = figure.add_subplot()
    lines_per_row = height / LINE / found.n_rows
    _draw(axes, boxes[ROOT], UNKNOWN, [f"{ROOT}: {plural(found.n_rows, 'row')}"], lines_per_row)

    shades = _shades(found)
    for split in found.splits:
        for child in split.children:
            color = _color(split, shades[child])
            _draw(axes, boxes[child], color, _lines(split, child), lines_per_row)
    axes.set(xlim=(0, n_layers), ylim=(found.n_rows, 0))
    axes.set_axis_off()
    verdicts = {_color(split, "") for split in found.splits}
    handles = []
    if GREY in verdicts:
        handles.append(Patch(facecolor=GREY, edgecolor="#555555", label="slices of one cloud"))
    if UNKNOWN in verdicts:
        handles.append(Patch(facecolor=UNKNOWN, edgecolor="#555555", label="not known whether separated"))
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    if title:
        axes.set_title(title, fontsize=10, parse_math=False)
    return figure


def _boxes(found: Layers) -> dict[str, Box]:
    """Return the boxes of the root and of all parts."""
    boxes = {ROOT: Box(0, 0.0, float(found.n_rows))}
    for split in found.splits:
        parent = boxes.setdefault(split.parent, boxes[ROOT])
        top = parent.top
        for child, size in split.sizes.items():
            height = parent.height * size / len(split.rows)
            boxes[child] = Box(parent.depth + 1, top, height)
            top += height
    return boxes


def _shades(found: Layers) -> dict[str, str]:
    """Return the colour of every part: that of the part of the root that it is in."""
    shades: dict[str, str] = {}
    for split in found.splits:
        if split.parent not in shades:
            palette = colors(len(split.children))
            shades.update(zip(split.children, palette, strict=True))
        else:
            shades.update(dict.fromkeys(split.children, shades[split.parent]))
    return shades


def _color(split: Split, shade: str) -> str:
    """Return the colour of a part by the verdict about its split."""
    if split.verdict in (SEPARATED, PARTLY):
        return shade
    return GREY if split.verdict == SLICES else UNKNOWN


def _lines(split: Split, child: str) -> list[str]:
    """Return the label, the name and the number of rows of a part, as lines of a box."""
    label = child.rpartition("/")[2]
    n_rows = text(split.sizes[child])
    name = split.names[child]
    return wrap(f"{label} ({n_rows}): {name}" if name else f"{label} ({n_rows})", LETTERS)


def _draw(axes: Axes, box: Box, color: str, lines: list[str], lines_per_row: float) -> None:
    """Draw a box with as many lines as it has room for."""
    opacity = 1.0 if color in (GREY, UNKNOWN) else PALE
    corner = (box.depth, box.top)
    size = (1, box.height)
    axes.add_patch(Rectangle(corner, *size, facecolor=color, alpha=opacity, linewidth=0, clip_on=False))
    axes.add_patch(Rectangle(corner, *size, fill=False, edgecolor="#555555", linewidth=0.6, clip_on=False))
    n_lines = int(box.height * lines_per_row)
    if n_lines < 1:
        return
    shown = lines[:n_lines]
    if len(lines) > n_lines:
        shown[-1] = shortened(" ".join(lines[n_lines - 1 :]), LETTERS)
    middle = box.top + box.height / 2
    words = "\n".join(shown)
    axes.text(
        box.depth + 0.03, middle, words, va="center", fontsize=7.5, color="#111111", parse_math=False, clip_on=True
    )
