"""Readers of fitted clusterers: each makes the head of a family of models, and is registered with :func:`read`.

A point z belongs to the cluster k with the smallest of these values:

    KMeans, AffinityPropagation, Birch,
    MeanShift, centers as an array        |z - c|^2, where a cluster of Birch has several centers c
    MeanShift without cluster_all         the same; z is noise outside the bandwidth
    BisectingKMeans                       |z - c|^2 of the two sides, in every split from the root
    DBSCAN                                see :mod:`neonxc.clusterings.density`
    Gaussian mixture                      -log(pi_k p_k(z)), with p_k = N(mu_k, inverse of L_k L_k')
    linear layer, 1 x 1 convolution       -(w_k z + b_k)
    module with centers                   |z - c_k|^2, if its largest output is that of the nearest center
"""

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

from neonxc.clusterings.model import ClusterModel, SameCenters, read
from neonxc.common.arguments import kind_of
from neonxc.common.sizes import PROBED_POINTS
from neonxc.common.types import ArrayLike
from neonxc.data.frames import in_order_of
from neonxc.data.inputs import check_finite, check_range
from neonxc.data.table import Table
from neonxc.head import Head, bisecting_head, centroid_head, linear_head
from neonxc.head import head as heads
from neonxc.head.preprocessing import Preprocessing
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
TIED = 1e-3  # of the median difference of the two smallest squared distances: less than it is a tie


def reads_exactly(model: object) -> bool:
    """Whether a clusterer has a reader, and not just labels: DBSCAN does for Euclidean distances."""
    if isinstance(model, AffinityPropagation) and is_precomputed(model):  # it has exemplars, and no centers
        return False
    if isinstance(model, MeanShift) and not model.cluster_all and model.bandwidth is None:  # estimated, not stored
        return False
    if isinstance(model, DBSCAN):
        from neonxc.clusterings.density import by_radius  # which other clusterers do without

        return by_radius(model)
    return read.dispatch(type(model)) is not read.dispatch(object)


def is_precomputed(model: object) -> bool:
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

    def __init__(self, labels: ArrayLike | None = None, noise: str | None = None) -> None:
        self.labels = labels
        self.noise = noise

    def fit(self, X: object, y: object = None) -> GivenLabels:
        """Store the labels as `labels_`, in the order of X."""
        self.labels_ = in_order_of(self.labels, X)
        return self


# --- nearest centers, and hierarchies of them --------------------------------------------------------------------


@read.register(KMeans)
@read.register(MiniBatchKMeans)
@read.register(AffinityPropagation)
def _read_prototypes(model: KMeans | MiniBatchKMeans | AffinityPropagation) -> ClusterModel:
    check_is_fitted(model)
    centers: Any = getattr(model, "cluster_centers_", np.empty((0, 0)))
    if not centers.shape[0]:
        raise ValueError("AffinityPropagation has no centers: it did not converge")
    if issparse(centers):
        centers = centers.toarray()
    return nearest_centroid(centers)


@read.register
def _read_mean_shift(model: MeanShift) -> ClusterModel:
    check_is_fitted(model)
    return within_bandwidth(model, model.bandwidth)


def within_bandwidth(model: MeanShift, bandwidth: float) -> ClusterModel:
    """Return a model of the nearest center, outside whose bandwidth points are noise unless all are clustered."""
    cluster_model = nearest_centroid(model.cluster_centers_)
    if model.cluster_all:
        return cluster_model
    k = len(model.cluster_centers_)
    squared_radius = torch.full((k,), float(bandwidth) ** 2, dtype=torch.float64)
    return replace(cluster_model, classes=np.arange(k), radius=squared_radius)


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
    children: list[tuple[int, int]] = []  # of every split: the cluster of a side, or minus the number of its split
    for split in splits:
        pair = []
        for side in (split.left, split.right):
            if side.left is None:
                pair.append(int(side.label))
            else:
                pair.append(-len(splits))
                splits.append(side)
        left_child, right_child = pair
        children.append((left_child, right_child))
    centers = np.array([[split.left.center, split.right.center] for split in splits])
    centers = centers + getattr(model, "_X_mean", 0.0)
    left, right = torch.as_tensor(centers, dtype=torch.float64).unbind(1)
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


