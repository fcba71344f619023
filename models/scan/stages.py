"""The stages of SCAN and their losses: pretext, heads alone, clustering, self-labelling."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from neonxc.blocks import blocks
from neonxc.progress_bars import progress_bar

from .network import Data
from .training import Stage

SLOWER = 5  # what is learned by the time heads are there is good, and is only refined
HEADS_FASTER = 10  # heads alone are a linear model, which stands a higher rate
HEADS_BATCH = 1024  # the entropy of the mean wants large batches, and those of heads alone cost little


def pretext(data: Data, epochs: int, rate: float, temperature: float) -> Stage:
    """Learn an embedding by SimCLR; the neighbours of all images are mined in it."""
    network = data.network

    def step(index: Tensor) -> tuple[Tensor, int]:
        views = torch.cat([data.views(index), data.views(index)])
        first, second = network.projector(data.features(views)).chunk(2)
        return nt_xent(first, second, temperature), len(index)

    def mine() -> None:
        network.neighbours.copy_(nearest(data.embed(), network.neighbours.shape[1]))

    modules = [network.embedding, network.projector]
    return Stage("pretext", epochs, modules, rate, data.batch_size, step, finish=mine)


def heads_alone(data: Data, epochs: int, rate: float, entropy_weight: float) -> Stage:
    """Minimise SCAN's loss over the heads alone: cheap, and it spares the embedding the gradients of random heads.

    They learn on standardised features, whose dimensions may differ by orders of magnitude; afterwards the
    standardisation becomes part of their weights.
    """
    network, features = data.network, data.embed()
    mean, spread = features.mean(0), features.std(0)
    if not float(spread.max()) > 0:
        raise ValueError(
            "the embedding is the same for all images: there is nothing to cluster; are they all alike?"
        )
    spread = spread.clamp(min=1e-6 * float(spread.max()))
    features = (features - mean) / spread

    def step(index: Tensor) -> tuple[Tensor, int]:
        anchors, others = scores(network.heads, features[data.pairs(index)]).chunk(2, dim=1)
        return scan_loss(anchors, others, entropy_weight).mean(), len(index)

    @torch.no_grad()
    def finish() -> None:
        if epochs:
            learned = scores(network.heads, features)
            network.losses.copy_(scan_loss_of_all(learned, network.neighbours, entropy_weight))
            for head in network.heads:
                head.weight.div_(spread)
                head.bias.sub_(head.weight @ mean)

    modules, rate = [*network.heads], HEADS_FASTER * rate
    return Stage("heads", epochs, modules, rate, HEADS_BATCH, step, finish=finish)


def clustering(data: Data, epochs: int, rate: float, entropy_weight: float, learned: bool) -> Stage:
    """Minimise SCAN's loss of augmented images and augmented neighbours over the embedding and its heads.

    The embedding follows the best of the heads if they have `learned` alone, at a lower rate, else all of them.
    """
    network = data.network
    heads = [network.best] if learned else network.heads

    def step(index: Tensor) -> tuple[Tensor, int]:
        anchors, others = scores(heads, data.features(data.views(data.pairs(index)))).chunk(2, dim=1)
        return scan_loss(anchors, others, entropy_weight).mean(), len(index)

    @torch.no_grad()
    def finish() -> None:
        if not learned:
            every = scores(heads, data.embed())
            network.losses.copy_(scan_loss_of_all(every, network.neighbours, entropy_weight))

    modules, rate = [network.embedding, *heads], rate / SLOWER if learned else rate
    return Stage("clustering", epochs, modules, rate, data.batch_size, step, finish=finish)


def self_labelling(data: Data, epochs: int, rate: float, threshold: float) -> Stage:
    """Minimise the cross-entropy of augmented images with the clusters that they are confidently in as they are.

    The paper asks for an image's label in the step that trains on it. The network then follows what it has just
    learned, at high rates into one single cluster; labels that stay for an epoch forbid that.
    """
    network, best = data.network, data.network.best
    labels = torch.empty(0, dtype=torch.int64)  # of each image; -1 where no cluster is sure

    @torch.no_grad()
    def label() -> None:
        nonlocal labels
        confidence, cluster = best(data.embed()).softmax(1).max(1)
        labels = torch.where(confidence > threshold, cluster, -1).cpu()

    def step(index: Tensor) -> tuple[Tensor | None, int]:
        index = index[labels[index] >= 0]
        if len(index) < 2:  # batch normalisation needs two
            return None, 0
        scores = best(data.features(data.views(index)))
        return self_label_loss(scores, labels[index].to(scores.device)), len(index)

    modules = [network.embedding, best]
    return Stage("self-labelling", epochs, modules, rate / SLOWER, data.batch_size, step, prepare=label)


def nt_xent(first: Tensor, second: Tensor, temperature: float = 0.5) -> Tensor:
    """Contrastive loss of SimCLR (Chen et al. 2020, Eq. 1), the mean over 2 B views.

    Each view must find the other view of its image among all views, by the direction of their projections [B, p].
    """
    views = F.normalize(torch.cat([first, second]), dim=1)
    similarity = (views @ views.T / temperature).fill_diagonal_(-torch.inf)
    partner = torch.arange(len(views), device=views.device).roll(len(first))
    return F.cross_entropy(similarity, partner)


def scan_loss(anchors: Tensor, neighbours: Tensor, entropy_weight: float = 5.0) -> Tensor:
    """Loss of SCAN (Van Gansbeke et al. 2020, Eq. 2) from scores [..., B, K] of images and a neighbour of each.

    ``-mean_i log <p(x_i), p(x'_i)> - entropy_weight * H(mean_i p(x_i))``: neighbours are to be in one cluster,
    images in all clusters. Leading dimensions (heads) are kept.
    """
    anchors, neighbours = anchors.log_softmax(-1), neighbours.log_softmax(-1)
    together = (anchors + neighbours).logsumexp(-1)  # the log of the inner product, finite where that underflows
    mean = anchors.logsumexp(-2) - math.log(anchors.shape[-2])  # p log p has no finite slope at p = 0
    return -together.mean(-1) + entropy_weight * (mean.exp() * mean).sum(-1)


def scores(heads: Iterable[nn.Module], features: Tensor) -> Tensor:
    """Scores [H, N, K] of heads for features [N, d]."""
    return torch.stack([head(features) for head in heads])


def scan_loss_of_all(scores: Tensor, neighbours: Tensor, entropy_weight: float) -> Tensor:
    """Loss of SCAN [...] from scores [..., n, K] of all images, over all their neighbours [n, k]."""
    losses = [scan_loss(scores, scores[..., column, :], entropy_weight) for column in neighbours.unbind(1)]
    return torch.stack(losses).mean(0)


def self_label_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy [] of scores [B, K] with labels [B] in which every cluster that occurs counts the same."""
    sizes = torch.bincount(labels, minlength=scores.shape[1])
    return F.cross_entropy(scores, labels, weight=sizes.clamp(min=1).to(scores.dtype).reciprocal())


def nearest(features: Tensor, k: int) -> Tensor:
    """Indices [n, k] of the other images whose features [n, d] have the most similar directions, those first."""
    points = F.normalize(features, dim=1)
    rows = blocks(len(points), len(points) * points.element_size(), points.device)
    found = []
    for row in progress_bar([*rows], desc="SCAN: neighbours"):
        similarity = points[row] @ points.T
        similarity.diagonal(row.start).fill_(-torch.inf)
        found.append(similarity.topk(k, dim=1).indices)
    return torch.cat(found)
