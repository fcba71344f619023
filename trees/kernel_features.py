"""Features of a kernel for Kernel IMM, each a function of one raw column.

A threshold on such a feature corresponds to at most two intervals of its raw column.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor

from neonxc.trees.midpoints import between

Intervals = tuple[tuple[float, float], ...]  # low < x <= high for one of them


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
    are :func:`taylor_features` or :func:`anchor_features`, corrected for rounding errors: equal raw values have
    equal features, and the absolute value of a feature is unimodal in the raw values. The values above a threshold
    therefore form at most two intervals of the raw column, as :func:`intervals_of` requires.

    Parameters
    ----------
    table : Tensor [n, d]
        All points that are compared, because rounding errors are corrected among the points of one call.
    kind : {"taylor", "anchors"}
        "taylor" needs centered columns and a sufficient number of `terms`; see :func:`taylor_features`.
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

    Raises
    ------
    ValueError
        If kind or kernel is unknown, gamma is not positive, or terms or anchors are missing or have a wrong shape.

    References
    ----------
    .. [1] M. Fleissner, L. C. Vankadara, D. Ghoshdastidar, "Explaining kernel clustering via decision trees", ICLR
       2024.

    Examples
    --------
    >>> import torch
    >>> from neonxc.trees.kernel_features import surrogate_columns
    >>> x = torch.tensor([[0.0], [2.0]])
    >>> surrogate_columns(x, "anchors", 0.5, anchors=torch.tensor([[0.0, 2.0]]), kernel="laplace")
    tensor([[1.0000, 0.3679],
            [0.3679, 1.0000]], dtype=torch.float64)
    """
    _check(table, kind, gamma, terms, anchors, kernel)
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


def taylor_features(x: Tensor, gamma: float, terms: int) -> Tensor:
    """First Taylor features ``φ_m(x) = sqrt((2γ)^m / m!) x^m exp(-γx²)`` of the Gaussian kernel of two numbers.

    The kernel ``exp(-γ(x − y)²)`` equals ``Σ_m φ_m(x) φ_m(y)``. The sum of the first M terms has an error of at
    most ``sqrt(P(N_x >= M) P(N_y >= M))`` for Poisson variables N with means 2γx² and 2γy². If 2γx² is well above
    M, all features of x are almost 0, and such points cannot be distinguished.

    Columns should therefore be shifted to mean 0, which does not change the kernel and minimizes the sum of 2γx²,
    and M should exceed the largest 2γx² by a few times its square root. If that is too much, use anchor features.

    Parameters
    ----------
    x : Tensor [...]
        Numbers of any magnitude; nothing overflows.
    gamma : float
        Positive, in units of 1 / x².
    terms : int
        M, the number of features.

    Returns
    -------
    Tensor [..., M] of float64
        Between -1 and 1.

    References
    ----------
    .. [1] M. Fleissner, L. C. Vankadara, D. Ghoshdastidar, "Explaining kernel clustering via decision trees", ICLR
       2024: interpretable Taylor kernels.
    """
    m = torch.arange(terms, dtype=torch.float64, device=x.device)
    x = x.to(torch.float64)[..., None]
    size = _taylor(x.abs(), gamma, m)
    return torch.where(m % 2 == 1, x.sign() * size, size)


def anchor_features(x: Tensor, anchors: Tensor, kernel: str, gamma: float) -> Tensor:
    """Kernel between numbers and anchors: ``exp(-γ(x − a)²)`` or ``exp(-γ|x − a|)``.

    Parameters
    ----------
    x : Tensor [...]
    anchors : Tensor [..., A]
        Anchors, which may be different for every number.
    kernel : {"gaussian", "laplace"}
    gamma : float
        Positive, in units of 1 / x² (Gaussian) or 1 / x (Laplace).

    Returns
    -------
    Tensor [..., A] of float64
        Between 0 and 1.

    References
    ----------
    .. [1] M. Fleissner, L. C. Vankadara, D. Ghoshdastidar, "Explaining kernel clustering via decision trees", ICLR
       2024: distance-based product kernels, with all points as anchors.
    """
    return _kernels(x.to(torch.float64)[..., None], anchors.to(torch.float64), kernel, gamma)


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


