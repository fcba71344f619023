"""Rows that lie on the ranks of a group, some on each: what is checked, counted and chosen over all of them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neonxc.ranks import Ranks

ALONE = Ranks()


def readable(X: Any, ranks: Ranks) -> tuple[Any, slice]:
    """X, and which of its rows count: a shard without rows is read as one row of zeros, of which none counts."""
    if ranks.alone:
        return X, slice(None)
    if hasattr(X, "iloc") and hasattr(X, "columns"):
        empty = not len(X)
        return (type(X)(np.zeros((1, X.shape[1])), columns=X.columns) if empty else X), slice(0, len(X))
    shape = np.shape(X) if not hasattr(X, "shape") else tuple(X.shape)
    if not shape or shape[0]:
        return X, slice(None)
    kind = X.dtype if isinstance(X, Tensor) else None
    return torch.zeros(1, *shape[1:], dtype=kind) if kind else np.zeros((1, *shape[1:])), slice(0)


def numbered(n: int, ranks: Ranks) -> tuple[int, int]:
    """The number of this rank's first row among all rows, those of rank 0 first, and the number of all rows."""
    counts = [int(count) for count in ranks.gather(torch.tensor([n]))]
    return sum(counts[: ranks.rank]), sum(counts)


def common_type(n: int, dtype: torch.dtype, ranks: Ranks) -> torch.dtype:
    """The type of the rows of all ranks; what is said on ranks without rows does not count.

    Raises
    ------
    ValueError
        On all ranks: types differ, or no rank has rows.
    """
    kinds = {kind: rank for rank, kind in reversed(list(enumerate(ranks.texts(str(dtype) if n else "")))) if kind}
    if not kinds:
        raise ValueError("X is empty: no rank of the group has rows")
    if len(kinds) > 1:
        said = ", ".join(f"{kind} on rank {kinds[kind]}" for kind in sorted(kinds, key=lambda kind: kinds[kind]))
        raise ValueError(f"the dtype of X differs between processes: {said}")
    return getattr(torch, next(iter(kinds)).removeprefix("torch."))


def common_classes(own: np.ndarray, ranks: Ranks, *, name: str = "labels") -> np.ndarray:
    """The different labels of all ranks, sorted, from those of this rank.

    Raises
    ------
    ValueError
        On all ranks: labels are numbers on one and names on another.
    """
    if ranks.alone:
        return np.unique(own)
    told = [json.loads(text) for text in ranks.texts(json.dumps([own.dtype.str, own.tolist()]))]
    every = [np.array(values, dtype=kind) for kind, values in told if values]
    if len({array.dtype.kind in "biuf" for array in every}) > 1:
        raise ValueError(f"{name} needs whole numbers or names, got both")
    return np.unique(np.concatenate(every)) if every else own[:0]


def greatest(x: Tensor, score: Tensor, number: int, ranks: Ranks) -> Tensor:
    """Rows [number, d] of all ranks with the greatest scores, greatest first; fewer if there are fewer."""
    best = score.argsort(descending=True, stable=True)[:number]
    rows, scores = torch.cat(ranks.gather(x[best])), torch.cat(ranks.gather(score[best]))
    return rows[scores.argsort(descending=True, stable=True)[:number]]
