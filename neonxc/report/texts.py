"""Clusters of texts, with highlighted words."""

from __future__ import annotations

from typing import Any

import numpy as np

from neonxc.attribution.highlighting import highlights
from neonxc.attribution.neon import NEON
from neonxc.common.numbers import rounded
from neonxc.common.shortening import shortened
from neonxc.plot.documents import least_marked
from neonxc.report.clustered import ClusteredData
from neonxc.report.description import Example
from neonxc.report.relevance import Relevance

CHARACTERS = 600  # maximum number of characters shown of a text

Highlights = list[tuple[int, int, float]]
"""First character, end and relevance of highlighted words."""


class ClusteredTexts(ClusteredData):
    """Clusters of texts."""

    kind = "texts"
    thing = "text"
    trees = ("CART",)

    def clusterer_inputs(self, index: np.ndarray) -> Any:
        """Select texts; the points may be their counts of terms."""
        if self.net.features is None:
            return self.table.take(index).data
        return super().clusterer_inputs(index)

    def _show(self, examples: list[Example], relevance: Relevance, points: np.ndarray) -> None:
        """Add the beginnings of the texts, with words whose relevance is relative to the largest, from -1 to 1."""
        rows = [example.row for example in examples]
        texts = [str(text) for text in self.table.take(rows).data]
        for example, text, marks in zip(examples, texts, self._highlights(rows, texts), strict=True):
            example.text = shortened(text, CHARACTERS)
            n_shown = len(text)
            if example.text != text:
                n_shown = len(example.text) - 1  # behind them is the mark of what is left out
            shown = [mark for mark in marks if mark[1] <= n_shown]
            sizes = [abs(value) for *_, value in shown]
            largest = max(sizes, default=0)
            smallest = least_marked(sizes)
            for start, end, value in shown:
                if abs(value) >= smallest:
                    example.marks.append((start, end, rounded([value / largest])[0]))

    def _highlights(self, rows: list[int], texts: list[str]) -> list[Highlights]:
        """Find the relevant words of texts, which have these row numbers."""
        relevance = NEON(self.net).attribute(texts, target=self.labels[rows])
        if self.net.features is None:
            try:
                return highlights(self.net, texts, relevance)
            except ValueError:  # of terms that have no places, such as n-grams of characters, nothing is marked
                return [[] for _ in texts]
        words: Any = self.net.features
        marked = []
        for spans, values in zip(words.spans(texts), relevance.tolist(), strict=True):
            marked.append([(*span, value) for span, value in zip(spans, values, strict=False)])
        return marked
