"""Photos by their names, each read when it is needed, as a network takes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import torch.nn.functional as F
from torch import Tensor

from neonxc.fingerprint import hash_of

if TYPE_CHECKING:
    from neonxc.models import FeatureExtractor

Named = Sequence[tuple[str, Tensor]]
"""Names and images [3, H, W] in 0..1."""


class PhotoFiles(Sequence[tuple[str, Tensor]]):
    """Photos in files.

    Parameters
    ----------
    paths : sequence of Path
    size : int
        Shorter side in pixels.
    features : FeatureExtractor
        Whose network decides how they are cut.
    """

    def __init__(self, paths: Sequence[Path], size: int, features: FeatureExtractor) -> None:
        self.paths, self.size, self.features = list(paths), size, features

    def __len__(self) -> int:
        return len(self.paths)

    @overload
    def __getitem__(self, i: int) -> tuple[str, Tensor]: ...
    @overload
    def __getitem__(self, i: slice) -> list[tuple[str, Tensor]]: ...
    def __getitem__(self, i: int | slice) -> Any:
        from neonxc.models import load_image

        if isinstance(i, slice):
            return [self[j] for j in range(len(self))[i]]
        return self.paths[i].stem, fitted(load_image(self.paths[i], self.size), self.features)


def state_of(photos: Named) -> str:
    """A hash that is another one when the photos are; files count by their names, lengths and times."""
    if not isinstance(photos, PhotoFiles):
        return hash_of([name for name, _ in photos], {str(i): photo for i, (_, photo) in enumerate(photos)})
    stats = [(str(path), path.stat()) for path in photos.paths]
    return hash_of([photos.size, [[path, stat.st_size, stat.st_mtime_ns] for path, stat in stats]], {})


def names_of(photos: Named) -> list[str]:
    """Names that can serve as file names: equal ones are numbered."""
    stems = (
        [path.stem for path in photos.paths] if isinstance(photos, PhotoFiles) else [name for name, _ in photos]
    )
    return _distinct(stems)


def _distinct(names: Iterable[str]) -> list[str]:
    taken: dict[str, str] = {}  # by the name as a file system may see it, in lower case
    for name in names:
        candidates = chain([name], (f"{name}-{i}" for i in count(2)))
        free = next(candidate for candidate in candidates if candidate.casefold() not in taken)
        taken[free.casefold()] = free
    return list(taken.values())


def fitted(photo: Tensor, features: FeatureExtractor) -> Tensor:
    """Cut and scale a photo [3, H, W] for a network that takes one size alone, or whole patches."""
    if features.size is None:
        patch: Any = getattr(getattr(features.net, "patch_embed", None), "patch_size", 1)  # of timm's networks
        patches = patch if isinstance(patch, tuple | list) else (patch, patch)
        # Nothing would be left of a photo smaller than a patch; the network then raises its own error.
        height, width = (side // p * p or side for side, p in zip(photo.shape[1:], patches, strict=True))
    else:
        height, width = features.size
        scale = max(height / photo.shape[1], width / photo.shape[2])
        size = (max(height, round(photo.shape[1] * scale)), max(width, round(photo.shape[2] * scale)))
        photo = F.interpolate(photo[None], size, mode="bicubic", antialias=True)[0].clamp(0, 1)
    top, left = (photo.shape[1] - height) // 2, (photo.shape[2] - width) // 2
    return photo[:, top : top + height, left : left + width]
