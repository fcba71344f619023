"""Arithmetic on columns of numbers: sums that do not depend on any order, sorting and selection."""

from __future__ import annotations

import hashlib
from math import frexp
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neonxc.common.processes import Ranks


def rounded(values: Tensor, total: Tensor | None = None, out: Tensor | None = None) -> Tensor:
    """Round values to multiples of a tiny power of two, so that their sums are exact.

    Sums of at most 2**51 such units are exact in float64, in any order. Therefore trees do not depend on the
    number of threads, on chunks of columns, or on the distribution of points to processes.

    Parameters
    ----------
    values : Tensor [..., n] of float64
    total : Tensor, optional
        Upper bound of the absolute values of the sums. Default: the sum of the absolute values along the last
        dimension.
    out : Tensor, optional
        Where the result is written, for instance `values`.
    """
    if total is None:
        total = torch.linalg.vector_norm(values, 1, -1, keepdim=True)
    total = total.clamp(min=torch.finfo(torch.float64).tiny * 2**53)
    large = torch.ldexp(torch.full_like(total, 1.5), torch.frexp(total).exponent + 1)
    return torch.add(values, large, out=out).sub_(large)


def whole(weight: Tensor) -> Tensor:
    """Round weights to int64 of a sum below 2**41, scaled by a power of two unless they are such numbers."""
    total = float(weight.sum())
    if total >= 2**40 or bool((weight != weight.round()).any()):
        weight = weight / 2.0 ** frexp(total)[1] * 2**40
    return weight.round().to(torch.int64)


def exact_total(values: Tensor, ranks: Ranks) -> Tensor:
    """Sum of absolute values along the last dimension over all processes, which is bitwise reproducible."""
    sizes = values.abs()
    most = ranks.max(torch.cat([sizes, torch.zeros_like(sizes[..., :1].sum(-1, keepdim=True))], -1).amax(-1))
    n = ranks.sum(torch.tensor(values.shape[-1], device=values.device))
    return ranks.sum(rounded(sizes, (n * most)[..., None], sizes).sum(-1))


def counts_by_label(labels: Tensor, k: int, weight: Tensor | None = None) -> Tensor:
    """Number (or weight) of points with every label, [k] of float64; there may be no points."""
    return torch.bincount(labels, weight, minlength=k).to(torch.float64)


def digest(*tensors: Tensor) -> str:
    """Short hash of the numbers in tensors; 0.0 and -0.0 are equal."""
    found = hashlib.sha256()
    for values in tensors:
        found.update((values.to(torch.float64) + 0.0).cpu().contiguous().numpy().tobytes())
    return found.hexdigest()[:12]


PARALLEL = 1 << 20  # number of entries from which torch, which uses all cores, sorts faster than NumPy


def sorted_rows(values: Tensor) -> tuple[Tensor, Tensor]:
    """Sort every row; return the sorted values and the permutation, [f, n] of int64; ties are in any order."""
    if values.device.type != "cpu" or values.numel() >= PARALLEL:
        ordered, order = values.sort(dim=1)
        return ordered, order
    kind: Any = "stable" if values.element_size() <= 2 else None  # a radix sort for short integers
    order = torch.from_numpy(np.argsort(values.numpy(), axis=1, kind=kind))
    return values.gather(1, order), order


def is_first(ordered: Tensor) -> Tensor:
    """Mask of the values that differ from the previous one in their row, and of the first value of every row."""
    new = torch.ones_like(ordered, dtype=torch.bool)
    torch.ne(ordered[:, 1:], ordered[:, :-1], out=new[:, 1:])
    return new


def distinct(values: Tensor) -> Tensor:
    """Sorted distinct numbers of every row, padded by infinity, [f, n]."""
    ordered = sorted_rows(values + 0.0)[0]  # -0.0 is 0.0
    return ordered.masked_fill(~is_first(ordered), torch.inf).sort(dim=1).values


def select(numbers: Tensor, which: Tensor) -> Tensor:
    """Select the numbers [n] where a mask is True."""
    if numbers.device.type != "cpu":
        return numbers.masked_select(which)
    return torch.from_numpy(numbers.numpy()[which.numpy()])  # torch would need two temporary arrays of n integers
