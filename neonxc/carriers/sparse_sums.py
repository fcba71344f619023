"""Relevance of sparse points summed by cluster, without the dense relevance of any single point."""

from __future__ import annotations

import torch
from torch import Tensor

from neonxc.common.memory import blocks
from neonxc.data.sparse import SparseRows
from neonxc.head import Decision, Head
from neonxc.head.detection import LinearDetection


@torch.no_grad()
def add_relevance(head: Head, decision: Decision, x: SparseRows, column: Tensor, total: Tensor) -> None:
    """Add the relevance of sparse points to the sums [K + 1, d] of their clusters; noise points are skipped.

    With ``y = (x - root) / n(x) - origin``, the relevance is ``const(weights, own) - slope(weights) * y``. It is
    linear in x and, for a given `own`, in the weights. The constant parts of all points with the same `own` are
    therefore that of their summed weights, and the rest needs the stored entries only.

    Parameters
    ----------
    head : Head
        A head with linear neurons.
    decision : Decision
        The decisions of the N points for their own clusters.
    x : SparseRows [N, d]
    column : Tensor [N] of int64
        Cluster of each point; K for points in no cluster.
    total : Tensor [K + 1, d] of float64, on the CPU
        The sums, modified in place.
    """
    detection = decision.detection
    assert isinstance(detection, LinearDetection)
    inside = column < len(total) - 1
    weights = torch.where(inside[:, None], decision.weights.double(), 0.0)
    norm = detection.row_norm(x)
    scaled = weights / norm
    if decision.own is None:
        membership = torch.nn.functional.one_hot(column, len(total)).double()
        cluster = torch.arange(len(total), device=column.device)
    else:  # sums per neuron of the points' own clusters; a soft minimum shares a point among several
        membership = decision.own.double()
        cluster = head.groups
    _add_constant(detection, decision.own is None, membership.T @ weights, membership.T @ scaled, cluster, total)
    _add_entries(detection, x, scaled, column, total)


def _add_constant(
    detection: LinearDetection, alone: bool, weights: Tensor, scaled: Tensor, cluster: Tensor, total: Tensor
) -> None:
    """Add the relevance at x = 0, for weights [R, M] that are summed over the points with the same `own`."""
    own = None if alone else torch.eye(len(weights), dtype=weights.dtype, device=weights.device)
    root = detection.root.double()
    for block in blocks(len(weights), 48 * detection.n_features, weights.device):
        zero = weights.new_zeros(len(weights[block]), detection.n_features)
        found = detection.relevance(zero, weights[block], None if own is None else own[block])
        # `found` divides the root by the norm at zero; correct it to each point's own norm
        scaled_at_zero = weights[block] / detection.row_norm(zero)
        found += root * ((scaled[block] - scaled_at_zero) @ detection.directions.double())
        total.index_add_(0, cluster[block].cpu(), found.cpu())


def _add_entries(detection: LinearDetection, x: SparseRows, scaled: Tensor, column: Tensor, total: Tensor) -> None:
    """Subtract slope times entry at every stored entry."""
    scaled, column = scaled.cpu(), column.cpu()
    directions = detection.directions.double().cpu().T.contiguous()
    (rows, columns), entries = x.places(), x.entries.double()
    for block in blocks(len(entries), 32 * scaled.shape[1]):
        slope = torch.linalg.vecdot(scaled[rows[block]], directions[columns[block]])
        place = column[rows[block]] * total.shape[1] + columns[block]
        total.view(-1).index_add_(0, place, entries[block] * slope, alpha=-1)
