"""How a fitted KernelKMeans is stored."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from neonxc.parameters import check_number, plain_parameters
from neonxc.registry import register

from .checks import check_options
from .estimator import KernelKMeans
from .members import Members
from .supports import Supports

FITTED = ("n_features_in_", "objective_", "history_", "n_pruned_")


def _pack(obj: KernelKMeans) -> dict[str, Any]:
    check_is_fitted(obj)
    labels = obj.labels_.cpu().numpy() if isinstance(obj.labels_, Tensor) else np.asarray(obj.labels_)
    return {
        "params": plain_parameters(obj),
        **{name: getattr(obj, name) for name in FITTED},
        "feature_names": list(getattr(obj, "feature_names_in_", [])) or None,
        "classes": obj.classes_.tolist(),
        "tensor": isinstance(obj.support_vectors_, Tensor),
        "model": obj._model,
        "shift": obj._shift,
        "labels": torch.from_numpy(np.searchsorted(obj.classes_, labels)),
    }


def _unpack(cls: type[KernelKMeans], values: dict[str, Any]) -> KernelKMeans:
    obj = cls(**values["params"])
    check_options(obj, labels=False)
    obj._model, obj._shift, obj.classes_ = values["model"], values["shift"], np.asarray(values["classes"])
    check_number("gamma", obj._model.gamma)
    for name in FITTED:
        setattr(obj, name, values[name])
    if values["feature_names"] is not None:
        obj.feature_names_in_ = np.asarray(values["feature_names"], dtype=object)
    used = obj._distances(torch.zeros(1, obj.n_features_in_))  # what does not fit together shows now
    if used.shape != (1, len(obj.classes_)) or not isinstance(obj.history_, list):
        raise TypeError(f"its model has not one distance for each of {len(obj.classes_)} classes")
    obj._publish(values["tensor"])
    labels = obj.classes_[values["labels"].numpy()]
    obj.labels_ = torch.as_tensor(labels) if values["tensor"] and labels.dtype.kind in "fiub" else labels
    return obj


register(KernelKMeans, _pack, _unpack)
for _model in (Supports, Members):
    register(_model, lambda obj: dict(vars(obj)), lambda cls, values: cls(**values))
