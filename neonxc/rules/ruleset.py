"""The rules of a clustering as plain data, from which they are counted, written and stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from neonxc.rules.condition import Column
from neonxc.rules.rule import Counts, Rule


@dataclass(frozen=True)
class RuleSet:
    """The data of :class:`neonxc.rules.Rules`, which documents the fields."""

    rules: tuple[Rule, ...]
    totals: Mapping[Any, Counts]
    divide: bool = True
    held_out_totals: Mapping[Any, Counts] | None = None
    cost_ratio: float | None = None
    n_noise: int = 0
    without_rule: tuple[tuple[Any, str], ...] = ()

    @cached_property
    def clusters(self) -> dict[Any, list[Rule]]:
        """Rules of each label, in the order of `totals`, which is that of the clustering."""
        own = {rule.label for rule in self.rules}
        labels = [label for label in self.totals if label in own] + sorted(own - self.totals.keys())
        return {label: [rule for rule in self.rules if rule.label == label] for label in labels}

    @property
    def columns(self) -> list[Column]:
        """Columns that the rules use, sorted by position and key."""
        found = {condition.column for rule in self.rules for condition in rule.conditions}
        return sorted(found, key=lambda column: (column.position, str(column.key)))
