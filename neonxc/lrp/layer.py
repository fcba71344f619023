"""What a propagation rule is, and the linear layer it works on.

LRP is written as a backward pass over *multipliers*: a tensor with relevance R and values a carries
``m = R / a``. Sums, reshapes and poolings then propagate as ordinary gradients do, and a rule says what a linear
layer does: from the multiplier at its output to the one at its input.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

Scaling = Callable[[Tensor, Tensor], Tensor]


@dataclass
class LinearLayer:
    """A linear operation ``y = W x + b`` as the engine saw it: convolution, matrix product, scaling of channels.

    Attributes
    ----------
    weight, bias : Tensor
        With a following BatchNorm folded in. The bias is shaped to broadcast over y.
    apply : callable
        ``apply(x, weight)`` is ``W x``, without bias.
    transpose : callable
        ``transpose(m, weight, x)`` is ``W' m``, shaped like x.
    channels : int or None
        Dimension of x that dimension 1 of the weight stands for (and its dimension 0 for that of y), so that
        weights set side by side there give products side by side; None where they do not (groups of channels,
        scalings).
    rectified : bool
        Only a ReLU follows: there is no relevance where y < 0, and such entries of y are 0.
    memory : dict or None
        Where :meth:`remember` keeps things between backward passes of one forward pass; None if there is only one.
    """

    weight: Tensor
    bias: Tensor | float
    apply: Callable[[Tensor, Tensor], Tensor]
    transpose: Callable[[Tensor, Tensor, Tensor], Tensor]
    channels: int | None = None
    rectified: bool = False
    memory: dict[Any, Any] | None = None

    def remember(self, key: Any, compute: Callable[[], Any]) -> Any:
        """Return what depends on the forward pass alone; computed once if several backward passes are to come."""
        if self.memory is None:
            return compute()
        if key not in self.memory:
            self.memory[key] = compute()
        return self.memory[key]


class Rule(Protocol):
    """A rule is a callable from the output's multiplier to the input's.

    A rule that gives relevance to inputs which are zero says so with an attribute ``reaches_zeros = True``: the
    engine then sees to it that no input is, so that the relevance has a multiplier.
    """

    def __call__(self, layer: LinearLayer, x: Tensor, y: Tensor, m: Tensor) -> Tensor:
        """Multiplier at the input, shaped like x.

        Parameters
        ----------
        layer : LinearLayer
        x, y : Tensor
            The layer's input and its output, bias included.
        m : Tensor
            Multiplier at the output: relevance / y. Shaped like y, also where several explanations are
            propagated at once: each sees its own.
        """


@dataclass
class Recorded:
    """A linear layer of the forward pass, and what of its output the rule will need."""

    x: Tensor
    layer: LinearLayer
    rule: Callable[[], Rule]
    scale_outputs: Scaling | None = None  # the weight with its outputs scaled
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

    def pull(self, m: Tensor, x: Tensor) -> Tensor:
        """Multiplier at the input."""
        assert self.y is not None
        y = self.y
        if self.layer.memory is None:  # no further walk back: let go as soon as possible
            self.y = None
        return self.rule()(self.layer, x, y, m)


def quotient(part: Tensor, whole: Tensor) -> Tensor:
    """``part / whole``, 0 where there is nothing to share."""
    return torch.where(whole == 0, 0.0, part / whole)


def has_negative(x: Tensor) -> bool:
    """Whether any value is below zero."""
    return x.numel() > 0 and bool(x.amin() < 0)


def check_number(name: str, value: float) -> None:
    """Refuse a parameter that is not a number from 0 on."""
    if not 0 <= value < math.inf:
        raise ValueError(f"{name} needs a number >= 0, got {value}")
