"""The head of a neuralized clustering: detection, grouping and competition."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from neonxc.common.memory import CACHE, blocks
from neonxc.common.registry import storable
from neonxc.data.inputs import check_width
from neonxc.data.sparse import SparseRows
from neonxc.head.competition import Competition, Path, Rivals
from neonxc.head.detection import Detection, LinearDetection, Preprocessing
from neonxc.head.grouping import Grouping, Minimum


@storable
class Head(nn.Module):
    """A cluster decision on points [N, d], as a network of three layers.

    Parameters
    ----------
    detection : Detection
        Computes neurons [N, M] from points.
    grouping : Minimum, UnionOfIntervals or NearestRadius, optional
        Computes the values [N, G] of clusters or tests from neurons. Default: every neuron is a value.
    competition : Rivals or Path, optional
        Computes logits [N, K] from values. Default: :class:`Rivals`, where all clusters compete.

    Raises
    ------
    ValueError
        Fewer than two clusters.
    """

    PLAIN = ()
    detection: Detection
    grouping: Grouping | None
    competition: Competition

    def __init__(
        self,
        detection: Detection,
        grouping: Grouping | None = None,
        competition: Competition | None = None,
    ) -> None:
        super().__init__()
        self.detection = detection
        self.register_module("grouping", grouping)
        self.competition = competition or Rivals()
        if self.n_clusters < 2:
            raise ValueError("explaining a clustering needs at least 2 clusters: with one there is no competitor")

    @cached_property
    def n_clusters(self) -> int:
        """Number of clusters K."""
        return self.competition.k if isinstance(self.competition, Path) else self.n_values

    @cached_property
    def n_values(self) -> int:
        """Number of values G that compete."""
        grouping: Any = self.grouping
        return self.detection.n_neurons if grouping is None else int(grouping.n_groups)

    @property
    def groups(self) -> Tensor:
        """The cluster or test [M] that each neuron belongs to."""
        if self.grouping is None:
            return torch.arange(self.n_values, device=self.detection.device)
        return self.grouping.groups

    @cached_property
    def n_features(self) -> int:
        """Number of columns d."""
        return self.detection.n_features

    @cached_property
    def width(self) -> int:
        """The number of values computed per point, from which callers bound memory."""
        return max(self.detection.width, self.n_clusters)

    def blocks(self, x: Tensor | SparseRows) -> list[slice]:
        """Slices of points whose values fit into a processor's cache, or into the memory of another device."""
        per_row = x.element_size() * self.width
        if isinstance(x, SparseRows) and x.has_sparse_slices:
            per_row += x.bytes_per_row
        return blocks(len(x), 4 * per_row, x.device, CACHE)

    def forward(self, x: Tensor | SparseRows) -> Tensor:
        """Compute the logits [N, K] of points [N, d]; only the assigned cluster's is positive."""
        blocks = [] if torch.compiler.is_compiling() else self.blocks(x)
        if len(blocks) < 2:
            return self.competition(self.values(x))
        return torch.cat([self.competition(self.values(x[block])) for block in blocks])

    def values(self, x: Tensor | SparseRows) -> Tensor:
        """Compute the values [N, G] that compete: of clusters (the least wins) or of a tree's tests."""
        check_width(x.shape[1], self.n_features, name="x")
        return self.grouped(self.detection(x))[0]

    def grouped(self, neurons: Tensor) -> tuple[Tensor, Tensor | None]:
        """Compute the values [N, G] from neurons [N, M], and the neurons' shares [N, M] in them."""
        return (neurons, None) if self.grouping is None else self.grouping(neurons)

    def assign(self, x: Tensor | SparseRows) -> Tensor:
        """Return the position [N] of the cluster that each point is assigned to."""
        return self.competition.assign(self.values(x))

    def soft(self, factor: float, threshold: float | None) -> Head:
        """Return the head of ``p = softmax(-factor * values)``, with a threshold of p; its neurons are linear."""
        if factor == 1 and threshold is None:
            return self
        detection = self.detection
        grouping = self.grouping
        if factor != 1:
            assert isinstance(detection, LinearDetection)
            detection = detection.changed(directions=detection.directions * factor, bias=detection.bias * factor)
        if isinstance(grouping, Minimum) and grouping.gamma is not None:
            grouping = grouping.changed(gamma=grouping.gamma / factor)
        return Head(detection, grouping, self.competition if threshold is None else Rivals(threshold))


