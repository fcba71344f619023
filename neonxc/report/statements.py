"""Statements about a cluster: the most relevant columns in words, with their relevance and distribution.

Words and numbers are those of :mod:`neonxc.attribution.direction`, from the values of all points; the
distributions are those of the sample whose relevance is known. Columns whose two numbers read alike are left out,
and what the cluster lacks comes after what it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch

from neonxc.attribution.cluster_values import ClusterValues, ValueSums
from neonxc.attribution.direction import MAX_DIGITS, MEDIUM, Direction, present_first
from neonxc.attribution.moments import Moments
from neonxc.common.numbers import as_printed, is_missing, rounded, text
from neonxc.data.files.format import ColumnFormat
from neonxc.data.weights import counted_weights, weighted_quantile
from neonxc.report.clustered import ClusteredData
from neonxc.report.description import ColumnEntry, Statement
from neonxc.report.relevance import Relevance

STATEMENTS = 8  # maximum number of statements per cluster
BINS = 16  # number of bins of a histogram
CATEGORIES = 8  # maximum number of categories in a distribution
ROWS = 50_000  # number of rows whose values are read at once


class Distribution(NamedTuple):
    """The values of a column inside and outside a cluster, in the order of the attributes of a `Statement`."""

    bins: list[float] | list[str]  # ends of the bins of a histogram, or categories
    inside: list[float]  # fractions of the cluster's points in them, by weight
    outside: list[float]  # those of all other points


def columns_of(clustering: ClusteredData, relevance: Relevance) -> list[ColumnEntry]:
    """Describe the columns that are shown."""
    formats = formats_of(clustering, relevance.shown)
    columns = []
    for (_, values), format in zip(relevance.table.items(), formats, strict=True):
        if is_category(values):
            columns.append(ColumnEntry(values.name, "category"))
            continue
        column = _numeric_column(values, relevance.weight)
        column.unit = format.unit
        if format.marks is not None:
            column.n_digits = format.marks.n_digits
        column.is_sparse = clustering.has_terms or column.is_sparse
        columns.append(column)
    return columns


def _numeric_column(values: pd.Series, weight: np.ndarray | None) -> ColumnEntry:
    """Describe a column of numbers: mean, standard deviation, and whether most of them are counts of 0."""
    numbers = _numbers(values)
    moments = Moments(1, 1)
    one_group = np.zeros(len(values), np.int64)
    moments.add(numbers[:, None], one_group, weight)
    deviation = float(moments.deviations())
    mean, spread = _rounded_by([float(moments.overall), deviation or 1.0], deviation or 1.0, 6)
    is_sparse = bool(np.nanmin(numbers, initial=0) >= 0 and (numbers == 0).mean() > 0.5)
    return ColumnEntry(values.name, "number", mean, spread, is_sparse=is_sparse)


def cluster_values(clustering: ClusteredData, relevance: Relevance) -> ClusterValues:
    """Compute the typical values of the shown columns in all clusters and, in the last place, in noise."""
    if clustering.is_slow_to_read:  # a network reads the texts, as it has read the sample already
        index = relevance.index
        parts = [relevance.table]
    else:
        index = np.arange(len(clustering.positions))
        blocks = np.array_split(index, max(1, len(index) // ROWS))
        parts = [clustering.values(block, relevance.shown) for block in blocks]
    weight = clustering.weights_at(index)
    groups = np.where(clustering.positions[index] < 0, clustering.k, clustering.positions[index])
    encoded = set(clustering.net.inputs.categories)
    categories = [i for i, column in enumerate(relevance.shown.tolist()) if column in encoded]
    mass = None if weight is None else counted_weights(weight)
    formats = formats_of(clustering, relevance.shown)
    return _values(parts, groups, clustering.k + 1, clustering.has_terms, mass, categories, formats)


def formats_of(clustering: ClusteredData, columns: np.ndarray) -> tuple[ColumnFormat, ...]:
    """Return how the numbers of columns are printed."""
    formats = clustering.net.inputs.formats
    return tuple(formats[column] for column in columns.tolist())


def _values(
    parts: Sequence[pd.DataFrame],
    groups: np.ndarray,
    n_groups: int,
    in_texts: bool,
    mass: np.ndarray | None = None,
    categories: Sequence[int] = (),
    formats: tuple[ColumnFormat, ...] = (),
) -> ClusterValues:
    """Compute the typical values of the columns of a table in groups of its rows, which may have weights."""
    table = parts[0]
    n_columns = table.shape[1]
    with_categories = set[int]()
    if not in_texts:
        with_categories = {*categories, *(i for i in range(n_columns) if is_category(table.iloc[:, i]))}
    sums = ValueSums(n_groups, n_columns, sorted(with_categories))
    first = 0
    for part in parts:
        rows = slice(first, first + len(part))
        first += len(part)
        of_part = torch.from_numpy(groups[rows])
        mass_of_part = None if mass is None else mass[rows]
        numbers = {i: _numbers(part.iloc[:, i]) for i in range(n_columns) if i not in with_categories}
        if in_texts:  # whether a text contains a term
            numbers = {i: (values > 0).astype(np.float64) for i, values in numbers.items()}
        sums.add_table(part, numbers, of_part, mass_of_part)
    return sums.result(in_texts, formats=formats)


def statements(
    clustering: ClusteredData, relevance: Relevance, cluster: int, values: ClusterValues
) -> list[Statement]:
    """Make statements from the most relevant columns of a cluster, or of noise (-1).

    They are ordered by decreasing relevance, what the cluster lacks behind what it has. The values are those of
    :func:`cluster_values`.
    """
    inside = relevance.positions == cluster
    if not inside.any():
        return []
    shares = relevance.of_clusters[cluster]
    directions = {}
    for column in np.argsort(-np.abs(shares), kind="stable").tolist():
        direction = values.described(cluster, column)  # -1 is the last group, noise
        if direction.is_reason:
            directions[column] = direction
        if len(directions) == clustering.shortened(STATEMENTS):
            break
    by_relevance = sorted(directions, key=lambda column: -shares[column])
    order = present_first([(directions[column], shares[column]) for column in by_relevance])

    weight = clustering.weights_at(relevance.index)
    mass = np.ones(len(inside)) if weight is None else counted_weights(weight)
    described = []
    for column in (by_relevance[position] for position in order):
        direction = directions[column]
        of_column = relevance.table.iloc[:, column]
        words = direction.statement(str(of_column.name))
        if cluster < 0:  # values of noise are unusual in either direction
            words = words.removeprefix(f"{MEDIUM} ")
        if direction.kind == "category":
            distribution = _of_categories(of_column, inside, mass, direction)
        else:
            distribution = _of_numbers(of_column, inside, mass)
        share = rounded([shares[column]])[0]
        described.append(
            Statement(column, share, words, *distribution, *direction.texts(), direction.effect_size())
        )
    return described


def typical_values(
    a: pd.DataFrame,
    b: pd.DataFrame,
    in_texts: bool,
    weights: Sequence[np.ndarray | None],
    formats: tuple[ColumnFormat, ...],
) -> list[tuple[str, str]]:
    """Print the typical values of columns in two clusters: means, or the fractions of a category or term."""
    mass = None
    if weights[0] is not None and weights[1] is not None:
        mass = counted_weights(np.concatenate([weights[0], weights[1]]))
    groups = np.repeat([0, 1], [len(a), len(b)])
    values = _values([pd.concat([a, b])], groups, 2, in_texts, mass, formats=formats)
    return [_printed_of_pair(values, column) for column in range(a.shape[1])]


def _printed_of_pair(values: ClusterValues, column: int) -> tuple[str, str]:
    """Print the typical values of a column in the first and in the second of two clusters."""
    direction = values.described(0, column)
    own, others = direction.texts()
    if values.described(1, column).word == "missing":
        others = text(None)
    if direction.kind == "category":
        category = direction.word.removeprefix("is ")
        return f"{category}: {own}", f"{category}: {others}"
    if direction.kind == "texts":
        return f"in {own}", f"in {others}"
    return own, others


def is_category(values: pd.Series) -> bool:
    """Whether a column holds categories."""
    return values.dtype == bool or not pd.api.types.is_numeric_dtype(values)


def _numbers(values: pd.Series) -> np.ndarray:
    """The numbers of a column; NaN where they are missing."""
    return values.to_numpy(dtype=np.float64, na_value=np.nan)


def _rounded_by(values: Sequence[float] | np.ndarray, spread: float, digits: int) -> list[float]:
    """Round numbers to significant digits, or to more if they differ by little, as years do."""
    largest = np.abs(values).max(initial=spread)
    with np.errstate(over="ignore", invalid="ignore"):
        n_digits = digits + np.log10(largest / spread)
    return rounded(values, int(min(MAX_DIGITS, n_digits)))


def _of_numbers(values: pd.Series, inside: np.ndarray, mass: np.ndarray) -> Distribution:
    """Make histograms between the quantiles 0.5% and 99.5%."""
    numbers = _numbers(values)
    known = ~np.isnan(numbers)
    low, high = weighted_quantile(numbers[known], [0.005, 0.995], mass[known])
    if low == high:
        high = low + 1
    edges = np.linspace(low, high, BINS + 1)
    histograms = []
    for side in (inside & known, ~inside & known):
        counts, _ = np.histogram(numbers[side].clip(low, edges[-1]), edges, weights=mass[side])
        histograms.append(rounded(counts / (mass[side].sum() or 1)))
    return Distribution(_rounded_by(edges, high - low, 4), *histograms)


def _of_categories(values: pd.Series, inside: np.ndarray, mass: np.ndarray, direction: Direction) -> Distribution:
    """Compute the fractions of the most frequent categories, and of the one that is typical of the cluster."""
    codes, names = _category_names(values)
    masses = np.bincount(codes, mass)
    order = np.lexsort((-np.bincount(codes), -masses))  # of equal weights, the one of more points comes first
    shown = [names[code] for code in order[:CATEGORIES].tolist()]
    typical = direction.word.removeprefix("is ")
    if typical not in shown:
        shown[-1] = typical
    fractions = []
    for side in (inside, ~inside):
        of_codes = np.bincount(codes[side], mass[side], minlength=len(names)) / (mass[side].sum() or 1)
        by_name = dict(zip(names, of_codes.tolist(), strict=True))
        fractions.append(rounded(by_name.get(name, 0.0) for name in shown))
    return Distribution(shown, *fractions)


def _category_names(values: pd.Series) -> tuple[np.ndarray, list[str]]:
    """Return the code of every value, and the names of the codes: categories as text."""
    codes, categories = pd.factorize(values, use_na_sentinel=False)
    texts = [text(category, separators=False) for category in categories.tolist()]
    of_categories, names = pd.factorize(np.array(texts, dtype=object))  # 1 and "1" have one name
    return of_categories[codes], names.tolist()


def printed(values: pd.Series, decimals: int) -> list[float | str | None]:
    """Return the values of a column for the page: numbers as they are printed, categories as text."""
    if not is_category(values):
        return [None if is_missing(value) else as_printed(value, decimals) for value in values.tolist()]
    codes, categories = pd.factorize(values)
    texts: list[str | None] = [text(category, separators=False) for category in categories.tolist()]
    texts.append(None)  # the code -1 is that of missing values, and the last one
    return [texts[code] for code in codes.tolist()]
