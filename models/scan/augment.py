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

    Each image is changed in its own way, all of a batch at once on their device, by one bilinear sampling
    (transforms of torchvision draw one set of parameters per batch, and take many times as long image by image).
    Amounts are drawn uniformly (scales: their logarithms) from torch's global generators.

    Parameters
    ----------
    rotation, shear : float, default=15
        The greatest angle in degrees, either way.
    scale : float, default=0.25
        Height and width change by a factor of at most ``1 + scale``, either way. Half of the change, in
        logarithms, is common to both.
    translation : float, default=0.1
        The greatest shift, as a share of the image's sides.
    elastic : float, default=0.03
        Standard deviation of a smooth displacement, as a share of the sides.
    flip : bool, default=False
        Mirror every second image, left to right. Digits should not be mirrored.
    contrast : float, default=0.2
        The distance of each channel from its mean changes by at most this share. Channels change differently,
        which changes the colours of colour images.
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
        mean = views.mean((2, 3), keepdim=True)
        views = mean + (views - mean) * (1 + self.contrast * _uniform(images, *images.shape[:2], 1, 1))
        return torch.where(self._hidden(images), mean, views) if self.erase else views

    def _affine(self, images: Tensor) -> Tensor:
        """Matrices [N, 2, 3] from a view's coordinates to the image's."""
        n = len(images)
        angle, shear = (math.radians(most) * _uniform(images, n) for most in (self.rotation, self.shear))
        scale = torch.exp(math.log1p(self.scale) * (_uniform(images, n, 1) + _uniform(images, n, 2)) / 2)
        if self.flip:
            scale[:, 0] = scale[:, 0].copysign(_uniform(images, n))
        cos, sin, slant = angle.cos(), angle.sin(), shear.tan()
        matrix = torch.stack([cos, cos * slant - sin, sin, sin * slant + cos], 1).view(n, 2, 2) * scale[:, None]
        sides = images.new_tensor(images.shape[:1:-1])  # a circle stays round where the image is no square
        matrix = matrix * sides / sides[:, None]
        return torch.cat([matrix, 2 * self.translation * _uniform(images, n, 2, 1)], 2)

    def _hidden(self, images: Tensor) -> Tensor:
        """Where the square lies, [N, 1, H, W]."""
        masks = []
        for side in images.shape[2:]:
            start = torch.rand(len(images), 1, device=images.device) * (1 - self.erase) * side
            place = torch.arange(side, device=images.device) + 0.5 - start
            masks.append((place >= 0) & (place < self.erase * side))
        return masks[0][:, None, :, None] & masks[1][:, None, None, :]


def _uniform(like: Tensor, *shape: int) -> Tensor:
    """Between -1 and 1."""
    return 2 * torch.rand(*shape, dtype=like.dtype, device=like.device) - 1
