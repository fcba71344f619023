"""Static embeddings: a text is the mean of vectors of its tokens, as ``StaticEmbedding`` of sentence-transformers.

For tokens t = 1..T of a text, without special tokens, with the vectors phi_t:

    x = 1/T sum_t phi_t,     and x = 0 for T = 0

This is a transformer without layers, whose last states are the token embeddings, behind which is the mean.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn


@dataclass(frozen=True)
class Sizes:
    """Sizes by the names that configurations of transformers have."""

    hidden_size: int
    num_hidden_layers: int = 1

    def get_text_config(self) -> Sizes:
        """Return the sizes of the part that reads texts, which is the whole model."""
        return self


class TokenVectors(nn.Module):
    """Vectors of tokens, which are called as a transformer is."""

    def __init__(self, n_tokens: int, n_dimensions: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(n_tokens, n_dimensions)
        self.config = Sizes(n_dimensions)

    @classmethod
    def of(cls, weight: nn.Parameter) -> TokenVectors:
        """Wrap vectors [tokens, d], which are not copied."""
        vectors = cls(0, weight.shape[1])
        vectors.embedding = nn.Embedding.from_pretrained(weight, freeze=False)
        return vectors

    def get_input_embeddings(self) -> nn.Embedding:
        """Return the layer that maps token numbers to vectors."""
        return self.embedding

    def forward(self, inputs_embeds: Tensor, attention_mask: Tensor) -> tuple[Tensor]:
        """Return the states [N, T, d], which are the embeddings themselves."""
        return (inputs_embeds,)


def plain_tokenizer(tokenizer: Any) -> tuple[Any, int | None]:
    """Make a tokenizer without special tokens around texts, and find its maximum number of tokens.

    Parameters
    ----------
    tokenizer : Tokenizer
        One of the package tokenizers, which stays as it is.
    """
    from tokenizers import Tokenizer  # optional
    from transformers import PreTrainedTokenizerFast  # optional

    description = json.loads(tokenizer.to_str())
    truncation = description["truncation"] or {}
    description |= {"post_processor": None, "truncation": None, "padding": None}
    plain = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(description)),
        truncation_side=truncation.get("direction", "right").lower(),
    )
    return plain, truncation.get("max_length")
