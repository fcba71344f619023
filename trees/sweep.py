"""The sweep over all cuts of a node: histograms of codes, and their prefix sums.

A table of codes [f, n] has one row per column. Cut b of a column sends codes <= b to the left; every statistic of
all cuts is a prefix sum over a histogram [f, ..., bins].
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from neonxc.trees.columns import firsts, sorted_rows

if TYPE_CHECKING:
    from neonxc.trees.problem import Node, Problem

BUFFER = 280_000  # indices that stay in a core's cache while they are made and used
CACHED = 1 << 19  # entries of a histogram that several passes are made over
BUDGET = 1 << 24  # entries of anything that are held at once


def histogram(codes: Tensor, bins: int, labels: Tensor, k: int, weight: Tensor | None = None) -> Tensor:
    """Count the points, or add their weights, by column, label and code.

    Parameters
    ----------
    codes : Tensor [f, n] of integers below `bins`
    bins : int
    labels : Tensor [n] of int64 below `k`
    k : int
    weight : Tensor [n] of float64, optional

    Returns
    -------
    Tensor [f, k, bins] of int32, or of float64 with weights
    """
    f, n = codes.shape
    dtype = torch.int32 if weight is None else torch.float64
    result = torch.zeros(f, k * bins, dtype=dtype, device=codes.device)
    values = torch.ones((), dtype=dtype, device=codes.device) if weight is None else weight
    step = max(1, BUFFER // max(n, 1)) if codes.device.type == "cpu" else max(1, BUDGET // max(n, 1))
    offset = labels * bins
    buffer = torch.empty(min(step, f), n, dtype=torch.int64, device=codes.device)
    for first in range(0, f, step):
        part = codes[first : first + step]
        index = torch.add(part, offset, out=buffer[: len(part)])
        result[first : first + step].scatter_add_(1, index, values.expand_as(index))
    return result.view(f, k, bins)


def cells(codes: Tensor, start: Tensor, size: int, labels: Tensor, k: int, weight: Tensor | None = None) -> Tensor:
    """Histograms as of :func:`histogram`, with the columns one after the other, and no entry without a code.

    Parameters
    ----------
    start : Tensor [f] of int64
        Where every column begins.
    size : int
        Codes of all columns.

    Returns
    -------
    Tensor [k, size] of int32, or of float64 with weights
    """
    f, n = codes.shape
    dtype = torch.int32 if weight is None else torch.float64
    result = torch.zeros(k * size, dtype=dtype, device=codes.device)
    values = torch.ones((), dtype=dtype, device=codes.device) if weight is None else weight
    step = max(1, (BUFFER if codes.device.type == "cpu" else BUDGET) // max(n, 1))
    offset = labels * size
    for first in range(0, f, step):
        index = codes[first : first + step] + offset
        index += start[first : first + step, None]
        result.scatter_add_(0, index.flatten(), values.expand_as(index).reshape(-1))
    return result.view(k, size)


def channels(codes: Tensor, bins: int, values: Tensor) -> Tensor:
    """Sums of several values per point by column and code: ``values`` [m, n] of float64 -> [f, m, bins]."""
    f, n = codes.shape
    m = len(values)
    result = torch.zeros(f, m, bins, dtype=torch.float64, device=codes.device)
    step = max(1, BUFFER // max(n * m, 1)) if codes.device.type == "cpu" else max(1, BUDGET // max(n * m, 1))
    for first in range(0, f, step):
        part = codes[first : first + step].to(torch.int64)[:, None].expand(-1, m, -1)
        result[first : first + step].scatter_add_(2, part, values.expand_as(part))
    return result


def separated(counts: Tensor, centers: Tensor) -> Tensor:
    """Weight of the points that each cut separates from the center of their label, [f, bins].

    Parameters
    ----------
    counts : Tensor [f, k, bins]
        Of :func:`histogram`.
    centers : Tensor [f, k] of int64
        Codes of the labels' centers.
    """
    f, k, bins = counts.shape
    result = torch.empty(f, bins, dtype=counts.dtype, device=counts.device)
    place = torch.arange(bins, device=counts.device)
    step = max(1, CACHED // (k * bins))
    for first in range(0, f, step):
        some = slice(first, first + step)
        own = centers[some, :, None]
        side = (place < own).to(torch.int8) - (place > own).to(torch.int8)
        signed = counts[some] * side  # +1: a cut from here on, up to the center, is between them
        change = signed.sum(1, dtype=counts.dtype)
        change.scatter_add_(1, centers[some], -signed.sum(2, dtype=counts.dtype))
        torch.cumsum(change, 1, dtype=counts.dtype, out=result[some])
    return result


def separated_directly(
    codes: Tensor, bins: int, labels: Tensor, centers: Tensor, weight: Tensor | None = None
) -> Tensor:
    """The same as :func:`separated` without the histogram: for many bins or many labels."""
    own = centers.index_select(1, labels)
    side = (codes < own).to(torch.int8) - (codes > own).to(torch.int8)
    signed = side.to(torch.int64) if weight is None else side * weight
    change = torch.zeros(len(codes), bins, dtype=signed.dtype, device=codes.device)
    change.scatter_add_(1, codes.to(torch.int64), signed)
    jump = torch.zeros(centers.shape, dtype=signed.dtype, device=codes.device)
    jump.scatter_add_(1, labels.expand_as(codes), signed)
    change.scatter_add_(1, centers, -jump)
    return change.cumsum(1)


def centers_left(centers: Tensor, bins: int) -> Tensor:
    """How many centers each cut sends to the left, [f, bins]."""
    counts = torch.zeros(len(centers), bins, dtype=torch.int64, device=centers.device)
    return counts.scatter_add_(1, centers, torch.ones_like(centers)).cumsum(1)


def lost_by_center(
    codes: Tensor, bins: int, labels: Tensor, centers: Tensor, weight: Tensor | None = None
) -> Tensor:
    """The terms of :func:`separated`, center by center, [f, k, bins].

    A cut before the center loses the points left of it; one behind it those on the right, all less those on the
    left.
    """
    f, k = centers.shape
    result = torch.empty(f, k, bins, dtype=torch.int32 if weight is None else torch.float64, device=codes.device)
    mass = torch.bincount(labels, weight, minlength=k).to(result.dtype)
    step = max(1, CACHED // (k * bins))
    for first in range(0, f, step):
        some = slice(first, first + step)
        counts, own = histogram(codes[some], bins, labels, k, weight), centers[some, :, None]
        counts.scatter_add_(2, own, -mass[:, None].expand_as(own))
        torch.cumsum(counts, 2, dtype=counts.dtype, out=result[some]).abs_()
    return result


def least_within_bins(lost: Tensor) -> Tensor:
    """Least weight that a cut anywhere within a bin separates from its centers, [f, bins].

    As the sum of :func:`lost_by_center` over centers, but for cuts that lie between two codes of the same bin: its
    own points may be on the right side of such a cut, as before the bin or behind it.
    """
    least = lost.clone()
    torch.minimum(lost[..., 1:], lost[..., :-1], out=least[..., 1:])
    least[..., 0] = 0
    return least.sum(1, dtype=lost.dtype)


def number_of_bins(codes: Tensor, centers: Tensor) -> int:
    """One more than the greatest code."""
    return 1 + max(int(values.max()) if values.numel() else 0 for values in (codes, centers))


def compressed(codes: Tensor, centers: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Renumber codes so that only those of points and centers are left.

    Returns
    -------
    codes : Tensor [f, n] of int64
    centers : Tensor [f, k] of int64
    original : Tensor [f, bins] of int64
        The old code of every new one.
    """
    n = codes.shape[1]
    ordered, order = sorted_rows(torch.cat([codes, centers.to(codes.dtype)], 1))
    rank = firsts(ordered).cumsum(1).sub_(1)
    original = rank.new_zeros(len(codes), int(rank[:, -1].max()) + 1)
    original.scatter_(1, rank, ordered.to(torch.int64))
    ranks = torch.empty_like(rank).scatter_(1, order, rank)
    return ranks[:, :n], ranks[:, n:], original


