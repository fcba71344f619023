"""The interface of propagation rules, and the linear layers that they are applied to.

LRP is written as a backward pass over *multipliers*: a tensor with values a and relevance R has the multiplier

    m = R / a

Let ``m_x`` be the multiplier at the input of an operation, and ``m_y`` that at its output. Then

    y = x_1 + x_2                       m_x = m_y for both summands
    y = x reshaped, moved or pooled     m_x is the gradient
    y = f(x), elementwise               m_x = m_y y / x, so that relevance passes unchanged
    y = W x + b, a linear layer         m_x = rule(layer, x, y, m_y); LRP-0 is m_x = W' m_y, the gradient
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar, cast

import torch
from torch import Tensor

Scaling = Callable[[Tensor, Tensor], Tensor]
"""Function that scales the outputs of a layer by its weight: ``scaling(weight, scale)`` returns the new weight."""

Value = TypeVar("Value")


@dataclass
class LinearLayer:
    """A linear operation ``y = W x + b`` of a network: a convolution, matrix product or scaling of channels.

    Attributes
    ----------
    weight, bias : Tensor
        Parameters, with a following BatchNorm folded in. The bias has a shape that broadcasts over y.
    apply : callable
        ``apply(x, weight)`` computes ``W x``, without the bias.
    transpose : callable
        ``transpose(m, weight, x)`` computes ``W' m``, with the shape of x.
    channels : int or None
        The dimension of x that dimension 1 of the weight is contracted with; dimension 0 of the weight becomes the
        same dimension of y. Weights concatenated along dimension 1 can then be applied in one product. None where
        this does not hold (grouped convolutions, scalings).
    rectified : bool
        Whether the output is used by a ReLU or ReLU6 alone: negative outputs have no relevance, and y is stored as
        0 there.
    memory : dict or None
        Cache of :meth:`remember` between several backward passes; None if there is only one.
    """

    weight: Tensor
    bias: Tensor | float
    apply: Callable[[Tensor, Tensor], Tensor]
    transpose: Callable[[Tensor, Tensor, Tensor], Tensor]
    channels: int | None = None
    rectified: bool = False
    memory: dict[Hashable, Any] | None = None

    def remember(self, key: Hashable, compute: Callable[[], Value]) -> Value:
        """Return ``compute()``, cached if there are several backward passes.

        Parameters
        ----------
        key : hashable
            Name of the value in the cache of this layer.
        compute : callable
            Computes a value that depends on the forward pass alone.
        """
        if self.memory is None:
            return compute()
        if key not in self.memory:
            self.memory[key] = compute()
        value: Value = self.memory[key]
        return value


class PropagationRule(Protocol):
    """A propagation rule: a callable that computes the multiplier at a layer's input from that at its output.

    A rule that assigns relevance to inputs that are zero needs an attribute ``reaches_zeros = True``: rules then
    get tiny values in place of zeros, so that the multiplier (relevance / input) exists. The network itself goes
    on with the zeros.
    """

    def __call__(self, layer: LinearLayer, x: Tensor, y: Tensor, m: Tensor) -> Tensor:
        """Compute the multiplier at the input.

        Parameters
        ----------
        layer : LinearLayer
        x : Tensor
            Input of the layer.
        y : Tensor
            Output of the layer, bias included.
        m : Tensor
            Multiplier at the output, relevance / y, with the shape of y. Where several explanations are propagated
            at once, the rule is called under ``torch.vmap`` and sees one of them.

        Returns
        -------
        Tensor
            Multiplier at the input, relevance / x, with the shape of x.
        """


class ActivationRule(PropagationRule, Protocol):
    """A rule of this package that passes a layer and the activation after it at once; others take two steps."""

    def _through_activation(self, layer: LinearLayer, x: Tensor, y: Tensor, a: Tensor, m: Tensor) -> Tensor:
        """Compute the multiplier at the input from that at an activation ``a = f(y)``, so that ``m = R / a``."""


@dataclass
class RecordedLayer:
    """A linear layer of the forward pass, with its input and the output that its rule needs."""

    x: Tensor
    layer: LinearLayer
    rule: Callable[[], PropagationRule]  # looks up the rule, which is known once all layers have run
    scale_outputs: Scaling | None = None  # scales the weight so that the outputs are scaled
    output_dimension: int = 1  # the dimension of y that holds these outputs
    scale: Tensor | None = None  # [C], of the outputs, by which the weight is to be multiplied
    y: Tensor | None = None
    activated: Tensor | None = None  # the result of an activation if that alone uses y
    n_uses: int = 0

    def count_use(self, y: Tensor) -> None:
        """Count an operation that uses the output; after a second one, no activation uses it alone."""
        self.n_uses += 1
        self.activated = None
        if self.layer.rectified:
            self.layer.rectified = False
            self.y = y.detach()

    def followed_by_activation(self, activated: Tensor) -> None:
        """Register the result of an activation, which is 0 where its argument, the output, is."""
        if self.n_uses == 1:
            self.activated = activated

    def followed_by_relu(self, y: Tensor) -> None:
        """Register that a ReLU with result `y` uses the output; the ReLU's result replaces the stored output."""
        if self.n_uses == 1:
            self.layer.rectified = True
            self.y = y.detach()

    def scaled(self) -> LinearLayer:
        """Return the layer with its scale folded in."""
        if self.scale is None or self.scale_outputs is None:
            return self.layer
        return replace(self.layer, weight=self.scale_outputs(self.layer.weight, self.scale))

    def backward(self, m: Tensor, x: Tensor) -> Tensor:
        """Compute the multiplier at the input by the layer's rule."""
        assert self.y is not None
        layer = self.scaled()
        y = self.y
        activated = self.activated
        if layer.memory is None:  # this is the only backward pass: free memory early
            self.y = None
            self.activated = None
        else:
            self.layer = layer
            self.scale = None
        rule = self.rule()
        if activated is None:
            return rule(layer, x, y, m)
        if "_through_activation" in vars(type(rule)):  # not in a subclass, which may have another __call__
            return cast(ActivationRule, rule)._through_activation(layer, x, y, activated, m)
        ratio = layer.remember("activation", lambda: quotient(activated, y))
        return rule(layer, x, y, ratio * m)


