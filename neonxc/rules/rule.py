"""Rules of clusters: their conditions, sets of rules as plain data, and counts of the points that meet them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, reduce
from itertools import chain
from math import nan
from operator import add
from typing import Any

import numpy as np
import pandas as pd
import torch

from neonxc.data.inputs import as_array
from neonxc.data.labels import are_labels
from neonxc.data.table import Table
from neonxc.rules.condition import Column, Condition
from neonxc.rules.wording import counts


@dataclass(frozen=True)
class Counts:
    """Counts of the points that meet a rule, or sums of their weights.

    Attributes
    ----------
    samples : float
        Number of points that meet the rule.
    mistakes : float
        Number of these points that belong to other clusters.
    of_cluster : float
        Number of all points of the cluster of the rule; NaN if unknown.
    total : float
        Number of all points; NaN if unknown.
    noise : float
        Number of points of noise (label -1) that meet the rule. The other numbers leave out noise.
    """

    samples: float
    mistakes: float
    of_cluster: float = nan
    total: float = nan
    noise: float = 0.0

    @property
    def support(self) -> float:
        """Share of all points that meet the rule, 0 to 1."""
        return _share(self.samples, self.total)

    @property
    def coverage(self) -> float:
        """Share of the cluster's points that meet the rule, 0 to 1."""
        return _share(self.samples - self.mistakes, self.of_cluster)

    @property
    def precision(self) -> float:
        """Share of the matching points that belong to the cluster, 0 to 1; NaN if no point meets the rule."""
        return _share(self.samples - self.mistakes, self.samples)

    @property
    def precision_with_noise(self) -> float:
        """Share of the matching points, those of noise included, that belong to the cluster, 0 to 1."""
        return _share(self.samples - self.mistakes, self.samples + self.noise)

    def f_score(self, beta: float = 1.0) -> float:
        """F-beta score, 0 to 1: a mean of precision and coverage, which weighs `beta` times as much."""
        right = self.samples - self.mistakes
        return (1 + beta**2) * right / (self.samples + beta**2 * self.of_cluster) if right else 0.0

    def __add__(self, other: Counts) -> Counts:
        """Add up the counts of two rules of a cluster that no point meets both."""
        sums = {name: getattr(self, name) + getattr(other, name) for name in ("samples", "mistakes", "noise")}
        return replace(self, **sums)

    def __str__(self) -> str:
        return counts(self.samples, self.mistakes)


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else nan  # false for NaN too


class Points:
    """Column access to arrays, data frames, sparse matrices and tensors.

    Parameters
    ----------
    X : array-like, data frame, sparse matrix or tensor [N, features]
    n_features : int or None
        Required number of columns of arrays, matrices and tensors; None: not checked.
    columns : iterable of Column
        Columns that the conditions use.
    format : str or None
        How files are read.

    Raises
    ------
    ValueError
        If X is not two-dimensional or has another number of columns.
    """

    def __init__(
        self, X: Any, n_features: int | None, columns: Iterable[Column] = (), format: str | None = None
    ) -> None:
        names = [column.key for column in columns]
        named = names if names and all(isinstance(name, str) for name in names) else None
        table = Table.read(X, columns=named, format=format)
        self.table = Table.read(table, n_features if table.names is None else None)
        self._columns: dict[tuple[Any, bool], Any] = {}

    def __len__(self) -> int:
        return len(self.table)

    def matches(self, conditions: Iterable[Condition]) -> Any:
        """Test which points meet all conditions, [N] of bool: a tensor if X is a tensor, else an array."""
        met: Any = self._on_device(np.ones(len(self), dtype=bool))
        for condition in conditions:
            met &= self._matches(condition)
        return self.table.labels(met)

    def _on_device(self, mask: np.ndarray) -> Any:
        """Masks are arrays, which are faster than tensors on the CPU, and tensors on other devices."""
        return mask if self.table.device.type == "cpu" else torch.from_numpy(mask).to(self.table.device)

    def _matches(self, condition: Condition) -> Any:
        key = condition.column.key, condition.values is None
        if key not in self._columns:
            read = self._as_numbers if condition.values is None else self._as_categories
            self._columns[key] = read(condition.column)
        if condition.values is None:
            return condition.matches(self._columns[key])
        codes, categories = self._columns[key]
        return self._on_device(condition.matches(categories).take(codes))

    def _as_categories(self, column: Column) -> tuple[np.ndarray, np.ndarray]:
        """Return the codes of a column, and its categories; the last, None, is for missing values of code -1."""
        values = self._column(column)
        codes, categories = pd.factorize(as_array(values) if self.table.is_tensor else values)
        return codes, np.array([*categories.tolist(), None], dtype=object)

    def _as_numbers(self, column: Column) -> Any:
        """Return a numeric column in float64, NaN for missing values; contiguous, because it is read often."""
        values = self._column(column)
        if self.table.is_tensor:
            values = values.detach().double().contiguous()
            return values.numpy() if values.device.type == "cpu" else values
        try:
            if self.table.names is not None:
                values = values.to_numpy(dtype=np.float64, na_value=np.nan)
            return np.ascontiguousarray(values, dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"column {column.key!r} of X needs numbers, got {values.dtype}") from None

    def _column(self, column: Column) -> Any:
        position, names = column.position, self.table.names
        if names is not None and isinstance(column.key, str):
            if column.key not in names:
                raise ValueError(f"X has no column {column.key!r}, which the rules use; it has {names}")
            position = names.index(column.key)
        elif position < 0:
            raise ValueError(f"the rules use column {column.key!r}, which only a data frame can have")
        elif position >= self.table.width:
            raise ValueError(f"X has {self.table.width} columns, but the rules use column {position}")
        return self.table.column(position)


