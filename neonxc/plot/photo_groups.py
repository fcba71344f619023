"""Whole photos grouped by cluster, each beside the heatmap that explains its cluster.

The cells of the sheet, in lines of up to `ACROSS` photos:

    cluster 0    photo    heatmap    photo    heatmap    ...
                 photo    heatmap
    cluster 1    photo    heatmap    photo    heatmap    ...
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap
from matplotlib.figure import Figure

from neonxc.common.cluster_names import cluster_text
from neonxc.common.numbers import plural
from neonxc.plot.heat import add_scale, bare, draw_heatmap, frame

if TYPE_CHECKING:
    from matplotlib.typing import ColorType

ACROSS = 4  # photos per row
CELL = 1.6  # inches


def grouped_sheet(
    photos: list[np.ndarray],
    heatmaps: list[np.ndarray],
    labels: list[int],
    colors: Colormap,
    photo_names: Sequence[str] | None,
    cluster_titles: Sequence[str] | None,
    dpi: int,
) -> Figure:
    """Draw a block per cluster: its photos [H, W, 3] and their heatmaps [H, W], framed in the cluster's colour."""
    groups = {label: np.flatnonzero(np.equal(labels, label)).tolist() for label in sorted(set(labels))}
    across = min(ACROSS, max(map(len, groups.values())))
    lines = []  # the cluster and the photos of each row of the sheet
    for label, group in groups.items():
        for start in range(0, len(group), across):
            lines.append((label, group[start : start + across]))

    # A row is as high as its highest photo; after each photo and its heatmap, a third column stays empty, since
    # axes take time.
    heights = [max(photos[i].shape[0] / photos[i].shape[1] for i in line) for _, line in lines]
    spacing = 0.1 if photo_names is None else 0.3
    height = sum(CELL * height + spacing for height in heights) + 0.5
    figure = Figure(figsize=(2.1 * CELL * across, height), layout="constrained", dpi=dpi)
    widths = [1, 1, 0.1] * across
    grid = figure.add_gridspec(len(lines), len(widths), height_ratios=heights, width_ratios=widths)

    for row, (label, line) in enumerate(lines):
        color = colors(label)
        for column, i in enumerate(line):
            left = figure.add_subplot(grid[row, 3 * column])
            right = figure.add_subplot(grid[row, 3 * column + 1])
            _draw_photo(left, right, photos[i], heatmaps[i], color)
            if photo_names is not None:
                left.set_title(photo_names[i], fontsize=8, parse_math=False)

        if line[0] == groups[label][0]:  # the first row of the cluster has its title
            if cluster_titles:
                title = cluster_titles[label]
            else:
                title = f"{cluster_text(label)}\n{plural(len(groups[label]), 'photo')}"
            first = figure.axes[-2 * len(line)]
            first.yaxis.set_visible(True)
            first.set_ylabel(title, fontsize=9, color=color, fontweight="bold", parse_math=False)
    add_scale(figure, figure.axes, below=True)
    return figure


def _draw_photo(left: Axes, right: Axes, photo: np.ndarray, heatmap: np.ndarray, color: ColorType) -> None:
    """Draw a photo and beside it its heatmap."""
    bare(left).imshow(photo)
    draw_heatmap(right, photo, heatmap)
    for axes in (left, right):
        frame(axes, color)
        axes.xaxis.set_visible(False)  # to measure an axis takes long, also one without ticks
        axes.yaxis.set_visible(False)
