"""Statements about a cluster: the most relevant columns in words, with their relevance and distribution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from neonxc.attribution.effects import cohens_d, cramers_v
from neonxc.attribution.summary import typical_category
from neonxc.common.numbers import as_printed, percent, rounded, text
from neonxc.data.inputs import is_missing
from neonxc.report.clustering import Clustering
from neonxc.report.contents import Column, Statement
from neonxc.report.relevance import Relevance

STATEMENTS = 8  # maximum number of statements per cluster
BINS = 16  # number of bins of a histogram
ABSENT = "no "  # precedes a term that is rarer inside the cluster than outside
WORTH = 0.1  # minimum relevance, relative to the strongest statement, for a place in the name of the cluster
CLEAR = 1.5  # minimum ratio of larger to smaller values, compared pairwise with other points, for "high"
CATEGORIES = 8  # maximum number of categories in a distribution


def columns_of(table: pd.DataFrame, names: list[str]) -> list[Column]:
    """Describe the columns of `table`."""
    return [_column(table.iloc[:, i], name) for i, name in enumerate(names)]


def statements(
    clustering: Clustering, relevance: Relevance, table: pd.DataFrame, names: list[str], cluster: int
) -> list[Statement]:
    """Make statements from the most relevant columns of a cluster, sorted by decreasing relevance."""
    inside = clustering.own[relevance.index] == cluster
    if not inside.any():
        return []
    logit = max(float(relevance.logit[inside].mean()), 1e-300)
    share = relevance.values[inside].mean(0) / logit
    order = np.argsort(-np.abs(share), kind="stable")[: clustering.shortened(STATEMENTS)]
    found = []
    for column in sorted(order.tolist(), key=lambda column: -share[column]):
        value = rounded([share[column]])[0]
        statement = _statement(column, value, table.iloc[:, column], names[column], inside)
        if clustering.kind == "texts":
            occurs = table.iloc[:, column].to_numpy() > 0
            statement.text = _of_term(occurs, names[column], inside)
            own, every = (np.array([part.mean(), 1 - part.mean()]) for part in (occurs[inside], occurs))
            statement.effect = _v(own, every, inside)
        found.append(statement)
    return found


def _of_term(occurs: np.ndarray, name: str, inside: np.ndarray) -> str:
    """Write the term, preceded by "no" if it is rarer inside the cluster than outside."""
    return name if occurs[inside].mean() >= occurs[~inside].mean() else f"{ABSENT}{name}"


def typical(values: pd.Series, kind: str) -> str:
    """The median of numbers, the most frequent category, or the share of texts that have a term."""
    if kind == "texts":
        return f"in {percent(float((values.to_numpy() > 0).mean()))}"
    if is_category(values):
        return text(values.mode(dropna=False).iloc[0], separators=False)
    numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
    return text(float(np.median(numbers[np.isfinite(numbers)])) if np.isfinite(numbers).any() else None)


def is_category(values: pd.Series) -> bool:
    """Whether a column holds categories."""
    return values.dtype == bool or not pd.api.types.is_numeric_dtype(values)


def _column(values: pd.Series, name: str) -> Column:
    if is_category(values):
        return Column(name, "category")
    numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
    mean, spread = np.nanmean(numbers), np.nanstd(numbers)
    return Column(name, "number", rounded([mean], 6)[0], rounded([spread or 1.0], 6)[0])


def _statement(column: int, share: float, values: pd.Series, name: str, inside: np.ndarray) -> Statement:
    if is_category(values):
        return _of_categories(column, share, values, name, inside)
    numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
    there = np.isfinite(numbers)
    own, others = numbers[inside & there], numbers[~inside & there]
    low, high = np.percentile(numbers[there], [0.5, 99.5])
    edges = np.linspace(low, high if high > low else low + 1, BINS + 1)
    of_own, of_others = (_shares(np.histogram(part.clip(low, edges[-1]), edges)[0]) for part in (own, others))
    middle, outside = (float(np.median(part)) if len(part) else float("nan") for part in (own, others))
    absent = not len(own) or there[inside].mean() < 0.5
    words = f"{name} is missing" if absent else f"{_level(own, others)} {name}"
    typical = text(middle), text(outside), _effect(own, others)
    return Statement(column, share, words, rounded(edges, 4), of_own, of_others, *typical)


def _effect(own: np.ndarray, others: np.ndarray) -> str:
    """Cohen's d of the values in a cluster against the others; "" if there are none."""
    if not (len(own) and len(others)):
        return ""
    found = ([len(part), part.mean(), len(part) * part.var()] for part in (own, others))
    counts, means, squares = np.array([*found]).T[:, :, None]
    return f"d = {text(float(cohens_d(counts, means, squares)[0, 0]), 2)}"


