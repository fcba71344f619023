"""What is trained: an embedding, a projector that only the pretext needs, and clustering heads."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from neonxc.lrp.engine import unwrapped

from ..backbones.vgg_small import vgg_small
from ..features import FeatureExtractor

__all__ = ["ScanNetwork", "evaluating", "make_embedding"]

PROJECTED = 64  # dimensions in which the pretext compares views


class Pooled(nn.Module):
    """A network whose maps [N, d, ...] are averaged to [N, d]."""

    wraps: ClassVar[str] = "net"  # rules of LRP name the layers of that network as it does itself

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, images: Tensor) -> Tensor:
        """Features [N, d] of `images`."""
        features = self.net(images)
        return features.flatten(2).mean(2) if features.ndim > 2 else features


class ScanNetwork(nn.Module):
    """Embedding, projector and heads, as one module to be trained and saved.

    Parameters
    ----------
    embedding : nn.Module
        Images to features [N, width].
    width, n_clusters, n_heads : int
    dtype : torch.dtype
    """

    def __init__(
        self, embedding: nn.Module, width: int, n_clusters: int, n_heads: int, dtype: torch.dtype
    ) -> None:
        super().__init__()
        self.embedding = embedding
        hidden = max(width, PROJECTED)
        self.projector = nn.Sequential(
            nn.Linear(width, hidden, dtype=dtype), nn.ReLU(), nn.Linear(hidden, PROJECTED, dtype=dtype)
        )
        self.heads = nn.ModuleList(nn.Linear(width, n_clusters, dtype=dtype) for _ in range(n_heads))

    @property
    def like(self) -> Tensor:
        """A tensor of the dtype and on the device that images are needed in."""
        return next(chain(self.embedding.parameters(), self.heads.parameters()))

    @property
    def learns(self) -> bool:
        """Whether the embedding has parameters to train."""
        return any(parameter.requires_grad for parameter in self.embedding.parameters())

    def scores(self, features: Tensor) -> Tensor:
        """Scores [H, N, K] of all heads for features [N, d]."""
        weight, bias = (torch.cat([getattr(head, name) for head in self.heads]) for name in ("weight", "bias"))
        return F.linear(features, weight, bias).unflatten(1, (len(self.heads), -1)).movedim(1, 0)

    def train(self, mode: bool = True) -> ScanNetwork:
        """Training mode, except for parts that are frozen: their statistics must not move either."""
        super().train(mode)
        for module in self.embedding.modules():
            own = list(module.parameters(recurse=False))
            if own and not any(parameter.requires_grad for parameter in own):
                module.eval()
        if not self.learns:
            self.embedding.eval()
        return self


def make_embedding(backbone: nn.Module | None, images: Tensor) -> tuple[nn.Module, int]:
    """Copy a backbone, pooled if need be, and tell the width of its features.

    Parameters
    ----------
    backbone : nn.Module, optional
        Default: `vgg_small` without its classifier.
    images : Tensor [2, C, H, W]
        To try it on.

    Raises
    ------
    TypeError
        One that gives no tensor.
    ValueError
        Features that are not [N, d] or [N, d, ...], or images that the backbone does not take.
    """
    if backbone is None:
        embedding: nn.Module = vgg_small(images.shape[1])[:-1]
        embedding.recipe = {"builder": "vgg_small", "in_channels": images.shape[1]}  # type: ignore[assignment]
    else:
        embedding = copy.deepcopy(unwrapped(backbone))
    like = next(embedding.parameters(), torch.empty(0))
    try:
        with torch.no_grad(), evaluating(embedding):
            features: Any = embedding(images.to(like))
    except RuntimeError as error:  # how torch's layers say that they need other shapes
        raise ValueError(f"backbone does not take images of shape {list(images.shape[1:])}: {error}") from error
    if not isinstance(features, Tensor):
        raise TypeError(f"backbone gives a {type(features).__name__}; needed is a tensor of features [N, d]")
    if features.ndim < 2 or len(features) != len(images) or features.shape[1] < 1:
        raise ValueError(
            f"backbone needs to give features [N, d] or [N, d, h, w]; it gives {list(features.shape)} "
            f"for {len(images)} images"
        )
    if features.ndim > 2:
        if isinstance(embedding, FeatureExtractor):
            embedding.pool = "avg"
        else:
            embedding = Pooled(embedding)
    return embedding, features.shape[1]


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while; afterwards each part is in the mode it was in."""
    modes = {part: part.training for part in module.modules()}
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes.items():
            part.training = mode
