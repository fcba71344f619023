"""Data for the script of the page, as compact JSON that is safe inside a script element."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from neonxc.common.numbers import as_printed
from neonxc.report.contents import Contents, Points

MOST, STRONGEST = 4_000, 10  # maximum number of points, and of columns per point, which keep the page small
CANONICAL = re.compile(r"-?(0|[1-9]\d{0,11})(\.\d{0,8}[1-9])?")  # numbers that JavaScript prints in the same form


def page_data(contents: Contents, tags: list[str], colors: list[str]) -> dict[str, Any]:
    """Return clusters, columns, pairs and points as nested lists, in the order that report.js expects.

    For each point, the most relevant columns are listed one after the other as column, relevance in thousandths of
    the logit, and value. A text value is replaced by a list with its position in ``words``.
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
        "points": _points(contents.points, _shown_points(contents)),
    }


def as_json(value: Any) -> str:
    """Encode a value as JSON for a script element, without ``<``, ``>``, ``&``, line separators and NaN."""
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
        return [one.cluster, as_printed(one.distance), [[j, known(j, at), value(new)] for j, new in one.values]]

    def strongest(at: int) -> list[Any]:
        shares = [round(1000 * column[at]) if math.isfinite(column[at]) else 0 for column in points.relevance]
        order = sorted((j for j, share in enumerate(shares) if share), key=lambda j: -abs(shares[j]))
        return [part for j in order[:STRONGEST] for part in (j, shares[j], known(j, at))]

    whole = ("rows", "x", "y", "cluster", "rival", "leaf")
    return {
        **{name: [getattr(points, name)[at] for at in kept] for name in whole},
        "names": points.names and [points.names[at] for at in kept],
        "logit": [as_printed(points.logit[at]) for at in kept],
        "strongest": [strongest(at) for at in kept],
        "changes": [change(at) for at in kept],
        "words": list(words),
    }


def _shown_points(contents: Contents) -> list[int]:
    """Select about MOST evenly spaced points, plus those that appear in tables and pictures of the page."""
    n = len(contents.points.rows)
    if n <= MOST:
        return list(range(n))
    items = [item for card in contents.cards for item in (*card.prototypes, *card.borderline)]
    rows = {item.row for item in (*items, *contents.trust.disagreements)}
    shown = {at for at, row in enumerate(contents.points.rows) if row in rows}
    return sorted(shown | {at * n // MOST for at in range(MOST)})


def _as_number(value: Any) -> Any:
    """Convert a text to a number if JavaScript prints it in the same form, which saves the quotes."""
    if isinstance(value, str):
        return json.loads(value) if CANONICAL.fullmatch(value) else value
    return as_printed(value) if isinstance(value, float) else value


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return None if not math.isfinite(value) else int(value) if value.is_integer() else value
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, list | tuple) else value
