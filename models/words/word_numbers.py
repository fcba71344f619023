"""Tensors of word numbers, [texts, words], with -1 where there is none."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


def are_word_numbers(ids: object, n: int) -> bool:
    """Tell whether a value is a tensor [N, T] of numbers of n words, or -1 for none."""
    if not isinstance(ids, Tensor) or ids.ndim != 2:
        return False
    nearest_valid = ids.long().clamp(-1, n - 1)
    return bool((ids == nearest_valid).all())


def padded(rows: Sequence[Sequence[int]]) -> Tensor:
    """Write rows of different lengths as a tensor [N, T] of int64, with T >= 1 and -1 after the end of a row."""
    lengths = np.array([*map(len, rows)])
    is_inside = np.arange(lengths.max(initial=1)) < lengths[:, None]
    table = np.full(is_inside.shape, -1)
    table[is_inside] = [number for row in rows for number in row]
    return torch.from_numpy(table)
