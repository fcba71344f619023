"""Comparison of a clustering with those that the same model makes of tables without clusters.

For a model, a table X [n, d] and T tables X_1, ..., X_T that have the columns and the rank correlations of X, and
no clusters (:class:`neonxc.evaluation.copula.Copula`), with weights w_i of the rows:

    1. The model is cloned and fitted to X, and to every X_t: all steps of a pipeline, and the clusterer behind.
    2. The share of the variance of a column x that is between the clusters C_k, of mean mu_k and weight n_k, is

           eta^2(x) = sum_k n_k (mu_k - mu)^2 / sum_i w_i (x_i - mu)^2,   with the mean mu of all rows

       Noise is in no cluster: its rows are in mu and in the denominator alone. Rows with a gap in x are left
       out. A category has the eta^2 of all its indicators (their sums on both sides), Goodman and Kruskal's tau.
    3. In the space of the clusterer, that is, of the points behind the steps, with T and B the matrices of the
       denominators and numerators of step 2: e_1 >= e_2 >= ... are the eigenvalues of T^-1 B, the eta^2 of the
       axes that separate the clusters best (those of the discriminant analysis), and z_a the rows along axis a.

           explained = tr B / tr T
           along     = sum_a e_a (Pillai's trace)
           apart     = -sum_a log(1 - e_a) (from Wilks's lambda)
           two modes = -min_a kurtosis(z_a), and the kurtosis is 1 for two points, 1.8 for a uniform z_a, 3 for a
                       normal one
           columns   = sum over the columns j of X of eta^2(x_j)^2

       `along`, `apart` and `two modes` do not depend on the scales of the columns, and `columns` is large if few
       of them have most of the variance between clusters.
    4. The p-value of a table in a statistic is the share of all T + 1 tables that have at least as much. The
       evidence of a table is the mean of 1 / p over all statistics but `explained` (p has the harmonic mean
       1 / evidence). The clustering is above if its evidence is larger than that of every X_t.

If X has no clusters, it is one of T + 1 tables of the same kind, so that it is above in at most one of T + 1
cases.

The four were chosen among sets of 13 statistics (also other powers, silhouettes, and valleys between means) on
384 tables of three groups and 108 clouds. On 600 and 144 others, they find 33% of the correlated groups behind a
scaler (the larger one of the standardized `along` and `columns`: 17%), as many or more of each other kind, and 4%
of the clouds, as before. No single one suffices: `explained` misses most groups behind a scaler, and where a
table without clusters has outliers, which become clusters of their own, its `apart` is the largest (digits).

Y. Liu, D. Hayes, A. Nobel, J. Marron, "Statistical significance of clustering for high-dimension, low-sample size
data", 2008, for clusterings of one cloud; K. Pillai, "Some new test criteria in multivariate analysis", 1955;
S. Wilks, "Certain generalizations in the analysis of variance", 1932; D. Peña and F. Prieto, "Cluster
identification using projections", 2001, for axes of small kurtosis; D. Wilson, "The harmonic mean p-value for
combining dependent tests", 2019.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import check_random_state
from torch import nn

from neonxc.clusterings.labels import labels_of
from neonxc.clusterings.neuralize_arguments import fitted_names, points_of
from neonxc.clusterings.readers import GivenLabels, is_precomputed
from neonxc.common.arguments import check_whole, kind_of
from neonxc.common.numbers import percent, plural
from neonxc.common.progress import progress_bar
from neonxc.common.result import Result
from neonxc.common.searches import unwrapped
from neonxc.common.types import ArrayLike, RandomState, TableLike
from neonxc.data.frames import reads_tables
from neonxc.data.kinds import column_kind
from neonxc.data.labels import are_labels, label_array
from neonxc.data.table import Table, is_texts
from neonxc.data.weights import weights_of
from neonxc.evaluation.choice import seed_names
from neonxc.evaluation.copula import Copula, frame_of
from neonxc.pipelines.opened import opened

FLAT = 1e-9
"""Fraction of the largest value below which a spread of points, or of standardized values, is rounding alone."""

Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, repr=False)
class NullReference(Result):
    """Result of :func:`null_reference`.

    Attributes
    ----------
    explained : float
        Share of the variance that is between the clusters, 0 to 1, in the space of the clusterer.
    reference : float
        The largest share of the tables without clusters.
    evidence : ndarray [tables + 1]
        What `above` compares, of the clustering and then of those of the tables without clusters: the mean of
        1 / p over four statistics, where p is the share of all of these tables that have at least as much.
    """

    explained: float
    reference: float
    evidence: np.ndarray
    _columns: pd.DataFrame

    @property
    def above(self) -> bool:
        """Whether the clustering has more evidence than that of every table without clusters."""
        return bool(self.evidence[0] > self.evidence[1:].max())

    def to_frame(self) -> pd.DataFrame:
        """Return one row per column of X.

        Returns
        -------
        DataFrame
            Index: the column. Columns: ``explained``, the share of its variance between the clusters, 0 to 1, and
            NaN for a constant; ``reference``, the largest share of the tables without clusters; ``share``, the
            fraction of these tables that it is above.
        """
        return self._columns.copy()

    def lines(self) -> list[str]:
        """Return the sentences that say what was found, of the clustering and of its columns."""
        return [self._of_clustering(), self._of_columns()]

    def sentence(self) -> str:
        """Return :meth:`lines` as one text."""
        return " ".join(self.lines())

    def _of_clustering(self) -> str:
        explains_more = self.explained > self.reference
        bound = "at most" if explains_more else "up to"
        verdict = ""
        if self.above and not explains_more:
            verdict = ", and yet more of single columns and axes than any of them"
        elif explains_more and not self.above:
            verdict = ", but no more of single columns and axes: one cloud without clusters is cut like this"
        elif not self.above:
            verdict = ": one cloud without clusters is cut like this"
        own = f"this one explains {percent(self.explained)}{verdict}."
        return (
            "Clusterings of tables with the same columns and correlations, but no clusters, explain "
            f"{bound} {percent(self.reference)} of the variance; {own}"
        )

    def _of_columns(self) -> str:
        shares = self._columns["share"]
        n_above = int((shares == 1).sum())
        differ = "differs" if n_above == 1 else "differ"
        columns = plural(len(shares), "column")
        return f"{n_above} of {columns} {differ} more between the clusters than in any of them."

    def _remarks(self) -> list[str]:
        return self.lines()


@reads_tables
def null_reference(
    model: object,
    X: TableLike,
    tables: int = 19,
    random_state: RandomState = 0,
    *,
    sample_weight: ArrayLike | None = None,
) -> NullReference:
    """Compare a clustering with those of tables that have the same columns and correlations, but no clusters.

    A clustering algorithm returns clusters for any table. The same model is fitted to tables that have none: what
    it explains there, it explains without clusters.

    Parameters
    ----------
    model : estimator or Pipeline
        Clusterer, fitted or not. It is cloned, and all its steps are fitted again. A model with a fixed seed gives
        its clusters again; the other tables are clustered with seeds of their own.
    X : array-like, sparse matrix, data frame or path [n, d]
        All rows that are clustered, as the model takes them: numbers, categories and times, also with missing
        values if its steps take them. Sparse matrices become dense here.
    tables : int
        Number of tables without clusters. If X has none, the clustering is above all of them by chance in one of
        ``tables + 1`` cases.
    random_state : int, RandomState or None
        Seed of the tables and of their clusterings.
    sample_weight : array-like [n], optional
        Weights >= 0 of the rows; a series is matched by its index. A row of weight 2 counts twice in the margins,
        correlations and shares, rows of weight 0 are left out, and the model is fitted with weights where it takes
        them. The tables have as many rows as X has rows of weight > 0.

    Returns
    -------
    NullReference

    Raises
    ------
    TypeError
        If the model can't be fitted again: labels alone, a network, a clusterer that can't be cloned, or one that
        was given labels or distances.
    ValueError
        If X is no table, or all its columns are constant, if the model finds no clusters in it, or for invalid
        weights.

    Notes
    -----
    It compares with one cloud, and says nothing beyond: not that there are K clusters rather than K - 1, and not
    which of them are real. A column of numbers with two modes is evidence of clusters; a column of few values,
    such as a truth value, is not, as its table without clusters has the same values.

    If there are no clusters, a column differs more between them than in all of the tables in about one of
    ``tables + 1`` cases, so that in a table of many columns some do so by chance.

    References
    ----------
    Y. Liu, D. Hayes, A. Nobel, J. Marron, "Statistical significance of clustering for high-dimension, low-sample
    size data", 2008, for clusterings of one cloud; K. Pillai, "Some new test criteria in multivariate analysis",
    1955, S. Wilks, "Certain generalizations in the analysis of variance", 1932, and D. Peña and F. Prieto,
    "Cluster identification using projections", 2001, for the statistics along axes; D. Wilson, "The harmonic mean
    p-value for combining dependent tests", 2019. They are defined on top of
    ``neonxc/evaluation/without_clusters.py``.

    Examples
    --------
    >>> from neonxc.evaluation import null_reference
    >>> from sklearn.cluster import KMeans
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> model = make_pipeline(StandardScaler(), KMeans(3, n_init=5, random_state=0))
    >>> null_reference(model, load_wine(as_frame=True).data).above
    True
    """
    check_whole("tables", tables)
    unfitted = _fittable(model)
    table = _rows(unwrapped(model), X)
    weight = weights_of(sample_weight, table)
    if weight is not None:
        table = table.take(np.flatnonzero(weight))
        weight = weight[weight > 0]
    frame = frame_of(table)
    generator = check_random_state(random_state)
    seeds = _seeds(unfitted)
    unset_seeds = [name for name, seed in seeds.items() if seed is None]
    clustering = _fitted(unfitted, table.for_sklearn, weight, unset_seeds, generator)
    if not clustering.has_clusters:
        raise ValueError(f"{type(unfitted).__name__} finds no clusters in X: all rows are noise")
    if not (frame.nunique() > 1).any():
        raise ValueError("X needs a column that is not constant")
    explained = clustering.shares(frame)

    copula = Copula(table, weight)
    random_tables = np.random.default_rng(generator.randint(2**31 - 1))
    references = []
    for _ in progress_bar(range(tables), desc="tables without clusters"):
        drawn = copula.draw(random_tables)
        other = _fitted(unfitted, drawn, weight, [*seeds], generator)
        references.append(other.shares(frame_of(Table.read(drawn))))

    columns = np.stack([reference.columns for reference in references])  # [T, d]
    is_above = explained.columns > columns + FLAT
    by_column = {
        "explained": explained.columns,
        "reference": columns.max(0),
        "share": np.where(np.isnan(explained.columns), np.nan, is_above.mean(0)),
    }
    names = pd.Index(table.column_names or range(frame.shape[1]), name="column")
    return NullReference(
        explained=explained.total,
        reference=max(reference.total for reference in references),
        evidence=evidence_of([explained, *references]),
        _columns=pd.DataFrame(by_column, names),
    )


# --- the model ---------------------------------------------------------------------------------------------------


def _fittable(model: object) -> Any:
    """Return the clusterer in a model that can be cloned and fitted again."""
    if isinstance(model, nn.Module):
        what = kind_of(model)
        raise TypeError(f"model needs a clusterer, which is fitted again, got {what}; pass the clusterer itself")
    if not hasattr(model, "fit"):
        raise TypeError(
            f"model needs a clusterer, which is fitted again, got {kind_of(model)}: labels alone don't tell how "
            "they were found. Pass the clusterer, such as make_pipeline(StandardScaler(), KMeans(3)); if it is no "
            "class of scikit-learn, write one that inherits sklearn.base.BaseEstimator, with fit_predict(X)"
        )
    model = unwrapped(model)
    name = type(model).__name__
    _, final = opened(model)
    if isinstance(final, GivenLabels) or getattr(final, "_has_passed_reference", False):
        raise TypeError(
            f"{name} was given labels, so that it can't be fitted to another table; pass the clusterer"
        )
    if is_precomputed(model):
        raise TypeError(
            f"{name} takes a matrix of distances or affinities, and there is none of another table; pass a "
            "clusterer of the columns"
        )
    try:
        return clone(model)
    except TypeError as error:
        raise TypeError(
            f"model can't be cloned, and so not be fitted to other tables: {error}. Write a class that inherits "
            "sklearn.base.BaseEstimator, whose fit_predict(X) calls this one"
        ) from None


def _rows(model: object, X: TableLike) -> Table:
    """Read the rows as the model takes them."""
    table = points_of(model, X)
    if is_texts(table.data):
        raise ValueError(
            "X needs a table, and texts have no columns; pass their vectors: null_reference(model[-1:], "
            "model[:-1].transform(texts)), behind TruncatedSVD if these are counts of terms"
        )
    names = fitted_names(model)
    if names is not None:
        table = table.by_name(names)
    _ = table.width  # an error if the rows are no table
    return table


def _seeds(model: Any) -> dict[str, object]:
    """Return the parameters of a model that hold seeds."""
    parameters = model.get_params()
    return {name: parameters[name] for name in seed_names(model)}


class Shares(NamedTuple):
    """What is between the clusters of a table."""

    total: float  # share of the variance in the space of the clusterer
    along: float
    apart: float
    two_modes: float
    columns: Floats  # [d], share of the variance of each column of X, NaN for a constant

    @property
    def statistics(self) -> list[float]:
        """The statistics whose p-values are combined."""
        return [self.along, self.apart, self.two_modes, float(np.nansum(self.columns**2))]


def evidence_of(shares: list[Shares]) -> Floats:
    """Return the mean of 1 / p [T + 1] over the statistics."""
    statistics = np.array([of_table.statistics for of_table in shares])  # [T + 1, 4]
    # as many columns as rows separate any clusters, so that `along` is the same for all tables but for rounding
    rounding = FLAT * (1 + np.abs(statistics).max(0))
    has_as_much = statistics[None, :] >= statistics[:, None] - rounding  # [T + 1, T + 1, 4]
    p = has_as_much.mean(1)
    evidence: Floats = np.sort(1 / p, axis=1).mean(1)  # sorted, so that equal ranks have equal sums
    return evidence


class Clustering(NamedTuple):
    """A clustering of a table."""

    points: Floats  # [n, q], that entered the clusterer
    members: Floats  # [n, K], 1 where a row is in a cluster; 0 everywhere for noise
    weight: Floats  # [n]

    @property
    def has_clusters(self) -> bool:
        """Whether any row is in a cluster."""
        return self.members.shape[1] > 0

    def shares(self, frame: pd.DataFrame) -> Shares:
        """Compute the shares of this clustering, whose rows have the columns of a frame."""
        centered = self.points - np.average(self.points, axis=0, weights=self.weight)
        between, total = _between(centered, self.members, self.weight[:, None])
        share = between.sum() / total.sum() if total.sum() > 0 else 0.0
        if share < FLAT:  # of one cluster
            share = 0.0
        along, apart, two_modes = _along_axes(centered, self.members, self.weight)
        return Shares(float(share), along, apart, two_modes, self._of_columns(frame))

    def _of_columns(self, frame: pd.DataFrame) -> Floats:
        """Compute eta^2 [d] of the columns, each of its rows that have no gap."""
        parts = [_as_numbers(column) for _, column in frame.items()]
        column_of = np.repeat(np.arange(len(parts)), [part.shape[1] for part in parts])  # [q]
        known = frame.notna().to_numpy()[:, column_of]
        values = np.where(known, np.concatenate(parts, axis=1), 0.0)
        weight = self.weight[:, None] * known
        centered = values - (weight * values).sum(0) / np.maximum(weight.sum(0), np.finfo(float).tiny)
        of_each = _between(centered, self.members, weight)
        between, total = (np.bincount(column_of, sums, len(parts)) for sums in of_each)

        # not by the total, which rounding makes of equal values
        lowest = np.where(known, values, np.inf).min(0)
        highest = np.where(known, values, -np.inf).max(0)
        differs = np.bincount(column_of, lowest < highest, len(parts)) > 0
        return np.divide(between, total, out=np.full(len(parts), np.nan), where=differs)


def _between(centered: Floats, members: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """Return the sums of squares [q] between the clusters, and those of all rows, of columns of mean 0.

    Weights [n, q], or [n, 1] for all columns, are 0 in rows that are left out.
    """
    sizes = members.T @ weight
    sums = members.T @ (weight * centered)
    between = np.divide(sums**2, sizes, out=np.zeros_like(sums), where=sizes > 0).sum(0)
    total = (weight * centered**2).sum(0)
    return between, total


def _along_axes(centered: Floats, members: Floats, weight: Floats) -> tuple[float, float, float]:
    """Compute `along`, `apart` and `two modes` of points [n, q] of mean 0.

    With the orthonormal basis U of the columns of W^(1/2) Z, for which T = Z^T W Z, and with the columns
    h_k = W^(1/2) (members of k) / sqrt(n_k), the e_a are the squared singular values of U^T h, and the z_a are
    W^(-1/2) U times its left singular vectors.
    """
    roots = np.sqrt(weight)[:, None]
    basis, lengths, _ = np.linalg.svd(roots * centered, full_matrices=False)
    basis = basis[:, lengths > FLAT * lengths.max(initial=0.0)]
    sizes = weight @ members
    is_there = sizes > 0
    indicators = roots * members[:, is_there] / np.sqrt(sizes[is_there])
    directions, singular_values, _ = np.linalg.svd(basis.T @ indicators, full_matrices=False)
    shares = singular_values**2
    along = float(shares.sum())
    apart = float(-np.log((1 - shares).clip(min=FLAT)).sum())

    # K clusters without noise have K - 1 axes. Where each cluster is one point, as with more columns than rows,
    # the kurtosis would be one of the sizes of the clusters
    has_spread = (shares > FLAT) & (1 - shares > FLAT)
    if not has_spread.any():
        return along, apart, -float(weight.sum())  # no rows have a larger kurtosis
    positions = basis @ directions[:, has_spread] / roots  # of variance 1 / sum of weights
    kurtosis = weight.sum() * (weight @ positions**4)
    return along, apart, -float(kurtosis.min())


def _fitted(
    model: Any, data: Any, weight: Floats | None, new_seeds: list[str], generator: np.random.RandomState
) -> Clustering:
    """Fit a clone of a model to a table, with new seeds for some parameters."""
    seeds = {name: generator.randint(2**31 - 1) for name in new_seeds}
    steps, final = opened(clone(model).set_params(**seeds))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such as convergence warnings
        for _, step in steps:
            data = _transformed(step, data, weight)
        labels = label_array(_labels(final, data, weight))
    codes, clusters = pd.factorize(labels[are_labels(labels)])
    members = np.zeros((len(labels), len(clusters)))
    members[np.flatnonzero(are_labels(labels)), codes] = 1.0
    weight = np.ones(len(labels)) if weight is None else weight
    return Clustering(_numbers(data), members, weight)


def _transformed(step: Any, data: Any, weight: Floats | None) -> Any:
    """Fit a step of a pipeline, and return what it makes of the data."""
    if step is None or isinstance(step, str):  # "passthrough"
        return data
    if weight is None:
        return step.fit_transform(data)
    from neonxc.trees.fit.weighting import fit_transform  # depends on this package

    transformed, _ = fit_transform(step, data, weight)
    return transformed


def _labels(final: Any, data: Any, weight: Floats | None) -> ArrayLike:
    """Fit a clusterer, and return its labels [n]."""
    if not hasattr(final, "fit_predict"):
        final.fit(data)
        labels: ArrayLike | None = labels_of(final, Table.read(data))
        if labels is None:
            raise TypeError(f"{type(final).__name__} has neither fit_predict nor labels_ nor predict")
        return labels
    if weight is None:
        return final.fit_predict(data)
    from neonxc.trees.fit.weighting import fit_predict  # depends on this package

    labels, _ = fit_predict(final, data, weight)
    return labels


def _numbers(data: Any) -> Floats:
    """Return what entered a clusterer as points [n, q].

    Gaps are the mean of their column, and categories indicators.
    """
    frame = frame_of(Table.read(data))
    columns = []
    for _, column in frame.items():
        columns.append(_as_numbers(column))
    points = np.concatenate(columns, axis=1)
    if np.isnan(points).any():
        points = np.where(np.isnan(points), np.nanmean(points, axis=0), points)
    return points


def _as_numbers(column: pd.Series) -> Floats:
    """Return a column as numbers [n, 1], with NaN for gaps, or as the indicators [n, L] of its levels."""
    kind = column.dtype.kind
    if kind in "iufb":
        return column.to_numpy(dtype=float)[:, None]
    if kind in "mM":
        times = column.to_numpy(dtype=f"{kind}8[ns]").astype(np.int64).astype(float)
        return np.where(column.isna(), np.nan, times)[:, None]
    if column_kind(column) == "time":  # others, such as times of the day, have an order alone
        positions, _ = pd.factorize(column, sort=True)
        return np.where(positions < 0, np.nan, positions)[:, None]
    codes, levels = pd.factorize(column)
    return np.equal.outer(codes, np.arange(len(levels))).astype(float)
