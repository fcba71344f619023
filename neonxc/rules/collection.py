"""The rules of a clustering: prediction, measures on other points, and export.

Exports are in modules of their own:

- `rendering`: text, markdown and HTML
- `tabular`: a data frame, and a dictionary for JSON
- `code`: SQL, pandas queries, and the source of a Python function
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import nan
from typing import Any, overload

import numpy as np
import pandas as pd
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from neonxc.common.locales import printed_in
from neonxc.common.numbers import percent, plural, text
from neonxc.common.registry import Values, register
from neonxc.common.result import Result
from neonxc.common.types import ArrayLike, Label, TableLike
from neonxc.common.warnings import warn
from neonxc.data.frames import in_order_of
from neonxc.data.inputs import as_array, as_weights
from neonxc.data.labels import are_labels, label_array
from neonxc.rules.code import SQL, counting, function, queries, sql
from neonxc.rules.condition import Condition
from neonxc.rules.rendering import render_rules
from neonxc.rules.rule import Counts, Points, Rule, RuleSet, counts_of, overall, subset
from neonxc.rules.tabular import fields_of, frame, to_dict


@dataclass(frozen=True)
class Rules(RuleSet, Result, Sequence[Rule]):
    """The rules of a clustering: those of a tree, or frequent patterns.

    A point gets the label of the first rule that it meets. The rules of a tree partition the points: every point
    meets exactly one rule, except for points with a missing value in a column that had none when the tree was
    fitted. Patterns may overlap, and a point may meet none of them.

    Attributes
    ----------
    rules : tuple of Rule
        The rules, in the order in which they are tried.
    totals : dict
        Combined counts of the rules of each label. A point that meets several of these rules counts once.
    divide : bool
        Whether every point meets exactly one rule.
    held_out_totals : dict or None
        Combined counts like `totals`, on the points passed to :meth:`measure`.
    cost_ratio : float or None
        Price of explainability of a tree: the k-means cost of its clusters divided by that of the reference
        clustering. None if it is unknown, and for a subset of the rules of a tree.
    n_noise : int
        Number of points with label -1 (noise). They were left out when the tree was fitted and are counted apart.
    without_rule : tuple of (label, name)
        Clusters of a tree that have no leaf and therefore no rule.
    table_format : str or None
        How the table of a tree was read from a file, if it was; see :class:`~neonxc.trees.ThresholdTree`.

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
      WHEN "age" <= 35.5 THEN 'young'
      WHEN "age" > 35.5 THEN 'old'
    END
    """

    def __len__(self) -> int:
        return len(self.rules)

    @overload
    def __getitem__(self, index: int) -> Rule: ...
    @overload
    def __getitem__(self, index: slice) -> Rules: ...
    def __getitem__(self, index: int | slice) -> Rule | Rules:
        selected = self.rules[index]
        if isinstance(selected, Rule):
            return selected
        return replace(self, **subset(self, selected))

    def __str__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        return self.to_html()

    @property
    def agreement(self) -> float:
        """Fraction of the training points that meet a rule of their own cluster, 0 to 1; NaN for patterns."""
        total = overall(self)
        if total is None:
            return nan
        return total.precision

    @overload
    def predict(self, X: Tensor) -> Tensor: ...
    @overload
    def predict(self, X: TableLike) -> np.ndarray: ...
    def predict(self, X: TableLike) -> np.ndarray | Tensor:
        """Predict the label of each point, [N]: that of the first rule that it meets, or None if it meets no rule.

        Parameters
        ----------
        X : array-like, data frame, sparse matrix or tensor [N, features]
            As for :meth:`Rule.matches`.

        Returns
        -------
        ndarray, or Tensor for a tensor
            The array has dtype object if labels are strings or if a point meets no rule.

        Raises
        ------
        ValueError
            If X does not fit the rules, as for :meth:`Rule.matches`.
        """
        labels = [rule.label for rule in self.rules]
        points = self._points(X)
        first = self._first(points)
        if (first == len(labels)).any() or any(isinstance(label, str) for label in labels):
            return np.array([*labels, None], dtype=object)[first]
        return points.table.labels(np.array(labels)[first])

    def _first(self, points: Points) -> np.ndarray:
        """Position of the first rule that each point meets, [N]; the number of rules if it meets none."""
        first = np.full(len(points), len(self.rules))
        for i in reversed(range(len(self.rules))):  # so that earlier rules overwrite later ones
            is_met = as_array(points.matches(self.rules[i].conditions))
            first[is_met] = i
        return first

    def measure(self, X: TableLike, labels: ArrayLike, sample_weight: ArrayLike | None = None) -> Rules:
        """Measure every rule on other points, such as held-out data.

        Parameters
        ----------
        X : array-like, data frame, sparse matrix or tensor [N, features]
            As for :meth:`Rule.matches`.
        labels : array-like [N]
            Label of every point. Noise (-1 or missing) is counted apart; points of other labels without a rule are
            mistakes of every rule that they meet.
        sample_weight : array-like [N], optional
            Weight of every point, finite and not negative; default: 1.

        Returns
        -------
        Rules
            The same rules, with counts of these points as `held_out`.

        Raises
        ------
        ValueError
            If labels or weights do not have one value per point, if no label has a rule, or if X does not fit the
            rules.

        Warns
        -----
        UserWarning
            The labels are those of other numbers of the same clusters, as those of another fit are.
        """
        points = self._points(X)
        n = len(points)
        known_labels = label_array(in_order_of(labels, X))
        if known_labels.shape != (n,):
            raise ValueError(f"labels needs shape ({n},), one value per point, got {known_labels.shape}")
        weight = _weights_in_order(sample_weight, X, n)

        with_rules = list(self.clusters)
        if n and self.rules and not np.isin(known_labels, np.asarray(with_rules)).any():
            example = known_labels.tolist()[0]
            raise ValueError(f"labels contains none of the labels of the rules, {with_rules}, got {example!r}")
        labels_of_rules = np.array([*(rule.label for rule in self.rules), None], dtype=object)
        _warn_of_other_numbers(labels_of_rules[self._first(points)], known_labels)

        held_out, totals = counts_of(self.rules, points, known_labels, weight)
        rules = tuple(replace(rule, held_out=counts) for rule, counts in zip(self.rules, held_out, strict=True))
        return replace(self, rules=rules, held_out_totals={label: totals[label] for label in self.clusters})

    def to_text(self, precision: int | None = None, locale: str | None = None) -> str:
        """Write the rules as text; see :func:`render_rules`.

        Parameters
        ----------
        precision : int, optional
            Number of significant digits; default: as many as are needed to separate the training values.
        locale : str, optional
            Language, possibly with a region, whose decimal mark and mark between thousands numbers have, such as
            ``"de"``, ``"de_CH"`` or ``"en"``. Default: the marks of the file that the table was read from, or else
            decimal points.

        Returns
        -------
        str
        """
        with printed_in(locale):
            return render_rules(self, "text", precision)

    def to_markdown(self, precision: int | None = None, locale: str | None = None) -> str:
        """Write the rules as markdown; see :func:`render_rules`.

        Parameters
        ----------
        precision : int, optional
            Number of significant digits; default: as many as are needed to separate the training values.
        locale : str, optional
            Language, possibly with a region, whose decimal mark and mark between thousands numbers have, such as
            ``"de"``, ``"de_CH"`` or ``"en"``. Default: the marks of the file that the table was read from, or else
            decimal points.

        Returns
        -------
        str
        """
        with printed_in(locale):
            return render_rules(self, "markdown", precision)

    def to_html(self, precision: int | None = None, locale: str | None = None) -> str:
        """Write the rules as an HTML fragment; see :func:`render_rules`.

        Parameters
        ----------
        precision : int, optional
            Number of significant digits; default: as many as are needed to separate the training values.
        locale : str, optional
            Language, possibly with a region, whose decimal mark and mark between thousands numbers have, such as
            ``"de"``, ``"de_CH"`` or ``"en"``. Default: the marks of the file that the table was read from, or else
            decimal points.

        Returns
        -------
        str
        """
        with printed_in(locale):
            return render_rules(self, "html", precision)

    def to_frame(self) -> pd.DataFrame:
        """Return the rules as a table with one row per rule.

        Returns
        -------
        DataFrame
            Columns: cluster (the label), name, rule, samples, mistakes (not for patterns), support, coverage and
            precision, and precision_with_noise if there is noise. After :meth:`measure` the measures of the
            held-out points follow, with the prefix ``held_out_``. A cluster without a rule has a row with rule
            None.
        """
        return frame(self)

    def to_sql(self, table: str | Sequence[str], dialect: str = "ansi") -> SQL:
        """Write the rules as SQL: a CASE expression for the label, and one SELECT statement per cluster.

        The label is the column "cluster", which is numbered if the rules have a column of this name.

        A row with a missing value (NULL) gets the same label as from :meth:`predict`, and NULL if it meets no
        rule. Store missing numbers as NULL: databases sort NaN after all other numbers.

        Parameters
        ----------
        table : str or sequence of str
            Name of the table, or the parts of a qualified name, as in ``("schema", "table")``. Columns without
            names are referred to by position: ``"0"``, ``"1"``, ...
        dialect : {"ansi", "duckdb", "postgres", "sqlite", "trino", "mysql", "spark", "databricks", "snowflake", \
"bigquery", "tsql"}
            Quoting of names and strings; the first comment of the script lists the dialects that it is for. With
            names in double quotes, Spark and MySQL would take them for strings, without an error.

        Returns
        -------
        SQL
            The whole script as a string, with the attributes ``case``, ``selects`` and ``dialects``.

        Raises
        ------
        ValueError
            If `table` is not a name or the dialect is unknown.
        """
        return sql(self, table, dialect)

    def verify(
        self,
        source: Any,
        table: str | Sequence[str] = "",
        dialect: str = "ansi",
        *,
        sample_weight: ArrayLike | str | None = None,
    ) -> pd.DataFrame:
        """Run the rules where the data live, and compare the number of rows that meet each rule with that at fit.

        Parameters
        ----------
        source : connection, Spark session, data frame or array
            A connection of DB-API 2.0 (sqlite3, DuckDB, psycopg ...), a Spark session, or the rows themselves.
        table : str or sequence of str
            Name of the table in the database, as for :meth:`to_sql`.
        dialect : str
            As for :meth:`to_sql`.
        sample_weight : array [n], or str, optional
            The weights of the rows at fit, if there were any: of rows, or of a database the name of their column.
            Sums of weights are then compared.

        Returns
        -------
        DataFrame [rules, 3]
            Columns ``rule``, ``fit`` and ``found``: numbers of rows, or sums of weights.

        Raises
        ------
        ValueError
            The numbers differ for a rule; the message names the rules and their numbers.
        """
        counted_rows = self._rows_in(source, table, dialect, sample_weight)
        texts = [f"{rule.name}: {rule.text()}" for rule in self.rules]
        fit = [float(rule.counts.samples + rule.counts.noise) for rule in self.rules]
        checked = pd.DataFrame({"rule": texts, "fit": fit, "found": np.array(counted_rows, dtype=float)})
        if sample_weight is None:
            checked = checked.round().astype({"fit": int, "found": int})

        wrong = checked[~np.isclose(checked["fit"], checked["found"], rtol=1e-9)]
        if len(wrong):
            differences = []
            for rule, expected, actual in wrong.to_numpy():
                amount = plural(expected, "row") if sample_weight is None else f"a weight of {text(expected)}"
                differences.append(f"{rule}: {amount} at fit, {text(actual)} now")
            raise ValueError(f"the rules find other rows in source than at fit: {'; '.join(differences)}")
        return checked

    def _rows_in(self, source: Any, table: str | Sequence[str], dialect: str, sample_weight: Any) -> list[float]:
        """Return the number of rows of a source that meet each rule, or the sum of their weights."""
        if hasattr(source, "cursor"):
            cursor = source
            if not hasattr(source, "execute"):  # a connection of DuckDB has it, and its cursor has other tables
                cursor = source.cursor()
            # DB-API 2.0 does not define what execute returns
            executed = cursor.execute(counting(self, table, dialect, sample_weight)) or cursor
            return [*executed.fetchall()[0]]
        if hasattr(source, "catalog"):  # a Spark session
            return [*source.sql(counting(self, table, dialect, sample_weight)).collect()[0]]
        points = self._points(source)
        weight = _weights_in_order(sample_weight, source, len(points))
        return [float(weight[as_array(points.matches(rule.conditions))].sum()) for rule in self.rules]

    def to_query(self) -> dict[Label, str]:
        """Write one expression per cluster for :meth:`pandas.DataFrame.query`.

        Returns
        -------
        dict
            Expression of each label. It selects the rows that meet at least one of the rules of the label.

        Raises
        ------
        ValueError
            If a column has no name or one that pandas cannot quote.
        """
        return queries(self)

    def to_python(self, name: str = "cluster") -> str:
        """Write the rules as the source of a Python function that needs no imports.

        The function takes one row: a dictionary, a row of a data frame, or any other mapping from column names to
        values; if the columns have no names, a sequence. It returns the label, or None if the row meets no rule.
        Missing values may be None, NaN or pandas.NA.

        Parameters
        ----------
        name : str
            Name of the function.

        Raises
        ------
        ValueError
            If `name` is not a valid name of a function.
        """
        return function(self, name)

    def to_dict(self) -> dict[str, Any]:
        """Return the rules as a dictionary that JSON can store, with the version of the format."""
        return to_dict(self)

    @staticmethod
    def from_dict(described: Mapping[str, Any]) -> Rules:
        """Build rules from the dictionary that :meth:`to_dict` returned.

        Parameters
        ----------
        described : dict
            Result of :meth:`to_dict`, possibly after a round trip through JSON.

        Raises
        ------
        ValueError
            If the dictionary does not describe rules, is damaged, or has another version of the format.
        """
        return Rules(**fields_of(described))

    def _points(self, X: TableLike) -> Points:
        """Read the columns of points that the rules use."""
        widths = {rule.n_features for rule in self.rules}
        n_features = widths.pop() if len(widths) == 1 else None
        return Points(X, n_features, self.columns, self.table_format)


def _weights_in_order(sample_weight: ArrayLike | None, X: TableLike, n: int) -> np.ndarray:
    """Return the weights [n] of points, in the order of the points."""
    weight = in_order_of(sample_weight, X, "sample_weight")
    return as_weights(weight, n, torch.device("cpu")).numpy()


ALIKE = 0.8
"""Fraction of the points that need to have the label of their rule, if the clusters get other numbers."""
RENUMBERED = 0.25
"""By how much this fraction needs to be greater than with the numbers as they are."""


def _warn_of_other_numbers(predicted: np.ndarray, labels: np.ndarray) -> None:
    """Warn if labels agree far better with those that rules predict if clusters get other numbers."""
    table = pd.crosstab(pd.Series(predicted, dtype=object), pd.Series(labels, dtype=object))
    counts = table.to_numpy()  # of points, by the label of their rule and their own label
    n_same = sum(table.at[label, label] for label in table.index.intersection(table.columns))
    # the assignment of numbers to clusters with which most points have the label of their rule
    rows, columns = linear_sum_assignment(-counts)
    n_best = counts[rows, columns].sum()
    n = len(labels)
    if n_best >= ALIKE * n and n_best - n_same > RENUMBERED * n:
        pairs = [(table.index[i], table.columns[j]) for i, j in zip(rows, columns, strict=True) if counts[i, j]]
        changes = ", ".join(f"{before} → {after}" for before, after in pairs if before != after)
        now = percent(n_same / n)
        renumbered = percent(n_best / n)
        warn(
            f"labels agree with the rules for {now} of the points, and for {renumbered} if the clusters of the "
            f"rules get other numbers ({changes}); were they fitted to another numbering of the clusters?"
        )


def counted(
    patterns: Sequence[tuple[Label, tuple[Condition, ...]]],
    X: TableLike,
    labels: ArrayLike,
    n_features: int | None = None,
    sample_weight: np.ndarray | None = None,
) -> Rules:
    """Build rules, which may overlap, from labels and conditions; points [N], or their weights, are counted."""
    points = Points(X, None)
    known_labels = label_array(in_order_of(labels, X))
    weight = sample_weight
    if weight is None:
        weight = np.ones(len(points))
    rules = []
    for label, conditions in patterns:
        name = label if isinstance(label, str) else f"cluster {label}"
        rules.append(Rule(label, name, conditions, Counts(0, 0), n_features=n_features))
    counts, totals = counts_of(rules, points, known_labels, weight)
    rules = [replace(rule, counts=of_rule) for rule, of_rule in zip(rules, counts, strict=True)]
    n_noise = int((~are_labels(known_labels)).sum())
    return Rules(tuple(rules), totals, divide=False, n_noise=n_noise)


def _unpack(cls: type[Rules], values: Values) -> Rules:
    return replace(cls.from_dict(values["rules"]), table_format=values.get("table_format"))


register(Rules, lambda rules: {"rules": rules.to_dict(), "table_format": rules.table_format}, _unpack)
