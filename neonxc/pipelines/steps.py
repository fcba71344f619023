"""What the fitted steps of scikit-learn pipelines do: affine maps of columns, and encoders of single columns.

The steps that are folded by their fitted attributes are:

    StandardScaler, RobustScaler, MaxAbsScaler    (x - center) / scale_, with the mean, the median, or 0
    MinMaxScaler                                  scale_ x + min_
    PCA, IncrementalPCA, TruncatedSVD             components_ (x - mean_); whitened by standard deviations
    TfidfTransformer                              idf_ x, which may be normalized
    Normalizer                                    x / |x|
    OneHotEncoder, OrdinalEncoder                 indicators, and codes, of categories
    SimpleImputer                                 x, or a fill where x is missing; indicators of missing values
    FunctionTransformer                           an increasing function of every x
    selectors                                     some of the columns
"""

from __future__ import annotations

from collections.abc import Iterator
from inspect import getattr_static
from typing import Any

import numpy as np
import pandas as pd
import sklearn
import torch
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import NMF, PCA, IncrementalPCA, KernelPCA, TruncatedSVD
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.feature_selection import SelectorMixin
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    KBinsDiscretizer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    SplineTransformer,
    StandardScaler,
)
from torch import Tensor

from neonxc.common.numbers import is_missing
from neonxc.common.types import ArrayLike
from neonxc.data.kinds import plain
from neonxc.head.preprocessing import Preprocessing
from neonxc.pipelines.encoding import Encoding
from neonxc.pipelines.parts import FUNCTIONS, Code, Indicator, Number, Part

NAMED = ", ".join(f"np.{name}" for name in FUNCTIONS)
SUPPORTED = (
    "StandardScaler, MinMaxScaler, MaxAbsScaler, RobustScaler, PCA, IncrementalPCA, TruncatedSVD, Normalizer, "
    "TfidfTransformer, OneHotEncoder, OrdinalEncoder, SimpleImputer, "
    f"FunctionTransformer of {NAMED}, VarianceThreshold, SelectKBest and other selectors, ColumnTransformer and "
    "FeatureUnion of these, Pipeline, 'passthrough', and, if X is passed, any other step that is affine"
)
FORMULAS = (
    *(StandardScaler, MinMaxScaler, MaxAbsScaler, RobustScaler, PCA, IncrementalPCA, TruncatedSVD, Normalizer),
    *(TfidfTransformer, OneHotEncoder, OrdinalEncoder, SimpleImputer, FunctionTransformer),
)
"""Transformers whose fitted attributes tell what they do."""
CONTAINERS = (Pipeline, ColumnTransformer, FeatureUnion)
NOT_AFFINE = {
    (PowerTransformer, QuantileTransformer): "It bends the columns",
    (KBinsDiscretizer, Binarizer): "It cuts the columns into bins",
    (PolynomialFeatures,): "It multiplies columns",
    (SplineTransformer,): "It makes piecewise polynomials of the columns",
    (KNNImputer,): "It fills missing values by those of other rows; a SimpleImputer can be folded",
    (KernelPCA, NMF): "Its components are not weighted sums of the columns",
}
"""Reasons why steps that many use are not folded; with some of their options they are affine."""
CURVED = (PowerTransformer, QuantileTransformer, KBinsDiscretizer, Binarizer, SplineTransformer, NMF)
"""Those that are affine with none."""
# Ways to handle unknown values that count them as infrequent; scikit-learn before 1.8 only says so of "warn"
UNKNOWN_IS_RARE = {"infrequent_if_exist"}
if tuple(map(int, sklearn.__version__.split(".")[:2])) >= (1, 8):
    UNKNOWN_IS_RARE.add("warn")


class WithoutFormula(ValueError):
    """A step has no formula here, and may be affine all the same; the message names it."""


def has_formula(step: object, classes: tuple[type, ...] = FORMULAS) -> bool:
    """Whether a step is an instance of a class itself, and not of a subclass, which may do otherwise."""
    return type(step) in classes and "transform" not in vars(step)


def inherited(step: object, classes: tuple[type, ...] = (*FORMULAS, *CONTAINERS)) -> type | None:
    """Return the class of scikit-learn whose `transform` a step of a class of its own has kept."""
    base = next((kind for kind in classes if isinstance(step, kind)), None)
    if base is None or "transform" in vars(step):
        return None
    is_kept = getattr_static(step, "transform") is getattr_static(base, "transform")
    return base if is_kept else None


