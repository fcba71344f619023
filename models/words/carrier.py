"""Carries relevance of a text's mean word vector back to its words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy.sparse import csr_matrix
from torch import Tensor, nn

from neonxc.carriers import Backbone, Carrier, Decide, HeadRule, Record, carrier_of
from neonxc.common.memory import blocks
from neonxc.common.modules import check_evaluating
from neonxc.data.sparse import SparseRows
from neonxc.data.table import Table, is_texts
from neonxc.head.detection import LinearDetection, full_precision

from .sentences import SentenceEncoder, Tokens
from .vectors import WordVectors


class _Texts(Record):
    """Batch of texts whose relevance is attributed to words.

    The decision is linear in the mean vector, so it is a weighted mean over the words. The mean and the neurons
    ``a_m`` are merged into one linear layer on all words, whose relevance is summed over the dimensions:
    ``R_t = w_t / sum(w) * sum_m c_m a_m(phi_t)`` (NEON paper, section VI-A). The relevance of a text sums to
    ``sum_m c_m a_m(x)``.
    """

    def __init__(self, carrier: Words, x: Tensor) -> None:
        self.carrier, self.ids, self.features = carrier, x.long(), carrier.module(x)

    def relevance(self, decisions: Sequence[Decide], rule: HeadRule) -> Iterator[Tensor]:
        for decide in decisions:
            with full_precision(self.features):
                found = self.carrier.each(self.features, partial(self._scores, decide))
            yield found

    @torch.no_grad()
    def _scores(self, decide: Decide, some: slice, features: Tensor) -> Tensor:
        decision, ids, words = decide(some), self.ids[some], self.carrier.module
        detection = decision.detection
        if not isinstance(detection, LinearDetection) or detection.norm is not None:
            raise ValueError(
                "this clustering is not linear in the mean word vector: its relevance can't be divided among words"
            )
        # The neurons are computed once per distinct word, without an array [texts, words, dimensions]
        used, place = ids.clamp(min=0).unique(return_inverse=True)
        neurons = detection(words.vectors[used]) - detection.unshared
        evidence = decision.weights @ neurons.to(decision.weights).T
        relevance = evidence.gather(1, place) * words._shares(ids)
        return relevance.where(ids >= 0, 0.0)


class Words(Carrier):
    """Carrier of texts, which are strings or word indices from :meth:`WordVectors.encode`."""

    missing = "word"
    module: WordVectors

    def stored(self, X: Any) -> Table:
        """Word indices [N, T]."""
        table = Table.read(X)
        return table.holding(
            self.module.encode(table.data).double() if is_texts(X) else table.tensor.to(self.device)
        )

    def features(self, x: Tensor) -> Tensor:
        """Mean vectors [N, d]."""
        return self.module(x)

    def record(self, x: Tensor, several: bool = False) -> Record:
        """Record the mean vectors and the words of the texts."""
        return _Texts(self, x)

    def parts(self, X: Any) -> Iterator[Tensor]:
        """Yield word indices for parts of the texts, each padded to the longest text of its part."""
        if is_texts(X):
            return (ids.double() for ids in self.module._encoded(Table.read(X).data))
        return super().parts(X)

    in_texts = True

    def values(self, x: Tensor, points: Tensor | SparseRows) -> SparseRows:
        """1 for the words that a text contains, 0 for others, [N, words]."""
        return SparseRows(self.columns(x).sign(), x.device)

    def columns(self, X: Any) -> csr_matrix:
        """Number of occurrences of every word in the texts, [N, words]."""
        ids = self.batch(X).tensor.cpu()
        text, place = (ids >= 0).nonzero(as_tuple=True)
        return csr_matrix((np.ones(len(text)), (text, self.words(ids)[text, place])), (len(ids), len(self.units)))

    def words(self, x: Tensor) -> Tensor:
        """Positions of words [N, W] in the vocabulary; any for -1."""
        return x.long().clamp(min=0)

    @property
    def units(self) -> list[str]:
        """The vocabulary."""
        return self.module.words

    def accumulate(self, x: Tensor, points: Tensor, decide: Decide, column: Tensor, total: Tensor) -> None:
        """Add the relevance of every word, summed over its occurrences."""
        relevance = next(self.record(x).relevance([decide], self.rules[0])).double().cpu()
        words = self.words(x).cpu()  # the relevance of unknown words is 0
        total.index_put_((column[:, None].cpu(), words), relevance, accumulate=True)

    def of_units(self, x: Tensor, points: Tensor | SparseRows, decide: Decide) -> Tensor:
        """Relevance of the words of every text, [n, words]."""
        found = torch.zeros(len(x), len(self.units), dtype=torch.float64)
        self.accumulate(x, x, decide, torch.arange(len(x)), found)
        return found


@carrier_of.register
def _(features: WordVectors, *options: Any) -> Words:
    return Words(features, *options)


class _Embedded(nn.Module):
    """A sentence encoder as a network of token embeddings [N, T, e]."""

    wraps = "encoder.model"

    def __init__(self, encoder: SentenceEncoder, mask: Tensor) -> None:
        super().__init__()
        self.encoder, self.mask = encoder, mask

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute the embeddings [N, d] of texts."""
        return self.encoder.embedding(inputs, self.mask)