def nearest_centroid(
    centers: np.ndarray | Tensor,
    groups: np.ndarray | Tensor | None = None,
    classes: np.ndarray | None = None,
) -> ClusterModel:
    """Return a model of the nearest of some centers [M, p]; `groups` [M] are the columns of their clusters."""
    points = torch.as_tensor(centers).detach().double().cpu()
    if points.ndim != 2:
        raise ValueError(f"centers need shape [K, d], got {list(points.shape)}")
    check_finite(points, name="centers")
    # so that no squared distance overflows
    largest = (torch.finfo(points.dtype).max / (16 * points.shape[1])) ** 0.5
    check_range(points, largest, name="centers")
    group_of_point = None if groups is None else torch.as_tensor(groups)
    _check_distinct(points, "clusters {} and {} have identical centers", group_of_point)

    def head(preprocessing: Preprocessing | None) -> Head:
        return centroid_head(points, group_of_point, preprocessing)

    return ClusterModel(head, points, classes, softens=True)


def _check_distinct(points: Tensor, message: str, groups: Tensor | None = None) -> None:
    """Refuse clusters with identical rows of parameters, because no contrast distinguishes them."""
    first_group: dict[bytes, int] = {}
    numbers = range(len(points)) if groups is None else groups.tolist()
    rows = (points + 0.0).numpy()  # -0.0 is 0.0
    for group, row in zip(numbers, rows, strict=True):
        first = first_group.setdefault(row.tobytes(), group)
        if first != group:
            raise SameCenters(message.format(*sorted((first, group))))


# --- density clusterings -----------------------------------------------------------------------------------------


@read.register
def _read_dbscan(model: DBSCAN) -> ClusterModel:
    from neonxc.clusterings.density import within_radius  # as above

    check_is_fitted(model)
    return within_radius(model.components_, model.labels_[model.core_sample_indices_], model.eps)


# --- Gaussian mixtures -------------------------------------------------------------------------------------------


@read.register(GaussianMixture)
@read.register(BayesianGaussianMixture)
def _read_mixture(model: GaussianMixture | BayesianGaussianMixture) -> ClusterModel:
    check_is_fitted(model)
    for name in ("means_", "precisions_cholesky_", "weights_"):
        values = torch.as_tensor(getattr(model, name))
        check_finite(values, name=f"the {type(model).__name__} was not fitted properly: {name}")
    # copies, because the model may be fitted again
    means = torch.tensor(model.means_).double()
    roots = torch.tensor(model.precisions_cholesky_).double()  # L
    is_tied = model.covariance_type == "tied"
    if isinstance(model, GaussianMixture):  # the spare components of a Bayesian mixture may all equal the prior
        parameters = means if is_tied else torch.cat([means, roots.reshape(len(means), -1)], 1)
        _check_distinct(parameters, "components {} and {} have identical means and covariances")
    if model.covariance_type == "spherical":
        roots = roots[:, None].expand_as(means)
    # -log(pi_k p_k) at the means; only this method knows the expected logarithms of a Bayesian mixture
    values_at_means = torch.as_tensor(-np.diag(model._estimate_weighted_log_prob(model.means_)))
    values_at_means -= values_at_means.mean()

    def head(preprocessing: Preprocessing | None) -> Head:
        if preprocessing is None:
            preprocessing = Preprocessing.identity(means.shape[1])
        if not is_tied:
            return _mixture_head(means, roots, values_at_means, preprocessing)
        # with one covariance, the nearest center after whitening: 1/2 |L'(z - mu_k)|^2 + value at mu_k
        whitened = preprocessing.then(roots.T, torch.zeros_like(means[0]))
        return Head(heads.centroid_neurons(means @ roots, whitened, factor=0.5, offsets=values_at_means))

    return ClusterModel(head, means, scale=1.0)


def _mixture_head(means: Tensor, roots: Tensor, values_at_means: Tensor, preprocessing: Preprocessing) -> Head:
    """Return the head of components with a covariance each, 1/2 |L_k'(z - mu_k)|^2 + the value [K] at mu_k.

    The value at the mean contains -log det L_k, which is divided among the columns of the mixture, if these are
    the raw columns: they get the shares [K, d].

    Parameters
    ----------
    means : Tensor [K, p]
    roots : Tensor [K, p, p], or [K, p] if they are diagonal
        The matrices L.
    values_at_means : Tensor [K]
    preprocessing : Preprocessing
        The map from raw columns to z.
    """
    from neonxc.head.quadratic import QuadraticDetection  # which other clusterers do without

    if preprocessing.norm is not None:
        raise ValueError("a Normalizer before a Gaussian mixture can't be folded; fit the mixture without it")
    raw_means = torch.stack([preprocessing.point(mean) for mean in means])
    if not preprocessing.diagonal:
        # the shares of the determinant belong to the mixture's columns and not to the raw ones
        full = torch.diag_embed(roots) if roots.ndim == 2 else roots
        raw_roots = preprocessing.weight.T @ full
        shares = torch.zeros_like(raw_means)
    elif roots.ndim == 2:
        raw_roots = roots * preprocessing.weight
        shares = -roots.log()
    else:
        # with L = U S V', log P = 2 U log(S) U', even if rounding gives P a negative eigenvalue
        U, S, _ = torch.linalg.svd(roots)
        raw_roots = roots * preprocessing.weight[:, None]
        shares = -torch.einsum("kij,kj->ki", U.square(), S.log())
    offsets = values_at_means - shares.sum(1)
    return Head(QuadraticDetection(means=raw_means, roots=raw_roots, shares=shares, offsets=offsets))


