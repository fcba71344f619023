"""The stages of SCAN and their losses: pretext, heads alone, clustering, self-labelling."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor
from tqdm import tqdm

from neonxc.blocks import blocks

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

    return Stage(
        "pretext", epochs, [network.embedding, network.projector], rate, data.batch_size, step, finish=mine
    )


def heads_alone(data: Data, epochs: int, rate: float, entropy_weight: float) -> Stage:
    """Minimise SCAN's loss over the heads alone: cheap, and it spares the embedding the gradients of random heads.

    They learn on standardised features, whose dimensions may differ by orders of magnitude; afterwards the
    standardisation becomes part of their weights.
    """
    network, features = data.network, data.embed()
    mean, spread = features.mean(0), features.std(0)
    spread = spread.clamp(min=1e-6 * float(spread.max()))
    features = (features - mean) / spread

    def step(index: Tensor) -> tuple[Tensor, int]:
        others = one_of(network.neighbours, index)
        anchors, others = (network.scores(features[rows.to(features.device)]) for rows in (index, others))
        return scan_loss(anchors, others, entropy_weight).mean(), len(index)

    @torch.no_grad()
    def finish() -> None:
        if epochs:
            network.losses.copy_(scan_loss_of_all(network.scores(features), network.neighbours, entropy_weight))
            network.heads.weight.div_(spread)
            network.heads.bias.sub_(network.heads.weight @ mean)

    return Stage("heads", epochs, [network.heads], HEADS_FASTER * rate, HEADS_BATCH, step, finish=finish)


def clustering(data: Data, epochs: int, rate: float, entropy_weight: float, learned: bool) -> Stage:
    """Minimise SCAN's loss of augmented images and augmented neighbours over the embedding and its heads.

    The embedding follows the best of the heads if they have `learned` alone, at a lower rate, else all of them.
    """
    network = data.network
    heads = [network.best] if learned else list(range(network.n_heads))

    def step(index: Tensor) -> tuple[Tensor, int]:
        views = data.views(torch.cat([index, one_of(network.neighbours, index)]))
        anchors, others = network.scores(data.features(views))[heads].chunk(2, dim=1)
        return scan_loss(anchors, others, entropy_weight).mean(), len(index)

    @torch.no_grad()
    def finish() -> None:
        if not learned:
            network.losses.copy_(
                scan_loss_of_all(network.scores(data.embed()), network.neighbours, entropy_weight)
            )

    modules = [network.embedding, network.heads]
    return Stage(
        "clustering", epochs, modules, rate / SLOWER if learned else rate, data.batch_size, step, finish=finish
    )


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
        confidence, cluster = network.scores(data.embed())[best].softmax(1).max(1)
        labels = torch.where(confidence > threshold, cluster, -1).cpu()

    def step(index: Tensor) -> tuple[Tensor | None, int]:
        index = index[labels[index] >= 0]
        if len(index) < 2:  # batch normalisation needs two
            return None, 0
        scores = network.scores(data.features(data.views(index)))[best]
        return self_label_loss(scores, labels[index].to(scores.device)), len(index)

    modules = [network.embedding, network.heads]
    return Stage("self-labelling", epochs, modules, rate / SLOWER, data.batch_size, step, prepare=label)


def nt_xent(first: Tensor, second: Tensor, temperature: float = 0.5) -> Tensor:
    """Loss of SimCLR: each view must find the other view of its image among all views (Chen et al. 2020, Eq. 1).

    Parameters
    ----------
    first, second : Tensor [B, p]
        Projections of two views of the same B >= 2 images; only their directions count.
    temperature : float
        Above 0. The lower, the more the most similar wrong views count.

    Returns
    -------
    Tensor []
        Mean cross-entropy, in nats, over the 2 B views.
    """
    views = F.normalize(torch.cat([first, second]), dim=1)
    similarity = (views @ views.T / temperature).fill_diagonal_(-torch.inf)
    partner = torch.arange(len(views), device=views.device).roll(len(first))
    return F.cross_entropy(similarity, partner)


def scan_loss(anchors: Tensor, neighbours: Tensor, entropy_weight: float = 5.0) -> Tensor:
    """Loss of SCAN: neighbours in one cluster, images in all clusters (Van Gansbeke et al. 2020, Eq. 2).

    ``-mean_i log <p(x_i), p(x'_i)> - entropy_weight * H(mean_i p(x_i))``

    Parameters
    ----------
    anchors, neighbours : Tensor [..., B, K]
        Scores of B images and of one neighbour of each, before the softmax. Leading dimensions (heads) are kept.
    entropy_weight : float
        Lambda in the paper.

    Returns
    -------
    Tensor [...]
        In nats; at least ``-entropy_weight * log K``.
    """
    anchors, neighbours = anchors.log_softmax(-1), neighbours.log_softmax(-1)
    together = (anchors + neighbours).logsumexp(-1)  # the log of the inner product, finite where that underflows
    mean = anchors.logsumexp(-2) - math.log(anchors.shape[-2])  # p log p has no finite slope at p = 0
    return -together.mean(-1) + entropy_weight * (mean.exp() * mean).sum(-1)


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
    n, found = len(points), []
    for rows in tqdm(
        [*blocks(n, n * points.element_size(), points.device)], "SCAN: neighbours", delay=2, leave=False
    ):
        similarity = points[rows] @ points.T
        similarity.diagonal(rows.start).fill_(-torch.inf)
        found.append(similarity.topk(k, dim=1).indices)
    return torch.cat(found)


def one_of(neighbours: Tensor, index: Tensor) -> Tensor:
    """A random neighbour of each image, as indices on the device of `index`."""
    choice = torch.randint(neighbours.shape[1], (len(index),), device=neighbours.device)
    return neighbours[index.to(neighbours.device), choice].to(index.device)
