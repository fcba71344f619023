"""Propagation rules for linear layers.

LRP is written as a backward pass over *multipliers*: a tensor with relevance R and values a carries
``m = R / a``. Sums, reshapes and poolings then propagate as ordinary gradients do, and a rule says what a linear
layer does: from the multiplier at its output to the one at its input.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass
class LinearLayer:
    """A linear operation ``y = W x + b`` as the engine saw it: convolution or matrix product.

    Attributes
    ----------
    weight, bias : Tensor
        With a following BatchNorm folded in. The bias is shaped to broadcast over y.
    apply : callable
        ``apply(x, weight)`` is ``W x``, without bias.
    transpose : callable
        ``transpose(m, weight, x)`` is ``W' m``, shaped like x.
    memory : dict
        What a rule wants to remember between backward passes of one forward pass.
    """

    weight: Tensor
    bias: Tensor | float
    apply: Callable[[Tensor, Tensor], Tensor]
    transpose: Callable[[Tensor, Tensor, Tensor], Tensor]
    memory: dict[str, Tensor] = field(default_factory=dict)


class Rule(Protocol):
    """A rule is a callable from the output's multiplier to the input's."""

    def __call__(self, layer: LinearLayer, x: Tensor, y: Tensor, m: Tensor) -> Tensor:
        """Multiplier at the input, shaped like x.

        Parameters
        ----------
        layer : LinearLayer
        x, y : Tensor
            The layer's input and its output, bias included.
        m : Tensor
            Multiplier at the output: relevance / y.
        """


@dataclass(frozen=True)
class Epsilon:
    """LRP-epsilon: relevance in proportion to the contributions ``x_i w_ij``, damped where y is small.

    Parameters
    ----------
    epsilon : float
        Added to the size of y, in its units; 0 is gradient x input.
    """

    epsilon: float = 1e-6

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon < float("inf"):
            raise ValueError(f"epsilon needs a number >= 0, got {self.epsilon}")

    def __call__(self, layer: LinearLayer, x: Tensor, y: Tensor, m: Tensor) -> Tensor:
        """Multiplier at the input; see :class:`Rule`."""
        size = y.abs()
        return layer.transpose(_share(size, size + self.epsilon, y != 0).mul_(m), layer.weight, x)


@dataclass(frozen=True)
class Gamma:
    r"""LRP-gamma for inputs and outputs of both signs.

    Contributions with the sign of the output are favoured: with P the sum of the positive contributions
    (bias included) and N that of the negative ones, so that ``y = P + N``, relevance is shared in proportion to
    ``x_i w_ij (1 + gamma [x_i w_ij > 0])`` over ``y + gamma P`` where y > 0, and with N and negative contributions
    in the place of P where y < 0. The denominator keeps the sign of y, so there is no pole.

    Parameters
    ----------
    gamma : float
        0 (gradient x input) and more; large values tend to z+.

    References
    ----------
    .. [1] G. Montavon et al., "Layer-wise relevance propagation: an overview", 2019.
    .. [2] J. Kauffmann et al., "From clustering to cluster explanations via neural networks", VI-B.
    """

    gamma: float = 0.25

    def __post_init__(self) -> None:
        if not 0 <= self.gamma < float("inf"):
            raise ValueError(f"gamma needs a number >= 0, got {self.gamma}")

    def __call__(self, layer: LinearLayer, x: Tensor, y: Tensor, m: Tensor) -> Tensor:
        """Multiplier at the input; see :class:`Rule`."""
        gamma, weight = self.gamma, layer.weight
        if gamma == 0:
            return layer.transpose(m.masked_fill(y == 0, 0.0), weight, x)
        signed = bool(x.amin() < 0)
        lifted = F.leaky_relu(weight, 1 / (1 + gamma)).mul_(1 + gamma)  # W + gamma W+
        y_lifted = layer.memory.get("lifted")
        if y_lifted is None:
            y_lifted = layer.memory["lifted"] = self._lifted_output(layer, x, y, lifted, signed)
        if not signed and not ((y < 0) & (m != 0)).any():  # the common case after a ReLU: one transposed product
            return layer.transpose(_share(y, y_lifted, y > 0).mul_(m), lifted, x)
        # contributions of x > 0 are favoured where w > 0 and y > 0, or w < 0 and y < 0; of x < 0 the other way
        up = _share(y, y_lifted, y > 0).mul_(m)
        down = _share(y, (2 + gamma) * y - y_lifted, y < 0).mul_(m)  # y + gamma N
        plain = layer.transpose(up, weight, x)
        flipped = layer.transpose(down, weight, x) if down.any() else torch.zeros_like(plain)
        mixed = layer.transpose(up - down, lifted - weight, x)
        at_positive = plain + (1 + gamma) * flipped + mixed
        if not signed:
            return at_positive
        return torch.where(x < 0, (1 + gamma) * plain + flipped - mixed, at_positive)

    def _lifted_output(self, layer: LinearLayer, x: Tensor, y: Tensor, lifted: Tensor, signed: bool) -> Tensor:
        """``y + gamma P``: the output with its positive contributions favoured."""
        bias = torch.as_tensor(layer.bias)
        if not signed:
            return layer.apply(x, lifted).add_(bias + self.gamma * bias.clamp(min=0))
        positive = layer.apply(x.clamp(min=0), layer.weight.clamp(min=0))
        positive += layer.apply(x.clamp(max=0), layer.weight.clamp(max=0))
        return positive.add_(bias.clamp(min=0)).mul_(self.gamma).add_(y)


def _share(part: Tensor, whole: Tensor, where: Tensor) -> Tensor:
    """Quotient, which is in 0..1 up to rounding; 0 outside `where`."""
    return (part / whole).clamp_(0, 1).masked_fill_(~where, 0.0)
