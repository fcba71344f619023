"""Sums over points by bin, for all cuts of some columns.

With the bin B(x) of every point x in a column, a cut b sends the points with B(x) <= b to the left, so that sums
over the left of all cuts are prefix sums of a histogram:

===================  ==============================================================================================
histogram            h[label, b]  =  number (or weight) of the points x of the label with B(x) = b
channels             h[i, b]      =  sum of the i-th value of the points x with B(x) = b
separated_by_center  s[c, b]      =  number (or weight) of the points x of the label c that cut b separates from
                                     the center of c, whose bin is B_c
separated            s[b]         =  sum over c of s[c, b]
===================  ==============================================================================================

With the prefix sums H of h, and the number N of points of label c, a cut left of the center (b < B_c) separates
the points on its left, H[c, b], and another one those on its right, N_c - H[c, b]. Both are

    s[c, b]  =  |H[c, b] - N_c 1(b >= B_c)|,

which are prefix sums again: of the histogram less N_c at the bin of the center.

Bins have shape [f, n], one row per column. Sums are exact (:func:`neonxc.trees.cuts.exact_sums.rounded`), so that
they depend neither on the order of the points nor on the blocks in which they are computed.
"""

from __future__ import annotations

import torch
from torch import Tensor

from neonxc.trees.cuts.exact_sums import sorted_rows
from neonxc.trees.cuts.ranks import row_ranks

BUFFER = 280_000  # number of indices that fit into a core's cache
CACHED = 1 << 19  # entries of a histogram over which several passes are made
BUDGET = 1 << 24  # maximum number of entries of any temporary array


def histogram(bins: Tensor, n_bins: int, labels: Tensor | None, k: int, weight: Tensor | None = None) -> Tensor:
    """Count the points (or add their weights) by column, label and bin.

    Parameters
    ----------
    bins : Tensor [f, n] of integers below `n_bins`
    n_bins : int
    labels : Tensor [n] of int64 below `k`, or None if `k` is 1
    k : int
    weight : Tensor [n] of float64, optional

    Returns
    -------
    Tensor [f, k, n_bins] of int32, or of float64 with weights
    """
    f, n = bins.shape
    dtype = _sum_type(weight)
    result = torch.zeros(f, k * n_bins, dtype=dtype, device=bins.device)
    if weight is None:
        values = torch.ones((), dtype=dtype, device=bins.device)
    else:
        values = weight
    offset = None
    if labels is not None:
        # small integers are added twice as fast
        offset_type = torch.int16 if k * n_bins <= 1 << 15 else torch.int64
        offset = (labels * n_bins).to(offset_type)

    step = _step(BUFFER, n, bins.device)
    buffer = torch.empty(min(step, f), n, dtype=torch.int64, device=bins.device)
    for first in range(0, f, step):
        part = bins[first : first + step]
        index = buffer[: len(part)].copy_(part if offset is None else part + offset)
        result[first : first + step].scatter_add_(1, index, values.expand_as(index))
    return result.view(f, k, n_bins)


def channels(bins: Tensor, n_bins: int, values: Tensor) -> Tensor:
    """Sums of m values per point by column and bin, [f, m, n_bins]; `values` has shape [m, n]."""
    f, n = bins.shape
    m = len(values)
    result = torch.zeros(f, m, n_bins, dtype=torch.float64, device=bins.device)
    step = _step(BUFFER, n * m, bins.device)
    for first in range(0, f, step):
        index = bins[first : first + step].to(torch.int64)[:, None].expand(-1, m, -1)
        result[first : first + step].scatter_add_(2, index, values.expand_as(index))
    return result


