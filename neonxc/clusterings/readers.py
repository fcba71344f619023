"""Readers of fitted clusterers: each makes the head of a family of models, and is registered with :func:`read`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.cluster import (
    DBSCAN,
    AffinityPropagation,
    Birch,
    BisectingKMeans,
    KMeans,
    MeanShift,
    MiniBatchKMeans,
)
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from neonxc.clusterings.density import by_radius
from neonxc.clusterings.model import ClusterModel, SameCenters, read
from neonxc.common.arguments import kind_of
from neonxc.common.modules import evaluated
from neonxc.data.frames import in_order_of
from neonxc.data.inputs import check_finite, check_range
from neonxc.data.table import Table
from neonxc.head import Head, bisecting_head, centroid_head, linear_head
from neonxc.head import head as heads
from neonxc.head.preprocessing import Preprocessing
from neonxc.head.quadratic import QuadraticDetection
from neonxc.pipelines.opened import opened

CENTERS = ("cluster_centers", "centers", "centroids")
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
MEANS = (
    nn.AdaptiveAvgPool1d,
    nn.AdaptiveAvgPool2d,
    nn.AdaptiveAvgPool3d,
    nn.AvgPool1d,
    nn.AvgPool2d,
    nn.AvgPool3d,
)
TRIED = 256  # number of points at which a module is compared with the nearest center
TIED = 1e-3  # of the median difference of the two least squared distances: less than it is a tie


def reads_exactly(model: Any) -> bool:
    """Whether a clusterer has a reader, and not just labels: DBSCAN does for Euclidean distances."""
    known = read.dispatch(type(model)) is not read.dispatch(object)
    if isinstance(model, AffinityPropagation) and is_precomputed(model):  # it has exemplars, and no centers
        return False
    if isinstance(model, MeanShift) and not model.cluster_all and model.bandwidth is None:  # estimated, not stored
        return False
    return known and (not isinstance(model, DBSCAN) or by_radius(model))


def is_precomputed(model: Any) -> bool:
    """Whether a clusterer was fitted to the distances or affinities of all rows instead of their columns."""
    _, final = opened(model)
    return "precomputed" in (getattr(final, "metric", None), getattr(final, "affinity", None))


class GivenLabels(ClusterMixin, BaseEstimator):
    """Clusterer with given labels, for the last step of a pipeline.

    Parameters
    ----------
    labels : array-like [n]
        Labels of the points passed to `fit`.
    noise : str, optional
        The label of noise that is explained like a cluster.
    """

    def __init__(self, labels: Any = None, noise: str | None = None) -> None:
        self.labels = labels
        self.noise = noise

    def fit(self, X: Any, y: Any = None) -> GivenLabels:
        """Store the labels as `labels_`, in the order of X."""
        self.labels_ = in_order_of(self.labels, X)
        return self


# --- nearest centers, and hierarchies of them --------------------------------------------------------------------


@read.register(KMeans)
@read.register(MiniBatchKMeans)
@read.register(AffinityPropagation)
def _read_prototypes(model: Any) -> ClusterModel:
    check_is_fitted(model)
    centers: Any = getattr(model, "cluster_centers_", np.empty((0, 0)))
    if not centers.shape[0]:
        raise ValueError("AffinityPropagation has no centers: it did not converge")
    return nearest_centroid(centers.toarray() if issparse(centers) else centers)


@read.register
def _read_mean_shift(model: MeanShift) -> ClusterModel:
    check_is_fitted(model)
    return within_bandwidth(model, model.bandwidth)


def within_bandwidth(model: MeanShift, bandwidth: Any) -> ClusterModel:
    """Return a model of the nearest center, beyond whose bandwidth points are noise unless all are clustered."""
    found = nearest_centroid(model.cluster_centers_)
    if model.cluster_all:
        return found
    k = len(model.cluster_centers_)
    radius = torch.full((k,), float(bandwidth) ** 2, dtype=torch.float64)
    return replace(found, classes=np.arange(k), radius=radius)


@read.register
def _read_birch(model: Birch) -> ClusterModel:
    check_is_fitted(model)
    classes, groups = np.unique(model.subcluster_labels_, return_inverse=True)
    return nearest_centroid(model.subcluster_centers_, groups, classes)


@read.register
def _read_bisecting(model: BisectingKMeans) -> ClusterModel:
    check_is_fitted(model)
    if model.n_clusters < 2:
        return nearest_centroid(model.cluster_centers_)
    splits = [model._bisecting_tree]  # scikit-learn stores its hierarchy only in this private attribute
    children: list[Any] = []
    for split in splits:
        children.append([])
        for side in (split.left, split.right):
            if side.left is None:
                children[-1].append(int(side.label))
            else:
                children[-1].append(-len(splits))
                splits.append(side)
    centers = np.array([[split.left.center, split.right.center] for split in splits])
    left, right = torch.as_tensor(centers + getattr(model, "_X_mean", 0.0), dtype=torch.float64).unbind(1)
    if (left == right).all(dim=1).any():
        raise SameCenters("a split of the hierarchy has identical centers on both sides")
    points = torch.as_tensor(model.cluster_centers_, dtype=torch.float64)
    return ClusterModel(lambda preprocessing: bisecting_head(children, left, right, preprocessing), points)


@read.register(np.ndarray)
@read.register(pd.DataFrame)
@read.register(Tensor)
@read.register(list)
@read.register(tuple)
def _read_labels_or_centers(model: Any) -> ClusterModel:
    if not isinstance(model, pd.DataFrame) and len(model) and not any(map(np.ndim, model)):
        raise ValueError(
            "model looks like labels, which go by name: neonxc.neuralize(labels=labels, X=X); "
            f"centers need shape [K, d], got {list(np.shape(model))}"
        )
    return nearest_centroid(Table.read(model, name="centers").tensor)


def nearest_centroid(centers: Any, groups: Any = None, classes: np.ndarray | None = None) -> ClusterModel:
    """Return a model of the nearest of some centers [M, p]; `groups` [M] are the columns of their clusters."""
    points = torch.as_tensor(centers).detach().double().cpu()
    if points.ndim != 2:
        raise ValueError(f"centers need shape [K, d], got {list(points.shape)}")
    check_finite(points, name="centers")
    check_range(points, (torch.finfo(points.dtype).max / (16 * points.shape[1])) ** 0.5, name="centers")
    group = None if groups is None else torch.as_tensor(groups)
    _check_distinct(points, "clusters {} and {} have identical centers", group)
    return ClusterModel(
        lambda preprocessing: centroid_head(points, group, preprocessing), points, classes, softens=True
    )


def _check_distinct(points: Tensor, message: str, owners: Tensor | None = None) -> None:
    """Refuse clusters with identical rows of parameters, because no contrast distinguishes them."""
    first: dict[bytes, int] = {}
    numbers = range(len(points)) if owners is None else owners.tolist()
    for owner, row in zip(numbers, (points + 0.0).numpy(), strict=True):  # -0.0 is 0.0
        if (other := first.setdefault(row.tobytes(), owner)) != owner:
            raise SameCenters(message.format(*sorted((other, owner))))


# --- Gaussian mixtures -------------------------------------------------------------------------------------------


@read.register(GaussianMixture)
@read.register(BayesianGaussianMixture)
def _read_mixture(model: Any) -> ClusterModel:
    check_is_fitted(model)
    for name in ("means_", "precisions_cholesky_", "weights_"):
        what = f"the {type(model).__name__} was not fitted properly: {name}"
        check_finite(torch.as_tensor(getattr(model, name)), name=what)
    # copies, because the model may be fitted again
    means, roots = (torch.tensor(part).double() for part in (model.means_, model.precisions_cholesky_))
    tied = model.covariance_type == "tied"
    if isinstance(model, GaussianMixture):  # the spare components of a Bayesian mixture may all equal the prior
        own = means if tied else torch.cat([means, roots.reshape(len(means), -1)], 1)
        _check_distinct(own, "components {} and {} have identical means and covariances")
    if model.covariance_type == "spherical":
        roots = roots[:, None].expand_as(means)
    # -log(pi_k p_k) at the means; only this method knows the expected logarithms of a Bayesian mixture
    least = torch.as_tensor(-np.diag(model._estimate_weighted_log_prob(model.means_)))
    least -= least.mean()

    def head(preprocessing: Preprocessing | None) -> Head:
        preprocessing = preprocessing or Preprocessing.identity(means.shape[1])
        if not tied:
            return _mixture_head(means, roots, least, preprocessing)
        # with one covariance, the nearest center after whitening
        white = preprocessing.then(roots.T, torch.zeros_like(means[0]))
        return Head(heads.centroid_neurons(means @ roots, white, factor=0.5, offsets=least))

    return ClusterModel(head, means, scale=1.0)


def _mixture_head(means: Tensor, roots: Tensor, least: Tensor, preprocessing: Preprocessing) -> Head:
    """Head of components with a covariance each, whose values at their means are `least` [K]."""
    if preprocessing.norm is not None:
        raise ValueError("a Normalizer before a Gaussian mixture can't be folded; fit the mixture without it")
    at = torch.stack([preprocessing.point(mean) for mean in means])
    if (
        not preprocessing.diagonal
    ):  # the shares of the determinant belong to the mixture's columns and not to the raw ones
        full = torch.diag_embed(roots) if roots.ndim == 2 else roots
        roots = preprocessing.weight.T @ full
        shares = torch.zeros_like(at)
    elif roots.ndim == 2:
        roots, shares = roots * preprocessing.weight, -roots.log()
    else:  # with L = U S V', log P = 2 U log(S) U', even if rounding gives P a negative eigenvalue
        U, S, _ = torch.linalg.svd(roots)
        roots = roots * preprocessing.weight[:, None]
        shares = -torch.einsum("kij,kj->ki", U.square(), S.log())
    return Head(QuadraticDetection(means=at, roots=roots, shares=shares, offsets=least - shares.sum(1)))


# --- clustering heads of networks: linear layers, and layers with centers (deep embedded clustering) -------------


@read.register
def _read_linear(model: nn.Linear) -> ClusterModel:
    values = {}
    for name in ("weight", "bias"):
        if (value := getattr(model, name)) is not None:
            check_finite(value.detach(), name=f"the {name} of the linear layer")
            values[name] = value.detach().to(torch.float64, copy=True)  # as the layer may be trained further
    return ClusterModel(lambda preprocessing: linear_head(**values), None, scale=1.0)


@read.register(nn.Conv1d)
@read.register(nn.Conv2d)
@read.register(nn.Conv3d)
def _read_convolution(model: Any) -> ClusterModel:
    """Read a convolution with a kernel of one location, which is a linear layer of the channels there."""
    kernel, stride = ({*getattr(model, name)} for name in ("kernel_size", "stride"))
    padding = {model.padding} if isinstance(model.padding, str) else {*model.padding}
    if kernel != {1} or stride != {1} or not padding <= {0, "same", "valid"}:
        raise TypeError(
            f"can't neuralize {kind_of(model)} as a clustering head: it needs kernel_size=1, stride=1 and "
            f"padding=0, got {model}; pass the network before the clustering as features="
        )
    # [K, d], with zeros where a group of outputs does not see a channel
    blocks = model.weight.detach().flatten(1).chunk(model.groups)
    linear = nn.Linear(model.in_channels, model.out_channels, model.bias is not None, dtype=model.weight.dtype)
    linear.weight.data = torch.block_diag(*blocks)
    if model.bias is not None:
        linear.bias.data = model.bias.detach()
    return read(linear)


@read.register
def _read_sequential(model: nn.Sequential) -> ClusterModel:
    """Read a network that ends in a clustering head.

    A softmax after the head does not change the decisions, and the mean of locations may be taken before a 1 x 1
    convolution instead of after it.
    """
    layers = list(model)
    while layers and isinstance(layers[-1], nn.Softmax | nn.LogSoftmax | nn.Identity):
        layers.pop()
    if not layers:
        raise TypeError("can't neuralize an empty nn.Sequential")
    last = len(layers)
    while last and _commutes(layers[last - 1]):
        last -= 1
    if last and isinstance(layers[last - 1], CONVOLUTIONS):
        layers.append(layers.pop(last - 1))
    found = read(layers[-1])
    return replace(found, features=chained(*layers[:-1], found.features))


def _commutes(layer: nn.Module) -> bool:
    """Whether a layer may come before a 1 x 1 convolution instead of after it: a mean of locations, or Flatten."""
    padding = getattr(layer, "padding", 0)  # whose zeros would get the bias
    is_mean = isinstance(layer, MEANS) and not np.any(padding) and getattr(layer, "divisor_override", None) is None
    return is_mean or isinstance(layer, nn.Flatten)


def chained(*modules: nn.Module | None) -> nn.Module | None:
    """Return the modules, some of which may be missing, as one; None if all are."""
    found = [module for module in modules if module is not None]
    # a single module may be rebuilt from its description when it is loaded
    return nn.Sequential(*found) if len(found) > 1 else next(iter(found), None)


def device_of(holder: Any) -> torch.device | None:
    """Return the device of a tensor or of a module with tensors; None for anything else."""
    if isinstance(holder, nn.Module):
        holder = next(iter([*holder.parameters(), *holder.buffers()]), None)
    return holder.device if isinstance(holder, Tensor) else None


@read.register
def _read_module(model: nn.Module) -> ClusterModel:
    """Read a layer with centers, such as DEC's, whose Student-t similarity is largest for the nearest center."""
    for name in CENTERS:
        centers = getattr(model, name, None)
        if isinstance(centers, Tensor) and centers.ndim == 2:
            found = nearest_centroid(centers)
            if _goes_to_nearest(model, centers.detach()):
                return found
            raise TypeError(
                f"can't neuralize {kind_of(model)}: its largest output is not that of the nearest of its "
                f"{name}; pass the network before them as features=, and the similarity layer or the {name} as "
                "the model"
            )
    raise TypeError(
        f"can't neuralize {kind_of(model)}: the model needs to be an nn.Linear, or a module with centers "
        f"[K, d] as {' or '.join(CENTERS)}; pass the network before it as features="
    )


