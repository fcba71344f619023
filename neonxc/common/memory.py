"""The memory budget: the number of rows that are processed at once."""

from __future__ import annotations

import torch
from torch import Tensor

# maximum bytes of one step
CPU = 1 << 27
ACCELERATOR = 1 << 30
CACHE = 1 << 22  # bytes of a step that stays in a processor's cache; larger ones wait for the memory
COPIES = 27  # float32 numbers that a pass through a network keeps per number of the input, roughly
# minimum bytes per row of a table in a network, because its layers may be much wider than the table
LEAST = 1 << 15


def at_once(bytes_per_row: int, device: torch.device | str = "cpu", on_cpu: int | None = None) -> int:
    """Return the number of rows that fit into the budget of a device, at least 1."""
    budget = (on_cpu or CPU) if torch.device(device).type == "cpu" else ACCELERATOR
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
    return max(LEAST, COPIES * x[0].numel() * max(4, x.element_size())) if len(x) else LEAST
