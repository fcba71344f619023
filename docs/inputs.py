"""What a picture shows, recorded so that a later version of the code can be compared with it.

A picture shows words (texts, names, colours, sources of pages) and numbers. Of each picture are recorded

    words     a digest of all of them without the numbers in them, in order; they have to be the same
    numbers   also those in words; for the n numbers v_1 ... v_n of one kind (points of lines, clusters' sizes ...)

                  n,  r = sqrt(mean v_i^2),  p_j = sum_i v_i cos(i w_j) / (r sqrt(n))   for w = 1, sqrt(2), sqrt(3)

              n has to be the same, r up to a fraction TOLERANCE of itself, and p_j up to TOLERANCE.

Rounded numbers can't be compared by a digest: the last bit of a processor moves a number that lies on the boundary
of two roundings. Projections move by as little as the numbers do.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import log2
from pathlib import Path
from typing import TypedDict

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import Collection
from matplotlib.colors import to_hex
from matplotlib.contour import ContourSet
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text
from numpy.typing import ArrayLike
from torch import Tensor

# Sums in another order (MKL_CBWR=COMPATIBLE, ATEN_CPU_CAPABILITY=default) move projections by at most 2e-5;
# a change of one of 100 numbers by 5% of their size moves one by 5e-3.
TOLERANCE = 2e-3
CANCELLED = 1e-9  # sums of terms of about 1 that cancel in float64 are below it
FREQUENCIES = (1.0, 2**0.5, 3**0.5)
VOLATILE = {
    "created",
    "reproduce",
    "version",
    "versions",
    "seconds",
}  # what depends on the installation or the hour
NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:e[-+]?[0-9]{1,2}(?![0-9]))?")
EMBEDDED = re.compile(r"data:image/[^\"')]*")  # pixels, whose encoding differs by version of the library


class Record(TypedDict):
    """What is recorded of one picture."""

    words: str  # digest
    numbers: dict[str, list[float]]  # n, r and the p_j by kind


@dataclass
class Inputs:
    """Words and numbers of a picture."""

    words: list[str] = field(default_factory=list)
    numbers: dict[str, list[float]] = field(default_factory=dict)  # by kind

    def add(self, value: object, kind: str = "numbers") -> None:
        """Add all words and numbers of a value, whose numbers are of this kind."""
        match value:
            case Figure():
                self._add_figure(value)
            case Path():
                self.words.append(value.read_text(encoding="utf-8"))
            case str():
                self.add_text(kind, value)
            case None | bool() | np.bool_():
                self.words.append(str(value))
            case int() | float() | np.number():
                self.add_numbers(kind, [value])
            case pd.DataFrame():
                self.add({str(name): value[name].tolist() for name in value.columns})
                self.add(value.index.tolist(), "index")
            case Mapping():
                for key, entry in value.items():
                    if key not in VOLATILE:
                        self.words.append(str(key))
                        self.add(entry, str(key))
            case list() | tuple():
                for entry in value:
                    self.add(entry, kind)
            case Tensor() | np.ndarray():
                self.add_numbers(kind, np.asarray(value))
            case _:
                raise TypeError(f"{type(value).__name__} is not a kind of value whose words and numbers are known")

    def add_text(self, kind: str, text: str) -> None:
        """Add the words of a text and, as numbers of their own kind, the logarithms of the numbers in it.

        Texts name numbers of all sizes; without logarithms, large ones would hide what happens to small ones.
        """
        text = EMBEDDED.sub("", text)
        self.words.append(NUMBER.sub("#", text))
        self.add_numbers(f"{kind}, in words", [log2(1 + float(number)) for number in NUMBER.findall(text)])

    def add_numbers(self, kind: str, values: ArrayLike) -> None:
        """Add numbers; which ones are not finite is told by words."""
        numbers = np.asarray(values, dtype=float).ravel()
        is_finite = np.isfinite(numbers)
        if not is_finite.all():
            self.words.append(f"{kind}: {numbers[~is_finite]}")
        self.numbers.setdefault(kind, []).extend(numbers[is_finite].tolist())

    def record(self) -> Record:
        """Compute the digest of the words, and n, r and p_j of every kind of numbers."""
        digest = hashlib.sha256("\0".join(self.words).encode()).hexdigest()
        return {"words": digest[:16], "numbers": {kind: _projected(v) for kind, v in self.numbers.items() if v}}

    def _add_figure(self, figure: Figure) -> None:
        """Add what is in a figure: its texts, and the positions and colours of what is drawn."""
        self.add_numbers("inches", figure.get_size_inches())
        for text in figure.findobj(Text):
            if text.get_visible() and text.get_text().strip():
                self.add_text("texts", text.get_text())
                self.words.append(to_hex(text.get_color()))
        for axes in figure.axes:
            if axes.get_visible():
                self._add_axes(axes)

    def _add_axes(self, axes: Axes) -> None:
        self.words += [axes.get_xscale(), axes.get_yscale()]
        self.add_numbers("limits", [*axes.get_xlim(), *axes.get_ylim()])
        for artist in _drawn(axes):
            match artist:
                case Line2D():
                    self.words += [to_hex(artist.get_color()), artist.get_linestyle(), str(artist.get_marker())]
                    self.add_numbers("lines", artist.get_xydata())
                case Patch():
                    self.words += [to_hex(artist.get_facecolor(), keep_alpha=True), to_hex(artist.get_edgecolor())]
                    path = artist.get_patch_transform().transform_path(artist.get_path())
                    self.add_numbers("patches", path.vertices)
                case Collection():
                    self.words += [to_hex(color, keep_alpha=True) for color in artist.get_facecolor()]
                    self.add_numbers("points", np.ma.filled(artist.get_offsets(), np.nan))
                    if not isinstance(
                        artist, ContourSet
                    ):  # whose vertices depend on how a library follows a border
                        for path in artist.get_paths():
                            self.add_numbers("paths", path.vertices)
                case AxesImage():
                    self.words.append(artist.get_cmap().name)
                    pixels = np.ma.filled(np.ma.asarray(artist.get_array(), dtype=float), 0.0)
                    self.add_numbers("pixels", pixels)


def _drawn(axes: Axes) -> Iterator[Artist]:
    """Return lines, patches, collections and images, without ticks, frames and backgrounds."""
    for artists in (axes.lines, axes.patches, axes.collections, axes.images):
        yield from (artist for artist in artists if artist.get_visible())


def _projected(values: list[float]) -> list[float]:
    """Compute n, r and the p_j."""
    v = np.array(values)
    n = len(v)
    r = float(np.sqrt(np.mean(v**2)))
    positions = np.arange(1, n + 1)
    if r < CANCELLED:
        return [n, 0.0, 0.0, 0.0, 0.0]
    scale = r * np.sqrt(n)
    projections = [float(v @ np.cos(positions * frequency)) / scale for frequency in FREQUENCIES]
    return [n, float(f"{r:.5g}"), *(round(p, 5) for p in projections)]


def difference(recorded: Record, current: Record) -> str | None:
    """Say in what two records differ: "words", or a kind of numbers; None if they are the same."""
    if recorded["words"] != current["words"]:
        return "words"
    for kind in recorded["numbers"].keys() | current["numbers"].keys():
        before = recorded["numbers"].get(kind)
        after = current["numbers"].get(kind)
        if before is None or after is None or before[0] != after[0]:
            return f"how many numbers of {kind!r} there are"
        if not np.isclose(before[1], after[1], rtol=TOLERANCE, atol=0):
            return f"the size of the numbers of {kind!r}"
        if not np.allclose(before[2:], after[2:], rtol=0, atol=TOLERANCE):
            return f"the numbers of {kind!r}"
    return None
