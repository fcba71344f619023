"""Count the points that meet rules, and add up the counts of several rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import reduce
from math import nan
from operator import add
from typing import Any

import numpy as np

from neonxc.data.inputs import are_labels
from neonxc.rules.rule import Counts, Rule, RuleSet


def counts_of(
    of_rules: Iterable[Any], masks: Iterable[np.ndarray], labels: np.ndarray, weight: np.ndarray
) -> tuple[list[Counts], dict[Any, Counts]]:
    """Count the points that meet each rule, and for each label those that meet at least one of its rules.

    Given are the labels of the rules, masks [N] of the points that meet them, and the points' labels and weights.
    """
    noise = ~are_labels(labels)
    clusters: dict[Any, np.ndarray] = {}
    together: dict[Any, np.ndarray] = {}

    def counted(label: Any, met: np.ndarray) -> Counts:
        own, known = clusters[label], met & ~noise
        masks = (known, known & ~own, own, ~noise, met & noise)
        return Counts(*(float(weight[mask].sum()) for mask in masks))

    counts = []
    for label, met in zip(of_rules, masks, strict=True):
        if label not in clusters:
            clusters[label] = labels == label
        together[label] = together.get(label, False) | met
        counts.append(counted(label, met))
    return counts, {label: counted(label, mask) for label, mask in together.items()}


def summed(counts: Iterable[tuple[Any, Counts]]) -> dict[Any, Counts]:
    """Add up the counts of the rules of each label, provided that no point meets two rules."""
    together: dict[Any, Counts] = {}
    for label, new in counts:
        together[label] = together[label] + new if label in together else new
    return together


def overall(rules: RuleSet, held_out: bool = False) -> Counts | None:
    """Add up the counts of all rules; None for patterns, which may overlap, or if a rule has no counts."""
    counts = [rule.held_out if held_out else rule.counts for rule in rules.rules]
    known = [one for one in counts if one is not None]
    if not rules.divide or not known or len(known) < len(counts):
        return None
    return replace(reduce(add, known), of_cluster=nan)


def subset(rules: RuleSet, kept: tuple[Rule, ...]) -> dict[str, Any]:
    """Return the fields of rules that change if only those in `kept` remain."""
    if len(kept) == len(rules.rules):
        return {"rules": kept}
    before, now = (Counter(rule.label for rule in group) for group in (rules.rules, kept))

    def totals(old: Mapping[Any, Counts], counts: Iterable[tuple[Any, Counts]]) -> dict[Any, Counts]:
        new = summed(counts)
        for label, number in now.items():
            if number == before[label]:
                new[label] = old.get(label, new[label])
            elif number > 1 and not rules.divide:  # the overlap of the remaining patterns is unknown
                new[label] = replace(new[label], samples=nan, mistakes=nan)
        return {label: new[label] for label in [*old, *new] if label in new}

    held_out = rules.held_out_totals
    measured = ((rule.label, rule.held_out) for rule in kept if rule.held_out is not None)
    return {
        "rules": kept,
        "totals": totals(rules.totals, ((rule.label, rule.counts) for rule in kept)),
        "held_out_totals": None if held_out is None else totals(held_out, measured),
        # these values are known only for all rules together
        "cost_ratio": None,
        "n_noise": 0,
        "without_rule": (),
    }
