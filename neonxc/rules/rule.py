"""Rules of clusters: their conditions, sets of rules as plain data, and counts of the points that meet them.

A rule of a cluster with c of the N points is met by n points, of which m are mistakes: they belong to other
clusters. All these numbers leave out noise::

    support       n / N
    coverage      (n - m) / c                 recall of the cluster
    precision     (n - m) / n
    F-beta score  (1 + beta^2) (n - m) / (n + beta^2 c), the weighted harmonic mean of precision and coverage

A precision "with noise" divides by the number of all points that meet the rule, those of noise among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, reduce
from itertools import chain
from math import nan
from operator import add
from typing import Any, overload

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from neonxc.common.locales import Marks, printed_like
from neonxc.common.numbers import plural
from neonxc.common.types import Label, TableLike
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
        """Fraction of all points that meet the rule, 0 to 1."""
        return _ratio(self.samples, self.total)

    @property
    def coverage(self) -> float:
        """Fraction of the cluster's points that meet the rule, 0 to 1."""
        return _ratio(self.samples - self.mistakes, self.of_cluster)

    @property
    def precision(self) -> float:
        """Fraction of the matching points that belong to the cluster, 0 to 1; NaN if no point meets the rule."""
        return _ratio(self.samples - self.mistakes, self.samples)

    @property
    def precision_with_noise(self) -> float:
        """Fraction of the matching points, those of noise included, that belong to the cluster, 0 to 1."""
        return _ratio(self.samples - self.mistakes, self.samples + self.noise)

    def f_score(self, beta: float = 1.0) -> float:
        """F-beta score, 0 to 1: a mean of precision and coverage; coverage weighs `beta` times as much."""
        correct = self.samples - self.mistakes
        if not correct:
            return 0.0
        return (1 + beta**2) * correct / (self.samples + beta**2 * self.of_cluster)

    def __add__(self, other: Counts) -> Counts:
        """Add up the counts of two rules of a cluster that no point meets both."""
        sums = {name: getattr(self, name) + getattr(other, name) for name in ("samples", "mistakes", "noise")}
        return replace(self, **sums)

    def __str__(self) -> str:
        return counts(self.samples, self.mistakes)


def _ratio(numerator: float, denominator: float) -> float:
    """Divide two counts; NaN if the denominator is zero or unknown."""
    if denominator > 0:
        return numerator / denominator
    return nan


