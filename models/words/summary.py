"""What a cluster of documents is, in words."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tqdm import tqdm

from neonxc.attribution import NEON
from neonxc.network import NeuralizedClustering
from neonxc.summary import ClusterSummary, summarized

from .vectors import WordVectors
from .vocabulary import as_texts

__all__ = ["word_summary"]

TEXTS = 256  # that are explained at once, each padded to the length of the longest


def word_summary(net: NeuralizedClustering, texts: Sequence[str], n_prototypes: int = 5) -> ClusterSummary:
    """Which words speak for each cluster of documents.

    Parameters
    ----------
    net : NeuralizedClustering
        Whose features are a :class:`WordVectors`.
    texts : sequence of str
        Documents with at least one known word.
    n_prototypes : int
        Typical documents to name per cluster.

    Returns
    -------
    ClusterSummary
        Its features are the words of the vocabulary: a word's relevance is what it adds to the logit of a
        cluster's document on average, all its occurrences together and 0 where there are none. `top` gives a
        cluster's strongest words. Documents that are noise are counted apart.

    Raises
    ------
    TypeError
        Other features.
    ValueError
        A text without any word of the vocabulary.
    """
    words = net.features
    if not isinstance(words, WordVectors):
        raise TypeError(f"word_summary needs a network whose features are WordVectors, got {type(words).__name__}")
    texts = as_texts(texts)
    neon, K, V = NEON(net), net.head.n_clusters, len(words.words)
    total = torch.zeros(K * V, dtype=torch.float64)
    columns, logits = [], []
    for first in tqdm(range(0, len(texts), TEXTS), desc="words", delay=2, leave=False):
        ids = words.encode(texts[first : first + TEXTS])
        with torch.no_grad():
            a = words(ids)
            own, logit, noise = net.head.assign(a), net.head(a), net.head.outside(a)
        relevance = neon.attribute(ids, target=own).double() * ~noise[:, None]
        place = own[:, None] * V + ids.clamp(min=0)  # unknown words have no relevance, wherever they go
        total.index_add_(0, place.flatten().cpu(), relevance.flatten().cpu())
        columns.append(torch.where(noise, K, own).cpu())
        logits.append(logit.gather(1, own[:, None])[:, 0].cpu())
    column, logit_ = torch.cat(columns).numpy(), torch.cat(logits).numpy()
    return summarized(net.classes_, logit_, column, total.view(K, V).numpy(), list(words.words), n_prototypes)
