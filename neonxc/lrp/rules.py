"""Propagation rules for linear layers.

LRP is written as a backward pass over *multipliers*: a tensor with relevance R and values a carries
``m = R / a``. Sums, reshapes and poolings then propagate as ordinary gradients do, and a rule says what a linear
layer does: from the multiplier at its output to the one at its input.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

LARGE = 1 << 23  # entries of a matrix, beyond which it is not copied as a whole


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
        ``transpose(m, weight, x)`` is ``W' m``, shaped like x (and with the leading dimension that m may have).
    rectified : bool
        Only a ReLU follows: there is no relevance where y < 0, and such entries of y are 0.
    memory : dict or None
        Where :meth:`remember` keeps things between backward passes of one forward pass; None if there is only one.
    """

    weight: Tensor
    bias: Tensor | float
    apply: Callable[[Tensor, Tensor], Tensor]
    transpose: Callable[[Tensor, Tensor, Tensor], Tensor]
    rectified: bool = False
    memory: dict[Any, Any] | None = field(default_factory=dict)

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
            Multiplier at the output: relevance / y. Shaped like y, or with one more leading dimension where
            several explanations are propagated at once.
        """


@dataclass(frozen=True)
class Epsilon:
    """LRP-epsilon: relevance in proportion to the contributions ``x_i w_ij``, damped where y is small.

    Parameters
    ----------
    epsilon : float
        Added to the size of y, in its units; 0 is gradient x input.

    References
    ----------
    .. [1] S. Bach et al., "On pixel-wise explanations for non-linear classifier decisions by layer-wise
       relevance propagation", PLoS ONE, 2015.
    """

    epsilon: float = 1e-6

    def __post_init__(self) -> None:
        _check_number("epsilon", self.epsilon)

    def __call__(self, layer: LinearLayer, x: Tensor, y: Tensor, m: Tensor) -> Tensor:
        """Multiplier at the input; see :class:`Rule`."""
        size = y.abs()
        share = layer.remember(self, lambda: _quotient(size, size + self.epsilon))
        return layer.transpose(share * m, layer.weight, x)


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

    Notes
    -----
    With ``A = |W| |x| + |b|``, P and N are ``(y + A) / 2`` and ``(y - A) / 2``. All four cases of signs are then
    one formula: ``s = m |y| / ((1 + gamma/2) |y| + gamma/2 A)`` at the output, and at the input
    ``(1 + gamma/2) W' s + gamma/2 sign(x) |W|' (sign(y) s)``. Where neither x nor a y with relevance is negative,
    one transposed product with ``W + gamma W+`` is enough.

    References
    ----------
    .. [1] G. Montavon et al., "Layer-wise relevance propagation: an overview", 2019.
    .. [2] J. Kauffmann et al., "From clustering to cluster explanations via neural networks", VI-B.
    """

    gamma: float = 0.25

    def __post_init__(self) -> None:
        _check_number("gamma", self.gamma)

    def __call__(self, layer: LinearLayer, x: Tensor, y: Tensor, m: Tensor) -> Tensor:
        """Multiplier at the input; see :class:`Rule`."""
        if self.gamma == 0:
            return layer.transpose(m.where(y != 0, 0.0), layer.weight, x)
        signed = layer.remember("signed", lambda: bool(x.amin() < 0))
        if layer.rectified and not signed:  # between two ReLUs
            if layer.weight.ndim == 2 and layer.weight.numel() > LARGE:
                return self._by_rows(layer, x, y, m)
            lifted, share = layer.remember(self, lambda: self._lifted(layer, x, y))
            return layer.transpose(share * m, lifted, x)
        size, share = layer.remember(self, lambda: self._shares(layer, x, y))  # share has the sign of y
        along = layer.transpose(share.abs() * m, layer.weight, x)
        across = layer.transpose(share * m, size, x)
        return along.mul_(1 + self.gamma / 2).add_(across * x.sign() if signed else across, alpha=self.gamma / 2)

    def _lifted(self, layer: LinearLayer, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """``W + gamma W+`` and the share ``y / (y + gamma P)``, for x and y >= 0."""
        weight = F.leaky_relu(layer.weight, 1 / (1 + self.gamma)).mul_(1 + self.gamma)
        bias = torch.as_tensor(layer.bias)
        whole = layer.apply(x, weight).add_(bias + self.gamma * bias.clamp(min=0))
        whole = torch.maximum(whole, y, out=whole).clamp_(min=torch.finfo(y.dtype).tiny)
        return weight, torch.div(y, whole, out=whole)  # in place: each pass over large maps costs some percent

    def _by_rows(self, layer: LinearLayer, x: Tensor, y: Tensor, m: Tensor) -> Tensor:
        """The same for a large matrix, a few outputs at a time: its copy would outweigh all activations."""
        rows = max(1, LARGE // layer.weight.shape[1])
        bias = torch.as_tensor(layer.bias).to(y).expand(y.shape[-1])
        total = torch.zeros((), dtype=x.dtype, device=x.device)
        for first in range(0, len(layer.weight), rows):
            part = slice(first, first + rows)
            block = replace(layer, weight=layer.weight[part], bias=bias[part], memory=None)
            lifted, share = self._lifted(block, x, y[..., part])
            total = total + layer.transpose(share * m[..., part], lifted, x)
        return total

    def _shares(self, layer: LinearLayer, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """``|W|`` and the share ``y / ((1 + gamma/2) |y| + gamma/2 A)``."""
        weight = layer.weight.abs()
        whole = layer.apply(x.abs(), weight).add_(torch.as_tensor(layer.bias).abs())
        whole.mul_(self.gamma / 2).add_(y.abs(), alpha=1 + self.gamma / 2)
        return weight, _quotient(y, whole)


@dataclass(frozen=True)
class AlphaBeta:
    """LRP-alpha-beta: alpha times the shares of positive contributions minus beta times those of negative ones.

    The bias counts in the denominators. An output without positive (negative) contributions loses that part.

    Parameters
    ----------
    alpha, beta : float
        ``alpha - beta = 1``, both at least 0.

    References
    ----------
    .. [1] S. Bach et al., "On pixel-wise explanations for non-linear classifier decisions by layer-wise
       relevance propagation", PLoS ONE, 2015, Eq. 60.
    """

    alpha: float = 2.0
    beta: float = 1.0

    def __post_init__(self) -> None:
        _check_number("alpha", self.alpha)
        _check_number("beta", self.beta)
        if not math.isclose(self.alpha - self.beta, 1.0, abs_tol=1e-9):
            raise ValueError(f"alpha - beta needs to be 1, got alpha={self.alpha} and beta={self.beta}")

    def __call__(self, layer: LinearLayer, x: Tensor, y: Tensor, m: Tensor) -> Tensor:
        """Multiplier at the input; see :class:`Rule`."""
        part = self._part(layer, x, y, m, sign=1).mul_(self.alpha)
        return part.sub_(self._part(layer, x, y, m, sign=-1), alpha=self.beta) if self.beta else part

    @staticmethod
    def _part(layer: LinearLayer, x: Tensor, y: Tensor, m: Tensor, sign: int) -> Tensor:
        """Relevance shared among the contributions of one sign."""
        limits = {"min": 0} if sign > 0 else {"max": 0}
        limited, other = layer.weight.clamp(**limits), (-layer.weight).clamp(**limits).neg_()

        def share() -> tuple[bool, Tensor]:
            signed = bool(x.amin() < 0)
            whole = layer.apply(x.clamp(min=0), limited)
            if signed:
                whole += layer.apply(x.clamp(max=0), other)
            return signed, _quotient(y, whole.add_(torch.as_tensor(layer.bias).clamp(**limits)))

        signed, quotient = layer.remember(("part", sign), share)
        m = quotient * m
        at_positive = layer.transpose(m, limited, x)
        return torch.where(x < 0, layer.transpose(m, other, x), at_positive) if signed else at_positive


@dataclass(frozen=True)
class ZPlus:
    """LRP-z+: relevance in proportion to the positive contributions alone (alpha = 1, beta = 0).

    References
    ----------
    .. [1] G. Montavon et al., "Explaining nonlinear classification decisions with deep Taylor decomposition",
       Pattern Recognition, 2017.
    """

    def __call__(self, layer: LinearLayer, x: Tensor, y: Tensor, m: Tensor) -> Tensor:
        """Multiplier at the input; see :class:`Rule`."""
        return AlphaBeta(1.0, 0.0)(layer, x, y, m)


@dataclass(frozen=True)
class Flat:
    """Every input of an output gets the same share, also an input that is zero; for the first layers.

    References
    ----------
    .. [1] S. Lapuschkin et al., "Unmasking Clever Hans predictors and assessing what machines really learn",
       Nature Communications, 2019.
    """

    reaches_zeros: ClassVar[bool] = True

    def __call__(self, layer: LinearLayer, x: Tensor, y: Tensor, m: Tensor) -> Tensor:
        """Multiplier at the input; see :class:`Rule`."""
        return _share_by(torch.ones_like(layer.weight), layer, x, y, m)


@dataclass(frozen=True)
class WSquare:
    """LRP-w2: shares in proportion to the squared weights, whatever the inputs are; for the first layer.

    References
    ----------
    .. [1] G. Montavon et al., "Explaining nonlinear classification decisions with deep Taylor decomposition",
       Pattern Recognition, 2017.
    """

    reaches_zeros: ClassVar[bool] = True

    def __call__(self, layer: LinearLayer, x: Tensor, y: Tensor, m: Tensor) -> Tensor:
        """Multiplier at the input; see :class:`Rule`."""
        return _share_by(layer.weight**2, layer, x, y, m)


@dataclass(frozen=True, eq=False)
class ZBox:
    """LRP-z^B for inputs in a box, such as pixels: contributions are counted from the box's far corners.

    Relevance is shared in proportion to ``x_i w_ij - low_i w_ij^+ - high_i w_ij^-``, which is never negative.

    Parameters
    ----------
    low, high : float, sequence of float or Tensor
        Least and greatest value of the inputs: one for all, one per channel (dimension 1 of the inputs), or a
        tensor that broadcasts against them. :meth:`neonxc.models.FeatureExtractor.pixel_range` gives those of
        an image network.

    References
    ----------
    .. [1] G. Montavon et al., "Explaining nonlinear classification decisions with deep Taylor decomposition",
       Pattern Recognition, 2017.
    """

    low: float | Sequence[float] | Tensor
    high: float | Sequence[float] | Tensor
    reaches_zeros: ClassVar[bool] = True

    def __post_init__(self) -> None:
        low, high = torch.as_tensor(self.low).cpu(), torch.as_tensor(self.high).cpu()
        try:
            ordered = bool((low < high).all()) and bool(torch.isfinite(high - low).all())
        except RuntimeError:
            raise ValueError(
                f"low and high need shapes that fit, got {list(low.shape)} and {list(high.shape)}"
            ) from None
        if not ordered:
            raise ValueError(f"low needs to be less than high, got low={self.low} and high={self.high}")

    def __call__(self, layer: LinearLayer, x: Tensor, y: Tensor, m: Tensor) -> Tensor:
        """Multiplier at the input; see :class:`Rule`."""
        low, high = _bound(self.low, x, "low"), _bound(self.high, x, "high")
        positive, negative = layer.weight.clamp(min=0), layer.weight.clamp(max=0)

        def share() -> Tensor:
            whole = layer.apply(x, layer.weight)
            whole -= layer.apply(low, positive)
            whole -= layer.apply(high, negative)
            return _quotient(y, whole)

        m = layer.remember("share", share) * m
        relevance = x * layer.transpose(m, layer.weight, x)
        relevance -= low * layer.transpose(m, positive, x)
        relevance -= high * layer.transpose(m, negative, x)
        return _quotient(relevance, x)


def _share_by(weight: Tensor, layer: LinearLayer, x: Tensor, y: Tensor, m: Tensor) -> Tensor:
    """Multiplier for shares that do not depend on the inputs."""
    share = layer.remember("share", lambda: _quotient(y, layer.apply(torch.ones_like(x), weight)))
    return _quotient(layer.transpose(share * m, weight, x), x)


def _quotient(part: Tensor, whole: Tensor) -> Tensor:
    """``part / whole``, 0 where there is nothing to share."""
    return torch.where(whole == 0, 0.0, part / whole)


def _bound(value: Any, x: Tensor, name: str) -> Tensor:
    bound = torch.as_tensor(value, dtype=x.dtype, device=x.device)
    if bound.ndim == 1 and x.ndim > 2:
        bound = bound.reshape(-1, *[1] * (x.ndim - 2))
    try:
        return bound.expand_as(x)
    except RuntimeError:
        raise ValueError(f"{name} of shape {list(bound.shape)} does not fit inputs {list(x.shape)}") from None


def _check_number(name: str, value: float) -> None:
    if not 0 <= value < math.inf:
        raise ValueError(f"{name} needs a number >= 0, got {value}")
