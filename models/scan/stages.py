"""The four stages of SCAN and their losses: pretext task, heads alone, clustering, self-labeling."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from neonxc.common.memory import blocks
from neonxc.common.progress import progress_bar

from .training import Training

SLOWER = 5  # divisor of the learning rate of stages that only fine-tune the embedding
HEADS_FASTER = 10  # factor of the learning rate of heads alone, a linear model
HEADS_BATCH = 1024  # batch size for heads alone; the entropy of the mean assignment needs large batches


def pretext(run: Training) -> None:
    """Learn an embedding by SimCLR, then find the nearest neighbors of all images in it."""
    model = run.model
    epochs = model.pretext_epochs if model.pretext else 0
    if epochs and not any(parameter.requires_grad for parameter in run.embedding.parameters()):
        raise ValueError(
            f'pretext="{model.pretext}" needs a backbone with parameters that require a gradient; this one is '
            "frozen (pretext=None, or backbone.requires_grad_())"
        )

    run.minimize(
        "pretext",
        epochs,
        [run.embedding, run.projector],
        model.learning_rate,
        lambda index: nt_xent(run.projector(run.features(index, index)), model.temperature),
    )
    run.neighbours.copy_(nearest(run.embed(), run.neighbours.shape[1]))


def heads_alone(run: Training) -> None:
    """Minimize SCAN's loss over the heads only, so that random heads do not disturb the embedding; this is cheap.

    Features are standardized for this stage, because their dimensions may differ by orders of magnitude.
    Afterwards the standardization is folded into the weights of the heads.
    """
    features = run.embed()
    mean = features.mean(0)
    spread = features.std(0)
    if not spread.any():
        raise ValueError(
            "the embedding is the same for all images, so they can't be clustered; check that the images differ"
        )
    spread = spread.clamp(min=1e-6 * spread.max())
    features = (features - mean) / spread

    epochs = run.model.head_epochs
    run.minimize(
        "heads",
        epochs,
        run.heads,
        HEADS_FASTER * run.model.learning_rate,
        lambda index: pair_loss(run, run.heads, features[run.pairs(index)]),
        HEADS_BATCH,
    )
    if epochs:
        judge(run, features)
        for head in run.heads:
            head.weight.data /= spread
            head.bias.data -= head.weight.data @ mean


def clustering(run: Training) -> None:
    """Minimize SCAN's loss of augmented images and augmented neighbors over the embedding and its heads.

    If the heads have been trained alone before, only the best one is used, with a lower learning rate.
    """
    model = run.model
    heads, slower = ([run.best], SLOWER) if model.head_epochs else (run.heads, 1)

    run.minimize(
        "clustering",
        model.epochs,
        [run.embedding, *heads],
        model.learning_rate / slower,
        lambda index: pair_loss(run, heads, run.features(run.pairs(index))),
    )
    if not model.head_epochs:
        judge(run, run.embed())


def self_labelling(run: Training) -> None:
    """Minimize the cross-entropy between augmented images and the confident predictions for the original images.

    In the paper, the label of an image is computed in the step that trains on it. At high learning rates, the
    network may then collapse to a single cluster. Labels that are fixed for an epoch prevent this.
    """
    model = run.model
    best = run.best

    @torch.no_grad()
    def label() -> None:
        confidence, cluster = best(run.embed()).softmax(1).max(1)
        run.labels = torch.where(confidence > model.self_label_threshold, cluster, -1).cpu()

    run.minimize(
        "self-labelling",
        model.self_label_epochs,
        [run.embedding, best],
        model.learning_rate / SLOWER,
        lambda index: self_label_loss(best(run.features(index)), run.labels[index].to(run.losses.device)),
        prepare=label,
    )


STAGES = (pretext, heads_alone, clustering, self_labelling)


def pair_loss(run: Training, heads: Iterable[nn.Module], features: Tensor) -> Tensor:
    """Mean loss [] of heads, from features [2 B, d] of images and, behind them, of a neighbor of each."""
    anchors, others = torch.stack([head(features) for head in heads]).chunk(2, dim=1)
    return scan_loss(anchors, others, run.model.entropy_weight).mean()


@torch.no_grad()
def judge(run: Training, features: Tensor) -> None:
    """Set the losses of all heads from the features [n, d] of all images, averaged over all their neighbors."""
    scores = torch.stack([head(features) for head in run.heads])
    weight = run.model.entropy_weight
    losses = [scan_loss(scores, scores[:, column], weight) for column in run.neighbours.T]
    run.losses.copy_(torch.stack(losses).mean(0))


def nt_xent(views: Tensor, temperature: float) -> Tensor:
    """Contrastive loss of SimCLR (Chen et al. 2020, Eq. 1), from projections [2 B, p] of two views of each image.

    The second views are behind the first ones. The loss of a view is low if, by cosine similarity, the other view
    of its image is its nearest one.
    """
    views = F.normalize(views, dim=1)
    similarity = (views @ views.T / temperature).fill_diagonal_(-torch.inf)
    partner = torch.arange(len(views), device=views.device).roll(len(views) // 2)
    return F.cross_entropy(similarity, partner)


def scan_loss(anchors: Tensor, neighbours: Tensor, entropy_weight: float) -> Tensor:
    """Loss of SCAN (Van Gansbeke et al. 2020, Eq. 2) from scores [..., B, K] of images and of a neighbor of each.

    The loss is ``-mean_i log <p(x_i), p(x'_i)> - entropy_weight * H(mean_i p(x_i))``. The first term is low if
    neighbors are in the same cluster, the second one if all clusters are used. It is computed for each head, the
    leading dimensions.
    """
    anchors = anchors.log_softmax(-1)
    neighbours = neighbours.log_softmax(-1)
    together = (anchors + neighbours).logsumexp(-1)  # log of the inner product, without underflow
    mean = anchors.logsumexp(-2) - math.log(anchors.shape[-2])  # log p, because p log p has no gradient at p = 0
    return -together.mean(-1) + entropy_weight * (mean.exp() * mean).sum(-1)


def self_label_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy [] of scores [B, K] with labels [B], with equal weights for all clusters that occur."""
    sizes = torch.bincount(labels, minlength=scores.shape[1]).to(scores)
    return F.cross_entropy(scores, labels, weight=1 / sizes)  # the weights of the other clusters are not used


def nearest(features: Tensor, k: int) -> Tensor:
    """Indices [n, k] of the k nearest other images by cosine similarity of features [n, d], the nearest first."""
    points = F.normalize(features, dim=1)
    rows = [*blocks(len(points), len(points) * points.element_size(), points.device)]
    neighbours = []
    for row in progress_bar(rows, desc="SCAN: neighbours"):
        similarity = points[row] @ points.T
        similarity.diagonal(row.start).fill_(-torch.inf)
        neighbours.append(similarity.topk(k, dim=1).indices)
    return torch.cat(neighbours)
