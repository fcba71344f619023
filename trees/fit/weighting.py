"""Fit a clusterer, and the steps of a pipeline before it, to rows with weights: a weight of 2 is a repeated row.

takes sample_weight     fit(X, sample_weight=weight)
Pipeline                step by step; each gets what the one before it makes of X
ColumnTransformer       every transformer is fitted again with weights, to its own columns
FeatureUnion            every transformer is fitted again with weights
GridSearchCV, ...       the search passes the weights on to its fits, and its best estimator is fitted again
SimpleImputer           fit(X); then its means, medians or most frequent values are those of repeated rows
MinMax-, MaxAbsScaler   fitted to the rows with a weight > 0
RobustScaler            fit(X); then its medians and ranges of quantiles are those of repeated rows
OneHotEncoder           fitted to repeated rows, at most 100,000 of them, with the categories of all rows
others                  fit(X), with a warning if their answer depends on how often a row occurs
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import norm
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    RobustScaler,
)
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import has_fit_parameter

from neonxc.common.searches import awaits_search, best_estimator
from neonxc.common.sizes import REPEATED_ROWS
from neonxc.common.types import TableLike
from neonxc.data.table import Table
from neonxc.data.weights import repeated_rows, weighted_median, weighted_quantile
from neonxc.pipelines.opened import opened

FILLED = ("mean", "median", "most_frequent")
"""Strategies of an imputer that depend on how often a row occurs."""
WITHOUT_COUNTS = (
    *(FunctionTransformer, Normalizer, Binarizer, HashingVectorizer),
    *(MinMaxScaler, MaxAbsScaler, OrdinalEncoder),
)
"""Steps whose answer does not depend on how often a row occurs."""


def fit_predict(model: Any, X: TableLike, weight: np.ndarray) -> tuple[Any, list[str]]:
    """Fit a clusterer or a pipeline that ends in one, in place, to rows with weights.

    Parameters
    ----------
    model : estimator or Pipeline
    X : array-like [n, d]
    weight : ndarray [n]

    Returns
    -------
    labels : ndarray [n]
    unweighted : list of str
        Names of the classes that take no weights, and that repeated rows would change.
    """
    unweighted = list[str]()
    steps, final = opened(model)
    for _, step in steps:
        X = _fit_transform(step, X, weight, unweighted)
    if awaits_search(final):
        labels, others = fit_predict(_best_of_search(final, X, weight), X, weight)
        return labels, unweighted + others
    return final.fit_predict(X, **_named(final, weight, unweighted)), unweighted


def fit_transform(step: Any, X: TableLike, weight: np.ndarray) -> tuple[Any, list[str]]:
    """Fit steps as :func:`fit_predict` does, and return what they make of X, and the classes without weights."""
    unweighted = list[str]()
    return _fit_transform(step, X, weight, unweighted), unweighted


def _fit_transform(step: Any, X: TableLike, weight: np.ndarray, unweighted: list[str]) -> Any:
    """Fit a step with weights in place, and return what it makes of X."""
    if step is None or isinstance(step, str):  # "passthrough"
        return X
    if isinstance(step, Pipeline):
        for _, inner in step.steps:
            X = _fit_transform(inner, X, weight, unweighted)
        return X
    if awaits_search(step):
        return _fit_transform(_best_of_search(step, X, weight), X, weight, unweighted)
    if isinstance(step, ColumnTransformer | FeatureUnion):
        step.fit(X)
        for inner, columns in _transformers(step, X):
            _fit_transform(inner, columns, weight, unweighted)
        return step.transform(X)
    if type(step) is SimpleImputer and step.strategy in FILLED:
        step.fit(X)
        step.statistics_ = _statistics(step, X, weight)
        return step.transform(X)
    if type(step) is RobustScaler:
        step.fit(X)
        _scale_by_quantiles(step, X, weight)
        return step.transform(X)
    if type(step) is OneHotEncoder and _counts_rows(step, X):
        _fit_categories(step, X, weight)
        return step.transform(X)
    if isinstance(step, MinMaxScaler | MaxAbsScaler):  # rows of weight 0 are not there
        return step.fit(_safe_indexing(X, np.flatnonzero(weight))).transform(X)
    if not _counts_rows(step, X):
        unweighted = []  # it need not be named
    return step.fit_transform(X, **_named(step, weight, unweighted))


def _best_of_search(search: Any, X: TableLike, weight: np.ndarray) -> Any:
    """Fit a search, in place, to rows with weights, and return its best estimator."""
    search.fit(X, **_weights_of(search.estimator, weight))
    return best_estimator(search)


def _weights_of(model: object, weight: np.ndarray) -> dict[str, np.ndarray]:
    """Return the weights as arguments of `fit`, one for each step of a pipeline that takes them."""
    if not isinstance(model, Pipeline):
        if has_fit_parameter(model, "sample_weight"):
            return {"sample_weight": weight}
        return {}
    steps = [(name, step) for name, step in model.steps if not (step is None or isinstance(step, str))]
    return {
        f"{name}__{argument}": value
        for name, step in steps
        for argument, value in _weights_of(step, weight).items()
    }


def _statistics(step: SimpleImputer, X: TableLike, weight: np.ndarray) -> np.ndarray:
    """Return the values [d] that stand for missing ones, of a fitted imputer, computed with weights."""
    statistics = step.statistics_.copy()
    missing = MissingIndicator(missing_values=step.missing_values, features="all").fit_transform(X)
    columns = Table.read(X).frame()
    for column in range(columns.shape[1]):
        known = (weight > 0) & ~np.asarray(missing[:, column], bool)
        if not known.any():  # nothing tells a value
            continue
        values = columns.iloc[:, column].to_numpy()[known]
        of_values = weight[known]
        if step.strategy == "mean":
            statistics[column] = np.average(values.astype(float), weights=of_values)
        elif step.strategy == "median":
            statistics[column] = weighted_median(values.astype(float), of_values)
        else:
            names, positions = np.unique(values, return_inverse=True)  # of equal ones the smallest, as for `mode`
            statistics[column] = names[np.bincount(positions.ravel(), of_values).argmax()]
    return statistics


def _scale_by_quantiles(step: RobustScaler, X: TableLike, weight: np.ndarray) -> None:
    """Give a fitted scaler the median and the range of quantiles of repeated rows."""
    columns = Table.read(X).frame().to_numpy(dtype=float)
    low, high = (q / 100 for q in step.quantile_range)
    quantiles = np.array([_known_quantiles(column, [low, 0.5, high], weight) for column in columns.T])
    if step.with_centering:
        step.center_ = quantiles[:, 1]
    if step.with_scaling:
        spread = quantiles[:, 2] - quantiles[:, 0]
        unit = norm.ppf(high) - norm.ppf(low) if step.unit_variance else 1.0
        step.scale_ = np.where(spread > 10 * np.finfo(float).eps, spread, 1.0) / unit


def _known_quantiles(column: np.ndarray, q: list[float], weight: np.ndarray) -> np.ndarray:
    """Return quantiles of the numbers of a column that are not missing, with weights."""
    known = ~np.isnan(column) & (weight > 0)
    if known.any():
        return weighted_quantile(column[known], q, weight[known])
    return np.full(len(q), np.nan)


def _fit_categories(step: OneHotEncoder, X: TableLike, weight: np.ndarray) -> None:
    """Fit an encoder whose rare categories are those of repeated rows."""
    parameter = step.categories
    categories = step.fit(X).categories_
    rows = repeated_rows(np.arange(len(weight)), REPEATED_ROWS, weight)
    step.set_params(categories=[*categories]).fit(_safe_indexing(X, rows))
    step.set_params(categories=parameter)


def _transformers(step: ColumnTransformer | FeatureUnion, X: TableLike) -> list[tuple[Any, Any]]:
    """Return the fitted transformers of a step, each with its columns of X."""
    if isinstance(step, FeatureUnion):
        return [(inner, X) for _, inner in step.transformer_list if inner != "drop"]
    return [
        (inner, _safe_indexing(X, columns, axis=1))
        for _, inner, columns in step.transformers_
        if not isinstance(inner, str) and len(np.atleast_1d(columns))
    ]


def _named(step: object, weight: np.ndarray, unweighted: list[str]) -> dict[str, np.ndarray]:
    """Return the weights as an argument of `fit`, if it takes them, and note the class if it should."""
    if has_fit_parameter(step, "sample_weight"):
        return {"sample_weight": weight}
    unweighted.append(type(step).__name__)
    return {}


def _counts_rows(step: object, X: TableLike) -> bool:
    """Whether the answer of a fitted step depends on how often a row of X occurs."""
    if isinstance(step, OneHotEncoder):
        return step.min_frequency is not None or step.max_categories is not None
    if isinstance(step, SimpleImputer):  # it has nothing to do if nothing is missing
        return bool(step.strategy != "constant" and Table.read(X).frame().isna().to_numpy().any())
    return not isinstance(step, WITHOUT_COUNTS)
