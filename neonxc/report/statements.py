"""Statements about a cluster: the most relevant columns in words, with their relevance and distribution."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from neonxc.attribution.effects import cramers_v
from neonxc.attribution.moments import Moments
from neonxc.common.numbers import as_printed, is_missing, percent, rounded, text
from neonxc.data.weights import counted_weights, weighted_median, weighted_quantile
from neonxc.report.clustered import ClusteredData
from neonxc.report.description import ColumnEntry, Statement
from neonxc.report.relevance import Relevance

STATEMENTS = 8  # maximum number of statements per cluster
BINS = 16  # number of bins of a histogram
MEDIUM = "medium"  # neither "high" nor "low" nor "extreme"
ABSENT = "no "  # precedes a term that is rarer inside the cluster than outside
WORTH = 0.1  # minimum relevance, relative to the strongest statement, for a place in the name of the cluster
CLEAR = 1.5  # minimum ratio of larger to smaller values, compared pairwise with other points, for "high"
OUTSIDE = 0.05  # share of other points on either side, beyond which most values have to be for "extreme"
CATEGORIES = 8  # maximum number of categories in a distribution


class Distribution(NamedTuple):
    """What a :class:`Statement` says about the values of its column, in the order of its attributes."""

    text: str  # "high age", "contract is yes"
    bins: list[Any]  # ends of the bins of a histogram, or categories
    inside: list[float]  # fractions of the cluster's points in them, by weight
    outside: list[float]  # those of all other points
    typical_inside: str  # the median, or the most frequent category
    typical_outside: str
    effect: str  # Cohen's d, or Cramér's V


def columns_of(table: pd.DataFrame, weight: np.ndarray | None = None) -> list[ColumnEntry]:
    """Describe the columns of `table`, whose rows may have weights."""
    return [_column(values, weight) for _, values in table.items()]


def _column(values: pd.Series, weight: np.ndarray | None) -> ColumnEntry:
    if is_category(values):
        return ColumnEntry(values.name, "category")
    numbers = _known(values)
    center = numbers.mean()
    deviation = numbers.std()
    if weight is not None:
        known = weight[values.notna().to_numpy()]
        center = np.average(numbers, weights=known)
        deviation = np.average((numbers - center) ** 2, weights=known) ** 0.5
    mean, spread = rounded([center, deviation or 1.0], 6)
    return ColumnEntry(values.name, "number", mean, spread)


def statements(clustering: ClusteredData, relevance: Relevance, cluster: int) -> list[Statement]:
    """Make statements from the most relevant columns of a cluster, or of noise (-1), by decreasing relevance."""
    inside = relevance.positions == cluster
    if not inside.any():
        return []
    shares = relevance.of_clusters[cluster]
    order = np.argsort(-np.abs(shares), kind="stable")[: clustering.shortened(STATEMENTS)]
    described = []
    weight = None if clustering.weight is None else clustering.weight[relevance.index]
    mass = np.ones(len(inside)) if weight is None else counted_weights(weight)
    for column in sorted(order.tolist(), key=lambda column: -shares[column]):
        values = relevance.table.iloc[:, column]
        describe = _of_categories if is_category(values) else _of_numbers
        statement = Statement(column, rounded([shares[column]])[0], *describe(values, inside, mass))
        if clustering.kind == "texts":
            statement.text, statement.effect = _of_term(values, inside, mass)
        elif cluster < 0:  # values of noise are unusual in either direction
            statement.text = statement.text.removeprefix(f"{MEDIUM} ")
        described.append(statement)
    return described


def _of_term(values: pd.Series, inside: np.ndarray, mass: np.ndarray) -> tuple[str, str]:
    """Write a term, preceded by "no" if it is rarer inside the cluster than outside, and its effect size."""
    occurs = values.to_numpy() > 0
    every = np.ones(len(inside), bool)
    within, without, overall = (
        (occurs * mass)[side].sum() / mass[side].sum() if side.any() else np.nan
        for side in (inside, ~inside, every)
    )
    name = values.name if within >= without else f"{ABSENT}{values.name}"
    return name, _v(np.array([within, 1 - within]), np.array([overall, 1 - overall]), inside, mass)


def typical(values: pd.Series, kind: str, weight: np.ndarray | None = None) -> str:
    """The median of numbers, the most frequent category, or the share of texts that have a term."""
    if kind == "texts":
        return f"in {percent(float(np.average(values.to_numpy() > 0, weights=weight)))}"
    if not is_category(values):
        return _median(values, weight)
    codes, categories = pd.factorize(values, use_na_sentinel=False)  # not `mode`, which sorts values of any types
    return text(categories[np.bincount(codes, weight).argmax()], separators=False)


def is_category(values: pd.Series) -> bool:
    """Whether a column holds categories."""
    return values.dtype == bool or not pd.api.types.is_numeric_dtype(values)


def _known(values: pd.Series) -> np.ndarray:
    """The numbers of a column that are not missing."""
    return values.dropna().to_numpy(dtype=np.float64)


def _median(values: pd.Series, weight: np.ndarray | None) -> str:
    numbers = _known(values)
    if not len(numbers):
        return text(None)
    if weight is None:
        return text(float(np.median(numbers)))
    return text(weighted_median(numbers, weight[values.notna().to_numpy()]))


def _of_numbers(values: pd.Series, inside: np.ndarray, mass: np.ndarray) -> Distribution:
    """Describe numbers: histograms between the quantiles 0.5% and 99.5%, medians, and Cohen's d."""
    known = values.notna().to_numpy()
    members = _known(values[inside])
    others = _known(values[~inside])
    weights = (mass[inside & known], mass[~inside & known])

    low, high = weighted_quantile(_known(values), [0.005, 0.995], mass[known])
    edges = np.linspace(low, high if high > low else low + 1, BINS + 1)
    histograms = []
    medians = []
    for numbers, weight in zip((members, others), weights, strict=True):
        counts, _ = np.histogram(numbers.clip(low, edges[-1]), edges, weights=weight)
        histograms.append(rounded(counts / (weight.sum() or 1)))
        medians.append(text(weighted_median(numbers, weight) if len(numbers) else None))

    if weights[0].sum() < 0.5 * mass[inside].sum():
        words = f"{values.name} is missing"
    else:
        words = f"{_level(members, others, *weights)} {values.name}"
    return Distribution(
        text=words,
        bins=rounded(edges, 4),
        inside=histograms[0],
        outside=histograms[1],
        typical_inside=medians[0],
        typical_outside=medians[1],
        effect=_effect(members, others, weights),
    )