def marks_missing_text_by_none(step: object) -> bool:
    """Whether an encoder in a model, at any depth, has learned None as a category; others have learned NaN."""
    match step:
        case OneHotEncoder() | OrdinalEncoder():
            learned = getattr(step, "categories_", [])
            return any(value is None for values in learned for value in values)
        case Pipeline():
            inner = [inner for _, inner in step.steps]
        case ColumnTransformer():
            inner = [inner for _, inner, _ in getattr(step, "transformers_", [])]
        case FeatureUnion():
            inner = [inner for _, inner in step.transformer_list]
        case _:
            return False
    return any(map(marks_missing_text_by_none, inner))


def selected(step: Any) -> list[int] | None:
    """Return the columns that a selector of scikit-learn's kind keeps; None if the step is not a selector."""
    if inherited(step, (SelectorMixin,)) is None:
        return None
    return list(np.flatnonzero(step.get_support()).tolist())


def is_curved(step: object) -> bool:
    """Whether it is known of a step that it is not affine."""
    return isinstance(step, CURVED)


def without_formula(step: object) -> WithoutFormula:
    """Return the error about a step without a formula."""
    reason = ""
    for kinds, reason_of_kinds in NOT_AFFINE.items():
        if isinstance(step, kinds):
            reason = f". {reason_of_kinds}"
            break
    for kind in (*FORMULAS, *CONTAINERS):
        if isinstance(step, kind):
            reason = f". It is not scikit-learn's own {kind.__name__}, and may do otherwise"
            break
    name = type(step).__name__
    return WithoutFormula(f"{name} is not an affine map neonxc can fold; it folds {SUPPORTED}{reason}")


def remembered(step: object, d: int) -> tuple[Tensor, Tensor]:
    """Return the center and scale [d] of the raw columns that a fitted first step stores; 0 and 1 by default."""
    if isinstance(step, MinMaxScaler):
        middle = (step.data_min_ + step.data_max_) / 2
        return _tensor(middle), 1 / _tensor(step.scale_)
    center = getattr(step, "mean_", getattr(step, "center_", None))
    scale = getattr(step, "scale_", None)
    if center is None:
        center = np.zeros(d)
    if scale is None:
        scale = np.ones(d)
    return _tensor(center), _tensor(scale)


def with_step(step: object, folded: Preprocessing) -> Preprocessing:
    """Append a fitted step to a map.

    Raises
    ------
    ValueError
        The step is not affine.
    WithoutFormula
        It is not known whether it is.
    """
    if getattr(step, "clip", False):
        raise ValueError(f"{type(step).__name__}(clip=True) is not affine; set clip=False")
    center, scale = remembered(step, getattr(step, "n_features_in_", 0))
    match step:
        case FunctionTransformer():  # without a function
            return folded
        case Normalizer():
            return folded.normalized(step.norm)
        case MinMaxScaler():
            return folded.then(_tensor(step.scale_), _tensor(step.min_))
        case StandardScaler() | RobustScaler() | MaxAbsScaler():
            bias = -center / scale * getattr(step, "with_mean", True)
            return folded.then(1 / scale, bias)
        case PCA() | IncrementalPCA() | TruncatedSVD():
            weight = _tensor(step.components_)
            if getattr(step, "whiten", False):
                spread = np.sqrt(step.explained_variance_)
                # the same guard against directions without variance as in scikit-learn
                spread = np.maximum(spread, np.finfo(spread.dtype).eps)
                weight = weight / _tensor(spread)[:, None]
            return folded.then(weight, -weight @ center)
        case TfidfTransformer(sublinear_tf=False):
            if step.use_idf:
                folded = folded.then(_tensor(step.idf_), center)
            return folded if step.norm is None else folded.normalized(step.norm)
        case TfidfTransformer():
            raise ValueError(
                "TfidfTransformer(sublinear_tf=True) can only be folded directly after a CountVectorizer; "
                "elsewhere it is not affine"
            )
    raise without_formula(step)


def encoded(step: object) -> Encoding | None:
    """Return the encoding of a fitted step's own columns, which have no names; None if it is not an encoder."""
    match step:
        case FunctionTransformer() if step.func is not None:
            return _function(step)
        case SimpleImputer():
            return _imputer(step)
        case OneHotEncoder() | OrdinalEncoder():
            return _encoder(step)
    return None


