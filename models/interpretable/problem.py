"""The problem that beta-interpretable clustering solves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .centers import Objective
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


def count_values(labels: Tensor, codes: Tensor, k: int, n_values: int) -> np.ndarray:
    """Number of points of each value in each cluster, [K, F]."""
    counts = torch.bincount(labels * n_values + codes, minlength=k * n_values)
    return counts.view(k, n_values).cpu().numpy()
