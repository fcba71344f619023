"""How a fitted KernelKMeans is stored."""

from __future__ import annotations

from torch import Tensor

from neonxc.common.arguments import check_number
from neonxc.common.estimators import pack_estimator, pack_fields, unpack_estimator
from neonxc.common.registry import Values, register

from .checks import check_options
from .estimator import KernelKMeans
from .members import Members
from .supports import Supports

FITTED = ("n_features_in_", "feature_names_in_", "objective_", "history_", "n_pruned_", "classes_", "labels_")
INNER = ("_model", "_shift")


def _pack(obj: KernelKMeans) -> Values:
    return pack_estimator(obj, FITTED + INNER) | {"tensor": isinstance(obj.support_vectors_, Tensor)}


def _unpack(cls: type[KernelKMeans], values: Values) -> KernelKMeans:
    obj = unpack_estimator(cls, values, FITTED + INNER)
    check_options(obj, labels=False)
    check_number("gamma", obj._model.gamma)
    used = obj._distances(obj._shift[None].expand(1, obj.n_features_in_))  # what does not fit together shows now
    if used.shape != (1, len(obj.classes_)) or not isinstance(obj.history_, list):
        raise TypeError(f"its model has not one distance for each of {len(obj.classes_)} classes")
    obj._publish(values["tensor"])
    return obj


register(KernelKMeans, _pack, _unpack)
for _model in (Supports, Members):
    register(_model, pack_fields, lambda cls, values: cls(**values))
