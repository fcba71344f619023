"""The network that SCAN trains (embedding, projector for the pretext task, clustering heads) and its data."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from neonxc.common.modules import unwrapped

from ..backbones.architectures import vgg_small_embedding
from ..features import FeatureExtractor
from .augment import RandomWarp

PROJECTED = 64  # dimension in which the pretext task compares views


class ScanNetwork(nn.Module):
    """All tensors of a training on n images [n, C, H, W], so that a single state dict holds them."""

    neighbours: Tensor  # [n, k], indices of the nearest neighbors of each image
    losses: Tensor  # [n_heads]

    def __init__(self, model: Any, images: Tensor) -> None:
        super().__init__()
        self.embedding, d = make_embedding(model.backbone, images[:2])
        hidden = max(d, PROJECTED)
        projector = nn.Sequential(nn.Linear(d, hidden), nn.ReLU(), nn.Linear(hidden, PROJECTED))
        self.projector = projector.to(images.dtype)
        heads = nn.ModuleList(nn.Linear(d, model.n_clusters, dtype=images.dtype) for _ in range(model.n_heads))
        self.heads: Sequence[nn.Linear] = heads  # type: ignore[assignment]  # the items of a ModuleList are untyped
        n = len(images)
        self.register_buffer("neighbours", torch.zeros(n, min(model.n_neighbors, n - 1), dtype=torch.int64))
        self.register_buffer("losses", torch.zeros(model.n_heads, dtype=images.dtype))

    @property
    def best(self) -> nn.Linear:
        """The head with the lowest loss."""
        return self.heads[int(self.losses.argmin())]

    def train(self, mode: bool = True) -> ScanNetwork:
        """Set training mode, except for frozen parts, whose batch statistics must not change either."""
        super().train(mode)
        for module in self.embedding.modules():
            trained = [parameter.requires_grad for parameter in module.parameters()]
            if not any(trained) and (trained or module is self.embedding):
                module.eval()
        return self


@dataclass(frozen=True)
class TrainingData:
    """The training images, their augmented views and their features."""

    model: Any  # the estimator SCAN, whose parameters are the options of the training
    network: ScanNetwork
    images: Tensor

    def batch(self, index: Tensor) -> Tensor:
        """Images with the given indices, on the device and in the dtype of the network."""
        return self.images[index.to(self.images.device)].to(self.network.losses, non_blocking=True)

    def views(self, index: Tensor) -> Tensor:
        """One augmented view of each image with the given indices."""
        images, augment = self.batch(index), self.model.augment or RandomWarp()
        with torch.no_grad():
            views = augment(images)
        if not isinstance(views, Tensor) or views.shape != images.shape:
            got = list(views.shape) if isinstance(views, Tensor) else type(views).__name__
            raise ValueError(f"augment needs to return images of shape {list(images.shape)}, got {got}")
        return views

    def pairs(self, index: Tensor) -> Tensor:
        """Indices [2 B] of images, followed by a random neighbor of each, on the network's device."""
        neighbours = self.network.neighbours
        choice = torch.randint(neighbours.shape[1], (len(index),), device=neighbours.device)
        index = index.to(neighbours.device)
        return torch.cat([index, neighbours[index, choice]])

    def features(self, images: Tensor) -> Tensor:
        """Features [B, d] for training; with `amp`, only the embedding is computed in bfloat16."""
        with torch.autocast(images.device.type, torch.bfloat16, enabled=self.model.amp):
            features: Tensor = self.network.embedding(images)
        return features.to(images.dtype)

    @torch.no_grad()
    def embed(self) -> Tensor:
        """Features [n, d] of all images without augmentation; sets the network to evaluation mode."""
        self.network.eval()
        parts = torch.arange(len(self.images)).split(self.model.batch_size)
        return torch.cat([self.network.embedding(self.batch(part)) for part in parts])


def make_embedding(backbone: nn.Module | None, images: Tensor) -> tuple[nn.Module, int]:
    """Copy a backbone so that it returns features [N, d]; also return d. `images` are two examples."""
    if backbone is None:
        embedding: nn.Module = vgg_small_embedding(images.shape[1])
    else:
        embedding = copy.deepcopy(unwrapped(backbone))
    try:
        with torch.no_grad():
            features: Any = embedding.eval()(images.to(next(embedding.parameters(), images)))
    except RuntimeError as error:  # raised by torch's layers for unsupported shapes
        raise ValueError(f"backbone does not take images of shape {list(images.shape[1:])}: {error}") from error
    if not isinstance(features, Tensor):
        raise TypeError(f"backbone needs to return a tensor of features [N, d], got {type(features).__name__}")
    if features.ndim < 2 or len(features) != len(images) or features.shape[1] < 1:
        raise ValueError(
            f"backbone needs to return features [N, d] or [N, d, h, w], got shape {list(features.shape)} for "
            f"{len(images)} images"
        )
    if features.ndim > 2:
        if not isinstance(embedding, FeatureExtractor):
            embedding = FeatureExtractor(embedding, "")
        embedding.pool = "avg"
    return embedding, features.shape[1]
