"""Operations that PyTorch composes of others: normalizations and attention.

The divisor of a normalization is a gate, which is held constant. Attention follows the rules of AttnLRP
(R. Achtibat et al., ICML 2024): softmax keeps its gradient, as with ``m = R / s`` at the output this is the rule
of its Taylor expansion, ``R_i = x_i (R_i - s_i sum_j R_j)``; in a product of two values that both depend on the
input, each factor gets half of the relevance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from neonxc.lrp.tensor_table import UnsupportedOptions, arguments, check_eval, operation

_WHAT = "the variance is held constant; subtracting the mean is linear; the bias absorbs its share"


@operation("layer_norm", _WHAT, "decomposed")
def _layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *_: Any,
) -> Tensor:
    return _affine(_standardized(input, range(-len(normalized_shape), 0), eps), weight, bias)


@operation("group_norm", _WHAT, "decomposed")
def _group_norm(
    input: Tensor, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any
) -> Tensor:
    groups = input.unflatten(1, (num_groups, -1))
    y = _standardized(groups, range(2, groups.ndim), eps).flatten(1, 2).movedim(1, -1)
    return _affine(y, weight, bias).movedim(-1, 1)


@operation("instance_norm", _WHAT, "decomposed")
def _instance_norm(
    input: Tensor,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    if not use_input_stats:
        return F.batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    return _group_norm(input, input.shape[1], weight, bias, eps)


@operation("rms_norm", "the root mean square is held constant", "decomposed")
def _rms_norm(input: Tensor, normalized_shape: Sequence[int], weight: Any = None, eps: Any = None) -> Tensor:
    square = input.detach().square().mean(tuple(range(-len(normalized_shape), 0)), keepdim=True)
    return _affine(input * torch.rsqrt(square + (torch.finfo(input.dtype).eps if eps is None else eps)), weight)


@operation("normalize", "the norm is held constant", "decomposed")
def _normalize(input: Tensor, p: float = 2.0, dim: Any = 1, eps: float = 1e-12, out: None = None) -> Tensor:
    return input / torch.linalg.vector_norm(input.detach(), p, dim=dim, keepdim=True).clamp(min=eps)


def _standardized(x: Tensor, dims: Sequence[int], eps: float) -> Tensor:
    variance = x.detach().var(tuple(dims), correction=0, keepdim=True)
    return (x - x.mean(tuple(dims), keepdim=True)) * torch.rsqrt(variance + eps)


def _affine(x: Tensor, weight: Any, bias: Any = None) -> Tensor:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


@operation(
    "scaled_dot_product_attention",
    "matrix products and softmax; each factor of a product gets half of its relevance",
    "decomposed",
)
def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    check_eval(dropout_p > 0, "drops units at random")
    if enable_gqa:
        key, value = (x.repeat_interleave(query.shape[-3] // x.shape[-3], -3) for x in (key, value))
    if is_causal and attn_mask is None:
        attn_mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()
    return _weights(query, key, attn_mask, scale) @ value


def _weights(query: Tensor, key: Tensor, mask: Tensor | None, scale: float | None = None) -> Tensor:
    scores = query * (query.shape[-1] ** -0.5 if scale is None else scale) @ key.mT
    if mask is None:
        return F.softmax(scores, -1)
    scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
    masked = (scores.detach() == -math.inf).all(-1, keepdim=True)  # queries without any key
    return F.softmax(scores.masked_fill(masked, 0.0), -1).masked_fill(masked, 0.0)


@operation("multi_head_attention_forward", "linear layers around attention", "decomposed")
def _multi_head(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    """Multi-head attention of sequences [tokens, N, d] or, without a batch, [tokens, d]."""
    of = SimpleNamespace(**arguments(F.multi_head_attention_forward, args, kwargs))
    if of.add_zero_attn or any(t is not None for t in (of.bias_k, of.static_k, of.static_v)):
        raise UnsupportedOptions("MultiheadAttention with bias_k, add_zero_attn or static keys")
    check_eval(of.training and of.dropout_p > 0, "drops units at random")
    biases = (None,) * 3 if of.in_proj_bias is None else of.in_proj_bias.chunk(3)
    weights = of.q_proj_weight, of.k_proj_weight, of.v_proj_weight
    if not of.use_separate_proj_weight:
        weights = of.in_proj_weight.chunk(3)
    q, k, v = (
        F.linear(x, w, b).unflatten(-1, (of.num_heads, -1)).movedim(0, -2)  # [(N,) heads, tokens, d]
        for x, w, b in zip((of.query, of.key, of.value), weights, biases, strict=True)
    )
    attention = _weights(q, k, _merged_mask(of.attn_mask, of.key_padding_mask, q))
    y = F.linear((attention @ v).movedim(-2, 0).flatten(-2), of.out_proj_weight, of.out_proj_bias)
    if not of.need_weights:
        return y, None
    return y, attention.mean(-3) if of.average_attn_weights else attention


def _merged_mask(attn_mask: Tensor | None, padding: Tensor | None, query: Tensor) -> Tensor | None:
    """One additive mask [(N,) heads or 1, queries, keys]; True in a boolean mask hides a key."""
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
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill_(mask, -math.inf)