class Points:
    """Points whose columns rules ask for: arrays, data frames, sparse matrices and tensors.

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
        self, X: TableLike, n_features: int | None, columns: Iterable[Column] = (), format: str | None = None
    ) -> None:
        keys = [column.key for column in columns]
        names = [key for key in keys if isinstance(key, str)]
        have_names = bool(keys) and len(names) == len(keys)
        selected = names if have_names else None  # of a file, only these columns are read
        table = Table.read(X, columns=selected, format=format)
        if table.column_names is None:
            table = Table.read(table, n_features)
        self.table = table
        # of numbers an array or tensor, of categories their codes and values; by key and kind of the column
        self._columns: dict[tuple[str | int | None, bool], Any] = {}

    def __len__(self) -> int:
        return len(self.table)

    def matches(self, conditions: Iterable[Condition]) -> Any:
        """Test which points meet all conditions, [N] of bool: a tensor if X is a tensor, else an array."""
        met: Any = self._on_device(np.ones(len(self), dtype=bool))
        for condition in conditions:
            met &= self._matches(condition)
        return self.table.labels(met)

    def _on_device(self, mask: np.ndarray) -> Any:
        """Return a mask as an array, which is faster than a tensor on the CPU, or as a tensor on other devices."""
        device = self.table.device
        if device.type == "cpu":
            return mask
        return torch.from_numpy(mask).to(device)

    def _matches(self, condition: Condition) -> Any:
        """Test which points meet a condition; a column is converted once for all conditions on it."""
        is_numeric = condition.values is None
        key = (condition.column.key, is_numeric)
        if key not in self._columns:
            convert = self._as_numbers if is_numeric else self._as_categories
            self._columns[key] = convert(condition.column)
        if is_numeric:
            return condition.matches(self._columns[key])
        codes, categories = self._columns[key]
        return self._on_device(condition.matches(categories).take(codes))

    def _as_categories(self, column: Column) -> tuple[np.ndarray, np.ndarray]:
        """Return the codes of a column, and its categories; the last, None, is for missing values of code -1."""
        values = self._column(column)
        if self.table.is_tensor:
            values = as_array(values)
        codes, categories = pd.factorize(values)
        return codes, np.array([*categories.tolist(), None], dtype=object)

    def _as_numbers(self, column: Column) -> Any:
        """Return a numeric column in float64, NaN for missing values; contiguous, because it is read often."""
        values = self._column(column)
        if self.table.is_tensor:
            values = values.detach().double().contiguous()
            if values.device.type == "cpu":
                return values.numpy()
            return values
        try:
            if self.table.names is not None:
                values = values.to_numpy(dtype=np.float64, na_value=np.nan)
            return np.ascontiguousarray(values, dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"column {column.key!r} of X needs numbers, got {values.dtype}") from None

    def _column(self, column: Column) -> Any:
        """Return a column by its name in a data frame, and else by its position."""
        position = column.position
        names = self.table.column_names
        if names is not None and isinstance(column.key, str):
            if column.key not in names:
                raise ValueError(f"X has no column {column.key!r}, which the rules use; it has {names}")
            position = names.index(column.key)
        elif position < 0:
            raise ValueError(f"the rules use column {column.key!r}, which only a data frame can have")
        elif position >= self.table.width:
            raise ValueError(f"X has {plural(self.table.width, 'column')}, but the rules use column {position}")
        return self.table.column(position)


@dataclass(frozen=True)
class Rule:
    """A rule, which assigns the points that meet all of its conditions to a cluster.

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

    label: Label
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
        """Fraction of all training points that meet the rule, 0 to 1."""
        return self.counts.support

    @property
    def coverage(self) -> float:
        """Fraction of the cluster's training points that meet the rule, 0 to 1; NaN if unknown."""
        return self.counts.coverage

    @property
    def precision(self) -> float:
        """Fraction of the matching training points that belong to the cluster; NaN if no point meets the rule."""
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
        with printed_like(_marks_of(condition.column for condition in self.conditions)):
            return f"{self.name}: {self.text()} ({self.counts})"

    def condition_texts(self, render: Callable[[Condition], str]) -> list[str]:
        """Write the conditions such that they can be joined by "and": those with an "or" are put in parentheses.

        The terms that a text does not have come last.

        Parameters
        ----------
        render : callable
            Function that returns the text of a condition.

        Returns
        -------
        list of str
        """
        if len(self.conditions) == 1:
            return [render(self.conditions[0])]
        texts = []
        for condition in sorted(self.conditions, key=lambda condition: condition.is_absence):
            text = render(condition)
            if _has_or(condition):
                text = f"({text})"
            texts.append(text)
        return texts

    @overload
    def matches(self, X: Tensor) -> Tensor: ...
    @overload
    def matches(self, X: TableLike) -> np.ndarray: ...
    def matches(self, X: TableLike) -> np.ndarray | Tensor:
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
        columns = (condition.column for condition in self.conditions)
        return Points(X, self.n_features, columns).matches(self.conditions)


def _marks_of(columns: Iterable[Column]) -> Marks | None:
    """Return the marks of the file of columns, for numbers that are of no column; None for no file."""
    for column in columns:
        if column.marks is not None:
            return column.marks._replace(n_digits=Marks().n_digits)
    return None


def _has_or(condition: Condition) -> bool:
    """Whether a condition has several alternatives."""
    alternatives = condition.intervals if condition.values is None else condition.values
    return len(alternatives) + condition.missing > 1


@dataclass(frozen=True)
class RuleSet:
    """The data of :class:`neonxc.rules.Rules`, which documents the fields."""

    rules: tuple[Rule, ...]
    totals: Mapping[Label, Counts]
    divide: bool = True
    held_out_totals: Mapping[Label, Counts] | None = None
    cost_ratio: float | None = None
    n_noise: int = 0
    without_rule: tuple[tuple[Label, str], ...] = ()
    table_format: str | None = None

    @cached_property
    def clusters(self) -> dict[Label, list[Rule]]:
        """Rules of each label, in the order of `totals`, which is that of the clustering."""
        # labels without counts come last
        with_rules = {rule.label for rule in self.rules}
        labels = [label for label in self.totals if label in with_rules]
        without_counts: set[Any] = with_rules - self.totals.keys()  # of one type, which can be sorted
        labels += sorted(without_counts)
        return {label: [rule for rule in self.rules if rule.label == label] for label in labels}

    @property
    def columns(self) -> list[Column]:
        """Columns that the rules use, sorted by position and key."""
        columns = {condition.column for rule in self.rules for condition in rule.conditions}
        return sorted(columns, key=lambda column: (column.position, str(column.key)))

    @property
    def marks(self) -> Marks | None:
        """The marks with which numbers are printed: those of the file of the columns; None for no file."""
        return _marks_of(self.columns)


