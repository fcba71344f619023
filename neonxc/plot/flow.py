"""The flow of rows between clusters, from one version of the data to the next.

With the number n_ij of rows that are in the old cluster i and in the new cluster j, where the last i has the new
rows and the last j those that are gone, the picture has

    bars     of height sum_j n_ij at the left and sum_i n_ij at the right, with gaps of `SPACING` of all rows
    bands    of height n_ij from bar i to bar j, along y = (1 - s) left + s right with s = 3 t^2 - 2 t^3, t in 0..1
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from neonxc.common.cluster_names import label_text
from neonxc.common.colours import NOISE, colors
from neonxc.common.numbers import percent, text
from neonxc.common.shortening import shortened
from neonxc.plot.bars import draw_bars, write_beside

if TYPE_CHECKING:
    from pandas import DataFrame, Series

COLUMNS = 4  # that are drawn per move
SPACING = 0.03  # between two clusters, as a fraction of all rows
CURVE = np.linspace(0, 1, 50)


def flow_figure(
    table: DataFrame,
    entered: Series,
    left: Series,
    moves: Sequence[tuple[str, Series, Callable[[str], str]]],
) -> Figure:
    """Draw the flow of rows, and beside it the shares of the columns in some moves.

    Parameters
    ----------
    table : DataFrame [K, K]
        Number of rows of every old cluster (index) that are in every new cluster (columns).
    entered, left : Series [K]
        Number of rows of every cluster that are new, and that are gone.
    moves : sequence of (title, shares, describe)
        For each move its title, the shares of the columns by name, and a function that describes a column in a few
        characters.
    """
    height = max(3.4, 1.3 * len(moves))
    figure = Figure(figsize=(9.5, height), layout="constrained", dpi=200)
    grid = figure.add_gridspec(max(len(moves), 1), 2, width_ratios=(1, 1))
    _draw_flow(figure.add_subplot(grid[:, 0]), table, entered, left)
    for row, (title, shares, describe) in enumerate(moves):
        axes = figure.add_subplot(grid[row, 1])
        names = [*shares.index]
        n_moved = sum(percent(share) != "0%" for share in shares)  # the other columns are not named
        columns = draw_bars(axes, shares.to_numpy(), names, min(COLUMNS, max(n_moved, 1)), title)
        descriptions = [shortened(describe(names[i]), 30) for i in columns]
        fractions = [percent(shares.iloc[i]) for i in columns]
        write_beside(axes, map("  ".join, zip(fractions, descriptions, strict=True)))
        axes.set_xticks([])
    return figure


def _draw_flow(axes: Axes, table: DataFrame, entered: Series, left: Series) -> None:
    """Draw clusters as bars, the old ones at the left, and rows as bands between them."""
    counts = np.pad(table.to_numpy(float), (0, 1))  # the last ones are new and gone rows
    counts[-1, :-1] = entered
    counts[:-1, -1] = left
    k = len(table)
    total = counts.sum()
    palette = [*colors(k), NOISE]
    for position, label in enumerate(table.index):
        if label == -1:
            palette[position] = NOISE
    sides = (("before", "new", -0.05, "right"), ("after", "gone", 1.05, "left"))
    tops = []  # of the bands, at both sides
    for side, (title, last_name, x, alignment) in enumerate(sides):
        sizes = counts.sum(1 - side)
        heights = sizes + SPACING * total * (sizes > 0)
        bars = np.cumsum([0, *heights])[:-1]
        names = [*map(label_text, table.index), last_name]
        for i in np.flatnonzero(sizes):
            axes.bar(side, sizes[i], 0.05, bars[i], color=palette[i])
            label = f"{shortened(names[i], 16)} ({text(int(sizes[i]))})"
            center = bars[i] + sizes[i] / 2
            axes.text(x, center, label, ha=alignment, va="center", fontsize=8, parse_math=False)
        axes.text(side, -0.02 * total, title, ha="center", fontsize=9)
        tops.append(np.expand_dims(bars, 1 - side) + np.cumsum(counts, 1 - side) - counts)

    band_x = 0.025 + 0.95 * CURVE  # from the edge of one bar to that of the other
    smooth = CURVE**2 * (3 - 2 * CURVE)
    for i, j in np.argwhere(counts):
        top = tops[0][i, j] * (1 - smooth) + tops[1][i, j] * smooth
        bottom = top + counts[i, j]
        opacity = 0.15 if i == j else 0.6
        axes.fill_between(band_x, top, bottom, color=palette[i], alpha=opacity, lw=0.3)
    axes.set(xlim=(-0.45, 1.45), ylim=(total * (1 + SPACING * (k + 1)), 0))
    axes.set_axis_off()
