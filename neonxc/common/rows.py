"""Rows of a batch: a network has to give each the features that it has alone.

Two rows a and b of the batch X are run without the others, in three batches of the same shape:

    F(a, b)_a = F(a, a)_a and F(a, b)_b = F(b, b)_b    to rounding: else one takes part in the features of the
                                                       other
    F(a, b)_a = F(X)_a or F(a, b)_b = F(X)_b           coarsely, as batches of other sizes have other kernels: else
                                                       features depend on a row's position or the number of rows

A network that does not take two rows, such as one whose batches have one size, is run on X once more, with copies
of a in place of half of the rows: F(X')_r = F(X)_r to rounding for the rows r that are kept.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext

CANDIDATES = 16
"""Number of rows among which a and b are chosen."""
ROUNDING = 1000
"""Units in the last place of the largest feature by which equal kernels may differ at most."""
COARSE = 1e-2
"""Fraction of the largest feature by which other kernels may differ, such as those of TF32."""


class TwoRows(NamedTuple):
    """The features that a network gives to two rows of a batch without the others."""

    rows: list[int]  # a and b
    apart: Tensor  # F(a, b)
    twice: list[Tensor]  # F(a, a) and F(b, b)

    def agrees(self, features: Tensor) -> bool:
        """Whether the two rows have the features that they have in the batch."""
        if any(alone.shape[1:] != features.shape[1:] for alone in (self.apart, *self.twice)):
            return True  # such as features that are as long as the longest series of a batch
        for i, twice in enumerate(self.twice):
            if _distance(self.apart[i], twice[i]) > _rounding(features):
                return False
        distances = [_distance(self.apart[i], features[row]) for i, row in enumerate(self.rows)]
        # one of both is enough, as rounding may move the other across a threshold
        return min(distances) <= _coarse(features)


class HalfOfRows(NamedTuple):
    """The features that a network gives to a batch in which half of the rows are replaced."""

    kept: Tensor  # [N], whether a row is not replaced
    features: Tensor  # F(X')

    def agrees(self, features: Tensor) -> bool:
        """Whether the rows that are kept have the features that they have in the batch."""
        if self.features.shape != features.shape:
            return True
        return _distance(self.features[self.kept], features[self.kept]) <= _rounding(features)


@torch.no_grad()
def compared(module: nn.Module, x: Tensor) -> TwoRows | HalfOfRows | None:
    """Run a network on other batches with rows of `x`; None if no batch can show whether rows are mixed."""
    is_plain = type(x) in (Tensor, nn.Parameter) and x.layout == torch.strided and not x.is_meta
    if not is_plain or x.ndim == 0 or len(x) < 2 or _is_observed(x):
        return None
    smaller, larger = _two_rows(x)
    if torch.equal(x[smaller], x[larger]):
        return None
    rows = sorted((smaller, larger), reverse=True)
    if rows[1] == 1:  # both rows get another position than in the batch
        rows.reverse()
    a, b = rows
    try:
        outputs = [features_of(module(x[pair])) for pair in (rows, [a, a], [b, b])]
    except Exception:  # whatever a network raises that needs batches of another size
        return _half_of_rows(module, x, smaller, larger)
    known = [features for features in outputs if features is not None and len(features) == 2]
    if len(known) < len(outputs):
        return _half_of_rows(module, x, smaller, larger)
    return TwoRows(rows, known[0], known[1:])


def _half_of_rows(module: nn.Module, x: Tensor, smaller: int, larger: int) -> HalfOfRows | None:
    """Run a network on a batch with copies of the smaller row in place of half of the others."""
    kept = torch.from_numpy(np.random.default_rng(0).random(len(x)) < 0.5)  # no draw of PyTorch
    kept[smaller] = True
    kept[larger] = False
    kept = kept.to(x.device)
    batch = x.clone()
    batch[~kept] = x[smaller]
    features = None
    with suppress(Exception):  # whatever a network raises for this batch
        features = features_of(module(batch))
    if features is None:
        return None
    return HalfOfRows(kept, features)


def features_of(output: object) -> Tensor | None:
    """Return the features [N, ...] in the output of a network; None if they are not known."""
    features = getattr(output, "last_hidden_state", output)
    if isinstance(features, Tensor) and features.ndim and features.is_floating_point():
        return features
    return None


def _is_observed(x: Tensor) -> bool:
    """Whether every operator counts for somebody, such as a tracer or a transform of functions."""
    if torch._C._functorch.is_functorch_wrapped_tensor(x):
        return True
    return not all(isinstance(mode, DeviceContext) for mode in _get_current_function_mode_stack())


def _two_rows(x: Tensor) -> tuple[int, int]:
    """Choose the rows with the smallest and the largest sum of absolute values.

    The smallest one is a row of zeros only if no other row is left.
    """
    candidates = torch.linspace(0, len(x) - 1, min(len(x), CANDIDATES)).round().long()
    sizes = x[candidates.to(x.device)].reshape(len(candidates), -1).float().abs().sum(1).cpu()
    order = sizes.argsort()
    largest = order[-1]
    nonzero = order[(sizes[order] > 0) & (order != largest)]
    smallest = nonzero[0] if len(nonzero) else order[0]
    return int(candidates[smallest]), int(candidates[largest])


def _distance(features: Tensor, changed: Tensor) -> float:
    """Return the largest absolute difference; it is infinite if a value is NaN in one of both alone."""
    if not features.numel():
        return 0.0
    same = (features == changed) | (features.isnan() & changed.isnan())
    distances = (features - changed).abs().masked_fill(same, 0.0)  # the difference of equal infinities is NaN
    return float(distances.nan_to_num(nan=torch.inf).amax())


def _size(features: Tensor) -> float:
    """Return the largest absolute value among those that are finite."""
    if not features.numel():
        return 0.0
    finite = features.abs().masked_fill(~features.isfinite(), 0.0)
    return float(finite.amax())


def _rounding(features: Tensor) -> float:
    """Return by how much features of the same kernel may differ, which is at most the bound for other kernels."""
    rounding = ROUNDING * torch.finfo(features.dtype).eps * _size(features)
    return min(rounding, _coarse(features))


def _coarse(features: Tensor) -> float:
    """Return by how much features of other kernels may differ, which is more in half precision."""
    return max(COARSE, 8 * torch.finfo(features.dtype).eps) * _size(features)
