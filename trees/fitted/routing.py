"""Paths of points through a threshold tree, from the root to their leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from neonxc.data.frames import reads_tables
from neonxc.data.inputs import check_names
from neonxc.data.table import Table

if TYPE_CHECKING:
    from neonxc.trees.fitted.tree import ThresholdTree


@reads_tables
def tested_columns(tree: ThresholdTree, X: Any) -> tuple[Tensor, Tensor, Any]:
    """Return the tested columns [used], their values [N, used], and a function that converts results."""
    used, table = tree.feature[tree.feature >= 0].unique(), Table.read(X)
    if tree.encoding is not None:
        return used, tree.encoding.of(used.tolist()).encode(table), table.labels
    if table.is_sparse:
        Table.read(table, tree.n_features)
        values = Table(table.select(used.numpy()).dense())
        return used, values.tensor if len(used) else torch.empty(len(table), 0), table.labels
    values = table.tensor
    Table.read(table, tree.n_features)
    check_names(table.names, tree.feature_names)
    return used, values[:, used.to(values.device)], table.labels


@reads_tables
def leaves_of(tree: ThresholdTree, X: Any) -> tuple[Tensor, Any]:
    """Return the leaf of every point and a function that converts results; sparse matrices are read in blocks."""
    table = Table.read(X)
    parts = table.blocks(32 * tree.n_leaves) if table.is_sparse else [table]  # the tests on a path, and copies
    leaf = [ways(tree, *tested_columns(tree, part)[:2])[-1] for part in parts]
    return torch.cat(leaf), table.labels


def ways(tree: ThresholdTree, used: Tensor, values: Tensor) -> list[Tensor]:
    """Return the node of every point at every depth, on the CPU; points stay at their leaf."""
    device = values.device
    column = torch.searchsorted(used, tree.feature.clamp(min=0)).clamp(max=max(len(used) - 1, 0)).to(device)
    feature, left, right = tree.feature.to(device), tree.left.to(device), tree.right.to(device)
    threshold = tree.threshold.to(device)
    intervals = None if tree.intervals is None else tree.intervals.to(device)
    node = torch.zeros(len(values), dtype=torch.int64, device=device)
    way = [node]
    for _ in range(tree.depth):
        value = values.gather(1, column[node][:, None])
        goes_left = value[:, 0] <= threshold[node]
        if intervals is not None:
            low, high = intervals[node].unbind(-1)  # no number is less or greater than NaN
            goes_left |= ((value > low) & (value <= high)).any(1)
        node = torch.where(feature[node] < 0, node, torch.where(goes_left, left[node], right[node]))
        way.append(node)
    return [nodes.cpu() for nodes in way]
