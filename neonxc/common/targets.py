"""Checks of the outputs of a network to explain: one for all inputs, one for each, or one location of a map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neonxc.common.numbers import plural
from neonxc.common.types import ArrayLike, Label

UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
"""Types for which PyTorch has few operations."""


def as_positions(value: Label | ArrayLike, n: int, K: int, name: str, device: torch.device) -> Tensor:
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
        If values are not whole numbers from 0 to K - 1, or if there are neither one nor n of them.
    """
    try:
        values = value if isinstance(value, Tensor) else np.array(value)
        positions = torch.as_tensor(values, device=device)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"{name} needs column numbers from 0 to {K - 1}, got {value!r}") from None
    if positions.is_floating_point() or positions.dtype == torch.bool:
        raise ValueError(f"{name} needs whole column numbers, got {positions.dtype}")
    if positions.dtype in UNSIGNED:
        positions = positions.long()
    if positions.numel() and (int(positions.min()) < 0 or int(positions.max()) >= K):
        raise ValueError(f"{name} needs columns from 0 to {K - 1}, got {positions.tolist()}")
    is_single = positions.numel() == 1 and positions.ndim <= 1
    if is_single:
        return positions.long().reshape(()).expand(n)
    if positions.shape != (n,):
        raise ValueError(f"{name} needs one column or one per input ({n}), got shape {list(positions.shape)}")
    return positions.long()


def check_place(location: Sequence[int], a: Tensor) -> Tensor:
    """Return the mask [N, ...] of one location of a map of features [N, d, ...]."""
    shape = a.shape[2:]
    if len(location) != len(shape) or any(not 0 <= i < n for i, n in zip(location, shape, strict=True)):
        raise ValueError(f"target has the place {tuple(location)}, outside the feature map of shape {list(shape)}")
    mask = torch.zeros(a.shape[0], *shape, dtype=torch.bool, device=a.device)
    index: Any = (slice(None), *location)
    mask[index] = True
    return mask


def part(argument: Any, name: str, rows: slice, n: int | None = None) -> Any:
    """Return the entries of a per-input argument for a block; scalars, tuples and None apply to all inputs.

    If the number n of inputs is known, another number of entries is an error.
    """
    if hasattr(argument, "iloc"):  # a Series would be sliced by its index
        argument = np.array(argument)
    if argument is None or isinstance(argument, (int, tuple)):
        return argument
    if np.shape(argument) in ((), (1,)):
        return argument
    if n is not None and len(argument) != n:
        raise ValueError(f"{name} has {plural(len(argument), 'entry')} for {plural(n, 'input')}")
    return argument[rows]
