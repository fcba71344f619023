"""The rows that have changed cluster since an earlier version of the data."""

from __future__ import annotations

from collections.abc import Sequence

from neonxc.attribution.moved_rows import Moves
from neonxc.attribution.moves import moves
from neonxc.common.types import ArrayLike, TableLike
from neonxc.data.frames import index_of, is_path, keeping_names
from neonxc.data.table import Table
from neonxc.report.clustered import ClusteredData
from neonxc.report.source import with_names


def since(
    clustering: ClusteredData,
    before: TableLike,
    later: TableLike,
    names: Sequence[str] | None,
    sample_weight: ArrayLike | tuple[ArrayLike, ArrayLike] | None = None,
) -> Moves:
    """Explain the moves since an earlier version of the inputs.

    `before` and `later` are the two versions as the user passed them, and `names` those of their columns.
    `sample_weight` is as for :func:`neonxc.moves`.
    """
    earlier = before if is_path(before) else with_names(keeping_names(before), names)
    tables = [clustering.whole.inputs.given(earlier, "before"), Table.read(clustering.table.data)]
    for table, version in zip(tables, (before, later), strict=True):
        table.index = index_of(version, table.data)
    return moves(clustering.whole, *tables, sample_weight=sample_weight)