def centroid_neurons(
    centers: Tensor, preprocessing: Preprocessing | None = None, factor: float = 1.0, offsets: Tensor | float = 0.0
) -> LinearDetection:
    """Make neurons that compute the squared distances from centroids, up to a term that all centroids share.

    Without this term the distances are linear in the raw columns, even after an affine preprocessing A:
    ``|M|^2 - 2 M'(A y) = D (anchor - y)`` with ``D = 2 A'M`` and the anchor half the preimage of M.

    Parameters
    ----------
    centers : Tensor [M, p]
        Centroids in the space that the clusterer was fitted in.
    preprocessing : Preprocessing, optional
        Map from the raw columns to that space. Default: the identity.
    factor : float
        Factor of the distances.
    offsets : float or Tensor [M]
        Constants that are added to the scaled distances; they belong to no column.

    Returns
    -------
    LinearDetection
    """
    preprocessing = preprocessing or Preprocessing.identity(centers.shape[1], centers.device)
    centers = centers.double() - preprocessing.offset
    mean = centers.mean(dim=0)
    directions = factor * 2 * preprocessing.pullback(centers - mean)
    anchors = preprocessing.preimage(centers - mean) / 2
    bias = (directions * anchors).sum(1) + offsets
    return LinearDetection(directions, anchors, bias, **preprocessing.frame(mean))


def centroid_head(
    centers: Tensor,
    groups: Tensor | None = None,
    preprocessing: Preprocessing | None = None,
    *,
    gamma: float | None = None,
    log_weights: Tensor | None = None,
) -> Head:
    """Make a head that assigns points to the nearest centroid.

    Parameters
    ----------
    centers : Tensor [M, p]
        Centroids in the space that the clusterer was fitted in.
    groups : Tensor [M] of int64, optional
        Column of the cluster that each centroid belongs to; a cluster's distance is the (soft) minimum over its
        centroids. Default: every centroid is a cluster of its own.
    preprocessing : Preprocessing, optional
        Map from the raw columns to that space. Default: the identity.
    gamma : float, optional
        Stiffness of the soft minimum over a cluster's centroids, in units of 1 / squared distance. For kernel
        k-means, whose supports are the centroids, it is the parameter of the kernel. Default: the hard minimum.
    log_weights : Tensor [M], optional
        Logarithms of the centroids' weights in the soft minimum. Default: equal weights that sum to 1 per cluster.

    Returns
    -------
    Head
    """
    if groups is None:
        return Head(centroid_neurons(centers, preprocessing))
    groups, order = groups.sort(stable=True)  # soft minima are taken cluster by cluster
    weights = None if log_weights is None else log_weights[order]
    return Head(centroid_neurons(centers[order], preprocessing), Minimum(groups, gamma, weights))


def linear_head(weight: Tensor, bias: Tensor | None = None) -> Head:
    """Make a head that assigns points to the largest of K linear functions ``weight_k x + bias_k``.

    Parameters
    ----------
    weight : Tensor [K, d]
    bias : Tensor [K], optional
        Default: zeros.

    Returns
    -------
    Head
        Its values are ``E_k = -(weight_k x + bias_k)`` (NEON paper, Prop. 6).
    """
    anchors = torch.zeros_like(weight)
    root = torch.zeros_like(weight[0])
    origin = torch.zeros_like(weight[0])
    bias = None if bias is None else -bias
    return Head(LinearDetection(weight, anchors, bias, root=root, origin=origin, nearest_zero=True))


def bisecting_head(
    children: Sequence[tuple[int, int]], left: Tensor, right: Tensor, preprocessing: Preprocessing | None = None
) -> Head:
    """Make a head of a hierarchy of binary splits: at each split, a point goes to the nearer of two centers.

    Parameters
    ----------
    children : sequence of T pairs (left, right)
        The splits, as for :class:`~neonxc.head.competition.Path`; leaf k is cluster k.
    left, right : Tensor [T, p]
        Centers of the two children of each split.
    preprocessing : Preprocessing, optional
        Map from the raw columns to the space of the centers. Default: the identity.

    Returns
    -------
    Head
    """
    both = centroid_neurons(torch.cat([left, right]), preprocessing)
    (d_left, d_right), (a_left, a_right) = both.directions.chunk(2), both.anchors.chunk(2)
    # the neuron of a split is the right child's distance minus the left child's: positive on the left
    directions = d_right - d_left
    anchors = a_left + a_right
    split = both.changed(directions=directions, anchors=anchors, bias=(directions * anchors).sum(dim=1))
    return Head(split, None, Path(children, torch.arange(len(children) + 1, device=left.device)))
