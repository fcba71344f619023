"""Fit a clusterer, and the steps of a pipeline before it, to rows with weights: a weight of 2 is a repeated row.

takes sample_weight     fit(X, sample_weight=weight)
Pipeline                step by step; each gets what the one before it makes of X
ColumnTransformer       every transformer is fitted again with weights, to its own columns
FeatureUnion            every transformer is fitted again with weights
others                  fit(X), with a warning if their answer depends on how often a row occurs
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
)
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import has_fit_parameter

from neonxc.data.table import Table
from neonxc.pipelines.opened import opened

WITHOUT_COUNTS = (
    *(FunctionTransformer, Normalizer, Binarizer, HashingVectorizer),
    *(MinMaxScaler, MaxAbsScaler, OrdinalEncoder),
)
"""Steps whose answer does not depend on how often a row occurs."""


def fit_predict(model: Any, X: Any, weight: np.ndarray) -> tuple[Any, list[str]]:
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
    return final.fit_predict(X, **_named(final, weight, unweighted)), unweighted


def fit_transform(step: Any, X: Any, weight: np.ndarray) -> tuple[Any, list[str]]:
    """Fit steps as :func:`fit_predict` does, and return what they make of X, and the classes without weights."""
    unweighted = list[str]()
    return _fit_transform(step, X, weight, unweighted), unweighted


def _fit_transform(step: Any, X: Any, weight: np.ndarray, unweighted: list[str]) -> Any:
    """Fit a step with weights in place, and return what it makes of X."""
    if step is None or isinstance(step, str):  # "passthrough"
        return X
    if isinstance(step, Pipeline):
        for _, inner in step.steps:
            X = _fit_transform(inner, X, weight, unweighted)
        return X
    if isinstance(step, ColumnTransformer | FeatureUnion):
        step.fit(X)
        for inner, columns in _transformers(step, X):
            _fit_transform(inner, columns, weight, unweighted)
        return step.transform(X)
    named = _named(step, weight, unweighted if _counts_rows(step, X) else [])
    return step.fit_transform(X, **named)


def _transformers(step: ColumnTransformer | FeatureUnion, X: Any) -> list[tuple[Any, Any]]:
    """Return the fitted transformers of a step, each with its columns of X."""
    if isinstance(step, FeatureUnion):
        return [(inner, X) for _, inner in step.transformer_list if inner != "drop"]
    return [
        (inner, _safe_indexing(X, columns, axis=1))
        for _, inner, columns in step.transformers_
        if not isinstance(inner, str) and len(np.atleast_1d(columns))
    ]


def _named(step: Any, weight: np.ndarray, unweighted: list[str]) -> dict[str, np.ndarray]:
    """Return the weights as an argument of `fit`, if it takes them, and note the class if it should."""
    if has_fit_parameter(step, "sample_weight"):
        return {"sample_weight": weight}
    unweighted.append(type(step).__name__)
    return {}


def _counts_rows(step: Any, X: Any) -> bool:
    """Whether the answer of a fitted step depends on how often a row of X occurs."""
    if isinstance(step, OneHotEncoder):
        return step.min_frequency is not None or step.max_categories is not None
    if isinstance(step, SimpleImputer):  # it has nothing to do if nothing is missing
        return bool(step.strategy != "constant" and Table.read(X).frame().isna().to_numpy().any())
    return not isinstance(step, WITHOUT_COUNTS)
