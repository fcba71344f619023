"""The memory budget: the number of rows that are processed at once.

rows at once = budget of the device / bytes per row, at least 1
bytes per row of a network = COPIES * numbers of an input * bytes of a number, at least LEAST
"""

from __future__ import annotations

import torch
from torch import Tensor

CPU = 1 << 27
"""Largest number of bytes of a step on a CPU."""
ACCELERATOR = 1 << 30
"""Largest number of bytes of a step on another device."""
CACHE = 1 << 22
"""Bytes of a step that stays in a processor's cache; larger ones wait for the memory."""
COPIES = 27
"""Float32 numbers that a pass through a network keeps per number of the input, roughly."""
LEAST = 1 << 15
"""Smallest number of bytes per row of a table in a network, whose layers may be much wider than the table."""


def at_once(bytes_per_row: int, device: torch.device | str = "cpu", on_cpu: int | None = None) -> int:
    """Return the number of rows that fit into the budget of a device, at least 1."""
    if torch.device(device).type == "cpu":
        budget = on_cpu or CPU
    else:
        budget = ACCELERATOR
    return max(1, budget // max(1, bytes_per_row))


def blocks(
    n: int, bytes_per_row: int, device: torch.device | str = "cpu", on_cpu: int | None = None
) -> list[slice]:
    """Return slices that cover n rows, each as large as the budget of a device allows.

    Parameters
    ----------
    n : int
        Number of rows.
    bytes_per_row : int
        Bytes needed to process one row, including temporaries.
    device : torch.device or str
        Device of the computation.
    on_cpu : int, optional
        Budget of a CPU, in bytes. Default: 128 MiB.

    Examples
    --------
    >>> from neonxc.common.memory import blocks
    >>> [(rows.start, rows.stop) for rows in blocks(5, bytes_per_row=1 << 26)]
    [(0, 2), (2, 4), (4, 5)]
    """
    size = at_once(bytes_per_row, device, on_cpu)
    return [slice(first, min(first + size, n)) for first in range(0, n, size)]


def network_bytes(x: Tensor) -> int:
    """Estimate the bytes that a network needs for one of its inputs [N, ...] from the input's size."""
    if not len(x):
        return LEAST
    bytes_per_number = max(4, x.element_size())  # networks compute in float32 at least
    return max(LEAST, COPIES * x[0].numel() * bytes_per_number)
