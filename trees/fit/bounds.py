"""The training values next to the bounds of a tree's tests, and the variances of the columns that it tests."""

from __future__ import annotations

from math import inf

import torch
from torch import Tensor
from torch.nn.functional import pad

from neonxc.common.processes import Ranks
from neonxc.trees.fit.points import CHUNK, Dense
from neonxc.trees.fit.sparse_points import Points
from neonxc.trees.tree import ThresholdTree


def tested_values(
    table: Points, tree: ThresholdTree, weight: Tensor | None, ranks: Ranks
) -> tuple[Tensor, Tensor]:
    """Variances [d] over all processes of the columns that a tree tests (0 for others), and nearest values."""
    variances = torch.zeros(table.d, dtype=torch.float64)
    rows = [torch.empty(0, 5, dtype=torch.float64)]
    tested = tree.feature[tree.feature >= 0].unique()
    most = max(1, int(ranks.max(torch.tensor(table.n))))
    for columns in tested.split(max(1, CHUNK // most)) if len(tested) else ():
        values = torch.stack([table.column(column).to(torch.float64) for column in columns.tolist()])
        every = torch.arange(table.n, device=table.device)
        variances[columns] = Dense(values.T).variances(every, weight, ranks).cpu()
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
