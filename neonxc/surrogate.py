"""A kernel k-means in place of a clustering that is known by its labels alone."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import torch
from sklearn.pipeline import Pipeline
from torch import Tensor, nn

from neonxc.carriers import rows
from neonxc.head import Head, Noise, centroid_head
from neonxc.inputs import as_batch, as_labels
from neonxc.models.kernel.margins import agreement, refined
from neonxc.models.kernel.seeding import seeded
from neonxc.models.kernel.supports import Supports, by_cluster, em
from neonxc.preprocessing import Preprocessing
from neonxc.readers import ClusterModel

ENOUGH = 0.995  # fidelity at which a fit is left as it is: what is adjusted needlessly explains less of the labels
WARNING = 0.95
RECALL = 0.5  # of a cluster, below which there is a warning, too, ...
COUNT = 5  # ... where it has so many points
HELD_OUT = 0.2
SUPPORTS = (10, 20, 40)  # per cluster; more if fewer do not do


def fit_surrogate(X: Any, labels: Any, steps: list[tuple[str, Any]], features: nn.Module | None) -> ClusterModel:
    """Fit supports, weights and stiffness of a kernel k-means to labels (NEON paper, section V).

    Clusters start as mixtures of their points (EM with fixed assignments). Where that does not reproduce the
    labels, the supports, their weights and gamma are moved down the gradient of a logistic loss of the margins,
    and more supports are tried. It stays a model of distances to points of the clusters on purpose: a generic
    classifier would fit as well, and might decide by something else.

    Parameters
    ----------
    X : array, frame or tensor
        What the network is called with.
    labels : array-like [n]
        -1 is noise: left out of the fit; where there is any, points as far from all clusters as noise is are
        noise.
    steps : list of (name, step)
        A pipeline's steps before the clusterer.
    features : nn.Module or None
        Network before those.
    """
    points = _points(X, steps, features)
    column, classes, there = as_labels(labels, len(points), points.device)
    if len(classes) < 2:
        raise ValueError(
            f"labels need at least 2 clusters to compare, got {classes.tolist()} (noise, -1, is none)"
        )
    shift = points[there].mean(0)
    x, y = points[there] - shift, column[there]
    supports = fitted(x, y, len(classes))
    fidelity = _fidelity(supports, x, y, classes)
    radius = None
    if not bool(there.all()):
        far, nearest = supports.distances(points - shift).min(1)
        radius = radii(far, nearest, there, len(classes))
        _warn_of_noise(far <= radius[nearest], there)
        radius = radius.cpu()
    used = supports.log_weights.isfinite().flatten()
    centers = (supports.points.flatten(0, 1) + shift)[used].double().cpu()
    groups, log_weights = supports.groups[used].cpu(), supports.log_weights.flatten()[used].double().cpu()

    def head(chain: Preprocessing | None) -> Head:
        points, weights = _reached(centers, log_weights, supports.gamma, chain)
        return centroid_head(points, groups, chain, gamma=supports.gamma, log_weights=weights)

    def noise(chain: Preprocessing | None) -> Noise:
        assert radius is not None
        chain = chain or Preprocessing.identity(centers.shape[1])
        return Noise(radius, len(classes), chain.weight)

    return ClusterModel(
        head, centers, classes, None, fidelity, None if radius is None else noise, scale=supports.gamma
    )


def fitted(
    x: Tensor, labels: Tensor, k: int, sizes: tuple[int, ...] = SUPPORTS, gamma: float | str = "median"
) -> Supports:
    """The least adjusted supports that reproduce labels well enough, or else those that do so best.

    Parameters
    ----------
    x : Tensor [n, d]
    labels : Tensor [n] of int64
    k : int
        Number of clusters.
    sizes : tuple of int
        Supports per cluster, tried in this order.
    gamma : float or "median"
        Where to start.
    """
    best, reached = None, -1.0
    generator = torch.Generator(x.device).manual_seed(0)
    for n_support in sizes:
        supports = em(x, seeded(x, labels, k, n_support, gamma, generator), labels, weighted=True).supports
        for attempt in (lambda s: s, lambda s: refined(s, x, labels)):
            supports = attempt(supports)
            fidelity = agreement(supports, x, labels)
            if best is None or fidelity > reached:
                best, reached = supports, fidelity
            if fidelity >= ENOUGH:
                return supports
    assert best is not None
    return best


def _right(supports: Supports, x: Tensor, labels: Tensor) -> Tensor:
    return supports.distances(x).argmin(1) == labels


def _fidelity(supports: Supports, x: Tensor, labels: Tensor, classes: np.ndarray) -> tuple[float, float | None]:
    """Share of points that get their label, of all and of those held out; a warning where the lower is low."""
    right = _right(supports, x, labels)
    fidelity, part = _share(right), _held_out(x, labels, supports)
    if part is None:
        _warn_of_labels(right, labels, classes, "the points")
        return fidelity, None
    test, right_there = part
    held_out = _share(right_there)
    if held_out < fidelity:
        _warn_of_labels(right_there, labels[test], classes, "the points held out from a fit to the others")
    else:
        _warn_of_labels(right, labels, classes, "the points")
    return fidelity, held_out


def _share(true: Tensor) -> float:
    return float(true.double().mean())


def _held_out(x: Tensor, labels: Tensor, supports: Supports) -> tuple[Tensor, Tensor] | None:
    """A fifth of the points, and which of them a fit to the others gives their label.

    That fit has the number of supports and starts from the gamma of the one to all points: two numbers, which tell
    no point's label. None where a cluster has too few points for that.
    """
    k, n_support = supports.log_weights.shape
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0)).to(x.device)
    test, train = order[: int(HELD_OUT * len(x))], order[int(HELD_OUT * len(x)) :]
    if not len(test) or int(torch.bincount(labels[train], minlength=k).amin()) == 0:
        return None
    others = fitted(x[train], labels[train], k, (n_support,), supports.gamma)
    return test, _right(others, x[test], labels[test])


def _warn_of_labels(right: Tensor, labels: Tensor, classes: np.ndarray, which: str) -> None:
    """Say where a surrogate is another clustering: overall, or in a cluster that it hardly knows."""
    lost = []
    for k, name in enumerate(classes):
        own = right[labels == k]
        if len(own) >= COUNT and _share(own) < RECALL:
            lost.append(f", {_share(own):.0%} in cluster {name}")
    if _share(right) >= WARNING and not lost:
        return
    warnings.warn(
        f"the surrogate gives {_share(right):.1%} of {which} their label{''.join(lost[:5])}: it explains a "
        "clustering that differs from the one given",
        UserWarning,
        stacklevel=6,
    )


def _warn_of_noise(inside: Tensor, clustered: Tensor) -> None:
    """Say where noise is not told apart as the labels have it, or most of what is no noise is lost to it."""
    agree = _share(inside == clustered)
    if agree >= WARNING and _share(inside[clustered]) >= RECALL:
        return
    warnings.warn(
        f"the surrogate tells noise (label -1) apart as the labels do for {agree:.1%} of the points: it takes "
        f"{_share(~inside[clustered]):.1%} of the clustered points for noise, and "
        f"{_share(inside[~clustered]):.1%} of the noise for clustered",
        UserWarning,
        stacklevel=5,
    )


def _reached(
    centers: Tensor, log_weights: Tensor, gamma: float, chain: Preprocessing | None
) -> tuple[Tensor, Tensor]:
    """Supports, moved to where the preprocessing maps points to; so far as they were off it, their weights fall.

    A preprocessing that repeats columns maps to a part of the space, and gradient descent moves supports off it.
    Points in that part are as far from them as before: ``|z - u|^2 = |z - u'|^2 + |u' - u|^2``.
    """
    if chain is None or chain.diagonal or chain.norm is not None:
        return centers, log_weights
    directions, sizes, _ = torch.linalg.svd(chain.weight * chain.scale, full_matrices=False)
    directions = directions[:, sizes > 1e-12 * sizes[0]]
    moved = chain.bias + (centers - chain.bias) @ directions @ directions.T
    return moved, log_weights - gamma * (moved - centers).square().sum(1)


def radii(far: Tensor, nearest: Tensor, clustered: Tensor, k: int) -> Tensor:
    """Distances [K] beyond which points are noise, by their nearest cluster: clusters are of different density.

    Each tells most of its points apart from noise as the labels do. A cluster that no noise lies beyond has the
    one that does so for all points, if its own points go no farther.

    Parameters
    ----------
    far : Tensor [n]
        Distances to the nearest cluster.
    nearest : Tensor [n] of int64
        Which that is.
    clustered : Tensor [n] of bool
        False: noise.
    k : int
        Number of clusters.
    """
    beyond = far + 1e-3 * far.abs()  # no point lies on the border, as a network rounds distances in another way
    common = min(_cut(far, clustered), float(beyond.amax()))
    found = []
    for own in by_cluster(nearest, k):
        cut = _cut(far[own], clustered[own])
        found.append(cut if cut < math.inf else max([common, *beyond[own].tolist()]))
    return far.new_tensor(found)


def _cut(far: Tensor, clustered: Tensor) -> float:
    """The threshold with most clustered points up to it and noise beyond; infinite if no point lies beyond."""
    far, order = far.sort()
    edges = torch.cat([far.new_tensor([-math.inf]), far, far.new_tensor([math.inf])])
    gained = (2 * clustered[order].long() - 1).cumsum(0)
    gained = torch.cat([gained.new_zeros(1), gained]).masked_fill(edges[1:] == edges[:-1], -len(far))
    at = int(gained.argmax())
    return float((edges[at] + edges[at + 1]) / 2)


def _points(X: Any, steps: list[tuple[str, Any]], features: nn.Module | None) -> Tensor:
    """What the clustering saw, [n, d] of float64."""
    batch = as_batch(X)
    if features is None:
        points = batch.tensor
    else:
        weight = next((p for p in features.parameters() if p.is_floating_point()), batch.tensor)
        with torch.no_grad():
            points = torch.cat([rows(features(part)) for part in batch.tensor.to(weight).split(16)])
    if points.ndim != 2:
        raise ValueError(f"X needs shape [points, features], got {list(points.shape)}")
    points = points.detach().double()
    if not steps:
        return points
    pipeline = Pipeline(steps)
    names = features is None and hasattr(X, "iloc") and hasattr(pipeline, "feature_names_in_")
    transformed = pipeline.transform(X if names else points.cpu().numpy())  # steps may select columns by name
    return torch.as_tensor(np.array(transformed, dtype=np.float64)).to(points)
