"""Tensors of word numbers, [texts, words], with -1 where there is none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor


def are_word_numbers(ids: Any, n: int) -> bool:
    """Whether a value is a tensor [N, T] of numbers of n words, or -1 for none."""
    return isinstance(ids, Tensor) and ids.ndim == 2 and bool((ids == ids.long().clamp(-1, n - 1)).all())


def padded(rows: Sequence[Sequence[int]]) -> Tensor:
    """Rows of different lengths as one tensor [N, T] of int64, with T >= 1 and -1 after the end of a row."""
    lengths = np.array([*map(len, rows)])
    inside = np.arange(lengths.max(initial=1)) < lengths[:, None]
    table = np.full(inside.shape, -1)
    table[inside] = [number for row in rows for number in row]
    return torch.from_numpy(table)
