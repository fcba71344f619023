"""Documents as the mean of their word vectors: features that attribute to words."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from neonxc.inputs import as_texts
from neonxc.parameters import check_whole

from .cooccurrence import trained
from .vocabulary import WORD, as_floats, as_ids, check_table, read_vectors, stop_word_set, tokenize

__all__ = ["WordVectors"]


class WordVectors(nn.Module):
    """Mean vectors of documents, ``x = sum_t w_t phi_t / sum_t w_t`` over their known words.

    It is a feature network for :func:`neonxc.neuralize`. As it is linear in the word vectors, it is merged with
    the first layer of the clustering's network, and :class:`neonxc.NEON` gives one relevance per word (NEON paper,
    section VI-A).

    Parameters
    ----------
    words : sequence of V str
        The vocabulary, lower case and distinct.
    vectors : array or Tensor [V, d]
        A vector for each word, float32 or float64 (other types become float32).
    weights : array or Tensor [V], optional
        Positive weights of the words in the mean; by default all are alike.

    Attributes
    ----------
    words : list of V str
    vectors : Tensor [V, d]
    weights : Tensor [V]

    Raises
    ------
    ValueError
        No words, repeated words, shapes that don't fit, values that are not finite, weights that are not positive.

    Notes
    -----
    A word is a sequence of at least three letters, in lower case. Words outside the vocabulary, such as the stop
    words of :meth:`from_texts`, are left out of the mean and get no relevance.

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
        """All that it takes to rebuild it apart from its tensors, as JSON values."""
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
        """Word vectors from which words stand near each other in the texts.

        They are the leading singular vectors of positive pointwise mutual information, scaled by the roots of the
        singular values (O. Levy, Y. Goldberg, I. Dagan, "Improving distributional similarity with lessons learned
        from word embeddings", TACL 2015).

        Parameters
        ----------
        texts : sequence of str
        n_dimensions : int
            d, below the number of words in the vocabulary.
        window : int
            Words at most so many known words apart are near; the nearer they are, the more they count.
        min_count : int
            Leave out words that occur less often.
        max_words : int or None
            Leave out all but so many of the most frequent words.
        stop_words : "english", collection of str or None
            Words to leave out; "english" is scikit-learn's list.
        idf : bool
            Weigh a word by ``1 + log((1 + N) / (1 + N_word))``, where N_word of the N texts contain it.
        unit_norm : bool
            Scale the vectors to unit length, so that frequent words don't count more for being frequent.
        random_state : int or RandomState, optional
            Seed of the search for singular vectors.

        Returns
        -------
        WordVectors
            float32; frequent words first.

        Raises
        ------
        ValueError
            No more words than dimensions, no word near another, numbers below 1, no sequence of strings.

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
        words, vectors, n_texts = trained(tokens, n_dimensions, window, min_count, max_words, out, random_state)
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
        """Word vectors of a text file, as word2vec, GloVe and fastText write them.

        Parameters
        ----------
        path : path-like
            Each line holds a word and its d numbers, separated by spaces. A first line ``V d`` is skipped, as are
            lines of what is no word in the sense of the class. ``.gz`` is unpacked.
        keep : collection of str, optional
            The only words to keep, such as those of a corpus.
        max_words : int, optional
            Stop after so many words; files begin with the most frequent ones.
        stop_words, unit_norm
            As for :meth:`from_texts`.

        Returns
        -------
        WordVectors
            float32.

        Raises
        ------
        ValueError
            No such file, no word to keep, or a line, which the message names, without d finite numbers.
        """
        check_whole("max_words", max_words, optional=True)
        words, vectors = read_vectors(path, keep, max_words, stop_word_set(stop_words))
        return cls(words, _scaled(vectors, unit_norm))

    def spans(self, texts: Sequence[str]) -> list[list[tuple[int, int]]]:
        """Where the words of each text stand, ``text[start:stop]``, in the order of :meth:`encode`."""
        return [[match.span() for match in WORD.finditer(text)] for text in as_texts(texts)]

    def tokenize(self, texts: Sequence[str]) -> list[list[str]]:
        """Words of each text, known or not, in the order of :meth:`encode`."""
        return tokenize(texts)

    def covers(self, texts: Sequence[str]) -> np.ndarray:
        """Whether each text has a word of the vocabulary, [N]; without one it has no mean vector."""
        return np.array([any(word in self._index for word in text) for text in tokenize(texts)], dtype=bool)

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Texts as numbers, which the network takes.

        Parameters
        ----------
        texts : sequence of N str

        Returns
        -------
        Tensor [N, T] of int64
            Place of each word in the vocabulary, on the device of the vectors; -1 for unknown words and after the
            last one. T is the number of words of the longest text.

        Raises
        ------
        ValueError
            A text without any word of the vocabulary; the message names it.
        """
        found = self._known(texts)
        rows = [torch.tensor(row, dtype=torch.long) for row in found]
        return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-1).to(self.vectors.device)

    def points(self, texts: Sequence[str]) -> Tensor:
        """Mean vectors [N, d] of texts of any length, on which a clusterer is fitted.

        They are ``words(words.encode(texts))``, without padding all texts to the length of the longest.
        """
        known = [[i for i in row if i >= 0] for row in self._known(texts)]
        ids = torch.tensor([i for row in known for i in row], device=self.vectors.device)
        return self._mean(ids, torch.tensor([len(row) for row in known], device=self.vectors.device))

    def forward(self, ids: Tensor) -> Tensor:
        """Mean vectors of documents.

        Parameters
        ----------
        ids : Tensor [N, T]
            Numbers of :meth:`encode`, in any type.

        Returns
        -------
        Tensor [N, d]
            In the type of the vectors.

        Raises
        ------
        ValueError
            Another shape, numbers outside the vocabulary, a document without known words.
        """
        ids = as_ids(ids, len(self.words))
        known = ids >= 0
        return self._mean(ids[known], known.sum(dim=1))

    def extra_repr(self) -> str:
        """Size of the vocabulary (for ``print``)."""
        return f"{len(self.words)} words, {self.vectors.shape[1]} dimensions"

    def _mean(self, ids: Tensor, counts: Tensor) -> Tensor:
        if not torch.compiler.is_compiling() and not bool((counts > 0).all()):
            raise ValueError("a document has no known word; WordVectors.covers(texts) tells which do")
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
                    f"text {n} has no word of the vocabulary: {texts[n][:50]!r}; covers(texts) tells which do"
                )
        return found


def _scaled(vectors: np.ndarray, unit_norm: bool) -> Tensor:
    tensor = torch.from_numpy(vectors).float()
    return F.normalize(tensor) if unit_norm else tensor
