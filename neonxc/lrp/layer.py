"""The interface of propagation rules, and the linear layers that they are applied to.

LRP is written as a backward pass over *multipliers*: a tensor with values a and relevance R has the multiplier
``m = R / a``. Multipliers pass sums, reshapes and pooling layers as ordinary gradients do. At a linear layer, a
rule computes the multiplier at the input from the multiplier at the output.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

Scaling = Callable[[Tensor, Tensor], Tensor]


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
    memory: dict[Any, Any] | None = None

    def remember(self, key: Any, compute: Callable[[], Any]) -> Any:
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
        return self.memory[key]


class Rule(Protocol):
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


@dataclass
class RecordedLayer:
    """A linear layer of the forward pass, with its input and the output that its rule needs."""

    x: Tensor
    layer: LinearLayer
    rule: Callable[[], Rule]
    scale_outputs: Scaling | None = None  # scales the weight so that the outputs are scaled
    outputs: int = 1  # the dimension of y that holds these outputs
    y: Tensor | None = None
    uses: int = 0

    def count_use(self, y: Tensor) -> None:
        """Count an operation that uses the output; after a second one the layer does not feed a ReLU alone."""
        self.uses += 1
        if self.layer.rectified:
            self.layer.rectified = False
            self.y = y.detach()

    def followed_by_relu(self, y: Tensor) -> None:
        """Register that a ReLU with result `y` uses the output; the ReLU's result replaces the stored output."""
        if self.uses == 1:
            self.layer.rectified = True
            self.y = y.detach()

    def backward(self, m: Tensor, x: Tensor) -> Tensor:
        """Apply the rule: compute the multiplier at the input."""
        assert self.y is not None
        y = self.y
        if self.layer.memory is None:  # this is the only backward pass: free memory early
            self.y = None
        return self.rule()(self.layer, x, y, m)


def quotient(part: Tensor, whole: Tensor) -> Tensor:
    """``part / whole``, and 0 where ``whole`` is 0."""
    return (part / whole).masked_fill_(whole == 0, 0.0)


def has_negative(x: Tensor) -> bool:
    """Whether any value is negative."""
    return x.numel() > 0 and bool(x.amin() < 0)


class CustomBackward(torch.autograd.Function):
    """A value computed from x, with a function that computes the multiplier at x from that at the value.

    ``compute()`` returns the value and the tensors to save; ``backward_rule(m, *saved)`` returns the multiplier.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, compute: Callable[[], tuple[Tensor, ...]], backward_rule: Callable[..., Tensor]
    ) -> Tensor:
        """Compute the value."""
        y, *saved = compute()
        ctx.save_for_backward(*saved)
        ctx.backward_rule = backward_rule
        return y if y._base is None else y.clone()  # the base of a view, as einsum returns, is not traced

    @staticmethod
    def backward(ctx: Any, m: Tensor) -> tuple[Tensor, None, None]:
        """Compute the multiplier at x."""
        return ctx.backward_rule(m, *ctx.saved_tensors), None, None


def tiny_value(dtype: torch.dtype) -> float:
    """A value that replaces zeros which receive relevance, so that multipliers (relevance / value) are finite."""
    return float(torch.finfo(dtype).tiny ** 0.5)


def replace_zeros(values: Tensor, zero_value: float) -> Tensor:
    """Replace zeros by `zero_value`, unless that is 0 itself."""
    return values.masked_fill(values == 0, zero_value) if zero_value else values
