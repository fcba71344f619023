"""Drawing of a heatmap: smoothing, the pale photo below it, the colour bar, and the outline of a region."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patheffects import withStroke

from neonxc.plot.shared import as_array, check_finite

DIVERGING = "RdBu_r"  # white at zero, red for positive and blue for negative relevance
PALE = 0.45  # share of the photo's contrast that is kept under a heatmap
SMOOTH = 1 / 80  # share of the shorter side: the best width by pixel-flipping, see tests/benchmarks/smoothing.py

FINE = 4  # points for the line around a region, per location and direction


def heatmap_limit(heatmap: Any, quantile: float = 0.995) -> float:
    """Return the limit of the colour scale: a quantile of the absolute values, so that no single pixel sets it.

    Parameters
    ----------
    heatmap : array or Tensor
    quantile : float, 0..1
    """
    strength = np.abs(as_array(heatmap))
    check_finite(strength, "heatmap")
    return float(np.quantile(strength, quantile)) or float(strength.max()) or 1.0


def smoothed(heatmap: np.ndarray, smooth: float = SMOOTH) -> np.ndarray:
    """Blur heatmaps [..., H, W] by a Gaussian whose width is a share of the shorter side; sums are preserved."""
    from scipy.ndimage import gaussian_filter  # takes long, and only heatmaps need it

    if not 0 <= smooth < 1:
        raise ValueError(f"smooth must be a share of the shorter side, at least 0 and below 1; got {smooth!r}")
    return gaussian_filter(heatmap.astype(np.float64), smooth * min(heatmap.shape[-2:]), axes=(-2, -1))


def draw_heatmap(axes: Axes, photo: np.ndarray, heatmap: np.ndarray, limit: float | None = None) -> AxesImage:
    """Draw a heatmap [H, W] over its photo [H, W, 3]; the photo shows where relevance is weak."""
    if heatmap.shape != photo.shape[:2]:
        raise ValueError(f"heatmap of shape {list(heatmap.shape)} on a photo of {list(photo.shape[:2])} pixels")
    check_finite(heatmap, "heatmap")
    limit = float(limit or heatmap_limit(heatmap))
    strength = np.clip(np.abs(heatmap) / limit, 0, 1)
    bare(axes).imshow(pale(photo))
    return axes.imshow(heatmap, cmap=DIVERGING, vmin=-limit, vmax=limit, alpha=0.9 * np.sqrt(strength))


def draw_contour(axes: Axes, region: np.ndarray, shape: Sequence[int], color: Any) -> None:
    """Draw a rounded line around a region [h, w] of a photo of this shape; isolated locations are left out."""
    from scipy.ndimage import gaussian_filter  # takes long, and only heatmaps need it

    height, width = shape[:2]
    fine = np.kron(region.astype(float), np.ones((FINE, FINE)))
    fine = np.pad(gaussian_filter(fine, 0.6 * FINE, mode="nearest"), 1, mode="edge")
    if not fine.min() < 0.5 < fine.max():
        return
    y, x = (
        (np.arange(count) - 0.5) * side / (count - 2) - 0.5
        for count, side in zip(fine.shape, shape[:2], strict=True)
    )
    line = axes.contour(x, y, fine, [0.5], colors=[color], linewidths=1)
    line.set_path_effects([withStroke(linewidth=2, foreground="white")])
    axes.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5))


def add_scale(figure: Figure, axes: Any, labels: Sequence[str] | None = None, below: bool = False) -> None:
    """Draw the colour bar of heatmaps beside or below them."""
    scale = ScalarMappable(Normalize(-1, 1), colormaps[DIVERGING])
    place: dict[str, Any] = {"location": "bottom", "aspect": 40, "shrink": 0.4} if below else {"aspect": 30}
    bar = figure.colorbar(scale, ax=axes, pad=0.02, **place)
    bar.set_ticks([-1, 0, 1], labels=labels or ["against", "0", "for"])
    bar.ax.tick_params(labelsize=8, length=2)
    bar.outline.set_visible(False)


def pale(photo: Any) -> np.ndarray:
    """Convert a photo, [3, H, W] or [H, W, 3] in 0..1, to the pale grey background of heatmaps, [H, W, 3]."""
    photo = as_image(photo)
    grey = photo @ np.array([0.299, 0.587, 0.114])
    return np.repeat((1 - PALE + PALE * grey)[..., None], 3, axis=-1)


def bare(axes: Axes) -> Axes:
    """Remove ticks and frame of axes."""
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set(visible=False, in_layout=False)  # to measure them takes long
    return axes


def frame(axes: Axes, color: Any) -> None:
    """Draw a frame around axes."""
    axes.spines[:].set(visible=True, color=color, linewidth=1.5)


def as_image(image: Any) -> np.ndarray:
    """Convert bytes or numbers in 0..1, grey or with channels first or last, to an image [H, W, 3] in 0..1."""
    array = as_array(image)
    if array.ndim == 2:
        array = array[..., None]
    if array.ndim == 3 and array.shape[0] in (1, 3) and array.shape[2] not in (1, 3):
        array = array.transpose(1, 2, 0)
    if array.ndim != 3 or array.shape[2] not in (1, 3):
        raise ValueError(
            f"an image needs shape [3, H, W] or [H, W, 3], or grey [1, H, W] or [H, W], got {list(array.shape)}"
        )
    array = array.repeat(3 // array.shape[2], axis=2).astype(np.float64) / (255 if array.dtype == np.uint8 else 1)
    if not (array.min() >= -1e-6 and array.max() <= 1 + 1e-6):
        raise ValueError(f"an image needs values in 0..1, got {array.min():.3g} to {array.max():.3g}")
    return array.clip(0, 1)
