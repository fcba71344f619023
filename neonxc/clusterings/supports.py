"""Clusters as sets of weighted supports; a kernel k-means of given clusters, whose members are its supports."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from neonxc.common.memory import blocks
from neonxc.common.processes import ALONE, Ranks

MOST = 3000  # maximum number of supports in total, to which the cost of an explanation is proportional
LEAST = 10  # minimum number of supports of a cluster with more points, for any number of clusters
ROUNDS = 10  # iterations of k-means within clusters with more points than supports
SAMPLE = 1000  # number of points on which gamma is chosen
ROUNDING = 1e-9  # fraction of the weight of a support that is left by rounding
GAMMAS = range(-2, 20)  # exponents of two of gamma, in units of 1 / mean squared distance


@dataclass(frozen=True)
class Supports:
    """Supports of every cluster, whose distance is their soft minimum (NEON paper, Eqs. 6 and 7)."""

    points: Tensor  # [K, p, d]
    log_weights: Tensor  # [K, p] of float64; -inf for a support that is not in use
    gamma: float  # stiffness, in units of 1 / squared distance; infinite for the hard minimum

    def logits(self, x: Tensor) -> Tensor:
        """``log w - gamma |x - u|^2``, [n, K, p]; negative squared distances where gamma is infinite."""
        far = squared_distances(x, self.points.flatten(0, 1)).view(len(x), *self.log_weights.shape)
        if math.isinf(self.gamma):
            return (-far).masked_fill(self.log_weights.isneginf(), -torch.inf)
        if self.gamma * float(far.mean()) < 1:  # `pooled` divides by gamma, rounding errors included
            far = far.double()
        return self.log_weights.to(far) - self.gamma * far

    def own_logits(self, x: Tensor, labels: Tensor) -> Tensor:
        """:meth:`logits` of the supports of each point's own cluster, [n, p]."""
        parts = []
        members = by_cluster(labels, len(self.points))
        for points, log_weights, rows in zip(self.points, self.log_weights, members, strict=True):
            parts.append(Supports(points[None], log_weights[None], self.gamma).logits(x[rows])[:, 0])
        logits = torch.cat(parts)
        return torch.empty_like(logits).index_copy_(0, torch.cat(members), logits)

    def pooled(self, logits: Tensor) -> Tensor:
        """Distances D [...] of clusters, from the logits [..., p] of their supports."""
        return -logits.amax(-1) if math.isinf(self.gamma) else -logits.logsumexp(-1) / self.gamma

    def shares(self, logits: Tensor) -> Tensor:
        """Shares [..., p] of the supports in their cluster's distance, from their logits [..., p]."""
        if math.isfinite(self.gamma):
            return logits.softmax(-1)
        return torch.zeros_like(logits).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)

    def distances(self, x: Tensor) -> Tensor:
        """Distances D of points to every cluster, [n, K]."""
        far = x.new_empty(len(x), len(self.points))
        for rows in self.parts(x):
            far[rows] = self.pooled(self.logits(x[rows])).to(x)
        return far

    def left_out(self, x: Tensor, labels: Tensor, weight: Tensor | None = None) -> Tensor:
        """Distances D [n, K] of points of clusters as if they were new: each is removed from its nearest support.

        The distance from a cluster that has no other points is infinite. Points may have weights [n], which are
        removed with them.
        """
        weight = x.new_ones(len(x), dtype=torch.float64) if weight is None else weight
        far = self.distances(x)
        for cluster, rows in enumerate(by_cluster(labels, len(self.points))):
            one = Supports(self.points[cluster, None], self.log_weights[cluster, None], self.gamma)
            for part in one.parts(rows):
                some = rows[part]
                logits = one.logits(x[some])[:, 0]
                mass = one.log_weights[0].exp() * weight[rows].sum()
                near = squared_distances(x[some], one.points[0]).masked_fill(mass == 0, math.inf)
                own = near.argmin(1, keepdim=True)
                left = 1 - weight[some, None] / mass[own]
                left = left.where(left > ROUNDING, 0.0)  # of one point, rounding leaves some
                logits.scatter_add_(1, own, left.log().to(logits))
                far[some, cluster] = one.pooled(logits).to(far)
        return far

    def flat(self) -> tuple[Tensor, Tensor, Tensor]:
        """Points [M, d], clusters [M] and log weights [M] of the supports in use."""
        used = self.log_weights.isfinite()
        return self.points[used], used.nonzero()[:, 0], self.log_weights[used]

    def parts(self, x: Tensor, clusters: int | None = None) -> list[slice]:
        """Points whose logits, of all clusters or of some, fit into the memory budget."""
        k, p = self.log_weights.shape
        return blocks(len(x), 24 * (clusters or k) * p, x.device)  # three arrays of float64


