"""Operations that relevance passes through: elementwise activations, and those that add, move or select values."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from neonxc.lrp.channel_map import ChannelMap
from neonxc.lrp.layer import CustomBackward, RecordedLayer, quotient
from neonxc.lrp.layer_names import UnsupportedOperation
from neonxc.lrp.operations.affine import SUMS
from neonxc.lrp.tensor_info import requiring_grad
from neonxc.lrp.tensor_table import DETACHING, Function, check_eval, function_name, operation
from neonxc.lrp.tracer import Tracer

_PASS = "relevance passes unchanged: the multiplier is scaled by `a(z) / z`"


@operation("relu", _PASS)
def _relu(tracer: Tracer, func: Function, input: Tensor) -> Tensor:
    if tracer.tiny:  # relevance may reach zeros of the output
        return _elementwise(tracer, torch.relu, input)
    y = torch.relu(input)
    layer = tracer.table[input].layer
    if layer is not None:
        layer.followed_by_relu(y)
    return y


@operation(
    "hardswish leaky_relu elu celu selu gelu silu mish prelu rrelu softsign tanh tanhshrink hardshrink softshrink",
    _PASS,
)
def _activation(tracer: Tracer, func: Function, input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Compute an activation with f(0) = 0: after a linear layer, the layer's rule passes both at once."""
    layer = tracer.table[input].layer
    if layer is None or tracer.tiny:
        return _elementwise(tracer, func, input, *args, **kwargs)
    return layer_activation(layer, input, func(input.detach(), *args, **kwargs))


def layer_activation(layer: RecordedLayer, x: Tensor, y: Tensor) -> Tensor:
    """Return an activation y of the output x of a layer.

    If nothing else uses x, the layer's rule starts with the multiplier of y, and no quotient y / x is needed.
    """
    before = x.detach()
    after = y.detach()  # not `y` itself, whose graph will hold the function below
    layer.followed_by_activation(after)

    def backward_rule(m: Tensor) -> Tensor:
        if layer.activated is after:
            return m
        ratio = layer.layer.remember(id(after), lambda: quotient(after, before))
        return m * ratio

    result: Tensor = CustomBackward.apply(x, lambda: (y,), backward_rule)
    return result


