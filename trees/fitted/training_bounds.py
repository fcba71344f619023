"""Statistics of the training points in the columns that a fitted tree tests."""

from __future__ import annotations

from math import inf

import torch
from torch import Tensor
from torch.nn.functional import pad

from neonxc.common.processes import Ranks
from neonxc.trees.coding.table import CHUNK, Table
from neonxc.trees.fitted.tree import ThresholdTree


def bounds_from_table(
    table: Table, tree: ThresholdTree, weight: Tensor | None, ranks: Ranks
) -> tuple[Tensor, Tensor]:
    """`spread` and `bounds` of a :class:`ThresholdTree`, from the points of all processes."""
    variances, rows = torch.zeros(table.d, dtype=torch.float64), []
    tested = _tested(tree)
    most = max(1, int(ranks.max(torch.tensor(table.n))))
    for columns in tested.split(max(1, CHUNK // most)) if len(tested) else ():
        part = torch.stack([table.column(column).to(torch.float64) for column in columns.tolist()])
        every = torch.arange(table.n, device=table.device)
        variances[columns] = Table(part.T).variances(every, weight, ranks).cpu()
        rows += [_nearest(tree, column, own) for column, own in zip(columns.tolist(), part, strict=True)]
    return spread_and_bounds(tree, variances, [torch.cat([torch.empty(0, 5, dtype=torch.float64), *rows])], ranks)


def spread_and_bounds(
    tree: ThresholdTree, variances: Tensor, nearest: list[Tensor], ranks: Ranks
) -> tuple[Tensor, Tensor]:
    """The same from variances [d] over all processes, and the values next to bounds in parts of the own points."""
    tested = torch.isin(torch.arange(len(variances)), tree.feature)
    spread = variances.clamp(min=0).sqrt().where(tested & (variances > 0), 1)
    found = torch.stack([nearest_values(tree, variances[:, None][:, :0]), *nearest])
    bounds = found[0].clone()
    bounds[:, 2] = ranks.max(found[:, :, 2].amax(0))
    bounds[:, 3:] = ranks.min(found[:, :, 3:].amin(0))
    return spread, bounds


def nearest_values(tree: ThresholdTree, columns: Tensor) -> Tensor:
    """The rows of the tree's `bounds`, from the values of some points in all columns [d, points]."""
    tested = _tested(tree).tolist()
    rows = [_nearest(tree, column, columns[column].to(torch.float64, copy=True)) for column in tested]
    return torch.cat([torch.empty(0, 5, dtype=torch.float64), *rows])


def _tested(tree: ThresholdTree) -> Tensor:
    return tree.feature[tree.feature >= 0].unique()


def _nearest(tree: ThresholdTree, column: int, values: Tensor) -> Tensor:
    """Rows (column, bound, nearest value below, nearest value above, whether all values are integers).

    There is a row for every finite threshold and interval bound of the column. The values may be reordered.
    """
    nodes = tree.feature == column
    bounds = tree.threshold[nodes]
    if tree.intervals is not None:
        bounds = torch.cat([bounds, tree.intervals[nodes].flatten()])
    bounds = bounds[bounds.isfinite()].unique()
    if values.device.type != "cpu":
        values = values.sort().values
    else:
        values.numpy().sort()  # several times faster than torch
    place = torch.searchsorted(values, bounds.to(values.device), right=True)
    below, above = (pad(values, side, value=end)[place].cpu() for side, end in (((1, 0), -inf), ((0, 1), inf)))
    sample = values[:100]  # is checked first, because checking all values takes longer
    integers = torch.equal(sample, sample.round()) and torch.equal(values, values.round())
    same = torch.ones_like(bounds)
    return torch.stack([same * column, bounds, below, above, same * float(integers)], 1)
