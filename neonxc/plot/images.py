"""Heatmaps of images: overlays and contact sheets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, ListedColormap
from matplotlib.figure import Figure

from neonxc.plot.shared import as_array, check_finite

DIVERGING = "bwr"  # white at zero: red speaks for the cluster, blue against it
PALE = 0.22  # how much of the photo's contrast is left under a heatmap


def overlay(image: Any, heatmap: Any, *, limit: float | None = None, title: str | None = None) -> Figure:
    """One heatmap over its pale grey photo.

    Parameters
    ----------
    image : array or Tensor [3, H, W] or [H, W, 3]
        In 0..1.
    heatmap : array or Tensor [H, W] or [C, H, W]
        Relevance; channels are summed.
    limit : float, optional
        Relevance that gets the full colour; default: :func:`heatmap_limit`. The scale is centred at zero.
    title : str, optional

    Returns
    -------
    matplotlib.figure.Figure
    """
    photo = _as_image(image)
    height = 4 * photo.shape[0] / photo.shape[1]
    figure = Figure(figsize=(4, height + (0.3 if title else 0)), layout="constrained")
    _draw_overlay(figure.add_subplot(), photo, _as_heatmap(heatmap), limit)
    if title:
        figure.axes[0].set_title(title, fontsize=9, parse_math=False)
    return figure


def contact_sheet(
    images: Sequence[Any] | Any,
    heatmaps: Sequence[Any] | Any,
    cluster_maps: Sequence[Any] | Any | None = None,
    *,
    row_titles: Sequence[str] | None = None,
    column_titles: Sequence[str] | None = None,
) -> Figure:
    """Photos, their cluster maps and all their heatmaps, one photo a row.

    Parameters
    ----------
    images : sequence of N arrays or tensors [3, H, W] or [H, W, 3]
        In 0..1; sizes may differ.
    heatmaps : sequence of N arrays or tensors [K, H, W]
        Each on a scale of its own, zero-centred and robust (:func:`heatmap_limit`).
    cluster_maps : sequence of N integer arrays or tensors [h, w], optional
        Column of the cluster at every location; cluster k has the colour that frames heatmap k.
    row_titles, column_titles : sequence of str, optional
        Of the photos, and of the K heatmaps (default: "cluster k").

    Returns
    -------
    matplotlib.figure.Figure
    """
    photos, stacks = [_as_image(image) for image in images], [as_array(stack) for stack in heatmaps]
    maps = None if cluster_maps is None else [as_array(cluster_map) for cluster_map in cluster_maps]
    _check_sheet(photos, stacks, maps)
    K = len(stacks[0])
    titles = list(column_titles) if column_titles is not None else [f"cluster {k}" for k in range(K)]
    colors = cluster_colors(K)
    lead = 1 if maps is None else 2
    heights = [photo.shape[0] / photo.shape[1] for photo in photos]
    figure = Figure(figsize=(1.9 * (lead + K), 1.9 * sum(heights) + 0.3), layout="constrained")
    grid = figure.subplots(len(photos), lead + K, squeeze=False, gridspec_kw={"height_ratios": heights})
    for row, (photo, stack) in enumerate(zip(photos, stacks, strict=True)):
        _bare(grid[row, 0]).imshow(photo)
        if row_titles is not None:
            grid[row, 0].set_ylabel(row_titles[row], fontsize=9, parse_math=False)
        if maps is not None:
            _draw_cluster_map(_bare(grid[row, 1]), photo, maps[row], colors)
        for k in range(K):
            axes = grid[row, lead + k]
            _draw_overlay(axes, photo, stack[k], None)
            for spine in axes.spines.values():
                spine.set(visible=True, color=colors(k), linewidth=1.5)
    for axes, title in zip(grid[0], ["photo", "clusters"][:lead] + titles, strict=True):
        axes.set_title(title, fontsize=9, parse_math=False)
    return figure


def heatmap_limit(heatmap: Any, quantile: float = 0.995) -> float:
    """Size of a heatmap's values: a quantile of the absolute ones, so that no single pixel sets the scale.

    Parameters
    ----------
    heatmap : array or Tensor
    quantile : float, 0..1
    """
    size = np.abs(as_array(heatmap))
    check_finite(size, "heatmap")
    limit = float(np.quantile(size, quantile))
    return limit or float(size.max()) or 1.0


def cluster_colors(K: int) -> Colormap:
    """One colour for each of K clusters, distinct for up to 20."""
    if K <= 10:
        return ListedColormap(colormaps["tab10"].colors[:K])  # type: ignore[attr-defined]
    return ListedColormap(colormaps["tab20" if K <= 20 else "hsv"](np.linspace(0, 1, K, endpoint=K <= 20)))


def _draw_overlay(axes: Axes, photo: np.ndarray, heatmap: np.ndarray, limit: float | None) -> None:
    if heatmap.shape != photo.shape[:2]:
        raise ValueError(f"heatmap of shape {list(heatmap.shape)} on a photo of {list(photo.shape[:2])} pixels")
    limit = limit or heatmap_limit(heatmap)
    strength = np.clip(np.abs(heatmap) / limit, 0, 1)
    _bare(axes).imshow(pale(photo))
    axes.imshow(heatmap, cmap=DIVERGING, vmin=-limit, vmax=limit, alpha=np.sqrt(strength))


def _draw_cluster_map(axes: Axes, photo: np.ndarray, cluster_map: np.ndarray, colors: Colormap) -> None:
    height, width = photo.shape[:2]
    axes.imshow(pale(photo))
    axes.imshow(
        cluster_map,
        cmap=colors,
        vmin=-0.5,
        vmax=colors.N - 0.5,
        alpha=0.75,
        interpolation="nearest",
        extent=(-0.5, width - 0.5, height - 0.5, -0.5),
    )


def pale(photo: Any) -> np.ndarray:
    """A photo, [3, H, W] or [H, W, 3] in 0..1, as the pale grey that heatmaps lie on, [H, W, 3]."""
    photo = _as_image(photo)
    grey = photo @ np.array([0.299, 0.587, 0.114])
    return np.repeat((1 - PALE + PALE * grey)[..., None], 3, axis=-1)


def _bare(axes: Axes) -> Axes:
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set_visible(False)
    return axes


def _check_sheet(photos: list[np.ndarray], stacks: list[np.ndarray], maps: list[np.ndarray] | None) -> None:
    if not photos:
        raise ValueError("a contact sheet needs at least one photo")
    if len(stacks) != len(photos) or (maps is not None and len(maps) != len(photos)):
        raise ValueError(f"{len(photos)} photos need as many stacks of heatmaps (and cluster maps)")
    shapes = [stack.shape for stack in stacks]
    if any(len(shape) != 3 or shape[0] != shapes[0][0] for shape in shapes):
        raise ValueError(f"heatmaps need shape [K, H, W] with one K, got {[list(shape) for shape in shapes]}")


def _as_image(image: Any) -> np.ndarray:
    array = as_array(image)
    if array.ndim == 3 and array.shape[0] == 3 and array.shape[2] != 3:
        array = array.transpose(1, 2, 0)
    if array.ndim != 3 or array.shape[2] != 3:
        raise ValueError(f"an image needs shape [3, H, W] or [H, W, 3], got {list(array.shape)}")
    array = array.astype(np.float64) / (255 if array.dtype == np.uint8 else 1)
    if not (array.min() >= -1e-6 and array.max() <= 1 + 1e-6):
        raise ValueError(f"an image needs values in 0..1, got {array.min():.3g} to {array.max():.3g}")
    return array.clip(0, 1)


def _as_heatmap(heatmap: Any) -> np.ndarray:
    array = as_array(heatmap)
    if array.ndim == 3:
        array = array.sum(axis=0)
    if array.ndim != 2:
        raise ValueError(f"a heatmap needs shape [H, W] or [C, H, W], got {list(array.shape)}")
    return array
