"""How often words of texts stand together, and how much that tells.

    C_vc  = sum over the pairs of words v and c of a text, o <= window words apart, of 1 - (o - 1) / window
    p(v)  = sum_c C_vc / sum_vc C_vc
    q(c)  = (sum_v C_vc)^0.75 / sum_c (sum_v C_vc)^0.75
    M_vc  = max(0, log(p(v, c) / (p(v) q(c)))),   with p(v, c) = C_vc / sum_vc C_vc

Levy, Goldberg and Dagan, "Improving distributional similarity with lessons learned from word embeddings", TACL
2015: the counts are weighted by a "dynamic context window", and q is "context distribution smoothing".
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

SMOOTHING = 0.75  # exponent of context frequencies; 1 would give rare contexts the largest mutual information


def cooccurrences(ids: np.ndarray, documents: np.ndarray, n_words: int, window: int) -> sparse.csr_matrix:
    """Count pairs of words that are at most `window` words apart in a document, C [V, V], symmetric.

    `ids` [L] are the words of all documents, concatenated; `documents` [L] are the documents to which they belong,
    in ascending order.
    """
    shape = (n_words, n_words)
    counts = sparse.csr_matrix(shape)
    for offset in range(1, min(window + 1, len(ids))):
        is_together = documents[:-offset] == documents[offset:]
        earlier = ids[:-offset][is_together]
        later = ids[offset:][is_together]
        weights = np.full(len(earlier), 1 - (offset - 1) / window)
        counts += sparse.csr_matrix((weights, (earlier, later)), shape=shape)
    return counts + counts.T


def positive_pmi(counts: sparse.csr_matrix) -> sparse.csr_matrix:
    """Compute the positive pointwise mutual information M [V, V] of words and contexts, in nats, from counts C."""
    words = counts.sum(axis=0).A1  # C is symmetric, so that sums over words and contexts are the same
    contexts = words**SMOOTHING
    pairs = counts.tocoo()
    # p(v, c) / (p(v) q(c)), in which the sum of all counts cancels
    ratio = pairs.data * contexts.sum() / (words[pairs.row] * contexts[pairs.col])
    pairs.data = np.log(ratio).clip(min=0)
    pairs.eliminate_zeros()
    return pairs.tocsr()
