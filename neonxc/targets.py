"""The outputs or clusters to explain: checks of the arguments `target`, `competitor` and `clusters`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor


def as_columns(value: Any, n: int, K: int, name: str, device: torch.device) -> Tensor:
    """Return columns [n] from one column for all inputs or one per input.

    Raises
    ------
    ValueError
        If the columns are not whole numbers from 0 to K - 1, or their number is not `n`.
    """
    try:
        columns = torch.as_tensor(_signed(value), device=device)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"{name} needs column numbers from 0 to {K - 1}, got {value!r}") from None
    check_columns(columns, K, name)
    if columns.ndim == 0 or (columns.numel() == 1 and columns.ndim == 1):
        return columns.long().reshape(()).expand(n)
    if columns.shape != (n,):
        raise ValueError(f"{name} needs one column or one per input ({n}), got shape {list(columns.shape)}")
    return columns.long()


def _signed(value: Any) -> Any:
    """Convert unsigned numbers to int64, because torch lacks most operations for some unsigned types."""
    if isinstance(value, Tensor):
        return value.to(torch.int64) if value.dtype in (torch.uint16, torch.uint32, torch.uint64) else value
    value = np.array(value) if hasattr(value, "iloc") else value
    return value.astype(np.int64) if getattr(value, "dtype", None) in (np.uint16, np.uint32, np.uint64) else value


def check_columns(columns: Tensor, K: int, name: str) -> None:
    """Raise a ValueError unless all columns are whole numbers from 0 to K - 1."""
    if columns.is_floating_point() or columns.dtype == torch.bool:
        raise ValueError(f"{name} needs column numbers (whole), got {columns.dtype}")
    if columns.numel() and not (int(columns.min()) >= 0 and int(columns.max()) < K):
        raise ValueError(f"{name} needs columns from 0 to {K - 1}, got {columns.tolist()}")


def part(argument: Any, name: str, want: slice, n: int) -> Any:
    """Return the part of a per-input argument that belongs to a chunk; scalars, tuples and None apply to all
    inputs."""
    if hasattr(argument, "iloc"):  # a Series is indexed by position
        argument = np.array(argument)
    if argument is None or isinstance(argument, (int, tuple)) or np.shape(argument) in ((), (1,)):
        return argument
    if len(argument) != n:
        raise ValueError(f"{name} has {len(argument)} entries for {n} inputs")
    return argument[want]


def some_columns(clusters: Sequence[int] | None, K: int) -> list[int]:
    """Return the given columns, or the columns of all clusters."""
    if clusters is None:
        return list(range(K))
    columns = np.asarray(clusters)
    if columns.ndim != 1 or columns.size == 0 or columns.dtype.kind not in "iu":
        raise ValueError(f"clusters needs a sequence of column numbers from 0 to {K - 1}, got {clusters!r}")
    check_columns(torch.as_tensor(columns), K, "clusters")
    return [int(column) for column in columns]


def explained(target: Any, own: Tensor, a: Tensor, K: int) -> tuple[Tensor, Tensor | None]:
    """Return the columns to explain at the points of features `a` [N, d, ...], whose assigned columns are `own`
    [n].

    Returns
    -------
    columns : Tensor [n] of int64
    wanted : Tensor [n] of int64, or None
        Mask of the points to explain; None for all points. On feature maps, a column selects the locations of its
        cluster, and a tuple ``(column, row, column, ...)`` a single location.
    """
    if target is None:
        return own, None
    if isinstance(target, tuple) and a.ndim > 2 and len(target) == a.ndim - 1:
        column, *place = target
        check_columns(torch.as_tensor(column), K, "target")
        if any(not 0 <= i < n for i, n in zip(place, a.shape[2:], strict=True)):
            raise ValueError(f"target {target} is outside the feature map of shape {list(a.shape[2:])}")
        wanted = torch.zeros(a.shape[0], *a.shape[2:], dtype=torch.long, device=a.device)
        wanted[(slice(None), *place)] = 1
        return torch.full_like(own, int(column)), wanted.flatten()
    columns = _at_places(target, a, K, "target")
    return columns, (own == columns).long() if a.ndim > 2 else None


def competitors(competitor: Any, target: Any, columns: Tensor, a: Tensor, K: int) -> Tensor | None:
    """Return the only competitor of each point, [n]; None if all clusters compete."""
    if competitor is None:
        return None
    rival = _at_places(competitor, a, K, "competitor")
    same = rival[rival == columns]
    if target is not None and len(same):
        k = int(same[0])
        raise ValueError(f"target and competitor are both {k}; a cluster does not compete with itself")
    return rival


def _at_places(value: Any, a: Tensor, K: int, name: str) -> Tensor:
    """Return the column [n] of every point of the features `a`, from one for all inputs or one per input."""
    return as_columns(value, a.shape[0], K, name, a.device).repeat_interleave(a.shape[2:].numel())
