"""The network of a k-center clustering, and how the fitted clusterers of this folder are stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from neonxc.clusterings import ClusterModel, read
from neonxc.clusterings.readers import nearest_centroid
from neonxc.common.registry import Values, pack_estimator, register, unpack_estimator
from neonxc.data.kinds import plain

from .beta import BetaInterpretable
from .kcenter import CenterClusterer, KCenter
from .metric import Metric
from .strong import StronglyInterpretable
from .values_of_interest import Coding, Interest

Coded = TypeVar("Coded", Metric, Interest)

FITTED = (
    "n_features_in_",
    "feature_names_in_",
    "classes_",
    "labels_",
    "center_indices_",
    "radius_",
    "_metric",
    "_centers",
    "_interest",
    "foi_values_",
    "foi_codes_",
    "majority_",
    "objective_",
    "interpretability_",
    "interpretabilities_",
    "beta_max_",
    "converged_",
    "n_iter_",
)


def _pack(model: CenterClusterer) -> Values:
    """Pack the fitted attributes; the columns of centers in a data frame become lists with their types."""
    values = pack_estimator(model, FITTED)
    centers: Any = model.cluster_centers_
    if isinstance(centers, pd.DataFrame):
        values["kinds"] = centers.dtypes.astype(str).to_dict()
        centers = {name: [*map(plain, column)] for name, column in centers.items()}
    return values | {"centers": centers}


def _unpack(cls: type[CenterClusterer], values: Values) -> CenterClusterer:
    model = unpack_estimator(cls, values, FITTED)
    model.cluster_centers_ = values["centers"]
    if "kinds" in values:
        _check_kinds(values["kinds"])
        frame = pd.DataFrame(model.cluster_centers_, index=model.center_indices_)
        model.cluster_centers_ = frame.astype(values["kinds"])
    return model


def _check_kinds(kinds: dict[str, str]) -> None:
    """Raise a ValueError if a column's type is one of NumPy with a size of its own, which no frame has."""
    for kind in kinds.values():
        try:
            has_size = np.dtype(kind).kind in "SUV"
        except TypeError:  # a type of pandas, which has no size
            continue
        if has_size and kind != "str":
            raise ValueError(f"{kind!r} is not a type of a column")


def _pack_metric(metric: Metric) -> Values:
    if not isinstance(metric.name, str):
        raise TypeError(f"can't save a clustering whose metric is a function, {metric.name!r}")
    params = {}
    for name, value in metric.params.items():
        params[name] = value.tolist() if hasattr(value, "tolist") else value
    return vars(metric) | {"params": params}


def _unpack_coded(cls: Callable[..., Coded], values: Values) -> Coded:
    """Rebuild a metric or an interest, whose columns have codings."""
    values.pop("gaps", None)  # metrics in files of version 0.2
    return cls(**values | {"codings": [*map(_coding, values["codings"])]})


def _coding(stored: dict[str, Any] | list[Any] | None) -> Coding | None:
    """Rebuild a coding; None is that of a column of numbers.

    In files of version 0.2, codings are dictionaries with more entries.
    """
    if not stored:
        return None
    entries = [*stored.values()] if isinstance(stored, dict) else stored
    return Coding(*entries[:3])


for _estimator in (KCenter, StronglyInterpretable, BetaInterpretable):
    register(_estimator, _pack, _unpack)
register(Metric, _pack_metric, _unpack_coded)
register(Interest, vars, _unpack_coded)


@read.register
def _read_kcenter(model: KCenter) -> ClusterModel:
    check_is_fitted(model, "labels_")
    if model.metric not in ("euclidean", "l2"):
        raise ValueError(
            f'only a KCenter with metric="euclidean" can be converted to a network, got {model.metric!r}; '
            "neonxc.neuralize(labels=model.labels_, X=X) explains its labels"
        )
    return nearest_centroid(model._centers)
