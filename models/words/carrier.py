"""Carries relevance of a text's mean word vector back to its words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor

from neonxc.carriers import Carrier, Decide, HeadRule, Record, carrier_of
from neonxc.common.memory import blocks
from neonxc.data.inputs import as_texts
from neonxc.data.sparse import SparseRows, dense
from neonxc.data.table import Table, is_texts
from neonxc.head.detection import LinearDetection, full_precision

from .vectors import WordVectors
from .vocabulary import as_ids


class _Texts(Record):
    """Batch of texts whose relevance is attributed to words.

    The decision is linear in the mean vector, so it is a weighted mean over the words. The mean and the neurons
    ``a_m`` are merged into one linear layer on all words, whose relevance is summed over the dimensions:
    ``R_t = w_t / sum(w) * sum_m c_m a_m(phi_t)`` (NEON paper, section VI-A). The relevance of a text sums to
    ``sum_m c_m a_m(x)``.
    """

    def __init__(self, carrier: Words, x: Tensor) -> None:
        self.carrier, self.words = carrier, carrier.module
        with full_precision(x):
            self.ids, self.features = as_ids(x, len(self.words.words)), self.words(x)

    def relevance(self, decisions: Sequence[Decide], rule: HeadRule) -> Iterator[Tensor]:
        for decide in decisions:
            with full_precision(self.features):
                found = self.carrier.each(self.features, partial(self._scores, decide))
            yield found

    @torch.no_grad()
    def _scores(self, decide: Decide, some: slice, features: Tensor) -> Tensor:
        decision, ids = decide(some), self.ids[some]
        if not isinstance(decision.detection, LinearDetection) or decision.detection.norm is not None:
            raise ValueError(
                "this clustering is not linear in the mean word vector: its relevance can't be divided among words"
            )
        known = ids >= 0
        ids = ids.clamp(min=0)
        # The neurons are computed once per distinct word, without an array [texts, words, dimensions]
        used, place = ids.unique(return_inverse=True)
        neurons = decision.detection(self.words.vectors[used]) - decision.detection.unshared
        evidence = decision.weights @ neurons.to(decision.weights).T
        share = (self.words.weights[ids] * known).to(evidence)
        relevance = evidence.gather(1, place) * share / share.sum(dim=1, keepdim=True)
        return torch.where(known, relevance, 0.0)


class Words(Carrier):
    """Carrier of texts, which are strings or word indices from :meth:`WordVectors.encode`."""

    missing = "word"
    module: WordVectors

    def stored(self, X: Any) -> Table:
        """Word indices [N, T]."""
        table = Table.read(X)
        return table.holding(self.module.encode(X).double() if is_texts(X) else table.tensor.to(self.device))

    def features(self, x: Tensor) -> Tensor:
        """Mean vectors [N, d]."""
        return self.module(x)

    def record(self, x: Tensor, several: bool = False) -> Record:
        """Record the mean vectors and the words of the texts."""
        return _Texts(self, x)

    def parts(self, X: Any) -> Iterator[Tensor]:
        """Yield word indices for parts of the texts, each padded to the longest text of its part."""
        if not is_texts(X):
            yield from super().parts(X)
            return
        texts = as_texts(Table.read(X).data)
        for part in blocks(len(texts), 64 * max(map(len, texts)), self.device):
            yield self.batch(texts[part]).tensor

    in_texts = True

    def values(self, x: Tensor, points: Tensor | SparseRows) -> SparseRows:
        """1 for the words that a text contains, 0 for others, [N, words]."""
        counts = self._counts(x)
        counts.data[:] = 1.0
        return SparseRows(counts, x.device)

    def columns(self, X: Any) -> csr_matrix:
        """Number of occurrences of every word in the texts, [N, words]."""
        return self._counts(self.batch(X).tensor)

    def _counts(self, x: Tensor) -> csr_matrix:
        ids = x.long().cpu()
        text, place = (ids >= 0).nonzero(as_tuple=True)
        return csr_matrix((np.ones(len(text)), (text, ids[text, place])), (len(ids), len(self.module.words)))

    @property
    def units(self) -> list[str]:
        """The vocabulary."""
        return list(self.module.words)

    def tally(self, x: Tensor, points: Tensor, decide: Decide, column: Tensor, total: Tensor) -> None:
        """Add the relevance of every word, summed over its occurrences."""
        relevance = next(self.record(x).relevance([decide], "midpoint")).double()
        place = column[:, None] * total.shape[1] + x.long().clamp(min=0)  # the relevance of unknown words is 0
        total.view(-1).index_add_(0, place.flatten().cpu(), relevance.flatten().cpu())

    def of_units(self, x: Tensor, points: Tensor | SparseRows, decide: Decide) -> Tensor:
        """Relevance of the words of every text, [n, words]."""
        found = torch.zeros(len(x) + 1, len(self.units), dtype=torch.float64)  # the last row is for noise
        self.tally(x, dense(points), decide, torch.arange(len(x), device=x.device), found)
        return found[:-1]


@carrier_of.register
def _(features: WordVectors, *options: Any) -> Words:
    return Words(features, *options)