def quotient(numerator: Tensor, denominator: Tensor) -> Tensor:
    """Divide two tensors; the quotient is 0 where the denominator is 0."""
    return (numerator / denominator).masked_fill_(denominator == 0, 0.0)


def has_negative(x: Tensor) -> bool:
    """Whether any value is negative."""
    return x.numel() > 0 and bool(x.amin() < 0)


class CustomBackward(torch.autograd.Function):
    """A value computed from x, with a function that computes the multiplier at x from that at the value.

    ``compute()`` returns the value and the tensors to save; ``backward_rule(m, *saved)`` returns the multiplier.
    Autograd carries multipliers in place of gradients, so that ``m`` arrives as the gradient of the value.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, compute: Callable[[], tuple[Tensor, ...]], backward_rule: Callable[..., Tensor]
    ) -> Tensor:
        """Compute the value."""
        y, *saved = compute()
        ctx.save_for_backward(*saved)
        ctx.backward_rule = backward_rule
        if y._base is not None:  # a view, as einsum returns: its base is not traced
            return y.clone()
        return y

    @staticmethod
    def backward(ctx: Any, m: Tensor) -> tuple[Tensor, None, None]:
        """Compute the multiplier at x."""
        multiplier = ctx.backward_rule(m, *ctx.saved_tensors)
        return multiplier, None, None  # `compute` and `backward_rule` have none


def tiny_value(dtype: torch.dtype) -> float:
    """Return a value to replace zeros which receive relevance, so that multipliers (relevance / value) are finite.

    It is the square root of the smallest normal number of the dtype.
    """
    return float(torch.finfo(dtype).tiny ** 0.5)


def replace_zeros(values: Tensor, zero_value: float) -> Tensor:
    """Replace zeros by `zero_value`, unless that is 0 itself."""
    if zero_value == 0:
        return values
    return values.masked_fill(values == 0, zero_value)
