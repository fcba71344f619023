"""The nearest centroid: of one per cluster, of several, or softly of many supports."""

from __future__ import annotations

import torch
from torch import Tensor

from neonxc.detection import Detection, prototypes
from neonxc.heads.base import DetectionHead
from neonxc.pooling import competitor_weights, group_min, group_soft_min, logits
from neonxc.preprocessing import Preprocessing


class CentroidHead(DetectionHead):
    """Clusters as far as their centroid; with `groups`, as the (soft) minimum over each cluster's own ones.

    Parameters
    ----------
    centers : Tensor [M, p]
        In the space the clusterer saw.
    groups : Tensor [M], optional
        Column of the cluster that each centroid stands for; default: its own.
    preprocessing : Preprocessing, optional
        From raw columns to that space.
    gamma : float, optional
        Stiffness of the minimum over a cluster's centroids, in units of 1 / squared distance: that of the kernel
        of a kernel k-means, whose supports the centroids are then. Default: the hard minimum.
    log_weights : Tensor [M], optional
        Logarithms of the weights of supports; default: all of a cluster's alike, summing to 1.
    offsets : Tensor [K], optional
        What is added to the distances to a cluster before they are compared.
    scale : float
        What distances are multiplied by before that.
    threshold : float, optional
        Explain ``p_c > threshold`` instead of ``p_c > p_k`` for all k, with ``p = softmax(-distances)``.
    radius : float or Tensor [K], optional
        Squared distance from the nearest cluster beyond which a point is noise (:meth:`outside`): one for all
        clusters, or one for each.

    Notes
    -----
    A cluster's distance is ``D_k = LME^{-gamma}`` over its supports (NEON paper, Eq. 7). The four-layer network of
    Prop. 5 has a neuron for each pair of supports of two clusters, but its soft maximum over the supports of c
    does not depend on the support of k and the other way round: relevance is a sum over supports, at linear cost.
    """

    PLAIN = ("n_clusters", "sizes", "gamma", "scale", "threshold")
    groups: Tensor | None
    log_weights: Tensor | None
    offsets: Tensor | None
    radius: Tensor | None
    space: Tensor | None

    def __init__(
        self,
        centers: Tensor,
        groups: Tensor | None = None,
        preprocessing: Preprocessing | None = None,
        *,
        gamma: float | None = None,
        log_weights: Tensor | None = None,
        offsets: Tensor | None = None,
        scale: float = 1.0,
        threshold: float | None = None,
        radius: float | Tensor | None = None,
    ) -> None:
        preprocessing = preprocessing or Preprocessing.identity(centers.shape[1])
        n_clusters = len(centers) if groups is None else int(groups.max()) + 1
        if groups is not None:
            groups, order = groups.sort(stable=True)  # soft minima are taken cluster by cluster
            centers = centers[order]
            log_weights = None if log_weights is None else log_weights[order]
            if log_weights is None and gamma is not None:
                log_weights = -torch.bincount(groups).double().log()[groups]
        super().__init__(Detection(*prototypes(centers, preprocessing)), n_clusters)
        self.sizes = [1] * n_clusters if groups is None else torch.bincount(groups).tolist()
        self.gamma, self.scale, self.threshold = gamma, float(scale), threshold
        self.register_buffer("groups", groups)
        self.register_buffer("log_weights", log_weights)
        self.register_buffer("offsets", offsets)
        if radius is not None:
            radius = torch.as_tensor(radius, dtype=torch.float64).expand(n_clusters).clone()
        self.register_buffer("radius", radius)
        self.register_buffer("space", None if radius is None else preprocessing.weight)

    def assign(self, x: Tensor) -> Tensor:
        """Column [N] of the cluster with the nearest centroid."""
        return self._energy(self._minima(self.detection(x))[0]).argmin(dim=1)

    def outside(self, x: Tensor) -> Tensor:
        """Whether points are farther from their nearest cluster than its radius, [N]."""
        if self.radius is None or self.space is None:
            return super().outside(x)
        y = self.detection.coordinates(x)
        space = self.space.to(y)
        z = y * space if space.ndim == 1 else y @ space.T
        least, nearest = self._minima(self.detection(x))[0].min(dim=1)
        return least + z.square().sum(dim=1) > self.radius.to(least)[nearest]

    def pool(self, detected: Tensor) -> Tensor:
        """Logits [N, K]: by how much the nearest other cluster is farther away than this one."""
        return logits(self._energy(self._minima(detected)[0]), self.threshold)

    def coefficients(
        self, detected: Tensor, target: Tensor, beta: float | Tensor, competitor: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Weights of the centroids: the competitors' shares, and minus their sum at the target's own."""
        minima, members = self._minima(detected)
        weights = competitor_weights(self._energy(minima), target, beta, competitor, self.threshold) * self.scale
        own = torch.zeros_like(weights).scatter_(1, target[:, None], 1.0)
        if members is None:
            return weights, own
        return weights[:, self.groups] * members, own[:, self.groups] * members

    def _energy(self, minima: Tensor) -> Tensor:
        """What clusters are compared by, [N, K]."""
        energy = minima if self.scale == 1 else minima * self.scale
        return energy if self.offsets is None else energy + self.offsets.to(energy)

    def _minima(self, detected: Tensor) -> tuple[Tensor, Tensor | None]:
        """Distance [N, K] of each cluster, up to a term that all share, and each centroid's share [N, M] in it."""
        if self.groups is None:
            return detected, None
        if self.gamma is None or self.log_weights is None:
            return group_min(detected, self.groups, self.n_clusters)
        return group_soft_min(detected, self.sizes, self.gamma, self.log_weights)
