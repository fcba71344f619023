"""Surrogates: a kernel k-means that is fitted to the labels of a clustering without a decision function.

The fit takes these steps:

    1. Points are sorted by a hash of their values, so that the order of the rows has no influence, and centred.
    2. The clustered points give the supports of the clusters, from which a point has distances D_k(x)
       (:mod:`neonxc.clusterings.supports`); a second fit leaves out the first fifth of them, to be measured there.
    3. If there is noise, a point is noise if D_k(x) > R_k, with the radius R_k of its nearest cluster k: the
       threshold that separates clustered points from noise, among the points nearest to k, with the fewest errors.
    4. Its measures are the fractions of points with their label, in the fit and held out, the fraction of held-out
       points that are told from noise as their label does, and the stability of its explanations:
       1 - mean of |R' - R| / |R|, with the relevance R' of refits without a twentieth of the points each.
"""

from __future__ import annotations

import math
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from neonxc.attribution.neon import NEON
from neonxc.clusterings.fidelity import RECALL, WARNING, fraction_of, hashed, held_out_rows, warn_of_labels
from neonxc.clusterings.model import ClusterModel, Fidelity
from neonxc.clusterings.supports import Supports, check_spread, labelled
from neonxc.common.numbers import percent
from neonxc.common.precision import in_full_precision
from neonxc.common.sizes import REFIT_ROWS
from neonxc.common.types import ArrayLike
from neonxc.common.warnings import warn
from neonxc.data.labels import as_labels, label_array
from neonxc.head import Head, centroid_head
from neonxc.head.preprocessing import Preprocessing
from neonxc.network import NeuralizedClustering

DROPPED = 0.05  # fraction of the points that each refit for the stability leaves out
REFITS = 3
MARGIN = 1e-3  # relative; radii that are not threshold between two points are this far from the nearest one


class LabelledPoints(NamedTuple):
    """Points with their labels and weights."""

    x: Tensor  # [n, d]
    labels: Tensor  # [n] of int64, positions of clusters; 0 for noise
    is_clustered: Tensor  # [n] of bool, False for noise
    weight: Tensor | None  # [n] of float64; None: all points weigh the same

    def take(self, rows: slice | Tensor) -> LabelledPoints:
        """Take some of the points."""
        weight = None if self.weight is None else self.weight[rows]
        return LabelledPoints(self.x[rows], self.labels[rows], self.is_clustered[rows], weight)

    @property
    def clustered(self) -> LabelledPoints:
        """The points that are not noise."""
        return self.take(self.is_clustered)

    def without(self, rows: slice) -> LabelledPoints:
        """Leave out some of the points."""
        kept = torch.ones_like(self.is_clustered)
        kept[rows] = False
        return self.take(kept)

    def fraction(self, is_true: Tensor) -> float:
        """Return the fraction of the points, by weight, for which a statement [n] is true."""
        return fraction_of(is_true, self.weight)

    def supports(self, k: int) -> Supports:
        """Find the supports of k clusters, which these points belong to."""
        return labelled(self.x, self.labels, k, self.weight)


@in_full_precision
def fit_surrogate(points: Tensor, labels: ArrayLike, sample_weight: np.ndarray | None = None) -> ClusterModel:
    """Fit a kernel k-means, whose supports are the points of the clusters, to labels (NEON paper, section V).

    Points with label -1 (noise) are left out of the fit; if there are any, every cluster gets a radius, and points
    outside of that of their nearest cluster are noise.

    Inputs, which have one point or several, may have weights: points of weight 0 are left out, and each of the
    others counts as often as its weight, but is left out, or held out, with all of it.
    """
    # 1. sort and centre
    data, classes = _read_points(points, labels, sample_weight)
    clustered = data.clustered
    if clustered.weight is None:
        shift = clustered.x.mean(0)
    else:
        shift = (clustered.weight.to(data.x) @ clustered.x) / clustered.weight.sum()
    data = data._replace(x=data.x - shift)
    check_spread(data.x)

    # 2. fit all clustered points, and those that are not held out
    k = len(classes)
    clustered = data.clustered
    supports = clustered.supports(k)
    held_out_supports = _without(held_out_rows(clustered.x), clustered, k)

    # 3. radii, outside of which points are noise
    radius = None
    noise = None
    is_inside = torch.ones_like(clustered.is_clustered)
    if not bool(data.is_clustered.all()):
        radii_of_clusters = _radii_of(supports, data)
        inside = _is_inside(supports, radii_of_clusters, data.x)
        noise = _noise_held_out(held_out_supports, data)
        _warn_of_noise(inside, data, noise)
        is_inside = inside[data.is_clustered]
        radius = radii_of_clusters.cpu()

    # 4. measures
    fidelity = _fidelity(supports, held_out_supports, clustered, classes, is_inside)
    stability = _stability(supports, clustered, k)
    shift = shift.cpu()
    return ClusterModel(
        head=lambda preprocessing: _head(supports, shift, preprocessing),
        points=supports.flat()[0].cpu() + shift,
        classes=classes,
        fidelity=fidelity._replace(noise=noise, stability=stability),
        radius=radius,
        scale=supports.gamma,
    )


