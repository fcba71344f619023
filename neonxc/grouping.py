"""Grouping: one value per cluster, or per test of a tree, from the neurons that stand for it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from neonxc.pooling import group_min, group_soft_min
from neonxc.registry import storable


@storable
class Minimum(nn.Module):
    """The minimum over the members of each cluster, hard or soft.

    Parameters
    ----------
    groups : Tensor [M] of int64
        Column of the cluster that each neuron stands for, in ascending order.
    gamma : float, optional
        Stiffness of the soft minimum ``LME^{-gamma}`` (NEON paper, Eq. 7). None: the hard minimum.
    log_weights : Tensor [M], optional
        Logarithms of the members' weights in the soft minimum; default: all of a cluster's alike, summing to 1.
    """

    PLAIN = ("gamma", "sizes")
    groups: Tensor
    log_weights: Tensor | None

    def __init__(self, groups: Tensor, gamma: float | None = None, log_weights: Tensor | None = None) -> None:
        super().__init__()
        counts = torch.bincount(groups)
        self.gamma, self.sizes = gamma, counts.tolist()
        if log_weights is None and gamma is not None:
            log_weights = -counts.double().log()[groups]
        self.register_buffer("groups", groups)
        self.register_buffer("log_weights", log_weights)

    @property
    def n_groups(self) -> int:
        """Number of clusters K."""
        return len(self.sizes)

    def scaled(self, factor: float) -> Minimum:
        """Give the grouping of neurons that were multiplied by a factor."""
        return Minimum(self.groups, None if self.gamma is None else self.gamma / factor, self.log_weights)

    def forward(self, neurons: Tensor) -> tuple[Tensor, Tensor]:
        """Values [N, K] of the clusters, and each neuron's share [N, M] in its cluster's."""
        if self.gamma is None or self.log_weights is None:
            return group_min(neurons, self.groups, self.n_groups)
        return group_soft_min(neurons, self.sizes, self.gamma, self.log_weights)


@storable
class UnionOfIntervals(nn.Module):
    """Tests whether a value lies in one of some intervals: inside the least margin counts, outside the greatest.

    The value of an interval is the minimum over its edges' neurons, that of a test the maximum over its intervals:
    positive inside one of them.

    Parameters
    ----------
    intervals : Tensor [M] of int64
        The interval that each edge's neuron belongs to.
    tests : Tensor [I] of int64
        The test that each interval belongs to. An interval without edges is everything.
    n_tests : int
        A test without intervals sends nothing left.
    """

    PLAIN = ("n_groups",)
    intervals: Tensor
    tests: Tensor
    groups: Tensor

    def __init__(self, intervals: Tensor, tests: Tensor, n_tests: int) -> None:
        super().__init__()
        self.n_groups = n_tests
        self.register_buffer("intervals", intervals)
        self.register_buffer("tests", tests)
        self.register_buffer("groups", tests[intervals])

    def scaled(self, factor: float) -> UnionOfIntervals:
        """Give itself: extrema do not depend on the scale."""
        return self

    def forward(self, neurons: Tensor) -> tuple[Tensor, Tensor]:
        """Values [N, T] of the tests, and each neuron's share [N, M] in its test's."""
        inside, of_edge = group_min(neurons, self.intervals, len(self.tests))
        least, of_interval = group_min(-inside, self.tests, self.n_groups)
        return -least, of_edge * of_interval[:, self.intervals]