def selected_channels(bins: Tensor, n_bins: int, values: Tensor, which: Tensor) -> Tensor:
    """Prefix sums, [f, n_bins], of one row of `values` [m, n] for every column, as given by `which` [f]."""
    f, n = bins.shape
    result = torch.zeros(f, n_bins, dtype=torch.float64, device=bins.device)
    step = max(1, BUDGET // 4 // max(n, n_bins))
    for first in range(0, f, step):
        part = slice(first, first + step)
        index = bins[part].to(torch.int64)
        result[part].scatter_add_(1, index, values.index_select(0, which[part]))
    return result.cumsum_(1)


def separated_by_center(
    bins: Tensor, n_bins: int, labels: Tensor, centers: Tensor, weight: Tensor | None = None
) -> Tensor:
    """Number (or weight) of points that each cut separates from the center of their label, by label.

    Parameters
    ----------
    bins : Tensor [f, n]
    n_bins : int
    labels : Tensor [n] of int64
    centers : Tensor [f, k] of int64
        Bins of the centers.
    weight : Tensor [n] of float64, optional

    Returns
    -------
    Tensor [f, k, n_bins]
    """
    f, k = centers.shape
    result = torch.empty(f, k, n_bins, dtype=_sum_type(weight), device=bins.device)
    mass = _mass(labels, k, weight)
    for columns in _column_blocks(f, k * n_bins):
        result[columns] = _separated_block(bins[columns], n_bins, labels, centers[columns], mass, weight)
    return result


def separated(bins: Tensor, n_bins: int, labels: Tensor, centers: Tensor, weight: Tensor | None = None) -> Tensor:
    """The sum over all labels of :func:`separated_by_center`, [f, n_bins]."""
    f, k = centers.shape
    if k * n_bins > len(labels):  # a histogram by label would be larger than the node
        return _separated_directly(bins, n_bins, labels, centers, weight)
    result = torch.empty(f, n_bins, dtype=_sum_type(weight), device=bins.device)
    mass = _mass(labels, k, weight)
    for columns in _column_blocks(f, k * n_bins):
        by_center = _separated_block(bins[columns], n_bins, labels, centers[columns], mass, weight)
        torch.sum(by_center, 1, dtype=result.dtype, out=result[columns])
    return result


def _mass(labels: Tensor, k: int, weight: Tensor | None) -> Tensor:
    """Number (or weight) of the points of every label, [k, 1]."""
    return torch.bincount(labels, weight, minlength=k)[:, None].to(_sum_type(weight))


def _separated_block(
    bins: Tensor, n_bins: int, labels: Tensor, centers: Tensor, mass: Tensor, weight: Tensor | None
) -> Tensor:
    """|H[c, b] - N_c 1(b >= B_c)| for a few columns, [f, k, n_bins]; `mass` [k, 1] is N_c."""
    counts = histogram(bins, n_bins, labels, len(mass), weight)
    center_bins = centers[..., None]
    counts.scatter_add_(2, center_bins, -mass.expand_as(center_bins))
    return counts.cumsum_(2).abs_()


def _separated_directly(
    bins: Tensor, n_bins: int, labels: Tensor, centers: Tensor, weight: Tensor | None = None
) -> Tensor:
    """The same as :func:`separated`, without a histogram by label.

    A point x with B(x) < B_c is separated by the cuts from B(x) on up to those before B_c: its weight is added
    at B(x) and subtracted at B_c. If B_c < B(x), it is subtracted at B(x) and added at B_c. The result are the
    prefix sums.
    """
    f, n = bins.shape
    dtype = _sum_type(weight)
    change = torch.zeros(f, n_bins, dtype=dtype, device=bins.device)  # at the points
    change_by_center = torch.zeros(centers.shape, dtype=dtype, device=bins.device)
    signed_type = torch.promote_types(bins.dtype, torch.int16)
    center_bins = centers.to(signed_type)

    step = _step(BUFFER, n, bins.device)
    index_buffer = torch.empty(min(step, f), n, dtype=torch.int64, device=bins.device)
    value_buffer = torch.empty(min(step, f), n, dtype=dtype, device=bins.device)
    for first in range(0, f, step):
        columns = slice(first, first + step)
        part = bins[columns]
        # 1 for points left of their center, -1 for those right of it
        sign = center_bins[columns].index_select(1, labels).sub_(part).sign_()
        values = value_buffer[: len(part)]
        if weight is None:
            values.copy_(sign)
        else:
            torch.mul(sign, weight, out=values)
        index = index_buffer[: len(part)].copy_(part)
        change[columns].scatter_add_(1, index, values)
        change_by_center[columns].scatter_add_(1, labels.expand_as(part), values)
    return change.scatter_add_(1, centers, -change_by_center).cumsum_(1)


def least_within(separated: Tensor) -> Tensor:
    """Lower bound [f, n_bins] of the weight that any cut inside a bin of several codes separates from the centers.

    A cut t inside bin b has H[c, b - 1] <= H[c, t] <= H[c, b]. If it is left of the center of c, it separates
    H[c, t] >= s[c, b - 1] points, and otherwise N_c - H[c, t] >= s[c, b]. Every center therefore contributes at
    least the smaller one of s[c, b - 1] and s[c, b].

    Parameters
    ----------
    separated : Tensor [f, centers, n_bins]
        The result of :func:`separated_by_center`.
    """
    least = separated.clone()
    torch.minimum(separated[..., 1:], separated[..., :-1], out=least[..., 1:])
    least[..., 0] = 0  # s[c, -1]: no point is left of the first bin
    return least.sum(1, dtype=separated.dtype)


def centers_left(centers: Tensor, n_bins: int) -> Tensor:
    """Number of centers that each cut sends to the left, [f, n_bins]."""
    counts = torch.zeros(len(centers), n_bins, dtype=torch.int64, device=centers.device)
    return counts.scatter_add_(1, centers, torch.ones_like(centers)).cumsum_(1)


def renumber_codes(codes: Tensor, centers: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Renumber codes consecutively, so that only codes of the given points and centers remain.

    Returns
    -------
    codes : Tensor [f, n] of int64
    centers : Tensor [f, k] of int64
    original : Tensor [f, n_bins] of int64
        The old code for every new one.
    """
    n = codes.shape[1]
    values = torch.cat([codes, centers.to(codes.dtype)], 1).to(torch.int64)
    new, size = row_ranks(*sorted_rows(values))
    new = new.to(torch.int64)
    original = new.new_zeros(len(codes), int(size.max())).scatter_(1, new, values)
    return new[:, :n], new[:, n:], original


def _sum_type(weight: Tensor | None) -> torch.dtype:
    """Type of sums of weights, or of counts."""
    return torch.int32 if weight is None else torch.float64


def _step(buffer: int, entries: int, device: torch.device) -> int:
    """Number of columns whose indices are computed at a time."""
    if device.type != "cpu":
        buffer = BUDGET
    return max(1, buffer // max(entries, 1))


def _column_blocks(f: int, entries: int) -> list[slice]:
    """Blocks of columns with so many entries of a histogram each, over which several passes are made."""
    step = max(1, CACHED // entries)
    return [slice(first, first + step) for first in range(0, f, step)]


def transposed(codes: Tensor) -> Tensor:
    """A transposed copy, made in blocks that fit into a core's cache."""
    rows, columns = codes.shape
    result = codes.new_empty(columns, rows)
    for first in range(0, rows, 256):
        result[:, first : first + 256] = codes[first : first + 256].T
    return result


def gathered(values: Tensor, rows: Tensor) -> Tensor:
    """Values [m, points] of some points, or of all in their order; several times faster than `index_select`."""
    if len(rows) == values.shape[1]:
        return values
    return values.gather(1, rows.expand(len(values), -1))