@torch.no_grad()
def _goes_to_nearest(model: nn.Module, centers: Tensor) -> bool:
    """Whether a module's largest output is that of the nearest center, at random points near the centers."""
    points = points_near(centers)
    try:
        # at centers far from the origin, its float32 numbers are rounding, by which rows of a batch may differ
        return are_nearest(evaluated(model, points, compare=False).argmax(1), points, centers)
    except Exception:  # it has other inputs or outputs
        return False


def points_near(centers: Tensor) -> Tensor:
    """Draw random points [256, d] near centers [K, d]."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(TRIED, centers.shape[1], generator=generator).to(centers)
    return centers[torch.arange(TRIED, device=centers.device) % len(centers)] + noise * centers.std(0, False)


def are_nearest(chosen: Tensor, points: Tensor, centers: Tensor) -> bool:
    """Whether the `chosen` centers [n] are the nearest ones of points [n, d], or tied with them.

    Several centers may be chosen for a point, as a mask [n, K]; then one of them has to be the nearest.
    """
    distances = squared_distances(points, centers)
    if chosen.ndim == 1:
        nearest_chosen = distances.gather(1, chosen[:, None])[:, 0]
    else:
        nearest_chosen = distances.masked_fill(~chosen, torch.inf).amin(1)
    least = distances.topk(min(2, len(centers)), largest=False).values  # [n, 2]
    tied = TIED * (least[:, -1] - least[:, 0]).median()
    # a clusterer computes the distance as |z|^2 - 2 z'c + |c|^2
    rounding = 16 * torch.finfo(points.dtype).eps * points.double().square().sum(1)
    return bool((nearest_chosen <= least[:, 0] + tied + rounding).all())


def squared_distances(points: Tensor, centers: Tensor) -> Tensor:
    """Compute the squared distances [n, K] of points from centers in float64, without cancellation."""
    mode = "donot_use_mm_for_euclid_dist"
    return torch.cdist(points.double(), centers.double(), compute_mode=mode).square()
