"""Fitted clusterers as tensors and JSON, and back; :func:`neonxc.save` writes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from neonxc.parameters import check_number, plain_parameters

from .kernel import KernelKMeans
from .kernel.checks import check_options
from .kernel.members import Members
from .kernel.supports import Supports
from .recipes import build
from .scan import SCAN

KERNEL = ("n_features_in_", "objective_", "history_", "n_pruned_")
EMBEDDING = "embedding."


def pack(obj: Any) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What JSON and what tensors describe a fitted clusterer.

    Raises
    ------
    TypeError
        A clusterer that can't be saved, or whose backbone has no recipe.
    """
    check_is_fitted(obj)
    if isinstance(obj, KernelKMeans):
        header, tensors = _pack_kernel(obj)
    elif isinstance(obj, SCAN):
        header, tensors = _pack_scan(obj)
    else:
        raise TypeError(f"can't save a {type(obj).__name__}; save the network that neonxc.neuralize makes of it")
    return {"class": type(obj).__name__, "params": plain_parameters(obj), **header}, tensors


def unpack(header: dict[str, Any], tensors: dict[str, Tensor]) -> KernelKMeans | SCAN:
    """The way back; parameters that are no numbers or strings get their defaults."""
    kinds: dict[str, Callable[..., KernelKMeans | SCAN]] = {"KernelKMeans": _unpack_kernel, "SCAN": _unpack_scan}
    try:
        return kinds[header["class"]](header, tensors)
    except ValueError as error:
        raise TypeError(str(error)) from error  # what load takes for damage


def _pack_kernel(obj: KernelKMeans) -> tuple[dict[str, Any], dict[str, Tensor]]:
    model = obj._model
    labels = obj.labels_.cpu().numpy() if isinstance(obj.labels_, Tensor) else np.asarray(obj.labels_)
    header = {
        "fitted": {name: getattr(obj, name) for name in KERNEL},
        "feature_names": list(getattr(obj, "feature_names_in_", [])) or None,
        "classes": obj.classes_.tolist(),
        "tensor": isinstance(obj.support_vectors_, Tensor),
        "model": type(model).__name__,
        "gamma": model.gamma,
    }
    tensors = {name: value for name, value in vars(model).items() if isinstance(value, Tensor)}
    own = {"shift": obj._shift, "labels": torch.from_numpy(np.searchsorted(obj.classes_, labels))}
    return header, tensors | own


def _unpack_kernel(header: dict[str, Any], tensors: dict[str, Tensor]) -> KernelKMeans:
    obj = KernelKMeans(**header["params"])
    check_options(obj, labels=False)
    check_number("gamma", header["gamma"])
    model = {"Supports": Supports, "Members": Members}[header["model"]]
    obj._shift, labels = tensors.pop("shift"), tensors.pop("labels")
    obj._model, obj.classes_ = model(**tensors, gamma=header["gamma"]), np.asarray(header["classes"])
    for name in KERNEL:
        setattr(obj, name, header["fitted"][name])
    if header["feature_names"] is not None:
        obj.feature_names_in_ = np.asarray(header["feature_names"], dtype=object)
    used = obj._distances(torch.zeros(1, obj.n_features_in_))  # what does not fit together shows now
    if used.shape != (1, len(obj.classes_)) or not isinstance(obj.history_, list):
        raise TypeError(f"its model has not one distance for each of {len(obj.classes_)} classes")
    obj._publish(header["tensor"])
    named = obj.classes_[labels.numpy()]
    obj.labels_ = torch.as_tensor(named) if header["tensor"] and named.dtype.kind in "fiub" else named
    return obj


def _pack_scan(obj: SCAN) -> tuple[dict[str, Any], dict[str, Tensor]]:
    recipe = getattr(obj.embedding_, "recipe", None)
    if recipe is None:
        raise TypeError(
            "can't save a SCAN whose backbone is a network of your own; save the network that neonxc.neuralize "
            "makes of it, which neonxc.load takes back with features=scan.embedding_"
        )
    header = {
        "recipe": recipe,
        "image_shape": list(obj.image_shape_),
        "losses": obj.losses_.tolist(),
        "history": obj.history_,
    }
    tensors = {EMBEDDING + name: value for name, value in obj.embedding_.state_dict().items()}
    head = obj.cluster_head_
    arrays = {"labels": torch.from_numpy(obj.labels_), "neighbors": torch.from_numpy(obj.neighbors_)}
    return header, tensors | arrays | {"weight": head.weight, "bias": head.bias}


def _unpack_scan(header: dict[str, Any], tensors: dict[str, Tensor]) -> SCAN:
    obj = SCAN(**header["params"])
    obj._check()
    state = {name.removeprefix(EMBEDDING): t for name, t in tensors.items() if name.startswith(EMBEDDING)}
    obj.embedding_ = build(header["recipe"], {name: tuple(tensor.shape) for name, tensor in state.items()})
    obj.embedding_.load_state_dict(state, assign=True)
    obj.embedding_.eval()
    K, d = tensors["weight"].shape
    obj.cluster_head_ = nn.Linear(d, K)
    obj.cluster_head_.load_state_dict({"weight": tensors["weight"], "bias": tensors["bias"]}, assign=True)
    obj.image_shape_, obj.history_ = tuple(header["image_shape"]), header["history"]
    obj.losses_, obj.labels_ = np.array(header["losses"]), tensors["labels"].numpy()
    obj.neighbors_ = tensors["neighbors"].numpy()
    obj.predict(torch.zeros(1, *obj.image_shape_))  # what does not fit together shows now
    return obj
