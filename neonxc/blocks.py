"""One memory budget: how many rows of something are worked on at once."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

CPU, ACCELERATOR = 1 << 27, 1 << 30  # bytes that one step may hold
COPIES = 27  # of an input's numbers that a walk through a network keeps in float32, roughly
LEAST = 1 << 15  # bytes that a row of a table counts as in a network, whose layers may be far wider


def at_once(bytes_per_row: int, device: torch.device | str = "cpu") -> int:
    """How many rows fit into the budget of a device, at least 1."""
    budget = CPU if torch.device(device).type == "cpu" else ACCELERATOR
    return max(1, budget // max(1, bytes_per_row))


def blocks(n: int, bytes_per_row: int, device: torch.device | str = "cpu") -> Iterator[slice]:
    """Slices that cover n rows, each as large as the budget of a device allows.

    Parameters
    ----------
    n : int
        Number of rows.
    bytes_per_row : int
        Bytes that working on one row takes, temporaries included.
    device : torch.device or str
        Where the work is done.

    Examples
    --------
    >>> from neonxc.blocks import blocks
    >>> [(rows.start, rows.stop) for rows in blocks(5, bytes_per_row=1 << 26)]
    [(0, 2), (2, 4), (4, 5)]
    """
    size = at_once(bytes_per_row, device)
    for first in range(0, n, size):
        yield slice(first, min(first + size, n))


def network_bytes(x: Tensor) -> int:
    """Bytes that a network needs for one of its inputs [N, ...], as far as their size can tell."""
    return max(LEAST, COPIES * x[0].numel() * max(4, x.element_size())) if len(x) else LEAST
