"""Whole photos grouped by cluster, each beside the heatmap that explains its cluster."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.colors import Colormap
from matplotlib.figure import Figure

from neonxc.common.numbers import plural
from neonxc.plot.heat import add_scale, bare, draw_heatmap, frame

ACROSS = 4  # photos per row
CELL = 1.6  # inches


def grouped_sheet(
    photos: list[np.ndarray],
    heatmaps: list[np.ndarray],
    labels: list[int],
    colors: Colormap,
    names: Sequence[str] | None,
    titles: Sequence[str] | None,
    dpi: int,
) -> Figure:
    """Draw a block per cluster: its photos with their heatmaps, in frames of the cluster's colour.

    `names` are those of the photos, `titles` those of the clusters.
    """
    groups = {label: np.flatnonzero(np.equal(labels, label)).tolist() for label in sorted(set(labels))}
    across = min(ACROSS, max(map(len, groups.values())))
    lines = [
        (label, group[i : i + across]) for label, group in groups.items() for i in range(0, len(group), across)
    ]
    heights = [max(photos[i].shape[0] / photos[i].shape[1] for i in line) for _, line in lines]
    gap = 0.1 if names is None else 0.3
    size = 2.1 * CELL * across, sum(CELL * height + gap for height in heights) + 0.5
    figure = Figure(figsize=size, layout="constrained", dpi=dpi)
    widths = [1, 1, 0.1] * across  # the last column is a gap, without axes: they take the time
    grid = figure.add_gridspec(len(lines), len(widths), height_ratios=heights, width_ratios=widths)
    for row, (label, line) in enumerate(lines):
        color = colors(label)
        for place, i in enumerate(line):
            photo, heat = (figure.add_subplot(grid[row, 3 * place + side]) for side in range(2))
            bare(photo).imshow(photos[i])
            draw_heatmap(heat, photos[i], heatmaps[i])
            frame(photo, color)
            frame(heat, color)
            if names is not None:
                photo.set_title(names[i], fontsize=8, parse_math=False)
            for axis in (photo.xaxis, photo.yaxis, heat.xaxis, heat.yaxis):
                axis.set_visible(False)  # to measure an axis takes long, also one without ticks
        if line[0] == groups[label][0]:
            n = len(groups[label])
            title = titles[label] if titles else f"cluster {label}\n{plural(n, 'photo')}"
            first = figure.axes[-2 * len(line)]
            first.yaxis.set_visible(True)
            first.set_ylabel(title, fontsize=9, color=color, fontweight="bold", parse_math=False)
    add_scale(figure, figure.axes, below=True)
    return figure
