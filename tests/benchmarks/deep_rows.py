"""Clusterings of the deeper features of networks, explained by channels, locations, patches of pixels or words.

The networks are EfficientNet-Lite0 (pretrained) at four cuts, small VGGs with and without labels (SCAN) and two
sentence encoders. Half of the rows are for choosing settings; the other half are other cuts, data and encoders.
"""

from __future__ import annotations

import copy
import gzip
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from skimage import data
from sklearn.cluster import KMeans
from sklearn.datasets import load_sample_images
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

import neonxc
from neonxc import NeuralizedClustering
from neonxc.inputs.groups import groups_of
from neonxc.models import EfficientNetLite0, SentenceEncoder

SIDE = 64
CLUSTERS = 10, 50, 200
CUTS = {"choose": ((2, 8), (5, 12)), "report": ((3, 9), (6, 14))}  # last block before the inputs, of the features
UNITS: dict[str, str | int] = {"channels": "channels", "locations": "pixels", "patches": 8}
IMAGES = {"choose": "MNIST", "report": "Fashion-MNIST"}
ENCODERS = {"choose": "bert", "report": "t5"}


@dataclass(frozen=True)
class Row:
    """A clustering of features, inputs that are explained, and what identifies it."""

    net: NeuralizedClustering
    x: Tensor
    """Activations or pixels [N, C, h, w], or words [N, W]."""
    groups: str | int | None
    """What is missing together, as for pixel-flipping."""
    half: str
    names: dict[str, object]

    @property
    def in_words(self) -> bool:
        return self.x.ndim == 2

    @property
    def units(self) -> int:
        """The number of units of an input; of words on average."""
        if self.in_words:
            return round(float((self.x >= 0).sum(1).float().mean()))
        return int(groups_of(self.net, self.groups, self.x).max()) + 1


@dataclass(frozen=True)
class Folders:
    """Folders of Fashion-MNIST's files, of apt's lists, and of trained networks; missing ones are trained."""

    fashion: Path
    packages: Path
    networks: Path


def rows(folders: Folders, explained: int, half: str) -> Iterator[Row]:
    """Cluster the features of all inputs but the last ones, which are explained."""
    yield from _pretrained(folders, explained, half)
    yield from _small(folders, explained, half)
    yield from _texts(folders, explained, half)


def patches(count: int) -> Tensor:
    """Draw random patches [N, 3, SIDE, SIDE] of six photos, in 0..1."""
    photos = [getattr(data, name)() for name in ("chelsea", "coffee", "astronaut", "rocket")]
    photos += load_sample_images().images
    generator = np.random.default_rng(0)
    found = np.empty((count, SIDE, SIDE, 3), np.uint8)
    for i in range(count):
        photo = photos[i % len(photos)]
        top, left = (int(generator.integers(length - SIDE)) for length in photo.shape[:2])
        found[i] = photo[top : top + SIDE, left : left + SIDE]
    return torch.from_numpy(found).permute(0, 3, 1, 2).float() / 255


def garments(folder: Path, count: int) -> Tensor:
    """Load images [N, 3, SIDE, SIDE] of Fashion-MNIST, in 0..1."""
    with gzip.open(folder / "train-images-idx3-ubyte.gz") as file:
        pixels = np.frombuffer(file.read(16 + count * 28 * 28), np.uint8, offset=16).reshape(-1, 1, 28, 28)
    images = F.interpolate(torch.from_numpy(pixels.copy()).float() / 255, size=(SIDE, SIDE), mode="bilinear")
    return images.expand(-1, 3, -1, -1)


def folded(module: nn.Module) -> nn.Module:
    """Fold BatchNorm into convolutions, because the network is needed a million times."""
    module = copy.deepcopy(module)
    for part in module.modules():
        if isinstance(getattr(part, "bn", None), nn.BatchNorm2d):
            part.conv = fuse_conv_bn_eval(part.conv, part.bn)
            part.bn = nn.Identity()
    return module


