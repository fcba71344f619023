"""Fitted clusterers as tensors and JSON, and back; :func:`neonxc.save` writes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from .kernel import KernelKMeans
from .kernel.members import Members
from .kernel.supports import Supports

FITTED = ("n_features_in_", "objective_", "history_", "n_pruned_")


def pack(obj: Any) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What JSON and what tensors describe a fitted clusterer.

    Raises
    ------
    TypeError
        A clusterer that can't be saved.
    """
    if not isinstance(obj, KernelKMeans):
        raise TypeError(f"can't save a {type(obj).__name__}; save the network that neonxc.neuralize makes of it")
    check_is_fitted(obj, "gamma_")
    model = obj._model
    kind = type(model).__name__
    header = {
        "class": "KernelKMeans",
        "params": {name: _plain(value) for name, value in obj.get_params().items() if _is_plain(value)},
        "fitted": {name: getattr(obj, name) for name in FITTED},
        "feature_names": list(getattr(obj, "feature_names_in_", [])) or None,
        "classes": obj.classes_.tolist(),
        "tensor": isinstance(obj.support_vectors_, Tensor),
        "model": kind,
        "gamma": model.gamma,
    }
    tensors = {name: value for name, value in vars(model).items() if isinstance(value, Tensor)}
    return header, tensors | {
        "shift": obj._shift,
        "labels": torch.from_numpy(np.searchsorted(obj.classes_, _array(obj.labels_))),
    }


def unpack(header: dict[str, Any], tensors: dict[str, Tensor]) -> KernelKMeans:
    """The way back; an `init` of labels gets its default."""
    if header["class"] != "KernelKMeans":
        raise KeyError(header["class"])
    obj = KernelKMeans(**header["params"])
    kind = {"Supports": Supports, "Members": Members}[header["model"]]
    shift, labels = tensors.pop("shift"), tensors.pop("labels")
    obj._model, obj._shift, obj.classes_ = (
        kind(**tensors, gamma=header["gamma"]),
        shift,
        np.asarray(header["classes"]),
    )
    for name, value in header["fitted"].items():
        setattr(obj, name, value)
    if header["feature_names"] is not None:
        obj.feature_names_in_ = np.asarray(header["feature_names"], dtype=object)
    obj._publish(header["tensor"])
    named = obj.classes_[labels.numpy()]
    obj.labels_ = torch.as_tensor(named) if header["tensor"] and named.dtype.kind in "fiub" else named
    return obj


def _array(labels: Any) -> np.ndarray:
    return labels.cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str | np.generic)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
