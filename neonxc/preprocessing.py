"""Fold the affine steps of a scikit-learn pipeline into one map of the raw columns.

``z = (A x + b) / n(x) + c``, with `n` the row norm where the pipeline has a Normalizer and 1 elsewhere.
Explanations hold `n` constant, so that a cluster boundary is a hyperplane of the raw columns.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import singledispatch
from typing import Any

import numpy as np
import torch
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA, IncrementalPCA, TruncatedSVD
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, Normalizer, RobustScaler, StandardScaler
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from neonxc.sparse import SparseRows

SUPPORTED = (
    "StandardScaler, MinMaxScaler, MaxAbsScaler, RobustScaler, PCA, IncrementalPCA, TruncatedSVD, "
    "Normalizer, TfidfTransformer, ColumnTransformer of these, Pipeline, 'passthrough'"
)


@dataclass(frozen=True)
class RowNorm:
    """What a Normalizer divides by: the norm (l1, l2 or max) of ``A x + b``."""

    kind: str
    weight: Tensor
    bias: Tensor


@dataclass(frozen=True)
class Preprocessing:
    """``z = (weight x + bias) / norm(x) + offset`` from raw columns to the space of the centroids.

    `weight` is [d] (a diagonal) or [p, d]. `center` and `scale` [d] are the data's, in raw units: of all
    raw points that map to a given z, :meth:`preimage` takes the one nearest to `center` in units of `scale`.
    """

    weight: Tensor
    bias: Tensor
    offset: Tensor
    norm: RowNorm | None = None
    center: Tensor = field(default_factory=lambda: torch.empty(0))
    scale: Tensor = field(default_factory=lambda: torch.empty(0))

    @classmethod
    def identity(cls, d: int) -> Preprocessing:
        """The map that leaves `d` columns as they are."""
        zero, one = torch.zeros(d, dtype=torch.float64), torch.ones(d, dtype=torch.float64)
        return cls(one, zero, zero, None, zero, one)

    @property
    def diagonal(self) -> bool:
        """Whether no two columns are mixed."""
        return self.weight.ndim == 1

    def then(self, weight: Tensor, bias: Tensor) -> Preprocessing:
        """Append the affine step ``z -> weight z + bias``."""
        step = replace(self, weight=compose(weight, self.weight), bias=apply(weight, self.bias))
        if self.norm is None:
            return replace(step, bias=step.bias + bias, offset=torch.zeros_like(bias))
        return replace(step, offset=apply(weight, self.offset) + bias)

    def normalized(self, kind: str) -> Preprocessing:
        """Append a Normalizer."""
        if self.norm is not None and bool(self.offset.any()):
            raise ValueError(
                "a pipeline that shifts points between two Normalizer steps can't be folded; keep one of them"
            )
        # without a shift in between, the second takes back what the first divided by
        return replace(self, norm=RowNorm(kind, self.weight, self.bias))

    def pullback(self, directions: Tensor) -> Tensor:
        """Directions [M, p] of z as directions [M, d] of the raw columns: ``A' w``."""
        return directions * self.weight if self.diagonal else directions @ self.weight

    def preimage(self, shifts: Tensor) -> Tensor:
        """Shifts [M, p] of z as the least shifts [M, d], in units of `scale`, of the raw columns."""
        if self.diagonal:
            return shifts / self.weight
        back = shifts @ torch.linalg.pinv(self.weight * self.scale, rtol=1e-12).T * self.scale
        if not torch.allclose(back @ self.weight.T, shifts, atol=1e-6 * float(shifts.abs().max()) + 1e-12):
            raise ValueError(
                "the preprocessing maps no point to the mid-points of the centroids: either it was fitted again "
                "after the clusterer, or it repeats columns before a Normalizer"
            )
        return back

    def point(self, z: Tensor) -> Tensor:
        """The raw point [d] nearest to `center` at which ``A x + b`` is `z`."""
        return self.center + self.preimage((z - apply(self.weight, self.center) - self.bias)[None])[0]