def _function(step: FunctionTransformer) -> Encoding:
    name = next((name for name, function in FUNCTIONS.items() if function is step.func), None)
    if name is None or step.kw_args:
        function_name = getattr(step.func, "__name__", step.func)
        arguments = f" with kw_args {step.kw_args}" if step.kw_args else ""
        raise WithoutFormula(
            f"FunctionTransformer of {function_name}{arguments} can't be folded; "
            f"supported are func=None and the increasing functions {NAMED} without kw_args"
        )
    return Encoding((), tuple(Number(i, functions=(name,)) for i in range(step.n_features_in_)))


def _imputer(step: SimpleImputer) -> Encoding:
    if not is_missing(step.missing_values):
        raise ValueError(
            f"SimpleImputer(missing_values={step.missing_values!r}) can't be folded: missing values need to be "
            f"NaN, None or pandas.NA; fit it on X.replace({step.missing_values!r}, numpy.nan)"
        )
    fills = [plain(value) for value in step.statistics_]
    parts: list[Part] = [Number(i, fill) for i, fill in enumerate(fills) if fill is not None]
    if step.indicator_ is not None:
        parts += [Indicator(int(i), (None,)) for i in step.indicator_.features_]
    # with "mean" and "median" None becomes NaN; pandas.NA stands for all missing values
    takes_nan_alone = step.strategy not in ("mean", "median") and pd.api.types.is_float(step.missing_values)
    nan_alone = frozenset(range(len(fills))) if takes_nan_alone else frozenset[int]()
    return Encoding((), tuple(parts), nan_alone=nan_alone)


def _encoder(step: OneHotEncoder | OrdinalEncoder) -> Encoding:
    parts: list[Part] = []
    known = {}
    for i, (values, rare) in enumerate(_categories(step)):
        if isinstance(step, OneHotEncoder):
            parts += _one_hot(step, i, values, rare)
        else:
            parts.append(_ordinal(step, i, values, rare))
        if step.handle_unknown == "error":
            known[i] = values
    return Encoding((), tuple(parts), known)


def _one_hot(step: OneHotEncoder, i: int, values: tuple[Any, ...], rare: tuple[Any, ...]) -> list[Part]:
    """Return the indicators of the categories of a column: the frequent ones, and all rare ones together."""
    frequent = tuple(value for value in values if value not in rare)
    parts: list[Part] = [Indicator(i, (value,)) for value in frequent]
    if rare and step.handle_unknown in UNKNOWN_IS_RARE:
        parts.append(Code(i, frequent, 1.0, (0.0,) * len(frequent)))  # 1 for all that is not frequent
    elif rare:
        parts.append(Indicator(i, rare))
    dropped_index = None if step.drop_idx_ is None else step.drop_idx_[i]
    if dropped_index is not None:
        dropped = values[dropped_index]
        del parts[-1 if dropped in rare else frequent.index(dropped)]
    return parts


def _ordinal(step: OrdinalEncoder, i: int, values: tuple[Any, ...], rare: tuple[Any, ...]) -> Code:
    """Return the codes of the categories of a column: positions of the frequent ones, and one of all rare ones."""
    unknown = None if is_missing(step.unknown_value) else float(step.unknown_value)
    # NaN, the last category, has a code of its own, and None does not
    has_nan = values[-1] is None and step.categories_[i][-1] is not None
    listed = values[:-1] if has_nan else values
    frequent = [value for value in listed if value not in rare]
    codes = {value: float(code) for code, value in enumerate(frequent)}
    codes |= dict.fromkeys(rare, float(len(frequent)))
    if has_nan:
        codes[None] = float(step.encoded_missing_value)
    return Code(i, tuple(codes), unknown, tuple(codes.values()))


def _categories(step: OneHotEncoder | OrdinalEncoder) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
    """Yield the categories of each column, and the infrequent ones, which are encoded as one."""
    infrequent = getattr(step, "infrequent_categories_", [None] * len(step.categories_))
    for i, (categories, infrequent_categories) in enumerate(zip(step.categories_, infrequent, strict=True)):
        values = tuple(map(plain, categories))
        rare = () if infrequent_categories is None else tuple(map(plain, infrequent_categories))
        if len(set(values)) < len(values):
            raise ValueError(f"its column {i} has both None and NaN as categories; use one of them")
        yield values, rare


def _tensor(array: ArrayLike) -> Tensor:
    return torch.from_numpy(np.array(array, dtype=np.float64, order="C"))
