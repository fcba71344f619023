"""Judges of texts: by meaning, in a space that was learnt from the user's own unlabelled texts, or by words alone.

    TextJudge    texts and names are vectors: TF-IDF, reduced to the directions in which terms occur together
                 (truncated SVD, as in latent semantic analysis), or what `encode` returns. All have length 1,
                 minus the mean of the texts, and length 1 again; the score is their cosine.
    WordJudge    the cosine of the TF-IDF vectors of text and name: only shared words count.

A name (or a text) without a known word says nothing. The first judge reads "fiddle" in a text about violins, and
the second one does not: a name that both sort by holds without the space that it was chosen in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize

from neonxc.common.arguments import check_whole
from neonxc.common.types import ArrayLike
from neonxc.data.inputs import as_array, as_texts
from neonxc.data.table import Table
from neonxc.naming.statement_judge import Name, words_of

DIMENSIONS = 20
"""Number of directions of the space, of at most a third of the terms and of the texts. By the names of five
sections of Debian packages, 88% of their texts are sorted rightly with 20, 79% with 50, and 68% with 150."""
MIN_TEXTS = 3
"""A term needs to be in so many texts, if there are at least FEW_TEXTS: what occurs once has no neighbours."""
FEW_TEXTS = 100
MAX_TEXTS = 20_000
"""Number of texts from which the space is learnt."""


class WordJudge:
    """Sorts texts by the words of names, weighted by their rarity.

    Parameters
    ----------
    texts : sequence of str [N]
        All texts, without labels.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._vectors = _Frequencies(as_texts(texts))

    def __call__(self, names: Sequence[Name], rows: Sequence[str]) -> np.ndarray:
        """Score texts by names, [n, names]: the cosine of their TF-IDF vectors; NaN without a shared word."""
        texts = self._vectors(rows)
        of_names = self._vectors([words_of(name) for name in names])
        cosines = (texts @ of_names.T).toarray()
        return np.where(cosines > 0, cosines, np.nan)


class TextJudge:
    """Sorts texts by the name that is nearest in meaning.

    Parameters
    ----------
    texts : sequence of str [N]
        All texts, without labels. The space is learnt from them.
    encode : callable, optional
        Returns vectors [n, d] of a list of n texts, such as the `encode` of a model of sentence-transformers. It
        replaces the space that is learnt.
    dimensions : int
        Number of directions of the space that is learnt; more than 20 for more than ten names.

    Examples
    --------
    >>> from neonxc.evaluation import TextJudge
    >>> texts = [
    ...     "the violin and the cello",
    ...     "a cello with four strings",
    ...     "goals in the match",
    ...     "the match was lost",
    ... ]
    >>> judge = TextJudge(texts * 5)
    >>> judge(["cello", "match"], texts).argmax(axis=1)
    array([0, 0, 1, 1])
    """

    def __init__(
        self,
        texts: Sequence[str],
        encode: Callable[[list[str]], ArrayLike] | None = None,
        dimensions: int = DIMENSIONS,
    ) -> None:
        check_whole("dimensions", dimensions)
        listed = as_texts(texts)
        if len(listed) > MAX_TEXTS:
            rows = np.random.default_rng(0).permutation(len(listed))[:MAX_TEXTS]
            listed = [listed[row] for row in np.sort(rows)]
        self.encode = encode or _Latent(listed, dimensions)
        self._mean = _unit(self._vectors(listed)).mean(axis=0)

    def __call__(self, names: Sequence[Name], rows: Sequence[str]) -> np.ndarray:
        """Score texts by names, [n, names]: the cosine of their vectors; NaN for names and texts without one."""
        of_names = self.space([words_of(name) for name in names])
        of_texts = self.space(rows)
        scores = of_texts @ of_names.T
        is_silent = ~np.any(of_texts, axis=1, keepdims=True) | ~np.any(of_names, axis=1)
        return np.where(is_silent, np.nan, scores)

    def space(self, rows: Sequence[str]) -> np.ndarray:
        """Return the vectors of texts, [n, d], of length 1; zeros for texts without a known word."""
        vectors = _unit(self._vectors([*rows]))
        is_known = vectors.any(axis=1, keepdims=True)
        return _unit(np.where(is_known, vectors - self._mean, 0.0))

    def _vectors(self, texts: list[str]) -> np.ndarray:
        vectors = as_array(self.encode(texts)).astype(np.float64)
        if vectors.ndim != 2 or len(vectors) != len(texts):
            raise ValueError(f"encode needs to return vectors [{len(texts)}, d], got shape {list(vectors.shape)}")
        return vectors


class OfTexts:
    """A judge of the rows of a table, which are texts."""

    def __init__(self, judge: TextJudge | WordJudge) -> None:
        self.judge = judge
        self.has_space = isinstance(judge, TextJudge)

    def scores(self, names: Sequence[Name], rows: Table) -> np.ndarray:
        """Score texts by words."""
        return self.judge(names, as_texts(rows.data))

    def space(self, rows: Table) -> np.ndarray:
        """Return the vectors of texts."""
        assert isinstance(self.judge, TextJudge)
        return self.judge.space(as_texts(rows.data))


class _Latent:
    """The space of terms that occur together."""

    def __init__(self, texts: list[str], dimensions: int) -> None:
        self.frequencies = _Frequencies(texts)
        counts = self.frequencies.values
        n_dimensions = max(1, min(dimensions, min(counts.shape) // 3))
        self.directions: Any = None
        if counts.shape[1] > 2:
            self.directions = TruncatedSVD(n_dimensions, random_state=0).fit(counts)

    def __call__(self, texts: list[str]) -> np.ndarray:
        counts = self.frequencies(texts)
        if self.directions is None:
            return counts.toarray()
        return self.directions.transform(counts)


def vectorizer_of(n_texts: int) -> TfidfVectorizer:
    """Make the vectorizer of all judges: sublinear TF-IDF without the most frequent words of English."""
    min_df = MIN_TEXTS if n_texts >= FEW_TEXTS else 1
    return TfidfVectorizer(stop_words="english", sublinear_tf=True, min_df=min_df)


def _unit(vectors: np.ndarray | sparse.spmatrix) -> np.ndarray:
    """Scale vectors to length 1; zeros stay zeros."""
    unit: np.ndarray = normalize(vectors)
    return unit


class _Frequencies:
    """TF-IDF of texts; the words of those from which it is learnt are counted once."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.vectorizer = vectorizer_of(len(texts))
        self.values = self.vectorizer.fit_transform(texts).tocsr()  # [N, terms]
        self.row = {text: row for row, text in enumerate(texts)}

    def __call__(self, texts: Sequence[str]) -> sparse.csr_matrix:
        """Return the frequencies of texts, [n, terms]."""
        rows = [self.row.get(text, -1) for text in texts]
        if -1 in rows or not rows:
            return self.vectorizer.transform(texts)
        return self.values[rows]
