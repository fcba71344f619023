"""Linear layers on record, and the constant scales and shifts per channel that become a part of them.

A scale and a shift per channel, whether BatchNorm computes them or a network's own code, are the same function as
other weights and another bias of the linear layer before them, and therefore have the same relevance. Without a
linear layer before them they are a layer of their own. At the network's input, those of its own code normalize it,
as if that were done outside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from neonxc.lrp.channel_map import ChannelMap
from neonxc.lrp.layer import CustomBackward, LinearLayer, RecordedLayer, Scaling, replace_zeros
from neonxc.lrp.tensor_info import requiring_grad
from neonxc.lrp.tensor_table import check_eval, function_name, operation
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
    outputs: int = 1,
) -> Tensor:
    """Compute the output of a linear layer, and register the layer."""
    rule = tracer.layers.rule(tracer.tensors[owner].owner, owner, x)
    return _record(tracer, compute, RecordedLayer(x, layer, rule, scale_outputs, outputs))


def _record(tracer: Tracer, compute: Callable[[], Tensor], recorded: RecordedLayer) -> Tensor:
    recorded.layer.memory = {} if tracer.several else None
    x = recorded.x
    at_rule = tracer.tensors.without_zeros(x)
    result = CustomBackward.apply(x, lambda: (compute(), at_rule), recorded.backward)
    recorded.y = result.detach()
    if tracer.tiny and (zeros := result == 0).any():
        recorded.y = _without_zeros(recorded, at_rule, zeros, tracer.tiny)
        tracer.keep_without_zeros(result, recorded.y)
    tracer.tensors.update(result, layer=recorded)  # a following scale, shift or ReLU looks it up
    return result


@torch.no_grad()
def _without_zeros(recorded: RecordedLayer, x: Tensor, zeros: Tensor, tiny: float) -> Tensor:
    """The output of a layer, where it is zero that of its input without zeros: W x + b."""
    assert recorded.y is not None
    layer = recorded.layer
    return replace_zeros(torch.where(zeros, layer.apply(x, layer.weight) + layer.bias, recorded.y), tiny)


@operation("batch_norm", _FOLDED)
def _batch_norm(
    tracer: Tracer,
    func: Callable[..., Tensor],
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
    scale = torch.rsqrt(var + eps) * (1.0 if w is None else w)
    shift = (0.0 if b is None else b) - mean * scale
    scale, shift = (column(values, input.ndim - 2) for values in (scale, shift))
    return scaled_and_shifted(tracer, input, y, scale, shift, running_mean if weight is None else weight)


@operation("neg __neg__ negative", "as a product with -1")
def _negative(tracer: Tracer, func: Callable[..., Tensor], input: Tensor) -> Tensor:
    return scaled_and_shifted(tracer, input, tracer.plain(func, (input,), {}), -1, None)


@operation("add __add__ __radd__ sub subtract __sub__ __rsub__ rsub", _SHIFTS, "several")
def _shift(tracer: Tracer, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    y = tracer.plain(func, args, kwargs)
    name = function_name(func)
    if len(requiring_grad((args, kwargs))) > 1:
        return y
    first, second = operands(args, {**kwargs})
    if "rsub" in name:
        first, second = second, first
    factor = kwargs.get("alpha", 1) * (-1 if "sub" in name else 1)
    if not requiring_grad(first):
        return scaled_and_shifted(tracer, second, y, None if factor == 1 else factor, first)
    shift = factor * second
    if isinstance(second, Tensor):
        tracer.tensors.in_place_of(second, shift)
    return scaled_and_shifted(tracer, first, y, None, shift)


def scaled_and_shifted(
    tracer: Tracer, x: Tensor, y: Tensor, scale: Any, shift: Any, owner: Tensor | None = None
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
    table = tracer.tensors
    if y.shape != x.shape:
        return y
    if table[x].pixels and owner is None:  # BatchNorm, which is trained, is a layer
        return _normalized_input(tracer, x, y)
    if table.varies(scale) or (table[x].rescaled and owner is None):
        table.update(y, rescaled=True)  # as in LayerNorm, whose bias absorbs its share
        return y
    if table.varies(shift):
        return y
    if owner is None and isinstance(scale, Tensor):
        owner = scale
    alone = ChannelMap(x)
    steps = (table[x].channel_map or alone).then(scale, shift, owner) or alone.then(scale, shift, owner)
    if steps is None:
        return y
    before = table[steps.source].layer
    if before is not None and (folded := steps.folded(before)) is not None:
        return _record(tracer, y.detach, folded)
    if (layer := steps.alone()) is not None:
        owner = layer.weight if steps.owner is None else steps.owner
        return linear_output(tracer, owner, layer, steps.source, y.detach, torch.mul)
    table.update(y, channel_map=steps)
    return y


def _normalized_input(tracer: Tracer, x: Tensor, y: Tensor) -> Tensor:
    """Pass relevance unchanged through a normalization of the network's input, as if it were done outside."""
    y = tracer.elementwise(x, y.detach(), tracer.tensors.without_zeros(y))
    tracer.shifted = True
    tracer.tensors.update(y, pixels=True)
    return y


def constants(like: Tensor, *tensors: Tensor | None) -> list[Any]:
    """Parameters as constants in the dtype of the computation, which is float32 for half-precision networks."""
    return [None if t is None else t.detach().to_dense().to(like.dtype) for t in tensors]


def column(values: Tensor | None, n: int) -> Any:
    """Reshape one value per channel to broadcast over the n dimensions after the channels."""
    return 0.0 if values is None else values.reshape(-1, *[1] * n)


def operands(args: Any, kwargs: Any) -> tuple[Any, ...]:
    """Operands by position; keyword operands are removed from `kwargs`."""
    return (*args, *(kwargs.pop(name) for name in _KEYWORDS.split() if name in kwargs))
