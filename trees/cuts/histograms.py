"""Sums over points by code, for all cuts of some columns.

Codes have shape [f, n], one row per column. Cut b of a column sends codes <= b to the left, so the sums of all its
cuts are the prefix sums of a histogram.
"""

from __future__ import annotations

import torch
from torch import Tensor

from neonxc.trees.cuts.exact_sums import sorted_rows
from neonxc.trees.cuts.ranks import row_ranks

BUFFER = 280_000  # number of indices that fit into a core's cache
CACHED = 1 << 19  # entries of a histogram over which several passes are made
BUDGET = 1 << 24  # maximum number of entries of any temporary array


def histogram(codes: Tensor, places: int, labels: Tensor | None, k: int, weight: Tensor | None = None) -> Tensor:
    """Count the points (or add their weights) by column, label and code.

    Parameters
    ----------
    codes : Tensor [f, n] of integers below `places`
    places : int
    labels : Tensor [n] of int64 below `k`, or None if `k` is 1
    k : int
    weight : Tensor [n] of float64, optional

    Returns
    -------
    Tensor [f, k, places] of int32, or of float64 with weights
    """
    f, n = codes.shape
    dtype = _kind(weight)
    result = torch.zeros(f, k * places, dtype=dtype, device=codes.device)
    values = torch.ones((), dtype=dtype, device=codes.device) if weight is None else weight
    step = _step(BUFFER, n, codes.device)
    small = torch.int16 if k * places <= 1 << 15 else torch.int64  # small integers are added twice as fast
    offset = None if labels is None else (labels * places).to(small)
    buffer = torch.empty(min(step, f), n, dtype=torch.int64, device=codes.device)
    for first in range(0, f, step):
        part = codes[first : first + step]
        index = buffer[: len(part)].copy_(part if offset is None else part + offset)
        result[first : first + step].scatter_add_(1, index, values.expand_as(index))
    return result.view(f, k, places)


def channels(codes: Tensor, places: int, values: Tensor) -> Tensor:
    """Sums of m values per point by column and code, [f, m, places]; `values` has shape [m, n]."""
    f, n = codes.shape
    m = len(values)
    result = torch.zeros(f, m, places, dtype=torch.float64, device=codes.device)
    step = _step(BUFFER, n * m, codes.device)
    for first in range(0, f, step):
        part = codes[first : first + step].to(torch.int64)[:, None].expand(-1, m, -1)
        result[first : first + step].scatter_add_(2, part, values.expand_as(part))
    return result


