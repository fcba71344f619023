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

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import linear_sum_assignment
from sklearn.base import clone
from sklearn.metrics import adjusted_mutual_info_score, adjusted_rand_score
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import nn

from neonxc.clusterings.labels import predicts
from neonxc.clusterings.neuralize_arguments import fitted_names, points_of
from neonxc.clusterings.readers import is_precomputed
from neonxc.common.arguments import check_whole
from neonxc.common.numbers import plural, text
from neonxc.common.progress import progress_bar
from neonxc.common.result import Result, preformatted
from neonxc.common.searches import unwrapped
from neonxc.common.types import Label, RandomState, TableLike
from neonxc.common.warnings import deprecated
from neonxc.data.frames import in_order_of, reads_tables
from neonxc.data.labels import NOISE, label_array
from neonxc.data.table import Table
from neonxc.evaluation.choice import seed_names
from neonxc.pipelines.opened import opened

DEVIATIONS = 2
"""Standard deviations below the mean of the refits, from which on a difference is larger than theirs."""
HALF = 0.5
"""tau of MONIC."""
QUARTER = 0.25
"""tau_split of MONIC."""
ADVICE = (
    "A refit moves the clusters themselves, so that no column explains the difference; neonxc.moves(net, before, "
    "after) explains which rows move between the clusters of one model."
)


@dataclass(frozen=True, repr=False)
class ClusteringComparison(Result):
    """Result of :func:`compare_clusterings`.

    Attributes
    ----------
    table : DataFrame [clusters of a, clusters of b]
        Number of rows in each pair of clusters; -1 is noise.
    ari, ami : float
        Adjusted Rand index and adjusted mutual information; 1 for equal clusterings, about 0 for independent ones.
    refits : DataFrame [refits, 2] or None
        ARI and AMI of a and each refit of it; None if a can't be fitted again.
    reason : str
        Why there are no refits; "" if there are.
    """

    table: pd.DataFrame
    _clusters: pd.DataFrame
    ari: float
    ami: float
    refits: pd.DataFrame | None
    reason: str = ""

    def to_frame(self) -> pd.DataFrame:
        """Return one row per cluster of a, and per cluster of b without a match.

        Returns
        -------
        DataFrame
            Index levels: ``model`` and ``cluster``. Columns: ``rows``; ``kind``, "kept", "split", "merged", "died"
            or "born"; ``partners``, the clusters of the other model that it goes into or comes from (for died and
            born ones, that with most rows); ``jaccard`` with the matched cluster, 0 to 1; and ``refits``, the mean
            of the same over the refits.
        """
        return self._clusters.copy()

    @property
    def clusters(self) -> pd.DataFrame:
        """The table; deprecated since 0.4.0, use :meth:`to_frame`."""
        deprecated("ClusteringComparison.clusters", "to_frame()")
        return self._clusters

    def __str__(self) -> str:
        return "\n".join([*self._remarks(), *self._changes(), ADVICE])

    def _remarks(self) -> list[str]:
        lines = [f"ARI {text(self.ari, 2)}, AMI {text(self.ami, 2)}"]
        if self.refits is None:
            lines[0] += f"; no refits of a for comparison: {self.reason}"
        else:
            ari = self.refits["ARI"]
            low = text(ari.min(), 2)
            mean = text(ari.mean(), 2)
            high = text(ari.max(), 2)
            lines[0] += f"; {plural(len(ari), 'refit')} of a with other seeds: ARI {mean} ({low} to {high})"
            lines.append(self._relation(ari))
        counts = self._clusters["kind"].value_counts()
        lines.append(", ".join(f"{number} {kind}" for kind, number in counts.items()))
        return lines

    def _changes(self) -> list[str]:
        """Describe what became of every cluster that was not kept."""
        changed = self._clusters[self._clusters["kind"] != "kept"]
        lines = []
        for (model, cluster), row in changed.iterrows():
            mostly = ""
            if row["kind"] in ("born", "died"):
                mostly = "mostly "
            direction = "into" if model == "a" else "from"
            partners = ", ".join(map(str, row["partners"]))
            if row["kind"] == "split":
                partners = f"{len(row['partners'])}: {partners}"
            refits = ""
            if not np.isnan(row["refits"]):
                refits = f"; in refits Jaccard {text(row['refits'], 2)}"
            n_rows = plural(row["rows"], "row")
            lines.append(
                f"    {cluster} of {model} ({n_rows}): {row['kind']} {mostly}{direction} {partners}{refits}"
            )
        return lines

    def _relation(self, ari: pd.Series) -> str:
        """Say in words whether the difference is larger than that between refits."""
        if self.ari >= ari.min():
            return "The difference is within that between refits of a."
        if self.ari < ari.mean() - DEVIATIONS * ari.std():
            return "The difference is larger than that between refits of a."
        return (
            "The difference may be that between refits of a: it is beyond that of each of them, as it is for one "
            f"in {plural(len(ari) + 1, 'refit')} by chance, but it is not an outlier."
        )

    def _repr_html_(self) -> str:
        return f"{preformatted(str(self))}{self.table.to_html()}"


