"""Inputs of raw columns, dense or sparse: the rows are the points themselves."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from neonxc.common.memory import blocks
from neonxc.data.sparse import SparseRows
from neonxc.data.table import Table
from neonxc.head.answer import Answer
from neonxc.head.detection import LinearDetection
from neonxc.inputs.base import Inputs, make_inputs
from neonxc.inputs.space import Space


class RawColumns(Inputs):
    """Raw columns."""

    def _read(self, table: Table) -> Table:
        """Check points [N, d]; heads that are not linear get dense blocks of sparse ones."""
        detection = self.head.detection
        table = table.by_name(self.names) if self.names else table
        if isinstance(detection, LinearDetection):
            x = table.rows(self.device)
        else:
            x = table.dense_blocks(self.device)
        Table.read(table, self.head.n_features)
        detection.check(x, table.names)
        return table.holding(x)

    def space(self, table: Table) -> Space:
        """Return the columns of points that a counterfactual can change: all."""
        still = torch.zeros(table.tensor.shape[1], dtype=torch.bool)
        return Space(table, self.names or table.names or self.units, still)

    def blocks(self, x: Tensor | SparseRows) -> list[slice]:
        """Slices of the points for which the head's values fit into memory."""
        return blocks(len(x), 4 * x.element_size() * self.head.width, x.device)

    def add(self, x: Any, answer: Answer, cluster: Tensor, total: Tensor, weight: Tensor | None = None) -> None:
        """Add the relevance of the columns to `total`; for sparse points by a closed form."""
        if isinstance(answer.x, SparseRows) and answer.x.has_sparse_slices:
            add_sparse(answer, cluster, total, weight)
        else:
            super().add(x, answer, cluster, total, weight)


make_inputs.register(type(None), lambda _, head=None, names=None: RawColumns(head, names))


@torch.no_grad()
def add_sparse(answer: Answer, cluster: Tensor, total: Tensor, weight: Tensor | None = None) -> None:
    """Add the relevance of sparse points to the sums [K, d] of their clusters.

    With ``y = (x - root) / n(x) - origin``, the relevance is ``const(weights, own) - slope(weights) * y``. It is
    linear in x and, for a given `own`, in the weights. The constant parts of all points with the same `own` are
    therefore that of their summed weights, and the rest needs the stored entries only.

    Parameters
    ----------
    answer : Answer
        Of a head with linear neurons, for the own clusters of N points.
    cluster : Tensor [N] of int64
        The sum that each point belongs to.
    total : Tensor [K, d] of float64, on the CPU
        The sums, modified in place.
    weight : Tensor [N] of float64 or None
        Weights of the points.
    """
    x = answer.x
    head = answer.head
    device = cluster.device
    detection = head.detection
    assert isinstance(detection, LinearDetection)
    assert isinstance(x, SparseRows)
    directions = detection.directions.double()
    weights = answer.weights.double()
    if weight is not None:
        weights = weights * weight.to(weights)[:, None]
    scaled = weights / detection.row_norm(x)
    own = answer.own
    if own is None:
        membership = one_hot(cluster, len(total)).double()
        of_row = torch.arange(len(total), device=device)
    else:  # sums per neuron of the points' own clusters; a soft minimum shares a point among several
        membership = own.double()
        of_row = head.groups
        own = torch.eye(len(of_row), dtype=weights.dtype, device=device)
    # the relevance at x = 0, for weights [R, M] that are summed over the points with the same `own`
    constant = membership.T @ weights
    slope = membership.T @ scaled
    for block in blocks(len(constant), 48 * detection.n_features, device):
        zero = constant.new_zeros(len(constant[block]), detection.n_features)
        at_zero = detection.relevance(
            detection.located(zero), constant[block], None if own is None else own[block]
        )
        # this divides the root by the norm at zero; correct it to each point's own norm
        correction = slope[block] - constant[block] / detection.row_norm(zero)
        at_zero += detection.root.double() * (correction @ directions)
        total.index_add_(0, of_row[block].cpu(), at_zero.cpu())
    # and the slope times the entry, at every stored entry
    scaled = scaled.cpu()
    cluster = cluster.cpu()
    directions = directions.cpu().T.contiguous()
    (points, columns), entries = x.places(), x.entries.double()
    for block in blocks(len(entries), 32 * scaled.shape[1]):
        slopes = torch.linalg.vecdot(scaled[points[block]], directions[columns[block]])
        place = cluster[points[block]] * total.shape[1] + columns[block]
        total.view(-1).index_add_(0, place, entries[block] * slopes, alpha=-1)
