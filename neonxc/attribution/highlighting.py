"""Assign the relevance of terms to the words of the texts in which they occur.

A term t with relevance R_t that occurs n_t times in a text, and consists of l_t words, gives each of its words

    R_t / (n_t l_t)

per occurrence. A word gets the sum over all terms that it is part of, such as "new" as a word and in "new york".

1. The preprocessor of the vectorizer (lower case, without accents) changes the text. For every character of the
   changed text, the span of the original text that it is from is known.
2. The tokens of the changed text are found with their spans. Stop words are left out, as the vectorizer does.
3. The terms are all n-grams of the remaining tokens, with n in the vectorizer's ``ngram_range``. If their counts
   differ from what the vectorizer itself counts, the text can't be marked.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer

from neonxc.common.types import TableLike
from neonxc.data.inputs import as_array, as_texts
from neonxc.data.words import Span, after_marks, characters
from neonxc.inputs.terms import Terms
from neonxc.network import NeuralizedClustering

Highlight = tuple[int, int, float]
"""Start and stop of a word in a text, and its relevance."""
Occurrence = tuple[str, range]
"""A term, and the positions of the words that it consists of."""


def highlights(net: NeuralizedClustering, texts: Sequence[str], relevance: TableLike) -> list[list[Highlight]]:
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
    columns = {term: column for column, term in enumerate(terms.names)}
    return [_of_text(terms, columns, text, row) for text, row in zip(texts, values, strict=True)]


def _of_text(terms: Terms, columns: dict[str, int], text: str, relevance: np.ndarray) -> list[Highlight]:
    """Assign the relevance [V] of the terms of one text to its words."""
    spans, occurrences = _occurrences(terms, text)
    counts = Counter(term for term, _ in occurrences)
    if counts != Counter(terms.analyze(text)):
        raise ValueError(
            f"{type(terms.vectorizer).__name__} has an analyzer of its own, which does not tell where in a text "
            "its terms are"
        )

    by_span: dict[Span, float] = defaultdict(float)
    for term, words in occurrences:
        if term in columns:
            of_word = float(relevance[columns[term]] / counts[term] / len(words))
            for word in words:
                by_span[spans[word]] += of_word
    return [(start, stop, value) for (start, stop), value in sorted(by_span.items())]


def _occurrences(terms: Terms, text: str) -> tuple[list[Span], list[Occurrence]]:
    """Return the spans of the words of a text, and the terms that consist of them."""
    vectorizer = terms.vectorizer
    changed, origins = _preprocessed(vectorizer.build_preprocessor(), text)
    stop_words = vectorizer.get_stop_words() or ()
    tokens = []
    starts = []
    stops = []
    for token, (start, stop) in _tokens(vectorizer, changed):
        if token not in stop_words:
            tokens.append(token)
            starts.append(origins[start][0])
            stops.append(origins[stop - 1][1])

    # Marks that are not part of a term stay with the character before them, unless they begin another term
    spans = []
    next_starts = [*starts[1:], len(text)]
    for start, stop, next_start in zip(starts, stops, next_starts, strict=False):
        with_marks = min(after_marks(text, stop), next_start)
        spans.append((start, max(stop, with_marks)))

    occurrences = []
    smallest, largest = vectorizer.ngram_range
    for n in range(smallest, largest + 1):
        for first in range(len(tokens) - n + 1):
            term = " ".join(tokens[first : first + n])
            occurrences.append((term, range(first, first + n)))
    return spans, occurrences


def _preprocessed(preprocess: Callable[[str], str], text: str) -> tuple[str, list[Span]]:
    """Preprocess a text, and find the original span of each resulting character.

    The pieces of the text are preprocessed one by one: if the results are together as long as the preprocessed
    text, a character of the result is from the piece that it is made from.
    """
    changed = preprocess(text)
    single_characters = [(i, i + 1) for i in range(len(text))]
    for spans in (single_characters, characters(text)):  # letters may be composed with their marks
        pieces = [preprocess(text[start:stop]) for start, stop in spans]
        if len("".join(pieces)) == len(changed):
            return changed, [span for span, piece in zip(spans, pieces, strict=True) for _ in piece]
    if len(changed) == len(text):
        return changed, single_characters
    raise ValueError("the vectorizer's preprocessor does not tell where its characters come from")


def _tokens(vectorizer: CountVectorizer, changed: str) -> Iterator[tuple[str, Span]]:
    """Iterate over tokens and their spans; tokens of a custom tokenizer are searched for in their order."""
    if vectorizer.tokenizer is None:
        pattern = re.compile(vectorizer.token_pattern)
        group = pattern.groups  # the token is the only group, or without groups the match, which is group 0
        for match in pattern.finditer(changed):
            yield match.group(group), match.span(group)
        return
    position = 0
    for token in vectorizer.tokenizer(changed):
        start = changed.find(token, position)
        if start < 0 or not token:
            raise ValueError(f"the vectorizer's tokenizer makes the token {token!r}, which is not in the text")
        position = start + len(token)
        yield token, (start, position)
