"""The description of a fitted clusterer that :func:`neonxc.neuralize` builds a network from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
from torch import Tensor, nn

from neonxc.encoding import Encoding
from neonxc.head import Head, Noise
from neonxc.preprocessing import Preprocessing

SUPPORTED = (
    "KMeans, MiniBatchKMeans, BisectingKMeans, MeanShift, AffinityPropagation, Birch, GaussianMixture and "
    "BayesianGaussianMixture, KernelKMeans, KCenter and SCAN of neonxc.models, the trees of neonxc.trees, a "
    "linear layer or a network that ends in one, a Pipeline that ends in a clusterer, centers [K, d] as an array "
    "or tensor; with X any fitted clusterer that has labels_"
)


class SameCenters(ValueError):
    """Two clusters have the same center, so that nothing tells them apart."""


@dataclass(frozen=True)
class ClusterModel:
    """The description of a fitted clusterer.

    Attributes
    ----------
    head : callable
        Makes the head, given the preprocessing of the clusterer's inputs or None.
    points : Tensor [M, p] or None
        Centers of the clusterer, to estimate the scale of the logits without data. None: the logits are log odds.
    classes : ndarray or None
        Labels of the columns. None: 0 ... K - 1.
    features : nn.Module or None
        The clusterer's own feature network.
    fidelity : (float, float or None) or None
        For surrogates: the share of points with the clusterer's label, among the training points and among points
        held out.
    noise : callable or None
        Makes the :class:`~neonxc.head.Noise`, given the preprocessing or None.
    scale : float or None
        Factor of the head's values with which ``softmax(-values)`` are the clusterer's probabilities. None: the
        clusterer has no probabilities.
    softens : bool
        Whether users may choose the stiffness of a soft version of the clusterer.
    encoding : Encoding or None
        The clusterer's own encoding of tables with categories and missing values.
    """

    head: Callable[[Preprocessing | None], Head]
    points: Tensor | None
    classes: np.ndarray | None = None
    features: nn.Module | None = None
    fidelity: tuple[float, float | None] | None = None
    noise: Callable[[Preprocessing | None], Noise] | None = None
    scale: float | None = None
    softens: bool = False
    encoding: Encoding | None = None


@singledispatch
def read(model: Any) -> ClusterModel:
    """Return the description of a fitted clusterer; register a handler to support another class."""
    if isinstance(model, type):
        raise TypeError(f"can't neuralize the class {model.__name__}; pass a fitted instance of it")
    if hasattr(model, "__array__"):  # frames, and arrays of other libraries
        return read(np.asarray(model))
    raise TypeError(f"can't neuralize a {type(model).__name__}; supported: {SUPPORTED}")


def is_known(model: Any) -> bool:
    """Return whether a handler is registered for a model's class."""
    return read.dispatch(type(model)) is not read.dispatch(object)
