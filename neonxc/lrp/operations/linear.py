"""Linear layers: convolutions, matrix products and BatchNorm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from neonxc.lrp.layer import LinearLayer, Rule
from neonxc.lrp.operations.registry import handles, nonzero

if TYPE_CHECKING:
    from neonxc.lrp.watch import Watch


@dataclass
class Recorded:
    """A linear layer of the forward pass, and what of its output the rule will need."""

    x: Tensor
    layer: LinearLayer
    rule: Callable[[], Rule]
    scale_outputs: Callable[[Tensor, Tensor], Tensor]  # the weight with its outputs scaled
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


def _layer(
    watch: Watch,
    owner: Tensor,
    layer: LinearLayer,
    scale_outputs: Callable[[Tensor, Tensor], Tensor],
    x: Tensor,
    compute: Callable[[], Tensor],
) -> Tensor:
    if watch.several:
        layer.memory = {}
    return _record(watch, compute, Recorded(x, layer, watch.layers.rule(owner, x), scale_outputs))


@handles(torch.conv1d, torch.conv2d, torch.conv3d, what="the composite's rule")
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

    w, b = _constants(input, weight, bias)
    layer = LinearLayer(w, _column(b, n), apply, transpose, channels=-n - 1 if groups == 1 else None)
    return _layer(watch, weight, layer, _scale_rows, input, lambda: apply(input.detach(), w, b))


@handles(torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d, what="the composite's rule")
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
    stride, padding, output_padding, dilation = (_each(v, n) for v in (stride, padding, output_padding, dilation))

    def apply(x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
        return func(x, w, b, stride, padding, output_padding, groups, dilation)

    def scale_outputs(w: Tensor, scale: Tensor) -> Tensor:  # outputs are the second dimension, group by group
        grouped = w.unflatten(0, (groups, -1))
        return (grouped * scale.reshape(groups, 1, -1, *[1] * n)).flatten(0, 1)

    transpose = _transposed_convolution(stride, padding, dilation, True, output_padding, groups)
    w, b = _constants(input, weight, bias)
    layer = LinearLayer(w, _column(b, n), apply, transpose)
    return _layer(watch, weight, layer, scale_outputs, input, lambda: apply(input.detach(), w, b))


@handles(F.linear, what="the composite's rule")
def _linear(
    watch: Watch, func: Callable[..., Tensor], input: Tensor, weight: Tensor, bias: Tensor | None = None
) -> Tensor:
    w, b = _constants(input, weight, bias)
    layer = LinearLayer(w, _column(b, 0), F.linear, lambda m, w, x: m @ w, channels=-1)
    return _layer(watch, weight, layer, _scale_rows, input, lambda: F.linear(input.detach(), w, b))


def matrix_product(watch: Watch, func: Callable[..., Tensor], a: Tensor, b: Tensor) -> Tensor:
    """Give ``a @ b`` where one factor is made of the network's weights: a linear layer."""
    left = b.requires_grad  # the weight stands on the left
    x, weight = (b, a) if left else (a, b)

    def apply(x: Tensor, w: Tensor) -> Tensor:
        return w @ x if left else x @ w

    def transpose(m: Tensor, w: Tensor, x: Tensor) -> Tensor:
        pulled = w.mT @ m if left else m @ w.mT
        extra = m.ndim - max(x.ndim, w.ndim)
        return pulled.sum_to_size(*m.shape[:extra], *x.shape)

    (w,) = _constants(x, weight)
    last = (lambda w, s: w * s[:, None]) if left else (lambda w, s: w * s)
    layer = LinearLayer(w, 0.0, apply, transpose)
    return _layer(watch, weight, layer, last, x, lambda: apply(x.detach(), w))


@handles(
    F.batch_norm, torch.batch_norm, what="folded into the linear layer before it; elsewhere the composite's rule"
)
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
) -> Tensor:
    if training or running_mean is None or running_var is None:
        raise ValueError("LRP needs BatchNorm in eval mode; call .eval() on the network first")
    owner = running_mean if weight is None else weight
    mean, var, weight, bias = _constants(input, running_mean, running_var, weight, bias)
    value = input.detach()

    def compute() -> Tensor:
        return F.batch_norm(value, mean, var, weight, bias, False, momentum, eps)

    scale = torch.rsqrt(var + eps) * (1.0 if weight is None else weight)
    shift = (0.0 if bias is None else bias) - mean * scale
    n = input.ndim - 2
    source: Recorded | None = getattr(input, "_neonxc_layer", None)
    if source is not None and _channels_second(source.layer, input):
        old = source.layer
        folded = replace(
            old,
            weight=source.scale_outputs(old.weight, scale),
            bias=old.bias * _column(scale, n) + _column(shift, n),
            memory={} if watch.several else None,
        )
        return _record(watch, compute, Recorded(source.x, folded, source.rule, source.scale_outputs))

    def apply(x: Tensor, w: Tensor) -> Tensor:
        return x * _column(w, n)

    def transpose(m: Tensor, w: Tensor, x: Tensor) -> Tensor:
        return m * _column(w, n)

    layer = LinearLayer(scale, _column(shift, n), apply, transpose)
    return _layer(watch, owner, layer, torch.mul, input, compute)


def _channels_second(layer: LinearLayer, y: Tensor) -> bool:
    """Whether the outputs of a layer lie where BatchNorm has its channels; a matrix product's are the last."""
    return layer.weight.ndim > 2 or y.ndim == 2


def _transposed_convolution(
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    def transpose(m: Tensor, w: Tensor, x: Tensor) -> Tensor:
        shape = m.shape[: m.ndim - x.ndim] + x.shape
        several = m.ndim > x.ndim
        if several:  # explanations that share the forward pass: one large batch
            m, x = m.flatten(0, 1), x.new_empty(()).expand(shape).flatten(0, 1)
        pulled = torch.ops.aten.convolution_backward(
            m, x, w, None, stride, padding, dilation, transposed, output_padding, groups, [True, False, False]
        )[0]
        return pulled.reshape(shape) if several else pulled

    return transpose


def _scale_rows(weight: Tensor, scale: Tensor) -> Tensor:
    return weight * scale.reshape(-1, *[1] * (weight.ndim - 1))


def _column(values: Tensor | None, n: int) -> Any:
    """One value per channel, shaped to broadcast over n dimensions behind the channels."""
    return 0.0 if values is None else values.reshape(-1, *[1] * n)


def _constants(like: Tensor, *tensors: Tensor | None) -> list[Any]:
    """Parameters as constants in the type of the computation: a half-precision network is explained in float32."""
    return [None if t is None else t.detach().to(like.dtype) for t in tensors]


def _each(value: Any, n: int) -> list[int]:
    return [value] * n if isinstance(value, int) else list(value) * (n if len(value) == 1 else 1)
