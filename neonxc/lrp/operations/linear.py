"""Linear layers: convolutions, matrix products and BatchNorm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from neonxc.lrp.layer import LinearLayer, Rule
from neonxc.lrp.operations.attention import product
from neonxc.lrp.operations.registry import depends_on_input, handles, held, nonzero, varies

if TYPE_CHECKING:
    from neonxc.lrp.watch import Watch


_RULE = "the composite's rule; where the weight depends on the input as well, a product of two values"
_FOLDED = "folded into the linear layer before it; elsewhere the composite's rule"
_PARAMETERS = ("weight", "bias")


@dataclass
class Recorded:
    """A linear layer of the forward pass, and what of its output the rule will need."""

    x: Tensor
    layer: LinearLayer
    rule: Callable[[], Rule]
    scale_outputs: Callable[[Tensor, Tensor], Tensor] | None = None  # the weight with its outputs scaled
    outputs: int = 1  # dimension of y that those are
    y: Tensor | None = None
    uses: int = 0

    def used(self, y: Tensor) -> None:
        """Note that an operation takes the output: if it is the second, a ReLU is not alone any more."""
        self.uses += 1
        if self.layer.rectified:
            self.layer.rectified, self.y = False, y.detach()

    def rectify(self, y: Tensor) -> None:
        """Note that a ReLU takes the output; where it is 0 there can be no relevance, so the input may go."""
        if self.uses == 1:
            self.layer.rectified, self.y = True, y.detach()

    def pull(self, x: Tensor, m: Tensor) -> Tensor:
        """Multiplier at the input."""
        assert self.y is not None
        y = self.y
        if self.layer.memory is None:  # no further walk back: let go as soon as possible
            self.y = None
        return self.rule()(self.layer, x, y, m)


class Linear(torch.autograd.Function):
    """The value of a linear layer, through which multipliers come back by its rule."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, compute: Callable[[], Tensor], recorded: Recorded) -> Tensor:
        """Give y."""
        ctx.save_for_backward(x)
        ctx.recorded = recorded
        return compute()

    @staticmethod
    def backward(ctx: Any, m: Tensor) -> tuple[Tensor, None, None]:
        """Apply the rule."""
        (x,) = ctx.saved_tensors
        return ctx.recorded.pull(x, m), None, None


def _record(watch: Watch, compute: Callable[[], Tensor], recorded: Recorded) -> Tensor:
    result: Tensor = Linear.apply(recorded.x, lambda: nonzero(compute(), watch.tiny), recorded)
    recorded.y = result.detach()
    result._neonxc_layer = recorded  # type: ignore[attr-defined]  # for a BatchNorm or ReLU that may follow
    return result


def give(
    watch: Watch,
    owner: Tensor,
    layer: LinearLayer,
    x: Tensor,
    compute: Callable[[], Tensor],
    scale_outputs: Callable[[Tensor, Tensor], Tensor] | None = None,
    outputs: int = 1,
) -> Tensor:
    """Give the value of a linear layer, which takes its place among the others."""
    if watch.several:
        layer.memory = {}
    rule = watch.layers.rule(owner, x)
    return _record(watch, compute, Recorded(x, layer, rule, scale_outputs, outputs))


def _varying(
    watch: Watch,
    func: Callable[..., Tensor],
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    n: int,
    options: tuple[Any, ...] = (),
) -> Tensor:
    """Give a layer whose weight or bias depends on the input as well: a product of two values, and a sum."""
    arguments = (input, weight, None, *options)
    if not varies(weight):
        y = watch.run(func, *arguments)
    elif depends_on_input(weight) and depends_on_input(input):
        y = product(func, *arguments)
    elif depends_on_input(weight) or depends_on_input(input):
        y = func(*arguments)
    else:
        y = watch.hold(func, arguments, {}, held(weight))
    if bias is None:
        return y
    return watch.run(torch.add, y, watch.run(torch.reshape, bias, (-1, *[1] * n)))


