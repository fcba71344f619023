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
from neonxc.data.labels import as_labels
from neonxc.head import Head, centroid_head
from neonxc.head.preprocessing import Preprocessing
from neonxc.network import NeuralizedClustering

DROPPED = 0.05  # share of the points that each refit for the stability leaves out
REFITS = 3
COMPARED = 500  # at least this number of points is compared, if there are as many, and less than twice it


def fit_surrogate(points: Tensor, labels: Any) -> ClusterModel:
    """Fit a kernel k-means, whose supports are the points of the clusters, to labels (NEON paper, section V).

    Points with label -1 (noise) are left out of the fit; if there are any, every cluster gets a radius, and points
    beyond that of their nearest cluster are noise.

    The points are first sorted by a hash of their values, so that the order of the rows has no influence.
    """
    column, classes, there = as_labels(labels, len(points), points.device)
    if len(classes) < 2:
        raise ValueError(f"labels needs at least 2 clusters apart from noise (-1), got {classes.tolist()}")
    order = hashed(points, column).argsort(stable=True)
    points = points[order]
    column = column[order]
    there = there[order]
    shift = points[there].mean(0)
    points = points - shift
    check_spread(points)
    x = points[there]
    y = column[there]
    supports = labelled(x, y, len(classes))
    others = _without(held_out_rows(x), x, y, len(classes))
    radius = None
    kept = torch.ones(len(x), dtype=torch.bool, device=x.device)
    noise = None
    if not bool(there.all()):
        radius = _radii_of(supports, points, column, there)
        inside = _within(supports, radius, points)
        noise = _noise_held_out(others, points, column, there)
        _warn_of_noise(inside, there, noise)
        kept = inside[there]
        radius = radius.cpu()
    fidelity = _fidelity(supports, others, x, y, classes, kept)._replace(noise=noise)
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
    supports: Supports, others: Supports | None, x: Tensor, labels: Tensor, classes: np.ndarray, kept: Tensor
) -> Fidelity:
    """Measure fidelity and stability of the surrogate of sorted points; warn if it is another clustering.

    Points that are not `kept` lie beyond the radius of their cluster, and become noise. The held-out fidelity is
    that of the surrogate `others` of four fifths of the points, measured on the rest; it is None without one,
    because a cluster has no points in the four fifths.
    """
    checked = [(supports, slice(None), "the points")]
    if others is not None:
        checked.append((others, held_out_rows(x), "the points held out from a fit to the others"))
    right = [one.distances(x[rows]).argmin(1) == labels[rows] for one, rows, _ in checked]
    right[0] &= kept
    shares = [*map(share, right)]
    for at in sorted(range(len(shares)), key=shares.__getitem__):
        _, rows, which = checked[at]
        if warn_of_labels(right[at], labels[rows], classes, which):
            break
    return Fidelity(*shares)._replace(stability=_stability(supports, x, labels, len(classes)))


def _without(out: slice, x: Tensor, labels: Tensor, k: int) -> Supports | None:
    """Fit a surrogate without the points in `out`; None if there are none, or a cluster would be lost."""
    kept = torch.ones(len(x), dtype=torch.bool, device=x.device)
    kept[out] = False
    if bool(kept.all()) or int(torch.bincount(labels[kept], minlength=k).amin()) == 0:
        return None
    return labelled(x[kept], labels[kept], k)


