"""Thresholds midway between the values on the two sides of a cut."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def around(below: Tensor, above: Tensor, left: Tensor) -> Tensor:
    """Maximum of `below` over the left side, and of minus `above` over the right side; -inf for an empty side."""
    if not len(left):
        return below.new_full((2,), -torch.inf)
    return torch.stack([below.where(left, -torch.inf), (-above).where(~left, -torch.inf)]).amax(1)


def open_ends(low: float, high: float) -> tuple[float, float]:
    """Replace infinite ends, which stand for sides without points, by finite ones with a gap between the two."""
    if low == float("-inf"):
        low = high - 1 if high < float("inf") else 0.0
    return low, low + 1 if high == float("inf") else high


def between(low: float, high: float, dtype: Any = None, share: float = 0.5) -> float:
    """A number between two others such that ``low <= number < high``, also when it is rounded to `dtype`."""
    middle = low * (1 - share) + high * share
    if not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        return middle if low <= middle < high else low
    if dtype != torch.float64:
        middle = torch.tensor(middle, dtype=dtype).item()
    if low <= middle < high:
        return middle
    below = torch.tensor(high, dtype=dtype)  # becomes the largest number of the type below `high`
    if below.item() >= high:
        below = below.nextafter(torch.tensor(-torch.inf, dtype=dtype))
    return below.item()