@handles(torch.conv1d, torch.conv2d, torch.conv3d, what=_RULE, also=_PARAMETERS, gated=True)
def _convolution(
    watch: Watch,
    func: Callable[..., Tensor],
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    n = weight.ndim - 2
    if varies(weight) or varies(bias):
        return _varying(watch, func, input, weight, bias, n, (stride, padding, dilation, groups))
    stride, dilation = _each(stride, n), _each(dilation, n)
    sides = [0] * n  # of zeros that "same" puts at the far end only
    if padding == "same":
        total = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
        padding, sides = [t // 2 for t in total], [t % 2 for t in total]
    padding = _each(0 if padding == "valid" else padding, n)
    more = [size for side in reversed(sides) for size in (0, side)]

    def apply(x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
        return func(F.pad(x, more) if any(more) else x, w, b, stride, padding, dilation, groups)

    inner = _transposed_convolution(stride, padding, dilation, False, [0] * n, groups)

    def transpose(m: Tensor, w: Tensor, x: Tensor) -> Tensor:
        return F.pad(inner(m, w, F.pad(x, more)), [-size for size in more]) if any(more) else inner(m, w, x)

    w, b = constants(input, weight, bias)
    layer = LinearLayer(w, _column(b, n), apply, transpose, channels=-n - 1 if groups == 1 else None)
    return give(watch, weight, layer, input, lambda: apply(input.detach(), w, b), _scale_rows)


@handles(
    torch.conv_transpose1d,
    torch.conv_transpose2d,
    torch.conv_transpose3d,
    what=_RULE,
    also=_PARAMETERS,
    gated=True,
)
def _convolution_transpose(
    watch: Watch,
    func: Callable[..., Tensor],
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    n = weight.ndim - 2
    if varies(weight) or varies(bias):
        options = (stride, padding, output_padding, groups, dilation)
        return _varying(watch, func, input, weight, bias, n, options)
    stride, padding, output_padding, dilation = (_each(v, n) for v in (stride, padding, output_padding, dilation))

    def apply(x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
        return func(x, w, b, stride, padding, output_padding, groups, dilation)

    def scale_outputs(w: Tensor, scale: Tensor) -> Tensor:  # outputs are the second dimension, group by group
        grouped = w.unflatten(0, (groups, -1))
        return (grouped * scale.reshape(groups, 1, -1, *[1] * n)).flatten(0, 1)

    transpose = _transposed_convolution(stride, padding, dilation, True, output_padding, groups)
    w, b = constants(input, weight, bias)
    layer = LinearLayer(w, _column(b, n), apply, transpose)
    return give(watch, weight, layer, input, lambda: apply(input.detach(), w, b), scale_outputs)


@handles(F.linear, what=_RULE, also=_PARAMETERS, gated=True)
def _linear(
    watch: Watch, func: Callable[..., Tensor], input: Tensor, weight: Tensor, bias: Tensor | None = None
) -> Tensor:
    if varies(weight) or varies(bias):
        return _varying(watch, func, input, weight, bias, 0)
    w, b = constants(input, weight, bias)
    layer = LinearLayer(w, _column(b, 0), F.linear, lambda m, w, x: m @ w, channels=-1)
    return give(watch, weight, layer, input, lambda: F.linear(input.detach(), w, b), _scale_rows, outputs=-1)


@handles(F.batch_norm, what=_FOLDED)
def _batch_norm(
    watch: Watch,
    func: Callable[..., Tensor],
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *_: Any,
    **__: Any,
) -> Tensor:
    if training or running_mean is None or running_var is None:
        raise ValueError("LRP needs BatchNorm in eval mode; call .eval() on the network first")
    owner = running_mean if weight is None else weight
    mean, var, weight, bias = constants(input, running_mean, running_var, weight, bias)
    value = input.detach()

    def compute() -> Tensor:
        return F.batch_norm(value, mean, var, weight, bias, False, momentum, eps)

    scale = torch.rsqrt(var + eps) * (1.0 if weight is None else weight)
    shift = (0.0 if bias is None else bias) - mean * scale
    n = input.ndim - 2
    source: Recorded | None = getattr(input, "_neonxc_layer", None)
    if source is not None and source.scale_outputs is not None and source.outputs % input.ndim == 1:
        old = source.layer
        folded = replace(
            old,
            weight=source.scale_outputs(old.weight, scale),
            bias=old.bias * _column(scale, n) + _column(shift, n),
            memory={} if watch.several else None,
        )
        return _record(watch, compute, replace(source, layer=folded, y=None, uses=0))

    def apply(x: Tensor, w: Tensor) -> Tensor:
        return x * _column(w, n)

    def transpose(m: Tensor, w: Tensor, x: Tensor) -> Tensor:
        return m * _column(w, n)

    layer = LinearLayer(scale, _column(shift, n), apply, transpose)
    return give(watch, owner, layer, input, compute, torch.mul)


@handles(torch.batch_norm, what=_FOLDED)
def _batch_norm_of_torch(
    watch: Watch,
    func: Callable[..., Tensor],
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    *options: Any,
    **named: Any,
) -> Tensor:
    return _batch_norm(watch, func, input, running_mean, running_var, weight, bias, *options, **named)


def _transposed_convolution(
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    def transpose(m: Tensor, w: Tensor, x: Tensor) -> Tensor:
        pulled: Tensor = torch.ops.aten.convolution_backward(
            m, x, w, None, stride, padding, dilation, transposed, output_padding, groups, [True, False, False]
        )[0]
        return pulled

    return transpose


def _scale_rows(weight: Tensor, scale: Tensor) -> Tensor:
    return weight * scale.reshape(-1, *[1] * (weight.ndim - 1))


def _column(values: Tensor | None, n: int) -> Any:
    """One value per channel, shaped to broadcast over n dimensions behind the channels."""
    return 0.0 if values is None else values.reshape(-1, *[1] * n)


def constants(like: Tensor, *tensors: Tensor | None) -> list[Any]:
    """Parameters as constants in the type of the computation: a half-precision network is explained in float32."""
    return [None if t is None else t.detach().to(like.dtype) for t in tensors]


def _each(value: Any, n: int) -> list[int]:
    return [value] * n if isinstance(value, int) else list(value) * (n if len(value) == 1 else 1)
