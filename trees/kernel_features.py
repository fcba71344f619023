"""Surrogate columns of Kernel IMM: features of a kernel, each a function of one raw column.

A threshold on such a feature is a test of its raw column: the values above it are those of at most two intervals.
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
    """Features of a kernel that depend on one raw column each (Kernel IMM [1]_).

    IMM on them, with the means of the clusters' features as centers, explains kernel k-means. They are
    :func:`taylor_features` or :func:`anchor_features`, with rounding errors mended: a feature's size rises up to
    where it is greatest and falls from there, and equal raw values have equal features. So what is above a
    threshold are at most two intervals of the raw column, which is what :func:`intervals_of` needs.

    Parameters
    ----------
    table : Tensor [n, d]
        All the points that are compared: rounding errors are mended among the points of one call.
    kind : {"taylor", "anchors"}
        "taylor": the columns have to be centred, and `terms` to be large enough; see :func:`taylor_features`.
    gamma : float
        Of the kernel; positive.
    terms : int
        "taylor": features per raw column.
    anchors : Tensor [d, A]
        "anchors": anchors of every raw column, one feature each; for example :func:`anchors_of`.
    kernel : {"gaussian", "laplace"}, default="gaussian"
        "anchors": the kernel. Taylor features are those of the Gaussian kernel.
    columns : slice, optional
        The raw columns that are wanted, where memory does not hold the features of all.

    Returns
    -------
    Tensor [n, d * M] of float64
        Column ``i * M + m`` is feature m of the i-th of the `columns`. Rounding to another type keeps the shape.

    Raises
    ------
    ValueError
        An unknown kind or kernel, a gamma that is not positive, no terms, no anchors or some of another shape.

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
    """First features ``φ_m(x) = sqrt((2γ)^m / m!) x^m exp(-γx²)`` of the Gaussian kernel of two numbers.

    The kernel ``exp(-γ(x − y)²)`` is ``Σ_m φ_m(x) φ_m(y)``. Without the terms from M on it has an error of at most
    ``sqrt(P(N_x >= M) P(N_y >= M))`` for Poisson variables N of mean 2γx² and 2γy². Where 2γx² is well above M all
    features of x vanish, and nothing tells such points apart.

    So columns have to be centred, which does not change the kernel: by their means, with which the sum of 2γx² is
    least. And M has to exceed the greatest 2γx² by a few of its square roots; where that is too much, features of
    anchors are the choice.

    Parameters
    ----------
    x : Tensor [...]
        Of any size: nothing overflows.
    gamma : float
        Positive; in units of 1 / x².
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
    """Kernels of numbers and anchors: ``exp(-γ(x − a)²)``, or ``exp(-γ|x − a|)``.

    Parameters
    ----------
    x : Tensor [...]
    anchors : Tensor [..., A]
        Of every number, or of all of them.
    kernel : {"gaussian", "laplace"}
    gamma : float
        Positive; in units of 1 / x², or of 1 / x.

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
    """Anchors of every column: quantiles of its distinct values, or all of these where there are few.

    Which points have an anchor's value plays no part in IMM, only which values are anchors. With all distinct
    values the features are those of the paper, whose anchors are all points.

    Parameters
    ----------
    table : Tensor [n, d]
    most : int
        The greatest number of anchors of a column.

    Returns
    -------
    Tensor [d, A]
        In ascending order. A is `most`, or the number of distinct values of the column with the most of them; a
        column with fewer repeats its last one.
    """
    ordered = table.T.contiguous().sort(dim=1).values
    rank = torch.zeros(ordered.shape, dtype=torch.int64, device=table.device)
    torch.cumsum(ordered[:, 1:] != ordered[:, :-1], 1, out=rank[:, 1:])
    distinct = rank[:, -1:] + 1
    number = torch.arange(min(most, int(distinct.max())), device=table.device)
    wanted = torch.where(distinct <= most, number.minimum(distinct - 1), (2 * number + 1) * distinct // (2 * most))
    return ordered.gather(1, torch.searchsorted(rank, wanted))


def intervals_of(left: Tensor, values: Tensor) -> tuple[Intervals, bool]:
    """Say a threshold on a surrogate column as intervals ``low < x <= high`` of its raw column.

    Parameters
    ----------
    left : Tensor [n] of bool
        Which points the threshold sends to the left.
    values : Tensor [n]
        The raw column.

    Returns
    -------
    intervals : tuple of (float, float)
        One or two, in ascending order, of the side that has fewer; of as many, of that with the least value. So a
        test that one threshold says is one interval from -inf on. Finite bounds are midway between neighbouring
        values, as far as these are parted exactly in their type.
    swapped : bool
        Whether the points within the intervals are those that go right.

    Raises
    ------
    ValueError
        Shapes that do not match, equal values on both sides, or more than two intervals on each.

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
    before = (side[1:] != side[:-1]).nonzero()[:, 0]  # the last places of all stretches of one side but the last
    lows, highs = ordered[before].tolist(), ordered[before + 1].tolist()
    if any(low == high for low, high in zip(lows, highs, strict=True)):
        raise ValueError("left: points of equal values are on both sides, so no intervals of values part them")
    bounds = [between(float(low), float(high), values.dtype) for low, high in zip(lows, highs, strict=True)]
    if not bounds:  # all on one side: a threshold beyond them
        end, sign = (ordered[-1], 1) if side[0] else (ordered[0], -1)
        return ((-math.inf, float(end) + sign * max(1.0, abs(float(end)))),), False
    stretches = list(pairwise([-math.inf, *bounds, math.inf]))
    least, other = tuple(stretches[::2]), tuple(stretches[1::2])
    swapped, intervals = (not bool(side[0]), least) if len(least) <= len(other) else (bool(side[0]), other)
    if len(intervals) > 2:
        raise ValueError(f"left needs two intervals at most on one side, got {len(least)} and {len(other)}")
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
            raise ValueError(f"anchors needs shape [{table.shape[1]}, A] as table has so many columns, got {got}")
    else:
        raise ValueError(f"kind needs to be taylor or anchors, got {kind!r}")


def _taylor(size: Tensor, gamma: float, m: Tensor) -> Tensor:
    """Features m of numbers of some size; the two are broadcast."""
    scaled = size * math.sqrt(2 * gamma)
    return (torch.xlogy(m, scaled) - torch.lgamma(m + 1) / 2 - scaled.square() / 2).exp_()


def _kernels(x: Tensor, anchors: Tensor, kernel: str, gamma: float) -> Tensor:
    """Kernels of numbers and anchors; the two are broadcast."""
    if kernel not in ("gaussian", "laplace"):
        raise ValueError(f"kernel needs to be gaussian or laplace, got {kernel!r}")
    far = (x - anchors).abs_()
    return (far.square_() if kernel == "gaussian" else far).mul_(-gamma).exp_()


def _first_equal(ordered: Tensor) -> Tensor:
    """The first place with the same value, for all places of ordered rows."""
    place = torch.arange(ordered.shape[1], device=ordered.device).expand_as(ordered).clone()
    place[:, 1:].masked_fill_(ordered[:, 1:] == ordered[:, :-1], 0)
    return place.cummax(1).values


def _unimodal(size: Tensor, rising: Tensor) -> Tensor:
    """Sizes along the last axis that never fall where `rising`, its first part, and never rise behind it."""
    up = size.masked_fill(~rising, 0).cummax(-1).values
    down = size.masked_fill(rising, 0).flip(-1).cummax(-1).values.flip(-1)
    return torch.where(rising, up, down)
