"""What a reader of a fitted clusterer returns, and the function with which readers are registered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatch
from typing import NamedTuple

import numpy as np
from sklearn.base import OutlierMixin
from torch import Tensor, nn

from neonxc.common.arguments import kind_of
from neonxc.head import Head
from neonxc.head.preprocessing import Preprocessing
from neonxc.pipelines.encoding import Encoding

SUPPORTED = (
    "KMeans, MiniBatchKMeans, BisectingKMeans, MeanShift, AffinityPropagation, Birch, GaussianMixture and "
    "BayesianGaussianMixture, DBSCAN, HDBSCAN with its X, KernelKMeans, KCenter and SCAN of neonxc.models, the "
    "trees of neonxc.trees, a linear layer, a 1 x 1 convolution, or a network that ends in one, a Pipeline that "
    "ends in a clusterer, a fitted search (GridSearchCV), centers [K, d] as array or tensor; with X any fitted "
    "clusterer that has labels_ or centers"
)


class Fidelity(NamedTuple):
    """Agreement of a surrogate with the clusterer that it replaces, and with a refitted surrogate."""

    fitted: float  # fraction of the training points that get the clusterer's label
    held_out: float | None = None  # the same fraction among points held out from a second fit
    stability: float | None = None  # 1 - |R' - R| / |R|, with R' the relevance of a fit to fewer points
    noise: float | None = None  # fraction of held-out points that are noise, or not, as their label tells


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
    radius : Tensor [K] or None
        Squared distance from the nearest cluster, by cluster, beyond which points are noise; None: none are.
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
    radius: Tensor | None = None
    scale: float | None = None
    softens: bool = False
    encoding: Encoding | None = None


@singledispatch
def read(model: object) -> ClusterModel:
    """Read a fitted clusterer. Register a function for another class to extend :func:`neonxc.neuralize`."""
    if isinstance(model, type):
        raise TypeError(f"can't neuralize the class {model.__name__}; pass a fitted instance of it")
    if hasattr(model, "__array__"):  # data frames, and arrays of other libraries
        return read(np.asarray(model))
    raise TypeError(f"can't neuralize {kind_of(model)}; supported: {SUPPORTED}{_by_predictions(model)}")


def _by_predictions(model: object) -> str:
    """Say how to explain what a model that is not a clusterer predicts, if it does."""
    method = next((name for name in ("predict", "fit_predict") if hasattr(model, name)), None)
    if method is None:
        return ""
    labels = f"model.{method}(X)"
    if isinstance(model, OutlierMixin):
        labels = f'numpy.where({labels} < 0, "outlier", "inlier")'
    return f"; to explain what this one predicts: neonxc.neuralize(labels={labels}, X=X)"
