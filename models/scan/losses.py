"""What SCAN minimises: one loss for each of its three stages."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["nt_xent", "scan_loss", "self_label_loss"]


def nt_xent(first: Tensor, second: Tensor, temperature: float = 0.5) -> Tensor:
    """Contrastive loss of SimCLR: each view must find the other view of its image among all other views.

    Parameters
    ----------
    first, second : Tensor [B, p]
        Projections of two augmented views of the same B >= 2 images; only their directions count.
    temperature : float
        Above 0. The lower, the more the nearest wrong views count.

    Returns
    -------
    Tensor []
        Mean cross-entropy, in nats, over the 2 B views.

    References
    ----------
    T. Chen et al.: "A Simple Framework for Contrastive Learning of Visual Representations", ICML 2020, Eq. 1.
    """
    views = F.normalize(torch.cat([first, second]), dim=1)
    n = len(first)
    similarity = (views @ views.T) / temperature
    similarity = similarity.masked_fill(torch.eye(2 * n, dtype=torch.bool, device=views.device), -torch.inf)
    partner = torch.arange(2 * n, device=views.device).roll(n)
    return F.cross_entropy(similarity, partner)


def scan_loss(anchors: Tensor, neighbours: Tensor, entropy_weight: float = 5.0) -> Tensor:
    """Loss of SCAN: neighbours in one cluster, images in all clusters.

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

    References
    ----------
    W. Van Gansbeke et al.: "SCAN: Learning to Classify Images without Labels", ECCV 2020, Eq. 2.
    """
    anchors, neighbours = anchors.log_softmax(-1), neighbours.log_softmax(-1)
    together = (anchors + neighbours).logsumexp(-1)  # log of the inner product; finite where it underflows
    return -together.mean(-1) - entropy_weight * _entropy_of_mean(anchors)


def scan_loss_of_all(scores: Tensor, neighbours: Tensor, entropy_weight: float) -> Tensor:
    """Loss of SCAN over all images and all their neighbours at once.

    Parameters
    ----------
    scores : Tensor [..., n, K]
    neighbours : Tensor [n, k]
        Indices into the n images.
    entropy_weight : float

    Returns
    -------
    Tensor [...]
    """
    logs = scores.log_softmax(-1)
    together = [(logs + logs[..., column, :]).logsumexp(-1).mean(-1) for column in neighbours.unbind(1)]
    return -torch.stack(together).mean(0) - entropy_weight * _entropy_of_mean(logs)


def self_label_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy in which every cluster that occurs counts the same, however many images it has.

    Parameters
    ----------
    scores : Tensor [B, K]
        Before the softmax.
    labels : Tensor [B]
        The clusters that the images were confidently assigned to; B >= 1.

    Returns
    -------
    Tensor []
        In nats.
    """
    sizes = torch.bincount(labels, minlength=scores.shape[1])
    return F.cross_entropy(scores, labels, weight=sizes.clamp(min=1).to(scores.dtype).reciprocal())


def _entropy_of_mean(logs: Tensor) -> Tensor:
    """Entropy [...] of mean probabilities, from the logarithms [..., B, K] of all."""
    mean = logs.logsumexp(-2) - math.log(logs.shape[-2])  # p log p has no finite slope at p = 0; a logarithm has
    return -(mean.exp() * mean).sum(-1)
