"""Documents as sequences of words with relevance, written as HTML or plain text.

Which words are marked, and how strongly they are coloured:

    marked     the fewest words with the largest |relevance| that carry `MARKED` of the sum of |relevance|
    strength   relevance / limit, cut off at -1 and 1; 0 for words that are not marked
    opacity    `OPAQUE` |strength| of red (for the cluster) or blue (against it)
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from neonxc.common.numbers import text
from neonxc.plot.shared import AGAINST, FOR

OPAQUE = 0.62  # share of the full colour at which both black and white letters are readable
MARKED = 0.5  # share of the absolute relevance of a text that the marked words carry
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
        total = sum(piece.relevance or 0.0 for piece in self.pieces)
        return f"sum {_number(total)}"

    @property
    def scale(self) -> str:
        """Text of the sum of the words' relevance and of the relevance with the full colour."""
        return f"{self.total}, full colour {text(self.limit, 3)}"

    @cached_property
    def _lowest_marked(self) -> float:
        return least_marked([piece.relevance or 0.0 for piece in self.pieces])

    def strength(self, piece: Piece) -> float:
        """Return the share of the full colour of a word, -1 to 1; 0 for words that are not marked."""
        relevance = piece.relevance or 0.0
        if abs(relevance) < self._lowest_marked:
            return 0.0
        return max(-1.0, min(1.0, relevance / self.limit))


def least_marked(relevance: Sequence[float]) -> float:
    """Return the absolute relevance from which words are marked: the fewest that carry half of the total."""
    sizes = np.sort(np.abs(np.asarray(relevance, dtype=np.float64)))[::-1]
    if not sizes.any():
        return math.inf
    last = np.searchsorted(sizes.cumsum(), MARKED * sizes.sum())
    return float(sizes[last])


def as_html(documents: Sequence[Document], title: str | None, page: bool) -> str:
    """Write an HTML fragment or page. All texts are escaped, and control characters are removed."""
    from jinja2 import Environment  # imported only if a page is written

    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, finalize=_printable)
    source = Path(__file__).with_name("highlighted.html").read_text(encoding="utf-8")
    template = environment.from_string(source)
    return template.render(documents=documents, title=title, page=page, tint=_tint, number=_number)


def as_text(documents: Sequence[Document], title: str | None) -> str:
    """Write plain text with marks, ``+word+`` and ``-word-``; control characters are removed."""
    blocks = [] if title is None else [title]
    for document in documents:
        parts = (document.heading, document.note, f"({document.total})")
        heading = "  ".join(filter(None, parts))
        words = "".join(_marked(piece, document.strength(piece)) for piece in document.pieces)
        blocks.append(f"{heading}\n{words}")
    return str(_printable("\n\n".join(blocks)))


def _marked(piece: Piece, strength: float) -> str:
    if strength > 0:
        return f"+{piece.text}+"
    if strength < 0:
        return f"-{piece.text}-"
    return piece.text


def _tint(strength: float) -> str:
    """Write the colour of a word's background for CSS."""
    color = FOR if strength > 0 else AGAINST
    channels = " ".join(map(str, bytes.fromhex(color[1:])))
    return f"rgb({channels} / {OPAQUE * abs(strength):.3f})"


def _printable(value: object) -> object:
    """Remove control characters from a string; other values of the template stay as they are."""
    if not isinstance(value, str):
        return value
    return CONTROL.sub(" ", value.replace("\r\n", "\n"))
