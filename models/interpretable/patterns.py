"""Frequent patterns: values, and conjunctions of values, that many points of a cluster have in common."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch

from neonxc.common.arguments import check_whole
from neonxc.common.progress import progress_bar
from neonxc.data.frames import in_order_of
from neonxc.data.inputs import as_array
from neonxc.data.labels import as_labels, warn_of_labels
from neonxc.data.table import Table
from neonxc.rules import Rules
from neonxc.rules.collection import counted

from .values_of_interest import column_positions, fit_coding, series_of


def patterns(
    X: Any,
    labels: Any,
    *,
    columns: str | int | Sequence[str | int] | None = None,
    min_support: float = 0.2,
    max_length: int = 2,
    n_bins: int = 4,
) -> Rules:
    """Describe every cluster by frequent patterns, combined by "or".

    A pattern is a value of a column, or a conjunction of values such as ``sex is Male and age in [38, 90]``, that
    at least a share `min_support` of the cluster's points has. Patterns are chosen greedily: the next pattern
    maximizes its precision, with noise, times the number of the cluster's points that it covers and no chosen
    pattern covers. The selection ends when no pattern covers another share `min_support` of the cluster. For a
    single column, the result consists of all its frequent values.

    Parameters
    ----------
    X : data frame, array or tensor [n, d]
        Categories and numbers. A missing value is a category of its own.
    labels : array-like [n]
        Labels of any clustering. Points of label -1 (noise) are in no cluster and counted apart.
    columns : name, number or sequence of these, optional
        Columns that are used in patterns, such as the features of interest. Default: all columns.
    min_support : float in (0, 1]
        Minimum share of a cluster's points that have a pattern.
    max_length : int
        Maximum number of conditions in a pattern. The time grows with the number of columns to this power.
    n_bins : int
        Columns with more distinct numbers than this are divided into this number of quantile bins.

    Returns
    -------
    Rules
        Rules sorted by cluster, then by coverage. Patterns may overlap, and points may have no pattern.

    Raises
    ------
    ValueError
        If there is not one label per point, a column is unknown or holds dates or other objects, or a parameter is
        out of range.

    References
    ----------
    .. [1] S. Saisubramanian, S. Galhotra, S. Zilberstein, "Balancing the tradeoff between clustering value and
       interpretability", AIES 2020, section 4.4.

    Examples
    --------
    >>> import pandas as pd
    >>> from neonxc.models import patterns
    >>> people = pd.DataFrame({"age": [20, 21, 22, 60, 61, 63], "works": ["no", "yes", "yes", "yes", "no", "no"]})
    >>> print(patterns(people, ["a", "a", "a", "b", "b", "b"], n_bins=2))
    a: 3 samples (50%), coverage 100%, precision 100%
        age ≤ 30
    <BLANKLINE>
    b: 3 samples (50%), coverage 100%, precision 100%
        age > 30
    """
    if not 0 < min_support <= 1:
        raise ValueError(f"min_support needs a number in (0, 1], got {min_support}")
    check_whole("max_length", max_length)
    check_whole("n_bins", n_bins, 2)
    table = Table.read(X)
    table.check_filled()
    labels = in_order_of(labels, X)
    positions, classes, clustered = map(as_array, as_labels(labels, len(table), torch.device("cpu")))
    positions = np.where(clustered, positions, -1)
    if not table.is_sparse and columns is None:
        warn_of_labels(table.values_of_columns(), positions)
    chosen = range(table.width) if columns is None else column_positions(table, columns, "columns")
    # Values of columns that are frequent in a cluster, and the points that have them, [n, items]
    items = []
    masks = []
    sizes = np.bincount(positions[clustered])
    for column in chosen:
        values = series_of(table, column)
        coding, conditions = fit_coding(values, n_bins, column)
        codes = coding.codes(values)
        pairs = (codes * len(sizes) + positions)[clustered]
        counts = np.bincount(pairs, minlength=len(conditions) * len(sizes)).reshape(-1, len(sizes))
        frequent = np.flatnonzero((counts / sizes >= min_support).any(1))
        items += [conditions[code] for code in frequent]
        masks.append(codes[:, None] == frequent)
    has = np.concatenate(masks, axis=1)
    rules = [
        (label, tuple(items[item] for item in pattern))
        for position, label in enumerate(progress_bar(classes.tolist(), desc="patterns"))
        for pattern in _choose(has, positions == position, min_support, max_length)
    ]
    return counted(rules, table, labels, table.width if table.names is None else None)


def _choose(has: np.ndarray, inside: np.ndarray, min_support: float, max_length: int) -> list[tuple[int, ...]]:
    """Choose patterns (tuples of items) of the points `inside` greedily.

    These are several rules that cover the points together, chosen among all frequent conjunctions;
    :func:`neonxc.trees.one_rule.best_rule` finds the one rule that is the best leaf of small trees.

    Priorities are updated lazily, because they can only decrease.
    """
    members = has[inside]
    covered = np.zeros(len(members), dtype=bool)
    precision = cache(lambda pattern: members[:, pattern].all(1).sum() / has[:, pattern].all(1).sum())
    # The initial priorities are bounds, for a precision of 1
    heap = [(-count, len(pattern), pattern) for pattern, count in frequent(members, min_support, max_length)]
    heapq.heapify(heap)
    chosen: list[tuple[int, ...]] = []
    while heap:
        *_, pattern = heapq.heappop(heap)
        met = members[:, pattern].all(1)
        new = (met & ~covered).sum()
        if new / len(members) < min_support:
            continue
        now = -new * precision(pattern), len(pattern), pattern
        if heap and now > heap[0]:
            heapq.heappush(heap, now)
        else:
            chosen.append(pattern)
            covered |= met
    general = [pattern for pattern in chosen if not any(set(other) < set(pattern) for other in chosen)]
    return sorted(general, key=lambda pattern: (-members[:, pattern].all(1).sum(), pattern))


def frequent(members: np.ndarray, min_support: float, max_length: int) -> Iterator[tuple[tuple[int, ...], int]]:
    """Yield the conjunctions of items that at least a share of points has, and their numbers of points.

    Parameters
    ----------
    members : bool ndarray [n, items]
        Which points have which items.
    min_support : float in (0, 1]
        Minimum share of points.
    max_length : int
        Maximum number of items of a conjunction.
    """

    def extended(pattern: tuple[int, ...], rows: np.ndarray, items: np.ndarray) -> Iterator[Any]:
        """Extend a pattern by `items`, which come after its own; `rows` are the points that have it."""
        counts = rows.sum(0)
        usual = np.flatnonzero(counts / len(members) >= min_support)  # no other item is in a longer pattern
        rows = rows[:, usual]
        items = items[usual]
        for at, count in enumerate(counts[usual].tolist()):
            longer = (*pattern, int(items[at]))
            yield longer, count
            if len(longer) < max_length:
                yield from extended(longer, rows[rows[:, at], at + 1 :], items[at + 1 :])

    return extended((), members, np.arange(members.shape[1]))
