"""Grouping layers: one value per cluster, or per test of a tree, from the neurons that belong to it."""

from __future__ import annotations

from itertools import product
from math import prod

import torch
from torch import Tensor, nn

from neonxc.common.registry import storable
from neonxc.head.pieces import Pieces
from neonxc.head.pooling import group_min, group_soft_min

MOST_PIECES = 1 << 14  # limits the combinations of interval tests, which grow exponentially


@storable
class Minimum(nn.Module):
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

    @property
    def soft(self) -> bool:
        """Whether a cluster's value depends on all of its neurons, and not on the least alone."""
        return self.gamma is not None

    def scaled(self, factor: float) -> Minimum:
        """Return the grouping for neurons that are multiplied by a factor."""
        return Minimum(self.groups, None if self.gamma is None else self.gamma / factor, self.log_weights)

    def forward(self, neurons: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the values [N, K] of the clusters, and the neurons' shares [N, M] in them."""
        if self.gamma is None or self.log_weights is None:
            return group_min(neurons, self.groups, self.n_groups)
        return group_soft_min(neurons, self.sizes, self.gamma, self.log_weights)


@storable
class UnionOfIntervals(nn.Module):
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
    soft = False
    intervals: Tensor
    tests: Tensor
    groups: Tensor

    def __init__(self, intervals: Tensor, tests: Tensor, n_tests: int) -> None:
        super().__init__()
        self.n_groups = n_tests
        self.register_buffer("intervals", intervals)
        self.register_buffer("tests", tests)
        self.register_buffer("groups", tests[intervals])

    def pieces(self, pieces: Pieces) -> Pieces:
        """Split the pieces of tests into pieces of edges: one per combination of intervals inside or outside.

        Raises
        ------
        ValueError
            There are more than 16,384 combinations.
        """
        edges: list[list[list[int]]] = [[] for _ in range(self.n_groups)]  # of each test's intervals
        of_interval = self.intervals.tolist()
        for interval, test in enumerate(self.tests.tolist()):
            edges[test].append([m for m, i in enumerate(of_interval) if i == interval])
        clusters: list[int] = []
        rows: list[list[int]] = []
        for cluster, signs in zip(pieces.cluster.tolist(), pieces.signs.tolist(), strict=True):
            ways = []
            for test, sign in enumerate(signs):
                if sign > 0:
                    ways.append(edges[test])
                elif sign < 0:
                    ways.append([list(way) for way in product(*edges[test])])
                else:
                    ways.append([[]])
            if len(rows) + prod(map(len, ways)) > MOST_PIECES:
                raise ValueError(
                    f"the tree's interval tests split its clusters into more than {MOST_PIECES} pieces"
                )
            for way in product(*ways):
                row = [0] * len(of_interval)
                for sign, some in zip(signs, way, strict=True):
                    for m in some:
                        row[m] = sign
                clusters.append(cluster)
                rows.append(row)
        device = self.intervals.device
        signs_ = torch.tensor(rows, dtype=torch.int8, device=device).reshape(len(rows), len(of_interval))
        return Pieces(torch.tensor(clusters, dtype=torch.int64, device=device), signs_)

    def forward(self, neurons: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the values [N, T] of the tests, and the share [N, M] of each neuron in its test's value."""
        inside, edge_shares = group_min(neurons, self.intervals, len(self.tests))
        least, interval_shares = group_min(-inside, self.tests, self.n_groups)
        return -least, edge_shares * interval_shares[:, self.intervals]
