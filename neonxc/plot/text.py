"""Documents with their words highlighted, as HTML and as plain text."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from numbers import Real
from pathlib import Path
from typing import Any, Literal

import numpy as np

from neonxc.common.atomic import staged_file
from neonxc.common.cluster_names import cluster_text
from neonxc.common.numbers import plural
from neonxc.common.shortening import shortened
from neonxc.common.types import ArrayLike, Label
from neonxc.plot.documents import Document, Piece, as_html, as_text
from neonxc.plot.shared import as_array, check_finite

Spans = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class HighlightedText:
    """Documents with highlighted words, made by :func:`text`.

    Notebooks display it, and ``print`` writes plain text with marks, ``+word+`` for positive and ``-word-`` for
    negative relevance.
    """

    documents: tuple[Document, ...]
    title: str | None = None

    def html(self, *, page: bool = False) -> str:
        """Write HTML without scripts or external resources.

        Parameters
        ----------
        page : bool
            Write a complete page. A fragment takes its text and background colours from the page that contains it.
            Texts are escaped in both.

        Returns
        -------
        str
        """
        return as_html(self.documents, self.title, page)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a self-contained HTML page, which follows the reader's light or dark setting.

        Parameters
        ----------
        path : str or Path
            The file; it is replaced if it exists.
        """
        with staged_file(Path(path)) as partial:
            partial.write_text(self.html(page=True), encoding="utf-8")

    def _repr_html_(self) -> str:
        return self.html()

    def __str__(self) -> str:
        return as_text(self.documents, self.title)


def text(
    texts: Sequence[str] | Sequence[Sequence[str]],
    relevance: ArrayLike,
    spans: Sequence[Spans] | None = None,
    *,
    known: ArrayLike | None = None,
    headings: Sequence[Label | None] | None = None,
    notes: Sequence[str] | None = None,
    title: str | None = None,
    limit: float | Literal["joint"] | None = None,
) -> HighlightedText:
    """Highlight the words that matter for the clusters of documents.

    The fewest words that together carry half of the document's absolute relevance are marked, in red for positive
    and in blue for negative relevance. Words that are not in the vocabulary are grey. In HTML, pointing at a word
    shows its relevance.

    Parameters
    ----------
    texts : sequence of N str, or of N sequences of str
        Documents as strings, or as sequences of words.
    relevance : array or Tensor [N, T], or sequence of N sequences
        Relevance of each word, such as :class:`neonxc.NEON` attributes; entries after the last word are ignored.
    spans : sequence of N sequences of (start, stop), optional
        Positions of the words in the documents (:meth:`neonxc.models.WordVectors.spans`). Required if `texts` are
        strings, and not allowed otherwise.
    known : array or Tensor [N, T] of bool, optional
        Which words are in the vocabulary, such as ``ids >= 0``; by default those whose relevance is not 0.
    headings : sequence of N str or int, optional
        Heading of each document. Numbers are labels of clusters, such as ``net.predict(ids)`` gives: 2 becomes
        "cluster 2", and -1 "noise".
    notes : sequence of N str, optional
        Remark on each document in smaller type, such as its own label.
    title : str, optional
        Title above all documents.
    limit : float or "joint", optional
        Relevance that gets the full colour. None: the largest of each document; "joint": the largest of all
        documents.

    Returns
    -------
    HighlightedText
        A notebook shows it; ``print`` it, or ``save`` it as a page.

    Raises
    ------
    ValueError
        Numbers of documents or words that differ, spans out of order, or relevance that is not finite.

    Examples
    --------
    >>> import neonxc.plot
    >>> page = neonxc.plot.text([["the", "cat", "barks"]], [[0.0, 0.4, -0.1]], headings=[2])
    >>> print(page)
    cluster 2  (sum +0.3)
    the +cat+ barks
    """
    if isinstance(texts, str):
        raise ValueError("texts needs a sequence of documents; a single one is [text]")
    texts = list(texts)
    N = len(texts)
    values = _rows(relevance, N, "relevance")
    if known is None:
        in_vocabulary = [row != 0 for row in values]
    else:
        in_vocabulary = _rows(known, N, "known")
    spans = _each(spans, N, "spans")
    headings = _each(headings, N, "headings")
    notes = _each(notes, N, "notes")
    joint = limit
    if isinstance(limit, str) and limit == "joint":
        joint = _largest(np.concatenate([[], *values]))
    if joint is not None and (not isinstance(joint, Real) or not 0 < joint < np.inf):
        raise ValueError(f"limit needs a positive number or 'joint', got {limit!r}")

    documents = []
    for n, document in enumerate(texts):
        pieces = _pieces(document, values[n], in_vocabulary[n], spans[n], n)
        full = float(joint or _largest([piece.relevance or 0.0 for piece in pieces]))
        heading = _heading(headings[n])
        note = None if notes[n] is None else str(notes[n])
        documents.append(Document(tuple(pieces), full, heading, note))
    return HighlightedText(tuple(documents), title)


