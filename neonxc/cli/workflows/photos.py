"""Photos in files, prepared for a network when they are needed, and the most typical places of a cluster."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import Dataset

from neonxc.common.arguments import unused

if TYPE_CHECKING:
    from neonxc.models import FeatureExtractor


class PhotoFiles(Dataset[tuple[str, Tensor]]):
    """Photos in files.

    Parameters
    ----------
    paths : sequence of Path
    size : int
        Length of the shorter side in pixels, unless the network has a fixed size.
    features : FeatureExtractor
        The network decides how photos are cropped.
    square : bool
        Whether to crop the central square, so that photos of all shapes form a batch.
    """

    def __init__(self, paths: Sequence[Path], size: int, features: FeatureExtractor, square: bool = False) -> None:
        self.paths, self.features, self.square = list(paths), features, square
        self.size = size if features.size is None else max(features.size)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, i: int) -> tuple[str, Tensor]:
        from neonxc.models import load_image  # depends on this package

        photo = load_image(self.paths[i], self.size)
        if self.square:
            photo = crop(photo, min(photo.shape[1:]), min(photo.shape[1:]))
        return self.paths[i].stem, fitted(photo, self.features)


Named = PhotoFiles | list[tuple[str, Tensor]]
"""Names and images [3, H, W] in 0..1."""


def names_of(photos: Named) -> list[str]:
    """Return distinct file names for photos: equal names are numbered."""
    stems = (
        [path.stem for path in photos.paths] if isinstance(photos, PhotoFiles) else [name for name, _ in photos]
    )
    taken: dict[str, str] = {}  # compared in lower case, because file systems may ignore case
    for name in stems:
        free = unused(name, "-", lambda new: new.casefold() in taken)
        taken[free.casefold()] = free
    return list(taken.values())


def fitted(photo: Tensor, features: FeatureExtractor) -> Tensor:
    """Crop and scale a photo [3, H, W] for a network with a fixed input size or with patches."""
    if features.size is None:
        patch: Any = getattr(getattr(features.net, "patch_embed", None), "patch_size", 1)  # networks of timm
        patches = patch if isinstance(patch, tuple | list) else (patch, patch)
        # Nothing would be left of a photo smaller than a patch; the network raises an error for it.
        height, width = (side // p * p or side for side, p in zip(photo.shape[1:], patches, strict=True))
    else:
        height, width = features.size
        scale = max(height / photo.shape[1], width / photo.shape[2])
        size = (max(height, round(photo.shape[1] * scale)), max(width, round(photo.shape[2] * scale)))
        photo = F.interpolate(photo[None], size, mode="bicubic", antialias=True)[0].clamp(0, 1)
    return crop(photo, height, width)


def crop(photo: Tensor, height: int, width: int, y: float = 0.5, x: float = 0.5) -> Tensor:
    """Crop a photo [3, H, W] around a place (shares of the sides); at an edge, the crop is shifted inwards."""
    top, left = (
        min(max(math.ceil(share * side - length / 2 - 0.5), 0), side - length)
        for share, side, length in ((y, photo.shape[1], height), (x, photo.shape[2], width))
    )
    return photo[:, top : top + height, left : left + width]


SHARE = 4
"""The side of a patch is this part of the photo's shorter side."""


@dataclass(frozen=True)
class Place:
    """A place in a photo: the photo's number, and the centre of the place as shares of the sides."""

    logit: float
    photo: int
    y: float
    x: float


def typical_places(logits: Tensor, photo: int, most: int) -> list[list[Place]]:
    """Return the separate places of a photo with the largest logits [K, h, w], for each cluster."""
    height, width = logits.shape[1:]
    apart = max(1, min(height, width) // SHARE)
    own = logits.argmax(dim=0)
    found: list[list[Place]] = []
    for k, logit in enumerate(logits):
        left = logit.where(own == k, -float("inf"))
        places: list[Place] = []
        while len(places) < most and left.max() > -float("inf"):
            i, j = divmod(int(left.argmax()), width)
            places.append(Place(float(logit[i, j]), photo, (i + 0.5) / height, (j + 0.5) / width))
            left[max(0, i - apart + 1) : i + apart, max(0, j - apart + 1) : j + apart] = -float("inf")
        found.append(places)
    return found


def patch(photo: Tensor, place: Place) -> Tensor:
    """Crop the square around a place of a photo [3, H, W]; at an edge, the square is shifted inwards."""
    side = max(1, min(photo.shape[1:]) // SHARE)
    return crop(photo, side, side, place.y, place.x)
