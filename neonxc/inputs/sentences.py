"""Inputs of texts behind a sentence encoder: relevance is propagated to tokens and summed over words.

1. Texts are numbers of words [N, W]; those of similar length are encoded together.
2. The encoder computes embeddings of texts [n, d] from those of their tokens [n, T, e], under LRP.
3. The relevance of token embeddings is summed over their dimensions, and over the tokens of every word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from neonxc.common.memory import blocks
from neonxc.common.modules import evaluated
from neonxc.common.types import TableLike
from neonxc.data.sparse import SparseRows
from neonxc.data.table import Table
from neonxc.head.answer import Answer
from neonxc.head.head import Head
from neonxc.inputs.backbone import Propagating
from neonxc.inputs.base import Run
from neonxc.inputs.words import Words

if TYPE_CHECKING:
    from neonxc.lrp import Composite

Back = Callable[[Tensor], Tensor]
"""Computes the relevance of token embeddings [n, T, e] from multipliers of the embeddings of texts [n, d]."""
Through = Callable[[Tensor, Any, Tensor], tuple[Tensor, Back]]
"""Computes embeddings of a batch of texts from those of its tokens, the tokens, and the numbers of the texts."""


class Sentences(Propagating, Words):
    """Texts: strings, or numbers from :meth:`neonxc.models.SentenceEncoder.encode`.

    The vocabulary consists of the words that the encoder has met.
    """

    def __init__(self, head: Head | None, names: Sequence[str] | None, module: nn.Module) -> None:
        super().__init__(head, names, module)
        self.mask = self.module.mask_word

    def baseline(self, baseline: TableLike | float, name: str = "baseline") -> Any:
        """Return "mask", which stands for the texts with all words masked; refuse other baselines."""
        is_mask = isinstance(baseline, str) and baseline == "mask"
        if self.mask is None or not is_mask:
            super().baseline(baseline, name)
        return baseline

    def parts(self, X: TableLike | Table) -> Iterator[Any]:
        """Yield word numbers, block by block; all texts are encoded first, so that the vocabulary is complete."""
        x = self.read(X).tensor
        return (x[block] for block in self.blocks(x))

    def blocks(self, x: Tensor | SparseRows) -> list[slice]:
        """Slices of the texts whose states fit into memory."""
        return blocks(len(x), self.module.bytes_per_text(x), x.device)

    def words(self, x: Tensor) -> Tensor:
        """Positions of words [N, W] in the vocabulary; any for -1."""
        positions: Tensor = self.module.word_of(x)
        return positions

    def relevance(self, x: Tensor, answer: Answer) -> Tensor:
        """Compute the relevance [n, W] of the words of texts, by the linear rule at the head."""
        run = self.run(x, None)
        multiplier = answer.multiplier().to(run.features)
        return run.back(multiplier[None])[0]

    def run(self, x: Tensor, composite: Composite | None, several: bool = False) -> Run:
        """Run the encoder under LRP."""
        from neonxc.lrp import LRP  # loads captum, which networks of tables do without

        composite = composite or default_composite()

        def through(inputs: Tensor, tokens: Any, texts: Tensor) -> tuple[Tensor, Back]:
            network = _Embedded(self.module, tokens)
            recording = LRP(network, composite).record(inputs, several)
            return recording.output, recording.propagate

        return self._run(x, through)

    def between(self, base: Tensor | str, x: Tensor, t: float | Tensor, composite: Composite | None) -> Run:
        """Run the encoder at a point between the masked words and the words, to attribute the difference.

        With the embeddings e of words and those of the mask, the point is ``mask + t (e - mask)``; the fraction t
        is one for all words, or one for each. Tokens that belong to no word stay as they are.
        """
        from neonxc.lrp.engine import LRP, named_cut  # loads captum, which networks of tables do without

        encoder = self.module
        mask_token = torch.tensor(encoder.tokenizer.mask_token_id, device=x.device)
        mask = encoder.inputs(mask_token).detach()

        @torch.enable_grad()
        def through(inputs: Tensor, tokens: Any, texts: Tensor) -> tuple[Tensor, Back]:
            network = _Embedded(encoder, tokens)
            change = (inputs - mask) * (tokens.word >= 0)[..., None]
            if isinstance(t, Tensor):  # of every word
                of_tokens = t[texts].gather(1, tokens.word.clamp(min=0))
                point = inputs - (1 - of_tokens[..., None].to(inputs)) * change
            else:
                point = inputs - (1 - t) * change
            if composite is not None:
                recording = LRP(network, composite).record(point)
                return recording.output, lambda start: change * recording.multiplier(start)

            point.requires_grad_()
            output = evaluated(network, point, compare=False)

            def by_gradient(start: Tensor) -> Tensor:
                with named_cut(network, point):
                    (gradient,) = torch.autograd.grad(output, point, start)
                    return change * gradient

            return output, by_gradient

        run = self._run(x, through)
        return Run(run.features, lambda start: run.back(start[None])[0])

    def _run(self, x: Tensor, through: Through) -> Run:
        """Embed texts of similar length together; relevance is summed over the dimensions and over words."""
        encoder = self.module
        batches = []
        outputs = []
        for texts in encoder.batches(x):
            tokens = encoder.tokens(x[texts].long())
            output, back = through(encoder.inputs(tokens).detach(), tokens, texts)
            batches.append((texts, tokens.word, back))
            outputs.append(output.detach())

        def relevance_of_words(start: Tensor) -> Tensor:
            relevance = torch.zeros_like(x, dtype=start.dtype)
            for texts, word, back in batches:
                of_tokens = back(start[texts]).sum(2, dtype=start.dtype).masked_fill(word < 0, 0.0)
                relevance[texts] = relevance[texts].scatter_add(1, word.clamp(min=0), of_tokens)
            return relevance

        def relevance_of_each(starts: Tensor) -> Tensor:
            return torch.stack([relevance_of_words(start) for start in starts])

        texts_in_batches = torch.cat([texts for texts, *_ in batches])
        features = torch.cat(outputs)[texts_in_batches.argsort()]
        return Run(features, relevance_of_each)


class _Embedded(nn.Module):
    """A sentence encoder as a network of token embeddings [N, T, e]."""

    wraps = "encoder.model"

    def __init__(self, encoder: Any, tokens: Any) -> None:
        super().__init__()
        self.encoder = encoder
        self.tokens = tokens

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute the embeddings [N, d] of texts."""
        embeddings: Tensor = self.encoder.embedding(inputs, self.tokens.mask, self.tokens.ids)
        return embeddings


@cache
def default_composite() -> Composite:
    """Return LRP-epsilon with constant attention weights, so that relevance sums to the logit up to biases."""
    from neonxc.lrp import Composite, Constant, Epsilon  # loads captum, which networks of tables do without

    return Composite(Epsilon(1e-6), functions={torch.softmax: Constant(), F.softmax: Constant()})
