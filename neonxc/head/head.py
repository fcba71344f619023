"""The head of a neuralized clustering: detection, grouping and competition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from neonxc.common.memory import blocks
from neonxc.common.registry import storable
from neonxc.data.inputs import check_width
from neonxc.data.sparse import SparseRows
from neonxc.head.competition import Competition, Path, Rivals, Share, softmin, take_most
from neonxc.head.detection import Detection, Framed, LinearDetection, Preprocessing, full_precision, mapped
from neonxc.head.grouping import Minimum, Pieces, Stage, UnionOfIntervals


@dataclass(frozen=True)
class Decision:
    """The decisions at N points, each written as a weighted sum of M neurons.

    Attributes
    ----------
    detection : Detection
        The neurons.
    weights : Tensor [N, M]
        Weight of every neuron at every point.
    own : Tensor [N, M] or None
        Weights of the target cluster's own neurons; see `own` of :meth:`Detection.relevance`.
    """

    detection: Detection
    weights: Tensor
    own: Tensor | None

    def relevance(self, x: Tensor) -> Tensor:
        """Compute the relevance [N, d] of points [N, d] by the midpoint rule (NEON paper, Eqs. 2 and 4).

        The closed form needs no tensor of clusters by features for each point.
        """
        return self.detection.relevance(x, self.weights, self.own)

    def multiplier(self, x: Tensor) -> Tensor:
        """Compute the multipliers [N, d] of the standard linear rule, where the bias absorbs its share."""
        return self.detection.multiplier(x, self.weights)


@storable
class Head(nn.Module):
    """A cluster decision on points [N, d], as a network of three layers.

    Parameters
    ----------
    detection : LinearDetection, QuadraticDetection or EdgeDetection
        Computes neurons [N, M] from points.
    grouping : Minimum or UnionOfIntervals, optional
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
    grouping: Minimum | UnionOfIntervals | None
    competition: Competition

    def __init__(
        self,
        detection: Detection,
        grouping: Minimum | UnionOfIntervals | None = None,
        competition: Competition | None = None,
    ) -> None:
        super().__init__()
        self.detection = detection
        self.register_module("grouping", grouping)
        self.competition = competition or Rivals()
        if self.n_clusters < 2:
            raise ValueError("explaining a clustering needs at least 2 clusters: with one there is no competitor")

    @property
    def n_clusters(self) -> int:
        """Number of clusters K."""
        return self.competition.k if isinstance(self.competition, Path) else self.n_values

    @property
    def n_values(self) -> int:
        """Number of values G that compete."""
        return self.detection.n_neurons if self.grouping is None else self.grouping.n_groups

    @property
    def groups(self) -> Tensor:
        """The cluster or test [M] that each neuron belongs to."""
        if self.grouping is None:
            return torch.arange(self.n_values, device=self.detection.device)
        return self.grouping.groups

    @property
    def n_features(self) -> int:
        """Number of columns d."""
        return self.detection.n_features

    @property
    def width(self) -> int:
        """The number of values computed per point, from which callers bound memory."""
        return max(self.detection.width, self.n_clusters)

    def blocks(self, x: Tensor | SparseRows) -> Iterator[slice]:
        """Slices of points for which the values fit into memory."""
        return blocks(len(x), 4 * x.element_size() * self.width, x.device)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the logits [N, K] of points [N, d]; only the assigned cluster's is positive."""
        return self.competition(self.values(x))

    def values(self, x: Tensor) -> Tensor:
        """Compute the values [N, G] that compete: of clusters (the least wins) or of a tree's tests."""
        return self._grouped(x)[0]

    def assign(self, x: Tensor) -> Tensor:
        """Return the column [N] of the cluster that each point is assigned to."""
        return self.competition.assign(self.values(x))

    def pieces(self) -> Pieces:
        """Return the clusters as unions of convex or curved pieces, bounded by the values of :meth:`compared`."""
        if isinstance(self.competition, Path):
            leaves = Pieces(self.competition.leaves, self.competition.signs)
            return self.grouping.pieces(leaves) if isinstance(self.grouping, UnionOfIntervals) else leaves
        groups = self.groups.unique() if self._mixes else self.groups
        # one piece per value, where it is the least of all
        own = torch.arange(len(groups), device=groups.device)
        return Pieces(groups, (groups != groups[:, None]).to(torch.int8), own)

    def compared(self, x: Tensor) -> Tensor:
        """Compute the values [N, M] that bound :meth:`pieces`: neurons, or the values of soft groups."""
        return self.values(x) if self._mixes else self.detection(x)

    def slopes(self) -> Tensor | None:
        """Return the gradients [M, d] of the values of :meth:`compared`; None if they are not linear in x."""
        return None if self._mixes else self.detection.slopes()

    def decision(
        self,
        x: Tensor,
        target: Tensor,
        beta: float | Tensor,
        competitor: Tensor | None = None,
        share: Share = take_most,
    ) -> Decision:
        """Write the logit of one cluster at every point as a weighted sum of neurons.

        Parameters
        ----------
        x : Tensor [N, d]
        target : Tensor [N] of int64
            Column of the cluster to explain at each point.
        beta : float or scalar Tensor
            Stiffness of the shares.
        competitor : Tensor [N] of int64, optional
            The only competitor of each point. Default: all other clusters compete.
        share : callable
            Computes the competitors' shares [N, L] from contrasts [N, L] and beta.

        Returns
        -------
        Decision
        """
        values, parts = self._grouped(x)
        contrasts, signs, own = self.competition.evidence(values, target, competitor)
        if self.competition.threshold is None:
            shares = share(contrasts, beta)
        else:  # the gradient of the soft minimum that a threshold implies
            shares = softmin(contrasts, 1.0).nan_to_num()
        weights = shares if signs is None else shares * signs
        if own is not None:
            weights = weights - own * shares.sum(dim=1, keepdim=True)
        if parts is not None:
            weights = weights[:, self.groups] * parts
            own = None if own is None else own[:, self.groups] * parts
        return Decision(self.detection, weights, own)

    def soft(self, factor: float, threshold: float | None) -> Head:
        """Return the head of ``p = softmax(-factor * values)``, with a threshold of p; its neurons are linear."""
        if factor == 1 and threshold is None:
            return self
        detection, grouping = self.detection, self.grouping
        if factor != 1:
            assert isinstance(detection, LinearDetection)
            detection = detection.changed(directions=detection.directions * factor, bias=detection.bias * factor)
        if isinstance(grouping, Minimum) and grouping.gamma is not None:
            grouping = grouping.changed(gamma=grouping.gamma / factor)
        return Head(detection, grouping, self.competition if threshold is None else Rivals(threshold))

    @property
    def _mixes(self) -> bool:
        """Whether the value of a cluster depends on several neurons at once."""
        return isinstance(self.grouping, Minimum) and self.grouping.gamma is not None

    def _grouped(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Compute the values [N, G] of points, and the neurons' shares [N, M] in them."""
        check_width(x.shape[1], self.n_features, name="x")
        neurons = self.detection(x)
        return (neurons, None) if self.grouping is None else self.grouping(neurons)


@storable
class Noise(Stage):
    """Decides which points are noise: those farther from their nearest cluster than the cluster's radius.

    Parameters
    ----------
    radius : float or Tensor [K]
        Squared distance in the units of the head's values: one for all clusters, or one for each.
    n_clusters : int
        Number of clusters K of the head.
    space : Tensor [d] or [p, d]
        Linear map from raw columns to the space in which distances are measured.
    """

    radius: Tensor
    space: Tensor

    def __init__(self, radius: float | Tensor, n_clusters: int, space: Tensor) -> None:
        radius = torch.as_tensor(radius, dtype=torch.float64, device=space.device)
        super().__init__(radius=radius.expand(n_clusters).clone(), space=space)

    def scaled(self, factor: float) -> Noise:
        """Return the same noise for a head whose logits are multiplied by a factor."""
        return self.changed(radius=self.radius * factor, space=self.space * factor**0.5)

    def forward(self, head: Head, x: Tensor) -> Tensor:
        """Return whether points [N, d] are noise, [N] of bool."""
        distance = self.distance(head, x)
        least, nearest = distance.min(dim=1)
        return least > self.radius.to(least)[nearest]

    def margin(self, head: Head, x: Tensor) -> Tensor:
        """Compute the radius minus the squared distance [N, K]; positive for points inside a cluster's radius."""
        return self.radius.to(x) - self.distance(head, x)

    def distance(self, head: Head, x: Tensor) -> Tensor:
        """Compute the squared distances [N, K] of points [N, d] from the clusters."""
        detection, distance = head.detection, head.values(x)
        assert isinstance(detection, Framed)
        for block in head.blocks(x):  # of sparse points, whose coordinates are dense
            with full_precision(x):
                y, _ = detection.coordinates(x[block])
                # the term of a point's distances that the head leaves out
                distance[block] += mapped(self.space.to(y), y).square().sum(dim=1, keepdim=True)
        return distance


def centroids(
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
        return Head(centroids(centers, preprocessing))
    groups, order = groups.sort(stable=True)  # soft minima are taken cluster by cluster
    weights = None if log_weights is None else log_weights[order]
    return Head(centroids(centers[order], preprocessing), Minimum(groups, gamma, weights))


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
    anchors, root, origin = torch.zeros_like(weight), torch.zeros_like(weight[0]), torch.zeros_like(weight[0])
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
    both = centroids(torch.cat([left, right]), preprocessing)
    (d_left, d_right), (a_left, a_right) = both.directions.chunk(2), both.anchors.chunk(2)
    # the neuron of a split is the right child's distance minus the left child's: positive on the left
    directions, anchors = d_right - d_left, a_left + a_right
    split = both.changed(directions=directions, anchors=anchors, bias=(directions * anchors).sum(dim=1))
    return Head(split, None, Path(children, torch.arange(len(children) + 1, device=left.device)))