def intervals_of(left: Tensor, values: Tensor) -> tuple[Intervals, bool]:
    """Express a division of points as intervals ``low < x <= high`` of a raw column.

    Parameters
    ----------
    left : Tensor [n] of bool
        Which points go left.
    values : Tensor [n]
        The raw column.

    Returns
    -------
    intervals : tuple of (float, float)
        One or two intervals in ascending order. They contain the side that needs fewer intervals or, if both need
        equally many, the side with the smallest value. A threshold is therefore one interval that begins at -inf.
        Finite bounds are midway between adjacent values.
    swapped : bool
        Whether the intervals contain the points that go right.

    Raises
    ------
    ValueError
        If shapes do not match, equal values are on both sides, or both sides need more than two intervals.

    Examples
    --------
    >>> import torch
    >>> from neonxc.trees.kernel_features import intervals_of
    >>> intervals_of(torch.tensor([True, False, False, True]), torch.tensor([1, 2, 4, 8]))
    (((1.5, 6.0),), True)
    """
    if values.ndim != 1 or left.shape != values.shape:
        raise ValueError(
            f"left and values need one entry per point, got shapes {list(left.shape)} and {list(values.shape)}"
        )
    if len(values) == 0:
        return ((-math.inf, 0.0),), False
    ordered, order = values.sort()
    side = left[order]
    before = (side[1:] != side[:-1]).nonzero()[:, 0]  # where a run of points on one side ends
    lows, highs = ordered[before].tolist(), ordered[before + 1].tolist()
    if any(low == high for low, high in zip(lows, highs, strict=True)):
        raise ValueError("left has points with equal values on both sides, which no intervals can separate")
    bounds = [between(float(low), float(high), values.dtype) for low, high in zip(lows, highs, strict=True)]
    if not bounds:  # all points are on one side: place a threshold beyond them
        end, sign = (ordered[-1], 1) if side[0] else (ordered[0], -1)
        return ((-math.inf, float(end) + sign * max(1.0, abs(float(end)))),), False
    runs = list(pairwise([-math.inf, *bounds, math.inf]))
    least, other = tuple(runs[::2]), tuple(runs[1::2])
    swapped, intervals = (not bool(side[0]), least) if len(least) <= len(other) else (bool(side[0]), other)
    if len(intervals) > 2:
        raise ValueError(f"left needs a side with at most two intervals, got {len(least)} and {len(other)}")
    return intervals, swapped


def _check(table: Tensor, kind: str, gamma: float, terms: int, anchors: Tensor | None, kernel: str) -> None:
    if table.ndim != 2:
        raise ValueError(f"table needs shape [points, columns], got {list(table.shape)}")
    if not gamma > 0:
        raise ValueError(f"gamma needs to be positive, got {gamma}")
    if kind == "taylor":
        if terms < 1:
            raise ValueError(f"terms needs to be at least 1, got {terms}")
        if kernel != "gaussian":
            raise ValueError(f"kernel needs to be gaussian for Taylor features, got {kernel!r}")
    elif kind == "anchors":
        if anchors is None or anchors.ndim != 2 or len(anchors) != table.shape[1]:
            got = None if anchors is None else list(anchors.shape)
            raise ValueError(f"anchors needs shape [{table.shape[1]}, A], one row per column, got {got}")
    else:
        raise ValueError(f'kind needs "taylor" or "anchors", got {kind!r}')


def _taylor(size: Tensor, gamma: float, m: Tensor) -> Tensor:
    """Absolute value of Taylor feature m of numbers with the given absolute values; the two are broadcast."""
    scaled = size * math.sqrt(2 * gamma)
    return (torch.xlogy(m, scaled) - torch.lgamma(m + 1) / 2 - scaled.square() / 2).exp_()


def _kernels(x: Tensor, anchors: Tensor, kernel: str, gamma: float) -> Tensor:
    """Kernel between numbers and anchors, which are broadcast."""
    if kernel not in ("gaussian", "laplace"):
        raise ValueError(f"kernel needs to be gaussian or laplace, got {kernel!r}")
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
