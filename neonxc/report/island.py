"""What the page's script needs, as compact JSON that nothing can break out of."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from neonxc.report.contents import Contents, Points

MOST, STRONGEST = 4_000, 10  # points, and columns of a point: the page stays below 1 MB
CANONICAL = re.compile(r"-?(0|[1-9]\d{0,11})(\.\d{0,8}[1-9])?")  # printed by JavaScript as it is written here


def island(contents: Contents, tags: list[str], colors: list[str]) -> dict[str, Any]:
    """Clusters, columns, pairs and points as lists, in the places that report.js names.

    A point has the columns with its greatest relevance, one after the other: column, thousandths of the logit,
    value. A value that is a text is written as the list of its position in ``words``.
    """
    return {
        "clusters": [
            [tag, card.name, color] for tag, card, color in zip(tags, contents.cards, colors, strict=True)
        ],
        "columns": [[one.name, one.mean, one.spread, one.unit] for one in contents.columns],
        "pairs": [
            [
                pair.a,
                pair.b,
                [[at, round(share, 3), *typical] for at, share, *typical in pair.relevance],
                pair.rules,
                pair.accuracy,
            ]
            for pair in contents.pairs
        ],
        "points": _points(contents.points, _kept(contents)),
    }


def as_json(value: Any) -> str:
    """JSON for a script element: no ``<``, ``&`` or line separator, no NaN."""
    text = json.dumps(_finite(value), separators=(",", ":"), allow_nan=False)  # ASCII only
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _points(points: Points, kept: list[int]) -> dict[str, Any]:
    words: dict[str, int] = {}

    def value(printed: Any) -> Any:
        one = _as_number(printed)
        return [words.setdefault(one, len(words))] if isinstance(one, str) else one

    def known(j: int, at: int) -> Any:
        return value(points.values[j][at]) if points.values else None

    def change(at: int) -> list[Any] | None:
        one = points.changes[at]
        if one is None:
            return None
        return [one.cluster, _rounded(one.distance), [[j, known(j, at), value(new)] for j, new in one.values]]

    def strongest(at: int) -> list[Any]:
        shares = [round(1000 * column[at]) if math.isfinite(column[at]) else 0 for column in points.relevance]
        order = sorted((j for j, share in enumerate(shares) if share), key=lambda j: -abs(shares[j]))
        return [part for j in order[:STRONGEST] for part in (j, shares[j], known(j, at))]

    whole = ("rows", "x", "y", "cluster", "rival", "leaf")
    return {
        **{name: [getattr(points, name)[at] for at in kept] for name in whole},
        "names": points.names and [points.names[at] for at in kept],
        "logit": [_rounded(points.logit[at]) for at in kept],
        "strongest": [strongest(at) for at in kept],
        "changes": [change(at) for at in kept],
        "words": list(words),
    }


def _kept(contents: Contents) -> list[int]:
    """At most MOST positions of points, evenly, and those that the page has a table row or a picture of."""
    n = len(contents.points.rows)
    if n <= MOST:
        return list(range(n))
    items = [item for card in contents.cards for item in (*card.prototypes, *card.borderline)]
    rows = {item.row for item in (*items, *contents.trust.disagreements)}
    shown = {at for at, row in enumerate(contents.points.rows) if row in rows}
    return sorted(shown | {at * n // MOST for at in range(MOST)})


def _as_number(value: Any) -> Any:
    """A printed number that JavaScript prints the same, as a number: it takes no quotes."""
    if isinstance(value, str):
        return json.loads(value) if CANONICAL.fullmatch(value) else value
    return _rounded(value) if isinstance(value, float) else value


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return None if not math.isfinite(value) else int(value) if value.is_integer() else value
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, list | tuple) else value
