"""Assign the relevance of terms to the words of the texts in which they occur."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from neonxc.data.inputs import as_array, as_texts
from neonxc.data.words import Span, after_marks, characters
from neonxc.inputs.terms import Terms
from neonxc.network import NeuralizedClustering

Highlight = tuple[int, int, float]
Occurrence = tuple[str, list[int]]
"""A term, and the positions of the words that it consists of."""


def highlights(net: NeuralizedClustering, texts: Sequence[str], relevance: Any) -> list[list[Highlight]]:
    """Assign the relevance of terms to the words of the texts.

    The relevance of a term is divided equally among its occurrences in a text, and then among the words of the
    term. A word collects the relevance of all terms that it is part of. Terms that do not occur in a text are
    omitted. Their relevance may be large, because absent terms also speak for or against a cluster.

    Parameters
    ----------
    net : NeuralizedClustering
        Network of a pipeline that begins with a CountVectorizer or TfidfVectorizer of words or n-grams of words
        (``analyzer="word"``).
    texts : sequence of N str
        The texts.
    relevance : frame, array or Tensor [N, V]
        Relevance of every term, as computed by :class:`neonxc.NEON`.

    Returns
    -------
    list of N lists of (start, stop, value)
        Relevance of ``text[start:stop]``, in order and without overlap. The values of a text sum to the relevance
        of the terms that occur in it.

    Raises
    ------
    ValueError
        If the network has no vectorizer, if the number of texts or terms is wrong, if the terms are n-grams of
        characters, or if a custom analyzer or preprocessor does not allow locating them.

    Examples
    --------
    >>> import neonxc
    >>> from sklearn.cluster import KMeans
    >>> from sklearn.feature_extraction.text import CountVectorizer
    >>> from sklearn.pipeline import make_pipeline
    >>> texts = ["Salt the soup.", "Soup, salt!", "Stars shine.", "A star shines: stars."]
    >>> pipeline = make_pipeline(CountVectorizer(), KMeans(2, n_init=10, random_state=0)).fit(texts)
    >>> net = neonxc.neuralize(pipeline, texts)
    >>> relevance = neonxc.NEON(net).attribute(texts)
    >>> marks = neonxc.highlights(net, texts, relevance)
    >>> [texts[1][start:stop] for start, stop, value in marks[1]]
    ['Soup', 'salt']
    """
    terms = net.inputs.encoding
    if not isinstance(terms, Terms):
        raise ValueError("highlights needs the network of a pipeline that begins with a vectorizer of texts")
    if terms.vectorizer.analyzer != "word":
        raise ValueError(
            'highlights needs a vectorizer with analyzer="word", whose terms are words or n-grams of words, got '
            f"analyzer={terms.vectorizer.analyzer!r}"
        )
    texts = as_texts(texts)
    values = as_array(relevance)
    if values.shape != (len(texts), terms.width):
        raise ValueError(f"relevance needs shape {(len(texts), terms.width)}, got {values.shape}")
    index = {name: i for i, name in enumerate(terms.names)}
    return [_of_text(terms, index, text, row) for text, row in zip(texts, values, strict=True)]


def _of_text(terms: Terms, index: dict[str, int], text: str, relevance: np.ndarray) -> list[Highlight]:
    spans, occurrences = _occurrences(terms, text)
    counts = Counter(term for term, _ in occurrences)
    if counts != Counter(terms.analyze(text)):
        raise ValueError(
            f"{type(terms.vectorizer).__name__} has an analyzer of its own, which does not tell where in a text "
            "its terms are"
        )
    shares: dict[Span, float] = defaultdict(float)
    for term, atoms in occurrences:
        if term in index:
            for atom in atoms:
                shares[spans[atom]] += float(relevance[index[term]] / counts[term] / len(atoms))
    return [(start, stop, value) for (start, stop), value in sorted(shares.items())]


def _occurrences(terms: Terms, text: str) -> tuple[list[Span], list[Occurrence]]:
    """Return the spans of the words of a text, and the terms that consist of them."""
    vectorizer = terms.vectorizer
    changed, spans = _preprocessed(vectorizer.build_preprocessor(), text)
    stop_words = vectorizer.get_stop_words() or ()
    kept = [(token, place) for token, place in _tokens(vectorizer, changed) if token not in stop_words]
    starts = [spans[start][0] for _, (start, _) in kept]
    stops = [spans[stop - 1][1] for _, (_, stop) in kept]
    # Marks that are no part of a term stay with the character before them, unless they begin another term
    ends = [
        max(stop, min(after_marks(text, stop), following))
        for stop, following in zip(stops, [*starts[1:], len(text)], strict=False)
    ]
    places = [*zip(starts, ends, strict=True)]
    tokens = [token for token, _ in kept]
    smallest, largest = vectorizer.ngram_range
    return places, [
        (" ".join(tokens[start : start + n]), list(range(start, start + n)))
        for n in range(smallest, largest + 1)
        for start in range(len(tokens) - n + 1)
    ]


def _preprocessed(preprocess: Callable[[str], str], text: str) -> tuple[str, list[Span]]:
    """Preprocess a text, and find the original position of each resulting character."""
    changed = preprocess(text)
    single = [(i, i + 1) for i in range(len(text))]
    for places in (single, characters(text)):  # letters may be composed with their marks
        pieces = [preprocess(text[start:stop]) for start, stop in places]
        if len("".join(pieces)) == len(changed):
            return changed, [place for place, piece in zip(places, pieces, strict=True) for _ in piece]
    if len(changed) == len(text):
        return changed, single
    raise ValueError("the vectorizer's preprocessor does not tell where its characters come from")


def _tokens(vectorizer: Any, changed: str) -> Iterator[tuple[str, Span]]:
    """Iterate over tokens and their spans; tokens of a custom tokenizer are searched for in their order."""
    if vectorizer.tokenizer is None:
        pattern = re.compile(vectorizer.token_pattern)
        for match in pattern.finditer(changed):
            yield match.group(pattern.groups), match.span(pattern.groups)
        return
    at = 0
    for token in vectorizer.tokenizer(changed):
        start = changed.find(token, at)
        if start < 0 or not token:
            raise ValueError(f"the vectorizer's tokenizer makes the token {token!r}, which is not in the text")
        at = start + len(token)
        yield token, (start, at)
