"""Statistics of the training points in the columns that a fitted tree tests."""

from __future__ import annotations

from math import inf

import torch
from torch import Tensor
from torch.nn.functional import pad

from neonxc.common.processes import Ranks
from neonxc.trees.coding.matrix import CHUNK, DataMatrix
from neonxc.trees.fitted.tree import ThresholdTree


def bounds_from_table(
    table: DataMatrix, tree: ThresholdTree, weight: Tensor | None, ranks: Ranks
) -> tuple[Tensor, Tensor]:
    """`spread` and `bounds` of a :class:`ThresholdTree`, from the points of all processes."""
    variances = torch.zeros(table.d, dtype=torch.float64)
    rows = [torch.empty(0, 5, dtype=torch.float64)]
    tested = tree.feature[tree.feature >= 0].unique()
    most = max(1, int(ranks.max(torch.tensor(table.n))))
    for columns in tested.split(max(1, CHUNK // most)) if len(tested) else ():
        values = torch.stack([table.column(column).to(torch.float64) for column in columns.tolist()])
        every = torch.arange(table.n, device=table.device)
        variances[columns] = DataMatrix(values.T).variances(every, weight, ranks).cpu()
        rows.append(nearest_values(tree, columns, values))
    return spread_and_bounds(variances, torch.cat(rows)[None], ranks)


def spread_and_bounds(variances: Tensor, nearest: Tensor, ranks: Ranks) -> tuple[Tensor, Tensor]:
    """The same from variances [d] over all processes, and the nearest values [parts, bounds, 5] of own points.

    Columns that the tree does not test have a variance of 0.
    """
    spread = variances.sqrt().where(variances > 0, 1)
    bounds = ranks.min(nearest.amin(0))
    bounds[:, 2].neg_()
    return spread, bounds


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
