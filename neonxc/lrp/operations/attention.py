"""Attention, by the rules of AttnLRP.

Softmax follows its gradient: with ``m = R / s`` at the output that is the rule from its Taylor expansion,
``R_i = x_i (R_i - s_i sum_j R_j)``. In a product of two values that both depend on the input each factor gets
half of the relevance. (R. Achtibat et al., "AttnLRP: attention-aware layer-wise relevance propagation for
transformers", ICML 2024.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from neonxc.lrp.operations.registry import handles

if TYPE_CHECKING:
    from neonxc.lrp.watch import Watch


def product(func: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
    """Apply a product of two values that both depend on the input; each gets half of its relevance."""
    y = func(*args, **kwargs)
    if y.requires_grad:
        y.register_hook(lambda m: m / 2)
    return y


@handles(F.softmax, torch.softmax, Tensor.softmax, what="its gradient, the Taylor rule of AttnLRP")
def _softmax(watch: Watch, func: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
    return func(*args, **kwargs)


@handles(
    F.scaled_dot_product_attention,
    what="matrix products and softmax; each factor of a product gets half of its relevance",
    also=("key", "value", "attn_mask"),
)
def _attend(
    watch: Watch,
    func: Callable[..., Tensor],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    if dropout_p > 0:
        raise ValueError("LRP needs dropout in eval mode; call .eval() on the network first")
    return _attention(watch, query, key, value, attn_mask, is_causal, scale, enable_gqa)[0]


def _attention(
    watch: Watch,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[Tensor, Tensor]:
    if enable_gqa:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
        value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
    scores = watch.run(torch.matmul, query * (query.shape[-1] ** -0.5 if scale is None else scale), key.mT)
    if is_causal and mask is None:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
    weights = _softmax_or_zero(watch, scores) if mask is not None else watch.run(F.softmax, scores, -1)
    return watch.run(torch.matmul, weights, value), weights


def _softmax_or_zero(watch: Watch, scores: Tensor) -> Tensor:
    """Softmax, and zeros for a query that sees no key at all."""
    blind = (scores.detach() == -math.inf).all(-1, keepdim=True)
    weights: Tensor = watch.run(F.softmax, scores.masked_fill(blind, 0.0), -1)
    return weights.masked_fill(blind, 0.0)


@handles(
    F.multi_head_attention_forward,
    what="linear layers around attention",
    also=("key", "value", "attn_mask"),
)
def _multi_head(
    watch: Watch,
    func: Callable[..., Any],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Sequences are [tokens, N, d] or, without a batch, [tokens, d]."""
    if bias_k is not None or add_zero_attn or static_k is not None or static_v is not None:
        raise watch.unsupported("MultiheadAttention with bias_k, add_zero_attn or static keys")
    if training and dropout_p > 0:
        raise ValueError("LRP needs dropout in eval mode; call .eval() on the network first")
    biases = (None,) * 3 if in_proj_bias is None else in_proj_bias.chunk(3)
    weights: Any = (q_proj_weight, k_proj_weight, v_proj_weight)
    if not use_separate_proj_weight:
        assert in_proj_weight is not None
        weights = in_proj_weight.chunk(3)
        for part in weights:
            watch.layers.derive(part, [in_proj_weight])
    q, k, v = (
        watch.run(F.linear, x, w, b).unflatten(-1, (num_heads, -1)).movedim(0, -2)  # [(N,) heads, tokens, d]
        for x, w, b in zip((query, key, value), weights, biases, strict=True)
    )
    values, attention = _attention(watch, q, k, v, _merged_mask(attn_mask, key_padding_mask, q))
    y = watch.run(F.linear, values.movedim(-2, 0).flatten(-2), out_proj_weight, out_proj_bias)
    if not need_weights:
        return y, None
    return y, attention.mean(-3) if average_attn_weights else attention


def _merged_mask(attn_mask: Tensor | None, padding: Tensor | None, query: Tensor) -> Tensor | None:
    """One additive mask [(N,) heads or 1, queries, keys]; True in a boolean one means: not to be seen."""
    mask = None
    if attn_mask is not None:
        mask = _additive(attn_mask, query)
        mask = mask.unflatten(0, query.shape[:-2]) if mask.ndim == 3 else mask
    if padding is None:
        return mask
    hidden = _additive(padding, query)[..., None, None, :]
    return hidden if mask is None else mask + hidden


def _additive(mask: Tensor, like: Tensor) -> Tensor:
    if mask.dtype != torch.bool:
        return mask.to(like.dtype)
    return torch.zeros(mask.shape, dtype=like.dtype, device=like.device).masked_fill_(mask, -math.inf)
