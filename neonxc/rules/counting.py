"""Count the points that meet rules, and add up the counts of several rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import nan
from typing import TYPE_CHECKING, Any

import numpy as np

from neonxc.rules.rule import Counts, Rule

if TYPE_CHECKING:
    from neonxc.rules.collection import Rules


def counted(met: np.ndarray, own: np.ndarray, weight: np.ndarray) -> Counts:
    """Count points, given masks of those that meet a rule and of those in its cluster, and weights, all [N]."""
    sums = (weight[met].sum(), weight[met & ~own].sum(), weight[own].sum(), weight.sum())
    return Counts(*map(float, sums))


def totals_of(
    rules: Iterable[Rule], masks: Sequence[np.ndarray], labels: np.ndarray, weight: np.ndarray
) -> dict[Any, Counts]:
    """Count, for each label, the points that meet at least one of its rules."""
    together: dict[Any, np.ndarray] = {}
    for rule, mask in zip(rules, masks, strict=True):
        together[rule.label] = together.get(rule.label, False) | mask
    return {label: counted(mask, labels == label, weight) for label, mask in together.items()}


def summed(counts: Iterable[tuple[Any, Counts]]) -> dict[Any, Counts]:
    """Add up the counts of the rules of each label, provided that no point meets two rules."""
    together: dict[Any, Counts] = {}
    for label, new in counts:
        old = together.get(label, replace(new, samples=0.0, mistakes=0.0))
        together[label] = replace(old, samples=old.samples + new.samples, mistakes=old.mistakes + new.mistakes)
    return together


def overall(rules: Rules, held_out: bool = False) -> Counts | None:
    """Add up the counts of all rules; None for patterns, which may overlap, or if a rule has no counts."""
    counts = [rule.held_out if held_out else rule.counts for rule in rules.rules]
    known = [one for one in counts if one is not None]
    if not rules.divide or not known or len(known) < len(counts):
        return None
    samples, mistakes = sum(one.samples for one in known), sum(one.mistakes for one in known)
    return Counts(samples, mistakes, total=known[0].total)


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
        return new

    held_out = rules.held_out_totals
    if held_out is not None:
        held_out = totals(held_out, [(rule.label, rule.held_out) for rule in kept if rule.held_out is not None])
    own = totals(rules.totals, [(rule.label, rule.counts) for rule in kept])
    # these two values are known only for all rules together
    whole: dict[str, Any] = {} if len(kept) == len(rules.rules) else {"cost_ratio": None, "n_noise": 0}
    return replace(rules, rules=kept, totals=own, held_out_totals=held_out, **whole)
