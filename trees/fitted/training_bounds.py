"""Statistics of the training points in the columns that a fitted tree tests."""

from __future__ import annotations

from math import inf

import torch
from torch import Tensor

from neonxc.common.processes import Ranks
from neonxc.trees.coding.binned_table import BinnedTable
from neonxc.trees.coding.table import CHUNK, Table
from neonxc.trees.fitted.tree import ThresholdTree


def bounds_from_table(
    table: Table, tree: ThresholdTree, weight: Tensor | None, ranks: Ranks
) -> tuple[Tensor, Tensor]:
    """`spread` and `bounds` of a :class:`ThresholdTree`, from the points of all processes."""
    spread = torch.ones(table.d, dtype=torch.float64)
    rows = [torch.empty(0, 5, dtype=torch.float64)]
    tested = tree.feature[tree.feature >= 0].unique()
    most = max(1, int(ranks.max(torch.tensor(table.n))))
    for columns in tested.split(max(1, CHUNK // most)) if len(tested) else ():
        part = torch.stack([table.column(column).to(torch.float64) for column in columns.tolist()])
        variances = Table(part.T).variances(torch.arange(table.n, device=table.device), weight, ranks)
        spread[columns] = variances.sqrt().where(variances > 0, 1).cpu()
        for column, values in zip(columns.tolist(), part, strict=True):
            rows.append(_neighbours(column, _bounds(tree, column), _sorted(values)))
    bounds = torch.cat(rows)
    bounds[:, 2], bounds[:, 3:] = ranks.max(bounds[:, 2]), ranks.min(bounds[:, 3:])
    return spread, bounds


def bounds_from_codes(table: BinnedTable, tree: ThresholdTree) -> tuple[Tensor, Tensor]:
    """`spread` and `bounds` of a :class:`ThresholdTree`, from the bins of a table that was read batch by batch."""
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
    """The distinct finite thresholds and interval bounds of a column, sorted."""
    nodes = tree.feature == column
    found = tree.threshold[nodes]
    if tree.intervals is not None:
        found = torch.cat([found, tree.intervals[nodes].flatten()])
    return found[found.isfinite()].unique()


def _sorted(values: Tensor) -> Tensor:
    """Sort values; on the CPU in place by NumPy, which is several times faster than torch."""
    if values.device.type != "cpu":
        return values.sort().values
    values.numpy().sort()
    return values


def _neighbours(column: int, bounds: Tensor, ordered: Tensor) -> Tensor:
    """Rows (column, bound, nearest value below, nearest value above, whether all values are integers)."""
    place = torch.searchsorted(ordered, bounds.to(ordered.device), right=True)
    ends = (
        torch.nn.functional.pad(ordered, (1, 0), value=-inf),
        torch.nn.functional.pad(ordered, (0, 1), value=inf),
    )
    below, above = ends[0][place].cpu(), ends[1][place].cpu()
    sample = ordered[:100]  # is checked first, because checking all values takes longer
    whole = torch.equal(sample, sample.round()) and torch.equal(ordered, ordered.round())
    same = torch.ones_like(bounds)
    return torch.stack([same * column, bounds, below, above, same * float(whole)], 1)
