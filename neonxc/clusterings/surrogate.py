"""Surrogates: a kernel k-means that is fitted to the labels of a clustering without a decision function."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neonxc.attribution.neon import NEON
from neonxc.clusterings.fidelity import RECALL, WARNING, hashed, held_out_rows, share, warn_of_labels
from neonxc.clusterings.model import ClusterModel, Fidelity
from neonxc.clusterings.supports import Supports, check_spread, labelled
from neonxc.common.numbers import percent
from neonxc.common.warnings import warn
from neonxc.data.labels import as_labels, label_array
from neonxc.head import Head, centroid_head
from neonxc.head.preprocessing import Preprocessing
from neonxc.network import NeuralizedClustering

DROPPED = 0.05  # share of the points that each refit for the stability leaves out
REFITS = 3
COMPARED = 500  # at least this number of points is compared, if there are as many, and less than twice it


def fit_surrogate(points: Tensor, labels: Any, sample_weight: np.ndarray | None = None) -> ClusterModel:
    """Fit a kernel k-means, whose supports are the points of the clusters, to labels (NEON paper, section V).

    Points with label -1 (noise) are left out of the fit; if there are any, every cluster gets a radius, and points
    beyond that of their nearest cluster are noise.

    The points are first sorted by a hash of their values, so that the order of the rows has no influence.

    Inputs, which have one point or several, may have weights: points of weight 0 are left out, and each of the
    others is there as often as its weight, but is left out, or held out, with all of it.
    """
    weight = None
    if sample_weight is not None:
        weight = torch.from_numpy(np.repeat(sample_weight, len(points) // len(sample_weight))).to(points.device)
        kept = weight > 0
        points = points[kept]
        labels = label_array(labels)[kept.cpu().numpy()]
        weight = weight[kept]
    column, classes, there = as_labels(labels, len(points), points.device)
    if len(classes) < 2:
        raise ValueError(f"labels needs at least 2 clusters apart from noise (-1), got {classes.tolist()}")
    order = hashed(points, column).argsort(stable=True)
    points = points[order]
    column = column[order]
    there = there[order]
    weight = None if weight is None else weight[order]
    w = None if weight is None else weight[there]  # of the clustered points
    shift = points[there].mean(0)
    if w is not None:
        shift = (w.to(points) @ points[there]) / w.sum()
    points = points - shift
    check_spread(points)
    x = points[there]
    y = column[there]
    supports = labelled(x, y, len(classes), w)
    others = _without(held_out_rows(x), x, y, len(classes), w)
    radius = None
    kept = torch.ones(len(x), dtype=torch.bool, device=x.device)
    noise = None
    if not bool(there.all()):
        radius = _radii_of(supports, points, column, there, weight)
        inside = _within(supports, radius, points)
        noise = _noise_held_out(others, points, column, there, weight)
        _warn_of_noise(inside, there, noise, weight)
        kept = inside[there]
        radius = radius.cpu()
    fidelity = _fidelity(supports, others, x, y, classes, kept, w)._replace(noise=noise)
    centers = supports.flat()[0].cpu() + shift.cpu()
    return ClusterModel(
        lambda preprocessing: _head(supports, shift.cpu(), preprocessing),
        centers,
        classes,
        None,
        fidelity,
        radius,
        supports.gamma,
    )


def _head(supports: Supports, shift: Tensor | float, preprocessing: Preprocessing | None) -> Head:
    points, groups, log_weights = (part.cpu() for part in supports.flat())
    return centroid_head(points + shift, groups, preprocessing, gamma=supports.gamma, log_weights=log_weights)


def _fidelity(
    supports: Supports,
    others: Supports | None,
    x: Tensor,
    labels: Tensor,
    classes: np.ndarray,
    kept: Tensor,
    weight: Tensor | None,
) -> Fidelity:
    """Measure fidelity and stability of the surrogate of sorted points; warn if it is another clustering.

    The points may have weights.

    Points that are not `kept` lie beyond the radius of their cluster, and become noise. The held-out fidelity is
    that of the surrogate `others` of four fifths of the points, measured on the rest; it is None without one,
    because a cluster has no points in the four fifths.
    """
    checked = [(supports, slice(None), "the points")]
    if others is not None:
        checked.append((others, held_out_rows(x), "the points held out from a fit to the others"))
    right = [one.distances(x[rows]).argmin(1) == labels[rows] for one, rows, _ in checked]
    right[0] &= kept
    weights = [None if weight is None else weight[rows] for _, rows, _ in checked]
    shares = [share(told, w) for told, w in zip(right, weights, strict=True)]
    for at in sorted(range(len(shares)), key=shares.__getitem__):
        _, rows, which = checked[at]
        if warn_of_labels(right[at], labels[rows], classes, which, weight=weights[at]):
            break
    return Fidelity(*shares)._replace(stability=_stability(supports, x, labels, len(classes), weight))


def _without(out: slice, x: Tensor, labels: Tensor, k: int, weight: Tensor | None) -> Supports | None:
    """Fit a surrogate without the points in `out`; None if there are none, or a cluster would be lost."""
    kept = torch.ones(len(x), dtype=torch.bool, device=x.device)
    kept[out] = False
    if bool(kept.all()) or int(torch.bincount(labels[kept], minlength=k).amin()) == 0:
        return None
    return labelled(x[kept], labels[kept], k, None if weight is None else weight[kept])


def _stability(supports: Supports, x: Tensor, labels: Tensor, k: int, weight: Tensor | None) -> float | None:
    """Return 1 minus the mean of ``|R' - R| / |R|`` over refits without a twentieth of the points.

    R is the relevance of a sample of all points for their assigned clusters; with weights, a row of it counts as
    often as its point.
    """
    size = int(DROPPED * len(x))
    refits = [_without(slice(i * size, (i + 1) * size), x, labels, k, weight) for i in range(REFITS)]
    some = x[:: max(1, len(x) // COMPARED)]
    root = None if weight is None else weight[:: max(1, len(x) // COMPARED), None].sqrt()
    nets = [
        NeuralizedClustering(_head(one, 0.0, None)).to(x.device).calibrate(x[: 2 * COMPARED])
        for one in (supports, *refits)
        if one is not None
    ]
    own = nets[0].assign(some)
    before, *after = (NEON(net).attribute(some, target=own) for net in nets)
    if root is not None:
        before, *after = (relevance * root.to(relevance) for relevance in (before, *after))
    changes = [float((one - before).norm()) / (float(before.norm()) or 1.0) for one in after]
    return max(0.0, 1 - sum(changes) / len(changes)) if changes else None


def _warn_of_noise(inside: Tensor, clustered: Tensor, held_out: float | None, weight: Tensor | None) -> None:
    """Warn if noise differs from the labels, held out or not, or most clustered points are taken for noise."""
    agree = share(inside == clustered, weight)
    of_clustered = share(inside[clustered], None if weight is None else weight[clustered])
    of_noise = share(inside[~clustered], None if weight is None else weight[~clustered])
    if agree < WARNING or of_clustered < RECALL:
        warn(
            f"the surrogate tells noise (label -1) apart as the labels do for {percent(agree)} of the points: it "
            f"takes {percent(1 - of_clustered)} of the clustered points for noise, and "
            f"{percent(of_noise)} of the noise for clustered",
        )
    elif held_out is not None and held_out < WARNING:
        warn(
            f"the surrogate tells noise (label -1) apart as the labels do for {percent(held_out)} of points held "
            "out from a fit to the others: so it will be for new points",
        )


def _noise_held_out(
    others: Supports | None, points: Tensor, column: Tensor, clustered: Tensor, weight: Tensor | None
) -> float | None:
    """Share of held-out points, noise among them, that a surrogate of the others tells apart as their label does.

    None without such a surrogate, or if there is no noise to choose its radii by.
    """
    places = clustered.nonzero()[:, 0]
    stop = int(places[held_out_rows(places).stop])  # of all points, the held-out ones of clusters being the same
    rest = slice(stop, None)
    if others is None or clustered[rest].all():
        return None
    of_rest, of_others = (None, None) if weight is None else (weight[:stop], weight[rest])
    radius = _radii_of(others, points[rest], column[rest], clustered[rest], of_others)
    return share(_within(others, radius, points[:stop]) == clustered[:stop], of_rest)


def _within(supports: Supports, radius: Tensor, points: Tensor) -> Tensor:
    """Whether points lie within the radius of their nearest cluster, [n]."""
    far, nearest = supports.distances(points).min(1)
    return far <= radius[nearest]


def _radii_of(
    supports: Supports, points: Tensor, column: Tensor, clustered: Tensor, weight: Tensor | None
) -> Tensor:
    """Radii [K] for new points: those of clusters are left out one by one, as they would support themselves."""
    distances = supports.distances(points)
    least = float(distances.amin() - 1e-3 * distances.amin(1).abs().amax())
    of_clustered = None if weight is None else weight[clustered]
    distances[clustered] = supports.left_out(points[clustered], column[clustered], of_clustered)
    radius = radii(*distances.min(1), clustered, len(supports.points), weight)
    # a cluster of noise alone, whose points all lie beyond its radius, has a finite one as well
    return radius.clamp(min=least)


def radii(far: Tensor, nearest: Tensor, clustered: Tensor, k: int, weight: Tensor | None = None) -> Tensor:
    """Return the distances [K] from the nearest cluster beyond which points are noise; clusters differ in density.

    Each is the threshold that separates clustered points near the cluster from noise with the fewest errors. If
    there is no noise beyond a cluster, it is the best threshold for all points, or the distance of the cluster's
    farthest point. `far` [n] are distances to the `nearest` [n] of k clusters, `clustered` [n] is False for noise.
    Points may have weights [n], by which errors count.
    """
    weight = far.new_ones(len(far), dtype=torch.float64) if weight is None else weight
    # no point lies on the border, because the network rounds distances differently
    beyond = far + 1e-3 * far.abs()
    common = min(_cut(far, clustered, weight), float(beyond.amax()))
    found = []
    for cluster in range(k):
        own = nearest == cluster
        cut = _cut(far[own], clustered[own], weight[own])
        found.append(cut if cut < math.inf else max([common, *beyond[own].tolist()]))
    return far.new_tensor(found)


def _cut(far: Tensor, clustered: Tensor, weight: Tensor) -> float:
    """Return the threshold with the fewest errors, by weight; infinite if no point lies beyond it."""
    values, place = far.unique(return_inverse=True)
    edges = far.new_tensor([-math.inf, *values.tolist(), math.inf])
    # the correct points minus the errors up to each value, compared with a threshold below all of them
    signs = 2 * clustered.double() - 1
    gained = weight.new_zeros(len(values) + 1).index_add(0, place + 1, signs * weight).cumsum(0)
    at = int(gained.argmax())
    return float((edges[at] + edges[at + 1]) / 2)
