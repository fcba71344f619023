"""Trees and tree explainers as tensors and JSON, and back; :func:`neonxc.save` writes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from neonxc.parameters import plain_parameters
from neonxc.trees.estimator import TreeExplainer
from neonxc.trees.tree import ThresholdTree

NODES = ("feature", "threshold", "left", "right", "label", "samples", "mistakes")
NUMBERS = ("inertia_", "depth_factor_", "goals_met_", "criterion_", "gamma_", "n_features_in_")


def pack(obj: ThresholdTree | TreeExplainer) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What JSON and what tensors describe a tree or a fitted tree explainer."""
    if isinstance(obj, ThresholdTree):
        return _pack_tree(obj)
    check_is_fitted(obj, "tree_")
    header, tensors = _pack_tree(obj.tree_)
    header["estimator"] = {
        "class": type(obj).__name__,
        "params": plain_parameters(obj),
        "fitted": {name: getattr(obj, name) for name in NUMBERS if hasattr(obj, name)},
        "tensor": obj._is_tensor,
        "whole": obj._steps is None,
    }
    tensors["space_means"] = obj._space_means
    tensors["cluster_centers"] = torch.as_tensor(obj.cluster_centers_).clone()  # no two may share memory
    labels = obj.labels_.cpu().numpy() if isinstance(obj.labels_, Tensor) else np.asarray(obj.labels_)
    tensors["labels"] = torch.from_numpy(np.searchsorted(obj.tree_.classes, labels))
    return header, tensors


def unpack(header: dict[str, Any], tensors: dict[str, Tensor]) -> ThresholdTree | TreeExplainer:
    """The way back; parameters that are no numbers or strings (estimators) get their defaults."""
    names = header["feature_names"]
    tree = ThresholdTree(
        **{name: tensors[name] for name in NODES},
        n_features=int(header["n_features"]),
        classes=np.asarray(header["classes"], dtype=header["classes_type"]),
        feature_names=None if names is None else tuple(names),
        intervals=tensors.get("intervals"),
        spread=tensors.get("spread"),
    )
    described = header.get("estimator")
    if described is None:
        return tree
    from neonxc import trees

    if described["class"] not in trees.__all__:
        raise KeyError(described["class"])
    obj: TreeExplainer = getattr(trees, described["class"])(**described["params"])
    for name, value in described["fitted"].items():
        setattr(obj, name, value)
    if tree.feature_names is not None:
        obj.feature_names_in_ = np.asarray(tree.feature_names, dtype=object)
    obj.tree_, obj._is_tensor, obj._space_means = tree, described["tensor"], tensors["space_means"]
    obj._steps = None if described["whole"] else False
    centers, labels = tensors["cluster_centers"], tree.classes[tensors["labels"].numpy()]
    obj.cluster_centers_ = centers if obj._is_tensor else centers.numpy()
    is_number = labels.dtype.kind in "fiub"
    obj.labels_ = torch.from_numpy(labels) if obj._is_tensor and is_number else labels
    return obj


def _pack_tree(tree: ThresholdTree) -> tuple[dict[str, Any], dict[str, Tensor]]:
    header = {
        "n_features": tree.n_features,
        "classes": tree.classes.tolist(),
        "classes_type": "O" if tree.classes.dtype == object else tree.classes.dtype.str,
        "feature_names": None if tree.feature_names is None else list(tree.feature_names),
    }
    tensors: dict[str, Tensor] = {name: getattr(tree, name) for name in NODES}
    for name in ("intervals", "spread"):
        if getattr(tree, name) is not None:
            tensors[name] = getattr(tree, name)
    return header, tensors
