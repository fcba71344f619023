"""NEON with a baseline: the competitors are weighted on the way from the baseline to the input."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from neonxc.attribution.decisions import Decisions
from neonxc.carriers import Carrier, HeadRule, rows
from neonxc.head.competition import slopes_of_most


def as_baseline(along: Any) -> Tensor:
    """A user's baseline as a finite tensor."""
    try:
        base = along if isinstance(along, Tensor) else torch.tensor(np.array(along))
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"along needs a number or a baseline shaped like one input, got {along!r}") from None
    if base.dtype == torch.bool or base.is_complex() or not bool(base.isfinite().all()):
        raise ValueError(f"along needs finite numbers, got {along!r}")
    return base.detach()


def relevance_from_baseline(
    carrier: Carrier,
    decisions: Decisions,
    x: Tensor,
    along: Tensor,
    steps: int,
    rule: HeadRule,
    target: Any,
    competitor: Any,
) -> Tensor:
    """Relevance [N, ...] of inputs x [N, ...]; :class:`neonxc.NEON` describes the two rules in its notes."""
    base = _expanded(along, x)
    a = carrier.features(x).detach()
    columns, wanted = decisions.columns(a, target)
    rival = decisions.rivals(a, columns, target, competitor)
    path = (base + (i + 0.5) / steps * (x - base) for i in range(steps))
    if rule == "linear":
        total = torch.zeros_like(x)
        for point in path:
            record = carrier.record(point)
            decide = decisions.of_columns(rows(record.features), columns, rival, wanted, slopes_of_most)
            total += record.slope(decide)
        return (x - base) * total / steps
    weights = [decisions.weights(carrier.features(point), columns, rival) for point in path]
    decide = decisions.of_columns(rows(a), columns, rival, wanted, torch.stack(weights).mean(0))
    return next(carrier.record(x).relevance([decide], "midpoint"))


def _expanded(along: Tensor, x: Tensor) -> Tensor:
    """A baseline with the shape of one of the inputs [N, ...]."""
    if along.ndim and along.shape != x.shape[1:]:
        got, needed = list(along.shape), list(x.shape[1:])
        raise ValueError(f"along needs a number or a baseline shaped like one input, {needed}, got {got}")
    return along.to(x).expand(x.shape[1:])
