"""The function :func:`neonxc.layers`.

1. The layers are read as forks (:mod:`neonxc.hierarchy.layer_arguments`), and X as columns
   (:mod:`neonxc.hierarchy.rows`).
2. Each fork gets a verdict (:mod:`neonxc.hierarchy.verdicts`), rules (:mod:`neonxc.hierarchy.split_rules`), a
   contrast (:mod:`neonxc.hierarchy.reasons`) and names, without the statements of the names of its ancestors.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from neonxc.clusterings.neuralize_arguments import points_of
from neonxc.common.arguments import check_whole, kind_of
from neonxc.common.progress import progress_bar
from neonxc.common.types import RandomState, TableLike
from neonxc.data.frames import as_pandas, is_path, is_texts_file, read_texts, with_cells
from neonxc.data.table import Table
from neonxc.hierarchy.forks import Fork, Hierarchy
from neonxc.hierarchy.layer_arguments import Reading, are_names, named_layers, read_layers
from neonxc.hierarchy.reasons import reason_of
from neonxc.hierarchy.result import Layers, Split
from neonxc.hierarchy.rows import SplitRows
from neonxc.hierarchy.split_rules import HELD_OUT, in_columns, rules_of
from neonxc.hierarchy.verdicts import verdict_of
from neonxc.naming.cluster_names import ClusterNames
from neonxc.naming.naming import Rows, name_groups


def layers(
    given: object = None,
    X: TableLike | None = None,
    *,
    linkage: object = None,
    features: TableLike | None = None,
    splits: int = 9,
    least: int = 12,
    random_state: RandomState = 0,
) -> Layers:
    """Explain why clusters split, and what tells their parts apart, in clusterings of several resolutions.

    Parameters
    ----------
    given : labels, list, estimator or Pipeline
        One of the following:

        - labels [N, L] or [L, N] of L layers, nested or crossing, where -1 and missing values are noise; a data
          frame with a column for each layer; or a list of labels (``cluster_layers_`` of EVoC and Toponymy);
        - a list of fitted models, such as k-means with several numbers of clusters;
        - the names of columns with labels, of X or of the ``obs`` of an AnnData:
          ``layers(["leiden_0.2", "leiden_1"], adata)``;
        - a fitted BisectingKMeans, AgglomerativeClustering, or HDBSCAN of scikit-learn or the package hdbscan; it
          may be the last step of a Pipeline.
    X : table, texts or AnnData [N, ...], or path
        The rows, which reasons, rules and names are about. Columns of a data frame are read as
        :func:`~neonxc.data.preparation.prepare` selects them.
    linkage : array [N - 1, 4], optional
        A linkage matrix of SciPy, in place of `given`.
    features : table [N, p], optional
        The columns that were clustered, if these are not those of X, such as embeddings of texts.
    splits : int
        Maximum number of splits of a dendrogram, of HDBSCAN or of bisecting k-means, the highest first. Layers of
        labels and of models have all of theirs.
    least : int
        Minimum number of rows of both sides of a split in a dendrogram; HDBSCAN has its own ``min_cluster_size``.
    random_state : int, RandomState or None
        Seed of the rows that are held out, of names and of verdicts.

    Returns
    -------
    Layers

    Raises
    ------
    TypeError
        Nothing is given, both `given` and `linkage` are, or a model has no hierarchy.
    ValueError
        What is given does not fit X; the shape of labels is ambiguous; a linkage is not monotone, as that of
        centroid and median linkage may be; no cluster splits; or X is neither a table nor texts.

    Notes
    -----
    A fine cluster belongs to the coarse one that has most of its rows; ``kept`` of a split says how many rows of
    the parent are in one of its parts. A cluster with a single part is no split.

    The reason is the contrast of the two largest parts. It is exact for layers of models with an exact network
    (k-means, mixtures, DBSCAN), bisecting k-means, and HDBSCAN with Euclidean distances. For other clusterings it
    is of a surrogate of this split alone, whose fidelity is on held-out rows. Rules are found on three quarters of
    the rows, and their accuracy is that on the other quarter; it is to be read beside ``base``, the fraction of
    the largest part.

    Splits of density clusterings are judged with refits, since these find gaps that are there by chance: pass the
    fitted model, and not its labels. A linkage is recognised as the single one by its heights. Verdicts are at a
    level of 0.05 for each split.

    Examples
    --------
    >>> import neonxc
    >>> from scipy.cluster.hierarchy import linkage
    >>> from sklearn.datasets import load_iris
    >>> X = load_iris(as_frame=True).data
    >>> found = neonxc.layers(None, X, linkage=linkage(X, "ward"), splits=2)
    >>> [(split.parent, split.verdict) for split in found.splits]
    [('all', 'separated'), ('1', 'slices')]
    >>> print(found.splits[0].rules[0])
    0: petal length (cm) ≤ 3 (38 samples, 0 mistakes)
    """
    check_whole("splits", splits)
    check_whole("least", least)
    if X is None:
        raise TypeError("layers needs the rows: layers(given, X)")
    if hasattr(X, "fit") or hasattr(X, "predict"):
        raise TypeError(f"X needs the rows, got {kind_of(X)}; the rows come second: layers(model, X)")
    generator = check_random_state(random_state)
    inputs = _read_rows(given, X)
    table = inputs.table
    clustered = None if features is None else Table.read(features, name="features")
    if clustered is not None and len(clustered) != len(table):
        raise ValueError(f"features needs the {len(table)} rows of X, got {len(clustered)}")
    reading = Reading(table, clustered, splits, least)
    hierarchy, repeating = read_layers(inputs.given, linkage, reading)
    if not hierarchy.forks:
        raise ValueError(_no_split(linkage, least))
    rows = SplitRows(table, inputs.columns, clustered, repeating)
    return _explained(hierarchy, rows, generator)


class _Inputs(NamedTuple):
    """The arguments, with names of columns replaced by the columns."""

    given: Any
    table: Table
    columns: list[str] | None  # names of the columns of a table that has none


def _read_rows(given: Any, X: Any) -> _Inputs:
    """Read the rows, and the layers that are among their columns."""
    X = with_cells(X)
    if is_texts_file(X):
        X = read_texts(X)
    columns = None
    if hasattr(X, "var_names"):
        columns = [*map(str, X.var_names)]
    elif is_path(X):
        X = Table.read(X).data
    else:
        X = as_pandas(X, "X")
    if isinstance(given, str):
        given = [given]
    if are_names(given, X):
        given, X = named_layers([*given], X)
    if hasattr(given, "feature_names_in_"):
        table = points_of(given, X)
    else:
        table = Table.read(X)
    return _Inputs(given, table, columns)


def _no_split(linkage: object, least: int) -> str:
    """Say why there is nothing to explain."""
    if linkage is not None:
        return f"no merge of the linkage has two sides of at least {least} rows: pass a smaller least="
    return "no cluster splits: layers need at least one with several clusters"


def _explained(hierarchy: Hierarchy, rows: SplitRows, generator: np.random.RandomState) -> Layers:
    """Explain all forks, those of coarser clusters first."""
    used: dict[str, frozenset[str]] = {}  # the statements of the names of a cluster and of its ancestors
    explained = []
    for fork in progress_bar(hierarchy.forks, desc="splits"):
        excluded = used.get(fork.parent, frozenset())
        split = _split(fork, rows, excluded, generator)
        for child, statements in split.statements().items():
            used[child] = excluded.union(statements)
        explained.append(split)
    return Layers(explained, len(rows.X), hierarchy.n_further, tuple(rows.notes))


def _split(fork: Fork, rows: SplitRows, excluded: frozenset[str], generator: np.random.RandomState) -> Split:
    """Explain one fork."""
    in_part = fork.codes >= 0
    members = fork.rows[in_part]
    codes = fork.codes[in_part]
    verdict = verdict_of(fork, rows, generator)
    tested = rows.tested(members, codes)
    reason = reason_of(fork, rows, tested, generator)
    frame = rows.frame(members, tested)

    rules = None
    has_rows = np.bincount(codes, minlength=len(fork.children)) >= HELD_OUT
    if has_rows.sum() >= 2:
        split_rules = rules_of(frame, codes, fork.children, generator)
        rules = split_rules._replace(rules=in_columns(split_rules.rules, tested, rows.in_texts))
    return Split(
        parent=fork.parent,
        children=fork.children,
        rows=fork.rows,
        codes=fork.codes,
        elsewhere=fork.elsewhere,
        verdict=verdict.text,
        separation=verdict.separation,
        contrast=None if reason is None else reason.contrast,
        fidelity=None if reason is None else reason.fidelity,
        rules=None if rules is None else rules.rules,
        accuracy=float("nan") if rules is None else rules.accuracy,
        base=float("nan") if rules is None else rules.base,
        named=_named(fork, rows, members, codes, frame, excluded, generator),
    )


def _named(
    fork: Fork,
    rows: SplitRows,
    members: np.ndarray,
    codes: np.ndarray,
    frame: Any,
    excluded: frozenset[str],
    generator: np.random.RandomState,
) -> ClusterNames:
    """Name the parts of a fork."""
    columns = [*frame.columns]
    table = Table(frame)
    if rows.in_texts:
        table = rows.X.take(members)
    elif not table.is_mixed:
        table = Table(frame.to_numpy(np.float64))  # columns of arrays are read faster
    return name_groups([*fork.children], Rows(table, codes), columns, excluded=excluded, generator=generator)
