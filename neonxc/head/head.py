"""The head of a neuralized clustering, a network of three layers on points [N, d].

The layers compute::

    detection     neurons a_m(x) [N, M]       linear, quadratic, of single columns, or of the nearest rows
    grouping      values E_g [N, G]           a minimum over the neurons of every cluster, or the tests of a tree
    competition   logits f_k [N, K]           positive for the assigned cluster only

Heads of centroids mu_m behind affine steps ``z = A y + z_0`` compute squared distances without the term that all
have in common, so that neurons are linear in the coordinates y (NEON paper, Prop. 1)::

    |z - mu_m|^2 - |A y|^2 = |M_m|^2 - 2 M_m' A y = D_m (anchor_m - y)
    with M_m = mu_m - z_0,  D_m = 2 A' M_m  and  anchor_m = A^-1 M_m / 2
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor, nn

from neonxc.common.memory import CACHE, blocks
from neonxc.common.registry import storable
from neonxc.data.inputs import check_width
from neonxc.data.sparse import SparseRows
from neonxc.head.answer import answers
from neonxc.head.competition import Competition, Competitors, Path
from neonxc.head.detection import Detection, LinearDetection
from neonxc.head.grouping import Grouping, Minimum
from neonxc.head.preprocessing import Preprocessing, pulled_back


@storable
class Head(nn.Module):
    """A cluster decision on points [N, d], as a network of three layers.

    Parameters
    ----------
    detection : Detection
        Computes neurons [N, M] from points.
    grouping : Minimum, UnionOfIntervals or NearestRadius, optional
        Computes the values [N, G] of clusters or tests from neurons. Default: every neuron is a value.
    competition : Competitors or Path, optional
        Computes logits [N, K] from values. Default: :class:`Competitors`, where all clusters compete.

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
        self.competition = Competitors() if competition is None else competition
        if self.n_clusters < 2:
            raise ValueError("explaining a clustering needs at least 2 clusters: with one there is no competitor")

    @cached_property
    def n_clusters(self) -> int:
        """Number of clusters K."""
        if isinstance(self.competition, Path):
            return self.competition.k
        return self.n_values

    @cached_property
    def n_values(self) -> int:
        """Number of values G that compete."""
        if self.grouping is None:
            return self.detection.n_neurons
        return self.grouping.n_groups

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
        bytes_per_row = x.element_size() * self.width
        if isinstance(x, SparseRows) and x.has_sparse_slices:
            # a product of the few rows that fit into a cache, dense, takes longer to begin than to compute
            # (the 28 pairs of clusters of 2,000 texts with 5,000 terms: 2.1 s, and 0.6 s by larger blocks)
            return blocks(len(x), 4 * (bytes_per_row + x.bytes_per_row), x.device)
        return blocks(len(x), 4 * bytes_per_row, x.device, CACHE)

    def forward(self, x: Tensor | SparseRows) -> Tensor:
        """Compute the logits [N, K] of points [N, d]; only the assigned cluster's is positive."""
        if torch.compiler.is_compiling():
            return self.competition(self.values(x))
        blocks = self.blocks(x)
        if len(blocks) < 2:
            return self.competition(self.values(x))
        return torch.cat([self.competition(self.values(x[block])) for block in blocks])

    def values(self, x: Tensor | SparseRows) -> Tensor:
        """Compute the values [N, G] that compete: of clusters (the least wins) or of a tree's tests."""
        check_width(x.shape[1], self.n_features, name="x")
        values, _ = self.grouped(self.detection(x))
        return values

    def grouped(self, neurons: Tensor) -> tuple[Tensor, Tensor | None]:
        """Compute the values [N, G] from neurons [N, M], and the neurons' shares [N, M] in them."""
        if self.grouping is None:
            return neurons, None
        values, shares = self.grouping(neurons)
        return values, shares

    def assign(self, features: Tensor | SparseRows) -> Tensor:
        """Return the cluster of each point, as the position [N] of its output.

        Parameters
        ----------
        features : Tensor or SparseRows [N, d], or Tensor [N, d, ...]
            Features; on a map every location is a point, so that the result is [N, ...].
        """
        # features of no input have no answer
        empty = torch.empty(0, dtype=torch.int64, device=features.device)
        positions = torch.cat([empty, *(answer.assigned for answer in answers(self, features))])
        n_inputs, _, *map_shape = features.shape
        return positions.view(n_inputs, *map_shape)

    def soft(self, factor: float, threshold: float | None) -> Head:
        """Return the head of ``p = softmax(-factor * values)``, with a threshold of p; its neurons are linear."""
        if factor == 1 and threshold is None:
            return self
        detection = self.detection
        grouping = self.grouping
        competition = self.competition
        if factor != 1:
            assert isinstance(detection, LinearDetection)
            detection = detection.changed(directions=detection.directions * factor, bias=detection.bias * factor)
        if isinstance(grouping, Minimum) and grouping.gamma is not None:
            # so that the soft minimum of the scaled neurons is the scaled soft minimum
            grouping = grouping.changed(gamma=grouping.gamma / factor)
        if threshold is not None:
            competition = Competitors(threshold)
        return Head(detection, grouping, competition)


def centroid_neurons(
    centers: Tensor, preprocessing: Preprocessing | None = None, factor: float = 1.0, offsets: Tensor | float = 0.0
) -> LinearDetection:
    """Make neurons that compute the squared distances from centroids, up to a term that all centroids share.

    The formula is in the module's docstring.

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
    if preprocessing is None:
        preprocessing = Preprocessing.identity(centers.shape[1], centers.device)
    centers = centers.double() - preprocessing.offset
    mean = centers.mean(dim=0)  # z_0
    directions = factor * 2 * pulled_back(preprocessing.weight, centers - mean)
    anchors = preprocessing.preimage(centers - mean) / 2
    bias = (directions * anchors).sum(1) + offsets
    frame = preprocessing.coordinates(mean).parts()
    return LinearDetection(directions, anchors, bias, **frame)


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
    if log_weights is not None:
        log_weights = log_weights[order]
    return Head(centroid_neurons(centers[order], preprocessing), Minimum(groups, gamma, log_weights))


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
    # E_k = bias_k - D_k y, with D = weight and y = x
    if bias is not None:
        bias = -bias
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
    children_neurons = centroid_neurons(torch.cat([left, right]), preprocessing)
    left_directions, right_directions = children_neurons.directions.chunk(2)
    left_anchors, right_anchors = children_neurons.anchors.chunk(2)
    # The neuron of a split is the right child's distance minus the left child's: positive on the left. It is zero
    # at the sum of the two anchors, the point halfway between the centers.
    directions = right_directions - left_directions
    anchors = left_anchors + right_anchors
    bias = (directions * anchors).sum(dim=1)
    detection = children_neurons.changed(directions=directions, anchors=anchors, bias=bias)
    leaves = torch.arange(len(children) + 1, device=left.device)
    return Head(detection, None, Path(children, leaves))