def node_codes(problem: Problem, node: Node, values: int) -> Iterator[tuple[int, Tensor, Tensor | None]]:
    """Codes of a node's points, a few columns at a time.

    Parameters
    ----------
    values : int
        Statistics per code that the caller will hold.

    Yields
    ------
    first : int
        The first of the columns.
    codes : Tensor [f, points]
    original : Tensor [f, bins] or None
        Old codes, where they have been renumbered.
    """
    columns, points = problem.columns, max(len(node.rows), 1)
    renumber = columns.bins > max(256, 2 * points)
    bins = points if renumber else columns.bins
    all_codes = columns.at(node.rows)
    step = max(1, min(CACHED // (bins * max(values, 1)), BUDGET // points))
    for first in range(0, len(all_codes), step):
        codes = all_codes[first : first + step]
        if renumber:
            codes, _, original = compressed(codes, columns.centers[first : first + step, node.centers])
            yield first, codes, original
        else:
            yield first, codes, None


def first_minimum(score: Tensor, slack: float = 0.0) -> tuple[int, int, float]:
    """The lowest column, then the lowest code, whose score [f, bins] is the least (within `slack`)."""
    least = score.min()
    if slack:
        place = int((score <= least + slack).view(torch.uint8).argmax())
    else:
        place = int(score.argmin())
    return place // score.shape[1], place % score.shape[1], float(least)
