"""Random views of images: what must not change the cluster."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["RandomWarp"]

KNOTS = 4  # per side of the elastic deformation's grid


@dataclass(frozen=True)
class RandomWarp:
    """Rotate, scale, shear, shift, bend and flip each image of a batch, change its contrast, hide a part of it.

    All images of a batch at once, on their device, each in its own way; geometry in one bilinear sampling.
    Random numbers come from torch's global generators. Amounts are drawn uniformly (scales: their logarithms).

    Parameters
    ----------
    rotation, shear : float, default=15
        At most so many degrees, either way.
    scale : float, default=0.25
        Height and width change by a factor of at most ``1 + scale``, either way; half of that, in logarithms, is
        common to both and half their own.
    translation : float, default=0.1
        At most this share of the image's sides.
    elastic : float, default=0.03
        Standard deviation of a smooth displacement, as a share of the sides.
    flip : bool, default=False
        Mirror every second image, left to right: not for digits.
    contrast : float, default=0.2
        Each channel's distance from its mean changes by at most this share; channels differently, which for
        colour images changes the colours.
    erase : float, default=0
        Side of a square that is set to the image's mean, as a share of the image's sides.
    padding : {"border", "zeros", "reflection"}, default="border"
        What lies outside the image.

    Examples
    --------
    >>> import torch
    >>> from neonxc.models.scan import RandomWarp
    >>> RandomWarp(rotation=20, flip=True)(torch.rand(5, 3, 32, 32)).shape
    torch.Size([5, 3, 32, 32])
    """

    rotation: float = 15.0
    shear: float = 15.0
    scale: float = 0.25
    translation: float = 0.1
    elastic: float = 0.03
    flip: bool = False
    contrast: float = 0.2
    erase: float = 0.0
    padding: Literal["border", "zeros", "reflection"] = "border"

    def __call__(self, images: Tensor) -> Tensor:
        """Views [N, C, H, W] of images [N, C, H, W], in their dtype and on their device."""
        grid = F.affine_grid(self._affine(images), list(images.shape), align_corners=False)
        if self.elastic:
            knots = torch.randn(len(images), 2, KNOTS, KNOTS, dtype=images.dtype, device=images.device)
            # coordinates run from -1 to 1: a side is 2
            bend = F.interpolate(2 * self.elastic * knots, images.shape[2:], mode="bicubic", align_corners=True)
            grid = grid + bend.movedim(1, -1)
        views = F.grid_sample(images, grid, padding_mode=self.padding, align_corners=False)
        if self.contrast:
            mean = views.mean((2, 3), keepdim=True)
            views = mean + (views - mean) * (1 + self.contrast * _uniform(images, *images.shape[:2], 1, 1))
        return self._erased(views) if self.erase else views

    def _affine(self, images: Tensor) -> Tensor:
        """Matrices [N, 2, 3] from a view's coordinates to the image's."""
        n, (height, width) = len(images), images.shape[2:]
        degree = math.pi / 180
        angle, shear = self.rotation * degree * _uniform(images, n), self.shear * degree * _uniform(images, n)
        common, own = _uniform(images, n, 1), _uniform(images, n, 2)
        scale = torch.exp(math.log1p(self.scale) * (common + own) / 2)
        if self.flip:
            mirror = torch.where(torch.rand(n, device=images.device) < 0.5, -1.0, 1.0).to(scale.dtype)
            scale = scale * torch.stack([mirror, torch.ones_like(mirror)], 1)
        cos, sin = angle.cos(), angle.sin()
        slant = shear.tan()
        matrix = torch.stack([cos, cos * slant - sin, sin, sin * slant + cos], 1).view(n, 2, 2) * scale[:, None]
        sides = images.new_tensor([width, height])  # a circle stays round where the image is no square
        matrix = matrix * sides / sides[:, None]
        return torch.cat([matrix, 2 * self.translation * _uniform(images, n, 2, 1)], 2)

    def _erased(self, views: Tensor) -> Tensor:
        n, (height, width) = len(views), views.shape[2:]

        def strip(length: int) -> Tensor:
            side = self.erase * length
            start = torch.rand(n, 1, device=views.device) * (length - side)
            place = torch.arange(length, device=views.device) + 0.5
            return (place >= start) & (place < start + side)

        hidden = strip(height)[:, None, :, None] & strip(width)[:, None, None, :]
        return torch.where(hidden, views.mean((2, 3), keepdim=True), views)


def _uniform(like: Tensor, *shape: int) -> Tensor:
    """Between -1 and 1."""
    return 2 * torch.rand(*shape, dtype=like.dtype, device=like.device) - 1
