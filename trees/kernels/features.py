"""Features of a kernel for Kernel IMM, each a function of one raw column, and their table.

A threshold on such a feature corresponds to at most two intervals of its raw column.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from neonxc.common.processes import ALONE, Ranks
from neonxc.trees.problem import Problem


def surrogate_columns(
    table: Tensor,
    kind: str,
    gamma: float,
    *,
    terms: int = 0,
    anchors: Tensor | None = None,
    kernel: str = "gaussian",
    columns: slice | None = None,
) -> Tensor:
    """Compute features of a kernel, each of which depends on one raw column (Kernel IMM [1]_).

    IMM on these features, with the cluster means of the features as centers, explains kernel k-means. The features
    are the kernel between a value and an anchor, or the first terms ``sqrt((2γ)^m / m!) x^m exp(-γx²)`` of the
    Gaussian kernel's Taylor expansion. They are corrected for rounding errors: equal raw values have equal
    features, and the absolute value of a feature is unimodal in the raw values. The values above a threshold
    therefore form at most two intervals of the raw column.

    Parameters
    ----------
    table : Tensor [n, d]
        All points that are compared, because rounding errors are corrected among the points of one call.
    kind : {"taylor", "anchors"}
        "taylor" needs centered columns, which make ``2γx²`` smallest, and a number of `terms` that exceeds the
        largest ``2γx²`` by a few times its square root. Points far beyond cannot be distinguished.
    gamma : float
        Positive scale of the kernel.
    terms : int
        Number of Taylor features per raw column.
    anchors : Tensor [d, A]
        Anchors of every raw column, for example from :func:`anchors_of`. Every anchor gives one feature.
    kernel : {"gaussian", "laplace"}, default="gaussian"
        Kernel of the anchor features. Taylor features need the Gaussian kernel.
    columns : slice, optional
        Raw columns whose features are computed, if not all of them fit into memory.

    Returns
    -------
    Tensor [n, d * M] of float64
        Column ``i * M + m`` is feature m of the i-th raw column in `columns`.

    References
    ----------
    .. [1] M. Fleissner, L. C. Vankadara, D. Ghoshdastidar, "Explaining kernel clustering via decision trees", ICLR
       2024.

    Examples
    --------
    >>> import torch
    >>> from neonxc.trees.kernels.features import surrogate_columns
    >>> x = torch.tensor([[0.0], [2.0]])
    >>> surrogate_columns(x, "anchors", 0.5, anchors=torch.tensor([[0.0, 2.0]]), kernel="laplace")
    tensor([[1.0000, 0.3679],
            [0.3679, 1.0000]], dtype=torch.float64)
    """
    columns = slice(None) if columns is None else columns
    raw = table[:, columns].T.to(torch.float64)
    ordered, order = (raw.abs() if kind == "taylor" else raw).sort(dim=1)
    at = ordered[:, None]  # [columns, 1, n]; features are [columns, M, n]
    if anchors is None or kind == "taylor":
        m = torch.arange(terms, dtype=torch.float64, device=table.device)[:, None]
        size, top = _taylor(at, gamma, m), (m / (2 * gamma)).sqrt()
    else:
        top = anchors[columns].to(at)[:, :, None]
        size = _kernels(at, top, kernel, gamma)
    place = torch.empty_like(order).scatter_(1, order, _first_equal(ordered))
    features = _unimodal(size, at <= top).gather(2, place[:, None].expand_as(size))
    if kind == "taylor":
        features[:, 1::2] *= raw.sign()[:, None]  # odd powers
    return features.flatten(0, 1).T


def anchors_of(table: Tensor, most: int) -> Tensor:
    """Choose anchors of every column: its distinct values, or quantiles of them if there are more than `most`.

    With all distinct values, the features are those of the paper, in which all points are anchors.

    Parameters
    ----------
    table : Tensor [n, d]
    most : int
        Maximum number of anchors per column.

    Returns
    -------
    Tensor [d, A]
        Anchors in ascending order. A is the largest number of anchors of a column; a column with fewer anchors
        repeats its last one.
    """
    ordered = table.T.contiguous().sort(dim=1).values
    rank = torch.zeros(ordered.shape, dtype=torch.int64, device=table.device)
    torch.cumsum(ordered[:, 1:] != ordered[:, :-1], 1, out=rank[:, 1:])
    distinct = rank[:, -1:] + 1
    number = torch.arange(min(most, int(distinct.max())), device=table.device)
    wanted = torch.where(distinct <= most, number.minimum(distinct - 1), (2 * number + 1) * distinct // (2 * most))
    return ordered.gather(1, torch.searchsorted(rank, wanted))


def _taylor(size: Tensor, gamma: float, m: Tensor) -> Tensor:
    """Absolute value of Taylor feature m of numbers with the given absolute values; the two are broadcast."""
    scaled = size * math.sqrt(2 * gamma)
    return (torch.xlogy(m, scaled) - torch.lgamma(m + 1) / 2 - scaled.square() / 2).exp_()


def _kernels(x: Tensor, anchors: Tensor, kernel: str, gamma: float) -> Tensor:
    """Kernel between numbers and anchors, which are broadcast."""
    far = (x - anchors).abs_()
    return (far.square_() if kernel == "gaussian" else far).mul_(-gamma).exp_()


def _first_equal(ordered: Tensor) -> Tensor:
    """For all positions of sorted rows, the first position with the same value."""
    place = torch.arange(ordered.shape[1], device=ordered.device).expand_as(ordered).clone()
    place[:, 1:].masked_fill_(ordered[:, 1:] == ordered[:, :-1], 0)
    return place.cummax(1).values


def _unimodal(size: Tensor, rising: Tensor) -> Tensor:
    """Make sizes along the last axis non-decreasing where `rising`, and non-increasing after that."""
    up = size.masked_fill(~rising, 0).cummax(-1).values
    down = size.masked_fill(rising, 0).flip(-1).cummax(-1).values.flip(-1)
    return torch.where(rising, up, down)


class KernelTable:
    """Table of the kernel features on which Kernel IMM makes its cuts.

    It has the methods of :class:`~neonxc.trees.coding.table.Table`, but computes columns when they are asked for,
    because all of them together may not fit into memory.

    Parameters
    ----------
    points : Tensor [n, d] of float64
        The raw columns, which have mean 0 for Taylor features.
    kind : {"anchors", "taylor"}
    kernel : {"gaussian", "laplace"}
    gamma : float
    size : int
        Maximum number of features per raw column.
    """

    dtype = torch.float64
    few_entries = False

    def __init__(self, points: Tensor, kind: str, kernel: str, gamma: float, size: int) -> None:
        self.points, self.kind, self.kernel, self.gamma = points, kind, kernel, gamma
        self.anchors = anchors_of(points, size) if kind == "anchors" else None
        self.size = size if self.anchors is None else self.anchors.shape[1]
        self.n, self.d = len(points), points.shape[1] * self.size

    @property
    def device(self) -> torch.device:
        """Device of the points."""
        return self.points.device

    def chunks(self, ranks: Ranks = ALONE) -> Any:
        """Ranges of features that belong to the same raw column."""
        return ((first, first + self.size) for first in range(0, self.d, self.size))

    def columns(self, first: int, last: int) -> Tensor:
        """Features `first` to `last` (exclusive), [last - first, n]."""
        raw = slice(first // self.size, (last - 1) // self.size + 1)
        features = surrogate_columns(
            self.points,
            self.kind,
            self.gamma,
            terms=self.size,
            anchors=self.anchors,
            kernel=self.kernel,
            columns=raw,
        )
        return features.T[first - raw.start * self.size : last - raw.start * self.size].contiguous()

    def column(self, feature: int) -> Tensor:
        """One feature, [n]."""
        return self.columns(feature, feature + 1)[0]

    def rows(self, part: slice) -> Tensor:
        """All features of a slice of the points, [points, d]."""
        return torch.cat([self.columns(*chunk)[:, part] for chunk in self.chunks()]).T

    def means(self, labels: Tensor, k: int, weight: Tensor | None) -> Tensor:
        """Weighted means of the features of every cluster, [k, d]."""
        member = torch.nn.functional.one_hot(labels, k).to(torch.float64)
        member = member if weight is None else member * weight[:, None]
        sums = torch.cat([self.columns(*chunk) @ member for chunk in self.chunks()])
        return (sums / member.sum(0)).T.contiguous()


def kernel_points(problem: Problem, features: str) -> Tensor:
    """Raw columns in the units in which the kernel measures distances, [n, d] of float64.

    If costs are measured behind a scaler, the columns are divided by their standard deviations. For Taylor
    features they are also shifted to mean 0. Anchor features must not be shifted: the rounding error would
    distinguish values at equal distance from an anchor.
    """
    points = problem.table.columns(0, problem.table.d).T.to(torch.float64)
    weight = torch.ones_like(points[:, 0]) if problem.weight is None else problem.weight
    share = weight / weight.sum()
    centred = points - share @ points
    points = centred if features == "taylor" else points
    if problem.space is problem.table:
        return points
    spread = (share @ centred.square()).sqrt()
    return points / torch.where(spread > 0, spread, 1)
