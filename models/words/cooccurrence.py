"""Word vectors from which words stand near each other: counts, mutual information, singular vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.decomposition import TruncatedSVD
from sklearn.utils.extmath import svd_flip

from .vocabulary import frequent_words

SMOOTHING = 0.75  # of context frequencies: without it rare contexts get the largest mutual information


def trained(
    tokens: Sequence[Sequence[str]],
    n_dimensions: int,
    window: int,
    min_count: int,
    max_words: int | None,
    stop_words: frozenset[str],
    random_state: Any,
) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Words of texts, their vectors [V, d], and in how many texts each is; :meth:`WordVectors.from_texts`."""
    words = frequent_words(tokens, min_count, max_words, stop_words)
    if len(words) < 2:
        raise ValueError(f"texts need two different words with a count of {min_count} or more, got {words}")
    if n_dimensions >= len(words):
        raise ValueError(
            f"n_dimensions needs a whole number from 1 to {len(words) - 1}, below the number of words with a "
            f"count of {min_count} or more; got {n_dimensions!r}"
        )
    index = {word: i for i, word in enumerate(words)}
    known = [[index[word] for word in text if word in index] for text in tokens]
    ids = np.array([i for text in known for i in text])
    documents = np.repeat(np.arange(len(known)), [len(text) for text in known])
    information = positive_pmi(cooccurrences(ids, documents, len(words), window))
    if not information.nnz:
        raise ValueError("in these texts no word stands near another; word vectors need longer texts")
    n_texts = np.bincount([i for text in known for i in set(text)], minlength=len(words))
    return words, embed(information, n_dimensions, random_state), n_texts


def cooccurrences(ids: np.ndarray, documents: np.ndarray, n_words: int, window: int) -> sparse.csr_matrix:
    """How often two words stand at most `window` words from each other in a document, [V, V] and symmetric.

    `ids` [L] are the words of all documents in one row, `documents` [L] to which document each of them belongs,
    in ascending order. Two words that are o words apart count ``1 - (o - 1) / window``.
    """
    counts = sparse.csr_matrix((n_words, n_words))
    for offset in range(1, min(window, len(ids) - 1) + 1):
        same = documents[:-offset] == documents[offset:]
        pairs = (ids[:-offset][same], ids[offset:][same])
        share = np.full(len(pairs[0]), 1 - (offset - 1) / window)
        counts += sparse.csr_matrix((share, pairs), shape=counts.shape)
    return counts + counts.T


def positive_pmi(counts: sparse.csr_matrix) -> sparse.csr_matrix:
    """Positive pointwise mutual information [V, V] of words and their contexts, from counts [V, V].

    It is ``max(0, log(p(word, context) / (p(word) q(context))))`` in nats, with q proportional to the context's
    frequency to the power 0.75 (Levy, Goldberg, Dagan, TACL 2015).
    """
    words = np.asarray(counts.sum(axis=1)).ravel()
    contexts = np.asarray(counts.sum(axis=0)).ravel() ** SMOOTHING
    found = counts.tocoo()
    information = np.log(found.data * contexts.sum() / (words[found.row] * contexts[found.col]))
    matrix = sparse.csr_matrix((information.clip(min=0), (found.row, found.col)), shape=counts.shape)
    matrix.eliminate_zeros()
    return matrix


def embed(matrix: sparse.csr_matrix, n_dimensions: int, random_state: Any = None) -> np.ndarray:
    """Rows of the best approximation of low rank, as vectors [V, n_dimensions]: ``U sqrt(S)``."""
    svd = TruncatedSVD(n_dimensions, n_iter=10, random_state=random_state)
    scaled = svd.fit_transform(matrix)  # U S
    size = np.sqrt(np.linalg.norm(scaled, axis=0))
    vectors = np.divide(scaled, size, out=np.zeros_like(scaled), where=size > 0)
    return svd_flip(vectors, None)[0]  # a direction and its opposite are the same one
