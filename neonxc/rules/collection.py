"""Rules for the clusters of a clustering, and the forms in which people carry them away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import nan
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import torch
from torch import Tensor

from neonxc.inputs import is_missing, label_array
from neonxc.rules.condition import Column
from neonxc.rules.counting import counted, overall, some
from neonxc.rules.points import Points
from neonxc.rules.rule import Counts, Rule

if TYPE_CHECKING:
    import pandas as pd

    from neonxc.rules.sql import SQL


@dataclass(frozen=True)
class Rules(Sequence[Rule]):
    """Rules for the clusters of a clustering: those of a tree, or frequent patterns.

    A point has the label of the first rule that it meets. A tree's rules divide the points: every point meets
    exactly one, but for those with a missing number where there was none when the tree was fitted. Patterns may
    overlap, and a point may meet none of them.

    Attributes
    ----------
    rules : tuple of Rule
    totals : dict
        For every label that has a rule, the counts of its rules together: a point that meets several of them
        counts once.
    divide : bool
        Whether every point meets exactly one rule.
    held_out_totals : dict or None
        Like `totals`, on the points that :meth:`measure` was given.
    cost_ratio : float or None
        Price of explainability of a tree: the k-means cost of its clusters over that of the reference clustering.
        None where it is not known, and for some of a tree's rules.
    n_noise : int
        Points of label -1 (noise), which were left out when the tree was fitted and have no part in any count.

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
    <BLANKLINE>
    total: 4 samples, 0 mistakes, agreement 100%, cost ratio 1
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
    cost_ratio: float | None = None
    n_noise: int = 0

    def __len__(self) -> int:
        return len(self.rules)

    @overload
    def __getitem__(self, index: int) -> Rule: ...
    @overload
    def __getitem__(self, index: slice) -> Rules: ...
    def __getitem__(self, index: int | slice) -> Rule | Rules:
        return self.rules[index] if not isinstance(index, slice) else some(self, self.rules[index])

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
    def agreement(self) -> float:
        """Share of the training points that meet a rule whose cluster is theirs, 0 to 1; NaN for patterns."""
        total = overall(self)
        return nan if total is None else total.precision

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
        labels = [rule.label for rule in self.rules]
        points = self._points(X)
        which = np.full(len(points), len(labels))
        for i in reversed(range(len(labels))):
            which[_on_cpu(points.meet(self.rules[i].conditions))] = i
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
            Cluster of every point, as the rules call it. Points of any other, such as noise (-1), are mistakes of
            every rule that they meet.
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
        points, own = self._points(X), label_array(labels)
        if own.dtype == object:  # with NA, which is neither equal nor different
            own = np.array([None if is_missing(label) else label for label in own], dtype=object)
        n = len(points)
        weight = np.ones(n) if sample_weight is None else np.asarray(_on_cpu(sample_weight), np.float64)
        for name, values in (("labels", own), ("sample_weight", weight)):
            if values.shape != (n,):
                raise ValueError(f"{name} needs shape ({n},), one value for each point, got {values.shape}")
        if not (np.isfinite(weight).all() and (weight >= 0).all()):
            raise ValueError("sample_weight needs finite numbers that are not negative")
        if n and self.rules and not np.isin(own, list(self.clusters)).any():
            raise ValueError(
                f"labels has none of the rules' clusters {list(self.clusters)}, got {own.tolist()[0]!r}"
            )
        measured: dict[int, Counts] = {}
        totals = {}
        for label in self.clusters:
            of_cluster, together = own == label, np.zeros(n, dtype=bool)
            for i, rule in enumerate(self.rules):
                if rule.label == label:
                    met = _on_cpu(points.meet(rule.conditions))
                    measured[i] = counted(met, of_cluster, weight)
                    together |= met
            totals[label] = counted(together, of_cluster, weight)
        rules = tuple(replace(rule, held_out=measured[i]) for i, rule in enumerate(self.rules))
        return replace(self, rules=rules, held_out_totals=totals)

    def to_text(self, precision: int | None = None) -> str:
        """Write the rules as text; see :func:`render_rules`.

        Parameters
        ----------
        precision : int, optional
            Significant digits; default: as many as tell the values of the training data apart.

        Returns
        -------
        str
        """
        return self._render("text", precision)

    def to_markdown(self, precision: int | None = None) -> str:
        """Write the rules as markdown; see :func:`render_rules`.

        Parameters
        ----------
        precision : int, optional
            Significant digits; default: as many as tell the values of the training data apart.

        Returns
        -------
        str
        """
        return self._render("markdown", precision)

    def to_html(self, precision: int | None = None) -> str:
        """Write the rules as a fragment of HTML; see :func:`render_rules`.

        Parameters
        ----------
        precision : int, optional
            Significant digits; default: as many as tell the values of the training data apart.

        Returns
        -------
        str
        """
        return self._render("html", precision)

    def to_frame(self) -> pd.DataFrame:
        """Table of the rules, a row for each, with its measures.

        Returns
        -------
        DataFrame
            Columns: cluster (the label), name, rule, samples, mistakes (only of rules that divide the points),
            support, coverage, precision; after :meth:`measure` also those of the other points, which begin with
            ``held_out_``.
        """
        from neonxc.rules.tabular import frame

        return frame(self)

    def to_sql(self, table: str | Sequence[str], dialect: str = "ansi") -> SQL:
        """Write the rules as SQL: a CASE expression with the label, and one SELECT for each cluster.

        A row with a missing value (NULL) has the label that :meth:`predict` says: NULL where no rule is met.
        Databases order NaN after all numbers; store missing numbers as NULL.

        Parameters
        ----------
        table : str or sequence of str
            Its name; several for a qualified one, as in ``("schema", "table")``. Columns that have no names are
            called by their positions: ``"0"``, ``"1"``, ...
        dialect : {"ansi", "mysql", "bigquery", "tsql"}
            How names and strings are quoted. PostgreSQL, SQLite, DuckDB, Trino and others understand "ansi".

        Returns
        -------
        SQL
            A string, the whole script, with the attributes ``case`` and ``selects``.

        Raises
        ------
        ValueError
            An unknown dialect.
        """
        from neonxc.rules.sql import sql

        return sql(self, table, dialect)

    def to_query(self) -> dict[Any, str]:
        """Write the rules of every cluster as an expression for :meth:`pandas.DataFrame.query`.

        Returns
        -------
        dict
            From labels to expressions, which hold for the rows that meet one of the label's rules.

        Raises
        ------
        ValueError
            A column has no name, or one that pandas cannot quote.
        """
        from neonxc.rules.code import queries

        return queries(self)

    def to_python(self, name: str = "cluster") -> str:
        """Write the rules as the source of a Python function that needs no imports.

        The function takes a row: a dictionary, a row of a data frame, or whatever else gives values for column
        names; where columns have no names, a sequence. It returns the label, or None where no rule is met. Missing
        values are None, NaN or NA.

        Parameters
        ----------
        name : str
            Name of the function.

        Raises
        ------
        ValueError
            `name` cannot be the name of a function.
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

        Parameters
        ----------
        described : dict
            What :meth:`to_dict` returned, also after a round trip through JSON.

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

    def _points(self, X: Any) -> Points:
        widths = {rule.n_features for rule in self.rules}
        return Points(X, widths.pop() if len(widths) == 1 else None)


def _on_cpu(values: Any) -> Any:
    return values.cpu().numpy() if isinstance(values, Tensor) else values
