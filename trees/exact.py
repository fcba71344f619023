"""Exact sums, which do not depend on the order of the values or on the processes that hold them."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

from neonxc.ranks import Ranks


def rounded(values: Tensor, total: Tensor | None = None) -> Tensor:
    """Round values to multiples of a power of two that is so small that it does not matter.

    Sums of at most 2**51 such units are exact in float64, in whatever order they are added up. So trees do not
    depend on the number of threads, on chunks of columns, or on how points are distributed over processes.

    Parameters
    ----------
    values : Tensor [..., n] of float64
    total : Tensor, optional
        What sums may come to; default: the sum of the sizes of the values along the last dimension.
    """
    large = rounding_to(values, total)
    return (values + large).sub_(large)


def rounded_(values: Tensor, total: Tensor | None = None) -> Tensor:
    """As :func:`rounded`, in place."""
    large = rounding_to(values, total)
    return values.add_(large).sub_(large)


def rounding_to(values: Tensor, total: Tensor | None) -> Tensor:
    """A number so large that what is added to it is rounded to 2**-51 of the power of 2 above the total.

    :func:`rounded` adds it and takes it away again.
    """
    if total is None:
        total = torch.linalg.vector_norm(values, 1, -1, keepdim=True)
    total = total.clamp(min=torch.finfo(torch.float64).tiny * 2**53)
    return torch.ldexp(torch.full_like(total, 1.5), torch.frexp(total).exponent + 1)


def total_of(values: Tensor, ranks: Ranks) -> Tensor:
    """The sum of the sizes of values along the last dimension, over all processes.

    It is the same, bit for bit, however the values are distributed and ordered.
    """
    sizes = values.abs()
    most = ranks.max(torch.cat([sizes, torch.zeros_like(sizes[..., :1].sum(-1, keepdim=True))], -1).amax(-1))
    n = ranks.sum(torch.tensor(values.shape[-1], device=values.device))
    return ranks.sum(rounded_(sizes, (n * most)[..., None]).sum(-1))


def tally(labels: Tensor, k: int, weight: Tensor | None = None) -> Tensor:
    """Points of every label, or their weight, [k] of float64; there may be no points."""
    return torch.bincount(labels, weight, minlength=k).to(torch.float64)


def digest(*tensors: Tensor) -> str:
    """A few digits that differ for other numbers; 0.0 and -0.0 are the same."""
    found = hashlib.sha256()
    for values in tensors:
        found.update((values.to(torch.float64) + 0.0).cpu().contiguous().numpy().tobytes())
    return found.hexdigest()[:12]
