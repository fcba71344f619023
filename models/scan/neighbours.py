"""Mining of neighbours: which images lie next to each other in the embedding."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from tqdm import tqdm

__all__ = ["nearest"]

CHUNK = 1 << 25  # similarities that are held at once


def nearest(embeddings: Tensor, n_neighbors: int) -> Tensor:
    """Other images whose embeddings have the most similar directions.

    Parameters
    ----------
    embeddings : Tensor [n, d]
        n >= 2.
    n_neighbors : int
        1 ... n - 1.

    Returns
    -------
    Tensor [n, n_neighbors] of int64
        Indices, most similar first, never the image's own; on the device of `embeddings`.
    """
    points = F.normalize(embeddings, dim=1)
    n = len(points)
    rows = torch.arange(n, device=points.device).split(max(1, CHUNK // n))
    found = []
    for row in tqdm(rows, desc="SCAN: neighbours", delay=2, leave=False):
        similarity = points[row] @ points.T
        similarity[torch.arange(len(row), device=points.device), row] = -torch.inf
        found.append(similarity.topk(n_neighbors, dim=1).indices)
    return torch.cat(found)
