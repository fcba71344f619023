"""The four stages of SCAN and their losses: pretext task, heads alone, clustering, self-labeling."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from neonxc.common.memory import blocks
from neonxc.common.progress import progress_bar

from .network import TrainingData
from .training import TrainingStage

SLOWER = 5  # divisor of the learning rate of stages that only fine-tune the embedding
HEADS_FASTER = 10  # factor of the learning rate of heads alone, a linear model
HEADS_BATCH = 1024  # batch size for heads alone; the entropy of the mean assignment needs large batches


def pretext(data: TrainingData) -> TrainingStage:
    """Learn an embedding by SimCLR, then find the nearest neighbors of all images in it."""
    network, model = data.network, data.model
    epochs = model.pretext_epochs if model.pretext else 0
    if epochs and not any(parameter.requires_grad for parameter in network.embedding.parameters()):
        raise ValueError(
            f'pretext="{model.pretext}" needs a backbone with parameters that require a gradient; this one is '
            "frozen (pretext=None, or backbone.requires_grad_())"
        )

    def step(index: Tensor) -> tuple[Tensor, int]:
        views = torch.cat([data.views(index), data.views(index)])
        first, second = network.projector(data.features(views)).chunk(2)
        return nt_xent(first, second, model.temperature), len(index)

    def mine() -> None:
        network.neighbours.copy_(nearest(data.embed(), network.neighbours.shape[1]))

    modules = [network.embedding, network.projector]
    return TrainingStage("pretext", epochs, modules, model.learning_rate, model.batch_size, step, finish=mine)


def heads_alone(data: TrainingData) -> TrainingStage:
    """Minimize SCAN's loss over the heads only, so that random heads do not disturb the embedding; this is cheap.

    Features are standardized for this stage, because their dimensions may differ by orders of magnitude.
    Afterwards the standardization is folded into the weights of the heads.
    """
    network, model, features = data.network, data.model, data.embed()
    mean, spread = features.mean(0), features.std(0)
    if not float(spread.max()) > 0:
        raise ValueError(
            "the embedding is the same for all images, so they can't be clustered; check that the images differ"
        )
    spread = spread.clamp(min=1e-6 * float(spread.max()))
    features = (features - mean) / spread

    def step(index: Tensor) -> tuple[Tensor, int]:
        return pair_loss(data, network.heads, features[data.pairs(index)]), len(index)

    @torch.no_grad()
    def finish() -> None:
        if model.head_epochs:
            judge(data, network.heads, features)
            for head in network.heads:
                head.weight.div_(spread)
                head.bias.sub_(head.weight @ mean)

    rate = HEADS_FASTER * model.learning_rate
    return TrainingStage("heads", model.head_epochs, [*network.heads], rate, HEADS_BATCH, step, finish=finish)


def clustering(data: TrainingData) -> TrainingStage:
    """Minimize SCAN's loss of augmented images and augmented neighbors over the embedding and its heads.

    If the heads have been trained alone before, only the best one is used, with a lower learning rate.
    """
    network, model = data.network, data.model
    heads = [network.best] if model.head_epochs else network.heads

    def step(index: Tensor) -> tuple[Tensor, int]:
        return pair_loss(data, heads, data.features(data.views(data.pairs(index)))), len(index)

    @torch.no_grad()
    def finish() -> None:
        if not model.head_epochs:
            judge(data, heads, data.embed())

    modules, rate = [network.embedding, *heads], model.learning_rate / (SLOWER if model.head_epochs else 1)
    return TrainingStage("clustering", model.epochs, modules, rate, model.batch_size, step, finish=finish)


def self_labelling(data: TrainingData) -> TrainingStage:
    """Minimize the cross-entropy between augmented images and the confident predictions for the original images.

    In the paper, the label of an image is computed in the step that trains on it. At high learning rates, the
    network may then collapse to a single cluster. Labels that are fixed for an epoch prevent this.
    """
    network, model, best = data.network, data.model, data.network.best
    labels = torch.empty(0, dtype=torch.int64)  # label of each image; -1 if no cluster has a high probability

    @torch.no_grad()
    def label() -> None:
        nonlocal labels
        confidence, cluster = best(data.embed()).softmax(1).max(1)
        labels = torch.where(confidence > model.self_label_threshold, cluster, -1).cpu()

    def step(index: Tensor) -> tuple[Tensor | None, int]:
        index = index[labels[index] >= 0]
        if len(index) < 2:  # batch normalization needs at least two images
            return None, 0
        scores = best(data.features(data.views(index)))
        return self_label_loss(scores, labels[index].to(scores.device)), len(index)

    modules, rate = [network.embedding, best], model.learning_rate / SLOWER
    epochs, size = model.self_label_epochs, model.batch_size
    return TrainingStage("self-labelling", epochs, modules, rate, size, step, prepare=label)


STAGES = (pretext, heads_alone, clustering, self_labelling)


def pair_loss(data: TrainingData, heads: Iterable[nn.Module], features: Tensor) -> Tensor:
    """Mean loss [] of heads, from features [2 B, d] of images and, behind them, of a neighbor of each."""
    anchors, others = scores(heads, features).chunk(2, dim=1)
    return scan_loss(anchors, others, data.model.entropy_weight).mean()


def judge(data: TrainingData, heads: Iterable[nn.Module], features: Tensor) -> None:
    """Set the losses of heads to those of the features [n, d] of all images and their neighbors."""
    network, weight = data.network, data.model.entropy_weight
    network.losses.copy_(scan_loss_of_all(scores(heads, features), network.neighbours, weight))


def nt_xent(first: Tensor, second: Tensor, temperature: float = 0.5) -> Tensor:
    """Contrastive loss of SimCLR (Chen et al. 2020, Eq. 1), averaged over 2 B views with projections [B, p].

    The loss of a view is low if, by cosine similarity, the other view of its image is its nearest one.
    """
    views = F.normalize(torch.cat([first, second]), dim=1)
    similarity = (views @ views.T / temperature).fill_diagonal_(-torch.inf)
    partner = torch.arange(len(views), device=views.device).roll(len(first))
    return F.cross_entropy(similarity, partner)


def scan_loss(anchors: Tensor, neighbours: Tensor, entropy_weight: float = 5.0) -> Tensor:
    """Loss of SCAN (Van Gansbeke et al. 2020, Eq. 2) from scores [..., B, K] of images and of a neighbor of each.

    The loss is ``-mean_i log <p(x_i), p(x'_i)> - entropy_weight * H(mean_i p(x_i))``. The first term is low if
    neighbors are in the same cluster, the second one if all clusters are used. It is computed for each head, the
    leading dimensions.
    """
    anchors, neighbours = anchors.log_softmax(-1), neighbours.log_softmax(-1)
    together = (anchors + neighbours).logsumexp(-1)  # log of the inner product, without underflow
    mean = anchors.logsumexp(-2) - math.log(anchors.shape[-2])  # log p, because p log p has no gradient at p = 0
    return -together.mean(-1) + entropy_weight * (mean.exp() * mean).sum(-1)


def scores(heads: Iterable[nn.Module], features: Tensor) -> Tensor:
    """Scores [H, N, K] of heads for features [N, d]."""
    return torch.stack([head(features) for head in heads])


def scan_loss_of_all(scores: Tensor, neighbours: Tensor, entropy_weight: float) -> Tensor:
    """Loss of SCAN [...] from scores [..., n, K] of all images, averaged over all their neighbors [n, k]."""
    losses = [scan_loss(scores, scores[..., column, :], entropy_weight) for column in neighbours.unbind(1)]
    return torch.stack(losses).mean(0)


def self_label_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy [] of scores [B, K] with labels [B], with equal weights for all clusters that occur."""
    sizes = torch.bincount(labels, minlength=scores.shape[1])
    return F.cross_entropy(scores, labels, weight=sizes.clamp(min=1).to(scores.dtype).reciprocal())


def nearest(features: Tensor, k: int) -> Tensor:
    """Indices [n, k] of the k nearest other images by cosine similarity of features [n, d], the nearest first."""
    points = F.normalize(features, dim=1)
    rows = blocks(len(points), len(points) * points.element_size(), points.device)
    found = []
    for row in progress_bar([*rows], desc="SCAN: neighbours"):
        similarity = points[row] @ points.T
        similarity.diagonal(row.start).fill_(-torch.inf)
        found.append(similarity.topk(k, dim=1).indices)
    return torch.cat(found)
