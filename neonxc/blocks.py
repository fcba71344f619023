"""One memory budget: how many rows of something are worked on at once."""

from __future__ import annotations

from collections.abc import Iterator

import torch

CPU, ACCELERATOR = 1 << 27, 1 << 30  # bytes that one step may hold


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
