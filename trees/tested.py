"""What the training points say about the columns that a fitted tree tests."""

from __future__ import annotations

from math import inf

import numpy as np
import torch
from torch import Tensor

from neonxc.trees.table import Table
from neonxc.trees.tree import ThresholdTree


def tested_columns(table: Table, tree: ThresholdTree, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """`spread` and `bounds` of a :class:`ThresholdTree`; each tested column is read once."""
    spread = torch.ones(table.d, dtype=torch.float64)
    share = torch.ones(table.n, dtype=torch.float64, device=table.device) if weight is None else weight
    share = share / share.sum()
    rows = [torch.empty(0, 5, dtype=torch.float64)]
    for column in tree.feature[tree.feature >= 0].unique().tolist():
        values = table.column(column).double().contiguous()
        spread[column] = float((share @ (values - share @ values).square()).sqrt()) or 1.0
        rows.append(_neighbours(column, _bounds(tree, column), values))
    return spread, torch.cat(rows)


def _bounds(tree: ThresholdTree, column: int) -> Tensor:
    """The different finite numbers that the tests of a column compare with, sorted."""
    nodes = tree.feature == column
    found = tree.threshold[nodes]
    if tree.intervals is not None:
        found = torch.cat([found, tree.intervals[nodes].flatten()])
    return found[found.isfinite()].unique()


def _neighbours(column: int, bounds: Tensor, values: Tensor) -> Tensor:
    """Rows (column, bound, below, above, whole) for sorted bounds of a column with these values."""
    # NumPy sorts numbers alone several times as fast as torch does on a core
    ordered = torch.from_numpy(np.sort(values.numpy())) if values.device.type == "cpu" else values.sort().values
    place = torch.searchsorted(ordered, bounds.to(values.device), right=True)
    below = torch.where(place > 0, ordered[place - 1], -inf).cpu()
    above = torch.where(place < len(ordered), ordered[place.clamp(max=len(ordered) - 1)], inf).cpu()
    whole = torch.full_like(bounds, float(torch.equal(ordered, ordered.round())))
    return torch.stack([torch.full_like(bounds, column), bounds, below, above, whole], 1)
