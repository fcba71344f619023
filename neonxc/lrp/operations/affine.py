"""Linear layers on record, and the constant scales and shifts per channel that become a part of them.

A scale and a shift per channel, whether BatchNorm computes them or a network's own code, are the same function as
other weights and another bias of the linear layer before them, and therefore have the same relevance:

    after y = W x + b             scale (W x + b) + shift = (scale W) x + (scale b + shift)
    after no linear layer         a layer of its own, with the weight diag(scale) and the bias shift
    at the network's input        a normalization by the network's own code, as if that were done outside:
                                  relevance passes unchanged, m_x = m_y y / x
    BatchNorm                     scale = w / sqrt(var + eps), shift = b - mean scale
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from neonxc.lrp.channel_map import ChannelMap, Factor
from neonxc.lrp.layer import CustomBackward, LinearLayer, RecordedLayer, Scaling, replace_zeros
from neonxc.lrp.tensor_info import requiring_grad
from neonxc.lrp.tensor_table import Arguments, Function, Keywords, check_eval, function_name, operation
from neonxc.lrp.tracer import Tracer

SUMS = "in proportion to the summands; a constant absorbs its share"
_SHIFTS = f"{SUMS}, but one value per channel after a linear layer is a part of its bias"
_KEYWORDS = "input a b mat2 batch2 other vec vec2 tensor input1 input2 weight"  # of operands
_FOLDED = "folded into the linear layer before it; the composite's rule if there is none"


def linear_output(
    tracer: Tracer,
    owner: Tensor,
    layer: LinearLayer,
    x: Tensor,
    compute: Callable[[], Tensor],
    scale_outputs: Scaling | None = None,
    output_dimension: int = 1,
) -> Tensor:
    """Compute the output of a linear layer, and register the layer.

    The rule is that of the module that owns the parameter or buffer `owner`.
    """
    rule = tracer.layers.rule(tracer.table[owner].owner, owner, x)
    recorded = RecordedLayer(x, layer, rule, scale_outputs, output_dimension)
    return _record(tracer, compute, recorded)


def _record(tracer: Tracer, compute: Callable[[], Tensor], recorded: RecordedLayer) -> Tensor:
    """Compute the output of a layer, with a backward pass that applies its rule."""
    recorded.layer.memory = {} if tracer.several else None
    x = recorded.x
    rule_x = tracer.table.without_zeros(x)
    result: Tensor = CustomBackward.apply(x, lambda: (compute(), rule_x), recorded.backward)
    recorded.y = result.detach()
    if tracer.tiny:
        is_zero = result == 0
        if is_zero.any():
            recorded.y = _without_zeros(recorded, rule_x, is_zero, tracer.tiny)
            tracer.keep_without_zeros(result, recorded.y)
    tracer.table.update(result, layer=recorded)  # a following scale, shift or ReLU looks it up
    return result


@torch.no_grad()
def _without_zeros(recorded: RecordedLayer, x: Tensor, is_zero: Tensor, tiny: float) -> Tensor:
    """Return the output of a layer or, where that is zero, the output W x + b for the input without zeros."""
    assert recorded.y is not None
    layer = recorded.scaled()
    y = layer.apply(x, layer.weight) + layer.bias
    return replace_zeros(torch.where(is_zero, y, recorded.y), tiny)


@operation("batch_norm", _FOLDED)
def _batch_norm(
    tracer: Tracer,
    func: Function,
    input: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    check_eval(training or running_mean is None or running_var is None, "normalizes by the batch")
    mean, var, w, b = constants(input, running_mean, running_var, weight, bias)
    y = tracer.plain(F.batch_norm, (input, mean, var, w, b, False, momentum, eps), {})

    # (x - mean) / sqrt(var + eps) w + b, as scale x + shift
    scale = torch.rsqrt(var + eps)
    if w is not None:
        scale = scale * w
    offset = 0.0 if b is None else b
    shift = offset - mean * scale

    n = input.ndim - 2
    owner = running_mean if weight is None else weight
    return scaled_and_shifted(tracer, input, y, column(scale, n), column(shift, n), owner)


@operation("neg __neg__ negative", "as a product with -1")
def _negative(tracer: Tracer, func: Function, input: Tensor) -> Tensor:
    y = tracer.plain(func, (input,), {})
    return scaled_and_shifted(tracer, input, y, -1, None)


@operation("add __add__ __radd__ sub subtract __sub__ __rsub__ rsub", _SHIFTS, "several")
def _shift(tracer: Tracer, func: Function, *args: Any, **kwargs: Any) -> Any:
    y = tracer.plain(func, args, kwargs)
    name = function_name(func)
    if len(requiring_grad((args, kwargs))) > 1:
        return y
    first, second = operands(args, {**kwargs})
    if "rsub" in name:
        first, second = second, first

    # y = first + factor second
    factor = kwargs.get("alpha", 1)
    if "sub" in name:
        factor = factor * -1
    if requiring_grad(first):
        shift = factor * second
        if isinstance(second, Tensor):
            tracer.table.in_place_of(second, shift)
        return scaled_and_shifted(tracer, first, y, None, shift)
    scale = None if factor == 1 else factor
    return scaled_and_shifted(tracer, second, y, scale, first)


def scaled_and_shifted(
    tracer: Tracer, x: Tensor, y: Tensor, scale: Factor, shift: Factor, owner: Tensor | None = None
) -> Tensor:
    """Return ``y = scale * x + shift`` with its LRP backward pass; `y` has that of autograd.

    Parameters
    ----------
    tracer : Tracer
    x, y : Tensor [N, ...]
    scale, shift : number, Tensor or None
        Constants that broadcast with x; None for one that there is not.
    owner : Tensor, optional
        The parameter or buffer whose module's rule applies; default: `scale`.
    """
    table = tracer.table
    if y.shape != x.shape:
        return y
    if table[x].is_input and owner is None:  # BatchNorm, which is trained, is a layer
        return _normalized_input(tracer, x, y)
    if table.varies(scale) or (table[x].is_rescaled and owner is None):
        # as in LayerNorm, whose bias absorbs relevance
        table.update(y, is_rescaled=True)
        return y
    if table.varies(shift):
        return y
    if owner is None and isinstance(scale, Tensor):
        owner = scale

    # the constants since the last linear layer; if these are not by channel, the last ones alone
    channel_map = None
    earlier = table[x].channel_map
    if earlier is not None:
        channel_map = earlier.then(scale, shift, owner)
    if channel_map is None:
        channel_map = ChannelMap(x).then(scale, shift, owner)
    if channel_map is None:
        return y

    before = table[channel_map.source].layer
    folded = None if before is None else channel_map.folded(before)
    if folded is not None:
        return _record(tracer, y.detach, folded)
    layer = channel_map.alone()
    if layer is not None:
        owner = layer.weight if channel_map.owner is None else channel_map.owner
        return linear_output(tracer, owner, layer, channel_map.source, y.detach, torch.mul)
    table.update(y, channel_map=channel_map)
    return y


def _normalized_input(tracer: Tracer, x: Tensor, y: Tensor) -> Tensor:
    """Pass relevance unchanged through a normalization of the network's input, as if it were done outside."""
    y = tracer.elementwise(x, y.detach(), tracer.table.without_zeros(y))
    tracer.normalizes_input = True
    tracer.table.update(y, is_input=True)
    return y


def constants(like: Tensor, *tensors: Tensor | None) -> list[Any]:
    """Return parameters as constants in the dtype of the computation, float32 for half-precision networks."""
    return [None if t is None else t.detach().to_dense().to(like.dtype) for t in tensors]


def column(values: Tensor | None, n: int) -> Tensor | float:
    """Reshape one value per channel to broadcast over the n dimensions after the channels; no values are 0."""
    if values is None:
        return 0.0
    return values.reshape(-1, *[1] * n)


def operands(args: Arguments, kwargs: Keywords) -> Arguments:
    """Return operands by position; keyword operands are removed from `kwargs`."""
    named = [kwargs.pop(name) for name in _KEYWORDS.split() if name in kwargs]
    return (*args, *named)
