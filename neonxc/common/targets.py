"""Checks of the outputs of a network to explain: one for all inputs, one for each, or one location of a map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
"""Types of which torch has few operations."""


def as_positions(value: Any, n: int, K: int, name: str, device: torch.device) -> Tensor:
    """Return the position of an output for each input, [n], from one for all inputs or one for each.

    Parameters
    ----------
    value : int, sequence or Tensor [n]
    n : int
        Number of inputs.
    K : int
        Number of outputs.
    name : str
        Name of the argument in errors.
    device : torch.device
        Device of the result.

    Raises
    ------
    ValueError
        Values that are no whole numbers from 0 to K - 1, or another number of them than n.
    """
    try:
        positions = torch.as_tensor(value if isinstance(value, Tensor) else np.array(value), device=device)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"{name} needs column numbers from 0 to {K - 1}, got {value!r}") from None
    if positions.is_floating_point() or positions.dtype == torch.bool:
        raise ValueError(f"{name} needs whole column numbers, got {positions.dtype}")
    positions = positions.long() if positions.dtype in UNSIGNED else positions
    if positions.numel() and not (int(positions.min()) >= 0 and int(positions.max()) < K):
        raise ValueError(f"{name} needs columns from 0 to {K - 1}, got {positions.tolist()}")
    if positions.ndim == 0 or (positions.numel() == 1 and positions.ndim == 1):
        return positions.long().reshape(()).expand(n)
    if positions.shape != (n,):
        raise ValueError(f"{name} needs one column or one per input ({n}), got shape {list(positions.shape)}")
    return positions.long()


def check_place(place: Sequence[int], a: Tensor) -> Tensor:
    """Return the mask [N, ...] of one location of a map of features [N, d, ...]."""
    if len(place) != a.ndim - 2 or any(not 0 <= i < n for i, n in zip(place, a.shape[2:], strict=True)):
        raise ValueError(
            f"target has the place {tuple(place)}, outside the feature map of shape {list(a.shape[2:])}"
        )
    where = torch.zeros(a.shape[0], *a.shape[2:], dtype=torch.bool, device=a.device)
    index: Any = (slice(None), *place)
    where[index] = True
    return where


def part(argument: Any, name: str, want: slice, n: int | None = None) -> Any:
    """The entries of a per-input argument that belong to a block; scalars, tuples and None apply to all inputs.

    If the number n of inputs is known, another number of entries is an error.
    """
    if hasattr(argument, "iloc"):  # a Series would be sliced by its index
        argument = np.array(argument)
    if argument is None or isinstance(argument, (int, tuple)) or np.shape(argument) in ((), (1,)):
        return argument
    if n is not None and len(argument) != n:
        raise ValueError(f"{name} has {len(argument)} entries for {n} inputs")
    return argument[want]
