"""Comparison of two clusterings of the same rows, beside refits of the first: what was kept, split or merged.

With n_ij rows in cluster i of a and cluster j of b, and the sums n_i. and n_.j,

    of_a[i, j] = n_ij / n_i.                     fraction of cluster i that is in j
    of_b[i, j] = n_ij / n_.j                     fraction of cluster j that is in i
    jaccard[i, j] = n_ij / (n_i. + n_.j - n_ij)
    match                                        one-to-one, by the largest sum of Jaccard indices

The kinds are those of MONIC (:func:`compare_clusterings`), with its thresholds tau = HALF and tau_split = QUARTER.
The first that applies to cluster i of a is its kind:

    split     two or more j have of_a[i, j] >= QUARTER and of_b[i, j] >= HALF
    merged    the largest of_a[i, j] is at least HALF, and j is not the match of i, or two or more clusters i' have
              of_b[i', j] >= QUARTER and of_a[i', j] >= HALF
    kept      the Jaccard index with its match is at least HALF
    split     two or more j have of_b[i, j] >= HALF, and sum of_a[i, j] over them is at least HALF
    merged    the largest of_a[i, j] is at least HALF, and two or more i' have of_a[i', j] >= HALF, whose sum of
              of_b[i', j] is at least HALF
    died      all else

The second split and merge are not in MONIC: of a cluster that falls into five equal parts, none has a QUARTER.

Clusters of b are born if no cluster is split into them, merged into them or kept as them. Noise is no cluster, but
its rows count in n_i. and n_.j.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import linear_sum_assignment
from sklearn.base import clone
from sklearn.metrics import adjusted_mutual_info_score, adjusted_rand_score
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from neonxc.attribution.contrasts import some_of
from neonxc.clusterings.labels import predicts
from neonxc.clusterings.neuralize_arguments import fitted_names, points_of
from neonxc.clusterings.readers import is_precomputed
from neonxc.common.arguments import check_whole
from neonxc.common.progress import progress_bar
from neonxc.common.searches import unwrapped
from neonxc.common.types import Label, RandomState, TableLike
from neonxc.data.frames import in_order_of, reads_tables
from neonxc.data.inputs import as_array
from neonxc.data.labels import NOISE, label_array
from neonxc.data.table import Table
from neonxc.evaluation.choice import seed_names
from neonxc.evaluation.clusterings_compared import LABELS_ALONE, NO_SEEDS, PRECOMPUTED, ClusteringComparison
from neonxc.evaluation.exchanges import Correspondence, Explained
from neonxc.evaluation.restarts import KEPT, has_random_steps, restarted
from neonxc.evaluation.uses import compared_uses
from neonxc.network import NeuralizedClustering
from neonxc.pipelines.opened import opened

USE_ROWS = 600
"""Rows from which the use of the inputs is estimated."""
HALF = 0.5
"""tau of MONIC."""
QUARTER = 0.25
"""tau_split of MONIC."""


@reads_tables
def compare_clusterings(
    a: object,
    b: object,
    X: TableLike,
    *,
    refits: int | Sequence[object] = 5,
    random_state: RandomState = None,
) -> ClusteringComparison:
    """Compare two clusterings of the same rows, beside refits of the first one with other seeds.

    Whether a new clustering differs from the old one only shows in comparison with what the seed alone changes: a
    is fitted again to X a few times. What became of each cluster needs no more than labels. If a or b is a model,
    the result also tells which inputs (columns, words, channels) one of them uses more than the other, and why
    rows are in other clusters.

    Parameters
    ----------
    a, b : estimator, Pipeline, NeuralizedClustering, tree or array-like [N]
        Two fitted models, or labels of the rows; -1 is noise. Models without `predict` need to be fitted to X.
        Clusterings of features are passed as networks, ``neonxc.neuralize(model, X, features)``; their reasons are
        those of the inputs, which both networks share.
    X : array, sparse matrix, frame, tensor, sequence of str, or path
        The N rows, as the models take them. If models were fitted on different columns, a data frame with all.
    refits : int or sequence of models
        Number of refits of a; 0 for none. Networks of features can't be fitted again: pass a sequence of networks
        that were made like a with other seeds.
    random_state : int or RandomState, optional
        Seed of the seeds.

    Returns
    -------
    ClusteringComparison

    Raises
    ------
    ValueError
        If labels do not fit X, or the number of refits is invalid.

    Notes
    -----
    Clusters are matched by the Hungarian method, which maximises the sum of their Jaccard indices. The kinds
    follow MONIC [1]_, with its thresholds of a half and a quarter. A cluster of a is *split* if two or more
    clusters of b have at least a quarter of its rows each, and come at least by half from it. It is *merged* in
    the reverse case, or if at least half of its rows are in a cluster that is not its match. It is *kept* if it
    has a match with a Jaccard index of at least a half. Beyond MONIC, it is also split if clusters of b that come
    at least by half from it have at least half of its rows together, however many they are, and merged in the
    reverse case: a cluster may fall into five equal parts. Else it *died*. Clusters of b without any of these
    relations are *born*.

    The printed text calls the difference larger than that between refits if its ARI is below that of every refit
    and also more than two standard deviations below their mean. This is so for up to 12% of mere refits, which are
    another solution of the same objective. A k-means is therefore started from the means of the clusters of b,
    too: if it keeps them, the difference is one of the seed, or of the number of clusters.

    The use of an input is its share of the relevance of the rows for their own clusters. It has changed if its use
    in b is away from that in restarts of a, and of its refits, from the clusters of b: by more than 0.01, and by
    more than six of their standard deviations. Of clusterers that can't be started from clusters, it is compared
    with a and its refits instead, and only if b differs by more than these do. Rows that went to another cluster
    are explained *by the change* if an input with a changed use is among their first three reasons, and else *as
    between refits*: most exchanges of rows are those of another seed.

    To explain which rows changed cluster between two versions of the data, and why, assign both by one model:
    :func:`neonxc.moves`.

    References
    ----------
    .. [1] M. Spiliopoulou, I. Ntoutsi, Y. Theodoridis, R. Schult, "MONIC: modeling and monitoring cluster
       transitions", KDD 2006.

    Examples
    --------
    >>> import neonxc
    >>> from sklearn.cluster import KMeans
    >>> from sklearn.datasets import load_iris
    >>> X = load_iris().data
    >>> a, b = (KMeans(k, n_init=10, random_state=0).fit(X) for k in (3, 4))
    >>> neonxc.compare_clusterings(a, b, X, random_state=0).to_frame()["kind"].tolist()
    ['split', 'kept', 'kept']
    """
    if isinstance(refits, Sequence):
        refits = [unwrapped(model) for model in refits]
    else:
        check_whole("refits", refits, least=0)
    a = unwrapped(a)
    b = unwrapped(b)
    # only a model says how rows are read; if one of both is an array of labels, the other one may say it
    rows_a = points_of(a if _is_model(a) else b, X)
    rows_b = points_of(b if _is_model(b) else a, X)
    labels_a = _labels(a, rows_a, "a")
    labels_b = _labels(b, rows_b, "b")
    table = pd.crosstab(labels_a, labels_b).rename_axis(index="a", columns="b")
    ari, ami = _indices(labels_a, labels_b)

    reason = _why_no_refits(a, refits)
    models = []
    if not reason:
        models = [*_refitted(a, rows_a, refits, random_state)]
    of_refits = None
    jaccard = None
    if models:
        labels_of_refits = [_labels(model, rows_a, "a refit of a") for model in models]
        indices = [_indices(labels_a, labels) for labels in labels_of_refits]
        of_refits = pd.DataFrame(indices, columns=["ARI", "AMI"])
        matchings = [matched(pd.crosstab(labels_a, labels)) for labels in labels_of_refits]
        jaccard = pd.concat([matching.jaccard for matching in matchings], axis=1).mean(axis=1)

    clusters = _clusters(table, jaccard)
    matches = matched(table).clusters
    comparison = ClusteringComparison(table, clusters, ari, ami, of_refits, reason, _matches=matches)
    if not _is_model(a) and not _is_model(b):
        return replace(comparison, remark=LABELS_ALONE)
    if is_precomputed(a) or is_precomputed(b):
        return replace(comparison, remark=PRECOMPUTED)
    try:
        explained_a = Explained(_network(a, rows_a, labels_a), rows_a)
        explained_b = Explained(_network(b, rows_b, labels_b), rows_b)
        explained_refits = [Explained(_network(model, rows_a, labels_a), rows_a) for model in models]
        restarts = [*_restarted(a, b, models, rows_a, labels_a, labels_b)]
    except (TypeError, ValueError) as error:  # of a model that has no network, for a reason that its text tells
        return replace(comparison, remark=f"Why rows changed is not known: {error}")
    if restarts:
        restart_ari, _ = _indices(labels_b, as_array(restarts[0].net.predict(rows_a)))
        comparison = replace(comparison, restart=restart_ari)
    return _with_reasons(comparison, explained_a, explained_b, explained_refits, restarts, (labels_a, labels_b))


def _with_reasons(
    comparison: ClusteringComparison,
    a: Explained,
    b: Explained,
    refits: list[Explained],
    restarts: list[Explained],
    labels: tuple[np.ndarray, np.ndarray],
) -> ClusteringComparison:
    """Add to a comparison which inputs the models use, and why rows are in other clusters."""
    sample = some_of(np.arange(len(a.rows)), USE_ROWS)
    use_a = a.use(sample)
    use_b = b.use(sample)
    uses = compared_uses(use_a, use_b, [x.use(sample) for x in refits], [x.use(sample) for x in restarts])
    comparison = replace(comparison, uses=uses)
    changed = None if comparison.changed is None else comparison.changed.index
    ids = np.arange(len(a.rows)) if a.rows.index is None else a.rows.index.to_numpy()
    pair = Correspondence(a, b, *labels, comparison.table, comparison._matches, ids)
    remark = NO_SEEDS if changed is None else ""
    return replace(comparison, remark=remark, _exchanges=pair.exchanges(changed), _themes=pair.themes())


def _restarted(
    a: object, b: object, refits: list[object], rows: Table, labels_a: np.ndarray, labels_b: np.ndarray
) -> Iterator[Explained]:
    """Yield a and its refits after a start from the clusters of b, if this tells b from another seed of a."""
    if isinstance(a, NeuralizedClustering) and not refits and getattr(b, "features", None) is not a.features:
        return  # encoders that were trained with other seeds differ as well
    own = restarted(a, rows, labels_a)
    if own is None or _indices(labels_a, _labels(own, rows, "a restart of a"))[0] < KEPT:
        return
    models = [a, *refits] if has_random_steps(a) or isinstance(a, NeuralizedClustering) else [a]
    for model in models:
        again = restarted(model, rows, labels_b)
        yield Explained(_network(again, rows, labels_b), rows)


def _network(model: object, rows: Table, labels: np.ndarray) -> NeuralizedClustering:
    """Return a model as a network, or a surrogate of labels."""
    from neonxc.convert import neuralize  # depends on this package

    if isinstance(model, NeuralizedClustering):
        return model
    if _is_model(model):
        return neuralize(model, rows)
    return neuralize(X=rows, labels=labels)


def _is_model(model: object) -> bool:
    """Whether this is a model, and not labels."""
    return hasattr(model, "fit") or hasattr(model, "predict")


def _why_no_refits(model: object, refits: int | Sequence[object]) -> str:
    """Say why a model is not fitted again; "" if it can be."""
    if not refits:
        return "no refits were asked for"
    if isinstance(refits, Sequence):
        return ""
    if is_precomputed(model):
        return "a is of a precomputed matrix, and can't be fitted to X"
    seeds = _seeds(model)
    if seeds is None:
        return "pass a clusterer, which can be fitted again"
    if not seeds:
        return f"{type(model).__name__} has no seed"
    return ""


def _refitted(
    model: Any, rows: Table, refits: int | Sequence[object], random_state: RandomState
) -> Iterator[object]:
    """Yield refits of a model with other seeds, or those that were given."""
    if isinstance(refits, Sequence):
        yield from refits
        return
    generator = check_random_state(random_state)
    rows = rows.ordered(fitted_names(model))
    for _ in progress_bar(range(refits), desc="refits"):
        parameters = {name: generator.randint(2**31 - 1) for name in _seeds(model) or ()}
        yield clone(model).set_params(**parameters).fit(rows.for_sklearn)


def _labels(model: Any, rows: Table, name: str) -> np.ndarray:
    """Return the labels [n] of the rows, from a model or from labels."""
    if predicts(model):
        names = fitted_names(model)
        if names is not None:
            rows = rows.by_name(names)
        inputs = rows if isinstance(model, NeuralizedClustering) else rows.for_sklearn
        labels = label_array(model.predict(inputs), name=name)
    else:
        _, final = opened(model)
        if hasattr(final, "fit"):
            check_is_fitted(final)
        stored = getattr(final, "labels_", in_order_of(model, rows, name))
        labels = label_array(stored, name=name)
    if labels.shape != (len(rows),):
        raise ValueError(f"{name} needs one label per row of X, {len(rows)}, got shape {list(labels.shape)}")
    if (labels == NOISE).all():
        raise ValueError(f"{name} has no clusters: all rows are noise")
    return labels


def _seeds(model: object) -> list[str] | None:
    """Return the names of the parameters that hold seeds; None if the model can't be fitted again."""
    if not hasattr(model, "fit") or not hasattr(model, "get_params"):
        return None
    if getattr(model, "_has_passed_reference", False):  # without its labels a tree would be fitted to k-means
        return None
    return seed_names(model)


