"""The affine steps of scikit-learn pipelines: each is appended to the map of the steps before it."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import numpy as np
import torch
from sklearn.decomposition import PCA, IncrementalPCA, TruncatedSVD
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    RobustScaler,
    StandardScaler,
)
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from neonxc.head.preprocessing import Preprocessing
from neonxc.pipelines.encoders import ENCODERS

SUPPORTED = (
    "StandardScaler, MinMaxScaler, MaxAbsScaler, RobustScaler, PCA, IncrementalPCA, TruncatedSVD, "
    f"Normalizer, TfidfTransformer, {ENCODERS}, ColumnTransformer of these, Pipeline, 'passthrough'"
)


def remembered(step: Any, d: int) -> tuple[Tensor, Tensor]:
    """Return the center and scale [d] of the raw columns that a fitted first step stores; 0 and 1 by default."""
    center = getattr(step, "mean_", getattr(step, "center_", None))
    if center is None and isinstance(step, MinMaxScaler):
        center = (step.data_min_ + step.data_max_) / 2
    scale = getattr(step, "scale_", None)
    if isinstance(step, MinMaxScaler):
        scale = 1 / np.asarray(scale)
    return (
        torch.zeros(d, dtype=torch.float64) if center is None else _tensor(center),
        torch.ones(d, dtype=torch.float64) if scale is None else _tensor(scale),
    )


@singledispatch
def appended(step: Any, folded: Preprocessing) -> Preprocessing:
    """Append a fitted step to a map.

    Raises
    ------
    ValueError
        The step is not affine.
    """
    if step is None or step == "passthrough":
        return folded
    raise ValueError(f"{type(step).__name__} is not an affine map neonxc can fold; it folds {SUPPORTED}")


@appended.register
def _(step: FunctionTransformer, folded: Preprocessing) -> Preprocessing:
    return folded  # without a function it is scikit-learn's implementation of 'passthrough'


@appended.register
def _(step: StandardScaler, folded: Preprocessing) -> Preprocessing:
    check_is_fitted(step)
    return _scaled(folded, step.scale_, step.mean_ if step.with_mean else None, step.n_features_in_)


@appended.register
def _(step: RobustScaler, folded: Preprocessing) -> Preprocessing:
    check_is_fitted(step)
    return _scaled(folded, step.scale_, step.center_, step.n_features_in_)


@appended.register
def _(step: MinMaxScaler, folded: Preprocessing) -> Preprocessing:
    check_is_fitted(step)
    if step.clip:
        raise ValueError("MinMaxScaler(clip=True) is not affine; set clip=False")
    return folded.then(_tensor(step.scale_), _tensor(step.min_))


@appended.register
def _(step: MaxAbsScaler, folded: Preprocessing) -> Preprocessing:
    check_is_fitted(step)
    if getattr(step, "clip", False):
        raise ValueError("MaxAbsScaler(clip=True) is not affine; set clip=False")
    return _scaled(folded, step.scale_, None, step.n_features_in_)


@appended.register(PCA)
@appended.register(IncrementalPCA)
def _(step: PCA | IncrementalPCA, folded: Preprocessing) -> Preprocessing:
    check_is_fitted(step)
    weight = _tensor(step.components_)
    if step.whiten:
        scale = np.sqrt(step.explained_variance_)
        # the same guard against directions without variance as in scikit-learn
        weight = weight / _tensor(np.maximum(scale, np.finfo(scale.dtype).eps))[:, None]
    return folded.then(weight, -weight @ _tensor(step.mean_))


@appended.register
def _(step: TruncatedSVD, folded: Preprocessing) -> Preprocessing:
    check_is_fitted(step)
    weight = _tensor(step.components_)
    return folded.then(weight, weight.new_zeros(len(weight)))


@appended.register
def _(step: TfidfTransformer, folded: Preprocessing) -> Preprocessing:
    check_is_fitted(step)
    if step.sublinear_tf:
        raise ValueError(
            "TfidfTransformer(sublinear_tf=True) can only be folded directly after a CountVectorizer; elsewhere "
            "it is not affine"
        )
    if step.use_idf:
        folded = _scaled(folded, 1 / step.idf_, None, step.n_features_in_)
    return folded if step.norm is None else folded.normalized(step.norm)


@appended.register
def _(step: Normalizer, folded: Preprocessing) -> Preprocessing:
    return folded.normalized(step.norm)


def _scaled(folded: Preprocessing, scale: Any, shift: Any, d: int) -> Preprocessing:
    """Append ``(z - shift) / scale`` of `d` columns, where either may be None."""
    weight = 1 / _tensor(np.ones(d) if scale is None else scale)
    return folded.then(weight, -weight * _tensor(np.zeros(d) if shift is None else shift))


def _tensor(array: Any) -> Tensor:
    values = np.asarray(array)
    backwards = any(stride < 0 for stride in values.strides)  # PCA of sparse matrices has such components
    return torch.as_tensor(values.copy() if backwards else values, dtype=torch.float64)