def _stability(supports: Supports, x: Tensor, labels: Tensor, k: int) -> float | None:
    """Return 1 minus the mean of ``|R' - R| / |R|`` over refits without a twentieth of the points.

    R is the relevance of a sample of all points for their assigned clusters.
    """
    size = int(DROPPED * len(x))
    refits = [_without(slice(i * size, (i + 1) * size), x, labels, k) for i in range(REFITS)]
    some = x[:: max(1, len(x) // COMPARED)]
    nets = [
        NeuralizedClustering(_head(one, 0.0, None)).to(x.device).calibrate(x[: 2 * COMPARED])
        for one in (supports, *refits)
        if one is not None
    ]
    own = nets[0](some).argmax(1)
    before, *after = (NEON(net).attribute(some, target=own) for net in nets)
    changes = [float((one - before).norm()) / (float(before.norm()) or 1.0) for one in after]
    return max(0.0, 1 - sum(changes) / len(changes)) if changes else None


def _warn_of_noise(inside: Tensor, clustered: Tensor, held_out: float | None) -> None:
    """Warn if noise differs from the labels, held out or not, or most clustered points are taken for noise."""
    agree = share(inside == clustered)
    if agree < WARNING or share(inside[clustered]) < RECALL:
        warn(
            f"the surrogate tells noise (label -1) apart as the labels do for {percent(agree)} of the points: it "
            f"takes {percent(share(~inside[clustered]))} of the clustered points for noise, and "
            f"{percent(share(inside[~clustered]))} of the noise for clustered",
        )
    elif held_out is not None and held_out < WARNING:
        warn(
            f"the surrogate tells noise (label -1) apart as the labels do for {percent(held_out)} of points held "
            "out from a fit to the others: so it will be for new points",
        )


def _noise_held_out(others: Supports | None, points: Tensor, column: Tensor, clustered: Tensor) -> float | None:
    """Share of held-out points, noise among them, that a surrogate of the others tells apart as their label does.

    None without such a surrogate, or if there is no noise to choose its radii by.
    """
    places = clustered.nonzero()[:, 0]
    stop = int(places[held_out_rows(places).stop])  # of all points, the held-out ones of clusters being the same
    rest = slice(stop, None)
    if others is None or clustered[rest].all():
        return None
    inside = _within(others, _radii_of(others, points[rest], column[rest], clustered[rest]), points[:stop])
    return share(inside == clustered[:stop])


def _within(supports: Supports, radius: Tensor, points: Tensor) -> Tensor:
    """Whether points lie within the radius of their nearest cluster, [n]."""
    far, nearest = supports.distances(points).min(1)
    return far <= radius[nearest]


def _radii_of(supports: Supports, points: Tensor, column: Tensor, clustered: Tensor) -> Tensor:
    """Radii [K] for new points: those of clusters are left out one by one, as they would support themselves."""
    distances = supports.distances(points)
    least = float(distances.amin() - 1e-3 * distances.amin(1).abs().amax())
    distances[clustered] = supports.left_out(points[clustered], column[clustered])
    radius = radii(*distances.min(1), clustered, len(supports.points))
    # a cluster of noise alone, whose points all lie beyond its radius, has a finite one as well
    return radius.clamp(min=least)


def radii(far: Tensor, nearest: Tensor, clustered: Tensor, k: int) -> Tensor:
    """Return the distances [K] from the nearest cluster beyond which points are noise; clusters differ in density.

    Each is the threshold that separates clustered points near the cluster from noise with the fewest errors. If
    there is no noise beyond a cluster, it is the best threshold for all points, or the distance of the cluster's
    farthest point. `far` [n] are distances to the `nearest` [n] of k clusters, `clustered` [n] is False for noise.
    """
    # no point lies on the border, because the network rounds distances differently
    beyond = far + 1e-3 * far.abs()
    common = min(_cut(far, clustered), float(beyond.amax()))
    found = []
    for cluster in range(k):
        own = nearest == cluster
        cut = _cut(far[own], clustered[own])
        found.append(cut if cut < math.inf else max([common, *beyond[own].tolist()]))
    return far.new_tensor(found)


def _cut(far: Tensor, clustered: Tensor) -> float:
    """Return the threshold with the fewest errors; infinite if no point lies beyond it."""
    values, place = far.unique(return_inverse=True)
    edges = far.new_tensor([-math.inf, *values.tolist(), math.inf])
    # the correct points minus the errors up to each value, compared with a threshold below all of them
    gained = place.new_zeros(len(values) + 1).index_add(0, place + 1, 2 * clustered.long() - 1).cumsum(0)
    at = int(gained.argmax())
    return float((edges[at] + edges[at + 1]) / 2)
