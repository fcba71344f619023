"""Operations that PyTorch composes of others: normalizations and attention.

The divisor of a normalization is a gate, which is held constant. Attention follows the rules of AttnLRP
(R. Achtibat et al., ICML 2024): softmax keeps its gradient, as with ``m = R / s`` at the output this is the rule
of its Taylor expansion, ``R_i = x_i (R_i - s_i sum_j R_j)``; in a product of two values that both depend on the
input, each factor gets half of the relevance. With values in brackets held constant, the operations are

    layer, group, instance norm    (x - mean x) [1 / sqrt(var x + eps)] w + b
    RMS norm                       x [1 / sqrt(mean x^2 + eps)] w
    normalize                      x / [max(norm of x, eps)]
    attention                      softmax(Q K' / sqrt(d) + mask) V
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from neonxc.lrp.layer import CustomBackward
from neonxc.lrp.operations.affine import constants
from neonxc.lrp.tensor_table import Function, UnsupportedOptions, arguments, check_eval, operation
from neonxc.lrp.tracer import Tracer

_WHAT = "the variance is held constant; subtracting the mean is linear; the bias absorbs its share"


@operation("layer_norm", _WHAT, "factors")
def _layer_norm(
    tracer: Tracer,
    func: Function,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *_: Any,
) -> Tensor:
    table = tracer.table
    if not input.requires_grad or table.depends_on_input(weight) or table.depends_on_input(bias):
        return tracer.run_composed(_varying_layer_norm, (input, normalized_shape, weight, bias, eps), {})

    # in one piece: written out, relevance of a ConvNeXt took 5% longer
    w, b = constants(input, weight, bias)
    dims = tuple(range(-len(normalized_shape), 0))

    def normalized(x: Tensor) -> tuple[Tensor, Tensor]:
        y, _, reciprocal = torch.native_layer_norm(x, normalized_shape, w, b, eps)
        return y, reciprocal

    def backward_rule(m: Tensor, reciprocal: Tensor) -> Tensor:
        if w is not None:
            m = m * w
        return (m - m.mean(dims, keepdim=True)).mul_(reciprocal)

    result: Tensor = CustomBackward.apply(input, lambda: normalized(input.detach()), backward_rule)
    table.update(result, is_rescaled=True)
    if table[input].without_zeros is not None:
        tracer.keep_without_zeros(result, normalized(table.without_zeros(input))[0])
    return result


def _varying_layer_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> Tensor:
    """Compute a layer norm whose weight or bias depends on the network's input."""
    return _affine(F.layer_norm(input, normalized_shape, eps=eps), weight, bias)


@operation("group_norm", _WHAT, "decomposed")
def _group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *_: Any,
) -> Tensor:
    groups = input.unflatten(1, (num_groups, -1))  # [N, groups, channels of a group, ...]
    y = F.layer_norm(groups, groups.shape[2:], eps=eps).flatten(1, 2)
    y = y.movedim(1, -1)  # channels last, as weight and bias are [C]
    return _affine(y, weight, bias).movedim(-1, 1)


@operation("instance_norm", _WHAT, "decomposed")
def _instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    if not use_input_stats:
        return F.batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    return _group_norm(input, input.shape[1], weight, bias, eps)


@operation("rms_norm", "the root mean square is held constant", "decomposed")
def _rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    dims = tuple(range(-len(normalized_shape), 0))
    mean_square = input.detach().square().mean(dims, keepdim=True)
    if eps is None:
        eps = torch.finfo(input.dtype).eps
    return _affine(input * torch.rsqrt(mean_square + eps), weight)


@operation("normalize", "the norm is held constant", "decomposed")
def _normalize(
    input: Tensor, p: float = 2.0, dim: int | tuple[int, ...] = 1, eps: float = 1e-12, out: None = None
) -> Tensor:
    norm = torch.linalg.vector_norm(input.detach(), p, dim=dim, keepdim=True)
    return input / norm.clamp(min=eps)


_MEAN = "the variance or standard deviation is held constant; the mean is linear"


