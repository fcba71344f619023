"""Count the points that meet rules, and add up the counts of several rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from math import nan
from operator import add
from typing import TYPE_CHECKING, Any

import numpy as np

from neonxc.data.inputs import are_labels
from neonxc.rules.rule import Counts, Rule

if TYPE_CHECKING:
    from neonxc.rules.collection import Rules


def counted(met: np.ndarray, own: np.ndarray, noise: np.ndarray, weight: np.ndarray) -> Counts:
    """Count points, given masks of those that meet a rule, of its cluster and of noise, and weights, all [N]."""
    known = met & ~noise
    masks = (known, known & ~own, own, ~noise, met & noise)
    return Counts(*(float(weight[mask].sum()) for mask in masks))


def totals_of(
    rules: Iterable[Rule], masks: Sequence[np.ndarray], labels: np.ndarray, weight: np.ndarray
) -> dict[Any, Counts]:
    """Count, for each label, the points that meet at least one of its rules."""
    together: dict[Any, np.ndarray] = {}
    for rule, mask in zip(rules, masks, strict=True):
        together[rule.label] = together.get(rule.label, False) | mask
    noise = ~are_labels(labels)
    return {label: counted(mask, labels == label, noise, weight) for label, mask in together.items()}


def summed(counts: Iterable[tuple[Any, Counts]]) -> dict[Any, Counts]:
    """Add up the counts of the rules of each label, provided that no point meets two rules."""
    together: dict[Any, Counts] = {}
    for label, new in counts:
        together[label] = together[label] + new if label in together else new
    return together


def overall(rules: Rules, held_out: bool = False) -> Counts | None:
    """Add up the counts of all rules; None for patterns, which may overlap, or if a rule has no counts."""
    counts = [rule.held_out if held_out else rule.counts for rule in rules.rules]
    known = [one for one in counts if one is not None]
    if not rules.divide or not known or len(known) < len(counts):
        return None
    return replace(reduce(add, known), of_cluster=nan)


def subset(rules: Rules, kept: tuple[Rule, ...]) -> Rules:
    """Return the rules in `kept`, with totals of these rules only."""
    before, now = (Counter(rule.label for rule in group) for group in (rules.rules, kept))

    def totals(old: Mapping[Any, Counts], counts: list[tuple[Any, Counts]]) -> dict[Any, Counts]:
        new = summed(counts)
        for label, number in now.items():
            if number == before[label]:
                new[label] = old.get(label, new[label])
            elif number > 1 and not rules.divide:  # the overlap of the remaining patterns is unknown
                new[label] = replace(new[label], samples=nan, mistakes=nan)
        return {label: new[label] for label in [*old, *new] if label in new}

    held_out = rules.held_out_totals
    if held_out is not None:
        held_out = totals(held_out, [(rule.label, rule.held_out) for rule in kept if rule.held_out is not None])
    own = totals(rules.totals, [(rule.label, rule.counts) for rule in kept])
    # these values are known only for all rules together
    unknown: dict[str, Any] = {"cost_ratio": None, "n_noise": 0, "without_rule": ()}
    whole = {} if len(kept) == len(rules.rules) else unknown
    return replace(rules, rules=kept, totals=own, held_out_totals=held_out, **whole)
