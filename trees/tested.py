"""What the training points say about the columns that a fitted tree tests."""

from __future__ import annotations

from math import inf

import torch
from torch import Tensor

from neonxc.trees.coded_table import CodedTable
from neonxc.trees.table import Table
from neonxc.trees.tree import ThresholdTree


def tested_columns(table: Table, tree: ThresholdTree, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """`spread` and `bounds` of a :class:`ThresholdTree`; each tested column is read once."""
    spread = torch.ones(table.d, dtype=torch.float64)
    share = torch.ones(table.n, dtype=torch.float64, device=table.device) if weight is None else weight
    share = share / share.sum()
    rows = [torch.empty(0, 5, dtype=torch.float64)]
    for column in tree.feature[tree.feature >= 0].unique().tolist():
        values = table.column(column).to(torch.float64, copy=True)
        spread[column] = float((share @ (values - share @ values).square_()).sqrt()) or 1.0
        rows.append(_neighbours(column, _bounds(tree, column), _sorted(values)))
    return spread, torch.cat(rows)


def tested_codes(table: CodedTable, tree: ThresholdTree) -> tuple[Tensor, Tensor]:
    """The same of a table of which the codes are kept: no test parts points of one code."""
    spread, ends = torch.ones(table.d, dtype=torch.float64), table.columns.ends
    assert ends is not None
    rows = [torch.empty(0, 5, dtype=torch.float64)]
    for column in tree.feature[tree.feature >= 0].unique().tolist():
        spread[column] = table.spread()[column]
        found = _neighbours(column, _bounds(tree, column), ends.values(column))
        found[:, 4] = float(ends.whole[column])
        rows.append(found)
    return spread, torch.cat(rows)


def _bounds(tree: ThresholdTree, column: int) -> Tensor:
    """The different finite numbers that the tests of a column compare with, sorted."""
    nodes = tree.feature == column
    found = tree.threshold[nodes]
    if tree.intervals is not None:
        found = torch.cat([found, tree.intervals[nodes].flatten()])
    return found[found.isfinite()].unique()


def _sorted(values: Tensor) -> Tensor:
    """The values in order, in the memory of those given where NumPy sorts them, several times as fast as torch."""
    if values.device.type != "cpu":
        return values.sort().values
    values.numpy().sort()
    return values


def _neighbours(column: int, bounds: Tensor, ordered: Tensor) -> Tensor:
    """Rows (column, bound, below, above, whole) for sorted bounds of a column with these values in order."""
    place = torch.searchsorted(ordered, bounds.to(ordered.device), right=True)
    below = torch.where(place > 0, ordered[place - 1], -inf).cpu()
    above = torch.where(place < len(ordered), ordered[place.clamp(max=len(ordered) - 1)], inf).cpu()
    whole = ordered[0] == ordered[0].round() and torch.equal(ordered, ordered.round())  # the second takes longer
    same = torch.ones_like(bounds)
    return torch.stack([same * column, bounds, below, above, same * float(whole)], 1)
