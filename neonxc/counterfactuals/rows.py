"""Rows of the clusters: towards which points change, and by which the places that they reach are judged.

The *depth* of a point in a cluster is its distance from the border, in standard deviations; where borders are
curved, it is the logit over the median logit of the cluster's rows. The *outlier factor* of a point is the local
outlier factor (Breunig et al., SIGMOD 2000) among the rows of a cluster, with columns in units of `spread`. It is
about 1 where rows are as dense as around their neighbors, and greater where there are fewer.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from sklearn.neighbors import LocalOutlierFactor
from torch import Tensor
from torch.nn.functional import one_hot

from neonxc.counterfactuals.pieces import Region
from neonxc.head import Head
from neonxc.head.answer import answers
from neonxc.head.grouping import Minimum
from neonxc.network import NeuralizedClustering

NEIGHBORS = 20
"""Largest number of neighbors of the outlier factor, scikit-learn's default; at most half of the rows."""
FEWEST = 10
"""Rows up to which a cluster has no outliers."""
OUTLIER = 1.5
"""Outlier factor beyond which a row is an outlier, as for scikit-learn's defaults."""


def known_rows(net: NeuralizedClustering) -> Tensor | None:
    """Return rows [R, d] of the clusters: those that the network keeps, its members or supports, or None."""
    if net.rows_ is not None:
        return net.rows_.to(net.inputs.device)
    detection = net.head.detection
    grouping = net.head.grouping
    has_supports = isinstance(grouping, Minimum) and grouping.mixes
    knows_rows = has_supports or detection.searches or detection.of_clusters is not detection
    if not knows_rows or getattr(detection, "norm", None) is not None:
        return None
    points = detection.references.double()
    return points[net._some_of_each(net.head.assign(points))]


def decisions(head: Head, points: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the positions [n] of the clusters of points, and the logits [n, K]."""
    blocks = [(answer.assigned, answer.logits) for answer in answers(head, points)]
    assigned, logits = map(torch.cat, zip(*blocks, strict=True))
    return assigned, logits


class ClusterRows:
    """Rows and their clusters.

    Parameters
    ----------
    points : Tensor [R, d] of float64
    head : Head
        Assigns them to clusters.
    region : LeafBoxes, Polyhedra or None
        The clusters, or None if their borders are curved.
    spread : Tensor [d]
    """

    def __init__(self, points: Tensor, head: Head, region: Region | None, spread: Tensor) -> None:
        self.points = points
        self.head = head
        self.region = region
        self.spread = spread
        self._outlier_models: dict[int, tuple[LocalOutlierFactor | None, np.ndarray]] = {}

    @cached_property
    def _decisions(self) -> tuple[Tensor, Tensor]:
        return decisions(self.head, self.points)

    @property
    def cluster(self) -> Tensor:
        """The positions [R] of the clusters."""
        return self._decisions[0]

    @cached_property
    def depths(self) -> Tensor:
        """How deep each row [R] is inside its cluster."""
        targets = one_hot(self.cluster, self.head.n_clusters).bool()
        if self.region is not None:
            return self.region.depth(self.points, targets, self.spread)
        return (self._decisions[1] / self._medians)[targets]

    @cached_property
    def _medians(self) -> Tensor:
        """The median logits [K] of the rows of the clusters."""
        cluster, logits = self._decisions
        medians = torch.ones_like(logits[0])
        for k in cluster.unique().tolist():
            medians[k] = logits[cluster == k, k].quantile(0.5)
        return medians.clamp(min=torch.finfo(medians.dtype).tiny)

    def depth(self, y: Tensor, targets: Tensor) -> Tensor:
        """Compute how deep points [m, d] are inside one of their targets [m, K]; negative outside."""
        if not len(y):
            return y.new_empty(0)
        if self.region is not None:
            return self.region.depth(y, targets, self.spread)
        return (self.head(y) / self._medians).masked_fill(~targets, -torch.inf).amax(dim=1)

    def gradient(self, y: Tensor, targets: Tensor) -> Tensor:
        """Compute the gradients [m, d] of the depth."""
        gradients = [torch.zeros_like(y[:0])]
        for block in self.head.blocks(y):
            with torch.enable_grad():
                leaf = y[block].requires_grad_()
                depth = self.depth(leaf, targets[block]).sum()
            gradients += torch.autograd.grad(depth, leaf)
        return torch.cat(gradients)

    def outlier_factors(self, points: Tensor, cluster: Tensor) -> np.ndarray:
        """Compute the outlier factors of points [n, d] in clusters [n]; NaN for clusters with few rows."""
        factors = np.full(len(points), np.nan)
        for k in cluster.unique().tolist():
            model, _ = self._outlier_model(k)
            is_inside = cluster == k
            if model is not None:
                factors[is_inside.cpu().numpy()] = -model.score_samples(self._scaled(points[is_inside]))
        return factors

    def is_outlier(self, clusters: Tensor) -> Tensor:
        """Whether each row [R] is an outlier of its cluster; False for rows of other clusters than the given."""
        is_outlier = torch.zeros_like(self.cluster, dtype=torch.bool)
        for k in clusters.tolist():
            model, copies = self._outlier_model(k)
            if model is not None:
                factors = -model.negative_outlier_factor_[copies]
                is_outlier[self.cluster == k] = torch.as_tensor(factors > OUTLIER, device=is_outlier.device)
        return is_outlier

    def _outlier_model(self, k: int) -> tuple[LocalOutlierFactor | None, np.ndarray]:
        """Fit a model to the distinct rows of a cluster, and return which of these each row is.

        Copies would be infinitely dense. Clusters with few rows have no model.
        """
        if k not in self._outlier_models:
            points = self._scaled(self.points[self.cluster == k])
            rows, copies = np.unique(points, axis=0, return_inverse=True)
            model = None
            if len(rows) > FEWEST:
                model = LocalOutlierFactor(n_neighbors=min(NEIGHBORS, len(rows) // 2), novelty=True).fit(rows)
            self._outlier_models[k] = model, copies.ravel()
        return self._outlier_models[k]

    def _scaled(self, points: Tensor) -> np.ndarray:
        scaled: np.ndarray = (points / self.spread).cpu().numpy()
        return scaled
