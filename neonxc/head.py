"""A cluster decision: detection, grouping, competition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from neonxc.blocks import blocks
from neonxc.centroids import centroids
from neonxc.competition import Path, Rivals, Share
from neonxc.detection import Detection, LinearDetection, full_precision
from neonxc.grouping import Minimum, UnionOfIntervals
from neonxc.pieces import Pieces
from neonxc.pooling import take_most
from neonxc.preprocessing import Preprocessing
from neonxc.registry import storable


@dataclass(frozen=True)
class Decision:
    """Decisions of some points as weighted sums of neurons; relevance and slopes follow from the weights.

    Attributes
    ----------
    detection : Detection
    weights : Tensor [N, M]
    own : Tensor [N, M] or None
        See :meth:`Detection.relevance`.
    """

    detection: Detection
    weights: Tensor
    own: Tensor | None

    def relevance(self, x: Tensor) -> Tensor:
        """Relevance [N, d] at points [N, d], by the mid-point rule (NEON paper, Eqs. 2 and 4).

        It is in closed form: no pair of clusters is ever laid out over the features.
        """
        return self.detection.relevance(x, self.weights, self.own)

    def multiplier(self, x: Tensor) -> Tensor:
        """Multipliers [N, d] of the standard linear rule, with which the bias absorbs its share."""
        return self.detection.multiplier(x, self.weights)


@storable
class Head(nn.Module):
    """A cluster decision on points [N, d].

    Parameters
    ----------
    detection : LinearDetection, QuadraticDetection or EdgeDetection
        Neurons [N, M] of points.
    grouping : Minimum or UnionOfIntervals, optional
        Values [N, G] of clusters or tests, from neurons. None: every neuron is a value.
    competition : Rivals or Path, optional
        Logits [N, K], from values. Default: the other clusters compete, :class:`Rivals`.

    Raises
    ------
    ValueError
        Fewer than two clusters.
    """

    PLAIN = ()
    detection: Detection
    grouping: Minimum | UnionOfIntervals | None
    competition: Rivals | Path

    def __init__(
        self,
        detection: Detection,
        grouping: Minimum | UnionOfIntervals | None = None,
        competition: Rivals | Path | None = None,
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
        n = self.detection.n_neurons if self.grouping is None else self.grouping.n_groups
        return self.competition.n_clusters(n)

    @property
    def n_features(self) -> int:
        """Number of columns d."""
        return self.detection.n_features

    @property
    def width(self) -> int:
        """How many numbers are computed per point, so that callers can bound memory."""
        return max(self.detection.width, self.n_clusters)

    def forward(self, x: Tensor) -> Tensor:
        """Logits f [N, K] of points [N, d]; positive for the assigned cluster alone."""
        return self.competition(self.values(x))

    def values(self, x: Tensor) -> Tensor:
        """What competes, [N, G]: clusters, of which the least wins, or the tests of a tree."""
        return self._grouped(self.detection(x))[0]

    def assign(self, x: Tensor) -> Tensor:
        """Column [N] of the cluster that each point belongs to."""
        return self.competition.assign(self.values(x))

    def pieces(self) -> Pieces:
        """The clusters as unions of pieces, in terms of what is :meth:`compared`."""
        n = self.detection.n_neurons if self.grouping is None else self.grouping.n_groups
        found = self.competition.pieces(n, self.detection.device)
        return found if self.grouping is None else self.grouping.pieces(found)

    def compared(self, x: Tensor) -> Tensor:
        """Values [N, M] of points that :meth:`pieces` compare: neurons, or clusters where these mix neurons."""
        return self.values(x) if self._mixes else self.detection(x)

    def slopes(self) -> Tensor | None:
        """Slopes [M, d] of what is compared, None where it is not linear in the raw columns."""
        return None if self._mixes else self.detection.slopes()

    def decision(
        self,
        x: Tensor,
        target: Tensor,
        beta: float | Tensor,
        competitor: Tensor | None = None,
        share: Share = take_most,
    ) -> Decision:
        """Decisions for a target at points [N, d], see :meth:`Rivals.weights` and :meth:`Path.weights`."""
        values, shares = self._grouped(self.detection(x))
        weights, own = self.competition.weights(values, target, beta, competitor, share)
        if shares is None or self.grouping is None:
            return Decision(self.detection, weights, own)
        of_value = self.grouping.groups
        return Decision(
            self.detection, weights[:, of_value] * shares, None if own is None else own[:, of_value] * shares
        )

    def scaled(self, factor: float) -> Head:
        """Give a head whose logits are multiplied by a factor."""
        grouping = None if self.grouping is None else self.grouping.scaled(factor)
        return Head(self.detection.scaled(factor), grouping, self.competition)

    @property
    def _mixes(self) -> bool:
        return self.grouping is not None and self.grouping.soft

    def _grouped(self, neurons: Tensor) -> tuple[Tensor, Tensor | None]:
        return (neurons, None) if self.grouping is None else self.grouping(neurons)


@storable
class Noise(nn.Module):
    """What is noise to a clustering: points that are farther from their nearest cluster than its radius.

    Parameters
    ----------
    radius : float or Tensor [K]
        Squared distance, as the head measures it: one for all clusters, or one for each.
    n_clusters : int
        K, the number of the head's clusters.
    space : Tensor [d] or [p, d]
        From raw columns to the space in which distances are measured.
    """

    PLAIN = ()
    radius: Tensor
    space: Tensor

    def __init__(self, radius: float | Tensor, n_clusters: int, space: Tensor) -> None:
        super().__init__()
        radius = torch.as_tensor(radius, dtype=torch.float64, device=space.device)
        self.register_buffer("radius", radius.expand(n_clusters).clone())
        self.register_buffer("space", space)

    def scaled(self, factor: float) -> Noise:
        """Give the same for a head whose logits are multiplied by a factor."""
        return Noise(self.radius * factor, len(self.radius), self.space * factor**0.5)

    def forward(self, head: Head, x: Tensor) -> Tensor:
        """Whether points [N, d] are noise, [N] of bool."""
        distance = self.distance(head, x)
        least, nearest = distance.min(dim=1)
        return least > self.radius.to(least)[nearest]

    def margin(self, head: Head, x: Tensor) -> Tensor:
        """By how much points [N, d] are inside each cluster's radius, [N, K]."""
        distance = self.distance(head, x)
        return self.radius.to(distance) - distance

    def distance(self, head: Head, x: Tensor) -> Tensor:
        """Squared distances [N, K] of points [N, d] from the clusters."""
        assert isinstance(head.detection, LinearDetection)
        values = head.values(x)
        common = values.new_empty(len(x))
        for some in blocks(
            len(x), 4 * x.element_size() * head.width, x.device
        ):  # of sparse points: dense coordinates
            common[some] = self._squares(head.detection, x[some])
        return values + common[:, None]

    def _squares(self, detection: LinearDetection, x: Tensor) -> Tensor:
        y = detection.coordinates(x)
        space = self.space.to(y)
        with full_precision(x):
            return (y * space if space.ndim == 1 else y @ space.T).square().sum(dim=1)


