"""Photos whose locations are clustered: one row per photo, with its cluster map and a heatmap of every cluster.

The cells of the sheet, of which the row of patches and the column of cluster maps may be missing:

    (empty)    "most typical"    patches of cluster 0     ...    patches of cluster K - 1
    photo 0    cluster map       heatmap of cluster 0     ...    heatmap of cluster K - 1
    ...
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap
from matplotlib.figure import Figure

from neonxc.common.types import ArrayLike
from neonxc.plot.heat import add_scale, as_image, bare, draw_contour, draw_heatmap, frame, heatmap_limit, pale

CELL = 1.9  # inches
SPACING = 0.04  # between typical patches, as a fraction of their side
ACROSS = 3  # typical patches in a row


def location_sheet(
    photos: list[np.ndarray],
    heatmaps: list[np.ndarray],
    cluster_maps: list[np.ndarray] | None,
    colors: Colormap,
    row_titles: Sequence[str] | None,
    column_titles: list[str],
    patches: Sequence[Sequence[ArrayLike]] | None,
    same_clusters: bool,
    dpi: int,
) -> Figure:
    """Draw a row per photo [H, W, 3]: the photo, its cluster map [h, w] if there is one, and K heatmaps [K, H, W].

    The other arguments are those of :func:`neonxc.plot.contact_sheet`.
    """
    K = len(column_titles)
    limits: list[float | None] = [None] * K  # None: every heatmap has its own
    if same_clusters:
        limits = [_joint_limit([stack[k] for stack in heatmaps]) for k in range(K)]
    mosaics = []
    for typical in patches or ():
        mosaics.append(_mosaic([as_image(patch) for patch in typical]))

    lead = ["photo"]  # titles of the columns before the heatmaps
    if cluster_maps is not None:
        lead.append("clusters")
    n_lead = len(lead)
    heights = [photo.shape[0] / photo.shape[1] for photo in photos]
    if mosaics:
        heights.insert(0, max(mosaic.shape[0] / mosaic.shape[1] for mosaic in mosaics))
    size = (CELL * (n_lead + K), CELL * sum(heights) + 0.75)
    figure = Figure(figsize=size, layout="constrained", dpi=dpi)
    grid = figure.subplots(len(heights), n_lead + K, squeeze=False, gridspec_kw={"height_ratios": heights})
    for axes in grid.flat:
        bare(axes)

    if mosaics:
        _draw_mosaics(grid[0, n_lead - 1 :], mosaics, colors)
    rows = grid[-len(photos) :]
    for row, (cells, photo, stack) in enumerate(zip(rows, photos, heatmaps, strict=True)):
        cells[0].imshow(photo)
        if row_titles is not None:
            cells[0].set_ylabel(row_titles[row], fontsize=9, parse_math=False)
        if cluster_maps is not None:
            _draw_cluster_map(cells[1], photo, cluster_maps[row], colors)
        for k, axes in enumerate(cells[n_lead:]):
            draw_heatmap(axes, photo, stack[k], limits[k])
            if cluster_maps is not None:
                region = cluster_maps[row] == k
                draw_contour(axes, region, photo.shape, colors(k))
                if not region.any():
                    axes.set_xlabel("not in this photo", fontsize=7, color="0.4", labelpad=2)
            frame(axes, colors(k))

    # The titles of heatmaps stand above the patches, that of the photo stands above the first photo.
    top_cells = [*rows[0, :n_lead], *grid[0, n_lead:]]
    for axes, title in zip(top_cells, lead + column_titles, strict=True):
        axes.set_title(title, fontsize=9, parse_math=False)
    add_scale(figure, grid, below=True)
    return figure


def _joint_limit(heatmaps: list[np.ndarray]) -> float | None:
    """Return the largest limit of the heatmaps of a cluster; None if it has no relevance in any photo."""
    return max((heatmap_limit(heatmap) for heatmap in heatmaps if heatmap.any()), default=None)


def _draw_cluster_map(axes: Axes, photo: np.ndarray, cluster_map: np.ndarray, colors: Colormap) -> None:
    """Draw the clusters of the locations over the photo."""
    height, width = photo.shape[:2]
    extent = (-0.5, width - 0.5, height - 0.5, -0.5)
    limits = (-0.5, colors.N - 0.5)
    axes.imshow(pale(photo))
    axes.imshow(cluster_map, colors, clim=limits, alpha=0.75, interpolation="nearest", extent=extent)


def _mosaic(patches: list[np.ndarray]) -> np.ndarray:
    """Arrange patches [h, w, 3] of one size in rows of three, with white between them."""
    if not patches:
        return np.ones((1, 1, 3))
    spacing = max(1, round(SPACING * len(patches[0])))
    missing = -len(patches) % ACROSS  # white patches that fill the last row
    margins = ((0, missing), (0, spacing), (0, spacing), (0, 0))
    cells = np.pad(np.stack(patches), margins, constant_values=1)
    _, height, width, _ = cells.shape
    rows = cells.reshape(-1, ACROSS, height, width, 3).swapaxes(1, 2)
    return rows.reshape(-1, ACROSS * width, 3)[:-spacing, :-spacing]


def _draw_mosaics(cells: np.ndarray, mosaics: list[np.ndarray], colors: Colormap) -> None:
    """Draw the mosaics, and write in the cell before them what they are."""
    heading, *mosaic_cells = cells
    corner = heading.transAxes
    heading.text(0.95, 0.5, "most typical\npatches", ha="right", va="center", fontsize=9, transform=corner)
    for k, (axes, mosaic) in enumerate(zip(mosaic_cells, mosaics, strict=True)):
        axes.imshow(mosaic)
        frame(axes, colors(k))
