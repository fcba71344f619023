"""Kernel k-means of given clusters, whose members are its supports."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from neonxc.clusterings.supports import Supports, by_cluster, squared_distances

MOST = 3000  # maximum number of supports in total, to which the cost of an explanation is proportional
LEAST = 10  # minimum number of supports of a cluster with more points, for any number of clusters
ROUNDS = 10  # iterations of k-means within clusters with more points than supports
SAMPLE = 1000  # number of points on which gamma is chosen
GAMMAS = range(-2, 20)  # exponents of two of gamma, in units of 1 / mean squared distance


def labelled(x: Tensor, labels: Tensor, k: int) -> Supports:
    """Return the supports of clusters 0 ... k-1, with weights and gamma; nothing is drawn at random.

    The points of a cluster are its supports. If there are too many, the supports are the means of a k-means within
    the cluster, weighted by their numbers of points. Gamma is the smallest value whose leave-one-out loss is
    within one standard error of the lowest loss: of two kernels that fit about equally well, the broader one gives
    explanations that depend less on single points.

    The k-means starts from the first points, and gamma is chosen on the first points; the points should therefore
    be in an arbitrary order.
    """
    most = max(LEAST, MOST // k)
    width = min(most, int(torch.bincount(labels, minlength=k).amax()))
    points = x.new_zeros(k, width, x.shape[1])
    mass = torch.zeros(k, width, dtype=torch.float64, device=x.device)
    own = torch.empty_like(labels)
    for cluster, rows in enumerate(by_cluster(labels, k)):
        means, nearest = _condensed(x[rows], width)
        points[cluster, : len(means)] = means
        mass[cluster] = torch.bincount(nearest, minlength=width)
        own[rows] = nearest
    some = slice(SAMPLE)
    gamma = _gamma(x[some], labels[some], own[some], points, mass)
    return Supports(points, (mass / mass.sum(1, keepdim=True)).log(), gamma)


def _condensed(x: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Return at most `most` means [p, d] of points, and the index of each point's mean; few points are kept."""
    means, nearest = x[:most], torch.arange(len(x), device=x.device)
    if len(x) <= most:
        return means, nearest
    for _ in range(ROUNDS):
        nearest = squared_distances(x, means).argmin(1)
        mass = torch.bincount(nearest, minlength=most)[:, None]
        total = torch.zeros_like(means).index_add_(0, nearest, x)
        means = torch.where(mass > 0, total / mass.clamp(min=1), means)
    return means, nearest


def _gamma(x: Tensor, labels: Tensor, own: Tensor, points: Tensor, mass: Tensor) -> float:
    """Return the smallest gamma whose leave-one-out loss is within one standard error of the lowest.

    The loss of a point is the cross entropy of ``softmax(-gamma D)`` after the point has been removed from its
    support `own` [n]. Between two values of gamma, the loss is interpolated.
    """
    far = -Supports(points, mass.log(), math.inf).logits(x)
    unit = 1 / (float(far[far.isfinite()].mean()) or 1.0)
    every = torch.arange(len(x), device=x.device)
    size = mass.sum(1)
    single = mass[labels, own] == 1
    far[every[single], labels[single], own[single]] = math.inf
    near = far.amin(2)
    told = near[every, labels].isfinite()  # the other points are alone in their cluster
    if not bool(told.any()):
        return unit
    beyond = (far - near[..., None]).nan_to_num(nan=math.inf).float()
    shares = (mass / size[:, None]).float()
    itself = beyond[every, labels, own]

    def losses(gamma: float) -> Tensor:
        kernel = (beyond * -gamma).exp_()
        sums = torch.einsum("nkp,kp->nk", kernel, shares).double()
        left = sums[every, labels] - (-gamma * itself).exp() / size[labels] * ~single
        sums[every, labels] = left.clamp(min=1e-30) * size[labels] / (size[labels] - 1)
        logits = (sums.log() - gamma * near)[told]
        return cross_entropy(logits, labels[told], reduction="none")

    gammas = [unit * 2.0**power for power in GAMMAS]
    tried = torch.stack([losses(gamma) for gamma in gammas])
    means = tried.mean(1)
    best = int(means.argmin())
    bound = means[best] + tried[best].std(correction=0) / math.sqrt(tried.shape[1])
    at = int((means <= bound).nonzero()[0])
    if at == 0:
        return gammas[0]
    return gammas[at] * 2.0 ** -float((bound - means[at]) / (means[at - 1] - means[at]))
