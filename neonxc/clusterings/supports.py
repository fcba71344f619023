"""Clusters as sets of weighted supports; a kernel k-means of given clusters, whose members are its supports.

A cluster k has supports u_kj with weights w_kj, which sum to 1, and all clusters have one stiffness gamma:

    logits      l_kj(x) = log w_kj - gamma |x - u_kj|^2
    distance    D_k(x)  = -1 / gamma log sum_j exp l_kj(x)    the soft minimum (NEON paper, Eqs. 6 and 7)
    shares      p_kj(x) = softmax_j l_kj(x)                   of the supports in their cluster's distance

For an infinite gamma, the weights have no influence, and D_k is the smallest of the squared distances.

Given clusters (:func:`labelled`) determine u, w and gamma, and nothing is drawn at random:

    u, w        the points of the cluster with their weights; of too many points, the means of a k-means within the
                cluster, with the weights of their points
    losses      L_i(gamma) = -log softmax(-gamma D(x_i))_y for a point i of cluster y, whose weight m_i is removed:
                sum_j exp l_yj - (m_i / M_y) exp(-gamma |x_i - u_own|^2) replaces the sum, by M_y / (M_y - m_i),
                with the weight M_y of the cluster, and the support u_own that stands for the point
    gamma       the smallest one whose mean loss is within one standard error of the lowest
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from neonxc.common.memory import blocks
from neonxc.common.processes import ALONE, Ranks
from neonxc.common.sizes import GAMMA_ROWS, MAX_SUPPORTS

LEAST = 10  # minimum number of supports of a cluster with more points, for any number of clusters
ROUNDS = 10  # iterations of k-means within clusters with more points than supports
ROUNDING = 1e-9  # fraction of the weight of a support that is left by rounding
NEGLIGIBLE = -64.0
"""Exponents below it add nothing to a sum of float32 beside exp(0).