# --- clustering heads of networks: linear layers, and layers with centers (deep embedded clustering) -------------


@read.register
def _read_linear(model: nn.Linear) -> ClusterModel:
    values = {}
    for name in ("weight", "bias"):
        value = getattr(model, name)
        if value is not None:
            check_finite(value.detach(), name=f"the {name} of the linear layer")
            values[name] = value.detach().to(torch.float64, copy=True)  # as the layer may be trained further
    return ClusterModel(lambda preprocessing: linear_head(**values), None, scale=1.0)


@read.register(nn.Conv1d)
@read.register(nn.Conv2d)
@read.register(nn.Conv3d)
def _read_convolution(model: nn.Conv1d | nn.Conv2d | nn.Conv3d) -> ClusterModel:
    """Read a convolution with a kernel of one location, which is a linear layer of the channels there."""
    kernel = {*model.kernel_size}
    stride = {*model.stride}
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
    n_before = len(layers)  # number of layers before those that commute with a convolution
    while n_before and _commutes(layers[n_before - 1]):
        n_before -= 1
    if n_before and isinstance(layers[n_before - 1], CONVOLUTIONS):
        layers.append(layers.pop(n_before - 1))
    cluster_model = read(layers[-1])
    return replace(cluster_model, features=chained(*layers[:-1], cluster_model.features))


def _commutes(layer: nn.Module) -> bool:
    """Whether a layer may come before a 1 x 1 convolution instead of after it: a mean of locations, or Flatten."""
    if isinstance(layer, nn.Flatten):
        return True
    has_padding = np.any(getattr(layer, "padding", 0))  # whose zeros would get the bias
    return isinstance(layer, MEANS) and not has_padding and getattr(layer, "divisor_override", None) is None


def chained(*modules: nn.Module | None) -> nn.Module | None:
    """Return the modules, some of which may be missing, as one; None if all are."""
    existing = [module for module in modules if module is not None]
    if not existing:
        return None
    if len(existing) == 1:  # it may be rebuilt from its description when it is loaded
        return existing[0]
    return nn.Sequential(*existing)


def device_of(holder: object) -> torch.device | None:
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
            cluster_model = nearest_centroid(centers)
            if _goes_to_nearest(model, centers.detach()):
                return cluster_model
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
    from neonxc.common.modules import evaluated  # which tables do without

    points = points_near(centers)
    try:
        # at centers far from the origin, its float32 numbers are rounding, by which rows of a batch may differ
        outputs = evaluated(model, points, compare=False)
        return are_nearest(outputs.argmax(1), points, centers)
    except Exception:  # it has other inputs or outputs
        return False


def points_near(centers: Tensor) -> Tensor:
    """Draw random points [256, d] near centers [K, d]."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(PROBED_POINTS, centers.shape[1], generator=generator).to(centers)
    center_of_point = torch.arange(PROBED_POINTS, device=centers.device) % len(centers)
    return centers[center_of_point] + noise * centers.std(0, False)


def are_nearest(chosen: Tensor, points: Tensor, centers: Tensor) -> bool:
    """Whether the `chosen` centers [n] are the nearest ones of points [n, d], or tied with them.

    Several centers may be chosen for a point, as a mask [n, K]; then one of them has to be the nearest.
    """
    distances = squared_distances(points, centers)
    if chosen.ndim == 1:
        distance_of_chosen = distances.gather(1, chosen[:, None])[:, 0]
    else:
        distance_of_chosen = distances.masked_fill(~chosen, torch.inf).amin(1)
    smallest = distances.topk(min(2, len(centers)), largest=False).values  # [n, 2]
    tied = TIED * (smallest[:, -1] - smallest[:, 0]).median()
    # a clusterer computes the distance as |z|^2 - 2 z'c + |c|^2
    rounding = 16 * torch.finfo(points.dtype).eps * points.double().square().sum(1)
    return bool((distance_of_chosen <= smallest[:, 0] + tied + rounding).all())


def squared_distances(points: Tensor, centers: Tensor) -> Tensor:
    """Compute the squared distances [n, K] of points from centers in float64, without cancellation."""
    mode = "donot_use_mm_for_euclid_dist"
    return torch.cdist(points.double(), centers.double(), compute_mode=mode).square()
