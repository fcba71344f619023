"""Word vectors, and the network that maps documents to the mean of their word vectors."""

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

    def __init__(self, words: Sequence[str], vectors: Any, weights: Any = None) -> None:
        super().__init__()
        self.words = [normalize("NFC", str(word)) for word in words]
        places = {word: i for i, word in enumerate(self.words)}
        self._index = {normal(word): i for word, i in reversed(places.items())}
        unspaced = (word for word in self.words if not word.isascii() and is_unspaced(word))
        self._longest = max(map(len, unspaced), default=1)  # of the words that are found among other letters
        bad = [
            word
            for i, word in enumerate(self.words)
            if (len(word) < 3 and not is_term(word)) or (word.lower(), places[word]) != (word, i)
        ]
        if bad or not self.words:
            raise ValueError(f"words needs distinct lower-case words of at least three letters, got {bad[:3]}")
        V = len(self.words)
        vectors = torch.asarray(vectors, copy=True)
        vectors = vectors.to(torch.promote_types(vectors.dtype, torch.float32))
        weights = torch.asarray(torch.ones(V) if weights is None else weights, copy=True).to(vectors)
        if not vectors.shape[:-1] == weights.shape == (V,):
            raise ValueError(
                f"{V} words need vectors [{V}, d] and weights [{V}], got {list(vectors.shape)} and "
                f"{list(weights.shape)}"
            )
        fine = vectors.isfinite().all(dim=1) & weights.log().isfinite()
        if not fine.all():
            word = self.words[fine.int().argmin()]
            raise ValueError(f"{word!r} needs a finite vector and a finite, positive weight")
        self.register_buffer("vectors", vectors)
        self.register_buffer("weights", weights)

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
        random_state: Any = None,
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
        split = [[normal(text[start:stop]) for start, stop in term_spans(text)] for text in as_texts(texts)]
        tokens = pd.Series(split).explode()
        counts = tokens.value_counts().sort_index().sort_values(ascending=False, kind="stable")
        counts = counts[(counts >= min_count) & ~counts.index.isin(stop_word_set(stop_words))]
        words = counts.index[:max_words]
        if unspaced := [*filter(is_unspaced, words)]:
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
        ids, documents = ids[ids >= 0], tokens.index[ids >= 0]
        information = positive_pmi(cooccurrences(ids, documents, V, window))
        if not information.nnz:
            raise ValueError(
                "no two words of the vocabulary occur within a window; word vectors need longer texts"
            )
        U, S, _ = randomized_svd(information, n_dimensions, n_iter=10, random_state=random_state)
        vectors = torch.from_numpy(U * np.sqrt(S)).float()
        weights = None
        if idf:
            n_texts = np.bincount(np.unique(documents * V + ids) % V, minlength=V)
            weights = 1 + np.log((2 + tokens.index[-1]) / (1 + n_texts))
        return cls(words, F.normalize(vectors) if unit_norm else vectors, weights)

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
        wanted = None if keep is None else {*map(normal, keep)}
        words, vectors = read_vectors(path, stop_word_set(stop_words), wanted, max_words)
        return cls(words, F.normalize(vectors) if unit_norm else vectors)

    def spans(self, texts: Sequence[str]) -> list[list[Span]]:
        """Positions of the words in each text, ``text[start:stop]``, in the order of :meth:`encode`.

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
        """Words of each text, in or outside the vocabulary, in the order of :meth:`encode`.

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
        """Whether each text has a word of the vocabulary, [N] of bool. Texts without one have no mean vector.

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
        """Mean vectors [N, d] of texts, to fit a clusterer on them.

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
        checked = not torch.compiler.is_compiling()  # values can't be checked while the network is exported
        if checked and not are_word_numbers(ids, len(self.words)):
            raise ValueError(
                "ids needs a tensor [documents, words] of integers from -1 to "
                f"{len(self.words) - 1}, as encode(texts) returns"
            )
        shares = self.shares(ids := ids.long())
        if checked and shares.isnan().any():
            raise ValueError("a document has no word of the vocabulary; WordVectors.covers(texts) finds it")
        return F.embedding_bag(ids.clamp(min=0), self.vectors, mode="sum", per_sample_weights=shares)

    def extra_repr(self) -> str:
        """Describe the size of the vocabulary (for ``print``)."""
        return f"{len(self.words)} words, {self.vectors.shape[1]} dimensions"

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
        """Weights [N, T] of words in the means of their texts, which sum to 1; 0 for unknown words."""
        weights = self.weights[ids.clamp(min=0)] * (ids >= 0)
        return weights / weights.sum(dim=1, keepdim=True)


def stop_word_set(stop_words: Any) -> frozenset[str]:
    """Words to leave out, in lower case."""
    if not isinstance(stop_words, str):
        return frozenset(map(normal, stop_words or ()))
    if stop_words != "english":
        raise ValueError(f"stop_words needs 'english', a collection of words or None, got {stop_words!r}")
    return ENGLISH_STOP_WORDS
