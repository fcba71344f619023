"""Documents as sequences of words with relevance, written as HTML or for a terminal."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
from rich.color import Color, blend_rgb
from rich.color_triplet import ColorTriplet
from rich.console import COLOR_SYSTEMS, Console
from rich.style import Style
from rich.text import Text

from neonxc.common.numbers import text
from neonxc.plot.shared import AGAINST, FOR

OPAQUE = 0.62  # share of the full colour at which both black and white letters are readable
MOST = 0.5  # share of the absolute relevance of a text that the marked words carry
BLACK, WHITE = ColorTriplet(0, 0, 0), ColorTriplet(255, 255, 255)
# Control characters of terminals, and characters that change the direction of the following text
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")

_number = partial(text, digits=3, signed=True)


@dataclass(frozen=True)
class Piece:
    """A word with its relevance, or the text between known words."""

    text: str
    relevance: float | None = None


@dataclass(frozen=True)
class Document:
    """A text as a sequence of pieces; `limit` is the relevance that gets the full colour."""

    pieces: tuple[Piece, ...]
    limit: float
    heading: str | None = None
    note: str | None = None

    @property
    def total(self) -> str:
        """The sum of the words' relevance."""
        return f"sum {_number(sum(piece.relevance or 0.0 for piece in self.pieces))}"

    @property
    def scale(self) -> str:
        """Text of the sum of the words' relevance and of the relevance with the full colour."""
        return f"{self.total}, full colour {text(self.limit, 3)}"

    @cached_property
    def _least(self) -> float:
        return least_marked([piece.relevance or 0.0 for piece in self.pieces])

    def strength(self, piece: Piece) -> float:
        """Return the share of the full colour of a word, -1 to 1; 0 for words that are not marked."""
        relevance = piece.relevance or 0.0
        return max(-1.0, min(1.0, relevance / self.limit)) if abs(relevance) >= self._least else 0.0


def least_marked(relevance: Sequence[float]) -> float:
    """Return the absolute relevance from which words are marked: the fewest that carry half of the total."""
    sizes = np.sort(np.abs(np.asarray(relevance, dtype=np.float64)))[::-1]
    if not sizes.any():
        return math.inf
    return float(sizes[np.searchsorted(sizes.cumsum(), MOST * sizes.sum())])


def as_html(documents: Sequence[Document], title: str | None, page: bool) -> str:
    """Write an HTML fragment or page. All texts are escaped, and control characters are removed."""
    from jinja2 import Environment  # imported only if a page is written

    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, finalize=_printable)
    template = environment.from_string(Path(__file__).with_name("highlighted.html").read_text(encoding="utf-8"))
    return template.render(documents=documents, title=title, page=page, tint=_tint, number=_number)


def as_terminal(documents: Sequence[Document], title: str | None, color: str | bool | None) -> str:
    """Write documents for a terminal, with colours or marks."""
    system: Any = _color_system(color)
    blocks = [] if title is None else [Text(_printable(title), "bold")]
    for document in documents:
        heading, note = (_printable(f"{part}  ") if part else "" for part in (document.heading, document.note))
        words = [_word(piece, document.strength(piece), system) for piece in document.pieces]
        scale = document.total if system is None else document.scale
        blocks.append(Text.assemble((heading, "bold"), f"{note}({scale})\n", *words))
    written = StringIO()
    console = Console(file=written, force_terminal=True, color_system=system, no_color=False, legacy_windows=False)
    console.print(Text("\n\n").join(blocks), soft_wrap=True, end="")
    return written.getvalue()


def _color_system(color: str | bool | None) -> str | None:
    """Return the colour system of rich; None for no colours."""
    if color not in ("truecolor", "256", True, False, None):
        raise ValueError(f"color is True, False, 'truecolor', '256' or None, got {color!r}")
    if not isinstance(color, bool | None):
        return color
    console = Console(force_terminal=color, force_jupyter=False)
    if color is False or (color is None and console.no_color):
        return None
    return console.color_system or ("256" if color else None)


def _word(piece: Piece, strength: float, system: str | None) -> tuple[str, Style]:
    text = _printable(piece.text)
    if system is None:
        mark = "+" if strength > 0 else "-" if strength < 0 else ""
        return f"{mark}{text}{mark}", Style()
    if piece.relevance is None:
        return text, Style(color="bright_black")
    if strength == 0:
        return text, Style()
    # Mixed with white, so that the readable letter colour does not depend on the background of the terminal.
    paper = blend_rgb(WHITE, _full(strength), abs(strength))
    dark = 0.299 * paper.red + 0.587 * paper.green + 0.114 * paper.blue < 140
    # The colour is reduced here, because rich caches the escape codes of a style for any number of colours.
    ink, ground = (
        Color.from_triplet(color).downgrade(COLOR_SYSTEMS[system]) for color in (WHITE if dark else BLACK, paper)
    )
    return text, Style(color=ink, bgcolor=ground)


def _tint(strength: float) -> str:
    return f"rgb({' '.join(map(str, _full(strength)))} / {OPAQUE * abs(strength):.3f})"


def _full(strength: float) -> ColorTriplet:
    return Color.parse(FOR if strength > 0 else AGAINST).get_truecolor()


def _printable(value: Any) -> Any:
    return CONTROL.sub(" ", value.replace("\r\n", "\n")) if isinstance(value, str) else value