@dataclass(frozen=True)
class Rule:
    """A rule assigns the points that meet all of its conditions to a cluster.

    Attributes
    ----------
    label : object
        Label of the cluster, as returned by `predict`.
    name : str
        Name of the cluster in printed rules.
    conditions : tuple of Condition
        Conditions, at most one per column. Without conditions every point meets the rule.
    counts : Counts
        Counts of the training points.
    held_out : Counts or None
        Counts of the points passed to :meth:`Rules.measure`.
    leaves : tuple of int
        Node of the leaf from which the rule was made, or the nodes of several merged leaves; empty for patterns.
    n_features : int or None
        Number of columns of the data; None if the rules use columns that only data frames have.
    """

    label: Any
    name: str
    conditions: tuple[Condition, ...]
    counts: Counts
    held_out: Counts | None = None
    leaves: tuple[int, ...] = ()
    n_features: int | None = field(default=None, repr=False)

    @property
    def samples(self) -> float:
        """Number of training points that meet the rule, or the sum of their weights."""
        return self.counts.samples

    @property
    def mistakes(self) -> float:
        """Number of training points that meet the rule but belong to other clusters."""
        return self.counts.mistakes

    @property
    def support(self) -> float:
        """Share of all training points that meet the rule, 0 to 1."""
        return self.counts.support

    @property
    def coverage(self) -> float:
        """Share of the cluster's training points that meet the rule, 0 to 1; NaN if unknown."""
        return self.counts.coverage

    @property
    def precision(self) -> float:
        """Share of the matching training points that belong to the cluster; NaN if no point meets the rule."""
        return self.counts.precision

    def text(self, precision: int | None = None) -> str:
        """Write the conditions in one line; "always" if there are none.

        Parameters
        ----------
        precision : int, optional
            As for :meth:`Column.numbers`.
        """
        return " and ".join(self.condition_texts(lambda condition: condition.text(precision))) or "always"

    def __str__(self) -> str:
        return f"{self.name}: {self.text()} ({self.counts})"

    def condition_texts(self, render: Callable[[Condition], str]) -> list[str]:
        """Write the conditions such that they can be joined by "and": those with an "or" are put in parentheses.

        Parameters
        ----------
        render : callable
            Function that returns the text of a condition.

        Returns
        -------
        list of str
        """
        several = len(self.conditions) > 1
        return [f"({render(test)})" if several and _has_or(test) else render(test) for test in self.conditions]

    def matches(self, X: Any) -> Any:
        """Test which points meet all conditions.

        Parameters
        ----------
        X : array-like, data frame, sparse matrix or tensor [N, features]
            Points with the columns and units of the training data. A data frame needs only the columns that the
            rule uses, in any order. A missing number meets only conditions that allow missing values.

        Returns
        -------
        ndarray of bool [N], or Tensor for a tensor

        Raises
        ------
        ValueError
            If X has another number of columns, lacks a column that the rule uses, or has other values than numbers
            in a numeric column.
        """
        return Points(X, self.n_features, (test.column for test in self.conditions)).matches(self.conditions)