def _heading(label: object) -> str | None:
    """Return the text of a heading; integers are labels of clusters."""
    if hasattr(label, "item"):
        label = label.item()
    if label is None:
        return None
    if not isinstance(label, int) or isinstance(label, bool):
        return str(label)
    return cluster_text(label)


def _pieces(
    document: str | Sequence[str], values: np.ndarray, known: np.ndarray, spans: Spans | None, n: int
) -> list[Piece]:
    """Cut a document into words with relevance and the text between them."""
    if isinstance(document, str) == (spans is None):
        raise ValueError("spans are needed if texts are strings, and must be left out otherwise")
    if spans is None:  # words become a document with a space between them
        words = list(map(str, document))
        starts = accumulate((len(word) + 1 for word in words), initial=0)
        spans = [(start, start + len(word)) for word, start in zip(words, starts, strict=False)]
        document = " ".join(words)
    assert isinstance(document, str)
    for name, row in (("relevance", values), ("known", known)):
        if len(row) < len(spans):
            raise ValueError(f"document {n} has {plural(len(spans), 'word')}, but {name} for {len(row)}")
    pieces = []
    end = 0
    for (start, stop), relevance, is_known in zip(spans, values, known, strict=False):
        if not end <= start <= stop <= len(document):
            raise ValueError(f"spans of document {n} are not in order: ({start}, {stop}) after {end}")
        if is_known:
            pieces.append(Piece(document[end:start]))
            pieces.append(Piece(document[start:stop], float(relevance)))
            end = stop
    pieces.append(Piece(document[end:]))
    return [piece for piece in pieces if piece.text]


def _each(entries: Iterable[Any] | None, N: int, name: str) -> list[Any]:
    """Return one entry per document, in order; the index of a pandas Series is ignored."""
    listed = [None] * N if entries is None else list(entries)
    if isinstance(entries, str) or len(listed) != N:
        raise ValueError(f"{name} needs one entry for each of {N} documents, got {shortened(repr(entries), 60)}")
    return listed


def _rows(values: ArrayLike, N: int, name: str) -> list[np.ndarray]:
    """Return one row of numbers per document; rows of a sequence may differ in length."""
    from neonxc.data.frames import as_pandas  # loads PyArrow

    values = as_pandas(values, name)
    if hasattr(values, "iloc"):
        values = values.to_numpy()  # iterating over a data frame would yield its columns
    rows = list(map(as_array, values))
    if len(rows) != N or any(row.ndim != 1 for row in rows):
        raise ValueError(f"{name} needs one row of numbers for each of {N} documents")
    for row in rows:
        check_finite(row, name)
    return rows


def _largest(relevance: np.ndarray | Sequence[float]) -> float:
    """Compute the largest absolute relevance, or 1 if there is none."""
    return float(np.abs(relevance).max(initial=0.0)) or 1.0
