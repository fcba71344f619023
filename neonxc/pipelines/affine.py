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
from torch import Tensor

from neonxc.head.detection import Preprocessing
from neonxc.pipelines.encoders import ENCODERS

SUPPORTED = (
    "StandardScaler, MinMaxScaler, MaxAbsScaler, RobustScaler, PCA, IncrementalPCA, TruncatedSVD, "
    f"Normalizer, TfidfTransformer, {ENCODERS}, ColumnTransformer of these, Pipeline, 'passthrough'"
)


def remembered(step: Any, d: int) -> tuple[Tensor, Tensor]:
    """Return the center and scale [d] of the raw columns that a fitted first step stores; 0 and 1 by default."""
    center, scale = _center(step), getattr(step, "scale_", None)
    if isinstance(step, MinMaxScaler):
        center, scale = (step.data_min_ + step.data_max_) / 2, 1 / np.asarray(scale)
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


@appended.register(StandardScaler)
@appended.register(RobustScaler)
@appended.register(MinMaxScaler)
@appended.register(MaxAbsScaler)
def _(step: Any, folded: Preprocessing) -> Preprocessing:
    if getattr(step, "clip", False):
        raise ValueError(f"{type(step).__name__}(clip=True) is not affine; set clip=False")
    if isinstance(step, MinMaxScaler):
        return folded.then(_tensor(step.scale_), _tensor(step.min_))
    centered = getattr(step, "with_mean", True)
    return _scaled(folded, step.scale_, _center(step) if centered else None, step.n_features_in_)


@appended.register(PCA)
@appended.register(IncrementalPCA)
@appended.register(TruncatedSVD)
def _(step: Any, folded: Preprocessing) -> Preprocessing:
    weight = _tensor(step.components_)
    if getattr(step, "whiten", False):
        scale = np.sqrt(step.explained_variance_)
        # the same guard against directions without variance as in scikit-learn
        weight = weight / _tensor(np.maximum(scale, np.finfo(scale.dtype).eps))[:, None]
    mean = getattr(step, "mean_", None)
    return folded.then(weight, weight.new_zeros(len(weight)) if mean is None else -weight @ _tensor(mean))


@appended.register
def _(step: TfidfTransformer, folded: Preprocessing) -> Preprocessing:
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


def _center(step: Any) -> Any:
    return getattr(step, "mean_", getattr(step, "center_", None))


def _scaled(folded: Preprocessing, scale: Any, shift: Any, d: int) -> Preprocessing:
    """Append ``(z - shift) / scale`` of `d` columns, where either may be None."""
    weight = 1 / _tensor(np.ones(d) if scale is None else scale)
    return folded.then(weight, -weight * _tensor(np.zeros(d) if shift is None else shift))


def _tensor(array: Any) -> Tensor:
    values = np.asarray(array)
    backwards = any(stride < 0 for stride in values.strides)  # PCA of sparse matrices has such components
    return torch.as_tensor(values.copy() if backwards else values, dtype=torch.float64)