def _has_or(condition: Condition) -> bool:
    return len(condition.intervals if condition.values is None else condition.values) + condition.missing > 1


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
    table_format: str | None = None

    @cached_property
    def clusters(self) -> dict[Any, list[Rule]]:
        """Rules of each label, in the order of `totals`, which is that of the clustering."""
        of_rules = {rule.label for rule in self.rules}
        labels = [label for label in self.totals if label in of_rules] + sorted(of_rules - self.totals.keys())
        return {label: [rule for rule in self.rules if rule.label == label] for label in labels}

    @property
    def columns(self) -> list[Column]:
        """Columns that the rules use, sorted by position and key."""
        columns = {condition.column for rule in self.rules for condition in rule.conditions}
        return sorted(columns, key=lambda column: (column.position, str(column.key)))


def counts_of(
    rules: Iterable[Rule], points: Points, labels: np.ndarray, weight: np.ndarray
) -> tuple[list[Counts], dict[Any, Counts]]:
    """Count the points that meet each rule, and for each label those that meet at least one of its rules.

    Given are the points, and their labels and weights [N].
    """
    clustered = are_labels(labels)
    in_cluster = cache(lambda label: labels == label)
    together: dict[Any, np.ndarray] = {}

    def counted(label: Any, met: np.ndarray) -> Counts:
        known, cluster = met & clustered, in_cluster(label)
        masks = (known, known & ~cluster, cluster, clustered, met & ~clustered)
        return Counts(*(float(weight[mask].sum()) for mask in masks))

    counts = []
    for rule in rules:
        met = as_array(points.matches(rule.conditions))
        together[rule.label] = together.get(rule.label, False) | met
        counts.append(counted(rule.label, met))
    return counts, {label: counted(label, met) for label, met in together.items()}


def summed(counts: Iterable[tuple[Any, Counts]]) -> dict[Any, Counts]:
    """Add up the counts of the rules of each label, provided that no point meets two rules."""
    totals: dict[Any, Counts] = {}
    for label, of_rule in counts:
        totals[label] = totals[label] + of_rule if label in totals else of_rule
    return totals


def overall(rules: RuleSet, held_out: bool = False) -> Counts | None:
    """Add up the counts of all rules; None for patterns, which may overlap, or if a rule has no counts."""
    counts: list[Any] = [rule.held_out if held_out else rule.counts for rule in rules.rules]
    if not rules.divide or not counts or None in counts:
        return None
    return replace(reduce(add, counts), of_cluster=nan)


def subset(rules: RuleSet, remaining: tuple[Rule, ...]) -> dict[str, Any]:
    """Return the fields of rules that change if only some remain."""
    if len(remaining) == len(rules.rules):
        return {"rules": remaining}
    clusters = RuleSet(remaining, rules.totals).clusters

    def totals(before: Mapping[Any, Counts] | None, measured: str) -> dict[Any, Counts] | None:
        if before is None:
            return None
        after = summed((rule.label, getattr(rule, measured)) for rule in chain(*clusters.values()))
        for label, of_label in clusters.items():
            if len(of_label) == len(rules.clusters[label]):
                after[label] = before.get(label, after[label])
            elif len(of_label) > 1 and not rules.divide:  # the overlap of the remaining patterns is unknown
                after[label] = replace(after[label], samples=nan, mistakes=nan)
        return after

    return {
        "rules": remaining,
        "totals": totals(rules.totals, "counts"),
        "held_out_totals": totals(rules.held_out_totals, "held_out"),
        # these values are known only for all rules together
        "cost_ratio": None,
        "n_noise": 0,
        "without_rule": (),
    }