def _read_points(
    points: Tensor, labels: ArrayLike, sample_weight: np.ndarray | None
) -> tuple[LabelledPoints, np.ndarray]:
    """Return the points that have a weight, in the order of their hashes, and the labels of the clusters."""
    weight = None
    if sample_weight is not None:
        points_per_input = len(points) // len(sample_weight)
        weight = torch.from_numpy(np.repeat(sample_weight, points_per_input)).to(points.device)
        has_weight = weight > 0
        points = points[has_weight]
        labels = label_array(labels)[has_weight.cpu().numpy()]
        weight = weight[has_weight]
    column, classes, is_clustered = as_labels(labels, len(points), points.device)
    if len(classes) < 2:
        raise ValueError(f"labels needs at least 2 clusters apart from noise (-1), got {classes.tolist()}")
    order = hashed(points, column).argsort(stable=True)
    return LabelledPoints(points, column, is_clustered, weight).take(order), classes


def _head(supports: Supports, shift: Tensor | float, preprocessing: Preprocessing | None) -> Head:
    points, groups, log_weights = (values.cpu() for values in supports.flat())
    return centroid_head(points + shift, groups, preprocessing, gamma=supports.gamma, log_weights=log_weights)


def _fidelity(
    supports: Supports,
    held_out_supports: Supports | None,
    clustered: LabelledPoints,
    classes: np.ndarray,
    is_inside: Tensor,
) -> Fidelity:
    """Measure how many clustered points get their label; warn if the surrogate is another clustering.

    Points that are not `is_inside` lie outside the radius of their cluster, and become noise. The held-out
    fidelity is that of the surrogate of four fifths of the points, measured on the rest; it is None without one,
    because a cluster has no points in the four fifths.
    """
    is_correct = _has_label(supports, clustered) & is_inside
    checks = [(clustered.fraction(is_correct), is_correct, clustered, "the points")]
    if held_out_supports is not None:
        held_out = clustered.take(held_out_rows(clustered.x))
        is_correct = _has_label(held_out_supports, held_out)
        name = "the points held out from a fit to the others"
        checks.append((held_out.fraction(is_correct), is_correct, held_out, name))

    # there is one warning, that of the lower fidelity if both are low
    for _, is_correct, points, name in sorted(checks, key=itemgetter(0)):
        if warn_of_labels(is_correct, points.labels, classes, name, weight=points.weight):
            break
    return Fidelity(*(fraction for fraction, *_ in checks))


def _has_label(supports: Supports, points: LabelledPoints) -> Tensor:
    """Return whether the nearest cluster of each point is its own, [n] of bool."""
    return supports.distances(points.x).argmin(1) == points.labels


def _without(rows: slice, clustered: LabelledPoints, k: int) -> Supports | None:
    """Fit supports without some of the points; None if there are none of them, or a cluster would be lost."""
    rest = clustered.without(rows)
    sizes = torch.bincount(rest.labels, minlength=k)
    if len(rest.x) == len(clustered.x) or int(sizes.amin()) == 0:
        return None
    return rest.supports(k)


