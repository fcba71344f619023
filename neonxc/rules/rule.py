"""A rule: conditions that points of a cluster meet, and how many do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import nan
from typing import Any

from neonxc.rules.condition import Condition
from neonxc.rules.points import Points
from neonxc.rules.wording import counts


@dataclass(frozen=True)
class Counts:
    """Points that meet a rule, or sums of their weights.

    Attributes
    ----------
    samples : float
        Points that meet the rule.
    mistakes : float
        Matching points that belong to other clusters.
    of_cluster : float
        All points of the rule's cluster; NaN where this is not known.
    total : float
        All points.
    """

    samples: float
    mistakes: float
    of_cluster: float = nan
    total: float = nan

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
        """Share of the points that meet the rule that are of the cluster, 0 to 1."""
        return _share(self.samples - self.mistakes, self.samples)

    def __str__(self) -> str:
        return counts(self.samples, self.mistakes)


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else nan  # also where it is NaN


@dataclass(frozen=True)
class Rule:
    """Conditions, all of which a point meets to be of a cluster according to the rule.

    Attributes
    ----------
    label : object
        The cluster, as `predict` says it.
    name : str
        What the cluster is called.
    conditions : tuple of Condition
        At most one for a column. None: every point meets the rule.
    counts : Counts
        Training points.
    held_out : Counts or None
        Other points, on which :meth:`Rules.measure` has measured the rule.
    leaves : tuple of int
        Of a tree's rule, the leaf's node; several where leaves were merged.
    n_features : int or None
        Columns of the data; None where rules speak of columns that only data frames have.
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
        """Training points that meet the rule, or the sum of their weights."""
        return self.counts.samples

    @property
    def mistakes(self) -> float:
        """Training points that meet the rule and are of other clusters."""
        return self.counts.mistakes

    @property
    def support(self) -> float:
        """Share of all training points that meet the rule."""
        return self.counts.support

    @property
    def coverage(self) -> float:
        """Share of the cluster's training points that meet the rule; NaN where it is not known."""
        return self.counts.coverage

    @property
    def precision(self) -> float:
        """Share of the training points that meet the rule that are of the cluster; NaN where there are none."""
        return self.counts.precision

    def text(self, precision: int | None = None) -> str:
        """Say the conditions in one line; "always" where there are none.

        Parameters
        ----------
        precision : int, optional
            As for :meth:`Column.numbers`.
        """
        return " and ".join(self.said(lambda condition: condition.text(precision))) or "always"

    def __str__(self) -> str:
        return f"{self.name}: {self.text()} ({self.counts})"

    def said(self, say: Callable[[Condition], str]) -> list[str]:
        """Texts of the conditions, to be joined by "and": with brackets around those that have an "or".

        Parameters
        ----------
        say : callable
            Returns the text of a condition.

        Returns
        -------
        list of str
        """
        several = len(self.conditions) > 1
        return [f"({say(one)})" if several and _has_or(one) else say(one) for one in self.conditions]

    def matches(self, X: Any) -> Any:
        """Whether points meet all conditions, [N] of bool; an array for an array, a tensor for a tensor.

        Parameters
        ----------
        X : array-like, data frame, sparse matrix or tensor [N, features]
            In the columns and units of the training data. A data frame needs the columns that the rule asks
            about, in any order. A missing number meets only conditions that say so.

        Raises
        ------
        ValueError
            Another number of columns, or a column that is missing or has no numbers where they are needed.
        """
        return Points(X, self.n_features).meet(self.conditions)


def _has_or(condition: Condition) -> bool:
    return len(condition.intervals if condition.values is None else condition.values) + condition.missing > 1
