"""The section on the rows that have changed cluster since an earlier version of the data."""

from __future__ import annotations

from typing import Any

from neonxc.attribution.moves import Move, moves
from neonxc.report.clustering import Clustering
from neonxc.report.contents import Moved


def since(clustering: Clustering, before: Any) -> tuple[str, list[Moved]]:
    """Describe the moves since an earlier version of the inputs: their number, and each of them."""
    found = moves(clustering.whole, before, clustering.X)
    place = {label: k for k, label in enumerate(clustering.net.classes_.tolist())}
    return found.headline, [_moved(move, place.get(move.old, -1), place.get(move.new, -1)) for move in found.moves]


def _moved(move: Move, old: int, new: int) -> Moved:
    columns = [(name, share, move.step(name)) for name, share in move.named.items()]
    rows = len(move.ids), int(move.usual.sum()), move.share
    found = Moved(old, new, *rows, columns, typical=[*map(str, move.typical.index)])
    if move.rule is not None and move.rule.held_out is not None:
        found.rule, measured = move.rule.text(), move.rule.held_out
        found.precision, found.coverage = measured.precision, measured.coverage
    return found
