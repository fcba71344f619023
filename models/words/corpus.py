"""Words of texts: tokenization, stop words, and how much two words have to do with each other."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from neonxc.data.inputs import as_texts

WORD = re.compile(r"[^\W\d_]{3,}")  # at least three letters of any script
SMOOTHING = 0.75  # exponent of context frequencies; 1 would give rare contexts the largest mutual information


def tokenize(texts: Iterable[str]) -> list[list[str]]:
    """Words of each text in lower case."""
    # Words are converted after splitting: lower() may change the length of a text, which would shift the spans
    return [[word.lower() for word in WORD.findall(text)] for text in as_texts(texts)]


def stop_word_set(stop_words: Any) -> frozenset[str]:
    """Words to leave out, in lower case."""
    if not isinstance(stop_words, str):
        return frozenset(word.lower() for word in stop_words or ())
    if stop_words != "english":
        raise ValueError(f"stop_words needs 'english', a collection of words or None, got {stop_words!r}")
    return ENGLISH_STOP_WORDS


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
    found = counts.tocoo()
    information = np.log(found.data * contexts.sum() / (words[found.row] * contexts[found.col]))
    found.data = information.clip(min=0)
    found.eliminate_zeros()
    return found.tocsr()
