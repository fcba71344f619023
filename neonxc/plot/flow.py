"""The flow of rows between clusters, from one version of the data to the next.

With the number n_ij of rows that are in the old cluster i and in the new cluster j, where the last i has the new
rows and the last j those that are gone, the picture has

    bars     of height sum_j n_ij at the left and sum_i n_ij at the right, with gaps of `SPACING` of all rows
    bands    of height n_ij from bar i to bar j, along y = (1 - s) left + s right with s = 3 t^2 - 2 t^3, t in 0..1
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from neonxc.common.cluster_names import label_text
from neonxc.common.colours import NOISE, colors
from neonxc.common.numbers import percent, text
from neonxc.common.shortening import shortened
from neonxc.common.types import Label
from neonxc.plot.bars import draw_bars, write_beside

if TYPE_CHECKING:
    from pandas import DataFrame, Series

COLUMNS = 4  # that are drawn per move
SPACING = 0.03  # between two clusters, as a fraction of all rows
CURVE = np.linspace(0, 1, 50)
EARLIER = "#9a9aa5"
LATER = "#3b5ba5"


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


def exchange_figure(
    table: DataFrame,
    matches: Mapping[Label, Label],
    uses: DataFrame | None,
    exchanges: Sequence[tuple[str, Series]],
) -> Figure:
    """Draw the flow of rows between the clusters of two models, and beside it what they use, and why rows changed.

    Parameters
    ----------
    table : DataFrame [clusters of a, clusters of b]
        Number of rows.
    matches : mapping
        The match in b of clusters of a, which has the same colour.
    uses : DataFrame [inputs, ...] or None
        Columns ``a`` and ``b``: the use of the inputs that are drawn, the most important first.
    exchanges : sequence of (title, shares)
        Some exchanges of rows, with the shares of the inputs in their reasons.
    """
    n_panels = len(exchanges) + (uses is not None)
    figure = Figure(figsize=(9.5, max(3.4, 1.5 * n_panels)), layout="constrained", dpi=200)
    grid = figure.add_gridspec(max(n_panels, 1), 2, width_ratios=(1, 1))
    none = np.zeros(0)
    _draw_flow(figure.add_subplot(grid[:, 0]), table, none, none, ("a", "b"), matches)
    panels = iter(figure.add_subplot(grid[row, 1]) for row in range(n_panels))
    if uses is not None:
        _draw_uses(next(panels), uses.iloc[:COLUMNS])
    for axes, (title, shares) in zip(panels, exchanges, strict=True):
        first = shares.iloc[:COLUMNS]
        columns = draw_bars(axes, first.to_numpy(), [*first.index], COLUMNS, title)
        write_beside(axes, [percent(first.iloc[i]) for i in columns])
        axes.set_xticks([])
    return figure


def _draw_uses(axes: Axes, uses: DataFrame) -> None:
    """Draw the use of inputs in both models as two bars for each."""
    positions = np.arange(len(uses))
    for model, offset, color in (("a", -0.2, EARLIER), ("b", 0.2, LATER)):
        values = uses[model].to_numpy()
        axes.barh(positions + offset, values, 0.36, color=color, label=model)
        for position, value in zip(positions + offset, values, strict=True):
            axes.text(max(value, 0), position, f" {percent(value)}", va="center", fontsize=7)
    axes.set_yticks(positions, [shortened(str(name), 28) for name in uses.index], fontsize=8, parse_math=False)
    axes.invert_yaxis()
    axes.set_xlim(min(0, uses[["a", "b"]].to_numpy().min()), 1.25 * uses[["a", "b"]].to_numpy().max())
    axes.set_xticks([])
    axes.set_title("share of all relevance", fontsize=9, loc="left")
    axes.legend(fontsize=7, loc="lower right", frameon=False)
    axes.spines[["top", "right", "bottom"]].set_visible(False)


def _draw_flow(
    axes: Axes,
    table: DataFrame,
    entered: Series | np.ndarray,
    left: Series | np.ndarray,
    titles: tuple[str, str] = ("before", "after"),
    matches: Mapping[Label, Label] | None = None,
) -> None:
    """Draw clusters as bars, the old ones at the left, and rows as bands between them.

    A new cluster has the colour of the old one with the same label, or of the one that it is the match of.
    """
    counts = np.zeros((len(table) + 1, table.shape[1] + 1))  # the last ones are new and gone rows
    counts[:-1, :-1] = table.to_numpy(float)
    if len(entered) and len(left):
        counts[-1, :-1] = entered
        counts[:-1, -1] = left
    total = counts.sum()
    old_colors, new_colors = _colors(table, matches)
    sides = (("new", -0.05, "right", table.index, old_colors), ("gone", 1.05, "left", table.columns, new_colors))
    tops = []  # of the bands, at both sides
    for side, (last_name, x, alignment, labels, palette) in enumerate(sides):
        sizes = counts.sum(1 - side)
        heights = sizes + SPACING * total * (sizes > 0)
        bars = np.cumsum([0, *heights])[:-1]
        names = [*map(label_text, labels), last_name]
        for i in np.flatnonzero(sizes):
            axes.bar(side, sizes[i], 0.05, bars[i], color=palette[i])
            label = f"{shortened(names[i], 16)} ({text(int(sizes[i]))})"
            center = bars[i] + sizes[i] / 2
            axes.text(x, center, label, ha=alignment, va="center", fontsize=8, parse_math=False)
        axes.text(side, -0.02 * total, titles[side], ha="center", fontsize=9)
        tops.append(np.expand_dims(bars, 1 - side) + np.cumsum(counts, 1 - side) - counts)

    band_x = 0.025 + 0.95 * CURVE  # from the edge of one bar to that of the other
    smooth = CURVE**2 * (3 - 2 * CURVE)
    for i, j in np.argwhere(counts):
        top = tops[0][i, j] * (1 - smooth) + tops[1][i, j] * smooth
        bottom = top + counts[i, j]
        opacity = 0.15 if old_colors[i] == new_colors[j] else 0.6
        axes.fill_between(band_x, top, bottom, color=old_colors[i], alpha=opacity, lw=0.3)
    n_bars = max(counts.shape)
    axes.set(xlim=(-0.45, 1.45), ylim=(total * (1 + SPACING * n_bars), 0))
    axes.set_axis_off()


def _colors(table: DataFrame, matches: Mapping[Label, Label] | None) -> tuple[list[str], list[str]]:
    """Return the colours of the old and new clusters, and of new and gone rows behind them."""
    clusters = [label for label in table.index if label != -1]
    others = [label for label in table.columns if label != -1]
    if matches is None:
        matches = {label: label for label in clusters}
    unmatched = [label for label in others if label not in {*matches.values()}]
    palette = colors(len(clusters) + len(unmatched))
    of_old = dict(zip(clusters, palette, strict=False))
    of_new = dict(zip(unmatched, palette[len(clusters) :], strict=True))
    of_new.update({new: of_old[old] for old, new in matches.items() if old in of_old})
    old_colors = [of_old.get(label, NOISE) for label in table.index]
    new_colors = [of_new.get(label, NOISE) for label in table.columns]
    return [*old_colors, NOISE], [*new_colors, NOISE]