def apply(weight: Tensor, vector: Tensor) -> Tensor:
    """``weight @ vector`` for a diagonal [d] or a matrix [p, d]."""
    return weight * vector if weight.ndim == 1 else weight @ vector


def compose(outer: Tensor, inner: Tensor) -> Tensor:
    """Matrix of ``outer(inner(x))``; diagonal where both are."""
    if outer.ndim == 1:
        return outer * inner if inner.ndim == 1 else outer[:, None] * inner
    return outer * inner if inner.ndim == 1 else outer @ inner


def fold(steps: list[tuple[str, Any]], d: int, data: Tensor | None = None) -> Preprocessing:
    """Fold fitted pipeline steps into one :class:`Preprocessing` of `d` raw columns.

    Where the map loses dimensions, reference points are chosen nearest to the mean of `data` in units of its
    standard deviation; without data, of what the first step remembers of its own.

    Raises
    ------
    ValueError
        A step that is not affine.
    sklearn.exceptions.NotFittedError
        A step that was not fitted.
    """
    folded = Preprocessing.identity(d)
    if data is not None:
        center, spread = _moments(data)
        folded = replace(folded, center=center, scale=torch.where(spread > 0, spread, 1.0))
    elif steps:
        center, scale = _remembered(_first(steps[0][1]), d)
        folded = replace(folded, center=center, scale=scale)
    for name, step in steps:
        try:
            folded = _append(step, folded)
        except NotFittedError as error:
            raise NotFittedError(f"pipeline step {name!r}: {error}") from None
        except ValueError as error:
            raise ValueError(f"pipeline step {name!r}: {error}") from None
        except RuntimeError as error:
            raise ValueError(
                f"pipeline step {name!r} does not fit the steps before it ({error}); fit the Pipeline again"
            ) from None
    return folded


def _moments(data: Tensor) -> tuple[Tensor, Tensor]:
    """Means and standard deviations [d] of the columns."""
    if isinstance(data, SparseRows):
        return data.moments()
    wide = data.double()
    return wide.mean(dim=0).cpu(), wide.std(dim=0, correction=0).cpu()


def _first(step: Any) -> Any:
    while isinstance(step, Pipeline):
        step = step.steps[0][1]
    return step


def _remembered(step: Any, d: int) -> tuple[Tensor, Tensor]:
    """Center and scale [d] of the raw columns as far as a fitted first step knows them."""
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
def _append(step: Any, folded: Preprocessing) -> Preprocessing:
    if step is None or step == "passthrough" or _is_function_passthrough(step):
        return folded
    raise ValueError(f"{type(step).__name__} is not an affine map neonxc can fold; it folds {SUPPORTED}")


@_append.register
def _(step: Pipeline, folded: Preprocessing) -> Preprocessing:
    for _, inner in step.steps:
        folded = _append(inner, folded)
    return folded


@_append.register
def _(step: StandardScaler, folded: Preprocessing) -> Preprocessing:
    check_is_fitted(step)
    return _scaled(folded, step.scale_, step.mean_ if step.with_mean else None, step.n_features_in_)


@_append.register
def _(step: RobustScaler, folded: Preprocessing) -> Preprocessing:
    check_is_fitted(step)
    return _scaled(folded, step.scale_, step.center_, step.n_features_in_)


@_append.register
def _(step: MinMaxScaler, folded: Preprocessing) -> Preprocessing:
    check_is_fitted(step)
    if step.clip:
        raise ValueError("MinMaxScaler(clip=True) is not affine; set clip=False")
    return folded.then(_tensor(step.scale_), _tensor(step.min_))


@_append.register
def _(step: MaxAbsScaler, folded: Preprocessing) -> Preprocessing:
    check_is_fitted(step)
    if getattr(step, "clip", False):
        raise ValueError("MaxAbsScaler(clip=True) is not affine; set clip=False")
    return _scaled(folded, step.scale_, None, step.n_features_in_)


