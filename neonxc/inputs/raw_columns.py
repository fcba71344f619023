"""Inputs of raw columns, dense or sparse: the rows are the points themselves."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from neonxc.common.memory import blocks
from neonxc.data.sparse import SparseRows
from neonxc.data.table import Table
from neonxc.head.answer import Answer, Question, answers
from neonxc.head.detection import LinearDetection
from neonxc.inputs.base import How, Inputs, make_inputs
from neonxc.inputs.space import Space


class RawColumns(Inputs):
    """Raw columns."""

    def _read(self, table: Table) -> Table:
        """Check points [N, d]; of sparse ones, heads that are not linear get dense blocks."""
        detection = self.head.detection
        if self.names:
            table = table.by_name(self.names)
        if isinstance(detection, LinearDetection):
            x = table.rows(self.device)
        else:
            x = table.dense_blocks(self.device)
        table.check_width(self.head.n_features)
        detection.check(x, table.column_names)
        return table.holding(x)

    def relevance_parts(self, x: Tensor | SparseRows, question: Question, how: How) -> Iterator[Tensor]:
        """Yield the relevance of points, part by part, so that it is copied only once."""
        for answer in answers(self.head, x, question, how.beta, how.contrast_rule):
            yield answer.relevance()

    def space(self, table: Table) -> Space:
        """Return the columns of points that a counterfactual can change: all."""
        is_fixed = torch.zeros(table.tensor.shape[1], dtype=torch.bool)
        return Space(table, self.names or table.column_names or self.units, is_fixed)

    def blocks(self, x: Tensor | SparseRows) -> list[slice]:
        """Slices of the points for which the head's values fit into memory."""
        return blocks(len(x), 4 * x.element_size() * self.head.width, x.device)

    def add(
        self,
        x: Tensor | SparseRows,
        answer: Answer,
        cluster: Tensor,
        total: Tensor,
        weight: Tensor | None = None,
    ) -> None:
        """Add the relevance of the columns to `total`; for sparse points by a closed form."""
        if isinstance(answer.x, SparseRows) and answer.x.has_sparse_slices:
            add_sparse(answer, cluster, total, weight)
        else:
            super().add(x, answer, cluster, total, weight)


make_inputs.register(type(None), lambda _, head=None, names=None: RawColumns(head, names))


@torch.no_grad()
def add_sparse(answer: Answer, cluster: Tensor, total: Tensor, weight: Tensor | None = None) -> None:
    """Add the relevance of sparse points to the sums [K, d] of their clusters.

    With ``y = (x - root) / n(x) - origin``, the relevance is ``constant(weights, own) - slope(weights) * y``. It
    is linear in x and, for given weights `own` of the target's neurons, in the weights. The constant parts of all
    points with the same `own` are therefore that of their summed weights, and the rest needs the stored entries
    only:

    1. Sum the weights of the points of every group with the same `own`.
    2. Compute the relevance of each group at x = 0, with the divisor n(x) of its points.
    3. Subtract the slope times the entry at every stored entry.

    Parameters
    ----------
    answer : Answer
        Of a head with linear neurons, for the assigned clusters of N points.
    cluster : Tensor [N] of int64
        The sum that each point belongs to.
    total : Tensor [K, d] of float64, on the CPU
        The sums, modified in place.
    weight : Tensor [N] of float64 or None
        Weights of the points.
    """
    x = answer.x
    head = answer.head
    detection = head.detection
    assert isinstance(detection, LinearDetection)
    assert isinstance(x, SparseRows)
    directions = detection.directions.double()
    weights = answer.weights.double()
    if weight is not None:
        weights = weights * weight.to(weights)[:, None]
    scaled = weights / detection.row_norm(x)  # [N, M]

    # 1. the groups R of points, in whose columns of `membership` [N, R] they are
    if answer.target_weights is None:
        target = None
        membership = one_hot(cluster, len(total)).double()
        sum_of_group = torch.arange(len(total), device=cluster.device)
    else:  # one group per neuron of the assigned clusters; a soft minimum divides a point among several
        membership = answer.target_weights.double()
        sum_of_group = head.groups
        target = torch.eye(len(sum_of_group), dtype=weights.dtype, device=cluster.device)
    constant = membership.T @ weights  # [R, M]
    slope = membership.T @ scaled  # [R, M]

    # 2.
    for block in blocks(len(constant), 48 * detection.n_features, cluster.device):
        zero = constant.new_zeros(len(constant[block]), detection.n_features)
        target_of_block = None if target is None else target[block]
        at_zero = detection.relevance(detection.located(zero), constant[block], target_of_block)
        # this divides the root by the norm at zero; correct it to each point's own norm
        correction = slope[block] - constant[block] / detection.row_norm(zero)
        at_zero += detection.root.double() * (correction @ directions)
        total.index_add_(0, sum_of_group[block].cpu(), at_zero.cpu())

    # 3.
    scaled = scaled.cpu()
    cluster = cluster.cpu()
    directions = directions.cpu().T.contiguous()
    rows, columns = x.places()
    entries = x.entries.double()
    flat_total = total.view(-1)
    for block in blocks(len(entries), 32 * scaled.shape[1]):
        slopes = torch.linalg.vecdot(scaled[rows[block]], directions[columns[block]])
        position = cluster[rows[block]] * total.shape[1] + columns[block]
        flat_total.index_add_(0, position, entries[block] * slopes, alpha=-1)
