"""Photos that show images of any number of bands, such as those of satellites and microscopes.

    1 band              grey
    2 bands             the first in red, the second in green and blue
    3 or 4 bands        the first three in red, green and blue
    more bands          the last, the middle and the first, as neighbours in a spectrum look alike

The values of images with other than one or three bands differ by band, so that every band is stretched: its
quantiles of 2% and 98% become 0 and 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

STRETCHED = (0.02, 0.98)
"""Quantiles of a band that are shown as 0 and 1."""
SAMPLED = 1_000_000
"""Pixels from which quantiles are computed; `torch.quantile` takes at most 16 million."""


def shown_bands(n_bands: int) -> tuple[int, int, int]:
    """Choose the bands that are shown as red, green and blue.

    Examples
    --------
    >>> from neonxc.plot.bands import shown_bands
    >>> [shown_bands(n) for n in (1, 2, 4, 12)]
    [(0, 0, 0), (0, 1, 1), (0, 1, 2), (11, 6, 0)]
    """
    if n_bands <= 2:
        return (0, n_bands - 1, n_bands - 1)
    if n_bands <= 4:
        return (0, 1, 2)
    return (n_bands - 1, n_bands // 2, 0)


def as_photos(features: object, x: Tensor, bands: Sequence[int] | None = None) -> Tensor:
    """Convert the inputs [N, C, H, W] of a feature network to photos [N, 3, H, W] with values from 0 to 1.

    Parameters
    ----------
    features : object
        Its method ``deprocess``, if it has one, undoes the normalisation of the inputs.
    x : Tensor [N, C, H, W]
    bands : sequence of three ints, optional
        The bands that are shown as red, green and blue.
    """
    images = x.float()
    n_bands = images.shape[1]
    chosen = shown_bands(n_bands) if bands is None else tuple(bands)
    if n_bands not in (1, 3):  # stretching undoes the normalisation of each band
        return _stretched(images[:, list(chosen)])
    if hasattr(features, "deprocess"):
        images = features.deprocess(images)
    photos = images[:, list(chosen)]
    low, high = photos.aminmax()
    if low >= 0 and high <= 1:
        return photos
    return (photos - low) / (high - low).clamp(min=1e-12)


def _stretched(photos: Tensor) -> Tensor:
    """Scale every band so that its small and large quantiles become 0 and 1."""
    import torch  # takes long, and other pictures do without it

    by_band = photos.transpose(0, 1).flatten(1)
    step = -(-by_band.shape[1] // SAMPLED)
    low, high = torch.quantile(by_band[:, ::step], torch.tensor(STRETCHED), dim=1)[..., None, None]
    return ((photos - low) / (high - low).clamp(min=1e-12)).clamp(0, 1)
