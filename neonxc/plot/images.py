"""Heatmaps of images: overlays and contact sheets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, ListedColormap
from matplotlib.figure import Figure

from neonxc.common import colours
from neonxc.common.numbers import text
from neonxc.plot.heat import (
    SMOOTH,
    add_scale,
    as_image,
    bare,
    draw_contour,
    draw_heatmap,
    frame,
    heatmap_limit,
    pale,
    smoothed,
)
from neonxc.plot.photo_groups import grouped_sheet
from neonxc.plot.shared import as_array

if TYPE_CHECKING:
    from torch import Tensor

PRINT = 200  # dots per inch of saved figures
CELL = 1.9  # inches
GAP = 0.04  # gap between typical patches, as a share of their side
ACROSS = 3  # typical patches in a row


def overlay(
    image: Any,
    heatmap: Any,
    *,
    limit: float | None = None,
    title: str | None = None,
    smooth: float = SMOOTH,
    region: Any = None,
    color: Any = "0.2",
) -> Figure:
    """Draw one heatmap over its pale grey photo.

    Parameters
    ----------
    image : array or Tensor [3, H, W] or [H, W, 3], or grey [1, H, W] or [H, W]
        The photo, with values in 0..1.
    heatmap : array or Tensor [H, W] or [C, H, W]
        Relevance; channels are summed.
    limit : float, optional
        Relevance with the full colour; the default is :func:`heatmap_limit`. The scale is centred at zero.
    title : str, optional
    smooth : float
        Standard deviation of the Gaussian that blurs the heatmap, as a share of the shorter side; 0 draws the
        relevance itself. The default is the width with the best pixel-flipping score.
    region : bool array or Tensor [h, w], optional
        The locations of the cluster; a line is drawn around them.
    color : matplotlib color
        Color of that line.

    Returns
    -------
    matplotlib.figure.Figure
    """
    photo = as_image(image)
    height = 4 * photo.shape[0] / photo.shape[1] + (0.3 if title else 0)
    figure = Figure(figsize=(4.5, height), layout="compressed", dpi=PRINT)
    axes = figure.add_subplot()
    picture = draw_heatmap(axes, photo, smoothed(_as_heatmap(heatmap), smooth), limit)
    if region is not None:
        draw_contour(axes, as_array(region), photo.shape, color)
    if title:
        axes.set_title(title, fontsize=9, parse_math=False)
    low, high = picture.get_clim()
    add_scale(figure, axes, None if limit is None else [text(low, 2), "0", text(high, 2)])
    return figure


def contact_sheet(
    images: Sequence[Any] | Any,
    heatmaps: Sequence[Any] | Any,
    cluster_maps: Sequence[Any] | Any | None = None,
    *,
    row_titles: Sequence[str] | None = None,
    column_titles: Sequence[str] | None = None,
    patches: Sequence[Sequence[Any]] | None = None,
    same_clusters: bool = True,
    smooth: float = SMOOTH,
) -> Figure:
    """Draw photos, their cluster maps and their heatmaps, one row per photo; or whole photos grouped by cluster.

    Parameters
    ----------
    images : sequence of N arrays or tensors [3, H, W] or [H, W, 3], or grey [1, H, W] or [H, W]
        The photos, with values in 0..1; their sizes may differ.
    heatmaps : sequence of N arrays or tensors [K, H, W] or [H, W]
        The heatmaps of K clusters of locations, as returned by :meth:`neonxc.NEON.heatmaps`; or, if whole photos
        are clustered, one heatmap per photo, which is :meth:`neonxc.NEON.attribute` summed over the channels.
        Three maps are always those of three clusters, never red, green and blue. Scales are centred at zero and
        robust (:func:`heatmap_limit`).
    cluster_maps : sequence of N integer arrays or tensors [h, w], or [N] integers, optional
        The cluster of every location. Heatmap k is framed in the colour of cluster k, and a line is drawn around
        the region of the cluster. With one heatmap per photo: the cluster of every photo, by which photos are
        grouped.
    row_titles, column_titles : sequence of str, optional
        Titles of the photos, and of the K clusters (default: "cluster k"; for whole photos with their number).
    patches : sequence of K sequences of images, optional
        Typical patches of every cluster, drawn above its heatmaps.
    same_clusters : bool
        Whether cluster k is the same in all photos. Its heatmaps then have one scale, the largest of the photos',
        so that a heatmap is pale where there is little of the cluster. Otherwise, and if whole photos are
        clustered, every heatmap has its own scale.
    smooth : float
        As in :func:`overlay`.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ValueError
        If shapes do not match, or if `cluster_maps` has more clusters than `heatmaps` has maps without titles.
    """
    photos = [as_image(image) for image in images]
    stacks = [as_array(stack) for stack in heatmaps]
    maps = None if cluster_maps is None else [as_array(cluster_map) for cluster_map in cluster_maps]
    _check_sheet(photos, stacks, maps)
    blurred = [smoothed(stack, smooth) for stack in stacks]
    if stacks[0].ndim == 2:
        if maps is None or any(cluster_map.ndim for cluster_map in maps):
            raise ValueError("one heatmap per photo needs cluster_maps with one integer per photo, its cluster")
        labels = np.array(maps).astype(int).tolist()
        K = max(labels) + 1
        if column_titles is not None and len(column_titles) < K:
            raise ValueError(f"{K} clusters need as many column_titles, got {len(column_titles)}")
        return grouped_sheet(photos, blurred, labels, cluster_colors(K), row_titles, column_titles, PRINT)
    K = len(stacks[0])
    titles = _column_titles(K, maps, column_titles)
    colors = cluster_colors(K)
    # a photo that has none of a cluster has no limit
    limits = [max(heatmap_limit(stack[k]) * bool(stack[k].any()) for stack in blurred) or None for k in range(K)]
    mosaics = [_mosaic([as_image(patch) for patch in typical]) for typical in patches or ()]
    lead = ["photo"] if maps is None else ["photo", "clusters"]
    heights = [photo.shape[0] / photo.shape[1] for photo in photos]
    if mosaics:
        heights.insert(0, max(mosaic.shape[0] / mosaic.shape[1] for mosaic in mosaics))
    size = CELL * (len(lead) + K), CELL * sum(heights) + 0.75
    figure = Figure(figsize=size, layout="constrained", dpi=PRINT)
    grid = figure.subplots(len(heights), len(lead) + K, squeeze=False, gridspec_kw={"height_ratios": heights})
    for axes in grid.flat:
        bare(axes)
    if mosaics:
        _draw_mosaics(grid[0, len(lead) - 1 :], mosaics, colors)
    photo_cells = grid[-len(photos) :]
    for row, (cells, photo, stack) in enumerate(zip(photo_cells, photos, blurred, strict=True)):
        cells[0].imshow(photo)
        if row_titles is not None:
            cells[0].set_ylabel(row_titles[row], fontsize=9, parse_math=False)
        if maps is not None:
            _draw_cluster_map(cells[1], photo, maps[row], colors)
        for k, axes in enumerate(cells[len(lead) :]):
            draw_heatmap(axes, photo, stack[k], limits[k] if same_clusters else None)
            if maps is not None:
                region = maps[row] == k
                draw_contour(axes, region, photo.shape, colors(k))
                if not region.any():
                    axes.set_xlabel("not in this photo", fontsize=7, color="0.4", labelpad=2)
            frame(axes, colors(k))
    top_cells = [*photo_cells[0, : len(lead)], *grid[0, len(lead) :]]
    for axes, title in zip(top_cells, lead + titles, strict=True):
        axes.set_title(title, fontsize=9, parse_math=False)
    add_scale(figure, grid, below=True)
    return figure


def as_photos(features: Any, x: Tensor) -> Tensor:
    """Convert the inputs of a feature network to photos [N, 3, H, W] with values from 0 to 1."""
    images = x.float()
    if hasattr(features, "deprocess"):
        images = features.deprocess(images)
    if images.shape[1] == 1:
        images = images.expand(-1, 3, -1, -1)
    low, high = images.aminmax()
    return images if low >= 0 and high <= 1 else (images - low) / (high - low).clamp(min=1e-12)


def cluster_colors(K: int) -> ListedColormap:
    """Return the colours of K clusters, which are those of reports."""
    return ListedColormap(colours.colors(K))


def _draw_cluster_map(axes: Axes, photo: np.ndarray, cluster_map: np.ndarray, colors: Colormap) -> None:
    height, width = photo.shape[:2]
    extent = (-0.5, width - 0.5, height - 0.5, -0.5)
    axes.imshow(pale(photo))
    limits = -0.5, colors.N - 0.5
    axes.imshow(cluster_map, colors, clim=limits, alpha=0.75, interpolation="nearest", extent=extent)


def _mosaic(patches: list[np.ndarray]) -> np.ndarray:
    """Arrange patches of one size in rows of three, with white between them."""
    if not patches:
        return np.ones((1, 1, 3))
    gap = max(1, round(GAP * len(patches[0])))
    margins = (0, -len(patches) % ACROSS), (0, gap), (0, gap), (0, 0)
    cells = np.pad(np.stack(patches), margins, constant_values=1)
    _, height, width, _ = cells.shape
    rows = cells.reshape(-1, ACROSS, height, width, 3).swapaxes(1, 2)
    return rows.reshape(-1, ACROSS * width, 3)[:-gap, :-gap]


def _draw_mosaics(cells: np.ndarray, mosaics: list[np.ndarray], colors: Colormap) -> None:
    """Draw the mosaics, and what they are in the cell before them."""
    heading, *others = cells
    place = heading.transAxes
    heading.text(0.95, 0.5, "most typical\npatches", ha="right", va="center", fontsize=9, transform=place)
    for k, (axes, mosaic) in enumerate(zip(others, mosaics, strict=True)):
        axes.imshow(mosaic)
        frame(axes, colors(k))


def _check_sheet(photos: list[np.ndarray], stacks: list[np.ndarray], maps: list[np.ndarray] | None) -> None:
    if not photos:
        raise ValueError("a contact sheet needs at least one photo")
    if len(stacks) != len(photos) or (maps is not None and len(maps) != len(photos)):
        raise ValueError(f"heatmaps (and cluster_maps) need one entry per photo, {len(photos)}; got {len(stacks)}")
    shapes = [list(stack.shape) for stack in stacks]
    if any(len(shape) not in (2, 3) or shape[:-2] != shapes[0][:-2] for shape in shapes):
        raise ValueError(f"heatmaps need shape [K, H, W] with one K, or [H, W], got {shapes}")


def _column_titles(K: int, maps: list[np.ndarray] | None, titles: Sequence[str] | None) -> list[str]:
    """Return the titles of K heatmaps per photo, which are those of K clusters unless they have other titles."""
    if titles is not None:
        if len(titles) != K:
            raise ValueError(f"{K} heatmaps per photo need as many column_titles, got {len(titles)}")
        return list(titles)
    clusters = max((int(cluster_map.max()) + 1 for cluster_map in maps or ()), default=0)
    if clusters > K:
        raise ValueError(
            f"got {K} maps per photo for {clusters} clusters: heatmaps must be those of NEON.heatmaps, one for "
            "each cluster, while NEON.attribute has the red, green and blue channels (sum over them to draw one "
            "heatmap per photo); column_titles name other maps"
        )
    return [f"cluster {k}" for k in range(K)]


def _as_heatmap(heatmap: Any) -> np.ndarray:
    array = as_array(heatmap)
    array = array.sum(axis=0) if array.ndim == 3 else array
    if array.ndim != 2:
        raise ValueError(f"a heatmap needs shape [H, W] or [C, H, W], got {list(array.shape)}")
    return array
