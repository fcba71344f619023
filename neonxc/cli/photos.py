"""Photos in files, networks and what they need of photos, and the most typical places of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from neonxc.common.arguments import unused
from neonxc.common.extras import installed_by
from neonxc.lrp import Composite, presets

if TYPE_CHECKING:
    from neonxc.models import FeatureExtractor

# Layers for whole photos, if the default layer, chosen for locations, is too early in the network
WHOLE_IMAGES = {"efficientnet_lite0": "blocks.15"}


def demo_photo() -> Tensor:
    """Load the photo of the demo, [3, 320, W] in 0..1."""
    try:
        from skimage import data
    except ImportError:
        raise ImportError(f"the demo needs its photo: {installed_by('demo')}") from None
    from neonxc.models import to_tensor  # depends on this package

    return to_tensor(data.chelsea(), 320)


def extractor(
    backbone: str = "efficientnet_lite0",
    layer: str | None = None,
    weights: str = "default",
    device: str = "cpu",
    mode: str = "spatial",
) -> FeatureExtractor:
    """Make a feature extractor: unit-norm locations for spatial clusters, pooled features for whole photos."""
    from neonxc.models import backbone as build  # depends on this package
    from neonxc.models.backbones.network import NoWeights

    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device {device!r} can't be used: {str(error).splitlines()[0]}") from None
    whole = mode == "image"
    if layer is None and whole:
        layer = WHOLE_IMAGES.get(backbone)
    known = None if weights == "none" else weights
    try:
        return build(backbone, layer, weights=known, pool="avg" if whole else None, normalize=not whole).to(device)
    except NoWeights as error:
        raise RuntimeError(
            f"{error.reason}. Give neonxc heatmap a file of weights (--weights FILE), or leave out --backbone: "
            "the default network needs no download"
        ) from error


def composite(name: str, features: FeatureExtractor) -> Composite:
    """Return a preset by name, with the network's range of pixel values if the preset has a rule for pixels."""
    boxed = name in ("paper", "epsilon-gamma-box")
    return presets.PRESETS[name](*(features.pixel_range() if boxed else ()))


def preprocessed(photo: Tensor, features: FeatureExtractor) -> Tensor:
    """Return a photo [3, H, W] as input [1, 3, H, W] of the network, on its device."""
    return features.preprocess(photo[None]).to(next(features.parameters()).device)


class PhotoFiles:
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
        self.paths = list(paths)
        self.features = features
        self.square = square
        self.size = size if features.size is None else max(features.size)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, i: int) -> tuple[str, Tensor]:
        from neonxc.models import load_image  # depends on this package

        photo = load_image(self.paths[i], self.size)
        if self.square:
            side = min(photo.shape[1:])
            photo = crop(photo, side, side)
        return self.paths[i].stem, fitted(photo, self.features)


Named = PhotoFiles | list[tuple[str, Tensor]]
"""Names and images [3, H, W] in 0..1."""


def names_of(photos: Named) -> list[str]:
    """Return distinct file names for photos: equal names are numbered."""
    if isinstance(photos, PhotoFiles):
        stems = [path.stem for path in photos.paths]
    else:
        stems = [name for name, _ in photos]
    names: dict[str, str] = {}  # compared in lower case, because file systems may ignore case
    for stem in stems:
        name = unused(stem, "-", lambda new: new.casefold() in names)
        names[name.casefold()] = name
    return list(names.values())


def fitted(photo: Tensor, features: FeatureExtractor) -> Tensor:
    """Crop and scale a photo [3, H, W] for a network with a fixed input size or with patches."""
    sides = photo.shape[1:]
    if features.size is None:
        patch: Any = getattr(getattr(features.net, "patch_embed", None), "patch_size", 1)  # networks of timm
        patches = patch if isinstance(patch, tuple | list) else (patch, patch)
        # Nothing would be left of a photo smaller than a patch; the network raises an error for it.
        return crop(photo, *(side // p * p or side for side, p in zip(sides, patches, strict=True)))
    height, width = features.size
    scale = max(height / sides[0], width / sides[1])
    size = max(height, round(sides[0] * scale)), max(width, round(sides[1] * scale))
    photo = F.interpolate(photo[None], size, mode="bicubic", antialias=True)[0].clamp(0, 1)
    return crop(photo, height, width)


def crop(photo: Tensor, height: int, width: int, y: float = 0.5, x: float = 0.5) -> Tensor:
    """Crop a photo [3, H, W] around a place (shares of the sides); at an edge, the crop is shifted inwards."""
    top, left = (
        min(max(ceil(share * side - length / 2 - 0.5), 0), side - length)
        for share, side, length in ((y, photo.shape[1], height), (x, photo.shape[2], width))
    )
    return photo[:, top : top + height, left : left + width]


SHARE = 4
"""The side of a patch is this part of the photo's shorter side."""


class PhotoLocation(NamedTuple):
    """A place in a photo: the photo's number, and the centre of the place as shares of the sides."""

    logit: float
    photo: int
    y: float
    x: float


def typical_places(logits: Tensor, photo: int, most: int) -> list[list[PhotoLocation]]:
    """Return the separate places of a photo with the largest logits [K, h, w], for each cluster."""
    height, width = logits.shape[1:]
    apart = max(1, min(height, width) // SHARE)
    cluster = logits.argmax(dim=0)
    places: list[list[PhotoLocation]] = [[] for _ in logits]
    for k, places_of_cluster in enumerate(places):
        candidates = logits[k].where(cluster == k, -inf)
        while len(places_of_cluster) < most and (logit := float(candidates.max())) > -inf:
            i, j = divmod(int(candidates.argmax()), width)
            places_of_cluster.append(PhotoLocation(logit, photo, (i + 0.5) / height, (j + 0.5) / width))
            candidates[max(0, i - apart + 1) : i + apart, max(0, j - apart + 1) : j + apart] = -inf
    return places


def patch(photo: Tensor, place: PhotoLocation) -> Tensor:
    """Crop the square around a place of a photo [3, H, W]; at an edge, the square is shifted inwards."""
    side = max(1, min(photo.shape[1:]) // SHARE)
    return crop(photo, side, side, place.y, place.x)