def _effect(members: np.ndarray, others: np.ndarray, weights: tuple[np.ndarray, np.ndarray]) -> str:
    """Cohen's d of the values in a cluster against the others; "" if there are none."""
    if not (len(members) and len(others)):
        return ""
    group = np.repeat([0, 1], [len(members), len(others)])
    moments = Moments(2, 1)
    moments.add_column(0, np.concatenate([members, others]), group, np.concatenate(weights))
    return f"d = {text(float(moments.cohens_d()[0, 0]), 2)}"


def _v(within: np.ndarray, overall: np.ndarray, inside: np.ndarray, mass: np.ndarray) -> str:
    """Cramér's V of the shares of categories in a cluster and in all points."""
    return f"V = {text(float(cramers_v(within, overall, mass[inside].sum(), mass.sum())), 2)}"


def _level(members: np.ndarray, others: np.ndarray, of_members: np.ndarray, of_others: np.ndarray) -> str:
    """Return "high" or "low" if the cluster's values are clearly more often larger or smaller than others.

    "extreme" are values of which most are on the outside, on both sides. Both sides have weights.
    """
    if not len(others):
        return "typical"
    order = np.argsort(others, kind="stable")
    ordered = others[order]
    up_to = np.concatenate([[0.0], of_others[order].cumsum()])
    below = np.average(up_to[np.searchsorted(ordered, members, "left")], weights=of_members)
    above = up_to[-1] - np.average(up_to[np.searchsorted(ordered, members, "right")], weights=of_members)
    if below > CLEAR * above and below > 0:
        return "high"
    if above > CLEAR * below:
        return "low"
    least, most = weighted_quantile(others, [OUTSIDE, 1 - OUTSIDE], of_others)
    outside = np.average((members < least) | (members > most), weights=of_members)
    return "extreme" if outside > 0.5 else MEDIUM


def _of_categories(values: pd.Series, inside: np.ndarray, mass: np.ndarray) -> Distribution:
    """Describe categories: their fractions, the most frequent ones, and Cramér's V."""
    words = pd.Series([text(value, separators=False) for value in values.tolist()], dtype=object)
    members = _shares(words[inside], mass[inside])
    others = _shares(words[~inside], mass[~inside])
    overall = _shares(words, mass)

    # the category whose fraction of the cluster exceeds that of the other points most is shown in any case
    excess = members - others.reindex(members.index, fill_value=0)
    characteristic = excess.idxmax()
    shown = list(overall.index[:CATEGORIES])
    if characteristic not in shown:
        shown[-1] = characteristic

    effect = _v(members.reindex(overall.index, fill_value=0).to_numpy(), overall.to_numpy(), inside, mass)
    return Distribution(
        text=f"{values.name} is {characteristic}",
        bins=shown,
        inside=rounded(members.reindex(shown, fill_value=0)),
        outside=rounded(others.reindex(shown, fill_value=0)),
        typical_inside=members.index[0],
        typical_outside=others.index[0],
        effect=effect,
    )


def _shares(words: pd.Series, mass: np.ndarray) -> pd.Series:
    """Shares of categories by weight, the most frequent first."""
    counts = words.value_counts()
    sums = pd.Series(mass, words.index).groupby(words).sum().reindex(counts.index)
    return (sums / mass.sum()).sort_values(ascending=False, kind="stable")


def cluster_names(clustering: ClusteredData, statements: list[list[Statement]]) -> list[str]:
    """Name clusters: as given, or by the two strongest statements, or by three if two do not distinguish them."""
    readable = clustering.kind in ("table", "texts")  # names of channels say nothing
    for length in (2, 3):
        names = [_name(of_cluster, length) if readable else "" for of_cluster in statements]
        if len(set(names)) == len(names):
            break
    labels = clustering.cluster_labels
    given = clustering.cluster_names
    names = [given.get(label, name or f"cluster {label}") for label, name in zip(labels, names, strict=True)]
    return [
        name if names.count(name) == 1 else f"{name} ({label})" for name, label in zip(names, labels, strict=True)
    ]


def _name(statements: list[Statement], length: int) -> str:
    texts = [
        statement.text
        for statement in statements  # by decreasing relevance
        if statement.relevance > 0 and statement.relevance >= WORTH * statements[0].relevance
    ]
    return ", ".join(sorted(texts, key=lambda text: text.startswith(ABSENT))[:length])  # absent terms come last


def printed(values: pd.Series) -> list[Any]:
    """Return the values of a column for the page: numbers as they are printed, categories as text."""
    convert: Callable[[Any], Any] = partial(text, separators=False) if is_category(values) else as_printed
    return [None if is_missing(value) else convert(value) for value in values.tolist()]