@operation("var_mean", _MEAN, "decomposed")
def _var_mean(input: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
    return torch.var(input, *args, **kwargs), _mean_beside(input, *args, **kwargs)


@operation("std_mean", _MEAN, "decomposed")
def _std_mean(input: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
    return torch.std(input, *args, **kwargs), _mean_beside(input, *args, **kwargs)


def _mean_beside(
    input: Tensor,
    dim: int | Sequence[int] | bool | None = None,
    unbiased: bool = True,
    keepdim: bool = False,
    **_: Any,
) -> Tensor:
    """Return the mean with the arguments of `var_mean`, of which the second one may be `unbiased`."""
    if dim is None or isinstance(dim, bool):
        dims = list(range(input.ndim))
    elif isinstance(dim, int):
        dims = [dim]
    else:
        dims = list(dim)
    return input.mean(dims, keepdim=keepdim)


def _affine(x: Tensor, weight: Tensor | None, bias: Tensor | None = None) -> Tensor:
    """Compute ``x weight + bias``, number by number; either may be missing."""
    if weight is not None:
        x = x * weight
    if bias is not None:
        x = x + bias
    return x


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
    if enable_gqa:  # groups of heads of the queries have the same keys and values
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
        value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
    if is_causal and attn_mask is None:
        attn_mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()
    return _attention_weights(query, key, attn_mask, scale) @ value


def _attention_weights(query: Tensor, key: Tensor, mask: Tensor | None, scale: float | None = None) -> Tensor:
    """Compute ``softmax(scale Q K' + mask)`` [..., queries, keys], by default for the scale 1 / sqrt(d)."""
    if scale is None:
        scale = query.shape[-1] ** -0.5
    scores = query * scale @ key.mT
    if mask is None:
        return F.softmax(scores, -1)

    if mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, -math.inf)
    else:
        scores = scores + mask
    # queries without any key, of which softmax is NaN, attend to nothing
    is_masked = (scores.detach() == -math.inf).all(-1, keepdim=True)
    weights = F.softmax(scores.masked_fill(is_masked, 0.0), -1)
    return weights.masked_fill(is_masked, 0.0)


@operation("multi_head_attention_forward", "linear layers around attention", "decomposed")
def _multi_head(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    """Multi-head attention of sequences [tokens, N, d] or, without a batch, [tokens, d]."""
    options = SimpleNamespace(**arguments(F.multi_head_attention_forward, args, kwargs))
    unsupported = (options.bias_k, options.static_k, options.static_v)
    if options.add_zero_attn or any(value is not None for value in unsupported):
        raise UnsupportedOptions("MultiheadAttention with bias_k, add_zero_attn or static keys")
    check_eval(options.training and options.dropout_p > 0, "drops units at random")

    biases = (None, None, None)
    if options.in_proj_bias is not None:
        biases = options.in_proj_bias.chunk(3)
    if options.use_separate_proj_weight:
        weights = (options.q_proj_weight, options.k_proj_weight, options.v_proj_weight)
    else:
        weights = options.in_proj_weight.chunk(3)
    heads = []
    for x, weight, bias in zip((options.query, options.key, options.value), weights, biases, strict=True):
        projected = F.linear(x, weight, bias).unflatten(-1, (options.num_heads, -1))
        heads.append(projected.movedim(0, -2))  # [(N,) heads, tokens, d]
    query, key, value = heads

    mask = _merged_mask(options.attn_mask, options.key_padding_mask, query)
    attention = _attention_weights(query, key, mask)
    joined = (attention @ value).movedim(-2, 0).flatten(-2)
    y = F.linear(joined, options.out_proj_weight, options.out_proj_bias)
    if not options.need_weights:
        return y, None
    if options.average_attn_weights:
        attention = attention.mean(-3)
    return y, attention


def _merged_mask(attn_mask: Tensor | None, padding: Tensor | None, query: Tensor) -> Tensor | None:
    """Return one additive mask [(N,) heads or 1, queries, keys]; True in a boolean mask hides a key."""
    mask = None
    if attn_mask is not None:
        mask = _additive(attn_mask, query)
        if mask.ndim == 3:  # [N heads, queries, keys]
            mask = mask.unflatten(0, query.shape[:-2])
    if padding is None:
        return mask
    hidden = _additive(padding, query)[..., None, None, :]
    return hidden if mask is None else mask + hidden


def _additive(mask: Tensor, like: Tensor) -> Tensor:
    """Return a mask to add to scores: a boolean one is -inf where it is True."""
    if mask.dtype != torch.bool:
        return mask.to(like.dtype)
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill_(mask, -math.inf)
