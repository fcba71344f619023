"""What all heads share: logits forward, relevance backward."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from neonxc.detection import Detection


class Head(nn.Module, ABC):
    """A cluster decision on points [N, d]."""

    def __init__(self, n_clusters: int) -> None:
        super().__init__()
        if n_clusters < 2:
            raise ValueError("explaining a clustering needs at least 2 clusters: with one there is no competitor")
        self.n_clusters = n_clusters

    @property
    @abstractmethod
    def n_features(self) -> int:
        """Number of columns d."""

    @property
    @abstractmethod
    def n_neurons(self) -> int:
        """What it computes per point, so that callers can bound memory."""

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Logits f [N, K] of points [N, d]; positive for the assigned cluster alone."""

    def assign(self, x: Tensor) -> Tensor:
        """Column [N] of the cluster each point belongs to."""
        return self(x).argmax(dim=1)

    def outside(self, x: Tensor) -> Tensor:
        """Whether points are noise to the clustering, [N]; most clusterings know none."""
        return torch.zeros(len(x), dtype=torch.bool, device=x.device)

    @abstractmethod
    def relevance(
        self, x: Tensor, target: Tensor, beta: float | Tensor, competitor: Tensor | None = None
    ) -> Tensor:
        """Relevance [N, d] of f_target (or of the contrast to a competitor)."""

    @abstractmethod
    def multiplier(
        self, x: Tensor, target: Tensor, beta: float | Tensor, competitor: Tensor | None = None
    ) -> Tensor:
        """Multipliers [N, d] of the standard linear rule, the bias absorbing its share."""


class DetectionHead(Head):
    """A head on one linear detection layer. Subclasses say what competes with what."""

    def __init__(self, detection: Detection, n_clusters: int) -> None:
        super().__init__(n_clusters)
        self.detection = detection

    @property
    def n_features(self) -> int:
        """Number of columns d."""
        return self.detection.n_features

    @property
    def n_neurons(self) -> int:
        """Neurons M of the detection layer."""
        return len(self.detection.directions)

    def forward(self, x: Tensor) -> Tensor:
        """Logits f [N, K] of points [N, d]; positive for the assigned cluster alone."""
        return self.pool(self.detection(x))

    def relevance(
        self, x: Tensor, target: Tensor, beta: float | Tensor, competitor: Tensor | None = None
    ) -> Tensor:
        """Relevance [N, d] by the mid-point rule (NEON paper, Eqs. 2 and 4).

        In closed form: no pair of clusters is ever laid out over the features.
        """
        detected = self.detection(x)
        return self.detection.relevance(x, *self.coefficients(detected, target, beta, competitor))

    def multiplier(
        self, x: Tensor, target: Tensor, beta: float | Tensor, competitor: Tensor | None = None
    ) -> Tensor:
        """Multipliers [N, d] of the standard linear rule, the bias absorbing its share."""
        coefficients, _ = self.coefficients(self.detection(x), target, beta, competitor)
        return self.detection.multiplier(x, coefficients)

    @abstractmethod
    def pool(self, detected: Tensor) -> Tensor:
        """Logits [N, K] from the detection layer's output [N, M]."""

    @abstractmethod
    def coefficients(
        self, detected: Tensor, target: Tensor, beta: float | Tensor, competitor: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Coefficients [N, M] with which a decision weighs the detected evidence, and the target's own part."""