def uniform(points: Tensor, gamma: float) -> Supports:
    """Supports [K, p, d] of equal weights."""
    k, p, _ = points.shape
    return Supports(points, points.new_full((k, p), -math.log(p), dtype=torch.float64), gamma)


def squared_distances(x: Tensor, points: Tensor) -> Tensor:
    """Squared Euclidean distances [n, m]; exact to rounding where points are near the origin."""
    lengths = torch.addmm(points.square().sum(1), x, points.T, alpha=-2)
    return lengths.add_(x.square().sum(1, keepdim=True)).clamp_(min=0)


def by_cluster(labels: Tensor, k: int) -> tuple[Tensor, ...]:
    """Indices of the points of each of k clusters."""
    return labels.argsort(stable=True).split(torch.bincount(labels, minlength=k).tolist())


def check_spread(
    x: Tensor, names: Sequence[str] | None = None, fitting: bool = True, ranks: Ranks = ALONE
) -> None:
    """Refuse centred points whose squared distances overflow or underflow.

    Only the points of a fit have to lie apart; others may all be close to the mean. With `ranks` the points are
    those of all of them.
    """
    kind = torch.finfo(x.dtype)
    n = int(ranks.sum(torch.tensor(x.numel())))
    if not n:
        return
    widths = torch.cat([x.new_zeros(1, x.shape[1]), x.abs().nan_to_num(nan=math.inf, posinf=math.inf)]).amax(0)
    width, column = (value.item() for value in ranks.max(widths).max(0))
    over = not width < math.sqrt(kind.max / (4 * n))  # as even their sum must not overflow
    if over or (fitting and 0 < width < math.sqrt(kind.tiny / kind.eps)):
        flow = "overflow" if over else "underflow"
        place = column if names is None else repr(names[int(column)])
        raise ValueError(
            f"squared distances {flow} in {kind.dtype}: points of X lie up to {width:.3g} from their mean "
            f"in column {place}; rescale X"
        )


