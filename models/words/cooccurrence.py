"""How often words of texts stand together, and how much that tells."""

from __future__ import annotations

import numpy as np
from scipy import sparse

SMOOTHING = 0.75  # exponent of context frequencies; 1 would give rare contexts the largest mutual information


def cooccurrences(ids: np.ndarray, documents: np.ndarray, n_words: int, window: int) -> sparse.csr_matrix:
    """Count pairs of words that are at most `window` words apart in a document, [V, V], symmetric.

    `ids` [L] are the words of all documents, concatenated; `documents` [L] are the documents to which they belong,
    in ascending order. Two words that are o words apart count as ``1 - (o - 1) / window``.
    """
    counts = sparse.csr_matrix((n_words, n_words))
    for offset in range(1, min(window + 1, len(ids))):
        same = documents[:-offset] == documents[offset:]
        share = np.full(same.sum(), 1 - (offset - 1) / window)
        counts += sparse.csr_matrix((share, (ids[:-offset][same], ids[offset:][same])), shape=counts.shape)
    return counts + counts.T


def positive_pmi(counts: sparse.csr_matrix) -> sparse.csr_matrix:
    """Positive pointwise mutual information of words and contexts, [V, V], from symmetric counts [V, V].

    It is ``max(0, log(p(word, context) / (p(word) q(context))))`` in nats, where q is proportional to the
    context's frequency to the power of 0.75 (Levy, Goldberg, Dagan, TACL 2015).
    """
    words = counts.sum(axis=0).A1
    contexts = words**SMOOTHING
    pairs = counts.tocoo()
    information = np.log(pairs.data * contexts.sum() / (words[pairs.row] * contexts[pairs.col]))
    pairs.data = information.clip(min=0)
    pairs.eliminate_zeros()
    return pairs.tocsr()