def _stability(supports: Supports, clustered: LabelledPoints, k: int) -> float | None:
    """Return 1 minus the mean of ``|R' - R| / |R|`` over refits without a twentieth of the points.

    R is the relevance of a sample of all points for their assigned clusters; with weights, a row of it counts as
    often as its point.
    """
    n = len(clustered.x)
    size = int(DROPPED * n)
    models = [supports]
    for i in range(REFITS):
        refit = _without(slice(i * size, (i + 1) * size), clustered, k)
        if refit is not None:
            models.append(refit)
    if len(models) == 1:
        return None

    sample = clustered.take(slice(None, None, max(1, n // REFIT_ROWS)))
    nets = []
    for model in models:
        net = NeuralizedClustering(_head(model, 0.0, None)).to(sample.x.device)
        nets.append(net.calibrate(clustered.x[: 2 * REFIT_ROWS]))
    assigned = nets[0].assign(sample.x)
    relevances = []
    for net in nets:
        relevance = NEON(net).attribute(sample.x, target=assigned)
        if sample.weight is not None:  # so that the squares have the weights in a norm
            relevance = relevance * sample.weight[:, None].sqrt().to(relevance)
        relevances.append(relevance)

    reference, *others = relevances
    size_of_reference = float(reference.norm()) or 1.0
    changes = [float((relevance - reference).norm()) / size_of_reference for relevance in others]
    return max(0.0, 1 - sum(changes) / len(changes))


def _warn_of_noise(inside: Tensor, data: LabelledPoints, held_out: float | None) -> None:
    """Warn if noise differs from the labels, held out or not, or most clustered points are taken for noise."""
    fraction = data.fraction(inside == data.is_clustered)
    of_clustered = data.clustered.fraction(inside[data.is_clustered])
    of_noise = data.take(~data.is_clustered).fraction(inside[~data.is_clustered])
    if fraction < WARNING or of_clustered < RECALL:
        warn(
            f"the surrogate tells noise (label -1) apart as the labels do for {percent(fraction)} of the points: "
            f"it takes {percent(1 - of_clustered)} of the clustered points for noise, and "
            f"{percent(of_noise)} of the noise for clustered",
        )
    elif held_out is not None and held_out < WARNING:
        warn(
            f"the surrogate tells noise (label -1) apart as the labels do for {percent(held_out)} of points held "
            "out from a fit to the others: so it will be for new points",
        )


def _noise_held_out(held_out_supports: Supports | None, data: LabelledPoints) -> float | None:
    """Return the fraction of held-out points that a surrogate of the rest tells from noise as their label does.

    None without such a surrogate, or if the rest has no noise to choose its radii by.
    """
    clustered_rows = data.is_clustered.nonzero()[:, 0]
    # the first points up to the first clustered one that is not held out, noise among them
    stop = int(clustered_rows[held_out_rows(clustered_rows).stop])
    held_out = data.take(slice(stop))
    rest = data.take(slice(stop, None))
    if held_out_supports is None or rest.is_clustered.all():
        return None
    radius = _radii_of(held_out_supports, rest)
    inside = _is_inside(held_out_supports, radius, held_out.x)
    return held_out.fraction(inside == held_out.is_clustered)


def _is_inside(supports: Supports, radius: Tensor, x: Tensor) -> Tensor:
    """Return whether points lie within the radius of their nearest cluster, [n] of bool."""
    distances, nearest = supports.distances(x).min(1)
    return distances <= radius[nearest]


def _radii_of(supports: Supports, data: LabelledPoints) -> Tensor:
    """Choose the radii [K] of clusters for new points.

    Clustered points are left out one by one, as they would support themselves.
    """
    distances = supports.distances(data.x)
    lowest = float(distances.amin() - MARGIN * distances.amin(1).abs().amax())
    clustered = data.clustered
    distances[data.is_clustered] = supports.left_out(clustered.x, clustered.labels, clustered.weight)
    nearest_distance, nearest = distances.min(1)
    radius = radii(nearest_distance, nearest, data.is_clustered, len(supports.points), data.weight)
    # a cluster of noise alone, whose points all lie outside its radius, has a finite one as well
    return radius.clamp(min=lowest)


def radii(far: Tensor, nearest: Tensor, clustered: Tensor, k: int, weight: Tensor | None = None) -> Tensor:
    """Choose the distances [K] from the nearest cluster beyond which points are noise; clusters differ in density.

    Each is the threshold that separates clustered points near the cluster from noise with the fewest errors. If
    there is no noise beyond a cluster, it is the best threshold for all points, or the distance of the cluster's
    farthest point. `far` [n] are distances to the `nearest` [n] of k clusters, `clustered` [n] is False for noise.
    Points may have weights [n], by which errors count.
    """
    if weight is None:
        weight = far.new_ones(len(far), dtype=torch.float64)
    # no point may lie on the border, because the network rounds distances differently
    outside = far + MARGIN * far.abs()
    common = min(_threshold(far, clustered, weight), float(outside.amax()))
    thresholds = []
    for cluster in range(k):
        is_nearest = nearest == cluster
        threshold = _threshold(far[is_nearest], clustered[is_nearest], weight[is_nearest])
        if not threshold < math.inf:  # it is NaN if the cluster is nearest to no point
            threshold = max([common, *outside[is_nearest].tolist()])
        thresholds.append(threshold)
    return far.new_tensor(thresholds)


def _threshold(distances: Tensor, clustered: Tensor, weight: Tensor) -> float:
    """Find the threshold with the fewest errors, by weight.

    It is infinite if no point lies beyond it, and NaN without points.
    """
    values, index = distances.unique(return_inverse=True)
    edges = distances.new_tensor([-math.inf, *values.tolist(), math.inf])
    # the correct points minus the errors up to each value, compared with a threshold below all of them
    signs = 2 * clustered.double() - 1
    gain = weight.new_zeros(len(values) + 1).index_add(0, index + 1, signs * weight).cumsum(0)
    best = int(gain.argmax())
    return float((edges[best] + edges[best + 1]) / 2)
