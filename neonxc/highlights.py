"""Relevance of terms laid out over the characters of the texts that they stand in."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from neonxc.inputs import as_array, as_texts
from neonxc.network import NeuralizedClustering
from neonxc.terms import Terms

Span = tuple[int, int]
Highlight = tuple[int, int, float]
Occurrence = tuple[str, list[int]]
"""A term, and the numbers of the words or characters that it consists of."""
_SPACES = re.compile(r"\s\s+")


def highlights(net: NeuralizedClustering, texts: Sequence[str], relevance: Any) -> list[list[Highlight]]:
    """Lay relevance of terms out over the texts.

    A term's relevance is shared equally among the places where it stands in a text, and there among the words (or
    characters) that it consists of; a word has a share of every term that it is part of. What terms have that do
    not stand in a text is left out: it may be much, as absent terms speak for a cluster and against it, too.

    Parameters
    ----------
    net : NeuralizedClustering
        Of a pipeline that begins with a CountVectorizer or TfidfVectorizer.
    texts : sequence of N str
    relevance : frame, array or Tensor [N, V]
        Of every term, such as :class:`neonxc.NEON` attributes to the texts.

    Returns
    -------
    list of N lists of (start, stop, value)
        ``text[start:stop]``, in order and without overlap; the values of a text sum to the relevance of its terms.

    Raises
    ------
    ValueError
        A network without a vectorizer, another number of texts or terms, an analyzer or preprocessor of one's own
        that does not tell where its terms are.

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
    terms = net.encoding
    if not isinstance(terms, Terms):
        raise ValueError("highlights needs the network of a pipeline that begins with a vectorizer of texts")
    texts = as_texts(texts)
    values = as_array(relevance)
    if values.shape != (len(texts), terms.width):
        raise ValueError(f"relevance needs shape {(len(texts), terms.width)}, got {values.shape}")
    index = {name: i for i, name in enumerate(terms.names)}
    return [_laid_out(terms, index, text, row) for text, row in zip(texts, values, strict=True)]


def _laid_out(terms: Terms, index: dict[str, int], text: str, relevance: np.ndarray) -> list[Highlight]:
    spans, occurrences = _occurrences(terms, text)
    counts = Counter(term for term, _ in occurrences)
    if counts != Counter(terms.analyze(text)):
        raise ValueError(
            f"{type(terms.vectorizer).__name__} has an analyzer of its own, which does not tell where in a text "
            "its terms are"
        )
    shares: dict[Span, float] = {}
    for term, atoms in occurrences:
        if term in index:
            for atom in atoms:
                share = relevance[index[term]] / counts[term] / len(atoms)
                shares[spans[atom]] = shares.get(spans[atom], 0.0) + float(share)
    return [(start, stop, value) for (start, stop), value in sorted(shares.items())]


def _occurrences(terms: Terms, text: str) -> tuple[list[Span], list[Occurrence]]:
    """Where the words (or characters) of a text are, and the terms that consist of them."""
    vectorizer = terms.vectorizer
    if callable(vectorizer.analyzer):
        return [], []
    changed, spans = _preprocessed(vectorizer.build_preprocessor(), text)
    smallest, largest = vectorizer.ngram_range
    sizes = range(smallest, largest + 1)
    if vectorizer.analyzer == "char":
        return spans, _grams(_characters(changed), sizes)
    if vectorizer.analyzer == "char_wb":
        return spans, [gram for word in _padded_words(changed) for gram in _grams_of_word(word, sizes)]
    stop_words = vectorizer.get_stop_words() or ()
    kept = [(token, place) for token, place in _tokens(vectorizer, changed) if token not in stop_words]
    places = [(spans[start][0], spans[stop - 1][1]) for _, (start, stop) in kept]
    return places, [
        (" ".join(token for token, _ in kept[i : i + n]), list(range(i, i + n)))
        for n, i in _windows(len(kept), sizes)
    ]


def _preprocessed(preprocess: Callable[[str], str], text: str) -> tuple[str, list[Span]]:
    """The text that is cut into terms, and where each of its characters comes from."""
    changed = preprocess(text)
    pieces = [preprocess(character) for character in text]
    if len("".join(pieces)) == len(changed):
        return changed, [(i, i + 1) for i, piece in enumerate(pieces) for _ in piece]
    if len(changed) == len(text):
        return changed, [(i, i + 1) for i in range(len(text))]
    raise ValueError("the vectorizer's preprocessor does not tell where its characters come from")


def _tokens(vectorizer: Any, changed: str) -> Iterator[tuple[str, Span]]:
    """Tokens and where they are; those of a tokenizer of one's own are looked for, one after the other."""
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


def _windows(length: int, sizes: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Every size, and every start at which it fits."""
    return ((n, i) for n in sizes for i in range(length - n + 1))


Characters = list[tuple[int, str]]
"""Characters with their places; those that were added have the complement ``~place`` of their neighbour's."""


def _characters(changed: str) -> Characters:
    """The characters of a text, in which the first one of a run of white space stands for all, as a blank."""
    runs = {match.start(): match.end() for match in _SPACES.finditer(changed)}
    found, at = [], 0
    while at < len(changed):
        found.append((at, " " if at in runs else changed[at]))
        at = runs.get(at, at + 1)
    return found


def _padded_words(changed: str) -> Iterator[Characters]:
    """The characters of each word between two blanks."""
    for match in re.finditer(r"\S+", changed):
        start, stop = match.span()
        yield [(~start, " "), *((i, changed[i]) for i in range(start, stop)), (~(stop - 1), " ")]


def _grams_of_word(word: Characters, sizes: range) -> list[Occurrence]:
    """The n-grams of a word; one that is not longer than a size is taken whole, and with no larger size."""
    whole = any(n >= len(word) for n in sizes)
    return _grams(word, range(sizes.start, min(sizes.stop, len(word)))) + _grams(word, [len(word)] * whole)


def _grams(characters: Characters, sizes: Iterable[int]) -> list[Occurrence]:
    found = []
    for n, i in _windows(len(characters), sizes):
        some = characters[i : i + n]
        atoms = [place for place, _ in some if place >= 0] or [~place for place, _ in some]
        found.append(("".join(character for _, character in some), atoms))
    return found