def labelled(x: Tensor, labels: Tensor, k: int, weight: Tensor | None = None) -> Supports:
    """Return the supports of clusters 0 ... k-1, with weights and gamma; nothing is drawn at random.

    The points of a cluster are its supports. If there are too many, the supports are the means of a k-means within
    the cluster, weighted by their numbers of points. Gamma is the smallest value whose leave-one-out loss is
    within one standard error of the lowest loss: of two kernels that fit about equally well, the broader one gives
    explanations that depend less on single points.

    The k-means starts from the first points, and gamma is chosen on the first points; the points should therefore
    be in an arbitrary order.

    Points may have weights [n] > 0. Those of the supports are then the sums of the weights of their points, and a
    point is left out with all of its weight: leaving out one of its repetitions would leave it its own support.
    """
    most = max(LEAST, MOST // k)
    weights = torch.ones(len(x), dtype=torch.float64, device=x.device) if weight is None else weight
    width = min(most, int(torch.bincount(labels, minlength=k).amax()))
    points = x.new_zeros(k, width, x.shape[1])
    mass = torch.zeros(k, width, dtype=torch.float64, device=x.device)
    n_points = torch.zeros_like(mass)
    own = torch.empty_like(labels)
    for cluster, rows in enumerate(by_cluster(labels, k)):
        means, nearest = _condensed(x[rows], width, weights[rows])
        points[cluster, : len(means)] = means
        mass[cluster] = torch.bincount(nearest, weights[rows], minlength=width)
        n_points[cluster] = torch.bincount(nearest, minlength=width)
        own[rows] = nearest
    some = slice(SAMPLE)
    gamma = _gamma(
        x[some], labels[some], own[some], points, mass, n_points, None if weight is None else weight[some]
    )
    return Supports(points, (mass / mass.sum(1, keepdim=True)).log(), gamma)


def _condensed(x: Tensor, most: int, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return at most `most` means [p, d] of points, and the index of each point's mean; few points are kept.

    The points have weights [n].
    """
    means = x[:most]
    nearest = torch.arange(len(x), device=x.device)
    if len(x) <= most:
        return means, nearest
    for _ in range(ROUNDS):
        nearest = squared_distances(x, means).argmin(1)
        mass = torch.bincount(nearest, weight, minlength=most)[:, None]
        total = torch.zeros_like(means).index_add_(0, nearest, x * weight[:, None].to(x))
        means = torch.where(mass > 0, total / mass.where(mass > 0, 1.0).to(x), means)
    return means, nearest


def _gamma(
    x: Tensor, labels: Tensor, own: Tensor, points: Tensor, mass: Tensor, n_points: Tensor, weight: Tensor | None
) -> float:
    """Return the smallest gamma whose leave-one-out loss is within one standard error of the lowest.

    The loss of a point is the cross entropy of ``softmax(-gamma D)`` after the point has been removed from its
    support `own` [n]. Between two values of gamma, the loss is interpolated. Supports have the sum of the weights
    `mass` [K, p] and the number `n_points` [K, p] of their points; the points here may have weights [n].
    """
    far = -Supports(points, mass.log(), math.inf).logits(x)
    removed = torch.ones_like(mass[:1, 0]) if weight is None else weight
    if weight is None:
        unit = 1 / (float(far[far.isfinite()].mean()) or 1.0)
    else:
        unit = 1 / (_mean_distance(far, mass / n_points.clamp(min=1), weight) or 1.0)
    every = torch.arange(len(x), device=x.device)
    size = mass.sum(1)
    single = n_points[labels, own] == 1
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
        left = sums[every, labels] - (-gamma * itself).exp() * removed / size[labels] * ~single
        sums[every, labels] = left.clamp(min=1e-30) * size[labels] / (size[labels] - removed)
        logits = (sums.log() - gamma * near)[told]
        return cross_entropy(logits, labels[told], reduction="none")

    gammas = [unit * 2.0**power for power in GAMMAS]
    tried = torch.stack([losses(gamma) for gamma in gammas])
    means = tried.mean(1)
    deviations = tried.std(1, correction=0)
    if weight is not None:
        fraction = weight[told] / weight[told].sum()
        means = tried @ fraction
        deviations = ((tried - means[:, None]).square() @ fraction).sqrt()
    best = int(means.argmin())
    bound = means[best] + deviations[best] / math.sqrt(tried.shape[1])
    at = int((means <= bound).nonzero()[0])
    if at == 0:
        return gammas[0]
    return gammas[at] * 2.0 ** -float((bound - means[at]) / (means[at - 1] - means[at]))


def _mean_distance(far: Tensor, of_supports: Tensor, weight: Tensor) -> float:
    """Mean of squared distances [n, K, p] of points with weights [n] from supports with weights [K, p]."""
    weights = weight[:, None, None] * of_supports
    there = far.isfinite()
    return float((far[there] * weights[there]).sum() / weights[there].sum())
