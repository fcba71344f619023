"""What the columns say for a cluster: how much, in words, and beside how they are distributed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from neonxc.cluster_values import typical_category
from neonxc.inputs import is_missing
from neonxc.numerals import percent, rounded, text
from neonxc.report.contents import Column, Statement
from neonxc.report.relevance import Relevance
from neonxc.report.subject import Subject

STATEMENTS = 8  # of a cluster
BINS = 16
ABSENT = "no "  # before a term that a cluster does without
WORTH = 0.1  # of the strongest statement, for a place in the name
CLEAR = 1.5  # times as often: from there on a cluster is high or low
CATEGORIES = 8  # that are told apart in a distribution


def columns_of(table: pd.DataFrame, names: list[str]) -> list[Column]:
    """The columns of a report, with their values in `table`."""
    return [_column(table.iloc[:, i], name) for i, name in enumerate(names)]


def statements(
    subject: Subject, relevance: Relevance, table: pd.DataFrame, names: list[str], cluster: int
) -> list[Statement]:
    """The columns that say most for and against a cluster, strongest first."""
    inside = subject.own[relevance.index] == cluster
    if not inside.any():
        return []
    logit = max(float(relevance.logit[inside].mean()), 1e-300)
    share = relevance.values[inside].mean(0) / logit
    order = np.argsort(-np.abs(share), kind="stable")[: subject.several(STATEMENTS)]
    found = []
    for column in sorted(order.tolist(), key=lambda column: -share[column]):
        value = rounded([share[column]])[0]
        statement = _statement(column, value, table.iloc[:, column], names[column], inside)
        if subject.kind == "texts":
            statement.text = _of_term(table.iloc[:, column].to_numpy() > 0, names[column], inside)
        found.append(statement)
    return found


def _of_term(occurs: np.ndarray, name: str, inside: np.ndarray) -> str:
    """Whether a term is more usual inside a cluster or outside."""
    return name if occurs[inside].mean() >= occurs[~inside].mean() else f"{ABSENT}{name}"


def typical(values: pd.Series, kind: str) -> str:
    """The median of numbers, the most frequent category, or the share of texts that have a term."""
    if kind == "texts":
        return f"in {percent(float((values.to_numpy() > 0).mean()))}"
    if is_category(values):
        return text(values.mode(dropna=False).iloc[0])
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
    said = f"{name} is missing" if absent else f"{_level(own, others)} {name}"
    return Statement(column, share, said, rounded(edges, 4), of_own, of_others, text(middle), text(outside))


def _level(own: np.ndarray, others: np.ndarray) -> str:
    """Where a cluster lies: of pairs of its points and others, one order is far more frequent than the other."""
    if not len(others):
        return "typical"
    ordered = np.sort(others)
    below = np.searchsorted(ordered, own, "left").mean()
    up_to = np.searchsorted(ordered, own, "right").mean()
    if below > CLEAR * (len(others) - up_to) and below > 0:
        return "high"
    return "low" if len(others) - up_to > CLEAR * below else "medium"


def _of_categories(column: int, share: float, values: pd.Series, name: str, inside: np.ndarray) -> Statement:
    words = np.array([text(value) for value in values.tolist()], dtype=object)
    frequent = pd.Series(words).value_counts()
    kept = list(frequent.index[:CATEGORIES])
    own = pd.Series(words[inside]).value_counts(normalize=True)
    others = pd.Series(words[~inside]).value_counts(normalize=True)
    there = own.index
    at = typical_category(own.to_numpy(), others.reindex(there).fillna(0).to_numpy()) if len(own) else None
    if at is not None and there[at] not in kept:
        kept[-1] = there[at]
    of_own, of_others = (rounded(part.reindex(kept).fillna(0)) for part in (own, others))
    typical = [str(part.index[0]) if len(part) else "" for part in (own, others)]
    said = name if at is None else f"{name} is {there[at]}"
    return Statement(column, share, said, kept, of_own, of_others, *typical)


def _shares(counts: np.ndarray) -> list[float]:
    return rounded(counts / max(counts.sum(), 1))


def cluster_names(found: list[list[Statement]], labels: list[str], given: dict[Any, str]) -> list[str]:
    """A name for every cluster: the caller's, or its two strongest statements; three where two are not enough."""
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
    said = [one.text for one in statements if one.relevance > 0 and one.relevance >= WORTH * most]
    said.sort(key=lambda text: text.startswith(ABSENT))  # what is there comes first
    return ", ".join(said[:length])


def printed(values: pd.Series) -> list[Any]:
    """Values of a column for the page: numbers with four digits, categories as text."""
    if is_category(values):
        return [None if is_missing(value) else text(value) for value in values.tolist()]
    numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
    return [None if not np.isfinite(value) else float(f"{value:.4g}") for value in numbers]
