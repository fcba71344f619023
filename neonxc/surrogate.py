"""A kernel k-means in place of a clustering that is known by its labels alone."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
import torch
from sklearn.pipeline import Pipeline
from torch import Tensor, nn

from neonxc.blocks import blocks, network_bytes
from neonxc.carriers import carrier_of, rows
from neonxc.encoding import Encoding
from neonxc.head import Head, Noise, centroid_head
from neonxc.inputs import as_batch, as_labels
from neonxc.models.kernel.checks import check_spread
from neonxc.models.kernel.em import em
from neonxc.models.kernel.margins import agreeing, agreement, refined
from neonxc.models.kernel.seeding import seeded
from neonxc.models.kernel.supports import Supports, by_cluster
from neonxc.preprocessing import Preprocessing
from neonxc.readers import ClusterModel

ENOUGH = 0.995  # fidelity at which a fit is left as it is: what is adjusted needlessly explains less of the labels
WARNING = 0.95
RECALL = 0.5  # share of a cluster's points that get its label, below which there is a warning, too, ...
COUNT = 5  # ... if the cluster has so many points
HELD_OUT = 0.2
SUPPORTS = (10, 20, 40)  # per cluster; more are tried if fewer do not do


def fit_surrogate(
    X: Any,
    labels: Any,
    steps: list[tuple[str, Any]],
    features: nn.Module | None,
    encoding: Encoding | None = None,
) -> ClusterModel:
    """Fit supports, weights and stiffness of a kernel k-means to labels (NEON paper, section V).

    X is what the network is called with; it goes through the network `features` and a pipeline's `steps`, if any.
    Points of label -1 (noise) are left out of the fit; if there are any, points that are as far from all clusters
    as they are count as noise.

    Clusters start as mixtures of their points (EM with fixed assignments). Where that does not reproduce the
    labels, the supports, their weights and gamma are moved down the gradient of a logistic loss of the margins,
    and more supports are tried. The model stays one of distances to points of the clusters on purpose: a generic
    classifier would fit as well, but might decide by something else.
    """
    points = _points(X, steps, features) if encoding is None else _points_of_table(X, steps)
    column, classes, there = as_labels(labels, len(points), points.device)
    if len(classes) < 2:
        raise ValueError(
            f"labels need at least 2 clusters to compare, got {classes.tolist()} (noise, -1, is none)"
        )
    shift = points[there].mean(0)
    points = points - shift
    check_spread(points)
    x, y = points[there], column[there]
    supports = fitted(x, y, len(classes))
    fidelity = _fidelity(supports, x, y, classes)
    radius = None
    if not bool(there.all()):
        far, nearest = supports.distances(points).min(1)
        radius = radii(far, nearest, there, len(classes))
        _warn_of_noise(far <= radius[nearest], there)
        radius = radius.cpu()
    centers, groups, log_weights = (part.cpu() for part in supports.flat())
    centers = centers + shift.cpu()

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
    """The least adjusted supports that reproduce labels 0 ... k-1 well enough, or else those that do so best.

    Numbers of supports per cluster are tried in the order of `sizes`; `gamma` is where EM starts.
    """

    def attempts() -> Iterator[Supports]:
        generator = torch.Generator(x.device).manual_seed(0)
        for n_support in sizes:
            start = seeded(x, labels, k, n_support, gamma, generator)
            supports = em(x, start, labels, weighted=True).supports
            yield supports
            yield refined(supports, x, labels)

    best, reached = None, -1.0
    for supports in attempts():
        fidelity = agreement(supports, x, labels)
        if fidelity > reached:
            best, reached = supports, fidelity
        if reached >= ENOUGH:
            break
    assert best is not None
    return best


def _fidelity(supports: Supports, x: Tensor, labels: Tensor, classes: np.ndarray) -> tuple[float, float | None]:
    """Share of points that get their label, of all and of those held out; a warning where the lower is low.

    A fifth of the points is held out from a fit to the others, which has the number of supports and starts from
    the gamma of the one to all points: two numbers, which tell no point's label. None where a cluster has too few
    points for that.
    """
    right, which = agreeing(supports, x, labels), "the points"
    fidelity, held_out = _share(right), None
    k, n_support = supports.log_weights.shape
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0)).to(x.device)
    test, train = order[: int(HELD_OUT * len(x))], order[int(HELD_OUT * len(x)) :]
    if len(test) and int(torch.bincount(labels[train], minlength=k).amin()) > 0:
        others = fitted(x[train], labels[train], k, (n_support,), supports.gamma)
        right_there = agreeing(others, x[test], labels[test])
        held_out = _share(right_there)
        if held_out < fidelity:
            right, labels, which = right_there, labels[test], "the points held out from a fit to the others"
    _warn_of_labels(right, labels, classes, which)
    return fidelity, held_out


def _share(true: Tensor) -> float:
    return float(true.double().mean())


def _warn_of_labels(right: Tensor, labels: Tensor, classes: np.ndarray, which: str) -> None:
    """Warn where a surrogate is another clustering: overall, or in a cluster that it hardly knows."""
    own = [right[labels == k] for k in range(len(classes))]
    lost = [
        f", {_share(part):.0%} in cluster {name}"
        for name, part in zip(classes, own, strict=True)
        if len(part) >= COUNT and _share(part) < RECALL
    ]
    if _share(right) >= WARNING and not lost:
        return
    warnings.warn(
        f"the surrogate gives {_share(right):.1%} of {which} their label{''.join(lost[:5])}: it explains a "
        "clustering that differs from the one given",
        UserWarning,
        stacklevel=6,
    )


def _warn_of_noise(inside: Tensor, clustered: Tensor) -> None:
    """Warn where noise is not told apart as in the labels, or most clustered points are taken for noise."""
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
    """Move supports into the subspace that the preprocessing maps points to, and lower their weights in return.

    A preprocessing that repeats columns maps to a subspace, and gradient descent moves supports off it. For points
    in the subspace ``|z - u|^2 = |z - u'|^2 + |u' - u|^2``, so that the weights make up for the move.
    """
    if chain is None or chain.diagonal or chain.norm is not None:
        return centers, log_weights
    directions, sizes, _ = torch.linalg.svd(chain.weight * chain.scale, full_matrices=False)
    directions = directions[:, sizes > 1e-12 * sizes[0]]
    moved = chain.bias + (centers - chain.bias) @ directions @ directions.T
    return moved, log_weights - gamma * (moved - centers).square().sum(1)


def radii(far: Tensor, nearest: Tensor, clustered: Tensor, k: int) -> Tensor:
    """Distances [K] from their nearest cluster beyond which points are noise; clusters differ in density.

    Each is the threshold that tells most points near its cluster apart from noise as the labels do. Where no noise
    lies beyond a cluster it is the best threshold for all points, or the distance of the cluster's farthest point.
    `far` [n] are distances to the `nearest` [n] of k clusters, `clustered` [n] is False for noise.
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
    if features is None:
        points = as_batch(X).tensor
    else:
        tensor = next(chain(features.parameters(), features.buffers()), None)
        carrier = carrier_of(features, None, None, torch.device("cpu") if tensor is None else tensor.device)
        x = carrier.batch(X).tensor
        with torch.no_grad():
            parts = blocks(len(x), network_bytes(x), x.device)
            points = torch.cat([rows(carrier.features(x[part])) for part in parts])
    if points.ndim != 2:
        raise ValueError(f"X needs shape [points, features], got {list(points.shape)}")
    points = points.detach().double()
    if not steps:
        return points
    pipeline = Pipeline(steps)
    names = features is None and hasattr(X, "iloc") and hasattr(pipeline, "feature_names_in_")
    transformed = pipeline.transform(X if names else points.cpu().numpy())  # steps may select columns by name
    transformed = transformed.toarray() if hasattr(transformed, "toarray") else transformed  # weights of terms
    return torch.as_tensor(np.array(transformed, dtype=np.float64)).to(points)


def _points_of_table(X: Any, steps: list[tuple[str, Any]]) -> Tensor:
    """What the clustering saw of a table with strings and missing values, [n, p] of float64."""
    if isinstance(X, Tensor):
        raise ValueError("X needs to be the table that the pipeline was fitted on, a data frame or an array")
    transformed = Pipeline(steps).transform(X)
    dense = transformed.toarray() if hasattr(transformed, "toarray") else transformed
    return torch.from_numpy(np.array(dense, dtype=np.float64))
