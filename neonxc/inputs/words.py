"""Inputs of texts behind word vectors: the relevance of a mean vector is divided among the words of the text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor

from neonxc.data.sparse import SparseRows
from neonxc.data.table import Table, is_texts
from neonxc.head.answer import Answer, Question, answers, joined
from neonxc.inputs.base import How, Inputs


class Words(Inputs):
    """Texts, which are strings or word numbers from :meth:`neonxc.models.WordVectors.encode`."""

    absent = "word"
    in_texts = True
    module: Any

    @property
    def units(self) -> list[str]:
        """The vocabulary."""
        return list(self.module.words)

    def _read(self, table: Table) -> Table:
        """Word numbers [N, T]."""
        if is_texts(table):
            return table.holding(self.module.encode(table.data).double())
        return table.holding(table.tensor.to(self.device))

    def write(self, x: Tensor, like: Any, bounds: Any = None) -> Any:
        """Return the words of texts, joined by blanks; word numbers stay numbers."""
        if not is_texts(like):
            return super().write(x, like)
        places = self.words(x).tolist()
        there = (x >= 0).tolist()
        rows = zip(places, there, strict=True)
        return [" ".join(self.units[i] for i, known in zip(*row, strict=True) if known) for row in rows]

    def baseline(self, along: Any, name: str = "along") -> Any:
        """Refuse all baselines: there is nothing half-way between a baseline and a text."""
        raise ValueError(
            "along needs numeric inputs: there are no points between a baseline and a text, except for a sentence "
            'encoder with a mask token, which takes "mask"'
        )

    def parts(self, X: Any) -> Iterator[Any]:
        """Yield word numbers for parts of the texts, each padded to the longest text of its part."""
        table = self.given(X)
        if is_texts(table):
            return (ids.double() for ids in self.module.encoded(table.data))
        return super().parts(table)

    def explain(self, x: Tensor, questions: Sequence[Question], how: How) -> Iterator[Tensor]:
        """Yield the relevance of the words [N, T]."""
        for question in questions:
            each = answers(self.head, self.features(x), question, how.beta, how.share)
            yield joined((self.relevance(x[answer.block], answer) for answer in each), len(x))

    @torch.no_grad()
    def relevance(self, x: Tensor, answer: Answer) -> Tensor:
        """Relevance [n, T] of the words of texts.

        The decision is linear in the mean vector, so it is a weighted mean over the words. The mean and the
        neurons ``a_m`` are merged into one linear layer on all words, whose relevance is summed over the
        dimensions: ``R_t = w_t / sum(w) * sum_m c_m a_m(phi_t)`` (NEON paper, section VI-A). The relevance of a
        text sums to ``sum_m c_m a_m(x)``.
        """
        ids = x.long()
        # The neurons are computed once per distinct word, without an array [texts, words, dimensions]
        used, place = ids.clamp(min=0).unique(return_inverse=True)
        evidence = answer.among_parts(self.module.vectors[used])
        return (evidence.gather(1, place) * self.module.shares(ids)).where(ids >= 0, 0.0)

    def values(self, x: Any, points: Any) -> SparseRows:
        """1 for the words that a text contains, 0 for others, [N, words]."""
        return SparseRows(self.columns(x).sign(), x.device)

    def columns(self, X: Any) -> csr_matrix:
        """Number of occurrences of every word in the texts, [N, words]."""
        ids = self.read(X).tensor.cpu()
        text, place = (ids >= 0).nonzero(as_tuple=True)
        return csr_matrix((np.ones(len(text)), (text, self.words(ids)[text, place])), (len(ids), len(self.units)))

    def words(self, x: Tensor) -> Tensor:
        """Positions of words [N, W] in the vocabulary; any for -1."""
        return x.long().clamp(min=0)

    def of_units(self, x: Any, answer: Answer) -> Tensor:
        """Compute the relevance [n, words] of the words of every text."""
        total = torch.zeros(len(x), len(self.units), dtype=torch.float64)
        self.add(x, answer, torch.arange(len(x)), total)
        return total

    def add(self, x: Any, answer: Answer, cluster: Tensor, total: Tensor, weight: Tensor | None = None) -> None:
        """Add the relevance of every word, summed over its occurrences; that of unknown words is 0."""
        relevance = self.relevance(x, answer).double().cpu()
        if weight is not None:
            relevance = relevance * weight.cpu()[:, None]
        total.index_put_((cluster[:, None].cpu(), self.words(x).cpu()), relevance, accumulate=True)
