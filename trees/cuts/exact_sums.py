"""Sums that are exact, so that they depend neither on the order of the numbers nor on how processes share them."""

from __future__ import annotations

import hashlib
from math import frexp

import torch
from torch import Tensor

from neonxc.common.processes import ALONE, Ranks


def rounded(values: Tensor, total: Tensor | None = None, out: Tensor | None = None) -> Tensor:
    """Round values to multiples of a tiny power of two, so that their sums are exact.

    Sums of such units are exact in float64, in any order. Therefore trees do not depend on the
    number of threads, on chunks of columns, or on the distribution of points to processes.

    Parameters
    ----------
    values : Tensor [..., n] of float64
    total : Tensor, optional
        Upper bound of the absolute values of the sums. Default: the sum of the absolute values along the last
        dimension.
    out : Tensor, optional
        Where the result is written, for instance `values`.

    Notes
    -----
    Let e be the exponent with ``2**(e - 1) <= total < 2**e``. The numbers of float64 between ``2**(e + 1)`` and
    ``2**(e + 2)`` are the multiples of

        unit  =  2**(e + 1 - 52)  =  2**(e - 51)

    there. Adding a value, of which the absolute value is below ``2**e``, to ``large = 1.5 * 2**(e + 1)`` gives
    a number in that range. The addition therefore rounds it to a multiple of the unit, and subtracting `large`
    again is exact. Every sum of n rounded values is a multiple of the unit, of at most 2**51 + n / 2 units.
    Float64 holds all integers up to 2**53, so that no addition of such values rounds.

    A value changes by at most ``unit / 2 = 2**(e - 52) <= 2 * eps * total``, with ``eps = 2**-52``.
    """
    if total is None:
        total = torch.linalg.vector_norm(values, 1, -1, keepdim=True)
    large = rounding_shift(total)
    return torch.add(values, large, out=out).sub_(large)


def rounding_shift(total: Tensor) -> Tensor:
    """The number `large` of :func:`rounded`: values are rounded by adding and subtracting it."""
    # so that the unit is a normal number
    total = total.clamp(min=torch.finfo(torch.float64).tiny * 2**53)
    power = total / torch.frexp(total).mantissa  # 2**e
    return 3 * power


def integer_weights(weight: Tensor) -> Tensor:
    """Round weights to int64 of a sum below 2**41, scaled by a power of two unless they are such numbers."""
    total = float(weight.sum())
    if total >= 2**40 or bool((weight != weight.round()).any()):
        exponent = frexp(total)[1]  # total < 2**exponent
        weight = weight / 2.0**exponent * 2**40
    return weight.round().to(torch.int64)


def exact_total(values: Tensor, ranks: Ranks) -> Tensor:
    """Sum of absolute values along the last dimension over all processes, which is bitwise reproducible.

    The values are rounded for an upper bound that does not depend on the order either: their number times the
    largest.
    """
    magnitudes = values.abs()
    n = torch.tensor(values.shape[-1], device=values.device)
    if n:
        largest = magnitudes.amax(-1)
    else:  # a process may have no values
        largest = magnitudes.sum(-1)
    if not ranks.alone:
        n = ranks.sum(n)
        largest = ranks.max(largest)
    bound = (n * largest)[..., None]
    total = rounded(magnitudes, bound, magnitudes).sum(-1)
    if ranks.alone:
        return total
    return ranks.sum(total)


def counts_by_label(labels: Tensor, k: int, weight: Tensor | None = None, ranks: Ranks = ALONE) -> Tensor:
    """Number (or weight) of points with every label over all processes, [k] of float64; there may be no points."""
    counts = torch.bincount(labels, weight, minlength=k).to(torch.float64)
    if ranks.alone:
        return counts
    return ranks.sum(counts)


def relative_mass(labels: Tensor, k: int, weight: Tensor | None, ranks: Ranks) -> Tensor:
    """Weight of all points in units of the mean weight of each cluster's points, [k]: without weights, n."""
    count = counts_by_label(labels, k, None, ranks)
    mass = counts_by_label(labels, k, weight, ranks)
    return mass.sum() * (count / mass).nan_to_num(0)


def digest(*tensors: Tensor) -> str:
    """Short hash of the numbers in tensors; 0.0 and -0.0 are equal."""
    sha = hashlib.sha256()
    for values in tensors:
        numbers = values.to(torch.float64) + 0.0  # turns -0.0 into 0.0
        sha.update(numbers.cpu().contiguous().numpy().tobytes())
    return sha.hexdigest()[:12]
