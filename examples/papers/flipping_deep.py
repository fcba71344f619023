"""Deep rows of `flipping.py`: small networks trained on MNIST and Fashion-MNIST, split in the middle.

The explained inputs are the activations of a middle block, by channel; the rest of the network computes the
features.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import save_file
from scan import QUICK, load
from sklearn.cluster import KMeans
from torch import Tensor, nn

import neonxc
from neonxc.models import SCAN, vgg_small
from neonxc.models.scan import RandomWarp

# Without self-labelling, which assigned all digits to one cluster
SCAN_OPTIONS = {
    "pretext_epochs": 8,
    "epochs": 4,
    "self_label_epochs": 0,
    "temperature": 0.1,
    "learning_rate": 3e-3,
    "amp": True,
}
# Not imported from scan.py, because a change there would make cached networks unusable
VIEWS = {
    "MNIST": RandomWarp(rotation=20, shear=20, scale=0.3, translation=0.1, elastic=0.04, padding="zeros"),
    "Fashion-MNIST": RandomWarp(
        rotation=10, shear=10, scale=0.4, translation=0.1, elastic=0.02, flip=True, contrast=0.3, padding="zeros"
    ),
}


@dataclass(frozen=True)
class Size:
    """Sizes: images to train on, epochs, channels of the first block, images to explain."""

    train: int = 10_000
    scan_images: int = 8000
    epochs: int = 4
    width: int = 16
    explained: int = 200
    clusters: tuple[int, ...] = (10, 100, 1000)
    quick: bool = False


SMALL = Size(train=300, scan_images=300, epochs=1, width=4, explained=12, clusters=(10, 20), quick=True)


@dataclass(frozen=True)
class Deep:
    """A clustering of features, as a network that takes activations [N, C, h, w]."""

    name: str
    kind: str
    net: neonxc.network.NeuralizedClustering
    activations: Tensor
    k: int


@cache
def images_of(data: str, folder: Path | None, split: str) -> tuple[Tensor, Tensor]:
    """Load images [N, 1, 28, 28] in 0..1 and their classes [N] from MNIST or from the files of Fashion-MNIST."""
    images, classes = load("mnist" if data == "MNIST" else "fashion", folder, split)
    return images, torch.from_numpy(classes.copy()).long()


def supervised(images: Tensor, classes: Tensor, size: Size, seed: int) -> nn.Sequential:
    """Train a classifier."""
    torch.manual_seed(seed)
    net = vgg_small(width=size.width)
    optimizer = torch.optim.AdamW(net.parameters())
    steps = size.epochs * -(-len(images) // 128)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=steps)
    for _ in range(size.epochs):
        for rows in torch.randperm(len(images)).split(128):
            loss = F.cross_entropy(net(images[rows]), classes[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return net.eval()


def unsupervised(images: Tensor, options: dict[str, Any], size: Size, seed: int) -> nn.Sequential:
    """Train SCAN; its head takes the place of the classifier."""
    torch.manual_seed(seed)
    net = vgg_small(width=size.width)
    found = SCAN(10, net[:-1], random_state=seed, **options).fit(images[: size.scan_images])
    net[:-1].load_state_dict(found.embedding_.state_dict())
    net.classifier.load_state_dict(found.cluster_head_.state_dict())
    return net.eval()


def cached(path: Path, settings: dict[str, Any], width: int, make: Callable[[], nn.Sequential]) -> nn.Sequential:
    """Read the weights of a network; train it and write them if there are none for these settings."""
    text = json.dumps(settings, sort_keys=True, default=str)
    net = vgg_small(width=width).eval()
    if path.exists():
        with safe_open(path, framework="pt") as file:
            if (file.metadata() or {}).get("settings") == text:
                net.load_state_dict({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
                return net
    net = make()
    save_file({k: v.contiguous() for k, v in net.state_dict().items()}, path, {"settings": text})
    return net


@torch.no_grad()
def in_parts(net: nn.Module, images: Tensor) -> Tensor:
    """Compute the outputs of a network in batches, with bounded memory."""
    return torch.cat([net(part) for part in images.split(500)])


def networks(
    data: str, folder: Path | None, out: Path, size: Size, seed: int
) -> Iterator[tuple[str, nn.Sequential, float]]:
    """Yield the kind, the network and its test accuracy (for SCAN: with clusters matched to classes)."""
    images, classes = images_of(data, folder, "train")
    images = images[: size.train]
    classes = classes[: size.train]
    unseen, truth = images_of(data, folder, "test")
    unseen = unseen[:2000]
    truth = truth[:2000]
    options = {**SCAN_OPTIONS, **(QUICK if size.quick else {})}
    options["augment"] = VIEWS[data]
    makers: dict[str, tuple[dict[str, Any], Callable[[], nn.Sequential]]] = {
        "supervised": (
            {"images": size.train, "epochs": size.epochs},
            lambda: supervised(images, classes, size, seed),
        ),
        "SCAN": (
            {"images": size.scan_images, **options},
            lambda: unsupervised(images, options, size, seed),
        ),
    }
    for kind, (settings, make) in makers.items():
        path = out / f"{data}-{kind}-{seed}.safetensors".lower()
        net = cached(path, {"seed": seed, "width": size.width, **settings}, size.width, make)
        found = in_parts(net, unseen).argmax(1)
        yield kind, net, neonxc.evaluation.clustering_accuracy(found.numpy(), truth.numpy())


def deep_rows(data: str, folder: Path | None, out: Path, size: Size, seed: int) -> Iterator[Deep]:
    """Compute the rows of Table I for clusterings of the last features of both networks."""
    images, _ = images_of(data, folder, "train")
    unseen, _ = images_of(data, folder, "test")
    for kind, net, accuracy in networks(data, folder, out, size, seed):
        front = net.features[:2]
        rest = nn.Sequential(net.features[2], net.pool, net.flatten)
        activations = in_parts(front, images[: size.train])
        features = in_parts(rest, activations)
        held_out = in_parts(front, unseen[: size.explained])
        for k in size.clusters:
            own = kind == "SCAN" and k == 10
            start = "random" if k > 100 else "k-means++"  # their time grows with k times the number of points
            kmeans = KMeans(k, init=start, n_init=1, max_iter=50, random_state=seed)
            model = net.classifier if own else kmeans.fit(features.numpy())
            clustering = neonxc.neuralize(model, activations[:2000], rest)
            name = f"{kind}, accuracy {100 * accuracy:.1f}%, {'its head' if own else 'k-means'}"
            yield Deep(data, name, clustering, held_out, k)
