"""Inputs of texts behind word vectors: the relevance of a mean vector is divided among the words of the text.

With the vectors phi_t and weights w_t of the words t of a text::

    point of a text        x   = sum_t w_t phi_t / sum_t w_t
    decision               f   = sum_m c_m a_m(x)               with the weights c_m of the neurons at x
    relevance of a word    R_t = w_t / sum(w) * sum_m c_m a_m(phi_t)       (NEON paper, section VI-A)

As the decision is linear in x, the relevance of the words of a text sums to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor

from neonxc.common.types import TableLike
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
        """Convert texts to word numbers [N, T]."""
        if is_texts(table):
            return table.holding(self.module.encode(table.data).double())
        return table.holding(table.tensor.to(self.device))

    def write(
        self, x: Tensor, like: TableLike | Table, bounds: Mapping[int, tuple[float, float]] | None = None
    ) -> Any:
        """Return the words of texts, joined by blanks; word numbers stay numbers."""
        if not is_texts(like):
            return super().write(x, like)
        vocabulary = self.units
        texts = []
        for row, positions in zip(x.tolist(), self.words(x).tolist(), strict=True):
            words = [vocabulary[i] for number, i in zip(row, positions, strict=True) if number >= 0]
            texts.append(" ".join(words))
        return texts

    def baseline(self, baseline: TableLike | float, name: str = "baseline") -> Any:
        """Refuse all baselines: there is nothing half-way between a baseline and a text."""
        raise ValueError(
            "baseline needs numeric inputs: there are no points between a baseline and a text, except for a "
            'sentence encoder with a mask token, which takes "mask"'
        )

    def parts(self, X: TableLike | Table) -> Iterator[Any]:
        """Yield word numbers for parts of the texts, each padded to the longest text of its part."""
        table = self.given(X)
        if is_texts(table):
            return (ids.double() for ids in self.module.encoded(table.data))
        return super().parts(table)

    def explain(self, x: Tensor, questions: Sequence[Question], how: How) -> Iterator[Tensor]:
        """Yield the relevance of the words [N, T]."""
        for question in questions:
            block_answers = answers(self.head, self.features(x), question, how.beta, how.contrast_rule)
            yield joined((self.relevance(x[answer.block], answer) for answer in block_answers), len(x))

    @torch.no_grad()
    def relevance(self, x: Tensor, answer: Answer) -> Tensor:
        """Compute the relevance [n, T] of the words of texts.

        The mean and the neurons are merged into one linear layer on all words, whose relevance is summed over the
        dimensions of the vectors.
        """
        ids = x.long()
        # the neurons are computed once per distinct word, without an array [texts, words, dimensions]
        distinct, position = ids.clamp(min=0).unique(return_inverse=True)
        evidence = answer.among_parts(self.module.vectors[distinct])  # [n, distinct words]
        fractions = self.module.shares(ids)  # w_t / sum(w)
        return (evidence.gather(1, position) * fractions).where(ids >= 0, 0.0)

    def values(self, x: Tensor | SparseRows, points: Tensor | SparseRows) -> SparseRows:
        """Return 1 for the words that a text contains, and 0 for others, [N, words]."""
        return SparseRows(self.columns(x).sign(), x.device)

    def columns(self, X: TableLike) -> csr_matrix:
        """Count the occurrences of every word in the texts, [N, words]."""
        ids = self.read(X).tensor.cpu()
        text, word = (ids >= 0).nonzero(as_tuple=True)
        position = self.words(ids)[text, word]
        ones = np.ones(len(text))
        return csr_matrix((ones, (text, position)), (len(ids), len(self.units)))

    def words(self, x: Tensor) -> Tensor:
        """Positions of words [N, W] in the vocabulary; any for -1."""
        return x.long().clamp(min=0)

    def of_units(self, x: Tensor | SparseRows, answer: Answer) -> Tensor:
        """Compute the relevance [n, words] of the words of every text."""
        total = torch.zeros(len(x), len(self.units), dtype=torch.float64)
        self.add(x, answer, torch.arange(len(x)), total)
        return total

    def add(
        self,
        x: Tensor | SparseRows,
        answer: Answer,
        cluster: Tensor,
        total: Tensor,
        weight: Tensor | None = None,
    ) -> None:
        """Add the relevance of every word, summed over its occurrences; that of unknown words is 0."""
        assert isinstance(x, Tensor)
        relevance = self.relevance(x, answer).double().cpu()
        if weight is not None:
            relevance = relevance * weight.cpu()[:, None]
        positions = (cluster[:, None].cpu(), self.words(x).cpu())
        total.index_put_(positions, relevance, accumulate=True)
