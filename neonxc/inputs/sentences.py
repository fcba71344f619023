"""Inputs of texts behind a sentence encoder: relevance is propagated to tokens and summed over words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from neonxc.common.memory import blocks
from neonxc.common.modules import evaluated
from neonxc.head.answer import Answer
from neonxc.head.head import Head
from neonxc.inputs.backbone import Propagating
from neonxc.inputs.base import Run
from neonxc.inputs.words import Words

Through = Callable[[Tensor, Any, Tensor], tuple[Tensor, Callable[[Tensor], Tensor]]]
"""Embeds some of the texts; returns a function from multipliers of the embeddings to relevance of the tokens."""


class Sentences(Propagating, Words):
    """Texts: strings, or numbers from :meth:`neonxc.models.SentenceEncoder.encode`.

    The vocabulary consists of the words that the encoder has met.
    """

    def __init__(self, head: Head | None, names: Sequence[str] | None, module: Any) -> None:
        super().__init__(head, names, module)
        self.mask = module.mask_word

    def baseline(self, along: Any, name: str = "along") -> Any:
        """Texts whose words are masked."""
        if self.mask is None or not (isinstance(along, str) and along == "mask"):
            super().baseline(along, name)
        return along

    def parts(self, X: Any) -> Iterator[Any]:
        """Yield word numbers, block by block; all texts are encoded first, so that the vocabulary is complete."""
        x = self.read(X).tensor
        return (x[block] for block in self.blocks(x))

    def blocks(self, x: Any) -> list[slice]:
        """Slices of the texts whose states fit into memory."""
        return blocks(len(x), self.module.bytes_per_text(x), x.device)

    def words(self, x: Tensor) -> Tensor:
        """Positions of words [N, W] in the vocabulary; any for -1."""
        positions: Tensor = self.module.word_of(x)
        return positions

    def relevance(self, x: Tensor, answer: Answer) -> Tensor:
        """Relevance [n, W] of the words of texts, by the linear rule at the head."""
        run = self.run(x, None)
        return run.back(answer.multiplier().to(run.features)[None])[0]

    def run(self, x: Tensor, composite: Any, several: bool = False) -> Run:
        """Run the encoder under LRP."""
        from neonxc.lrp import LRP  # loads captum, which networks of tables do without

        def through(inputs: Tensor, tokens: Any, _: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
            network = _Embedded(self.module, tokens)
            recording = LRP(network, composite or default_composite()).record(inputs, several)
            return recording.output, recording.propagate

        return self._run(x, through)

    def between(self, base: Any, x: Tensor, share: Any, composite: Any) -> Run:
        """Run the encoder a share of the way from the masked words to the words, to attribute the difference."""
        from neonxc.lrp.engine import LRP, named_cut  # loads captum, which networks of tables do without

        encoder = self.module
        mask = encoder.inputs(torch.tensor(encoder.tokenizer.mask_token_id, device=x.device)).detach()

        @torch.enable_grad()
        def through(inputs: Tensor, tokens: Any, texts: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
            network = _Embedded(encoder, tokens)
            change = (inputs - mask) * (tokens.word >= 0)[..., None]
            of_words = share
            if isinstance(share, Tensor):  # of every word
                of_words = share[texts].gather(1, tokens.word.clamp(min=0))[..., None].to(inputs)
            at = inputs - (1 - of_words) * change
            if composite is not None:
                recording = LRP(network, composite).record(at)
                return recording.output, lambda start: change * recording.multiplier(start)
            at.requires_grad_()
            output = evaluated(network, at, compare=False)

            def slopes(start: Tensor) -> Tensor:
                with named_cut(network, at):
                    return change * torch.autograd.grad(output, at, start)[0]

            return output, slopes

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

        def of_words(start: Tensor) -> Tensor:
            relevance = torch.zeros_like(x, dtype=start.dtype)
            for texts, word, back in batches:
                of_tokens = back(start[texts]).sum(2, dtype=start.dtype).masked_fill(word < 0, 0.0)
                relevance[texts] = relevance[texts].scatter_add(1, word.clamp(min=0), of_tokens)
            return relevance

        order = torch.cat([texts for texts, *_ in batches]).argsort()
        return Run(torch.cat(outputs)[order], lambda starts: torch.stack([*map(of_words, starts)]))


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
def default_composite() -> Any:
    """LRP-epsilon, with attention weights held constant, so that relevance sums to the logit up to biases."""
    from neonxc.lrp import Composite, Constant, Epsilon  # loads captum, which networks of tables do without

    return Composite(Epsilon(1e-6), functions={torch.softmax: Constant(), F.softmax: Constant()})