def centroid_head(
    centers: Tensor,
    groups: Tensor | None = None,
    preprocessing: Preprocessing | None = None,
    *,
    gamma: float | None = None,
    log_weights: Tensor | None = None,
) -> Head:
    """The nearest centroid wins; with `groups`, that of the (soft) minimum over each cluster's own centroids.

    Parameters
    ----------
    centers : Tensor [M, p]
        In the space that the clusterer saw.
    groups : Tensor [M] of int64, optional
        Column of the cluster that each centroid stands for; default: its own.
    preprocessing : Preprocessing, optional
        From the raw columns to that space.
    gamma : float, optional
        Stiffness of the minimum over a cluster's centroids, in units of 1 / squared distance; of a kernel
        k-means, whose supports the centroids are, that of the kernel. Default: the hard minimum.
    log_weights : Tensor [M], optional
        Logarithms of the weights of supports; default: all of a cluster's alike, summing to 1.
    """
    if groups is None:
        return Head(centroids(centers, preprocessing))
    groups, order = groups.sort(stable=True)  # soft minima are taken cluster by cluster
    weights = None if log_weights is None else log_weights[order]
    return Head(centroids(centers[order], preprocessing), Minimum(groups, gamma, weights))


def linear_head(weight: Tensor, bias: Tensor | None = None) -> Head:
    """The greatest of some linear functions wins (NEON paper, Prop. 6): ``E_k = -(weight_k x + bias_k)``.

    Parameters
    ----------
    weight : Tensor [K, d]
    bias : Tensor [K], optional
    """
    bias = weight.new_zeros(len(weight)) if bias is None else bias
    return Head(LinearDetection(weight, torch.zeros_like(weight), -bias, nearest_zero=True))


def bisecting_head(
    children: Sequence[tuple[int, int]], left: Tensor, right: Tensor, preprocessing: Preprocessing | None = None
) -> Head:
    """A hierarchy of two-way splits, at each of which the nearer of two centers wins.

    Parameters
    ----------
    children : sequence of T (left, right)
        As for :class:`~neonxc.competition.Path`; leaf k is cluster k.
    left, right : Tensor [T, p]
        Centers of each split's two children.
    preprocessing : Preprocessing, optional
        From the raw columns to the space of the centers.
    """
    both = centroids(torch.cat([left, right]), preprocessing)
    (d_left, d_right), (a_left, a_right) = both.directions.chunk(2), both.anchors.chunk(2)
    # a split's neuron is its right child's minus its left one's: positive on the left
    frame = {"diagonal": both.diagonal, "norm": both.norm, **both._buffers}
    split = LinearDetection(d_right - d_left, a_left + a_right, frame=frame)
    return Head(split, None, Path(children, torch.arange(len(children) + 1, device=left.device)))