@operation("softplus threshold clamp clip clamp_min clamp_max", _PASS)
@operation("local_response_norm", "the divisor is held constant")
def _elementwise(tracer: Tracer, func: Function, input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    y = func(input.detach(), *args, **kwargs)
    rule_input = tracer.table[input].without_zeros
    if rule_input is None:
        return tracer.elementwise(input, y, y)
    return tracer.elementwise(input, y, func(rule_input, *args, **kwargs))


@operation("relu6 hardtanh", _PASS)
def _clipped(tracer: Tracer, func: Function, input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    layer = tracer.table[input].layer
    at_negative = func(torch.tensor(-1.0), *args, **kwargs)
    is_rectifier = at_negative == 0  # negative outputs have no relevance
    if layer is None or not is_rectifier or tracer.tiny:
        return _elementwise(tracer, func, input, *args, **kwargs)
    layer.followed_by_relu(torch.relu(input))
    return layer_activation(layer, input, func(input.detach(), *args, **kwargs))


@operation("glu", "the gate is held constant", "decomposed")
def _glu(input: Tensor, dim: int = -1) -> Tensor:
    value, gate = input.chunk(2, dim)
    return value * torch.sigmoid(gate)


@operation(
    "dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout feature_dropout",
    "identity in eval mode",
    "decomposed",
)
def _dropout(input: Tensor, p: float = 0.5, training: bool = True, **train: bool) -> Tensor:
    is_training = train.get("train", training)  # the name that functions of `torch` use
    check_eval(is_training and p > 0, "drops units at random")
    return input


_MOVES = "relevance moves with the values"
COPYING = "clone", "contiguous", "to", "type", "type_as", "float", "double"


@operation(
    "view view_as reshape reshape_as ravel flatten unflatten squeeze unsqueeze permute transpose movedim moveaxis "
    "swapaxes swapdims t T mT mH H adjoint flip fliplr flipud rot90 roll __getitem__ select narrow index_select "
    "gather take take_along_dim split split_with_sizes hsplit vsplit dsplit tensor_split chunk unbind diagonal "
    "expand expand_as broadcast_to repeat repeat_interleave tile contiguous clone to type type_as float double "
    "half bfloat16 cpu cuda pixel_shuffle pixel_unshuffle channel_shuffle unfold fold as_strided",
    _MOVES,
    "several",
)
def _move(tracer: Tracer, func: Function, *args: Any, **kwargs: Any) -> Any:
    y = tracer.plain(func, args, kwargs)
    sources = requiring_grad((args, kwargs))
    if not isinstance(y, Tensor) or len(sources) != 1:
        return y
    (x,) = sources
    table = tracer.table
    if table[x].is_input:
        table.update(y, is_input=True)
    elif function_name(func) in COPYING and y.dtype == x.dtype:
        channel_map = table[x].channel_map or ChannelMap(x)
        table.update(y, channel_map=channel_map, is_rescaled=table[x].is_rescaled)
    return y


@operation("positive sum mean cumsum diff", SUMS, "several")
@operation(
    "cat concat concatenate stack hstack vstack dstack column_stack row_stack scatter_add index_add "
    "index_copy index_put select_scatter slice_scatter diag_embed pad where masked_fill fill tril triu "
    "max_unpool1d max_unpool2d max_unpool3d _with_item _copied",
    _MOVES,
    "several",
)
@operation(
    "avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d max_pool1d "
    "max_pool2d max_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d max_pool1d_with_indices "
    "max_pool2d_with_indices max_pool3d_with_indices adaptive_max_pool1d_with_indices "
    "adaptive_max_pool2d_with_indices adaptive_max_pool3d_with_indices",
    "average pooling shares in proportion to the values; max pooling gives all to the maximum",
    "several",
)
@operation("max min amax amin maximum minimum topk sort", "relevance goes to the selected values", "several")
@operation("interpolate upsample upsample_nearest upsample_bilinear", "in proportion to the values", "several")
@operation("grid_sample", "in proportion to the values")
@operation(" ".join(DETACHING), "the result is a constant, as under `torch.no_grad()`")
@operation("softmax", "the gradient, which is the Taylor rule of AttnLRP")
def _plain(tracer: Tracer, func: Function, *args: Any, **kwargs: Any) -> Any:
    return tracer.plain(func, args, kwargs)


@operation("scatter", _MOVES, "several")
def _scatter(tracer: Tracer, func: Function, *args: Any, **kwargs: Any) -> Any:
    positional = dict(zip(("input", "dim", "index", "src", "reduce"), args, strict=False))
    reduce = kwargs.pop("reduce", positional.get("reduce"))
    if reduce is None:
        return tracer.plain(func, args, kwargs)
    # PyTorch has no gradient of a scatter with a reduction; sums are those of scatter_add, which has one
    source = kwargs.get("src", positional.get("src"))
    if reduce != "add" or not isinstance(source, Tensor):
        raise UnsupportedOperation(
            f"LRP has no rule for 'scatter' with reduce={reduce!r}, called {tracer.layers.call_site()}; use "
            "scatter_add, or write it out in operations that have one"
        )
    return tracer.run(torch.scatter_add, *args[:4], **kwargs)


@operation(
    "scatter_reduce index_reduce segment_reduce",
    "sums and means share in proportion to the values; relevance of a maximum or minimum goes to the selected "
    "values; products are gates, held constant",
    "several",
)
def _reduced(tracer: Tracer, func: Function, *args: Any, **kwargs: Any) -> Any:
    options = [value for value in (*args, *kwargs.values()) if isinstance(value, str)]
    if "prod" in options:
        return tracer.as_gate(func, args, kwargs)
    return tracer.plain(func, args, kwargs)
