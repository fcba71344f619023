"""Random augmentation of images, which should not change their cluster.

The output at a position p, in coordinates from -1 to 1 of both sides, is the input at A p + t + e(p), with

    A = R(angle) [[1, tan(shear)], [0, 1]] diag(scale)      rotation, shear, scales of width and height, and flips
    t                                                       shift
    e                                                       smooth displacement, interpolated from KNOTS^2 points

Then the contrast of every channel is changed, and a rectangle is set to the mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

KNOTS = 4  # grid points per side of the elastic deformation


@dataclass(frozen=True)
class RandomWarp:
    """Randomly rotate, scale, shear, shift, deform and flip images, change their contrast, and erase a part.

    Each image of a batch is transformed differently, all of them at once on their device by a single bilinear
    sampling. (The transforms of torchvision draw one set of parameters per batch, and are much slower if applied
    image by image.) Parameters are drawn uniformly, scales on a logarithmic scale, from torch's global generators.

    Parameters
    ----------
    rotation, shear : float, default=15
        Maximum angle in degrees, in both directions.
    scale : float, default=0.25
        Height and width are multiplied or divided by a factor of at most ``1 + scale``. On a logarithmic scale,
        half of the change is common to both.
    translation : float, default=0.1
        Maximum shift, as a fraction of the image's height and width.
    elastic : float, default=0.03
        Standard deviation of a smooth displacement, as a fraction of height and width.
    flip : bool, default=False
        Whether to mirror images horizontally with probability 1/2. Digits should not be mirrored.
    contrast : float, default=0.2
        Maximum relative change of the contrast. Channels are changed independently, which changes the colors.
    erase : float, default=0
        Side of a rectangle of the image that is set to the mean, as a fraction of the image's height and width.
    padding : {"border", "zeros", "reflection"}, default="border"
        Values outside the image.

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
        """Return augmented views [N, C, H, W] of images [N, C, H, W], with their dtype and device."""
        n, channels, *sides = images.shape

        def uniform(*shape: int) -> Tensor:
            return images.new_empty(n, *shape).uniform_(-1, 1)

        angle = math.radians(self.rotation) * uniform()
        shear = math.radians(self.shear) * uniform()
        # half of the logarithm is common to width and height
        scale = torch.exp(math.log1p(self.scale) * (uniform(1) + uniform(2)) / 2)
        if self.flip:
            scale[:, 0] = scale[:, 0].copysign(uniform())
        cos = angle.cos()
        sin = angle.sin()
        slant = shear.tan()
        matrix = torch.stack([cos, cos * slant - sin, sin, sin * slant + cos], 1).view(n, 2, 2)
        matrix = matrix * scale[:, None]
        lengths = images.new_tensor(sides[::-1])  # so that rotations are not distorted in oblong images
        matrix = matrix * lengths / lengths[:, None]

        # Coordinates run from -1 to 1, so a side has length 2
        shift = 2 * self.translation * uniform(2, 1)
        grid = F.affine_grid(torch.cat([matrix, shift], 2), list(images.shape), align_corners=False)
        if self.elastic:
            knots = 2 * self.elastic * images.new_empty(n, 2, KNOTS, KNOTS).normal_()
            displacement = F.interpolate(knots, sides, mode="bicubic", align_corners=True)
            grid = grid + displacement.movedim(1, -1)
        views = F.grid_sample(images, grid, padding_mode=self.padding, align_corners=False)

        mean = views.mean((2, 3), keepdim=True)
        views = mean + (views - mean) * (1 + self.contrast * uniform(channels, 1, 1))
        if self.erase:
            center = (1 - self.erase) * uniform(1, 1, 2)
            is_erased = ((grid - center).abs() < self.erase).all(-1)  # [N, H, W]
            views = torch.where(is_erased[:, None], mean, views)
        return views