def counts_of(
    rules: Iterable[Rule], points: Points, labels: np.ndarray, weight: np.ndarray
) -> tuple[list[Counts], dict[Label, Counts]]:
    """Count the points that meet each rule, and for each label those that meet at least one of its rules.

    The points have labels and weights [N].
    """
    is_clustered = are_labels(labels)
    in_cluster = cache(lambda label: labels == label)

    def count(label: Label, is_met: np.ndarray) -> Counts:
        """Count the points of a mask for a cluster."""
        # in the order of the fields: samples, mistakes, of_cluster, total, noise
        samples = is_met & is_clustered
        cluster = in_cluster(label)
        masks = (samples, samples & ~cluster, cluster, is_clustered, is_met & ~is_clustered)
        return Counts(*(float(weight[mask].sum()) for mask in masks))

    counts = []
    met_of_label: dict[Label, np.ndarray] = {}  # of the points that meet a rule of the label
    for rule in rules:
        is_met = as_array(points.matches(rule.conditions))
        met_of_label[rule.label] = met_of_label.get(rule.label, False) | is_met
        counts.append(count(rule.label, is_met))
    return counts, {label: count(label, is_met) for label, is_met in met_of_label.items()}


def summed(counts: Iterable[tuple[Label, Counts]]) -> dict[Label, Counts]:
    """Add up the counts of the rules of each label, provided that no point meets two rules."""
    totals: dict[Label, Counts] = {}
    for label, of_rule in counts:
        if label in totals:
            totals[label] += of_rule
        else:
            totals[label] = of_rule
    return totals


def overall(rules: RuleSet, held_out: bool = False) -> Counts | None:
    """Add up the counts of all rules; None for patterns, which may overlap, or if a rule has no counts."""
    of_rules: list[Counts | None] = [rule.counts for rule in rules.rules]
    if held_out:
        of_rules = [rule.held_out for rule in rules.rules]
    counts = [of_rule for of_rule in of_rules if of_rule is not None]
    if not rules.divide or not counts or len(counts) < len(of_rules):
        return None
    return replace(reduce(add, counts), of_cluster=nan)  # the rules are of several clusters


def subset(rules: RuleSet, remaining: tuple[Rule, ...]) -> dict[str, Any]:
    """Return the fields of rules that change if only some remain."""
    if len(remaining) == len(rules.rules):
        return {"rules": remaining}
    held_out_totals = None
    if rules.held_out_totals is not None:
        held_out_totals = _totals_of_subset(rules, remaining, rules.held_out_totals, "held_out")
    return {
        "rules": remaining,
        "totals": _totals_of_subset(rules, remaining, rules.totals, "counts"),
        "held_out_totals": held_out_totals,
        # these values are known only for all rules together
        "cost_ratio": None,
        "n_noise": 0,
        "without_rule": (),
    }


def _totals_of_subset(
    rules: RuleSet, remaining: tuple[Rule, ...], before: Mapping[Label, Counts], field: str
) -> dict[Label, Counts]:
    """Return the combined counts of each label, in a field of the rules, if only some rules remain."""
    clusters = RuleSet(remaining, rules.totals).clusters
    totals = summed((rule.label, getattr(rule, field)) for rule in chain(*clusters.values()))
    for label, of_label in clusters.items():
        if len(of_label) == len(rules.clusters[label]):  # all rules of the label remain
            totals[label] = before.get(label, totals[label])
        elif len(of_label) > 1 and not rules.divide:  # the overlap of the remaining patterns is unknown
            totals[label] = replace(totals[label], samples=nan, mistakes=nan)
    return totals