@cache
def default_composite() -> Any:
    """LRP-epsilon, with attention weights held constant, so that relevance sums to the logit up to biases."""
    from neonxc.lrp import Composite, Constant, Epsilon  # loads captum, which networks of tables do without

    return Composite(Epsilon(1e-6), functions={torch.softmax: Constant(), F.softmax: Constant()})


Run = Callable[[Tensor, Tokens, Tensor], tuple[Tensor, Callable[[Tensor], Tensor]]]
"""Embeds some of the texts; returns a function from multipliers of the embeddings to relevance of the tokens."""


class _Encoded(Record):
    """Batch of texts, whose relevance is propagated to the token embeddings and summed over the words."""

    carrier: Sentences

    def __init__(self, carrier: Sentences, x: Tensor, run: Run) -> None:
        self.carrier, self.x, encoder = carrier, x, carrier.module
        self.parts, outputs = [], []
        for some in encoder.batches(x):
            tokens = encoder.tokens(x[some].long())
            output, back = run(encoder.inputs(tokens).detach(), tokens, some)
            self.parts.append((some, tokens.word, back))
            outputs.append(output.detach())
        self.features = torch.cat(outputs)[torch.cat([some for some, *_ in self.parts]).argsort()]

    def relevance(self, decisions: Sequence[Decide], rule: HeadRule) -> Iterator[Tensor]:
        for decide in decisions:
            yield self.propagated(self.carrier.multiplier(self.features, decide, rule))

    def change(self, decide: Decide, base: Any, x: Tensor) -> Tensor:
        return next(self.relevance([decide], "linear"))

    def propagated(self, start: Tensor) -> Tensor:
        """Propagate multipliers [N, d] of the embeddings to relevance [N, W] of the words."""
        found = torch.zeros_like(self.x, dtype=start.dtype)
        for some, word, back in self.parts:
            own = back(start[some]).sum(2).masked_fill(word < 0, 0.0)
            found[some] = found[some].scatter_add(1, word.clamp(min=0), own)
        return found


class Sentences(Words, Backbone):
    """Carrier of texts behind a sentence encoder: strings, or numbers from :meth:`SentenceEncoder.encode`.

    The vocabulary consists of the words that the encoder has met.
    """

    module: SentenceEncoder  # type: ignore[assignment]
    rules = Backbone.rules

    def __init__(self, features: SentenceEncoder, *options: Any) -> None:
        super().__init__(features, *options)
        self.mask = features.mask_word

    def stored(self, X: Any) -> Table:
        """Word numbers [N, W]."""
        check_evaluating(self.module)
        return super().stored(X)

    def features(self, x: Tensor) -> Tensor:
        """Embeddings [N, d]."""
        with torch.no_grad():
            return self.module(x)

    def record(self, x: Tensor, several: bool = False) -> Record:
        """Run the encoder under LRP."""
        from neonxc.lrp import LRP  # loads captum, which networks of tables do without

        def run(inputs: Tensor, tokens: Tokens, _: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
            network = _Embedded(self.module, tokens.mask)
            recording = LRP(network, self.composite or default_composite()).record(inputs, several)
            return recording.output, recording.propagate

        return _Encoded(self, x, run)

    def baseline(self, along: Any, x: Tensor) -> Any:
        """Texts whose words are masked."""
        return along

    def between(self, base: Any, x: Tensor, share: Any) -> Record:
        """Run the encoder a share of the way from the masked words to the words, to attribute the difference."""
        from neonxc.lrp import LRP  # loads captum, which networks of tables do without

        encoder, composite = self.module, self.composite
        mask = encoder.inputs(torch.tensor(encoder.tokenizer.mask_token_id, device=x.device)).detach()

        @torch.enable_grad()
        def run(inputs: Tensor, tokens: Tokens, some: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
            change = (inputs - mask) * (tokens.word >= 0)[..., None]
            own = share
            if isinstance(share, Tensor):  # of every word
                own = share[some].gather(1, tokens.word.clamp(min=0))[..., None].to(inputs)
            at = inputs - (1 - own) * change
            if composite is not None:
                recording = LRP(_Embedded(encoder, tokens.mask), composite).record(at)
                return recording.output, lambda start: change * recording.multiplier(start)
            at.requires_grad_()
            output = encoder.embedding(at, tokens.mask)
            return output, lambda start: change * torch.autograd.grad(output, at, start)[0]

        return _Encoded(self, x, run)

    def parts(self, X: Any) -> Iterator[Tensor]:
        """Yield word numbers, block by block; all texts are encoded first, so that the vocabulary is complete."""
        x = self.stored(X).tensor
        return (x[part] for part in self.blocks(x))

    def blocks(self, x: Any) -> Iterator[slice]:
        """Slices of the texts whose states fit into memory."""
        return blocks(len(x), self.module.bytes_per_text(x), x.device)

    def words(self, x: Tensor) -> Tensor:
        """Positions of words [N, W] in the vocabulary; any for -1."""
        return self.module.word_of(x)


@carrier_of.register
def _(features: SentenceEncoder, *options: Any) -> Sentences:
    return Sentences(features, *options)
