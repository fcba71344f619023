"""Paths of points through a threshold tree, from the root to their leaves."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from neonxc.common.memory import at_once, blocks
from neonxc.data.frames import reads_tables
from neonxc.data.inputs import as_batch, check_names, check_width, like

if TYPE_CHECKING:
    from neonxc.trees.fitted.tree import ThresholdTree


@reads_tables
def tested_columns(tree: ThresholdTree, X: Any) -> tuple[Tensor, Tensor, Any]:
    """Return the tested columns [used], their values [N, used], and a function that converts results."""
    used = tree.feature[tree.feature >= 0].unique()
    give = partial(like, X)
    if tree.encoding is not None:
        return used, tree.encoding.of(used.tolist()).encode(X), give
    if hasattr(X, "tocsc"):
        check_width(X.shape[1], tree.n_features)
        values = as_batch(X.tocsc()[:, used.numpy()].toarray()).tensor if len(used) else torch.empty(X.shape[0], 0)
        return used, values, give
    batch = as_batch(X)
    check_width(batch.tensor.shape[1], tree.n_features)
    check_names(batch.names, tree.feature_names)
    return used, batch.tensor[:, used.to(batch.tensor.device)], give


@reads_tables
def leaves_of(tree: ThresholdTree, X: Any) -> tuple[Tensor, Any]:
    """Return the leaf of every point and a function that converts results; sparse matrices are read in blocks."""
    parts, bytes_per_row = [slice(None)], 32 * tree.n_leaves  # the number of tests on a path, and copies
    if hasattr(X, "tocsr") and X.shape[0] > at_once(bytes_per_row):
        X, parts = X.tocsr(), list(blocks(X.shape[0], bytes_per_row))
    leaf = []
    for part in parts:
        used, values, labels = tested_columns(tree, X if len(parts) == 1 else X[part])
        leaf.append(ways(tree, used, values)[-1])
    return torch.cat(leaf), labels


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
