"""The section on the rows that have changed cluster since an earlier version of the data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neonxc.attribution.moved_rows import Move
from neonxc.attribution.moves import moves
from neonxc.data.frames import as_pandas, index_of, is_path
from neonxc.data.table import Table
from neonxc.report.clustered import ClusteredData
from neonxc.report.description import Moved
from neonxc.report.source import with_names


def since(
    clustering: ClusteredData, before: Any, later: Any, names: Sequence[str] | None, sample_weight: Any = None
) -> tuple[str, list[Moved]]:
    """Describe the moves since an earlier version of the inputs: their number, unlike rows, and each move.

    Unlike rows are far outside of the range that their cluster had. `before` and `later` are the two versions as
    the user passed them, and `names` those of their columns. `sample_weight` is as for :func:`neonxc.moves`.
    """
    earlier = before if is_path(before) else with_names(as_pandas(before), names)
    tables = [clustering.whole.inputs.given(earlier, "before"), Table.read(clustering.table.data)]
    for table, version in zip(tables, (before, later), strict=True):
        table.index = index_of(version, table.data)
    result = moves(clustering.whole, *tables, sample_weight=sample_weight)
    clusters = clustering.net.classes_[: clustering.k].tolist()  # without noise
    positions = {label: position for position, label in enumerate(clusters)}
    return "; ".join(filter(None, [result.headline, result.unlike])), [
        _moved(move, positions) for move in result.moves
    ]


def _moved(move: Move, positions: dict[Any, int]) -> Moved:
    old, new = (positions.get(label, -1) for label in (move.old, move.new))
    columns = [(name, share, move.step(name)) for name, share in move.named.items()]
    rows = move.size, move.usual_size, move.share
    moved = Moved(old, new, *rows, columns, typical=[*map(str, move.typical.index)])
    if move.rule is not None and (held_out := move.rule.held_out) is not None:
        moved.rule = move.rule.text()
        moved.precision = held_out.precision
        moved.coverage = held_out.coverage
    return moved
