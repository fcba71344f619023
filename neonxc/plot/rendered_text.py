"""How highlighted documents are written: HTML, and what a terminal shows."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from matplotlib.colors import to_rgb

from neonxc.plot.bars import AGAINST, FOR

OPAQUE = 0.62  # of the full colour: both black and white letters can be read on it
WEAK, STRONG = 0.1, 0.5  # shares of the full colour from which marks show a word, and as strong
LEVELS = (0, 95, 135, 175, 215, 255)  # of red, green and blue among a terminal's 256 colours
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
Color = Literal["truecolor", "256"] | None

HTML = """\
{% macro tint(strength) -%}
rgb({{ (pro if strength > 0 else contra)|join(" ") }} / {{ "%.3f"|format(opaque * strength|abs) }})
{%- endmacro %}
{% if page %}
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{{ printable(title or "Highlighted documents") }}</title>
<style>
body { margin: 2em auto; padding: 0 1em; max-width: 52em; }
</style>
</head>
<body>
{% endif %}
<style>
.neonxc-text { font: 16px/1.65 system-ui, sans-serif; text-align: left; }
.neonxc-text h2 { font-size: 1.4em; margin: 0 0 .3em; }
.neonxc-text h3 { font-size: 1em; margin: 0; }
.neonxc-text .small { font-size: .82em; opacity: .75; }
.neonxc-text .key span { padding: .15em .4em; border-radius: .25em; margin-right: .4em; }
.neonxc-text article { border: 1px solid #8885; border-radius: .5em; padding: .7em 1em; margin: .9em 0; }
.neonxc-text header { display: flex; flex-wrap: wrap; gap: 0 1em; align-items: baseline; margin-bottom: .4em; }
.neonxc-text .scale { margin-left: auto; font-variant-numeric: tabular-nums; }
.neonxc-text .body { white-space: pre-wrap; overflow-wrap: anywhere; }
.neonxc-text .out { opacity: .5; }
.neonxc-text .word { padding: .1em .06em; border-radius: .2em; cursor: help; }
</style>
<section class="neonxc-text">
{% if title %}
<h2>{{ printable(title) }}</h2>
{% endif %}
<p class="small key"><span style="background: {{ tint(0.8) }}">for the cluster</span>
<span style="background: {{ tint(-0.8) }}">against it</span>
<span class="out">not in the vocabulary</span></p>
{% for document in documents %}
<article>
<header>
{% if document.heading %}
<h3>{{ printable(document.heading) }}</h3>
{% endif %}
{% if document.note %}
<span class="small">{{ printable(document.note) }}</span>
{% endif %}
<span class="small scale">{{ document.scale }}</span>
</header>
<div class="body" dir="auto">
{%- for piece in document.pieces -%}
{%- if piece.relevance is none -%}
<span class="out">{{ printable(piece.text) }}</span>
{%- else -%}
<span class="word" style="background: {{ tint(document.strength(piece)) }}" title="{{ number(piece.relevance) }}">
{{- printable(piece.text) -}}</span>
{%- endif -%}
{%- endfor -%}
</div>
</article>
{% endfor %}
</section>
{% if page %}
</body>
</html>
{% endif %}
"""


@dataclass(frozen=True)
class Piece:
    """A word with its relevance, or what stands between known words."""

    text: str
    relevance: float | None = None


@dataclass(frozen=True)
class Document:
    """A text in pieces; `limit` is the relevance that gets the full colour."""

    pieces: tuple[Piece, ...]
    limit: float
    heading: str | None = None
    note: str | None = None

    @property
    def scale(self) -> str:
        """What the words' relevance adds up to, and what the full colour stands for."""
        total = sum(piece.relevance or 0.0 for piece in self.pieces)
        return f"sum {number(total)}, full colour {self.limit:.3g}"

    def strength(self, piece: Piece) -> float:
        """Share of the full colour, -1 ... 1."""
        return max(-1.0, min(1.0, (piece.relevance or 0.0) / self.limit))


def number(value: float) -> str:
    """Relevance in three digits, with its sign."""
    return f"{value:+.3g}"


def printable(text: str) -> str:
    """`text` without control characters, which a terminal would obey, and which would reverse what follows."""
    return CONTROL.sub(" ", text.replace("\r\n", "\n"))


def as_html(documents: Sequence[Document], title: str | None, page: bool) -> str:
    """Write a fragment or a page."""
    # PyTorch needs jinja2, so it is there; only a page that is really written has to wait for its import.
    from jinja2 import Environment

    template = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(HTML)
    colors = {"pro": _bytes(FOR), "contra": _bytes(AGAINST), "opaque": OPAQUE}
    written = {"documents": documents, "title": title, "page": page}
    return template.render(**written, **colors, number=number, printable=printable)


def as_terminal(documents: Sequence[Document], title: str | None, color: Color) -> str:
    """Write lines for a terminal, in colours or with marks."""
    blocks = [] if title is None else [_bold(title, color)]
    for document in documents:
        heading = "" if document.heading is None else _bold(document.heading, color) + "  "
        note = "" if document.note is None else printable(document.note) + "  "
        body = "".join(_shown(piece, document.strength(piece), color) for piece in document.pieces)
        blocks.append(f"{heading}{note}({document.scale})\n{body}")
    return "\n\n".join(blocks)


def wants_color(color: str | bool | None) -> Color:
    """How many colours to write, if any."""
    if color is None:
        color = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    if color is True:
        color = "truecolor" if os.environ.get("COLORTERM") in ("truecolor", "24bit") else "256"
    if color not in ("truecolor", "256", False):
        raise ValueError(f"color is True, False, 'truecolor', '256' or None, got {color!r}")
    return color or None


def _shown(piece: Piece, strength: float, color: Color) -> str:
    text = printable(piece.text)
    if color is None:
        mark = ("+" if strength > 0 else "-") * ((abs(strength) >= WEAK) + (abs(strength) >= STRONG))
        return f"{mark}{text}{mark}"
    if piece.relevance is None:
        return f"\x1b[90m{text}\x1b[0m"
    # on white, whatever the terminal's own background is: only so the letters' colour is known to be readable
    full = _bytes(FOR if strength > 0 else AGAINST)
    tint = [round(255 + abs(strength) * (part - 255)) for part in full]
    dark = 0.299 * tint[0] + 0.587 * tint[1] + 0.114 * tint[2] < 140
    return f"\x1b[{_code(38, [255] * 3 if dark else [0] * 3, color)};{_code(48, tint, color)}m{text}\x1b[0m"


def _code(layer: int, rgb: Sequence[int], color: Color) -> str:
    if color == "truecolor":
        return f"{layer};2;" + ";".join(map(str, rgb))
    red, green, blue = (min(range(6), key=lambda i: abs(LEVELS[i] - part)) for part in rgb)
    return f"{layer};5;{16 + 36 * red + 6 * green + blue}"


def _bold(text: str, color: Color) -> str:
    return printable(text) if color is None else f"\x1b[1m{printable(text)}\x1b[0m"


def _bytes(color: str) -> list[int]:
    return [round(255 * part) for part in to_rgb(color)]
