"""Render a report as one HTML page that loads nothing from the network, with the data of its script."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup, escape

from neonxc.common import colours
from neonxc.common.numbers import as_printed, plural
from neonxc.report.charts import bar, curves, distribution, number, share, signed, standardised
from neonxc.report.contents import ColumnEntry, Contents, Item, Pair, PointMap, rows_shown
from neonxc.report.tree import outline

OPEN_CARDS = 12  # number of cards that are unfolded at first
LONG = 24  # number of characters from which a value may have to be cut
HERE = Path(__file__).parent


def render(contents: Contents) -> str:
    """Write a report as one HTML page.

    The page contains its style sheet, script, pictures and data, and its Content-Security-Policy forbids loading
    anything else. The main content is readable without JavaScript. All names and texts are escaped.

    Parameters
    ----------
    contents : Contents
        Contents of the report.

    Returns
    -------
    str
        HTML source, to be saved as UTF-8.

    Examples
    --------
    >>> from neonxc.report.contents import Contents, PointMap, Reproduce, Trust
    >>> from neonxc.report.page import render
    >>> points = PointMap([], None, [], [], [], [], [], [], [], [], [], [], "", "")
    >>> contents = Contents(
    ...     "Wine & co",
    ...     "table",
    ...     "",
    ...     0,
    ...     0,
    ...     0,
    ...     "",
    ...     [],
    ...     [],
    ...     [],
    ...     [],
    ...     [],
    ...     [],
    ...     [],
    ...     points,
    ...     Trust(),
    ...     Reproduce([], [], []),
    ...     "2026-03-01",
    ... )
    >>> "<h1 dir=auto>Wine &amp; co</h1>" in render(contents)
    True
    """
    tints = [
        card.color if re.fullmatch("#[0-9a-fA-F]{6}", card.color) else colours.NOISE for card in contents.cards
    ]
    tags = ["×" if card.rivals else _fitted(card.label) for card in contents.cards]
    data = page_data(contents, tags, tints)
    shown = set(data["points"]["rows"])
    script = _file("report.js")
    style = _file("report.css")
    page = _template()(
        c=contents,
        tags=tags,
        tints=[(color, colours.ink(color)) for color in tints],
        noise=(colours.NOISE, colours.ink(colours.NOISE)),
        script=Markup(script),
        style=Markup(style),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        data=Markup(as_json(data)),
        places={row: i for i, row in enumerate(contents.points.rows) if row in shown},
        tree=outline(contents.tree),
        near=_near(contents),
        open_cards=OPEN_CARDS,
        value=_value(contents.columns),
    )
    return page.encode("utf-8", "replace").decode("utf-8")  # UTF-8 cannot encode half a surrogate pair


def embedded(contents: Contents) -> str:
    """Write a report as an ``iframe`` for a notebook, which isolates the page from the notebook.

    Parameters
    ----------
    contents : Contents
        Contents of the report.

    Returns
    -------
    str
        An ``iframe`` whose only permission is to run its own script.
    """
    return Markup(
        '<iframe title="{}" sandbox="allow-scripts" style="width:100%;height:700px;border:0" srcdoc="{}"></iframe>'
    ).format(contents.title, render(contents))


def _fitted(label: str) -> str:
    """Cut a label to the width of a chip."""
    return label if len(label) <= 6 else label[:5] + "…"


@cache
def _template() -> Callable[..., str]:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # imported only when a page is written

    environment = Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        finalize=_printable,
        loader=FileSystemLoader(HERE),
    )
    environment.filters |= {
        "number": number,
        "plural": plural,
        "share": share,
        "signed": signed,
        "bar": bar,
        "distribution": distribution,
        "curves": curves,
        "picture": _picture,
        "highlighted": _highlighted,
        "used": _used,
    }
    return environment.get_template("page.html").render


@cache
def _file(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def _printable(value: Any) -> Any:
    """Replace control characters in texts, which HTML cannot represent."""
    return re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", "\ufffd", value) if type(value) is str else value


def _picture(source: str | None) -> str:
    """Return the data URI of a picture or an SVG, whose scripts do not run in an image; drop anything else."""
    source = source or ""
    if source.lstrip().startswith("<svg"):
        return "data:image/svg+xml," + quote(source, safe=" :/=,.-_'()+!*$;@?")
    return source if source.startswith("data:image/") else ""


def _value(columns: list[ColumnEntry]) -> Callable[[int, Any], str]:
    """Return a function that writes a value together with its standardised value, which the script can show."""

    def value(column: int, printed: Any) -> str:
        raw = escape(_printable("missing" if printed is None else number(printed)))
        scaled = standardised(columns[column], printed)
        if scaled is None:
            return Markup("<bdi class=cut>{}</bdi>").format(raw) if len(raw) > LONG else raw
        return Markup('<data value="{}">{}</data>').format(scaled, raw.replace("-", "−"))

    return value


def _used(items: list[Item]) -> list[int]:
    """Return the columns that are relevant to at least one item, by decreasing total relevance."""
    total: dict[int, float] = defaultdict(float)
    for item in items:
        for column, _, relevance in item.values:
            total[column] += abs(relevance)
    return sorted(total, key=lambda column: -total[column])


def _highlighted(item: Item) -> list[tuple[str, float]]:
    """Split a text into pieces with their relevance, which is 0 outside the highlights."""
    pieces = []
    done = 0
    text = item.text or ""
    for start, end, relevance in sorted(item.marks):
        pieces += [(text[done:start], 0.0), (text[max(done, start) : end], max(-1.0, min(1.0, relevance)))]
        done = max(done, end)
    return [piece for piece in [*pieces, (text[done:], 0.0)] if piece[0]]


def _near(contents: Contents) -> list[Pair]:
    """Return all pairs if there are few, else those where one cluster is the nearest of the other."""
    cards = contents.cards
    pairs = contents.pairs
    if len(pairs) <= OPEN_CARDS:
        return pairs
    return [pair for pair in pairs if cards[pair.a].nearest == pair.b or cards[pair.b].nearest == pair.a]


# maximum number of points, and of columns per point, which keep the page small
MOST = 3_900
STRONGEST = 10
CANONICAL = re.compile(r"-?(0|[1-9]\d{0,11})(\.\d{0,8}[1-9])?")  # numbers that JavaScript prints in the same form


def page_data(contents: Contents, tags: list[str], colors: list[str]) -> dict[str, Any]:
    """Return clusters, columns, pairs and points as nested lists, in the order that report.js expects.

    For each point, the most relevant columns are listed one after the other as column, relevance in thousandths of
    the point's total, and value. A text value is replaced by a list with its position in ``words``.
    """
    clusters = zip(tags, contents.cards, colors, strict=True)
    return {
        "clusters": [[tag, card.name, color] for tag, card, color in clusters],
        "columns": [[column.name, column.mean, column.spread, column.unit] for column in contents.columns],
        "pairs": [
            [
                pair.a,
                pair.b,
                [[column, round(share, 3), *typical] for column, share, *typical in pair.relevance],
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


def _points(points: PointMap, sample: list[int]) -> dict[str, Any]:
    words: dict[str, int] = {}

    def packed(printed: Any) -> Any:
        value = _as_number(printed)
        return [words.setdefault(value, len(words))] if isinstance(value, str) else value

    def value(column: int, i: int) -> Any:
        return packed(points.values[column][i]) if points.values else None

    def change(i: int) -> list[Any] | None:
        nearest = points.changes[i]
        if nearest is None:
            return None
        values = [[column, value(column, i), packed(after)] for column, after in nearest.values]
        return [nearest.cluster, as_printed(nearest.distance), values]

    def strongest(i: int) -> list[Any]:
        shares = [round(1000 * column[i]) if math.isfinite(column[i]) else 0 for column in points.relevance]
        relevant = [column for column, thousandths in enumerate(shares) if thousandths]
        order = sorted(relevant, key=lambda column: -abs(shares[column]))
        return [entry for column in order[:STRONGEST] for entry in (column, shares[column], value(column, i))]

    plain = ("rows", "x", "y", "cluster", "rival", "leaf")
    return {
        **{name: [getattr(points, name)[i] for i in sample] for name in plain},
        "names": points.names and [points.names[i] for i in sample],
        **{name: [as_printed(getattr(points, name)[i]) for i in sample] for name in ("logit", "total")},
        "strongest": [strongest(i) for i in sample],
        "changes": [change(i) for i in sample],
        "words": list(words),
    }


def _shown_points(contents: Contents) -> list[int]:
    """Select about MOST evenly spaced points, plus those that appear in tables and pictures of the page."""
    n = len(contents.points.rows)
    wanted = rows_shown(contents.cards, contents.trust.disagreements)
    if n <= MOST:
        return list(range(n))
    shown = {i for i, row in enumerate(contents.points.rows) if row in wanted}
    return sorted(shown | {i * n // MOST for i in range(MOST)})


def _as_number(value: Any) -> Any:
    """Convert a text to a number if JavaScript prints it in the same form, which saves the quotes."""
    if isinstance(value, str):
        return json.loads(value) if CANONICAL.fullmatch(value) else value
    return as_printed(value) if isinstance(value, float) else value


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return None if not math.isfinite(value) else int(value) if value.is_integer() else value
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    return [_finite(entry) for entry in value] if isinstance(value, list | tuple) else value
