"""The four stages of SCAN and their losses: pretext task, heads alone, clustering, self-labeling.

    stage              trains                    loss
    pretext            embedding, projector      NT-Xent of two views of every image (SimCLR, Eq. 1)
    heads_alone        heads                     SCAN's loss of images and neighbors (Eq. 2)
    clustering         embedding, best head      the same, of augmented views (of all heads without heads_alone)
    self_labelling     embedding, best head      cross-entropy with the confident predictions

Neighbors are found after the pretext task. The best head is the one with the lowest loss on all images and
neighbors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

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

    def loss(index: Tensor) -> Tensor:
        projections = run.projector(run.features(index, index))
        return nt_xent(projections, model.temperature)

    run.minimize("pretext", epochs, [run.embedding, run.projector], model.learning_rate, loss)
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
    heads: Sequence[nn.Module] = run.heads
    rate = model.learning_rate
    if model.head_epochs:
        heads = [run.best]
        rate = rate / SLOWER

    run.minimize(
        "clustering",
        model.epochs,
        [run.embedding, *heads],
        rate,
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

    def loss(index: Tensor) -> Tensor:
        scores = best(run.features(index))
        return self_label_loss(scores, run.labels[index].to(run.losses.device))

    run.minimize(
        "self-labelling",
        model.self_label_epochs,
        [run.embedding, best],
        model.learning_rate / SLOWER,
        loss,
        prepare=label,
    )


STAGES = (pretext, heads_alone, clustering, self_labelling)


def pair_loss(run: Training, heads: Iterable[nn.Module], features: Tensor) -> Tensor:
    """Compute the mean loss [] of heads from features [2 B, d] of images and then of a neighbor of each."""
    scores = torch.stack([head(features) for head in heads])  # [heads, 2 B, K]
    anchors, neighbours = scores.chunk(2, dim=1)
    return scan_loss(anchors, neighbours, run.model.entropy_weight).mean()


@torch.no_grad()
def judge(run: Training, features: Tensor) -> None:
    """Set the losses of all heads from the features [n, d] of all images, averaged over all their neighbors."""
    scores = torch.stack([head(features) for head in run.heads])
    weight = run.model.entropy_weight
    losses = [scan_loss(scores, scores[:, column], weight) for column in run.neighbours.T]
    run.losses.copy_(torch.stack(losses).mean(0))


def nt_xent(views: Tensor, temperature: float) -> Tensor:
    """Compute SimCLR's loss (Chen et al. 2020, Eq. 1) from projections [2 B, p] of two views of each image.

    The second views follow the first ones. The loss of a view is low if, by cosine similarity, the other view of
    its image is its nearest one: it is the mean over the views i, with the other view j of the same image, of
    ``-log(exp(cos_ij / temperature) / sum_(k != i) exp(cos_ik / temperature))``.
    """
    views = F.normalize(views, dim=1)
    similarity = views @ views.T / temperature
    similarity = similarity.fill_diagonal_(-torch.inf)  # without the view itself
    partner = torch.arange(len(views), device=views.device).roll(len(views) // 2)
    return F.cross_entropy(similarity, partner)


def scan_loss(anchors: Tensor, neighbours: Tensor, entropy_weight: float) -> Tensor:
    """Compute SCAN's loss (Van Gansbeke et al. 2020, Eq. 2) from scores [..., B, K] of images and their neighbors.

    The loss is ``-mean_i log <p(x_i), p(x'_i)> - entropy_weight * H(mean_i p(x_i))``. The first term is low if
    neighbors are in the same cluster, the second one if all clusters are used. It is computed for each head, the
    leading dimensions.
    """
    anchors = anchors.log_softmax(-1)
    neighbours = neighbours.log_softmax(-1)
    log_agreement = (anchors + neighbours).logsumexp(-1)  # log of the inner product, without underflow
    log_mean = anchors.logsumexp(-2) - math.log(anchors.shape[-2])  # p log p has no gradient at p = 0
    negative_entropy = (log_mean.exp() * log_mean).sum(-1)
    return -log_agreement.mean(-1) + entropy_weight * negative_entropy


def self_label_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """Compute the cross-entropy [] of scores [B, K] and labels [B], with equal weights of the clusters."""
    sizes = torch.bincount(labels, minlength=scores.shape[1]).to(scores)
    return F.cross_entropy(scores, labels, weight=1 / sizes)  # the weights of the other clusters are not used


def nearest(features: Tensor, k: int) -> Tensor:
    """Find the k nearest other images [n, k] by cosine similarity of features [n, d], the nearest first."""
    points = F.normalize(features, dim=1)
    bytes_per_row = len(points) * points.element_size()
    blocks_of_rows = [*blocks(len(points), bytes_per_row, points.device)]
    neighbours = []
    for rows in progress_bar(blocks_of_rows, desc="SCAN: neighbours"):
        similarity = points[rows] @ points.T
        similarity.diagonal(rows.start).fill_(-torch.inf)  # of the images with themselves
        neighbours.append(similarity.topk(k, dim=1).indices)
    return torch.cat(neighbours)
