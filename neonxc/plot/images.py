"""Heatmaps of images: overlays and contact sheets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from neonxc.common import colours
from neonxc.common.numbers import text
from neonxc.common.types import ArrayLike
from neonxc.plot.heat import SMOOTH, add_scale, as_image, draw_contour, draw_heatmap, smoothed
from neonxc.plot.location_sheet import location_sheet
from neonxc.plot.photo_groups import grouped_sheet
from neonxc.plot.shared import as_array

if TYPE_CHECKING:
    from matplotlib.typing import ColorType
    from torch import Tensor

PRINT = 200  # dots per inch of saved figures


def overlay(
    image: ArrayLike,
    heatmap: ArrayLike,
    *,
    limit: float | None = None,
    title: str | None = None,
    smooth: float = SMOOTH,
    region: ArrayLike | None = None,
    color: ColorType = "0.2",
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
    height = 4 * photo.shape[0] / photo.shape[1]
    if title:
        height += 0.3
    figure = Figure(figsize=(4.5, height), layout="compressed", dpi=PRINT)
    axes = figure.add_subplot()
    blurred = smoothed(_as_heatmap(heatmap), smooth)
    picture = draw_heatmap(axes, photo, blurred, limit)
    if region is not None:
        draw_contour(axes, as_array(region), photo.shape, color)
    if title:
        axes.set_title(title, fontsize=9, parse_math=False)
    labels = None
    if limit is not None:
        low, high = picture.get_clim()
        labels = [text(low, 2), "0", text(high, 2)]
    add_scale(figure, axes, labels)
    return figure


def contact_sheet(
    images: Sequence[ArrayLike] | np.ndarray | Tensor,
    heatmaps: Sequence[ArrayLike] | np.ndarray | Tensor,
    cluster_maps: Sequence[ArrayLike | int] | np.ndarray | Tensor | None = None,
    *,
    row_titles: Sequence[str] | None = None,
    column_titles: Sequence[str] | None = None,
    patches: Sequence[Sequence[ArrayLike]] | None = None,
    same_clusters: bool = True,
    smooth: float = SMOOTH,
) -> Figure:
    """Draw photos with heatmaps: a row per photo if locations are clustered, a block per cluster if photos are.

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
    return sheet_of(
        images,
        heatmaps,
        cluster_maps,
        row_titles=row_titles,
        column_titles=column_titles,
        patches=patches,
        same_clusters=same_clusters,
        smooth=smooth,
        dpi=PRINT,
    )


def sheet_of(
    images: Sequence[ArrayLike] | np.ndarray | Tensor,
    heatmaps: Sequence[ArrayLike] | np.ndarray | Tensor,
    cluster_maps: Sequence[ArrayLike | int] | np.ndarray | Tensor | None,
    *,
    row_titles: Sequence[str] | None = None,
    column_titles: Sequence[str] | None = None,
    patches: Sequence[Sequence[ArrayLike]] | None = None,
    same_clusters: bool = True,
    smooth: float = SMOOTH,
    dpi: int,
) -> Figure:
    """Draw a :func:`contact_sheet` with another resolution."""
    photos = [as_image(image) for image in images]
    stacks = [as_array(stack) for stack in heatmaps]
    maps = None
    if cluster_maps is not None:
        maps = [as_array(cluster_map) for cluster_map in cluster_maps]
    _check_sheet(photos, stacks, maps)
    blurred = [smoothed(stack, smooth) for stack in stacks]

    # one heatmap [H, W] per photo instead of K, and labels [N] instead of maps [h, w]
    is_whole_photos = stacks[0].ndim == 2
    if is_whole_photos:
        labels = _labels(maps, column_titles)
        colors = cluster_colors(max(labels) + 1)
        return grouped_sheet(photos, blurred, labels, colors, row_titles, column_titles, dpi)

    K = len(stacks[0])
    titles = _column_titles(K, maps, column_titles)
    colors = cluster_colors(K)
    return location_sheet(photos, blurred, maps, colors, row_titles, titles, patches, same_clusters, dpi)


def cluster_colors(K: int) -> ListedColormap:
    """Return the colours of K clusters, which are those of reports."""
    return ListedColormap(colours.colors(K))


def _check_sheet(photos: list[np.ndarray], stacks: list[np.ndarray], maps: list[np.ndarray] | None) -> None:
    """Raise a ValueError unless there is a heatmap (and a map) per photo, and all have the same form."""
    if not photos:
        raise ValueError("a contact sheet needs at least one photo")
    if len(stacks) != len(photos) or (maps is not None and len(maps) != len(photos)):
        raise ValueError(f"heatmaps (and cluster_maps) need one entry per photo, {len(photos)}; got {len(stacks)}")
    shapes = [list(stack.shape) for stack in stacks]
    if any(len(shape) not in (2, 3) or shape[:-2] != shapes[0][:-2] for shape in shapes):
        raise ValueError(f"heatmaps need shape [K, H, W] with one K, or [H, W], got {shapes}")


def _labels(maps: list[np.ndarray] | None, titles: Sequence[str] | None) -> list[int]:
    """Return the cluster of every whole photo, from the maps of contact_sheet."""
    if maps is None or any(cluster_map.ndim for cluster_map in maps):
        raise ValueError("one heatmap per photo needs cluster_maps with one integer per photo, its cluster")
    labels: list[int] = np.array(maps).astype(int).tolist()
    K = max(labels) + 1
    if titles is not None and len(titles) < K:
        raise ValueError(f"{K} clusters need as many column_titles, got {len(titles)}")
    return labels


def _column_titles(K: int, maps: list[np.ndarray] | None, titles: Sequence[str] | None) -> list[str]:
    """Return the titles of K heatmaps per photo, which are those of K clusters unless they have other titles."""
    if titles is not None:
        if len(titles) != K:
            raise ValueError(f"{K} heatmaps per photo need as many column_titles, got {len(titles)}")
        return list(titles)
    n_clusters = 0
    for cluster_map in maps or ():
        n_clusters = max(n_clusters, int(cluster_map.max()) + 1)
    if n_clusters > K:
        raise ValueError(
            f"got {K} maps per photo for {n_clusters} clusters: heatmaps must be those of NEON.heatmaps, one for "
            "each cluster, while NEON.attribute has the red, green and blue channels (sum over them to draw one "
            "heatmap per photo); column_titles name other maps"
        )
    return [f"cluster {k}" for k in range(K)]


def _as_heatmap(heatmap: ArrayLike) -> np.ndarray:
    """Convert a heatmap to an array [H, W]; channels are summed."""
    array = as_array(heatmap)
    if array.ndim == 3:
        array = array.sum(axis=0)
    if array.ndim != 2:
        raise ValueError(f"a heatmap needs shape [H, W] or [C, H, W], got {list(array.shape)}")
    return array
