"""The problem that beta-interpretable clustering solves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .centers import Centers, Objective
from .distances import EncodedPoints


@dataclass(frozen=True)
class Problem:
    """Points, their values of interest, and the requirements on the clusters."""

    points: EncodedPoints
    codes: Tensor  # [n], values of interest
    n_values: int
    n_clusters: int
    beta: float
    objective: Objective

    def frequencies(self, among: Tensor | slice = slice(None)) -> np.ndarray:
        """Number of points of each value, [F], among some points or all."""
        return torch.bincount(self.codes[among], minlength=self.n_values).cpu().numpy()

    def counts(self, labels: Tensor) -> np.ndarray:
        """Number of points of each value in each cluster, [K, F]."""
        k = int(labels.amax()) + 1
        counts = torch.bincount(labels * self.n_values + self.codes, minlength=k * self.n_values)
        return counts.view(k, self.n_values).cpu().numpy()

    def centers(self, labels: Tensor) -> Centers:
        """Best center of each cluster."""
        return self.objective.centers(self.points, labels, int(labels.amax()) + 1)

    def costs(self, rows: Tensor, among: Tensor | None = None) -> Tensor:
        """Cost at every center, [n, K], of some points or all."""
        return self.objective.costs(self.points if among is None else self.points.take(among), rows)