@reads_tables
def compare_clusterings(
    a: object, b: object, X: TableLike, *, refits: int = 5, random_state: RandomState = None
) -> ClusteringComparison:
    """Compare two clusterings of the same rows, beside refits of the first one with other seeds.

    Whether a new clustering differs from the old one only shows in comparison with what the seed alone changes: a
    is fitted again to X a few times.

    Parameters
    ----------
    a, b : estimator, Pipeline, NeuralizedClustering, tree or array-like [N]
        Two fitted models, or labels of the rows; -1 is noise. Models without `predict` need to be fitted to X.
    X : array, sparse matrix, frame, tensor, sequence of str, or path
        The N rows, as the models take them.
    refits : int
        Number of refits of a; 0 for none.
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
    and also more than two standard deviations below their mean. With five refits this is so for 4% to 6% of mere
    refits (k-means of wine and digits); for the first condition alone it would be up to one in six.

    A refit moves the clusters themselves. The difference of two models belongs to no columns of the rows; to
    explain which rows changed cluster, and why, assign both versions of the data by one model:
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
    check_whole("refits", refits, least=0)
    a = unwrapped(a)
    b = unwrapped(b)
    # only a model says how rows are read; if a is an array of labels, b may be one
    a_is_model = hasattr(a, "fit") or hasattr(a, "predict")
    reader = a if a_is_model else b
    rows = points_of(reader, X)
    labels_a = _labels(a, rows, "a")
    labels_b = _labels(b, rows, "b")
    table = pd.crosstab(labels_a, labels_b).rename_axis(index="a", columns="b")
    clusters = _clusters(table)
    ari, ami = _indices(labels_a, labels_b)

    seeds = _seeds(a)
    reason = ""
    if not refits:
        reason = "no refits were asked for"
    elif is_precomputed(a):
        reason = "a is of a precomputed matrix, and can't be fitted to X"
    elif seeds is None:
        reason = "pass a clusterer, which can be fitted again"
    elif not seeds:
        reason = f"{type(a).__name__} has no seed"
    if reason or not seeds:
        return ClusteringComparison(table, clusters, ari, ami, None, reason)

    refit_indices = []
    jaccards = []
    for labels in _refitted_labels(a, rows, seeds, refits, random_state):
        refit_indices.append(_indices(labels_a, labels))
        jaccards.append(matched(pd.crosstab(labels_a, labels)).jaccard)
    jaccard = pd.concat(jaccards, axis=1).mean(axis=1)
    clusters["refits"] = [jaccard[label] if model == "a" else np.nan for model, label in clusters.index]
    of_refits = pd.DataFrame(refit_indices, columns=["ARI", "AMI"])
    return ClusteringComparison(table, clusters, ari, ami, of_refits)


def _refitted_labels(
    model: object, rows: Table, seeds: list[str], refits: int, random_state: RandomState
) -> Iterator[np.ndarray]:
    """Yield the labels [n] of refits of a model with other seeds."""
    generator = check_random_state(random_state)
    rows = rows.ordered(fitted_names(model))
    for _ in progress_bar(range(refits), desc="refits"):
        parameters = {name: generator.randint(2**31 - 1) for name in seeds}
        refit = clone(model).set_params(**parameters).fit(rows.for_sklearn)
        yield _labels(refit, rows, "a")


def _labels(model: Any, rows: Table, name: str) -> np.ndarray:
    """Return the labels [n] of the rows, from a model or from labels."""
    if predicts(model):
        names = fitted_names(model)
        if names is not None:
            rows = rows.by_name(names)
        inputs = rows.data if isinstance(model, nn.Module) else rows.for_sklearn
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


def _clusters(table: pd.DataFrame) -> pd.DataFrame:
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
    return pd.DataFrame(rows, columns=columns).set_index(["model", "cluster"]).assign(refits=np.nan)
