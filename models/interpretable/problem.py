"""What an interpretable clustering is sought for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .centers import Objective
from .distances import Points


@dataclass(frozen=True)
class Problem:
    """Points, their values of interest, and what is asked of the clusters."""

    points: Points
    codes: Tensor  # [n]: values of interest
    n_values: int
    n_clusters: int
    beta: float
    objective: Objective


def counted(labels: Tensor, codes: Tensor, k: int, n_values: int) -> np.ndarray:
    """How many points of each value each cluster has, [K, F]."""
    counts = torch.bincount(labels * n_values + codes, minlength=k * n_values)
    return counts.view(k, n_values).cpu().numpy()
