"""The function :func:`neonxc.evaluation.validate_names`: a blind test of names from anywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from neonxc.common.types import ArrayLike, Label, TableLike
from neonxc.common.warnings import warn
from neonxc.data.frames import in_order_of, is_texts_file, read_texts
from neonxc.data.labels import as_labels
from neonxc.data.table import Table
from neonxc.data.weights import weights_of
from neonxc.naming.blind_test import blind_test, ceilings, divide
from neonxc.naming.cluster_names import ClusterNames
from neonxc.naming.judges import Judge, UserJudge, as_judge
from neonxc.naming.naming import second_accuracy
from neonxc.naming.statement_judge import Name


def validate_names(
    names: Sequence[Name] | Mapping[Label, Name] | ClusterNames,
    X: TableLike,
    labels: ArrayLike,
    judge: UserJudge | None = None,
    *,
    sample_weight: ArrayLike | None = None,
) -> ClusterNames:
    """Test whether rows that are sorted by the names of clusters alone come to their own clusters.

    The names may be from anywhere: from a colleague, a language model, or :func:`neonxc.name_clusters` on other
    rows. A name passes if the rows of its cluster choose it more often than any other name, and if those who
    choose it are its own, both by more than a standard error; clusters weigh the same.

    Parameters
    ----------
    names : sequence of K names, mapping of labels to names, or ClusterNames
        A name is a text, or a list of statements. A sequence is in the order of the sorted labels. Names about
        tables need statements, such as ``"high proline, work is Private"``, unless there is a `judge`.
    X : table or texts [N], or path
        Rows. Names should not have been chosen on them.
    labels : array-like [N]
        Their clusters; a series goes by its index. Noise (-1) is left out.
    judge : callable, optional
        As for :func:`neonxc.name_clusters`.
    sample_weight : array-like [N], optional
        Weights >= 0 of the rows, as for :func:`neonxc.name_clusters`.

    Returns
    -------
    ClusterNames
        Its ceiling is measured on two halves of the rows, each with the means of the other one.

    Raises
    ------
    ValueError
        There are less than two clusters, names and clusters do not match, no name says anything about a row, X is
        neither a table nor texts and there is no judge, or labels or weights are invalid.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from neonxc.evaluation import validate_names
    >>> iris = load_iris(as_frame=True)
    >>> names = ["low petal length (cm)", "medium petal length (cm)", "high petal length (cm)"]
    >>> validate_names(names, iris.data, iris.target).passed
    {0: True, 1: True, 2: True}
    >>> validate_names(names[::-1], iris.data, iris.target).passed
    {0: False, 1: True, 2: False}
    """
    if is_texts_file(X):
        X = read_texts(X)  # type: ignore[arg-type]  # it is a path
    table = Table.read(X)
    weight = weights_of(sample_weight, table)
    columns, classes, is_clustered = as_labels(in_order_of(labels, table), len(table), torch.device("cpu"))
    groups = np.where(is_clustered.numpy(), columns.numpy(), -1)
    clusters: list[Label] = classes.tolist()
    read = _read(names, clusters)
    sorting = as_judge(judge, table, len(clusters), weight=weight)

    is_tested = groups >= 0
    if weight is not None:
        is_tested &= weight > 0
    tested = np.flatnonzero(is_tested)
    rows = table.take(tested)
    of_rows = None if weight is None else weight[tested]
    scores = sorting.scores(read, rows)
    if np.isnan(scores).all():
        advice = "names of a table need statements about its columns, such as 'high age', or judge="
        raise ValueError(f"names say nothing about the rows: {[*map(_text, read)][:3]}; {advice}")
    unread = [_text(name) for name, is_unread in zip(read, np.isnan(scores).all(axis=0), strict=True) if is_unread]
    if unread:
        warn(f"no row is sorted by names that the judge can't read: {unread[:3]}")
    test = blind_test(scores, groups[tested], of_rows)
    ceiling = np.full(len(clusters), np.nan)
    if sorting.has_space:
        ceiling = _ceiling(sorting, rows, groups[tested], len(clusters))
    second = second_accuracy(read, sorting, rows, groups[tested], of_rows, table)
    return ClusterNames(clusters, read, test, ceiling, second)


def _read(
    names: Sequence[Name] | Mapping[Label, Name] | ClusterNames, clusters: list[Label]
) -> list[tuple[str, ...]]:
    """Return the names in the order of the clusters, each as statements."""
    if len(clusters) < 2:
        raise ValueError(f"validate_names needs rows in at least 2 clusters, got {len(clusters)}")
    if isinstance(names, ClusterNames):
        names = dict(zip(names.clusters, names.statements, strict=True))
    if isinstance(names, str):
        raise ValueError("names needs one name per cluster, got a single str")
    if isinstance(names, Mapping):
        missing = [label for label in clusters if label not in names]
        if missing:
            raise ValueError(f"names has no name of the clusters {missing[:10]}")
        in_order = [names[label] for label in clusters]
    else:
        in_order = [*names]
        if len(in_order) != len(clusters):
            raise ValueError(f"names needs one name per cluster, {len(clusters)}, got {len(in_order)}")
    return [(name,) if isinstance(name, str) else tuple(name) for name in in_order]


def _text(name: tuple[str, ...]) -> str:
    return ", ".join(name)


def _ceiling(judge: Judge, rows: Table, groups: np.ndarray, k: int) -> np.ndarray:
    """Measure the ceilings [k] on two halves of the rows, each with the means of the other one."""
    points = judge.space(rows)
    halves = divide(groups, k, np.random.RandomState(0), held_out=0.5)
    accuracies = []
    for known, tested in (halves, halves[::-1]):
        accuracies.append(ceilings(points[known], groups[known], points[tested], groups[tested], k))
    first, second = accuracies
    # a cluster of one row is in one half only
    return np.where(np.isnan(first), second, np.where(np.isnan(second), first, (first + second) / 2))
