"""Saving and loading of threshold trees and fitted tree explainers."""

from __future__ import annotations

from inspect import signature
from typing import TypeVar

import torch

from neonxc.common.registry import Values, pack_estimator, pack_fields, register, unpack_estimator
from neonxc.trees.estimator import TreeExplainer
from neonxc.trees.fit.mixed import Standardized
from neonxc.trees.tree import ThresholdTree, as_tree

Explainer = TypeVar("Explainer", bound=type[TreeExplainer])
FITTED = ("n_features_in_", "feature_names_in_", "tree_", "labels_", "cluster_centers_", "inertia_")
OF_SOME_CLASSES = ("depth_factor_", "goals_met_", "gamma_")
INNER = ("_space_means",)


def register_explainer(cls: Explainer) -> Explainer:
    """Class decorator that lets :func:`neonxc.save` store fitted explainers of the class.

    A file holds the tree, the labels, the centers, and the parameters that are numbers, strings or None. The class
    must be registered before such a file is loaded.
    """
    register(cls, _pack_explainer, _unpack_explainer)
    return cls


def _pack_explainer(obj: TreeExplainer) -> Values:
    values = pack_estimator(obj, FITTED + OF_SOME_CLASSES + INNER) | {"whole": obj._steps is None}
    if isinstance(obj._steps, Standardized):
        values = values | {"steps": obj._steps}
    return values


def _unpack_explainer(cls: type[TreeExplainer], values: Values) -> TreeExplainer:
    if "max_bins" not in signature(cls).parameters:  # RandomThresholds had it in version 0.2, without effect
        values["params"].pop("max_bins", None)
    obj: TreeExplainer = unpack_estimator(cls, values, FITTED + OF_SOME_CLASSES + INNER)
    as_tree(obj)  # raises a TypeError if the file has no tree
    without_steps = None if values["whole"] else False  # False: they are not stored
    obj._steps = values.get("steps", without_steps)
    return obj


def _pack_tree(tree: ThresholdTree) -> Values:
    """Return the fields of a tree and the children of its nodes, which versions up to 0.3 read from a file."""
    return pack_fields(tree) | {"left": tree.left, "right": tree.right}


def _unpack_tree(cls: type[ThresholdTree], values: Values) -> ThresholdTree:
    names = values.pop("feature_names")
    if names is not None:
        names = tuple(names)
    left = values.pop("left")
    right = values.pop("right")
    tree = cls(**values, feature_names=names)
    # fails now if the stored arrays are inconsistent
    if not (torch.equal(tree.left, left) and torch.equal(tree.right, right)):
        raise ValueError("the children of its nodes are not those of a tree in preorder")
    tree.predict(torch.zeros(1, tree.n_features))
    tree.classes[tree.label.max()]
    return tree


register(ThresholdTree, _pack_tree, _unpack_tree)
