"""The flow of rows between clusters, from one version of the data to the next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from neonxc.common.colours import NOISE, colors
from neonxc.common.numbers import percent, text
from neonxc.plot.bars import draw_bars, shortened, write_beside

if TYPE_CHECKING:
    from pandas import DataFrame, Series

COLUMNS = 4  # that are drawn per move
GAP = 0.03  # between two clusters, as a share of all rows
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
        Titles, shares of the columns by name, and functions that describe a column in a few characters.
    """
    figure = Figure(figsize=(9.5, max(3.4, 1.3 * len(moves))), layout="constrained", dpi=200)
    grid = figure.add_gridspec(max(len(moves), 1), 2, width_ratios=(1, 1))
    _draw_flow(figure.add_subplot(grid[:, 0]), table, entered, left)
    for row, (title, shares, describe) in enumerate(moves):
        axes = figure.add_subplot(grid[row, 1])
        names = [*shares.index]
        columns = draw_bars(axes, shares.to_numpy(), names, COLUMNS, title)
        write_beside(axes, [f"{percent(shares.iloc[i])}  {shortened(describe(names[i]), 30)}" for i in columns])
        axes.set_xticks([])
    return figure


def _draw_flow(axes: Axes, table: DataFrame, entered: Series, left: Series) -> None:
    """Draw clusters as bars, the old ones at the left, and rows as bands between them."""
    counts = np.pad(table.to_numpy(float), (0, 1))  # the last ones are new and gone rows
    counts[-1, :-1] = entered
    counts[:-1, -1] = left
    k = len(table)
    total = counts.sum()
    palette = [NOISE if label == -1 else color for label, color in zip(table.index, colors(k), strict=True)]
    palette += [NOISE]
    tops = []  # of the bands, at both sides
    for side, (title, other, x, alignment) in enumerate(
        (("before", "new", -0.05, "right"), ("after", "gone", 1.05, "left"))
    ):
        sizes = counts.sum(1 - side)
        bars = np.cumsum([0, *(sizes + GAP * total * (sizes > 0))])[:-1]
        names = [*map(str, table.index), other]
        for i in np.flatnonzero(sizes):
            axes.bar(side, sizes[i], 0.05, bars[i], color=palette[i])
            label = f"{shortened(names[i], 16)} ({text(int(sizes[i]))})"
            axes.text(x, bars[i] + sizes[i] / 2, label, ha=alignment, va="center", fontsize=8, parse_math=False)
        axes.text(side, -0.02 * total, title, ha="center", fontsize=9)
        tops.append(np.expand_dims(bars, 1 - side) + np.cumsum(counts, 1 - side) - counts)
    smooth = CURVE**2 * (3 - 2 * CURVE)
    for i, j in np.argwhere(counts):
        top = tops[0][i, j] * (1 - smooth) + tops[1][i, j] * smooth
        opacity = 0.15 if i == j else 0.6
        axes.fill_between(0.025 + 0.95 * CURVE, top, top + counts[i, j], color=palette[i], alpha=opacity, lw=0.3)
    axes.set(xlim=(-0.45, 1.45), ylim=(total * (1 + GAP * (k + 1)), 0))
    axes.set_axis_off()