def _v(own: np.ndarray, every: np.ndarray, inside: np.ndarray) -> str:
    """Cramér's V of the shares of categories in a cluster and in all points."""
    v = float(cramers_v(own, every, inside.sum(), len(inside)))
    return "" if np.isnan(v) else f"V = {text(v, 2)}"


def _level(own: np.ndarray, others: np.ndarray) -> str:
    """Return "high" or "low" if the cluster's values are clearly more often larger or smaller than others."""
    if not len(others):
        return "typical"
    ordered = np.sort(others)
    below = np.searchsorted(ordered, own, "left").mean()
    up_to = np.searchsorted(ordered, own, "right").mean()
    if below > CLEAR * (len(others) - up_to) and below > 0:
        return "high"
    return "low" if len(others) - up_to > CLEAR * below else "medium"


def _of_categories(column: int, share: float, values: pd.Series, name: str, inside: np.ndarray) -> Statement:
    words = np.array([text(value, separators=False) for value in values.tolist()], dtype=object)
    frequent = pd.Series(words).value_counts()
    kept = list(frequent.index[:CATEGORIES])
    own = pd.Series(words[inside]).value_counts(normalize=True)
    others = pd.Series(words[~inside]).value_counts(normalize=True)
    there = own.index
    at = typical_category(own.to_numpy(), others.reindex(there).fillna(0).to_numpy()) if len(own) else None
    if at is not None and there[at] not in kept:
        kept[-1] = there[at]
    of_own, of_others = (rounded(part.reindex(kept).fillna(0)) for part in (own, others))
    middle, outside = (str(part.index[0]) if len(part) else "" for part in (own, others))
    description = name if at is None else f"{name} is {there[at]}"
    every = pd.Series(words).value_counts(normalize=True)
    effect = _v(own.reindex(every.index).fillna(0).to_numpy(), every.to_numpy(), inside)
    return Statement(column, share, description, kept, of_own, of_others, middle, outside, effect)


def _shares(counts: np.ndarray) -> list[float]:
    return rounded(counts / max(counts.sum(), 1))


def cluster_names(found: list[list[Statement]], labels: list[str], given: dict[Any, str]) -> list[str]:
    """Name clusters: as given, or by the two strongest statements, or by three if two do not distinguish them."""
    named = {str(label): name for label, name in given.items()}
    for length in (2, 3):
        names = [_name(statements, length) for statements in found]
        if len(set(names)) == len(names):
            break
    for i, label in enumerate(labels):
        if label in named:
            names[i] = named[label]
        elif not names[i]:
            names[i] = f"cluster {label}"
    return [
        name if names.count(name) == 1 else f"{name} ({label})" for name, label in zip(names, labels, strict=True)
    ]


def _name(statements: list[Statement], length: int) -> str:
    most = max((statement.relevance for statement in statements), default=0.0)
    texts = [one.text for one in statements if one.relevance > 0 and one.relevance >= WORTH * most]
    texts.sort(key=lambda text: text.startswith(ABSENT))  # absent terms come last
    return ", ".join(texts[:length])


def printed(values: pd.Series) -> list[Any]:
    """Return the values of a column for the page: numbers as they are printed, categories as text."""
    if is_category(values):
        return [None if is_missing(value) else text(value, separators=False) for value in values.tolist()]
    numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
    return [None if not np.isfinite(value) else as_printed(value) for value in numbers]
