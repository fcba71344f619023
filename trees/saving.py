"""How threshold trees and fitted tree explainers are stored."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from neonxc.parameters import plain_parameters
from neonxc.registry import register
from neonxc.trees.estimator import TreeExplainer
from neonxc.trees.tree import ThresholdTree

NODES = ("feature", "threshold", "left", "right", "label", "samples", "mistakes", "intervals", "spread")
FITTED = ("inertia_", "depth_factor_", "goals_met_", "criterion_", "gamma_", "n_features_in_")


def register_explainer(cls: type[TreeExplainer]) -> type[TreeExplainer]:
    """Let :func:`neonxc.save` keep fitted explainers of a class, which may be a user's own; a class decorator.

    A file holds the tree, the labels, the centers and those parameters that are numbers, strings or None. The
    class has to be registered before such a file is loaded.
    """
    register(cls, _pack_explainer, _unpack_explainer)
    return cls


def _pack_explainer(obj: TreeExplainer) -> dict[str, Any]:
    check_is_fitted(obj, "tree_")
    labels = obj.labels_.cpu().numpy() if isinstance(obj.labels_, Tensor) else np.asarray(obj.labels_)
    return {
        "params": plain_parameters(obj),
        "fitted": {name: getattr(obj, name) for name in FITTED if hasattr(obj, name)},
        "tensor": obj._is_tensor,
        "whole": obj._steps is None,
        "tree": obj.tree_,
        "space_means": obj._space_means,
        "cluster_centers": torch.as_tensor(obj.cluster_centers_),
        "labels": torch.from_numpy(np.searchsorted(obj.tree_.classes, labels)),
    }


def _unpack_explainer(cls: type[TreeExplainer], values: dict[str, Any]) -> TreeExplainer:
    obj, tree = cls(**values["params"]), values["tree"]
    for name in values["fitted"].keys() & FITTED:
        setattr(obj, name, values["fitted"][name])
    if tree.feature_names is not None:
        obj.feature_names_in_ = np.asarray(tree.feature_names, dtype=object)
    obj.tree_, obj._is_tensor, obj._space_means = tree, values["tensor"], values["space_means"]
    obj._steps = None if values["whole"] else False
    centers, labels = values["cluster_centers"], tree.classes[values["labels"].numpy()]
    obj.cluster_centers_ = centers if obj._is_tensor else centers.numpy()
    obj.labels_ = torch.from_numpy(labels) if obj._is_tensor and labels.dtype.kind in "fiub" else labels
    return obj


def _pack_tree(tree: ThresholdTree) -> dict[str, Any]:
    return {
        **{name: getattr(tree, name) for name in NODES},
        "n_features": tree.n_features,
        "classes": tree.classes.tolist(),
        "classes_type": "O" if tree.classes.dtype == object else tree.classes.dtype.str,
        "feature_names": tree.feature_names,
    }


def _unpack_tree(cls: type[ThresholdTree], values: dict[str, Any]) -> ThresholdTree:
    names, classes = values["feature_names"], np.asarray(values["classes"], dtype=values["classes_type"])
    tree = cls(
        **{name: values[name] for name in NODES},
        n_features=int(values["n_features"]),
        classes=classes,
        feature_names=None if names is None else tuple(names),
    )
    tree.predict(torch.zeros(1, tree.n_features))  # what does not fit together shows now
    return tree


register(ThresholdTree, _pack_tree, _unpack_tree)
