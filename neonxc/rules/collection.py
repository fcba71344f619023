"""Rules for the clusters of a clustering, and the forms in which people carry them away."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import torch
from torch import Tensor

from neonxc.inputs import label_array
from neonxc.rules.condition import Column
from neonxc.rules.rule import Counts, Rule

if TYPE_CHECKING:
    import pandas as pd

    from neonxc.rules.sql import SQL


@dataclass(frozen=True)
class Rules(Sequence[Rule]):
    """Rules for the clusters of a clustering: those of a tree, or frequent patterns.

    A point's label is that of the first rule that it meets. A tree's rules divide the points: every point without
    missing values meets exactly one. Patterns may overlap, and a point may meet none of them.

    Attributes
    ----------
    rules : tuple of Rule
    totals : dict
        For every label that has a rule, the counts of its rules together: a point that meets several counts once.
    divide : bool
        Whether every point meets exactly one rule.
    held_out_totals : dict or None
        Like `totals`, on the points that :meth:`measure` was given.

    Examples
    --------
    >>> import numpy as np
    >>> from neonxc.trees import IMM
    >>> X = np.array([[17.0, 0], [35, 1], [36, 0], [70, 1]])
    >>> tree = IMM(n_clusters=2, random_state=0).fit(X, labels=["young", "young", "old", "old"]).tree_
    >>> rules = tree.rules(feature_names=["age", "member"], units={"age": "years"})
    >>> print(rules)
    old: 2 samples (50%), 0 mistakes, coverage 100%, precision 100%
        age > 35 years
    <BLANKLINE>
    young: 2 samples (50%), 0 mistakes, coverage 100%, precision 100%
        age ≤ 35 years
    >>> print(rules.to_sql("people").case)
    CASE
      WHEN "age" <= 35.5e0 THEN 'young'
      WHEN "age" > 35.5e0 THEN 'old'
    END
    """

    rules: tuple[Rule, ...]
    totals: Mapping[Any, Counts]
    divide: bool = True
    held_out_totals: Mapping[Any, Counts] | None = None

    def __len__(self) -> int:
        return len(self.rules)

    @overload
    def __getitem__(self, index: int) -> Rule: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Rule, ...]: ...
    def __getitem__(self, index: int | slice) -> Rule | tuple[Rule, ...]:
        return self.rules[index]

    def __str__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        return self.to_html()

    @cached_property
    def clusters(self) -> dict[Any, list[Rule]]:
        """The rules of every label, labels in ascending order."""
        found: dict[Any, list[Rule]] = {}
        for rule in sorted(self.rules, key=lambda rule: rule.label):  # stable: rules stay in their order
            found.setdefault(rule.label, []).append(rule)
        return found

    @property
    def columns(self) -> list[Column]:
        """The columns that the rules ask about, by position and key."""
        found = {condition.column for rule in self.rules for condition in rule.conditions}
        return sorted(found, key=lambda column: (column.position, str(column.key)))

    def predict(self, X: Any) -> Any:
        """Label of the first rule that each point meets, [N]; None where it meets none.

        Parameters
        ----------
        X : array-like, data frame, sparse matrix or tensor [N, features]
            As for :meth:`Rule.matches`.

        Returns
        -------
        ndarray, or Tensor for a tensor
            An array of objects where labels are names, or where a point meets no rule.

        Raises
        ------
        ValueError
            As for :meth:`Rule.matches`.
        """
        which = self._first(X)
        labels = [rule.label for rule in self.rules]
        if (which == len(labels)).any() or any(isinstance(label, str) for label in labels):
            return np.array([*labels, None], dtype=object)[which]
        found = np.array(labels)[which]
        return torch.as_tensor(found, device=X.device) if isinstance(X, Tensor) else found

    def measure(self, X: Any, labels: Any, sample_weight: Any = None) -> Rules:
        """Measure every rule on other points, such as held-out rows.

        Parameters
        ----------
        X : array-like, data frame, sparse matrix or tensor [N, features]
            As for :meth:`Rule.matches`.
        labels : array-like [N]
            Cluster of every point.
        sample_weight : array-like [N], optional

        Returns
        -------
        Rules
            The same rules, whose `held_out` counts are of these points.

        Raises
        ------
        ValueError
            Not one label or weight for each point, or X as for :meth:`Rule.matches`.
        """
        own = label_array(labels)
        weight = np.ones(len(own)) if sample_weight is None else np.asarray(_on_cpu(sample_weight), np.float64)
        n = X.shape[0] if hasattr(X, "shape") else len(X)
        for name, values in (("labels", own), ("sample_weight", weight)):
            if values.shape != (n,):
                raise ValueError(f"{name} needs shape ({n},), one value for each point, got {values.shape}")
        masks = [_on_cpu(rule.matches(X)) for rule in self.rules]
        rules = [
            replace(rule, held_out=counted(mask, own == rule.label, weight))
            for rule, mask in zip(self.rules, masks, strict=True)
        ]
        return replace(self, rules=tuple(rules), held_out_totals=totals_of(rules, masks, own, weight))

    def to_text(self, precision: int | None = None) -> str:
        """Write the rules as text; see :func:`render_rules`."""
        return self._render("text", precision)

    def to_markdown(self, precision: int | None = None) -> str:
        """Write the rules as markdown; see :func:`render_rules`."""
        return self._render("markdown", precision)

    def to_html(self, precision: int | None = None) -> str:
        """Write the rules as a fragment of HTML; see :func:`render_rules`."""
        return self._render("html", precision)

    def to_frame(self) -> pd.DataFrame:
        """Table of the rules, a row for each, with its measures.

        Returns
        -------
        DataFrame
            Columns: cluster (the label), name, rule, samples, mistakes (of rules that divide the points), support,
            coverage, precision, and the same beginning with ``held_out_`` after :meth:`measure`.
        """
        from neonxc.rules.tabular import frame

        return frame(self)

    def to_sql(self, table: str | Sequence[str], dialect: str = "ansi") -> SQL:
        """Write the rules as SQL: a CASE expression with the label, and one SELECT for each cluster.

        Parameters
        ----------
        table : str or sequence of str
            Its name; several for a qualified one, as in ``("schema", "table")``.
        dialect : {"ansi", "mysql", "bigquery", "tsql"}
            How names and strings are quoted. PostgreSQL, SQLite, DuckDB, Snowflake and others understand "ansi".

        Returns
        -------
        SQL
            A string, the whole script, with the attributes ``case`` and ``selects``.

        Raises
        ------
        ValueError
            Unknown dialect.
        """
        from neonxc.rules.sql import sql

        return sql(self, table, dialect)

    def to_query(self) -> dict[Any, str]:
        """Write the rules of every cluster as an expression for :meth:`pandas.DataFrame.query`.

        Returns
        -------
        dict
            From labels to expressions.

        Raises
        ------
        ValueError
            A column has no name, or one that pandas cannot quote.
        """
        from neonxc.rules.code import queries

        return queries(self)

    def to_python(self, name: str = "cluster") -> str:
        """Write the rules as the source of a Python function that needs no imports.

        The function takes a row: a dictionary or any other mapping from column names to values; where columns have
        no names, a sequence. It returns the label, or None where no rule is met.

        Parameters
        ----------
        name : str
            Name of the function.

        Raises
        ------
        ValueError
            `name` is no identifier.
        """
        from neonxc.rules.code import function

        return function(self, name)

    def to_dict(self) -> dict[str, Any]:
        """Describe the rules by what JSON can hold, with the version of the format."""
        from neonxc.rules.tabular import described

        return described(self)

    @staticmethod
    def from_dict(described: Mapping[str, Any]) -> Rules:
        """Build the rules that :meth:`to_dict` described.

        Raises
        ------
        ValueError
            This is no description of rules, or one of a later version.
        """
        from neonxc.rules.tabular import restored

        return restored(described)

    def _render(self, format: str, precision: int | None) -> str:
        from neonxc.rules.rendering import render_rules

        return render_rules(self, format, precision)

    def _first(self, X: Any) -> np.ndarray:
        """Position of the first rule that each point meets, [N]; the number of rules where there is none."""
        n = X.shape[0] if hasattr(X, "shape") else len(X)
        which = np.full(n, len(self.rules))
        for i in reversed(range(len(self.rules))):
            which[_on_cpu(self.rules[i].matches(X))] = i
        return which


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


def summed(rules: Iterable[Rule]) -> dict[Any, Counts]:
    """Counts of every label's rules together, where no point meets two of them."""
    together: dict[Any, Counts] = {}
    for rule in rules:
        old = together.get(rule.label, replace(rule.counts, samples=0.0, mistakes=0.0))
        samples, mistakes = old.samples + rule.samples, old.mistakes + rule.mistakes
        together[rule.label] = replace(old, samples=samples, mistakes=mistakes)
    return together


def _on_cpu(values: Any) -> Any:
    return values.cpu().numpy() if isinstance(values, Tensor) else values
