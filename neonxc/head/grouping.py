"""Grouping layers: one value per cluster or test of a tree from neurons.

The value of a cluster or test g is one of::

    hard minimum         E_k = min of a_m over the neurons m of cluster k
    soft minimum         E_k = -1/gamma log sum_m w_m exp(-gamma a_m), where the w_m of a cluster sum to 1
                         (LME^{-gamma}, NEON paper, Eq. 7)
    union of intervals   E_t = max over the intervals of test t of the min over the edges of an interval of a_m

A neuron's share in a value is the value's derivative by the neuron; neurons that tie in a minimum share equally.
"""

from __future__ import annotations

import torch
from torch import Tensor

from neonxc.common.registry import storable
from neonxc.head.detection import Stage


class Grouping(Stage):
    """Base class of the layers that compute values [N, G] from neurons [N, M]."""

    groups: Tensor
    """The value [M] that each neuron belongs to."""
    n_groups: int
    """Number of values G."""

    @property
    def mixes(self) -> bool:
        """Whether a value depends on several neurons at once."""
        return False


@storable
class Minimum(Grouping):
    """The hard or soft minimum over the neurons of each cluster.

    Parameters
    ----------
    groups : Tensor [M] of int64
        Column of the cluster that each neuron belongs to, in ascending order.
    gamma : float, optional
        Stiffness of the soft minimum ``LME^{-gamma}`` (NEON paper, Eq. 7). Default: the hard minimum.
    log_weights : Tensor [M], optional
        Logarithms of the neurons' weights in the soft minimum. Default: equal weights that sum to 1 per cluster.
    """

    PLAIN = ("gamma", "sizes")
    gamma: float | None
    sizes: list[int]
    groups: Tensor
    log_weights: Tensor

    def __init__(self, groups: Tensor, gamma: float | None = None, log_weights: Tensor | None = None) -> None:
        counts = torch.bincount(groups)
        if log_weights is None and gamma is not None:
            log_weights = -counts.double().log()[groups]
        super().__init__(gamma=gamma, sizes=counts.tolist(), groups=groups, log_weights=log_weights)

    @property
    def n_groups(self) -> int:  # type: ignore[override]
        """Number of clusters K."""
        return len(self.sizes)

    @property
    def mixes(self) -> bool:
        """Whether the minimum is soft."""
        return self.gamma is not None

    def forward(self, neurons: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the values [N, K] of the clusters, and the neurons' shares [N, M] in them."""
        if self.gamma is None:
            return group_min(neurons, self.groups, self.n_groups)
        return group_soft_min(neurons, self.sizes, self.gamma, self.log_weights)


@storable
class UnionOfIntervals(Grouping):
    """Tests whether a value lies in a union of intervals.

    The value of an interval is the minimum over the neurons of its edges. The value of a test is the maximum over
    its intervals, so that it is positive inside of one of them.

    Parameters
    ----------
    intervals : Tensor [M] of int64
        The interval that each edge's neuron belongs to.
    tests : Tensor [I] of int64
        The test that each interval belongs to. An interval without edges contains all values.
    n_tests : int
        Number of tests T. A test without intervals contains no value.
    """

    PLAIN = ("n_groups",)
    n_groups: int
    intervals: Tensor
    tests: Tensor
    groups: Tensor

    def __init__(self, intervals: Tensor, tests: Tensor, n_tests: int) -> None:
        super().__init__(n_groups=n_tests, intervals=intervals, tests=tests, groups=tests[intervals])

    def forward(self, neurons: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the values [N, T] of the tests, and the share [N, M] of each neuron in its test's value."""
        interval_values, edge_shares = group_min(neurons, self.intervals, len(self.tests))
        # the maximum is minus the minimum of the negative
        negative, interval_shares = group_min(-interval_values, self.tests, self.n_groups)
        return -negative, edge_shares * interval_shares[:, self.intervals]


def group_min(energy: Tensor, groups: Tensor, n_groups: int) -> tuple[Tensor, Tensor]:
    """Compute the minimum [N, K] over each group of columns and the columns' shares [N, M]; ties are equal."""
    infinite = energy.new_full((energy.shape[0], n_groups), torch.inf)
    minimum = infinite.scatter_reduce(1, groups.expand_as(energy), energy, "amin")
    is_minimum = (energy == minimum[:, groups]).to(energy.dtype)
    n_ties = torch.zeros_like(minimum).index_add(1, groups, is_minimum)
    return minimum, is_minimum / n_ties[:, groups]


def group_soft_min(energy: Tensor, sizes: list[int], gamma: float, log_weights: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the soft minimum ``LME^{-gamma}`` over each group of columns (NEON paper, Eq. 7).

    Parameters
    ----------
    energy : Tensor [N, M]
    sizes : list of int
        Number of columns of each group; groups are contiguous.
    gamma : float
        Stiffness > 0.
    log_weights : Tensor [M]
        Logarithms of the columns' weights, preferably in float64, as they are divided by gamma.

    Returns
    -------
    minima : Tensor [N, K]
    shares : Tensor [N, M]
        The gradients of the minima.
    """
    minima = []
    shares = []
    log_weights_of_groups = log_weights.double().split(sizes)
    for group, logs in zip(energy.split(sizes, dim=1), log_weights_of_groups, strict=True):
        log_total = logs.logsumexp(dim=0)
        minimum = group.amin(dim=1)
        log_weight = (logs - log_total).to(energy)  # of weights that sum to 1
        differences = (group - minimum[:, None]).mul_(-gamma)
        # sum_m w_m (exp(-gamma (a_m - min)) - 1); no matrix product, which autocast would round
        change = (differences.expm1() * log_weight.exp()).sum(dim=1)
        logits = differences + log_weight
        share = logits.softmax(dim=1)

        # log sum_m w_m exp(-gamma (a_m - min)). If all logits are close to 0, log1p avoids the rounding error of
        # the logarithm of a sum near 1; without the clamp, the gradient of the branch not taken would be 0 times
        # infinity
        log_sum = logits.amax(dim=1) - share.amax(dim=1).log()
        near_one = change.clamp(min=-0.5).log1p()
        log_sum = torch.where(change > -0.5, near_one, log_sum)
        minima.append(minimum - (log_sum + log_total.to(energy)) / gamma)
        shares.append(share)
    return torch.stack(minima, dim=1), torch.cat(shares, dim=1)
