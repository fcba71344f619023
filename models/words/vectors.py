"""Word vectors, and the network that maps documents to the mean of their word vectors.

For the words t of a document that are in the vocabulary, with vectors phi_t and weights w_t > 0,

    x = sum_t w_t phi_t / sum_t w_t

Vectors are read from a file, or trained on texts (Levy, Goldberg and Dagan, TACL 2015):

    1. The vocabulary V consists of the most frequent words, without stop words and rare ones.
    2. C [V, V] counts how often two words are near each other                   (``cooccurrences``)
    3. M [V, V] is their positive pointwise mutual information                   (``positive_pmi``)
    4. phi = U_d sqrt(S_d), with the d leading singular vectors and values of M
    5. w_t = 1, or 1 + log((1 + N) / (1 + N_t)) if N_t of N texts contain t      (``idf``)
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Literal
from unicodedata import normalize

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS
from sklearn.utils.extmath import randomized_svd
from torch import Tensor, nn

from neonxc.common.arguments import check_whole
from neonxc.common.memory import blocks
from neonxc.common.numbers import plural
from neonxc.common.types import ArrayLike, RandomState
from neonxc.common.warnings import warn
from neonxc.data.inputs import as_texts
from neonxc.data.words import Span, is_term, is_unspaced, normal, term_spans

from .cooccurrence import cooccurrences, positive_pmi
from .vector_files import read_vectors
from .word_numbers import are_word_numbers, padded


class WordVectors(nn.Module):
    """Feature network that maps a document to the weighted mean of its word vectors.

    The mean ``x = sum_t w_t phi_t / sum_t w_t`` is over the words that are in the vocabulary. Use it as `features`
    of :func:`neonxc.neuralize`. Because the mean is linear in the word vectors, it is merged with the first layer
    of the clustering's network, and :class:`neonxc.NEON` returns one relevance per word (NEON paper, section
    VI-A).

    Parameters
    ----------
    words : sequence of V str
        The vocabulary: distinct words in lower case.
    vectors : array or Tensor [V, d]
        Vector of every word, float32 or float64 (other types are converted to float32).
    weights : array or Tensor [V], optional
        Positive weights of the words in the mean. Default: equal weights.

    Attributes
    ----------
    words : list of V str
    vectors : Tensor [V, d]
    weights : Tensor [V]

    Raises
    ------
    ValueError
        If there are no words, words are repeated, shapes do not match, vectors are not finite or weights are not
        positive.

    Notes
    -----
    A word is a sequence of letters with their marks, in lower case: at least three letters of an alphabet such as
    the Latin, Cyrillic or Arabic one, or at least one of another script, such as Devanagari or Hangul. How accents
    and apostrophes are encoded makes no difference. Chinese, Japanese (apart from katakana), Thai, Lao, Khmer and
    Burmese have no blanks between words: the longest words of the vocabulary are found, and every other character
    is a word.

    Words outside the vocabulary, such as the stop words of :meth:`from_texts`, are ignored in the mean and get no
    relevance.

    Examples
    --------
    >>> from neonxc.models import WordVectors
    >>> words = WordVectors(["cat", "dog", "sun"], [[1.0, 0.0], [0.8, 0.2], [0.0, 1.0]])
    >>> ids = words.encode(["The cat and the dog.", "Sun!"])
    >>> ids
    tensor([[-1,  0, -1, -1,  1],
            [ 2, -1, -1, -1, -1]])
    >>> words(ids)
    tensor([[0.9000, 0.1000],
            [0.0000, 1.0000]])
    """

    vectors: Tensor
    weights: Tensor

    def __init__(self, words: Sequence[str], vectors: ArrayLike, weights: ArrayLike | None = None) -> None:
        super().__init__()
        self.words = [normalize("NFC", str(word)) for word in words]
        last_position = {word: i for i, word in enumerate(self.words)}
        bad = []
        for i, word in enumerate(self.words):
            is_short = len(word) < 3 and not is_term(word)
            is_repeated = last_position[word] != i
            if is_short or is_repeated or word.lower() != word:
                bad.append(word)
        if bad or not self.words:
            raise ValueError(f"words needs distinct lower-case words of at least three letters, got {bad[:3]}")

        # Of words that are only told apart by their signs, as apostrophes, the first one counts
        self._index = {normal(word): i for word, i in reversed(last_position.items())}
        # The longest word that is found among other letters, in scripts without blanks
        unspaced = (word for word in self.words if not word.isascii() and is_unspaced(word))
        self._longest = max(map(len, unspaced), default=1)

        V = len(self.words)
        phi = torch.asarray(vectors, copy=True)
        phi = phi.to(torch.promote_types(phi.dtype, torch.float32))
        w = torch.ones(V) if weights is None else torch.asarray(weights, copy=True)
        w = w.to(phi)
        if not phi.shape[:-1] == w.shape == (V,):
            raise ValueError(
                f"{V} words need vectors [{V}, d] and weights [{V}], got {list(phi.shape)} and {list(w.shape)}"
            )
        is_valid = phi.isfinite().all(dim=1) & w.log().isfinite()
        if not is_valid.all():
            word = self.words[is_valid.int().argmin()]
            raise ValueError(f"{word!r} needs a finite vector and a finite, positive weight")
        self.register_buffer("vectors", phi)
        self.register_buffer("weights", w)

    @property
    def recipe(self) -> dict[str, Any]:
        """JSON values from which the network is rebuilt, apart from its tensors."""
        return {"builder": "WordVectors", "words": self.words}

    @classmethod
    def from_texts(
        cls,
        texts: Sequence[str],
        n_dimensions: int = 100,
        *,
        window: int = 10,
        min_count: int = 5,
        max_words: int | None = 30_000,
        stop_words: Literal["english"] | Collection[str] | None = "english",
        idf: bool = False,
        unit_norm: bool = False,
        random_state: RandomState = None,
    ) -> WordVectors:
        """Train word vectors on the co-occurrence of words in texts.

        The vectors are the leading singular vectors of the words' positive pointwise mutual information,
        multiplied by the square roots of the singular values (O. Levy, Y. Goldberg, I. Dagan, "Improving
        distributional similarity with lessons learned from word embeddings", TACL 2015).

        Parameters
        ----------
        texts : sequence of str
        n_dimensions : int
            Number of dimensions d, below the number of words in the vocabulary.
        window : int
            Maximum distance of two co-occurring words, counted in words of the vocabulary. Closer words have more
            weight.
        min_count : int
            Minimum number of occurrences of a word in the vocabulary.
        max_words : int or None
            Maximum size of the vocabulary; the most frequent words are kept. None: no limit.
        stop_words : "english", collection of str or None
            Words to leave out; "english" is scikit-learn's list.
        idf : bool
            Whether to weight words by ``1 + log((1 + N) / (1 + N_word))``, where N_word of the N texts contain the
            word.
        unit_norm : bool
            Whether to scale the vectors to unit length. Otherwise frequent words tend to have longer vectors.
        random_state : int or RandomState, optional
            Seed of the randomized SVD.

        Returns
        -------
        WordVectors
            In float32, with the most frequent words first.

        Raises
        ------
        ValueError
            If there are not more words than dimensions, no words co-occur, a number is below 1 or `texts` is not a
            sequence of strings.

        Examples
        --------
        >>> from neonxc.models import WordVectors
        >>> texts = ["salt the soup", "stir the soup with salt", "stars shine", "stars and planets shine"]
        >>> words = WordVectors.from_texts(texts, 2, min_count=1, random_state=0)
        >>> words.words[:4], words.vectors.shape
        (['salt', 'shine', 'soup', 'stars'], torch.Size([6, 2]))
        """
        check_whole("n_dimensions", n_dimensions)
        check_whole("window", window)
        check_whole("min_count", min_count)
        check_whole("max_words", max_words, optional=True)

        documents = [[normal(text[start:stop]) for start, stop in term_spans(text)] for text in as_texts(texts)]
        tokens = pd.Series(documents).explode()  # words of all texts, whose index is the number of the text
        counts = tokens.value_counts().sort_index().sort_values(ascending=False, kind="stable")
        is_stop_word = counts.index.isin(stop_word_set(stop_words))
        counts = counts[(counts >= min_count) & ~is_stop_word]
        words = counts.index[:max_words]
        unspaced = [*filter(is_unspaced, words)]
        if unspaced:
            warn(
                f"texts are in a script without blanks between words, such as {unspaced[0]!r}: every character "
                "gets a vector; WordVectors.from_file reads vectors of words"
            )
        V = len(words)
        if n_dimensions >= V:
            raise ValueError(
                f"n_dimensions needs a whole number below the number of words with a count of {min_count} or "
                f"more, {V}; got {n_dimensions!r}"
            )

        ids = words.get_indexer(tokens)
        is_known = ids >= 0
        ids = ids[is_known]
        text_of = tokens.index[is_known]
        M = positive_pmi(cooccurrences(ids, text_of, V, window))
        if not M.nnz:
            raise ValueError(
                "no two words of the vocabulary occur within a window; word vectors need longer texts"
            )
        U, S, _ = randomized_svd(M, n_dimensions, n_iter=10, random_state=random_state)
        vectors = torch.from_numpy(U * np.sqrt(S)).float()
        if unit_norm:
            vectors = F.normalize(vectors)

        weights = None
        if idf:
            distinct_pairs = np.unique(text_of * V + ids)  # of a text and a word
            n_texts = np.bincount(distinct_pairs % V, minlength=V)
            weights = 1 + np.log((1 + len(documents)) / (1 + n_texts))
        return cls(words, vectors, weights)

    @classmethod
    def from_file(
        cls,
        path: str | os.PathLike[str],
        *,
        keep: Collection[str] | None = None,
        max_words: int | None = None,
        stop_words: Literal["english"] | Collection[str] | None = "english",
        unit_norm: bool = False,
    ) -> WordVectors:
        """Read word vectors from a text file in the format of word2vec, GloVe and fastText.

        Parameters
        ----------
        path : path-like
            Text file, which may be compressed (``.gz``). Each line has a word and its d numbers, separated by
            spaces. A first line ``V d`` is skipped, and so are lines of entries that are not words in the sense of
            this class.
        keep : collection of str, optional
            Read only these words, such as those of a corpus.
        max_words : int, optional
            Stop after this number of words. Files usually begin with the most frequent words.
        stop_words, unit_norm
            As for :meth:`from_texts`.

        Returns
        -------
        WordVectors
            In float32.

        Raises
        ------
        FileNotFoundError
            If the file does not exist.
        ValueError
            If no words are left, or a line does not have d finite numbers.
        """
        check_whole("max_words", max_words, optional=True)
        included = None if keep is None else {*map(normal, keep)}
        words, vectors = read_vectors(path, stop_word_set(stop_words), included, max_words)
        if unit_norm:
            vectors = F.normalize(vectors)
        return cls(words, vectors)

    def spans(self, texts: Sequence[str]) -> list[list[Span]]:
        """List the positions of the words in each text, ``text[start:stop]``, in the order of :meth:`encode`.

        Parameters
        ----------
        texts : iterable of str
            N texts.

        Returns
        -------
        list of list of (int, int)
        """
        return [term_spans(text, self._index, self._longest) for text in as_texts(texts)]

    def tokenize(self, texts: Sequence[str]) -> list[list[str]]:
        """List the words of each text, in or outside the vocabulary, in the order of :meth:`encode`.

        Parameters
        ----------
        texts : iterable of str
            N texts.

        Returns
        -------
        list of list of str
        """
        texts = as_texts(texts)
        # Words are converted after splitting: lower case may change the length of a text, and shift the spans
        return [
            [normal(text[start:stop]) for start, stop in spans]
            for text, spans in zip(texts, self.spans(texts), strict=True)
        ]

    def covers(self, texts: Sequence[str]) -> np.ndarray:
        """Tell whether each text has a word of the vocabulary, [N] of bool. Texts without one have no mean vector.

        Parameters
        ----------
        texts : iterable of str
            N texts.
        """
        return np.array([not self._index.keys().isdisjoint(text) for text in self.tokenize(texts)])

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Convert texts to word indices, the inputs of the network.

        Parameters
        ----------
        texts : sequence of N str

        Returns
        -------
        Tensor [N, T] of int64
            Index of every word in the vocabulary, on the device of the vectors; -1 for unknown words and for
            padding. T is the number of words of the longest text.

        Raises
        ------
        ValueError
            If a text has no word of the vocabulary.
        """
        return next(self.encoded(texts, 0))

    def points(self, texts: Sequence[str]) -> Tensor:
        """Compute the mean vectors [N, d] of texts, to fit a clusterer on them.

        The result equals ``words(words.encode(texts))``, but texts are not padded to the length of the longest
        one.

        Parameters
        ----------
        texts : iterable of str
            N texts of any length, each with a word of the vocabulary.
        """
        return torch.cat([self(ids) for ids in self.encoded(texts)])

    def forward(self, ids: Tensor) -> Tensor:
        """Compute the mean vectors of documents.

        Parameters
        ----------
        ids : Tensor [N, T]
            Word indices from :meth:`encode`, of any dtype.

        Returns
        -------
        Tensor [N, d]
            In the dtype of the vectors.

        Raises
        ------
        ValueError
            If the shape is wrong, an index is outside the vocabulary or a document has no known word.
        """
        is_checked = not torch.compiler.is_compiling()  # values can't be checked while the network is exported
        if is_checked and not are_word_numbers(ids, len(self.words)):
            raise ValueError(
                "ids needs a tensor [documents, words] of integers from -1 to "
                f"{len(self.words) - 1}, as encode(texts) returns"
            )
        ids = ids.long()
        fractions = self.shares(ids)
        if is_checked and fractions.isnan().any():
            raise ValueError("a document has no word of the vocabulary; WordVectors.covers(texts) finds it")
        return F.embedding_bag(ids.clamp(min=0), self.vectors, mode="sum", per_sample_weights=fractions)

    def extra_repr(self) -> str:
        """Describe the size of the vocabulary (for ``print``)."""
        return f"{plural(len(self.words), 'word')}, {plural(self.vectors.shape[1], 'dimension')}"

    def encoded(self, texts: Sequence[str], bytes_per_letter: int = 64) -> Iterator[Tensor]:
        """Yield word indices of texts, block by block, padded to the longest text of a block."""
        texts = as_texts(texts)
        ids = [[self._index.get(word, -1) for word in text] for text in self.tokenize(texts)]
        for n, row in enumerate(ids):
            if max(row, default=-1) < 0:
                raise ValueError(
                    f"text {n} has no word of the vocabulary: {texts[n][:50]!r}; covers(texts) finds such texts"
                )
        for block in blocks(len(ids), bytes_per_letter * max(map(len, texts))):
            yield padded(ids[block]).to(self.vectors.device)

    def shares(self, ids: Tensor) -> Tensor:
        """Compute the weights w_t / sum w_t [N, T] of words in the means of their texts; 0 for unknown words."""
        weights = self.weights[ids.clamp(min=0)] * (ids >= 0)
        return weights / weights.sum(dim=1, keepdim=True)


def stop_word_set(stop_words: str | Collection[str] | None) -> frozenset[str]:
    """Read the option `stop_words`: the words to leave out, in lower case."""
    if not isinstance(stop_words, str):
        return frozenset(map(normal, stop_words or ()))
    if stop_words != "english":
        raise ValueError(f"stop_words needs 'english', a collection of words or None, got {stop_words!r}")
    return ENGLISH_STOP_WORDS
