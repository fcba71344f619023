"""A rule: conditions that points of a cluster meet, and how many do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import nan
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neonxc.inputs import check_width
from neonxc.rules.condition import Column, Condition
from neonxc.rules.wording import counts


@dataclass(frozen=True)
class Counts:
    """Points that meet a rule, or sums of their weights.

    Attributes
    ----------
    samples : float
        Points that meet the rule.
    mistakes : float
        Those of them that are of other clusters.
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
        """Texts of the conditions, to be joined by "and": with brackets around those that have an "or"."""
        several = len(self.conditions) > 1
        return [f"({say(one)})" if several and _has_or(one) else say(one) for one in self.conditions]

    def matches(self, X: Any) -> Any:
        """Whether points meet all conditions, [N] of bool; an array for an array, a tensor for a tensor.

        Parameters
        ----------
        X : array-like, data frame, sparse matrix or tensor [N, features]
            In the columns and units of the training data. A data frame needs the columns that the rule asks
            about, in any order. A missing value meets no condition on a number.

        Raises
        ------
        ValueError
            Another number of columns, or a column that is missing or has no numbers where they are needed.
        """
        return met(X, self)


def _has_or(condition: Condition) -> bool:
    return len(condition.intervals if condition.values is None else condition.values) > 1


def met(X: Any, rule: Rule) -> Any:
    """Which points meet a rule, [N] of bool."""
    X = _table(X, rule.n_features)
    inside: Any = np.ones(X.shape[0], dtype=bool)
    if isinstance(X, Tensor):
        inside = torch.ones(len(X), dtype=torch.bool, device=X.device)
    for condition in rule.conditions:
        inside &= condition.met_by(_values(X, condition.column, condition.values is None))
    return inside


def _table(X: Any, n_features: int | None) -> Any:
    """A frame, a tensor, a sparse matrix by columns, or an array, with as many columns as there have to be."""
    if hasattr(X, "iloc"):
        return X
    X = X.tocsc() if hasattr(X, "tocsc") else X if isinstance(X, Tensor) else np.asarray(X)
    if X.ndim != 2:
        raise ValueError(f"X needs shape [points, features], got {list(X.shape)}")
    if n_features is not None:
        check_width(X.shape[1], n_features)
    return X


def _values(X: Any, column: Column, numeric: bool) -> Any:
    """The values of a column, [N]: numbers, NaN where they are missing, or categories."""
    if hasattr(X, "iloc"):
        return _of_frame(X, column.key, numeric)
    if column.position < 0:
        raise ValueError(f"the rules ask about {column.key!r}, which only a data frame can have")
    if hasattr(X, "tocsc"):
        return X[:, [column.position]].toarray()[:, 0]
    return X[:, column.position]


def _of_frame(X: Any, key: str | int, numeric: bool) -> np.ndarray:
    names = [str(name) for name in X.columns]
    if str(key) not in names:
        raise ValueError(f"X has no column {key!r}, which the rules ask about; it has {names}")
    column = X.iloc[:, names.index(str(key))]
    if not numeric:
        return column.to_numpy(dtype=object)
    try:
        return column.to_numpy(dtype=np.float64, na_value=nan)
    except (TypeError, ValueError):
        raise ValueError(f"column {key!r} of X needs numbers, got {column.dtype}") from None
