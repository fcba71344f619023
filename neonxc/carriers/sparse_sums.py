"""Relevance of sparse points summed by cluster, without the dense relevance of any single point."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import one_hot

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
    detection, device = decision.detection, column.device
    assert isinstance(detection, LinearDetection)
    directions = detection.directions.double()
    weights = torch.where((column < len(total) - 1)[:, None], decision.weights.double(), 0.0)
    scaled = weights / detection.row_norm(x)
    own = None
    if decision.own is None:
        membership, cluster = one_hot(column, len(total)).double(), torch.arange(len(total), device=device)
    else:  # sums per neuron of the points' own clusters; a soft minimum shares a point among several
        membership, cluster = decision.own.double(), head.groups
        own = torch.eye(len(cluster), dtype=weights.dtype, device=device)
    # the relevance at x = 0, for weights [R, M] that are summed over the points with the same `own`
    constant, slope = membership.T @ weights, membership.T @ scaled
    for block in blocks(len(constant), 48 * detection.n_features, device):
        zero = constant.new_zeros(len(constant[block]), detection.n_features)
        found = detection.relevance(zero, constant[block], None if own is None else own[block])
        # `found` divides the root by the norm at zero; correct it to each point's own norm
        at_zero = constant[block] / detection.row_norm(zero)
        found += detection.root.double() * ((slope[block] - at_zero) @ directions)
        total.index_add_(0, cluster[block].cpu(), found.cpu())
    # and the slope times the entry, at every stored entry
    scaled, column, directions = scaled.cpu(), column.cpu(), directions.cpu().T.contiguous()
    (rows, columns), entries = x.places(), x.entries.double()
    for block in blocks(len(entries), 32 * scaled.shape[1]):
        slopes = torch.linalg.vecdot(scaled[rows[block]], directions[columns[block]])
        place = column[rows[block]] * total.shape[1] + columns[block]
        total.view(-1).index_add_(0, place, entries[block] * slopes, alpha=-1)
