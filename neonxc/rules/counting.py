"""Counts of rules, from masks of points or from one another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from neonxc.rules.rule import Counts, Rule


def counted(met: np.ndarray, own: np.ndarray, weight: np.ndarray) -> Counts:
    """Counts of a rule from masks of the points that meet it and of those of its cluster, and weights, all [N]."""
    sums = (weight[met].sum(), weight[met & ~own].sum(), weight[own].sum(), weight.sum())
    return Counts(*map(float, sums))


def totals_of(
    rules: Iterable[Rule], masks: Sequence[np.ndarray], labels: np.ndarray, weight: np.ndarray
) -> dict[Any, Counts]:
    """Counts of every label's rules together."""
    together: dict[Any, np.ndarray] = {}
    for rule, mask in zip(rules, masks, strict=True):
        together[rule.label] = together.get(rule.label, False) | mask
    return {label: counted(mask, labels == label, weight) for label, mask in together.items()}


def summed(counts: Iterable[tuple[Any, Counts]]) -> dict[Any, Counts]:
    """Counts of every label's rules together, from the labels and counts of rules of which no point meets two."""
    together: dict[Any, Counts] = {}
    for label, new in counts:
        old = together.get(label, replace(new, samples=0.0, mistakes=0.0))
        together[label] = replace(old, samples=old.samples + new.samples, mistakes=old.mistakes + new.mistakes)
    return together
