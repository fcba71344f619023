"""Documents as sequences of words with relevance, written as HTML or plain text."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from neonxc.common.numbers import text
from neonxc.plot.shared import AGAINST, FOR

OPAQUE = 0.62  # share of the full colour at which both black and white letters are readable
MOST = 0.5  # share of the absolute relevance of a text that the marked words carry
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


def as_text(documents: Sequence[Document], title: str | None) -> str:
    """Write plain text with marks, ``+word+`` and ``-word-``; control characters are removed."""
    blocks = [] if title is None else [title]
    for document in documents:
        heading = "  ".join(filter(None, (document.heading, document.note, f"({document.total})")))
        words = "".join(_marked(piece, document.strength(piece)) for piece in document.pieces)
        blocks.append(f"{heading}\n{words}")
    return str(_printable("\n\n".join(blocks)))


def _marked(piece: Piece, strength: float) -> str:
    mark = "+" if strength > 0 else "-" if strength < 0 else ""
    return f"{mark}{piece.text}{mark}"


def _tint(strength: float) -> str:
    full = bytes.fromhex((FOR if strength > 0 else AGAINST)[1:])
    return f"rgb({' '.join(map(str, full))} / {OPAQUE * abs(strength):.3f})"


def _printable(value: Any) -> Any:
    return CONTROL.sub(" ", value.replace("\r\n", "\n")) if isinstance(value, str) else value
