"""Render a report as one HTML page that loads nothing from the network, with the data of its script."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from neonxc.common import colours
from neonxc.common.locales import current_marks, printed_like
from neonxc.common.numbers import plural
from neonxc.common.types import Label
from neonxc.report.charts import bar, curves, distribution, in_percent, number, signed, standardised
from neonxc.report.description import ClusterDescription, ColumnEntry, Description, Example, Pair, plain
from neonxc.report.tree import outline

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor

    from neonxc.evaluation.clusterings_compared import ClusteringComparison
    from neonxc.hierarchy.result import Layers

OPEN_CARDS = 12  # number of cards that are unfolded at first
LONG = 24  # number of characters from which a value may have to be cut
TAG = 6  # number of characters in the chip of a cluster where there is little space
LONGEST_TAG = 16  # the same for labels that begin alike
HERE = Path(__file__).parent


def render(description: Description) -> str:
    """Write a description as one HTML page.

    The page contains its style sheet, script, pictures and data, and its Content-Security-Policy forbids loading
    anything else. The main content is readable without JavaScript. All names and texts are escaped.

    Parameters
    ----------
    description : Description

    Returns
    -------
    str
        HTML source, to be saved as UTF-8.

    Examples
    --------
    >>> import neonxc
    >>> from neonxc.report.page import render
    >>> page = render(neonxc.describe([[0.0], [1.0], [5.0], [6.0]], labels=["a", "a", "<b>", "<b>"], fast=True))
    >>> "cluster &lt;b&gt;" in page.lower()
    True
    """
    with printed_like(description.marks):
        return _rendered(description)


def _rendered(description: Description) -> str:
    """Fill the template, with numbers as the description prints them."""
    tags = _tags(description.clusters)
    tints = [(color, colours.ink(color)) for color in colours.colors(description.k)]
    script = _file("report.js")
    digest = hashlib.sha256(script.encode()).digest()  # the page runs no other script
    positions_on_map = {row: i for i, row in enumerate(description.points.rows)}
    page = _template()(
        c=description,
        tags=tags,
        tints=tints,
        noise=(colours.NOISE, colours.ink(colours.NOISE)),
        script=Markup(script),
        style=Markup(_file("report.css")),
        script_hash=base64.b64encode(digest).decode(),
        data=Markup(as_json(script_data(description))),
        places=positions_on_map,
        position=_positions(description),
        tree=outline(description.tree),
        near=_near(description),
        open_cards=OPEN_CARDS,
        value=_value(description.columns),
    )
    return page.encode("utf-8", "replace").decode("utf-8")  # UTF-8 cannot encode half a surrogate pair


def embedded(description: Description) -> str:
    """Write a report as an ``iframe`` for a notebook, which isolates the page from the notebook.

    Parameters
    ----------
    description : Description

    Returns
    -------
    str
        An ``iframe`` whose only permission is to run its own script.
    """
    return Markup(
        '<iframe title="{}" sandbox="allow-scripts" style="width:100%;height:700px;border:0" srcdoc="{}"></iframe>'
    ).format(description.title, render(description))


def _positions(description: Description) -> dict[Label, int]:
    """Return the positions of the clusters by label, without noise."""
    if description.net is None:
        return {}
    labels = description.net.classes_.tolist()
    return {label: k for k, label in enumerate(labels[: description.k])}


def _tags(clusters: Sequence[ClusterDescription]) -> list[str]:
    """Write what stands in the chips of clusters where space is short: labels, or short forms that differ."""
    labels = ["×" if cluster.is_noise else cluster.label for cluster in clusters]
    beginnings = Counter(map(_beginning, labels))
    tags = [label if beginnings[_beginning(label)] > 1 else _beginning(label) for label in labels]
    # of labels that begin alike, the end tells which one it is
    for n_last in range(TAG // 2, LONGEST_TAG - TAG // 2):
        ends = Counter(_end(label, n_last) for label in tags)
        tags = [_end(tag, n_last) if ends[_end(tag, n_last)] == 1 else tag for tag in tags]
    return tags


def _beginning(label: str) -> str:
    """Shorten a label to TAG characters."""
    return label if len(label) <= TAG else label[: TAG - 1] + "…"


def _end(label: str, n_last: int) -> str:
    """Shorten a label to its first characters and its last ones."""
    n_first = TAG // 2
    return label if len(label) <= n_first + n_last + 1 else f"{label[:n_first]}…{label[-n_last:].lstrip()}"


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
        "share": in_percent,
        "signed": signed,
        "bar": bar,
        "distribution": distribution,
        "curves": curves,
        "photo": _photo,
        "heatmap": _heatmap,
        "regions": _regions,
        "picture": _picture,
        "drawn": _drawn,
        "highlighted": _highlighted,
        "used": _used,
    }
    return environment.get_template("page.html").render


@cache
def _file(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def _printable(value: object) -> object:
    """Replace control characters in texts, which HTML cannot represent; markup stays as it is."""
    if type(value) is not str:
        return value
    return re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", "\ufffd", value)


def _photo(photo: Tensor) -> str:
    """Encode a photo."""
    from neonxc.report.pictures import webp  # loads Matplotlib, as below

    return webp(photo)


def _picture(image: Image) -> str:
    """Encode a picture of concepts."""
    from neonxc.report.pictures import as_uri

    return as_uri(image)


def _drawn(found: Layers | ClusteringComparison) -> str:
    """Draw the splits of layers, or the rows between the clusters of two models."""
    from neonxc.report.pictures import as_uri, drawn

    return as_uri(drawn(found.plot()))


def _heatmap(example: Example) -> str:
    """Draw the heatmap of an example over its photo."""
    from neonxc.report.pictures import overlaid, webp

    assert example.photo is not None
    assert example.heatmap is not None
    return webp(overlaid(example.photo, example.heatmap))


def _regions(description: Description) -> str:
    """Paint the first photo in the colours of its clusters."""
    from neonxc.report.pictures import painted, webp

    assert description.photo is not None
    assert description.regions is not None
    return webp(painted(description.photo, description.regions, description.k))


def _value(columns: list[ColumnEntry]) -> Callable[[int, float | str | None], str]:
    """Return a function that writes a value together with its standardised value, which the script can show."""

    def value(column: int, printed: float | str | None) -> str:
        unit = columns[column].unit
        with printed_like(current_marks()._replace(n_digits=columns[column].n_digits)):
            written = "missing" if printed is None else number(printed)
        if unit and isinstance(printed, int | float):
            written += f" {unit}"
        raw = escape(_printable(written))
        scaled = standardised(columns[column], printed)
        if scaled is None:
            if len(raw) <= LONG:
                return raw
            return Markup("<bdi class=cut>{}</bdi>").format(raw)
        return Markup('<data value="{}">{}</data>').format(scaled, raw.replace("-", "−"))

    return value


def _used(items: list[Example]) -> list[int]:
    """Return the columns that are relevant to at least one item, by decreasing total relevance."""
    total: dict[int, float] = defaultdict(float)
    for item in items:
        for column, _, relevance in item.values:
            total[column] += abs(relevance)
    return sorted(total, key=lambda column: -total[column])


def _highlighted(item: Example) -> list[tuple[str, float]]:
    """Split a text into pieces with their relevance, which is 0 outside the highlights."""
    pieces = []
    done = 0
    text = item.text or ""
    for start, end, relevance in sorted(item.marks):
        pieces += [(text[done:start], 0.0), (text[max(done, start) : end], max(-1.0, min(1.0, relevance)))]
        done = max(done, end)
    return [piece for piece in [*pieces, (text[done:], 0.0)] if piece[0]]


def _near(description: Description) -> list[Pair]:
    """Return all pairs if there are few, else those where one cluster is the nearest of the other."""
    clusters = description.clusters
    pairs = description.pairs
    if len(pairs) <= OPEN_CARDS:
        return pairs
    return [pair for pair in pairs if clusters[pair.a].nearest == pair.b or clusters[pair.b].nearest == pair.a]


def script_data(description: Description) -> dict[str, Any]:
    """Return what the script needs: parts of :meth:`Description.to_dict`, and the colours of the clusters."""
    return {
        "clusters": [
            {"label": cluster.label, "tag": tag, "name": cluster.name}
            for cluster, tag in zip(description.clusters, _tags(description.clusters), strict=True)
        ],
        "colors": colours.colors(description.k),
        "marks": description.marks._asdict(),
        "kind": description.kind,
        "n_columns": description.n_columns,
        "columns": plain(description.columns),
        "pairs": plain(description.pairs),
        "points": plain(description.points),
    }


def as_json(value: object) -> str:
    """Encode a value as JSON for a script element, without ``<``, ``>``, ``&``, line separators and NaN."""
    text = json.dumps(_finite(value), separators=(",", ":"), allow_nan=False)  # ASCII only
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _finite(value: object) -> object:
    """Return a value with None for NaN and infinity, and whole numbers as integers, which are shorter."""
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return None
    return int(value) if value.is_integer() else value
