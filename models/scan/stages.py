"""The four stages of SCAN: pretext, heads on the embeddings as they are, clustering, self-labelling."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .losses import nt_xent, scan_loss, scan_loss_of_all, self_label_loss
from .network import ScanNetwork, evaluating
from .training import Stage

__all__ = ["Data", "clustering", "head_losses", "heads_alone", "pretext", "self_labelling"]

SLOWER = 5  # what is learned by the time heads are there is good, and is to be refined
HEADS_FASTER = 10  # heads alone are a linear model, which stands a higher rate
HEADS_BATCH = 1024  # and whose batches cost little: the entropy of the mean wants large ones


@dataclass(frozen=True)
class Data:
    """Images, their views, and what the network makes of them."""

    network: ScanNetwork
    images: Tensor
    augment: Callable[[Tensor], Tensor]
    batch_size: int
    amp: bool

    def batch(self, index: Tensor) -> Tensor:
        """Images of these indices, where and as the network needs them."""
        return self.images[index.to(self.images.device)].to(self.network.like, non_blocking=True)

    def views(self, index: Tensor) -> Tensor:
        """One augmented view of each of these images."""
        images = self.batch(index)
        with torch.no_grad():
            views = self.augment(images)
        if not isinstance(views, Tensor) or views.shape != images.shape:
            got = list(views.shape) if isinstance(views, Tensor) else type(views).__name__
            raise ValueError(f"augment needs to return images of shape {list(images.shape)}, got {got}")
        return views

    def features(self, images: Tensor) -> Tensor:
        """Embeddings [B, d] of a minibatch; only the embedding is ever computed in bfloat16."""
        with torch.autocast(images.device.type, torch.bfloat16, enabled=self.amp):
            features: Tensor = self.network.embedding(images)
        return features.to(self.network.like.dtype)

    @torch.no_grad()
    def embed(self) -> Tensor:
        """Embeddings [n, d] of all images as they are, on the network's device."""
        with evaluating(self.network):
            parts = torch.arange(len(self.images)).split(self.batch_size)
            return torch.cat([self.network.embedding(self.batch(part)) for part in parts])


def pretext(data: Data, epochs: int, rate: float, temperature: float) -> Stage:
    """SimCLR: two views of an image have similar projections, views of other images don't."""
    network = data.network

    def step(index: Tensor) -> tuple[Tensor, int]:
        views = torch.cat([data.views(index), data.views(index)])
        first, second = network.projector(data.features(views)).chunk(2)
        return nt_xent(first, second, temperature), len(index)

    return Stage("pretext", epochs, [network.embedding, network.projector], rate, step)


def heads_alone(data: Data, neighbours: Tensor, epochs: int, rate: float, entropy_weight: float) -> Stage:
    """SCAN loss of the heads, the embedding left as it is: cheap, and it spares the embedding random gradients.

    They learn on standardised embeddings, whose dimensions may differ by orders of magnitude; afterwards the
    standardisation becomes part of their weights.
    """
    network, embeddings = data.network, data.embed()
    mean, spread = embeddings.mean(0), embeddings.std(0)
    spread = spread.clamp(min=1e-6 * float(spread.max()))
    embeddings = (embeddings - mean) / spread

    def step(index: Tensor) -> tuple[Tensor, int]:
        index = index.to(embeddings.device)
        anchors = network.scores(embeddings[index])
        others = network.scores(embeddings[one_of(neighbours, index)])
        return scan_loss(anchors, others, entropy_weight).mean(), len(index)

    @torch.no_grad()
    def fold() -> None:
        for head in network.heads:
            assert isinstance(head, nn.Linear)
            head.weight.div_(spread)
            head.bias.sub_(head.weight @ mean)

    return Stage("heads", epochs, [network.heads], HEADS_FASTER * rate, step, batch_size=HEADS_BATCH, finish=fold)


def clustering(
    data: Data, heads: nn.ModuleList, neighbours: Tensor, epochs: int, rate: float, entropy_weight: float
) -> Stage:
    """SCAN loss of augmented images and their augmented neighbours, averaged over some heads; all is trained."""

    def step(index: Tensor) -> tuple[Tensor, int]:
        views = data.views(torch.cat([index, one_of(neighbours, index.to(neighbours.device)).to(index.device)]))
        features = data.features(views)
        anchors, others = torch.stack([head(features) for head in heads]).chunk(2, dim=1)
        return scan_loss(anchors, others, entropy_weight).mean(), len(index)

    return Stage("clustering", epochs, [data.network.embedding, heads], rate, step)


def self_labelling(data: Data, head: nn.Module, epochs: int, rate: float, threshold: float) -> Stage:
    """Cross-entropy of augmented images with the clusters that they are confidently in as they are.

    The paper asks for an image's label in the step that trains on it. The network then follows what it has just
    learned, at high rates into one single cluster; labels that stay for an epoch forbid that.
    """
    network = data.network
    labels = torch.empty(0, dtype=torch.int64)  # of each image; -1 where none is sure

    def label() -> None:
        nonlocal labels
        with torch.no_grad():
            confidence, cluster = head(data.embed()).softmax(1).max(1)
        labels = torch.where(confidence > threshold, cluster, -1).cpu()

    def step(index: Tensor) -> tuple[Tensor | None, int]:
        index = index[labels[index] >= 0]
        if len(index) < 2:  # batch normalisation needs two
            return None, 0
        scores = head(data.features(data.views(index)))
        return self_label_loss(scores, labels[index].to(scores.device)), len(index)

    return Stage("self-labelling", epochs, [network.embedding, head], rate / SLOWER, step, label)


@torch.no_grad()
def head_losses(data: Data, neighbours: Tensor, entropy_weight: float) -> Tensor:
    """SCAN loss [H] of each head on all images as they are and all their neighbours."""
    return scan_loss_of_all(data.network.scores(data.embed()), neighbours, entropy_weight)


def one_of(neighbours: Tensor, index: Tensor) -> Tensor:
    """A random neighbour of each image."""
    choice = torch.randint(neighbours.shape[1], (len(index),), device=neighbours.device)
    return neighbours[index, choice]