@_append.register(PCA)
@_append.register(IncrementalPCA)
def _(step: PCA | IncrementalPCA, folded: Preprocessing) -> Preprocessing:
    check_is_fitted(step)
    weight = _tensor(step.components_)
    if step.whiten:
        scale = np.sqrt(step.explained_variance_)
        # scikit-learn's own guard against directions without variance
        weight = weight / _tensor(np.maximum(scale, np.finfo(scale.dtype).eps))[:, None]
    return folded.then(weight, -weight @ _tensor(step.mean_))


@_append.register
def _(step: TruncatedSVD, folded: Preprocessing) -> Preprocessing:
    check_is_fitted(step)
    weight = _tensor(step.components_)
    return folded.then(weight, weight.new_zeros(len(weight)))


@_append.register
def _(step: Normalizer, folded: Preprocessing) -> Preprocessing:
    return folded.normalized(step.norm)


@_append.register
def _(step: TfidfTransformer, folded: Preprocessing) -> Preprocessing:
    check_is_fitted(step)
    if step.sublinear_tf:
        raise ValueError(
            "TfidfTransformer(sublinear_tf=True) is folded right behind a CountVectorizer alone: anywhere else it "
            "is not affine"
        )
    if step.use_idf:
        folded = folded.then(_tensor(step.idf_), torch.zeros(len(step.idf_), dtype=torch.float64))
    return folded if step.norm is None else folded.normalized(step.norm)


@_append.register
def _(step: ColumnTransformer, folded: Preprocessing) -> Preprocessing:
    check_is_fitted(step)
    d = step.n_features_in_
    names = list(getattr(step, "feature_names_in_", []))
    if getattr(step, "transformer_weights", None):
        raise ValueError("transformer_weights of a ColumnTransformer are not supported")
    weights, biases = [], []
    for name, inner, columns in step.transformers_:
        if isinstance(inner, str) and inner == "drop":
            continue
        index = _column_index(columns, names, d)
        if not index:  # scikit-learn does not even fit it
            continue
        block = _append(inner, Preprocessing.identity(len(index)))
        if block.norm is not None:
            raise ValueError(f"a Normalizer inside a ColumnTransformer ({name!r}) can't be folded")
        weights.append(_full(block.weight) @ torch.eye(d, dtype=torch.float64)[index])
        biases.append(block.bias)
    if not weights:
        raise ValueError("the ColumnTransformer keeps no column")
    return folded.then(torch.cat(weights), torch.cat(biases))


def _is_function_passthrough(step: Any) -> bool:
    """scikit-learn replaces a fitted 'passthrough' by a FunctionTransformer without a function."""
    return type(step).__name__ == "FunctionTransformer" and step.func is None


def _column_index(columns: Any, names: list[str], d: int) -> list[int]:
    if isinstance(columns, (str, int)):
        columns = [columns]
    if isinstance(columns, slice):
        if isinstance(columns.start, str) or isinstance(columns.stop, str):
            start = names.index(columns.start) if columns.start is not None else 0
            stop = names.index(columns.stop) + 1 if columns.stop is not None else d
            return list(range(start, stop))
        return list(range(d))[columns]
    if len(columns) and isinstance(columns[0], (bool, np.bool_)):
        return [int(i) for i in np.flatnonzero(columns)]
    return [names.index(c) if isinstance(c, str) else int(c) % d for c in columns]


def _scaled(folded: Preprocessing, scale: Any, shift: Any, d: int) -> Preprocessing:
    """Append ``(z - shift) / scale`` of `d` columns; None leaves either out."""
    weight = 1 / _tensor(np.ones(d) if scale is None else scale)
    return folded.then(weight, -weight * _tensor(np.zeros(d) if shift is None else shift))


def _full(weight: Tensor) -> Tensor:
    return torch.diag(weight) if weight.ndim == 1 else weight


def _tensor(array: Any) -> Tensor:
    return torch.as_tensor(np.asarray(array), dtype=torch.float64)
