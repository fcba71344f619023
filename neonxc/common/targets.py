"""Checks of the arguments `target`, `competitor` and `clusters`: the outputs or clusters to explain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
"""Types of which torch has few operations."""


def as_columns(value: Any, n: int, K: int, name: str, device: torch.device, hint: str = "") -> Tensor:
    """Return one column per input, [n], from one for all inputs or one for each.

    Parameters
    ----------
    value : int, sequence or Tensor [n]
    n : int
        Number of inputs.
    K : int
        Number of columns.
    name : str
        Name of the argument in errors.
    device : torch.device
        Device of the result.
    hint : str
        Added to the error about values that are no numbers.

    Raises
    ------
    ValueError
        Values that are no whole numbers from 0 to K - 1, or another number of them than n.
    """
    try:
        columns = torch.as_tensor(value if isinstance(value, Tensor) else np.array(value), device=device)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"{name} needs column numbers from 0 to {K - 1}{hint}, got {value!r}") from None
    if columns.dtype in UNSIGNED:  # for which torch has few operations
        columns = columns.long()
    check_columns(columns, K, name)
    if columns.ndim == 0 or (columns.numel() == 1 and columns.ndim == 1):
        return columns.long().reshape(()).expand(n)
    if columns.shape != (n,):
        raise ValueError(f"{name} needs one column or one per input ({n}), got shape {list(columns.shape)}")
    return columns.long()


def check_columns(columns: Tensor, K: int, name: str) -> None:
    """Raise ValueError unless all columns are whole numbers from 0 to K - 1."""
    if columns.is_floating_point() or columns.dtype == torch.bool:
        raise ValueError(f"{name} needs whole column numbers, got {columns.dtype}")
    if columns.numel() and not (int(columns.min()) >= 0 and int(columns.max()) < K):
        raise ValueError(f"{name} needs columns from 0 to {K - 1}, got {columns.tolist()}")


def part(argument: Any, name: str, want: slice, n: int) -> Any:
    """The entries of a per-input argument that belong to a block; scalars, tuples and None apply to all inputs."""
    if hasattr(argument, "iloc"):  # a Series would be sliced by its index
        argument = np.array(argument)
    if argument is None or isinstance(argument, (int, tuple)) or np.shape(argument) in ((), (1,)):
        return argument
    if len(argument) != n:
        raise ValueError(f"{name} has {len(argument)} entries for {n} inputs")
    return argument[want]


def some_columns(clusters: Sequence[int] | None, K: int) -> list[int]:
    """Return the selected columns, or all K columns if `clusters` is None."""
    if clusters is None:
        return list(range(K))
    columns = np.asarray(clusters)
    if columns.ndim != 1 or columns.size == 0 or columns.dtype.kind not in "iu":
        raise ValueError(f"clusters needs a sequence of column numbers from 0 to {K - 1}, got {clusters!r}")
    return as_columns(columns, len(columns), K, "clusters", torch.device("cpu")).tolist()