def _indices(labels_a: np.ndarray, labels_b: np.ndarray) -> tuple[float, float]:
    """Return the adjusted Rand index and the adjusted mutual information of two clusterings."""
    # as numbers: names and the number of noise have no common order, in which scikit-learn would sort them
    codes_a, _ = pd.factorize(labels_a)
    codes_b, _ = pd.factorize(labels_b)
    ari = adjusted_rand_score(codes_a, codes_b)
    ami = adjusted_mutual_info_score(codes_a, codes_b)
    return float(ari), float(ami)


def _without_noise(table: pd.DataFrame) -> pd.DataFrame:
    """Drop the row and the column of noise."""
    return table.drop(index=NOISE, columns=NOISE, errors="ignore")


class Matching(NamedTuple):
    """A one-to-one matching of the clusters of a with those of b."""

    clusters: dict[Label, Label]  # the matched cluster of b of each cluster of a that has one
    jaccard: pd.Series  # the Jaccard index with the match by cluster of a, 0 without one


def matched(table: pd.DataFrame) -> Matching:
    """Match the clusters of a with those of b by the Hungarian method; noise is matched with nothing."""
    union = table.rsub(table.sum(axis=1), axis=0) + table.sum()  # n_i. - n_ij + n_.j
    jaccard = _without_noise(table / union)
    rows, columns = linear_sum_assignment(jaccard, maximize=True)
    indices = pd.Series(jaccard.to_numpy()[rows, columns], jaccard.index[rows])
    pairs = zip(indices.index, jaccard.columns[columns], indices, strict=True)
    clusters = {a: b for a, b, index in pairs if index > 0}
    return Matching(clusters, indices.reindex(jaccard.index, fill_value=0.0))


