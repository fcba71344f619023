"""Codes of the values of columns: ranks among the distinct values of points and centers."""

from __future__ import annotations

import torch
from torch import Tensor

from neonxc.common.processes import Ranks
from neonxc.trees.coding.bins import Bins
from neonxc.trees.coding.ordering import is_first, sorted_rows

EXACT = 2.0**53  # larger integers are not exact in float64
INDICES = 280_000  # number of indices that fit into a core's cache
INTEGERS = 1 << 10  # integers within a range of this length are coded without sorting


def integer_ranks(values: Tensor, centers: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
    """Codes of integers in a small range, computed by table lookup; None for other values."""
    if values.is_floating_point() and not bool((values[:, :100] == values[:, :100].round()).all()):
        return None
    low, high = values.amin(1), values.amax(1)
    if bool((high.to(torch.float64) - low.to(torch.float64) >= INTEGERS).any()):
        return None
    if bool((torch.stack([low, high]).to(torch.float64).abs() >= EXACT).any()):
        return None
    if values.is_floating_point() and not bool((values == values.round()).all()):
        return None
    low = low.to(torch.int64)
    numbers = low[:, None] + torch.arange(int((high.to(torch.int64) - low).max()) + 1, device=values.device)
    grid, order = sorted_rows(torch.cat([numbers.to(torch.float64), centers], 1))
    rank = is_first(grid).cumsum(1, dtype=torch.int32).sub_(1)
    ranks = torch.empty_like(rank).scatter_(1, order, rank)
    table = ranks[:, : numbers.shape[1]].to(code_type(grid.shape[1]))
    codes = torch.empty(values.shape, dtype=table.dtype, device=values.device)
    step = max(1, INDICES // values.shape[1])
    for first in range(0, len(values), step):
        part = slice(first, first + step)
        index = torch.sub(values[part], low[part, None]).to(torch.int64)
        torch.gather(table[part], 1, index, out=codes[part])
    return codes, ranks[:, numbers.shape[1] :].to(torch.int64), rank[:, -1].to(torch.int64) + 1


def sorted_ranks(values: Tensor, centers: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Codes of arbitrary numbers, computed by sorting them together with the centers."""
    n = values.shape[1]
    exact = torch.float64 if values.dtype != torch.float32 or not _representable(centers) else torch.float32
    ordered, order = sorted_rows(torch.cat([values.to(exact), centers.to(exact)], 1))
    new = is_first(ordered)
    rank = new.cumsum(1, dtype=torch.int32).sub_(1)
    codes = torch.empty_like(rank).scatter_(1, order, rank)
    return codes[:, :n], codes[:, n:].to(torch.int64), rank[:, -1].to(torch.int64) + 1


def ranks_of_all(values: Tensor, centers: Tensor, ranks: Ranks) -> tuple[Tensor, Tensor, Tensor] | None:
    """Ranks among the values of all processes; None if there is only one process."""
    if ranks.alone:
        return None
    own = _distinct(torch.cat([values.to(torch.float64), centers], 1))
    every = _distinct(torch.cat(ranks.gather(own.T.contiguous())).T.contiguous())
    size = every.isfinite().sum(1)
    bins = Bins(every, size)
    return bins.codes(values, torch.int32), bins.places(centers), size


def _distinct(values: Tensor) -> Tensor:
    """Sorted distinct values of every row, padded by infinity."""
    ordered = sorted_rows(values + 0.0)[0]  # -0.0 is 0.0
    ordered = ordered.masked_fill(~is_first(ordered), torch.inf).sort(dim=1).values
    return ordered[:, : int(ordered.isfinite().sum(1).max())]


def _representable(centers: Tensor) -> bool:
    return bool((centers.to(torch.float32).to(torch.float64) == centers).all())


def code_type(size: int) -> torch.dtype:
    """The smallest integer type that holds `size` codes."""
    return torch.uint8 if size <= 256 else torch.int16 if size <= 1 << 15 else torch.int32
