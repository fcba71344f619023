"""Trains word vectors: co-occurrence counts, positive pointwise mutual information, truncated SVD."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.decomposition import TruncatedSVD
from sklearn.utils.extmath import svd_flip

SMOOTHING = 0.75  # exponent of context frequencies; 1 would give rare contexts the largest mutual information


def train_vectors(
    tokens: Sequence[Sequence[str]],
    n_dimensions: int,
    window: int,
    min_count: int,
    max_words: int | None,
    stop_words: frozenset[str],
    random_state: Any,
) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Train word vectors; return the words, their vectors [V, d], and the number of texts with every word [V].

    The most frequent words come first, and words of one frequency in the order of the alphabet.
    """
    counts = Counter(word for text in tokens for word in text if word not in stop_words)
    frequent = [word for word, count in counts.items() if count >= min_count]
    words = sorted(frequent, key=lambda word: (-counts[word], word))[:max_words]
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
        raise ValueError("no two words of the vocabulary occur within a window; word vectors need longer texts")
    n_texts = np.bincount([i for text in known for i in set(text)], minlength=len(words))
    return words, embed(information, n_dimensions, random_state), n_texts


def cooccurrences(ids: np.ndarray, documents: np.ndarray, n_words: int, window: int) -> sparse.csr_matrix:
    """Count pairs of words that are at most `window` words apart in a document, [V, V], symmetric.

    `ids` [L] are the words of all documents, concatenated; `documents` [L] are the documents to which they belong,
    in ascending order. Two words that are o words apart count as ``1 - (o - 1) / window``.
    """
    counts = sparse.csr_matrix((n_words, n_words))
    for offset in range(1, min(window, len(ids) - 1) + 1):
        same = documents[:-offset] == documents[offset:]
        pairs = (ids[:-offset][same], ids[offset:][same])
        share = np.full(len(pairs[0]), 1 - (offset - 1) / window)
        counts += sparse.csr_matrix((share, pairs), shape=counts.shape)
    return counts + counts.T


def positive_pmi(counts: sparse.csr_matrix) -> sparse.csr_matrix:
    """Positive pointwise mutual information of words and contexts, [V, V], from co-occurrence counts [V, V].

    It is ``max(0, log(p(word, context) / (p(word) q(context))))`` in nats, where q is proportional to the
    context's frequency to the power of 0.75 (Levy, Goldberg, Dagan, TACL 2015).
    """
    words = np.asarray(counts.sum(axis=1)).ravel()
    contexts = np.asarray(counts.sum(axis=0)).ravel() ** SMOOTHING
    found = counts.tocoo()
    information = np.log(found.data * contexts.sum() / (words[found.row] * contexts[found.col]))
    found.data = information.clip(min=0)
    found.eliminate_zeros()
    return found.tocsr()


def embed(matrix: sparse.csr_matrix, n_dimensions: int, random_state: Any = None) -> np.ndarray:
    """Truncated SVD of a matrix, as vectors ``U sqrt(S)``, [V, n_dimensions]."""
    svd = TruncatedSVD(n_dimensions, n_iter=10, random_state=random_state)
    scaled = svd.fit_transform(matrix)  # U S
    size = np.sqrt(np.linalg.norm(scaled, axis=0))
    vectors = np.divide(scaled, size, out=np.zeros_like(scaled), where=size > 0)
    return svd_flip(vectors, None)[0]  # makes the signs deterministic