def selected_channels(codes: Tensor, places: int, values: Tensor, group: Tensor) -> Tensor:
    """Prefix sums, [f, places], of one row of `values` [m, n] for every column, as given by `group` [f]."""
    n = codes.shape[1]
    result = torch.zeros(len(codes), places, dtype=torch.float64, device=codes.device)
    step = max(1, BUDGET // 4 // max(n, places))
    for first in range(0, len(codes), step):
        part = slice(first, first + step)
        result[part].scatter_add_(1, codes[part].to(torch.int64), values.index_select(0, group[part]))
    return result.cumsum_(1)


def parted(
    codes: Tensor,
    places: int,
    labels: Tensor,
    centers: Tensor,
    weight: Tensor | None = None,
    by_center: bool = False,
) -> Tensor:
    """Number (or weight) of points that each cut separates from the center of their label, [f, places].

    A cut left of the center separates the points on the cut's left. A cut right of the center separates those on
    the cut's right, whose number is that of all points minus those on the left.

    Parameters
    ----------
    codes : Tensor [f, n]
    labels : Tensor [n] of int64
    centers : Tensor [f, k] of int64
        Codes of the centers.
    by_center : bool
        Whether to return the numbers for every center, [f, k, places], instead of their sum.
    """
    k = centers.shape[1]
    dtype = _kind(weight)
    if k * places > len(labels) and not by_center:  # a histogram would be larger than the node
        return _parted_directly(codes, places, labels, centers, weight)
    result = torch.empty(len(codes), *([k] if by_center else []), places, dtype=dtype, device=codes.device)
    mass = torch.bincount(labels, weight, minlength=k)[:, None].to(dtype)
    step = max(1, CACHED // (k * places))
    for first in range(0, len(codes), step):
        part = slice(first, first + step)
        counts = histogram(codes[part], places, labels, k, weight)
        own = centers[part, :, None]
        terms = counts.scatter_add_(2, own, -mass.expand_as(own)).cumsum_(2).abs_()
        if by_center:
            result[part] = terms
        else:
            torch.sum(terms, 1, dtype=dtype, out=result[part])
    return result


def _parted_directly(
    codes: Tensor, places: int, labels: Tensor, centers: Tensor, weight: Tensor | None = None
) -> Tensor:
    """The same as :func:`parted`, without a histogram by label."""
    f, n = codes.shape
    dtype = _kind(weight)
    kind = torch.promote_types(codes.dtype, torch.int16)
    change = torch.zeros(f, places, dtype=dtype, device=codes.device)
    jump = torch.zeros(centers.shape, dtype=dtype, device=codes.device)
    own_codes = centers.to(kind)
    step = _step(BUFFER, n, codes.device)
    index = torch.empty(min(step, f), n, dtype=torch.int64, device=codes.device)
    signed = torch.empty(min(step, f), n, dtype=dtype, device=codes.device)
    for first in range(0, f, step):
        columns = slice(first, first + step)
        part = codes[columns]
        # 1 if the point is left of its center, so that cuts from the point's code on separate the two
        side = own_codes[columns].index_select(1, labels).sub_(part).sign_()
        if weight is None:
            values = signed[: len(part)].copy_(side)
        else:
            values = torch.mul(side, weight, out=signed[: len(part)])
        change[columns].scatter_add_(1, index[: len(part)].copy_(part), values)
        jump[columns].scatter_add_(1, labels.expand_as(part), values)
    return change.scatter_add_(1, centers, -jump).cumsum_(1)


def _kind(weight: Tensor | None) -> torch.dtype:
    """Type of sums of weights, or of counts."""
    return torch.int32 if weight is None else torch.float64


def least_within(terms: Tensor) -> Tensor:
    """Lower bound of the weight that any cut inside a coarse code separates from the centers, [f, places].

    `terms` are the result of :func:`parted` by center. The points of the coarse code may not be separated at all,
    so each center contributes the smaller of the weights of the cuts before and behind it.
    """
    least = terms.clone()
    torch.minimum(terms[..., 1:], terms[..., :-1], out=least[..., 1:])
    least[..., 0] = 0
    return least.sum(1, dtype=terms.dtype)


def centers_left(centers: Tensor, places: int) -> Tensor:
    """Number of centers that each cut sends to the left, [f, places]."""
    counts = torch.zeros(len(centers), places, dtype=torch.int64, device=centers.device)
    return counts.scatter_add_(1, centers, torch.ones_like(centers)).cumsum_(1)


def renumber_codes(codes: Tensor, centers: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Renumber codes consecutively, so that only codes of the given points and centers remain.

    Returns
    -------
    codes : Tensor [f, n] of int64
    centers : Tensor [f, k] of int64
    original : Tensor [f, places] of int64
        The old code for every new one.
    """
    n = codes.shape[1]
    values = torch.cat([codes, centers.to(codes.dtype)], 1).to(torch.int64)
    new, size = row_ranks(*sorted_rows(values))
    new = new.to(torch.int64)
    return new[:, :n], new[:, n:], new.new_zeros(len(codes), int(size.max())).scatter_(1, new, values)


def _step(buffer: int, entries: int, device: torch.device) -> int:
    """Number of columns whose indices are computed at a time."""
    return max(1, (buffer if device.type == "cpu" else BUDGET) // max(entries, 1))


def transposed(codes: Tensor) -> Tensor:
    """A transposed copy, made in blocks that fit into a core's cache."""
    rows, columns = codes.shape
    result = codes.new_empty(columns, rows)
    for first in range(0, rows, 256):
        result[:, first : first + 256] = codes[first : first + 256].T
    return result


def gathered(values: Tensor, rows: Tensor) -> Tensor:
    """Values [m, points] of some points, or of all in their order; several times faster than `index_select`."""
    return values if len(rows) == values.shape[1] else values.gather(1, rows.expand(len(values), -1))