def _pretrained(folders: Folders, explained: int, half: str) -> Iterator[Row]:
    network = EfficientNetLite0.pretrained()
    count = 1600 + explained
    pictures = {"photos": patches(count), "garments": garments(folders.fashion, count)}
    for first, last in CUTS[half]:
        front = folded(nn.Sequential(network.stem, network.blocks[: first + 1]))
        rest = folded(nn.Sequential(network.blocks[first + 1 : last + 1], nn.AdaptiveAvgPool2d(1), nn.Flatten()))
        for name, images in pictures.items():
            pixels = (images - 127 / 255) / (128 / 255)
            x = in_parts(front, pixels)
            names = {"network": "EfficientNet-Lite0", "layers": f"{first} to {last}", "inputs": name}
            yield from clustered(rest, x, "channels", explained, half, names)
            if name == "photos":  # places are many, and take longer than channels
                yield from clustered(rest, x, "locations", explained // 2, half, names, CLUSTERS[:2])
                whole = nn.Sequential(front, rest)
                names = names | {"layers": f"pixels to {last}"}
                yield from clustered(whole, pixels, "patches", explained // 2, half, names, CLUSTERS[:2])


def small_networks(
    name: str, fashion: Path, folder: Path, kinds: int = 2
) -> tuple[Tensor, list[tuple[str, nn.Sequential, float]]]:
    """Return 3,000 images, then unseen ones, and small VGGs, trained with labels and (2 kinds) without."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "papers"))
    from flipping_deep import Size, images_of, networks

    size = Size(train=6000, scan_images=4000, epochs=3)
    images = [images_of(name, fashion, part)[0] for part in ("train", "test")]
    return torch.cat([images[0][:3000], images[1]]), list(islice(networks(name, fashion, folder, size, 0), kinds))


def _small(folders: Folders, explained: int, half: str) -> Iterator[Row]:
    name = IMAGES[half]
    images, found = small_networks(name, folders.fashion, folders.networks)
    images = images[: 3000 + explained]
    for kind, net, _ in found:
        front = net.features[:2]
        rest = nn.Sequential(net.features[2], net.pool, net.flatten)
        names = {"network": f"VGG, {kind}", "layers": "2 to 3", "inputs": name}
        yield from clustered(rest, in_parts(front, images), "channels", explained, half, names)


@torch.no_grad()
def in_parts(module: nn.Module, x: Tensor) -> Tensor:
    return torch.cat([module(part) for part in x.split(250)])


def clustered(
    rest: nn.Module,
    x: Tensor,
    units: str,
    explained: int,
    half: str,
    names: dict[str, object],
    clusters: Sequence[int] = CLUSTERS,
) -> Iterator[Row]:
    features = in_parts(rest, x[:-explained]).numpy()
    for K in clusters:
        kmeans = KMeans(K, n_init=1, max_iter=50, random_state=0).fit(features)
        net = neonxc.neuralize(kmeans, x[:500], rest)
        yield Row(net, x[-explained:].contiguous(), UNITS[units], half, {"units": units, **names, "K": K})


def _texts(folders: Folders, explained: int, half: str) -> Iterator[Row]:
    from corpora import packages
    from sentences import trained

    corpus = packages(folders.packages, 300)
    kind = ENCODERS[half]
    path = folders.networks / kind
    if not path.exists():
        made = trained(corpus, 150, kind)
        made.model.save_pretrained(path)
        made.tokenizer.save_pretrained(path)
    encoder = SentenceEncoder.from_pretrained(str(path), pooling="mean")
    order = np.random.default_rng(0).permutation(len(corpus.texts))
    texts = [" ".join(corpus.texts[i].split()[:30]) for i in order]
    known = texts[explained:2500]
    unseen = texts[:explained]
    points = encoder.points(known).numpy()
    for K in (10, 50):
        kmeans = KMeans(K, n_init=1, max_iter=50, random_state=0).fit(points)
        net = neonxc.neuralize(kmeans, known[:500], encoder)
        names = {"network": f"sentence encoder, {kind}", "layers": "all", "inputs": "descriptions", "K": K}
        for units in ("words", "words, others drawn"):
            yield Row(net, encoder.encode(unseen).double(), None, half, {"units": units, **names})
