"""Word vectors, and the network that maps documents to the mean of their word vectors."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from neonxc.common.arguments import check_whole
from neonxc.data.inputs import as_texts

from .cooccurrence import train_vectors
from .vocabulary import WORD, as_floats, as_ids, check_table, read_vectors, stop_word_set, tokenize

__all__ = ["WordVectors"]


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
    A word is a sequence of at least three letters, converted to lower case. Words outside the vocabulary, such as
    the stop words of :meth:`from_texts`, are ignored in the mean and get no relevance.

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
        self.words = [str(word) for word in words]
        self._index = {word: i for i, word in enumerate(self.words)}
        vectors = as_floats(vectors)
        weights = vectors.new_ones(len(self.words)) if weights is None else as_floats(weights).to(vectors)
        check_table(self.words, vectors, weights)
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
        for name, value in (("n_dimensions", n_dimensions), ("window", window), ("min_count", min_count)):
            check_whole(name, value)
        check_whole("max_words", max_words, optional=True)
        tokens, out = tokenize(texts), stop_word_set(stop_words)
        words, vectors, n_texts = train_vectors(
            tokens, n_dimensions, window, min_count, max_words, out, random_state
        )
        weights = 1 + np.log((1 + len(tokens)) / (1 + n_texts)) if idf else None
        return cls(words, _scaled(vectors, unit_norm), weights)

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
        ValueError
            If the file does not exist, no words are left, or a line does not have d finite numbers.
        """
        check_whole("max_words", max_words, optional=True)
        words, vectors = read_vectors(path, keep, max_words, stop_word_set(stop_words))
        return cls(words, _scaled(vectors, unit_norm))

    def spans(self, texts: Sequence[str]) -> list[list[tuple[int, int]]]:
        """Positions of the words in each text, ``text[start:stop]``, in the order of :meth:`encode`.

        Parameters
        ----------
        texts : iterable of str
            N texts.

        Returns
        -------
        list of list of (int, int)
        """
        return [[match.span() for match in WORD.finditer(text)] for text in as_texts(texts)]

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
        return tokenize(texts)

    def covers(self, texts: Sequence[str]) -> np.ndarray:
        """Whether each text has a word of the vocabulary, [N] of bool. Texts without one have no mean vector.

        Parameters
        ----------
        texts : iterable of str
            N texts.
        """
        return np.array([any(word in self._index for word in text) for text in tokenize(texts)], dtype=bool)

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
        found = self._known(texts)
        rows = [torch.tensor(row, dtype=torch.long) for row in found]
        return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-1).to(self.vectors.device)

    def points(self, texts: Sequence[str]) -> Tensor:
        """Mean vectors [N, d] of texts, to fit a clusterer on them.

        The result equals ``words(words.encode(texts))``, but texts are not padded to the length of the longest
        one.

        Parameters
        ----------
        texts : iterable of str
            N texts of any length, each with a word of the vocabulary.
        """
        known = [[i for i in row if i >= 0] for row in self._known(texts)]
        ids = torch.tensor([i for row in known for i in row], device=self.vectors.device)
        return self._mean(ids, torch.tensor([len(row) for row in known], device=self.vectors.device))

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
        ids = as_ids(ids, len(self.words))
        known = ids >= 0
        return self._mean(ids[known], known.sum(dim=1))

    def extra_repr(self) -> str:
        """Describe the size of the vocabulary (for ``print``)."""
        return f"{len(self.words)} words, {self.vectors.shape[1]} dimensions"

    def _mean(self, ids: Tensor, counts: Tensor) -> Tensor:
        if not torch.compiler.is_compiling() and not bool((counts > 0).all()):
            raise ValueError("a document has no word of the vocabulary; WordVectors.covers(texts) finds it")
        starts = counts.cumsum(0) - counts
        weights = self.weights[ids]
        total = F.embedding_bag(ids, self.vectors, starts, mode="sum", per_sample_weights=weights)
        return total / F.embedding_bag(ids, self.weights[:, None], starts, mode="sum")

    def _known(self, texts: Sequence[str]) -> list[list[int]]:
        texts = as_texts(texts)
        found = [[self._index.get(word, -1) for word in text] for text in tokenize(texts)]
        for n, row in enumerate(found):
            if max(row, default=-1) < 0:
                raise ValueError(
                    f"text {n} has no word of the vocabulary: {texts[n][:50]!r}; covers(texts) finds such texts"
                )
        return found


def _scaled(vectors: np.ndarray, unit_norm: bool) -> Tensor:
    tensor = torch.from_numpy(vectors).float()
    return F.normalize(tensor) if unit_norm else tensor