Below -87, where float32 has no normal numbers, exponentials and products take 40 times as long."""
GAMMAS = range(-2, 20)  # exponents of two of gamma, in units of 1 / mean squared distance


@dataclass(frozen=True)
class Supports:
    """Supports of every cluster, whose distance is their soft minimum (NEON paper, Eqs. 6 and 7)."""

    points: Tensor  # [K, p, d]
    log_weights: Tensor  # [K, p] of float64; -inf for a support that is not in use
    gamma: float  # stiffness, in units of 1 / squared distance; infinite for the hard minimum

    def logits(self, x: Tensor) -> Tensor:
        """Compute ``log w - gamma |x - u|^2``, [n, K, p]; negative squared distances where gamma is infinite."""
        distances = squared_distances(x, self.points.flatten(0, 1)).view(len(x), *self.log_weights.shape)
        if math.isinf(self.gamma):
            return (-distances).masked_fill(self.log_weights.isneginf(), -torch.inf)
        if self.gamma * float(distances.mean()) < 1:  # `pooled` divides by gamma, rounding errors included
            distances = distances.double()
        return self.log_weights.to(distances) - self.gamma * distances

    def own_logits(self, x: Tensor, labels: Tensor) -> Tensor:
        """Compute the :meth:`logits` of the supports of the cluster that each point belongs to, [n, p]."""
        members = by_cluster(labels, len(self.points))
        logits_by_cluster = []
        for cluster, rows in enumerate(members):
            logits_by_cluster.append(self._of_cluster(cluster).logits(x[rows])[:, 0])
        logits = torch.cat(logits_by_cluster)
        return torch.empty_like(logits).index_copy_(0, torch.cat(members), logits)

    def pooled(self, logits: Tensor) -> Tensor:
        """Compute the distances D [...] of clusters from the logits [..., p] of their supports."""
        if math.isinf(self.gamma):
            return -logits.amax(-1)
        return -logits.logsumexp(-1) / self.gamma

    def shares(self, logits: Tensor) -> Tensor:
        """Compute the shares [..., p] of the supports in their cluster's distance from their logits [..., p]."""
        if math.isfinite(self.gamma):
            return logits.softmax(-1)
        return torch.zeros_like(logits).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)

    def distances(self, x: Tensor) -> Tensor:
        """Compute the distances D of points from every cluster, [n, K]."""
        distances = x.new_empty(len(x), len(self.points))
        for rows in self.parts(x):
            distances[rows] = self.pooled(self.logits(x[rows])).to(x)
        return distances

    def left_out(self, x: Tensor, labels: Tensor, weight: Tensor | None = None) -> Tensor:
        """Compute the distances D [n, K] of points of clusters as if they were new.

        Each point is removed from its nearest support. The distance from a cluster that has no other points is
        infinite. Points may have weights [n], which are removed with them.
        """
        if weight is None:
            weight = x.new_ones(len(x), dtype=torch.float64)
        distances = self.distances(x)
        for cluster, members in enumerate(by_cluster(labels, len(self.points))):
            supports = self._of_cluster(cluster)
            mass = supports.log_weights[0].exp() * weight[members].sum()  # [p]
            for block in supports.parts(members):
                rows = members[block]
                squared = squared_distances(x[rows], supports.points[0])
                nearest = squared.masked_fill(mass == 0, math.inf).argmin(1, keepdim=True)

                # the logit of the nearest support loses the point's fraction of its mass
                retained = 1 - weight[rows, None] / mass[nearest]
                retained = retained.where(retained > ROUNDING, 0.0)  # rounding leaves some of a single point
                logits = supports.logits(x[rows])[:, 0]
                logits.scatter_add_(1, nearest, retained.log().to(logits))
                distances[rows, cluster] = supports.pooled(logits).to(distances)
        return distances

    def flat(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the points [M, d], clusters [M] and log weights [M] of the supports in use."""
        used = self.log_weights.isfinite()
        return self.points[used], used.nonzero()[:, 0], self.log_weights[used]

    def parts(self, x: Tensor, clusters: int | None = None) -> list[slice]:
        """Divide points into blocks whose logits, of all clusters or of a number of them, fit into memory."""
        k, p = self.log_weights.shape
        bytes_per_point = 24 * (clusters or k) * p  # three arrays of float64
        return blocks(len(x), bytes_per_point, x.device)

    def _of_cluster(self, cluster: int) -> Supports:
        """Return the supports of one cluster alone."""
        return Supports(self.points[cluster, None], self.log_weights[cluster, None], self.gamma)


def uniform(points: Tensor, gamma: float) -> Supports:
    """Make supports [K, p, d] of equal weights."""
    k, p, _ = points.shape
    log_weights = points.new_full((k, p), -math.log(p), dtype=torch.float64)
    return Supports(points, log_weights, gamma)


def squared_distances(x: Tensor, points: Tensor) -> Tensor:
    """Compute squared Euclidean distances [n, m]; exact to rounding where points are near the origin."""
    # |u|^2 - 2 x'u + |x|^2
    distances = torch.addmm(points.square().sum(1), x, points.T, alpha=-2)
    return distances.add_(x.square().sum(1, keepdim=True)).clamp_(min=0)


def by_cluster(labels: Tensor, k: int) -> tuple[Tensor, ...]:
    """Return the indices of the points of each of k clusters."""
    sizes = torch.bincount(labels, minlength=k)
    return labels.argsort(stable=True).split(sizes.tolist())


def check_spread(
    x: Tensor, names: Sequence[str] | None = None, fitting: bool = True, ranks: Ranks = ALONE
) -> None:
    """Refuse centred points whose squared distances overflow or underflow.

    Only the points of a fit have to lie apart; others may all be close to the mean. With `ranks` the points are
    those of all of them.
    """
    n_values = int(ranks.sum(torch.tensor(x.numel())))
    if not n_values:
        return
    magnitudes = x.abs().nan_to_num(nan=math.inf, posinf=math.inf)
    # a rank may have no rows
    width_of_column = torch.cat([x.new_zeros(1, x.shape[1]), magnitudes]).amax(0)
    width, column = (value.item() for value in ranks.max(width_of_column).max(0))

    limits = torch.finfo(x.dtype)
    overflows = not width < math.sqrt(limits.max / (4 * n_values))  # as even their sum must not overflow
    underflows = fitting and 0 < width < math.sqrt(limits.tiny / limits.eps)
    if overflows or underflows:
        flow = "overflow" if overflows else "underflow"
        column_name = column if names is None else repr(names[int(column)])
        raise ValueError(
            f"squared distances {flow} in {limits.dtype}: points of X lie up to {width:.3g} from their mean "
            f"in column {column_name}; rescale X"
        )


def labelled(x: Tensor, labels: Tensor, k: int, weight: Tensor | None = None) -> Supports:
    """Find the supports of clusters 0 ... k-1, their weights, and gamma.

    The points of a cluster are its supports. If there are too many, the supports are the means of a k-means within
    the cluster, weighted by their numbers of points. Gamma is the smallest value whose leave-one-out loss is
    within one standard error of the lowest loss: of two kernels that fit about equally well, the broader one gives
    explanations that depend less on single points.

    The k-means starts from the first points, and gamma is chosen on the first points; the points should therefore
    be in an arbitrary order.

    Points may have weights [n] > 0. Those of the supports are then the sums of the weights of their points, and a
    point is left out with all of its weight: leaving out one of its repetitions would leave it its own support.
    """
    weights = weight
    if weights is None:
        weights = torch.ones(len(x), dtype=torch.float64, device=x.device)
    sizes = torch.bincount(labels, minlength=k)
    n_supports = min(max(LEAST, MAX_SUPPORTS // k), int(sizes.amax()))

    points = x.new_zeros(k, n_supports, x.shape[1])
    mass = torch.zeros(k, n_supports, dtype=torch.float64, device=x.device)
    n_points = torch.zeros_like(mass)
    assigned = torch.empty_like(labels)  # [n], the support in its cluster that stands for a point
    for cluster, rows in enumerate(by_cluster(labels, k)):
        means, nearest = _condensed(x[rows], n_supports, weights[rows])
        points[cluster, : len(means)] = means
        mass[cluster] = torch.bincount(nearest, weights[rows], minlength=n_supports)
        n_points[cluster] = torch.bincount(nearest, minlength=n_supports)
        assigned[rows] = nearest

    first = slice(GAMMA_ROWS)
    first_weight = None if weight is None else weight[first]
    gamma = _gamma(x[first], labels[first], assigned[first], points, mass, n_points, first_weight)
    return Supports(points, (mass / mass.sum(1, keepdim=True)).log(), gamma)


def _condensed(x: Tensor, n_means: int, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Find at most `n_means` means [p, d] of points with weights [n], and the index of each point's mean.

    Points that are no more than that are their own means.
    """
    means = x[:n_means]
    nearest = torch.arange(len(x), device=x.device)
    if len(x) <= n_means:
        return means, nearest
    for _ in range(ROUNDS):
        nearest = squared_distances(x, means).argmin(1)
        mass = torch.bincount(nearest, weight, minlength=n_means)[:, None]
        total = torch.zeros_like(means).index_add_(0, nearest, x * weight[:, None].to(x))
        # a mean without points stays where it is
        means = torch.where(mass > 0, total / mass.where(mass > 0, 1.0).to(x), means)
    return means, nearest


def _gamma(
    x: Tensor,
    labels: Tensor,
    assigned: Tensor,
    points: Tensor,
    mass: Tensor,
    n_points: Tensor,
    weight: Tensor | None,
) -> float:
    """Find the smallest gamma whose leave-one-out loss is within one standard error of the lowest.

    The module's docstring defines the losses. Between two values of gamma, the loss is interpolated.

    Parameters
    ----------
    x : Tensor [n, d]
    labels : Tensor [n]
    assigned : Tensor [n]
        The support in its cluster that stands for a point, from which it is removed.
    points : Tensor [K, p, d]
        The supports.
    mass, n_points : Tensor [K, p]
        Sum of the weights, and number, of the points for which a support stands.
    weight : Tensor [n] or None
        Weights m of the points x.
    """
    distances = -Supports(points, mass.log(), math.inf).logits(x)  # [n, K, p], infinite for unused supports
    if weight is None:
        removed = torch.ones_like(mass[:1, 0])
        mean_distance = float(distances[distances.isfinite()].mean())
    else:
        removed = weight
        mean_distance = _mean_distance(distances, mass / n_points.clamp(min=1), weight)
    unit = 1 / (mean_distance or 1.0)

    rows = torch.arange(len(x), device=x.device)
    is_single = n_points[labels, assigned] == 1  # the support is the point itself
    distances[rows[is_single], labels[is_single], assigned[is_single]] = math.inf
    nearest = distances.amin(2)
    has_others = nearest[rows, labels].isfinite()  # the rest are alone in their cluster
    if not bool(has_others.any()):
        return unit

    # relative to the nearest support, whose kernel is then 1
    excess = (distances - nearest[..., None]).nan_to_num(nan=math.inf).float()
    excess_of_assigned = excess[rows, labels, assigned]
    cluster_mass = mass.sum(1)  # [K], M_k
    own_mass = cluster_mass[labels]  # [n], M_y
    weights = (mass / cluster_mass[:, None]).float()  # [K, p], w_kj

    def losses(gamma: float) -> Tensor:
        kernel = (excess * -gamma).clamp_(min=NEGLIGIBLE).exp_()
        sums = torch.einsum("nkp,kp->nk", kernel, weights).double()
        # a support that is the point itself was taken out above
        of_point = (-gamma * excess_of_assigned).exp() * removed / own_mass * ~is_single
        left = sums[rows, labels] - of_point
        sums[rows, labels] = left.clamp(min=1e-30) * own_mass / (own_mass - removed)
        logits = (sums.log() - gamma * nearest)[has_others]  # -gamma D_k
        return cross_entropy(logits, labels[has_others], reduction="none")

    gammas = [unit * 2.0**power for power in GAMMAS]
    losses_of_gammas = torch.stack([losses(gamma) for gamma in gammas])
    weight_of_losses = None if weight is None else weight[has_others]
    return _adequate(gammas, losses_of_gammas, weight_of_losses)


def _adequate(gammas: list[float], losses: Tensor, weight: Tensor | None) -> float:
    """Return the smallest gamma whose mean loss is within one standard error of the lowest.

    Parameters
    ----------
    gammas : list of float, ascending
    losses : Tensor [gammas, n]
    weight : Tensor [n] or None
        Weights of the points.
    """
    if weight is None:
        means = losses.mean(1)
        deviations = losses.std(1, correction=0)
    else:
        fractions = weight / weight.sum()
        means = losses @ fractions
        deviations = ((losses - means[:, None]).square() @ fractions).sqrt()

    best = int(means.argmin())
    bound = means[best] + deviations[best] / math.sqrt(losses.shape[1])
    first = int((means <= bound).nonzero()[0])
    if first == 0:
        return gammas[0]
    # between the first gamma within the bound and the one before it, log gamma is linear in the loss
    fraction = float((bound - means[first]) / (means[first - 1] - means[first]))
    return gammas[first] * 2.0**-fraction


def _mean_distance(distances: Tensor, support_weights: Tensor, weight: Tensor) -> float:
    """Average squared distances [n, K, p] of points with weights [n] from supports with weights [K, p]."""
    weights = weight[:, None, None] * support_weights
    is_used = distances.isfinite()
    return float((distances[is_used] * weights[is_used]).sum() / weights[is_used].sum())
