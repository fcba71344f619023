"""Images with segmentation masks: collages of photos and textures, Pascal VOC, and a spiral."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from skimage import data
from sklearn.datasets import load_sample_image
from torch import Tensor
from torchvision.datasets import VOCSegmentation

from neonxc.models import to_tensor

BUNDLED = (  # photos and textures that scikit-image contains without a download
    *("astronaut", "chelsea", "coffee", "rocket", "retina", "hubble_deep_field", "immunohistochemistry"),
    *("brick", "grass", "gravel"),
)
BEND = 0.12  # amplitude of the curved borders, as a share of the side
LEAST = 0.1  # minimum share of the collage that each region covers
VOID = 255  # VOC's label of object borders and of objects that are too difficult


@dataclass(frozen=True)
class Scene:
    """A photo [3, H, W] in 0..1, and the segment number [H, W] of each pixel, -1 for none."""

    name: str
    photo: Tensor
    segments: Tensor

    @property
    def masks(self) -> Tensor:
        """Return one mask [H, W] per segment."""
        numbers = self.segments.unique()
        return self.segments == numbers[numbers >= 0][:, None, None]


def collage(seed: tuple[int, ...], size: int = 224, regions: int = 4) -> Scene:
    """Make a collage: random regions with curved borders, each filled with a part of a different photo or
    texture."""
    generator = np.random.default_rng(seed)
    chosen = generator.choice(len(sources()), regions, replace=False)
    parts = [_part(generator, list(sources().values())[i], size) for i in chosen]
    segments = _regions(generator, size, regions)
    photo = torch.stack(parts).gather(0, segments.expand(1, 3, size, size))[0]
    return Scene(" + ".join(list(sources())[i] for i in chosen), photo, segments)


@cache
def sources() -> dict[str, np.ndarray]:
    """Load the photos and textures for collages, [H, W, 3] in 0..255."""
    found = {name: getattr(data, name)() for name in BUNDLED}
    found |= {name: load_sample_image(f"{name}.jpg") for name in ("china", "flower")}
    return {name: np.stack([image] * 3, axis=-1) if image.ndim == 2 else image for name, image in found.items()}


def _part(generator: np.random.Generator, image: np.ndarray, size: int) -> Tensor:
    """Crop a random square that covers most of the image's shorter side."""
    whole = to_tensor(image, round(size * generator.uniform(1, 1.5)))
    top, left = (generator.integers(0, length - size + 1) for length in whole.shape[1:])
    return whole[:, top : top + size, left : left + size]


def _regions(generator: np.random.Generator, size: int, count: int) -> Tensor:
    """Return the index [size, size] of the nearest of some random points, after a smooth random distortion."""
    line = torch.linspace(0, 1, size)
    grid = torch.stack(torch.meshgrid(line, line, indexing="ij"))
    while True:
        knots = torch.from_numpy(generator.normal(size=(1, 2, 5, 5))).float()
        bent = grid + BEND * F.interpolate(knots, (size, size), mode="bicubic", align_corners=True)[0]
        points = torch.from_numpy(generator.random((count, 2, 1, 1))).float()
        segments = (bent - points).square().sum(1).argmin(0)
        if torch.bincount(segments.flatten(), minlength=count).min() >= LEAST * size**2:
            return segments


class VOCObjects(VOCSegmentation):
    """Pascal VOC with the masks of single objects, as in the paper, instead of those of classes."""

    _TARGET_DIR = "SegmentationObject"


def voc(folder: Path, download: bool, year: str = "2007", size: int = 224, seed: int = 0) -> Iterator[Scene]:
    """Yield scenes of VOC's trainval split in random order; the background is a segment, borders belong to
    none."""
    dataset = VOCObjects(folder, year=year, image_set="trainval", download=download)
    for i in np.random.default_rng(seed).permutation(len(dataset)):
        image, target = dataset[int(i)]
        photo = to_tensor(np.asarray(image), size)
        numbers = torch.from_numpy(np.array(target, dtype=np.int64))[None, None].float()
        segments = F.interpolate(numbers, photo.shape[1:], mode="nearest")[0, 0].long()
        yield Scene(Path(dataset.images[i]).stem, photo, segments.masked_fill(segments == VOID, -1))


def spiral(size: int = 448, turns: float = 3.5) -> Tensor:
    """Make a black and white spiral [3, size, size], with edges of every angle and a curvature that grows
    inwards."""
    line = torch.linspace(-1, 1, size)
    y, x = torch.meshgrid(line, line, indexing="ij")
    phase = turns * torch.hypot(x, y) - torch.atan2(y, x) / (2 * math.pi)  # the integer part counts the arms
    distance = (2 * (phase % 1) - 1).abs() - 0.5  # distance from the border between black and white, in arms
    grey = (0.5 - distance * size / (2 * turns)).clamp(0, 1)  # the edge is one pixel wide, so that it is smooth
    return grey.expand(3, size, size).clone()
