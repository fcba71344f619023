"""Drawing of a heatmap over its photo, with a colour bar and the outline of a region.

The colours of a heatmap, with relevance h at a pixel:

    blur         h is blurred by a Gaussian, whose standard deviation is `SMOOTH` of the photo's shorter side
    scale        m is the 99.5% quantile of |h|: +m is red, 0 is white, -m is blue, and more than m is cut off
    opacity      0.9 sqrt(min(|h| / m, 1)), so that the photo shows where there is little relevance
    background   1 - p + p g, where g is the grey value of the photo, 0..1, and p = `PALE`
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colorbar import Colorbar
from matplotlib.colors import Colormap, Normalize
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patheffects import withStroke

from neonxc.common.types import ArrayLike
from neonxc.plot.shared import as_array, check_finite

if TYPE_CHECKING:
    from matplotlib.typing import ColorType

AxesLike: TypeAlias = Axes | Sequence[Axes] | np.ndarray

DIVERGING = "RdBu_r"  # white at zero, red for positive and blue for negative relevance
PALE = 0.45  # share of the photo's contrast that is kept under a heatmap
SMOOTH = 1 / 80  # share of the shorter side: the best width by pixel-flipping, see tests/benchmarks/smoothing.py
LUMINANCE = np.array([0.299, 0.587, 0.114])  # of red, green and blue (ITU-R BT.601)

FINE = 4  # points for the line around a region, per location and direction


def heatmap_limit(heatmap: ArrayLike, quantile: float = 0.995) -> float:
    """Return the limit of the colour scale: a quantile of the absolute values, so that no single pixel sets it.

    Parameters
    ----------
    heatmap : array or Tensor
    quantile : float, 0..1
    """
    strength = np.abs(as_array(heatmap))
    check_finite(strength, "heatmap")
    # the quantile is 0 if few pixels have relevance, and the maximum if none has
    return float(np.quantile(strength, quantile)) or float(strength.max()) or 1.0


def smoothed(heatmap: np.ndarray, smooth: float = SMOOTH) -> np.ndarray:
    """Blur heatmaps [..., H, W] by a Gaussian whose width is a share of the shorter side; sums are preserved."""
    from scipy.ndimage import gaussian_filter  # takes long, and only heatmaps need it

    if not 0 <= smooth < 1:
        raise ValueError(f"smooth must be a share of the shorter side, at least 0 and below 1; got {smooth!r}")
    width = smooth * min(heatmap.shape[-2:])
    return gaussian_filter(heatmap.astype(np.float64), width, axes=(-2, -1))


def draw_heatmap(axes: Axes, photo: np.ndarray, heatmap: np.ndarray, limit: float | None = None) -> AxesImage:
    """Draw a heatmap [H, W] over its photo [H, W, 3]; the photo shows where relevance is weak."""
    limit, opacity = _shown(photo, heatmap, limit)
    bare(axes).imshow(pale(photo))
    return axes.imshow(heatmap, cmap=DIVERGING, vmin=-limit, vmax=limit, alpha=opacity)


def blended(photo: np.ndarray, heatmap: np.ndarray) -> np.ndarray:
    """Compute the pixels [H, W, 3] of what :func:`draw_heatmap` draws."""
    limit, opacity = _shown(photo, heatmap, None)
    position = (heatmap + limit) / (2 * limit)  # as Normalize(-limit, limit), which takes longer than the blending
    color = _diverging()(position)[..., :3]
    opacity = opacity[..., None]
    return (1 - opacity) * pale(photo) + opacity * color


@cache
def _diverging() -> Colormap:
    """Return the colours of relevance; `colormaps` makes a new table at each access."""
    return colormaps[DIVERGING]


def _shown(photo: np.ndarray, heatmap: np.ndarray, limit: float | None) -> tuple[float, np.ndarray]:
    """Return the limit of the scale of a heatmap [H, W], and its opacity [H, W] over a photo."""
    if heatmap.shape != photo.shape[:2]:
        raise ValueError(f"heatmap of shape {list(heatmap.shape)} on a photo of {list(photo.shape[:2])} pixels")
    check_finite(heatmap, "heatmap")
    limit = float(limit or heatmap_limit(heatmap))
    strength = np.clip(np.abs(heatmap) / limit, 0, 1)
    return limit, 0.9 * np.sqrt(strength)


def draw_contour(axes: Axes, region: np.ndarray, shape: Sequence[int], color: ColorType) -> None:
    """Draw a rounded line around a region [h, w] of a photo of this shape; isolated locations are left out."""
    from scipy.ndimage import gaussian_filter  # takes long, and only heatmaps need it

    height, width = shape[:2]

    # Every location becomes FINE x FINE points, and one more point at each edge reaches over the photo's border.
    fine = np.kron(region.astype(float), np.ones((FINE, FINE)))
    fine = gaussian_filter(fine, 0.6 * FINE, mode="nearest")
    fine = np.pad(fine, 1, mode="edge")
    if not fine.min() < 0.5 < fine.max():
        return

    y = _centers(fine.shape[0], height)
    x = _centers(fine.shape[1], width)
    line = axes.contour(x, y, fine, [0.5], colors=[color], linewidths=1)
    line.set_path_effects([withStroke(linewidth=2, foreground="white")])
    axes.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5))


def _centers(n: int, side: int) -> np.ndarray:
    """Compute the coordinates of n points in pixels, of which the outermost ones lie outside of the photo."""
    return (np.arange(n) - 0.5) * side / (n - 2) - 0.5


def add_scale(figure: Figure, axes: AxesLike, labels: Sequence[str] | None = None, below: bool = False) -> None:
    """Draw the colour bar of heatmaps beside or below them."""
    layout: dict[str, Any] = {"aspect": 30}
    if below:
        layout = {"location": "bottom", "aspect": 40, "shrink": 0.4}
    bar = figure.colorbar(_scale(), ax=axes, pad=0.02, **layout)
    _label_scale(bar, labels)


def draw_scale(figure: Figure, axes: Axes) -> None:
    """Draw the colour bar of heatmaps into axes of its own."""
    bar = figure.colorbar(_scale(), cax=axes, orientation="horizontal")
    _label_scale(bar, None)


def _scale() -> ScalarMappable:
    return ScalarMappable(Normalize(-1, 1), _diverging())


def _label_scale(bar: Colorbar, labels: Sequence[str] | None) -> None:
    bar.set_ticks([-1, 0, 1], labels=labels or ["against", "0", "for"])
    bar.ax.tick_params(labelsize=8, length=2)
    bar.outline.set_visible(False)


def pale(photo: ArrayLike) -> np.ndarray:
    """Convert a photo, [3, H, W] or [H, W, 3] in 0..1, to the pale grey background of heatmaps, [H, W, 3]."""
    grey = as_image(photo) @ LUMINANCE
    background = 1 - PALE + PALE * grey
    return np.repeat(background[..., None], 3, axis=-1)


def bare(axes: Axes) -> Axes:
    """Remove ticks and frame of axes."""
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set(visible=False, in_layout=False)  # to measure them takes long
    return axes


def frame(axes: Axes, color: ColorType) -> None:
    """Draw a frame around axes."""
    axes.spines[:].set(visible=True, color=color, linewidth=1.5)


def as_image(image: ArrayLike) -> np.ndarray:
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
    white = 255 if array.dtype == np.uint8 else 1
    array = array.repeat(3 // array.shape[2], axis=2).astype(np.float64) / white
    if not (array.min() >= -1e-6 and array.max() <= 1 + 1e-6):
        raise ValueError(f"an image needs values in 0..1, got {array.min():.3g} to {array.max():.3g}")
    return array.clip(0, 1)
