"""Frequent patterns: values, and conjunctions of values, that many points of a cluster have in common.

An item is a value of a column: a category, a bin of numbers, or a missing value. A pattern is a conjunction of
items of different columns. With support(p) = (points of the cluster that have p) / (points of the cluster),

    1. List the patterns with support(p) >= min_support, which have only items of the same support (Apriori).
    2. Choose, as long as one covers a further fraction min_support of the cluster, the pattern of largest
       precision(p) times (points of the cluster that p covers, and no chosen pattern),
       where precision(p) = (points of the cluster that have p) / (points, with noise, that have p).
    3. Leave out a chosen pattern whose items include all items of another one.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TypeAlias

import numpy as np
import torch

from neonxc.common.arguments import check_whole
from neonxc.common.progress import progress_bar
from neonxc.common.types import ArrayLike, TableLike
from neonxc.data.frames import in_order_of
from neonxc.data.inputs import as_array
from neonxc.data.labels import as_labels, warn_of_labels
from neonxc.data.table import Table
from neonxc.rules import Rules
from neonxc.rules.collection import counted

from .values_of_interest import column_positions, fit_coding, series_of

Pattern: TypeAlias = tuple[int, ...]
"""Positions of the items of a conjunction."""


def patterns(
    X: TableLike,
    labels: ArrayLike,
    *,
    columns: str | int | Sequence[str | int] | None = None,
    min_support: float = 0.2,
    max_length: int = 2,
    n_bins: int = 4,
) -> Rules:
    """Describe every cluster by frequent patterns, combined by "or".

    A pattern is a value of a column, or a conjunction of values such as ``sex is Male and age in [38, 90]``, that
    at least a fraction `min_support` of the cluster's points has. Patterns are chosen greedily: the next pattern
    maximizes its precision, with noise, times the number of the cluster's points that it covers and no chosen
    pattern covers. The selection ends when no pattern covers a further fraction `min_support` of the cluster. For
    a single column, the result consists of all its frequent values.

    Parameters
    ----------
    X : data frame, array or tensor [n, d]
        Categories and numbers. A missing value is a category of its own.
    labels : array-like [n]
        Labels of any clustering. Points of label -1 (noise) are in no cluster and counted apart.
    columns : name, number or sequence of these, optional
        Columns that are used in patterns, such as the features of interest. Default: all columns.
    min_support : float in (0, 1]
        Minimum fraction of a cluster's points that have a pattern.
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
        warn_of_labels(table, positions)
    used_columns = range(table.width) if columns is None else column_positions(table, columns, "columns")
    # Values of columns that are frequent in a cluster, and the points that have them, [n, items]
    items = []
    masks = []
    sizes = np.bincount(positions[clustered])
    k = len(sizes)
    for column in used_columns:
        values = series_of(table, column)
        coding, conditions = fit_coding(values, n_bins, column)
        codes = coding.codes(values)
        pairs = (codes * k + positions)[clustered]
        counts = np.bincount(pairs, minlength=len(conditions) * k).reshape(-1, k)
        frequent_codes = np.flatnonzero((counts / sizes >= min_support).any(1))
        items += [conditions[code] for code in frequent_codes]
        masks.append(codes[:, None] == frequent_codes)
    has_item = np.concatenate(masks, axis=1)

    rules = []
    for position, label in enumerate(progress_bar(classes.tolist(), desc="patterns")):
        for pattern in _choose(has_item, positions == position, min_support, max_length):
            conjunction = tuple(items[item] for item in pattern)
            rules.append((label, conjunction))
    n_columns = table.width if table.names is None else None
    return counted(rules, table, labels, n_columns)


def _choose(has_item: np.ndarray, inside: np.ndarray, min_support: float, max_length: int) -> list[Pattern]:
    """Choose patterns of the points `inside` greedily.

    These are several rules that cover the points together, chosen among all frequent conjunctions;
    :func:`neonxc.trees.one_rule.best_rule` finds the one rule that is the best leaf of small trees.

    Priorities are updated lazily, because they can only decrease.
    """
    members = has_item[inside]

    @cache
    def precision(pattern: Pattern) -> float:
        n_inside = members[:, pattern].all(1).sum()
        return n_inside / has_item[:, pattern].all(1).sum()

    # The heap is sorted by minus the priority, then short patterns come first. The initial priorities are bounds,
    # for a precision of 1
    heap = [(-count, len(pattern), pattern) for pattern, count in frequent(members, min_support, max_length)]
    heapq.heapify(heap)
    covered = np.zeros(len(members), dtype=bool)
    chosen: list[Pattern] = []
    while heap:
        *_, pattern = heapq.heappop(heap)
        has_pattern = members[:, pattern].all(1)
        n_new = (has_pattern & ~covered).sum()
        if n_new / len(members) < min_support:
            continue
        updated = (-n_new * precision(pattern), len(pattern), pattern)
        if heap and updated > heap[0]:
            heapq.heappush(heap, updated)
        else:
            chosen.append(pattern)
            covered |= has_pattern

    # A pattern that holds all items of another one covers no point that this does not cover
    general = [pattern for pattern in chosen if not any(set(shorter) < set(pattern) for shorter in chosen)]
    return sorted(general, key=lambda pattern: (-members[:, pattern].all(1).sum(), pattern))


def frequent(members: np.ndarray, min_support: float, max_length: int) -> Iterator[tuple[Pattern, int]]:
    """Yield the conjunctions of items that at least a fraction of points has, and their numbers of points.

    Parameters
    ----------
    members : bool ndarray [n, items]
        Which points have which items.
    min_support : float in (0, 1]
        Minimum fraction of points.
    max_length : int
        Maximum number of items of a conjunction.
    """

    def extensions(pattern: Pattern, rows: np.ndarray, items: np.ndarray) -> Iterator[tuple[Pattern, int]]:
        """Extend a pattern, which the points `rows` have, by one or more of `items`."""
        counts = rows.sum(0)
        # An item that too few of these points have is in no longer pattern
        kept = np.flatnonzero(counts / len(members) >= min_support)
        rows = rows[:, kept]
        items = items[kept]
        for position, count in enumerate(counts[kept].tolist()):
            longer = (*pattern, int(items[position]))
            yield longer, count
            if len(longer) < max_length:
                # by later items only, so that every set of items comes once
                having = rows[rows[:, position], position + 1 :]
                yield from extensions(longer, having, items[position + 1 :])

    return extensions((), members, np.arange(members.shape[1]))
