"""Why two inputs are alike: two texts with their words marked and connected, or two photos with heatmaps.

The first text stands above the second one. With relevance r_i of the words of a text and r_ij of pairs of words,

    backgrounds    of words are red (r_i > 0) or blue, with opacity 0.65 |r_i| / max |r|, relative to their text
    lines          connect the pairs with the largest r_ij > 0, and are wider and darker for larger r_ij / max r
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple
from unicodedata import bidirectional

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import FancyBboxPatch
from matplotlib.textpath import text_to_path

from neonxc.common.numbers import text
from neonxc.common.types import ArrayLike
from neonxc.plot.heat import add_scale, as_image, bare, draw_heatmap, heatmap_limit, smoothed
from neonxc.plot.shared import AGAINST, FOR, as_array

if TYPE_CHECKING:
    from neonxc.attribution.similarity import Similarity

# lengths in points
WIDTH = 520.0  # of a line of text
LINE = 20.0  # distance of two lines
SIZE = 11.0  # of the font
TOP = 26.0  # of the first text, below the title
APART = 62.0  # between two texts, where words are connected
INCH = 72


def pair(found: Similarity, n: int = 0, images: Sequence[ArrayLike] | None = None, *, most: int = 8) -> Figure:
    """Draw one pair of inputs of :func:`neonxc.similarity`.

    Words are marked in red where they make the two texts alike, and in blue where they speak against it. With a
    matrix, lines connect the pairs of words of the greatest relevance.

    Parameters
    ----------
    found : Similarity
    n : int
        Number of the pair.
    images : sequence of two arrays or Tensors [3, H, W] or [H, W, 3], optional
        The two photos, with values in 0..1; for images only, which need them.
    most : int
        Number of pairs of words that are connected.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ValueError
        Photos are missing, or given for texts; `n` is not a pair.
    """
    if not 0 <= n < len(found.cosine):
        raise ValueError(f"n needs the number of a pair, from 0 to {len(found.cosine) - 1}, got {n!r}")
    if (found.words_a is None) != (images is not None):
        raise ValueError("images needs the two photos, and is for photos only")
    relevance = [as_array(found.relevance_a[n]), as_array(found.relevance_b[n])]
    title = f"similarity {text(float(found.cosine[n]), 2)}"
    if found.words_a is None or found.words_b is None:
        photos = [as_image(image) for image in images or ()]
        heatmaps = [smoothed(stack.sum(0)) for stack in relevance]
        return _photos(photos, heatmaps, title)
    words = found.words_a[n], found.words_b[n]
    matrix = None if found.matrix is None else found.matrix[n]
    return _texts(words, relevance, matrix, most, title)


def _photos(photos: list[np.ndarray], heatmaps: list[np.ndarray], title: str) -> Figure:
    """Draw two heatmaps with one scale beside each other."""
    figure = Figure(figsize=(7, 3.6), layout="compressed", dpi=200)
    grid = figure.subplots(1, 2)
    limit = max(map(heatmap_limit, heatmaps))
    for axes, photo, heatmap in zip(grid, photos, heatmaps, strict=True):
        draw_heatmap(axes, photo, heatmap, limit)
    figure.suptitle(title, fontsize=10)
    add_scale(figure, grid)
    return figure


class WordBox(NamedTuple):
    """Left end, width and line of a word, in points."""

    x: float
    width: float
    line: int


def _texts(
    words: tuple[list[str], list[str]],
    relevance: list[np.ndarray],
    matrix: np.ndarray | None,
    n_lines: int,
    title: str,
) -> Figure:
    """Write one text above the other, and connect the words of both with up to `n_lines` lines."""
    boxes = [_boxes(text) for text in words]
    last_lines = [max((box.line for box in text), default=0) for text in boxes]
    heights = [LINE * (1 + last_line) for last_line in last_lines]
    height = sum(heights) + APART + TOP
    width = max((box.x + box.width for text in boxes for box in text), default=0.0)
    for side in (0, 1):
        if _from_the_right(words[side]):
            boxes[side] = [box._replace(x=width - box.x - box.width) for box in boxes[side]]

    figure = Figure(figsize=((width + 20) / INCH, height / INCH), dpi=200)
    axes = bare(figure.add_axes((0, 0, 1, 1)))
    axes.set(xlim=(-10, width + 10), ylim=(height, 0))
    axes.text(0, 12, title, fontsize=9, color="0.4", va="center")

    tops = [TOP, TOP + heights[0] + APART]
    for side in (0, 1):
        shown = relevance[side][: len(words[side])]  # entries after the last word are ignored
        _draw(axes, boxes[side], words[side], shown, tops[side])

    for i, j, strength in _connected(matrix, n_lines):
        above = boxes[0][i]
        below = boxes[1][j]
        start = tops[0] + LINE * (above.line + 1) - 2  # the lower edge of the word above
        end = tops[1] + LINE * below.line + 2  # the upper edge of the word below
        opacity = 0.15 + 0.7 * strength
        linewidth = 0.5 + 2.5 * strength
        x = (above.x + above.width / 2, below.x + below.width / 2)
        axes.plot(x, (start, end), color=FOR, alpha=opacity, linewidth=linewidth, zorder=1)
    return figure


def _connected(matrix: np.ndarray | None, n_lines: int) -> list[tuple[int, int, float]]:
    """Return the pairs (i, j) of words with the greatest relevance r_ij > 0, and r_ij / max r."""
    if matrix is None:
        return []
    order = np.argsort(-matrix, axis=None, kind="stable")[:n_lines]
    rows, columns = np.unravel_index(order, matrix.shape)
    pairs = zip(rows.tolist(), columns.tolist(), strict=True)
    return [(i, j, float(matrix[i, j] / matrix.max())) for i, j in pairs if matrix[i, j] > 0]


def _from_the_right(words: list[str]) -> bool:
    """Tell whether a text is written from right to left, as its first letter is."""
    for direction in map(bidirectional, "".join(words)):
        if direction in ("L", "R", "AL"):  # letters have a direction, digits and signs have none
            return direction != "L"
    return False


def _boxes(words: list[str]) -> list[WordBox]:
    """Break a text into lines of at most `WIDTH`, and return the box of every word, written from the left."""
    font = FontProperties(size=SIZE)
    boxes = []
    x = 0.0
    line = 0
    for word in words:
        width, _, _ = text_to_path.get_text_width_height_descent(word, font, ismath=False)
        width = float(width)
        if x and x + width > WIDTH:
            x = 0.0
            line += 1
        boxes.append(WordBox(x, width, line))
        x += width + 5
    return boxes


def _draw(axes: Axes, boxes: list[WordBox], words: list[str], relevance: np.ndarray, top: float) -> None:
    """Write words over a background in the colour of their relevance, relative to the greatest of the text."""
    limit = float(np.abs(relevance).max(initial=0)) or 1.0
    for (x, width, line), word, value in zip(boxes, words, relevance.tolist(), strict=True):
        y = top + LINE * line
        color = FOR if value > 0 else AGAINST
        background = FancyBboxPatch(
            (x - 1.5, y + 2.5),
            width + 3,
            LINE - 5,
            boxstyle="round,pad=0,rounding_size=3",
            facecolor=color,
            alpha=0.65 * abs(value) / limit,
            linewidth=0,
            zorder=2,
        )
        axes.add_patch(background)
        axes.text(x, y + LINE / 2, word, fontsize=SIZE, va="center_baseline", parse_math=False, zorder=3)
