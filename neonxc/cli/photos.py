"""Photos in files, networks and what they need of photos, and the most typical places of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, inf
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from neonxc.common.arguments import installed_by, unused
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
    file = None if weights == "none" else weights
    try:
        if mode == "image":
            if layer is None:
                layer = WHOLE_IMAGES.get(backbone)
            return build(backbone, layer, weights=file, pool="avg", normalize=False).to(device)
        return build(backbone, layer, weights=file, normalize=True).to(device)
    except NoWeights as error:
        raise RuntimeError(
            f"{error.reason}. Give neonxc heatmap a file of weights (--weights FILE), or leave out --backbone: "
            "the default network needs no download"
        ) from error


def composite(name: str, features: FeatureExtractor) -> Composite:
    """Return a preset by name, with the network's range of pixel values if the preset has a rule for pixels."""
    preset = presets.PRESETS[name]
    if name in ("paper", "epsilon-gamma-box"):
        return preset(*features.pixel_range())
    return preset()


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
    # by their lower case, because file systems may ignore case
    names: dict[str, str] = {}
    for stem in stems:
        name = unused(stem, "-", lambda new: new.casefold() in names)
        names[name.casefold()] = name
    return list(names.values())


def fitted(photo: Tensor, features: FeatureExtractor) -> Tensor:
    """Crop and scale a photo [3, H, W] for a network with a fixed input size or with patches."""
    if features.size is None:
        patch_height, patch_width = _patch_size(features.net)
        return crop(photo, _multiple(photo.shape[1], patch_height), _multiple(photo.shape[2], patch_width))
    height, width = features.size
    scale = max(height / photo.shape[1], width / photo.shape[2])
    # at least the size of the network, which rounding may miss by a pixel
    scaled_height = max(height, round(photo.shape[1] * scale))
    scaled_width = max(width, round(photo.shape[2] * scale))
    scaled = F.interpolate(photo[None], (scaled_height, scaled_width), mode="bicubic", antialias=True)
    # bicubic interpolation leaves the range of the pixels
    return crop(scaled[0].clamp(0, 1), height, width)


def _patch_size(net: nn.Module) -> tuple[int, int]:
    """Return height and width of the patches of a network, by their name in timm; 1 without patches."""
    size = getattr(getattr(net, "patch_embed", None), "patch_size", 1)
    if isinstance(size, tuple | list):
        height, width = size
        return height, width
    return size, size


def _multiple(side: int, patch: int) -> int:
    """Return the largest multiple of a patch's side; a photo that is smaller stays, and the network refuses it."""
    return side // patch * patch or side


def crop(photo: Tensor, height: int, width: int, y: float = 0.5, x: float = 0.5) -> Tensor:
    """Crop a photo [3, H, W] around a location (fractions of the sides), shifted inwards at an edge."""
    top = _start(y, photo.shape[1], height)
    left = _start(x, photo.shape[2], width)
    return photo[:, top : top + height, left : left + width]


def _start(center: float, side: int, length: int) -> int:
    """Return the first pixel of a range of `length` pixels whose center is this fraction of the side."""
    # the center of pixel i is i + 0.5
    first = ceil(center * side - length / 2 - 0.5)
    return min(max(first, 0), side - length)


PATCH = 4
"""The side of a patch is this part of the photo's shorter side."""


class PhotoLocation(NamedTuple):
    """A location in a photo."""

    logit: float
    photo: int  # number of the photo
    y: float  # center, as fractions of the sides
    x: float


def typical_places(logits: Tensor, photo: int, n_max: int) -> list[list[PhotoLocation]]:
    """Return the locations of a photo with the largest logits [K, h, w], for each cluster.

    The next one is outside of a square around each of those before it, so that their patches differ.
    """
    _, height, width = logits.shape
    distance = max(1, min(height, width) // PATCH)
    cluster = logits.argmax(dim=0)
    locations: list[list[PhotoLocation]] = [[] for _ in logits]
    for k, of_cluster in enumerate(locations):
        candidates = logits[k].where(cluster == k, -inf)
        while len(of_cluster) < n_max:
            logit = float(candidates.max())
            if logit == -inf:
                break
            i, j = divmod(int(candidates.argmax()), width)
            of_cluster.append(PhotoLocation(logit, photo, (i + 0.5) / height, (j + 0.5) / width))
            top = max(0, i - distance + 1)
            left = max(0, j - distance + 1)
            candidates[top : i + distance, left : j + distance] = -inf
    return locations


def patch(photo: Tensor, location: PhotoLocation) -> Tensor:
    """Crop the square around a location of a photo [3, H, W]; at an edge, the square is shifted inwards."""
    side = max(1, min(photo.shape[1:]) // PATCH)
    return crop(photo, side, side, location.y, location.x)