def _is_union(of_b: pd.DataFrame, is_whole: pd.DataFrame, label: Label) -> bool:
    """Whether at least half of a cluster of b is from the clusters of a that are mostly in it."""
    return bool(of_b.loc[is_whole[label], label].sum() >= HALF)


def _clusters(table: pd.DataFrame, jaccard_of_refits: pd.Series | None) -> pd.DataFrame:
    """Return the kinds of all clusters, as defined on top of this module."""
    matching = matched(table)
    of_a = _without_noise(table.div(table.sum(axis=1), axis=0))
    of_b = _without_noise(table / table.sum())
    is_part = (of_a >= QUARTER) & (of_b >= HALF)  # j is a part that i is split into
    is_source = (of_b >= QUARTER) & (of_a >= HALF)  # i is one that may be merged into j
    is_piece = of_b >= HALF  # j is mostly from i
    is_whole = of_a >= HALF  # i is mostly in j

    rows = []
    related = set()
    for cluster, fractions in of_a.iterrows():
        parts = [*is_part.columns[is_part.loc[cluster]]]
        match = matching.clusters.get(cluster)
        jaccard = matching.jaccard[cluster]
        largest = fractions.idxmax()
        is_absorbed = fractions[largest] >= HALF and (match != largest or is_source[largest].sum() > 1)
        if len(parts) > 1:
            kind = "split"
            partners = parts
        elif is_absorbed:
            kind = "merged"
            partners = [largest]
        elif jaccard >= HALF:
            kind = "kept"
            partners = [match]
        elif is_piece.loc[cluster].sum() > 1 and fractions[is_piece.loc[cluster]].sum() >= HALF:
            kind = "split"
            partners = [*is_piece.columns[is_piece.loc[cluster]]]
        elif is_whole[largest].sum() > 1 and is_whole.loc[cluster, largest] and _is_union(of_b, is_whole, largest):
            kind = "merged"
            partners = [largest]
        else:
            kind = "died"
            partners = [largest]
        if kind != "died":
            related.update(partners)
        n_rows = int(table.loc[cluster].sum())
        rows.append(("a", cluster, n_rows, kind, partners, jaccard))

    for cluster in of_b.columns.difference([*related], sort=False):
        n_rows = int(table[cluster].sum())
        partners = [of_b[cluster].idxmax()]
        rows.append(("b", cluster, n_rows, "born", partners, np.nan))

    columns = ["model", "cluster", "rows", "kind", "partners", "jaccard"]
    clusters = pd.DataFrame(rows, columns=columns).set_index(["model", "cluster"]).assign(refits=np.nan)
    if jaccard_of_refits is not None:
        of_a = [jaccard_of_refits[label] if model == "a" else np.nan for model, label in clusters.index]
        clusters["refits"] = of_a
    return clusters
