"""What :func:`neonxc.neuralize` needs to know of a clusterer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatch
from typing import Any, NamedTuple

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


class Fidelity(NamedTuple):
    """How far a network agrees with a clusterer that it stands in for, and with itself."""

    fitted: float  # share of the points it was fitted to that get the clusterer's label
    held_out: float | None = None  # the same of points held out from a fit to the others
    stability: float | None = None  # 1 - |R' - R| / |R|, where R' is of a fit to a part of the points


@dataclass(frozen=True)
class ClusterModel:
    """What a handler reads off a fitted clusterer.

    Attributes
    ----------
    head : callable
        Makes the head behind a preprocessing.
    points : Tensor [M, p] or None
        Centers it remembers, to judge the size of its logits without data; None: they are log odds.
    classes : ndarray or None
        Labels of the columns, if not 0 ... K-1.
    features : nn.Module or None
        The clusterer's own feature network.
    fidelity : Fidelity or None
        Where the head is not the clusterer itself, how far they agree.
    noise : callable or None
        Makes what tells noise apart, behind a preprocessing.
    scale : float or None
        What the values that compete have to be multiplied by so that ``softmax(-values)`` are the clusterer's
        probabilities; None: it has none.
    softens : bool
        Whether there is a soft version of the clusterer, whose stiffness users may choose.
    encoding : Encoding or None
        The clusterer's own way from a table with strings and missing values to the head's columns.
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
    """What a fitted clusterer decides by; register a handler to teach neuralize another one."""
    if isinstance(model, type):
        raise TypeError(f"can't neuralize the class {model.__name__}; pass a fitted instance of it")
    if hasattr(model, "__array__"):  # frames, and arrays of other libraries
        return read(np.asarray(model))
    raise TypeError(f"can't neuralize a {type(model).__name__}; supported: {SUPPORTED}")


def is_known(model: Any) -> bool:
    """Whether a handler is registered for a model's class."""
    return read.dispatch(type(model)) is not read.dispatch(object)
