"""A growing tree, which becomes a :class:`~neonxc.trees.tree.ThresholdTree` when it is finished."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, nan
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from neonxc.common.processes import ALONE, Ranks
from neonxc.rules.intervals import Intervals
from neonxc.trees.cuts.exact_sums import counts_by_label
from neonxc.trees.fit.points import CHUNK, DataMatrix
from neonxc.trees.tree import ThresholdTree

if TYPE_CHECKING:
    from neonxc.trees.fit.problem import Cut


class TreeBuilder:
    """A growing tree: lists with one entry per node, in the order in which the nodes were created."""

    def __init__(self) -> None:
        self.feature, self.code, self.threshold, self.left, self.right = [-1], [-1], [nan], [-1], [-1]
        self.intervals: list[Intervals] = [()]

    def split(self, node: int, cut: Cut) -> tuple[int, int]:
        """Turn a leaf into an inner node with the test of `cut`; return the numbers of its children."""
        first = len(self.feature)
        self.feature[node], self.code[node], self.threshold[node] = cut.feature, cut.code, cut.threshold
        self.intervals[node], self.left[node], self.right[node] = cut.intervals, first, first + 1
        for numbers in (self.feature, self.code, self.left, self.right):
            numbers += [-1, -1]
        self.threshold += [nan, nan]
        self.intervals += [(), ()]
        return first, first + 1

    def preorder(self) -> list[int]:
        """Node numbers in preorder: each node, then its left branch, then its right branch."""
        order, stack = [], [0]
        while stack:
            node = stack.pop()
            order.append(node)
            if self.feature[node] >= 0:
                stack += [self.right[node], self.left[node]]
        return order

    def finish(
        self,
        leaf: Tensor,
        label: Sequence[int],
        reference: Tensor,
        weight: Tensor | None,
        n_features: int,
        classes: np.ndarray,
        feature_names: Sequence[str] | None,
        ranks: Ranks = ALONE,
    ) -> tuple[ThresholdTree, Tensor]:
        """Renumber the nodes in preorder and count points; return the tree and the leaf of every point.

        Parameters
        ----------
        leaf : Tensor [n] of int
            Leaf of every training point, in the numbering of this builder.
        label : sequence of int, one per node
            Cluster of every leaf; the entries of inner nodes are ignored.
        reference : Tensor [n] of int
            Reference cluster of every training point.
        weight : Tensor [n] or None
        n_features : int
        classes : ndarray [k]
            Original labels of the reference clusters.
        feature_names : sequence of str or None
        ranks : Ranks
            The processes that share the rows.
        """
        order = torch.tensor(self.preorder())
        new = torch.empty_like(order)
        new[order] = torch.arange(len(order))
        leaf = new[leaf]
        feature = torch.tensor(self.feature)[order]
        left, right = (torch.tensor(side)[order] for side in (self.left, self.right))
        left, right = (torch.where(feature < 0, -1, new[side.clamp(min=0)]) for side in (left, right))
        labels = torch.where(feature < 0, torch.tensor(label)[order], -1)
        k = max(len(classes), int(labels.max()) + 1)
        counts = ranks.sum(counts_by_label(leaf * k + reference, len(feature) * k, weight).view(-1, k))
        samples, mistakes = _count(feature, left, right, labels, counts)
        intervals, none = None, (nan, nan)
        if any(self.intervals):
            every = [(*pairs, none, none)[:2] for pairs in self.intervals]
            intervals = torch.tensor(every, dtype=torch.float64)[order]
        tree = ThresholdTree(
            feature,
            torch.tensor(self.threshold, dtype=torch.float64)[order],
            left,
            right,
            labels,
            samples,
            mistakes,
            n_features,
            classes,
            None if feature_names is None else tuple(feature_names),
            intervals,
            class_samples=counts.sum(0)[: len(classes)],
        )
        return tree, leaf


def _count(feature: Tensor, left: Tensor, right: Tensor, label: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Number of points at every node, and number of mistakes.

    The mistakes of a test are the points that it separates from all leaves of their cluster. `counts` [nodes, k]
    are the points of every cluster in the leaves.
    """
    inner, own, reach = (feature >= 0).numpy(), label.numpy(), counts.numpy().copy()
    below = np.zeros(reach.shape, dtype=bool)  # whether a leaf of the cluster is below the node
    below[~inner, own[~inner]] = True
    sides = left.numpy()[inner], right.numpy()[inner]
    for node, lower, upper in zip(*(ids[::-1].tolist() for ids in (inner.nonzero()[0], *sides)), strict=True):
        reach[node] = reach[lower] + reach[upper]  # children have greater numbers than their parents
        below[node] = below[lower] | below[upper]
    lost = np.where(below, 0, reach)  # points of clusters that have no leaf below the node
    mistakes = lost.sum(1)
    mistakes[inner] = np.where(below[inner], lost[sides[0]] + lost[sides[1]], 0).sum(1)
    return torch.from_numpy(reach.sum(1)), torch.from_numpy(mistakes)


def tested_values(
    table: DataMatrix, tree: ThresholdTree, weight: Tensor | None, ranks: Ranks
) -> tuple[Tensor, Tensor]:
    """Variances [d] over all processes of the columns that a tree tests (0 for others), and nearest values."""
    variances = torch.zeros(table.d, dtype=torch.float64)
    rows = [torch.empty(0, 5, dtype=torch.float64)]
    tested = tree.feature[tree.feature >= 0].unique()
    most = max(1, int(ranks.max(torch.tensor(table.n))))
    for columns in tested.split(max(1, CHUNK // most)) if len(tested) else ():
        values = torch.stack([table.column(column).to(torch.float64) for column in columns.tolist()])
        every = torch.arange(table.n, device=table.device)
        variances[columns] = DataMatrix(values.T).variances(every, weight, ranks).cpu()
        rows.append(nearest_values(tree, columns, values))
    return variances, torch.cat(rows)


def nearest_values(tree: ThresholdTree, columns: Tensor, values: Tensor) -> Tensor:
    """Rows (column, bound, minus the nearest value below, nearest value above, whether all values are integers).

    There is a row for every finite threshold and interval bound that the tree has in `columns` [c], in ascending
    order. Their values [c, n] are reordered.
    """
    thresholds = tree.threshold[:, None]
    ends = thresholds if tree.intervals is None else torch.cat([thresholds, tree.intervals.flatten(1)], 1)
    pairs = torch.stack([tree.feature[:, None].expand_as(ends), ends], -1)
    pairs = pairs[ends.isfinite() & torch.isin(tree.feature, columns)[:, None]].unique(dim=0)
    row, bound = torch.searchsorted(columns, pairs[:, 0].long()), pairs[:, 1]
    if values.device.type != "cpu":
        values = values.sort().values
    else:
        values.numpy().sort()  # several times faster than torch
    count = row.bincount(minlength=1)
    within = torch.arange(len(row)) - (count.cumsum(0) - count)[row]
    grid = torch.full((len(columns), int(count.max())), inf, dtype=torch.float64)
    grid[row, within] = bound
    place = torch.searchsorted(values, grid.to(values.device), right=True)
    below = pad(values, (1, 0), value=-inf).gather(1, place).cpu()[row, within]
    above = pad(values, (0, 1), value=inf).gather(1, place).cpu()[row, within]
    integers = (values == values.round()).all(1).cpu()[row]
    return torch.stack([*pairs.T, -below, above, integers.double()], 1)
