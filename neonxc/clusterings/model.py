"""Description of a fitted clusterer for :func:`neonxc.neuralize`, and the registry of its readers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatch
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, ClusterMixin
from torch import Tensor, nn

from neonxc.head import Head, Noise
from neonxc.head.preprocessing import Preprocessing
from neonxc.pipelines.encoding import Encoding

SUPPORTED = (
    "KMeans, MiniBatchKMeans, BisectingKMeans, MeanShift, AffinityPropagation, Birch, GaussianMixture and "
    "BayesianGaussianMixture, KernelKMeans, KCenter and SCAN of neonxc.models, the trees of neonxc.trees, a "
    "linear layer or a network that ends in one, a Pipeline that ends in a clusterer, centers [K, d] as an array "
    "or tensor; with X any fitted clusterer that has labels_"
)


class Fidelity(NamedTuple):
    """Agreement of a surrogate with the clusterer that it replaces, and with a refitted surrogate."""

    fitted: float  # share of the training points that get the clusterer's label
    held_out: float | None = None  # the same share among points held out from a second fit
    stability: float | None = None  # 1 - |R' - R| / |R|, with R' the relevance of a fit to a part of the points


class SameCenters(ValueError):
    """Raised if two clusters have identical centers, so that no contrast distinguishes them."""


@dataclass(frozen=True)
class ClusterModel:
    """Description of a fitted clusterer, made by its reader.

    Attributes
    ----------
    head : callable
        Makes the head for a given preprocessing.
    points : Tensor [M, p] or None
        Centers of the clusterer, which set the scale of the logits if there is no data. None if logits are log
        odds.
    classes : ndarray or None
        Labels of the columns; None if they are 0 ... K-1.
    features : nn.Module or None
        Feature network of the clusterer.
    fidelity : Fidelity or None
        How far a surrogate can be trusted; None if the head is exact.
    noise : callable or None
        Makes the detector of noise for a given preprocessing.
    scale : float or None
        Factor of the competing values with which ``softmax(-factor * values)`` gives the clusterer's
        probabilities. None if it has no probabilities.
    softens : bool
        Whether the clusterer has a soft version, whose stiffness users may choose.
    encoding : Encoding or None
        Encoding of a table with strings and missing values as the columns of the head.
    """

    head: Callable[[Preprocessing | None], Head]
    points: Tensor | None
    classes: np.ndarray | None = None
    features: nn.Module | None = None
    fidelity: Fidelity | None = None
    noise: Callable[[Preprocessing | None], Noise] | None = None
    scale: float | None = None
    softens: bool = False
    encoding: Encoding | None = None


@singledispatch
def read(model: Any) -> ClusterModel:
    """Read a fitted clusterer. Register a function for another class to extend :func:`neonxc.neuralize`."""
    if isinstance(model, type):
        raise TypeError(f"can't neuralize the class {model.__name__}; pass a fitted instance of it")
    if hasattr(model, "__array__"):  # data frames, and arrays of other libraries
        return read(np.asarray(model))
    raise TypeError(f"can't neuralize a {type(model).__name__}; supported: {SUPPORTED}")


def is_known(model: Any) -> bool:
    """Whether a reader is registered for the class of a model."""
    return read.dispatch(type(model)) is not read.dispatch(object)


class GivenLabels(ClusterMixin, BaseEstimator):
    """Clusterer with given labels, for the last step of a pipeline.

    Parameters
    ----------
    labels : array-like [n]
        Labels of the points passed to `fit`.
    """

    def __init__(self, labels: Any = None) -> None:
        self.labels = labels

    def fit(self, X: Any, y: Any = None) -> GivenLabels:
        """Store the labels as `labels_`."""
        self.labels_ = self.labels
        return self
