"""Grouping layers: one value per cluster or test of a tree from neurons."""

from __future__ import annotations

import torch
from torch import Tensor

from neonxc.common.registry import storable
from neonxc.head.detection import Stage


class Grouping(Stage):
    """Base class of the layers that compute values [N, G] from neurons [N, M]."""

    groups: Tensor
    """The value [M] that each neuron belongs to."""

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
    def n_groups(self) -> int:
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
        inside, edge_shares = group_min(neurons, self.intervals, len(self.tests))
        least, interval_shares = group_min(-inside, self.tests, self.n_groups)
        return -least, edge_shares * interval_shares[:, self.intervals]


def group_min(energy: Tensor, groups: Tensor, n_groups: int) -> tuple[Tensor, Tensor]:
    """Compute the minimum [N, K] over each group of columns and the columns' shares [N, M]; ties are equal."""
    least = energy.new_full((energy.shape[0], n_groups), torch.inf)
    least = least.scatter_reduce(1, groups.expand_as(energy), energy, "amin")
    hit = (energy == least[:, groups]).to(energy.dtype)
    ties = torch.zeros_like(least).index_add(1, groups, hit)
    return least, hit / ties[:, groups]


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
    for part, logs in zip(energy.split(sizes, dim=1), log_weights.double().split(sizes), strict=True):
        total = logs.logsumexp(dim=0)
        least = part.amin(dim=1)
        logs = (logs - total).to(energy)
        logits = (part - least[:, None]).mul_(-gamma)
        # no matrix product, which autocast would round
        change = (logits.expm1() * logs.exp()).sum(dim=1)
        logits = logits + logs
        share = logits.softmax(dim=1)
        # if all logits are close to 0, log1p avoids the rounding error of the logarithm of a sum near 1; without
        # the clamp, the gradient of the branch not taken would be 0 times infinity
        log_sum = logits.amax(dim=1) - share.amax(dim=1).log()
        log_sum = torch.where(change > -0.5, change.clamp(min=-0.5).log1p(), log_sum)
        minima.append(least - (log_sum + total.to(energy)) / gamma)
        shares.append(share)
    return torch.stack(minima, dim=1), torch.cat(shares, dim=1)
