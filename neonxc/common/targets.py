"""Checks of the arguments `target`, `competitor` and `clusters`: the outputs or clusters to explain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor


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
        of_numpy = hasattr(value, "iloc") or isinstance(value, np.generic)  # a Series, or a number of any type
        columns = torch.as_tensor(np.array(value) if of_numpy else value, device=device)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"{name} needs column numbers from 0 to {K - 1}{hint}, got {value!r}") from None
    if columns.dtype in (torch.uint16, torch.uint32, torch.uint64):  # for which torch has few operations
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
    check_columns(torch.as_tensor(columns), K, "clusters")
    return [int(column) for column in columns]


def explained(target: Any, own: Tensor, a: Tensor, K: int) -> tuple[Tensor, Tensor | None]:
    """Return the column to explain at each point of features `a` [N, d, ...].

    Parameters
    ----------
    target : int, sequence or Tensor [N], tuple or None
        As in :meth:`neonxc.NEON.attribute`.
    own : Tensor [n] of int64
        The column of the cluster that each point is assigned to.
    a : Tensor [N, d, ...]
        Features; on a map every location is a point.
    K : int
        Number of clusters.

    Returns
    -------
    columns : Tensor [n] of int64
    wanted : Tensor [n] of int64, or None
        1 for the points to explain and 0 for the others; None: all are explained. On a map, a column selects the
        locations of its cluster, and a tuple ``(column, row, column, ...)`` a single location.
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
    """Return the only competitor of each point, [n]; None if all other clusters compete."""
    if competitor is None:
        return None
    rival = _at_places(competitor, a, K, "competitor")
    same = rival[rival == columns]
    if target is not None and len(same):
        k = int(same[0])
        raise ValueError(f"target and competitor are both {k}; a cluster does not compete with itself")
    return rival


def _at_places(value: Any, a: Tensor, K: int, name: str) -> Tensor:
    """Return the column [n] of every point of features `a`, from one for all inputs or one for each."""
    hint = " (the position of a label in net.classes_)"
    return as_columns(value, a.shape[0], K, name, a.device, hint).repeat_interleave(a.shape[2:].numel())
