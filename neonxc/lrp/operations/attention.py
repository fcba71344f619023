"""Attention, by the rules of AttnLRP.

Softmax follows its gradient: with ``m = R / s`` at the output that is the rule from its Taylor expansion,
``R_i = x_i (R_i - s_i sum_j R_j)``. In a product of two values that both depend on the input each factor gets
half of the relevance. (R. Achtibat et al., "AttnLRP: attention-aware layer-wise relevance propagation for
transformers", ICML 2024.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from neonxc.lrp.table import bound, check_eval, operation
from neonxc.lrp.watch import Watch


@operation(
    "scaled_dot_product_attention",
    "matrix products and softmax; each factor of a product gets half of its relevance",
    "several",
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
    check_eval(dropout_p > 0, "dropout")
    if enable_gqa:
        key, value = (x.repeat_interleave(query.shape[-3] // x.shape[-3], -3) for x in (key, value))
    return _attention(watch, query, key, value, attn_mask, is_causal, scale)[0]


def _attention(
    watch: Watch,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    is_causal: bool = False,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Values and weights."""
    scores = watch.run(torch.matmul, query * (query.shape[-1] ** -0.5 if scale is None else scale), key.mT)
    if is_causal and mask is None:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
        blind = (scores.detach() == -math.inf).all(-1, keepdim=True)  # queries that see no key at all get nothing
        weights = watch.run(F.softmax, scores.masked_fill(blind, 0.0), -1).masked_fill(blind, 0.0)
    else:
        weights = watch.run(F.softmax, scores, -1)
    return watch.run(torch.matmul, weights, value), weights


@operation("multi_head_attention_forward", "linear layers around attention", "several")
def _multi_head(watch: Watch, func: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    """Sequences are [tokens, N, d] or, without a batch, [tokens, d]."""
    call = bound(func, args, kwargs)
    if call.add_zero_attn or any(t is not None for t in (call.bias_k, call.static_k, call.static_v)):
        raise watch.unsupported("MultiheadAttention with bias_k, add_zero_attn or static keys")
    check_eval(call.training and call.dropout_p > 0, "dropout")
    biases = (None,) * 3 if call.in_proj_bias is None else call.in_proj_bias.chunk(3)
    weights = call.q_proj_weight, call.k_proj_weight, call.v_proj_weight
    if not call.use_separate_proj_weight:
        weights = call.in_proj_weight.chunk(3)
        for weight in weights:
            watch.known.derive(weight, [call.in_proj_weight])
    q, k, v = (
        watch.run(F.linear, x, w, b).unflatten(-1, (call.num_heads, -1)).movedim(0, -2)  # [(N,) heads, tokens, d]
        for x, w, b in zip((call.query, call.key, call.value), weights, biases, strict=True)
    )
    values, attention = _attention(watch, q, k, v, _merged_mask(call.attn_mask, call.key_padding_mask, q))
    y = watch.run(F.linear, values.movedim(-2, 0).flatten(-2), call.out_proj_weight, call.out_proj_bias)
    if not call.need_weights:
        return y, None
    return y, attention.mean(-3) if call.average_attn_weights else attention


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
