"""Render a report as one HTML page that loads nothing from the network, with the data of its script."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup, escape

from neonxc.common import colours
from neonxc.common.numbers import as_printed
from neonxc.report import charts
from neonxc.report.charts import curves
from neonxc.report.contents import Card, Column, Contents, Item, Pair, PointMap
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
    >>> points = PointMap([], None, [], [], [], [], [], [], [], [], [], "", "")
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
    tints = [card.color if _is_color(card.color) else colours.NOISE for card in contents.cards]
    tags = [_tag(card.label) for card in contents.cards]
    data = page_data(contents, tags, tints)
    script, style = _file("report.js"), _file("report.css")
    page = _template()(
        c=contents,
        tags=tags,
        tints=[(color, colours.ink(color)) for color in tints],
        noise=(colours.NOISE, colours.ink(colours.NOISE)),
        script=Markup(script),
        style=Markup(style),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        data=Markup(as_json(data)),
        places=_places(contents, data["points"]["rows"]),
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
        "number": charts.number,
        "share": charts.share,
        "signed": charts.signed,
        "bar": charts.bar,
        "distribution": charts.distribution,
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


def _is_color(color: str) -> bool:
    return re.fullmatch("#[0-9a-fA-F]{6}", color) is not None


def _tag(label: str) -> str:
    """Shorten a label so that it fits into a chip."""
    return label if len(label) <= 6 else label[:5] + "…"


def _picture(source: str | None) -> str:
    """Return the data URI of a picture or an SVG, whose scripts do not run in an image; drop anything else."""
    source = source or ""
    if source.lstrip().startswith("<svg"):
        return "data:image/svg+xml," + quote(source, safe=" :/=,.-_'()+!*$;@?")
    return source if source.startswith("data:image/") else ""


def _value(columns: list[Column]) -> Callable[[int, Any], str]:
    """Return a function that writes a value together with its standardised value, which the script can show."""

    def value(column: int, printed: Any) -> str:
        raw = escape(_printable("missing" if printed is None else charts.number(printed)))
        scaled = charts.standardised(columns[column], printed)
        if scaled is None:
            return Markup("<bdi class=cut>{}</bdi>").format(raw) if len(raw) > LONG else raw
        return Markup('<data value="{}">{}</data>').format(scaled, raw.replace("-", "−"))

    return value


def _places(contents: Contents, shown: list[int]) -> dict[int, int]:
    """Map row numbers to positions among the points, for the points that the page contains."""
    wanted = set(shown)
    return {row: at for at, row in enumerate(contents.points.rows) if row in wanted}


def _used(items: list[Item]) -> list[int]:
    """Return the columns that are relevant to at least one item, by decreasing total relevance."""
    total: dict[int, float] = {}
    for item in items:
        for column, _, relevance in item.values:
            total[column] = total.get(column, 0.0) + abs(relevance)
    return sorted(total, key=lambda column: -total[column])


def _highlighted(item: Item) -> list[tuple[str, float]]:
    """Split a text into pieces with their relevance, which is 0 outside the highlights."""
    pieces, at, text = [], 0, item.text or ""
    for start, end, relevance in sorted(item.marks):
        pieces += [(text[at:start], 0.0), (text[max(at, start) : end], max(-1.0, min(1.0, relevance)))]
        at = max(at, end)
    return [piece for piece in [*pieces, (text[at:], 0.0)] if piece[0]]


def _near(contents: Contents) -> list[Pair]:
    """Return all pairs if there are few, else those where one cluster is the nearest of the other."""
    cards: list[Card] = contents.cards
    if len(contents.pairs) <= OPEN_CARDS:
        return contents.pairs
    return [pair for pair in contents.pairs if cards[pair.a].nearest == pair.b or cards[pair.b].nearest == pair.a]


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


def _points(points: PointMap, kept: list[int]) -> dict[str, Any]:
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
