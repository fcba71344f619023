"""Propagation rules for linear layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from neonxc.common.arguments import check_number
from neonxc.lrp.layer import LinearLayer, has_negative, quotient


@dataclass(frozen=True)
class Epsilon:
    """LRP-epsilon: relevance is shared in proportion to the contributions ``x_i w_ij``, and damped if y is small.

    Parameters
    ----------
    epsilon : float
        Stabilizer >= 0 that is added to ``|y|``, in the units of y; 0 is gradient x input.

    Raises
    ------
    ValueError
        `epsilon` is no finite number >= 0.

    References
    ----------
    .. [1] S. Bach et al., "On pixel-wise explanations for non-linear classifier decisions by layer-wise
       relevance propagation", PLoS ONE, 2015.
    """

    epsilon: float = 1e-6

    def __post_init__(self) -> None:
        check_number("epsilon", self.epsilon)

    def __call__(self, layer: LinearLayer, x: Tensor, y: Tensor, m: Tensor) -> Tensor:
        """Compute the multiplier at the input; see :class:`Rule`."""
        size = y.abs()
        share = layer.remember(self, lambda: quotient(size, size + self.epsilon))
        return layer.transpose(share * m, layer.weight, x)


@dataclass(frozen=True)
class AlphaBeta:
    """LRP-alpha-beta: positive contributions share alpha times the relevance, negative ones minus beta times.

    The bias counts in the denominators. The relevance of an output without positive (negative) contributions is
    lost in the first (second) part.

    Parameters
    ----------
    alpha, beta : float
        Finite numbers >= 0 with ``alpha - beta = 1``.

    Raises
    ------
    ValueError
        Other values of `alpha` and `beta`.

    References
    ----------
    .. [1] S. Bach et al., "On pixel-wise explanations for non-linear classifier decisions by layer-wise
       relevance propagation", PLoS ONE, 2015, Eq. 60.
    """

    alpha: float = 2.0
    beta: float = 1.0

    def __post_init__(self) -> None:
        check_number("alpha", self.alpha)
        check_number("beta", self.beta)
        if not math.isclose(self.alpha - self.beta, 1.0, abs_tol=1e-9):
            raise ValueError(f"alpha - beta needs to be 1, got alpha={self.alpha} and beta={self.beta}")

    def __call__(self, layer: LinearLayer, x: Tensor, y: Tensor, m: Tensor) -> Tensor:
        """Compute the multiplier at the input; see :class:`Rule`."""
        multiplier = _contributions(layer, x, y, m, min=0).mul_(self.alpha)
        if not self.beta:
            return multiplier
        return multiplier.sub_(_contributions(layer, x, y, m, max=0), alpha=self.beta)


def _contributions(layer: LinearLayer, x: Tensor, y: Tensor, m: Tensor, **limit: float) -> Tensor:
    """The multiplier that distributes relevance over the contributions of one sign: those within a limit."""
    above = layer.weight.clamp(**limit)
    below = (-layer.weight).clamp(**limit).neg_()

    def share() -> tuple[bool, Tensor]:
        signed = has_negative(x)
        whole = layer.apply(x.clamp(min=0), above)
        if signed:
            whole += layer.apply(x.clamp(max=0), below)
        return signed, quotient(y, whole.add_(torch.as_tensor(layer.bias).clamp(**limit)))

    signed, shared = layer.remember(("part", *limit), share)
    at_positive = layer.transpose(shared * m, above, x)
    return torch.where(x < 0, layer.transpose(shared * m, below, x), at_positive) if signed else at_positive


@dataclass(frozen=True)
class ZPlus:
    """LRP-z+: relevance is shared in proportion to the positive contributions alone (alpha = 1, beta = 0).

    References
    ----------
    .. [1] G. Montavon et al., "Explaining nonlinear classification decisions with deep Taylor decomposition",
       Pattern Recognition, 2017.
    """

    def __call__(self, layer: LinearLayer, x: Tensor, y: Tensor, m: Tensor) -> Tensor:
        """Compute the multiplier at the input; see :class:`Rule`."""
        return AlphaBeta(1.0, 0.0)(layer, x, y, m)


@dataclass(frozen=True)
class Flat:
    """LRP-flat: all inputs of an output get the same share, zeros included; for the first layers.

    References
    ----------
    .. [1] S. Lapuschkin et al., "Unmasking Clever Hans predictors and assessing what machines really learn",
       Nature Communications, 2019.
    """

    reaches_zeros: ClassVar[bool] = True

    def __call__(self, layer: LinearLayer, x: Tensor, y: Tensor, m: Tensor) -> Tensor:
        """Compute the multiplier at the input; see :class:`Rule`."""
        return _share_by([(torch.ones_like(x), torch.ones_like(layer.weight))], layer, x, y, m)


@dataclass(frozen=True)
class WSquare:
    """LRP-w2: relevance is shared in proportion to the squared weights; for the first layer.

    References
    ----------
    .. [1] G. Montavon et al., "Explaining nonlinear classification decisions with deep Taylor decomposition",
       Pattern Recognition, 2017.
    """

    reaches_zeros: ClassVar[bool] = True

    def __call__(self, layer: LinearLayer, x: Tensor, y: Tensor, m: Tensor) -> Tensor:
        """Compute the multiplier at the input; see :class:`Rule`."""
        return _share_by([(torch.ones_like(x), layer.weight**2)], layer, x, y, m)


@dataclass(frozen=True, eq=False)
class ZBox:
    """LRP-z^B: the rule for inputs with bounds, such as pixels; for the first layer.

    Relevance is shared in proportion to ``x_i w_ij - low_i w_ij^+ - high_i w_ij^-``, which is never negative.

    Parameters
    ----------
    low, high : float, sequence of float or Tensor
        Smallest and largest possible value of the inputs: one number for all, one per channel (dimension 1 of the
        inputs), or a tensor that broadcasts against the inputs.
        :meth:`neonxc.models.FeatureExtractor.pixel_range` returns the bounds of an image network.

    Raises
    ------
    ValueError
        `low` is not below `high` everywhere, or their shapes do not fit each other or the inputs.

    References
    ----------
    .. [1] G. Montavon et al., "Explaining nonlinear classification decisions with deep Taylor decomposition",
       Pattern Recognition, 2017.
    """

    low: float | Sequence[float] | Tensor
    high: float | Sequence[float] | Tensor
    reaches_zeros: ClassVar[bool] = True

    def __post_init__(self) -> None:
        low, high = (torch.as_tensor(bound).cpu() for bound in (self.low, self.high))
        try:
            ordered = ((low < high) & (high - low).isfinite()).all()
        except RuntimeError:
            raise ValueError(
                f"low and high need shapes that broadcast, got {list(low.shape)} and {list(high.shape)}"
            ) from None
        if not ordered:
            raise ValueError(f"low needs to be less than high, got low={self.low} and high={self.high}")

    def __call__(self, layer: LinearLayer, x: Tensor, y: Tensor, m: Tensor) -> Tensor:
        """Compute the multiplier at the input; see :class:`Rule`."""
        low = _bound(self.low, x, "low")
        high = _bound(self.high, x, "high")
        positive = layer.weight.clamp(min=0)
        negative = layer.weight.clamp(max=0)
        return _share_by([(x, layer.weight), (-low, positive), (-high, negative)], layer, x, y, m)


def _share_by(parts: list[tuple[Tensor, Tensor]], layer: LinearLayer, x: Tensor, y: Tensor, m: Tensor) -> Tensor:
    """The multiplier at the input for shares in proportion to a sum of products ``inputs * weight``."""

    def share() -> Tensor:
        whole: Any = sum(layer.apply(*part) for part in parts)
        return quotient(y, whole)

    m = layer.remember("share", share) * m
    relevance: Any = sum(inputs * layer.transpose(m, weight, x) for inputs, weight in parts)
    return quotient(relevance, x)


def _bound(value: Any, x: Tensor, name: str) -> Tensor:
    """A bound of the inputs, expanded to their shape."""
    bound = torch.as_tensor(value, dtype=x.dtype, device=x.device)
    if bound.ndim == 1 and x.ndim > 2:
        bound = bound.reshape(-1, *[1] * (x.ndim - 2))
    try:
        return bound.expand_as(x)
    except RuntimeError:
        raise ValueError(f"{name} of shape {list(bound.shape)} does not fit inputs {list(x.shape)}") from None


@dataclass(frozen=True)
class Gamma:
    r"""LRP-gamma for inputs and outputs of both signs.

    The rule favours contributions that have the sign of the output. Let P be the sum of the positive contributions
    (bias included) and N that of the negative ones, so that ``y = P + N``. Where y > 0, relevance is shared in
    proportion to ``x_i w_ij (1 + gamma [x_i w_ij > 0])``, with the denominator ``y + gamma P``. Where y < 0,
    negative contributions and N take the place of positive ones and P. The denominator has the sign of y, so there
    is no pole.

    Parameters
    ----------
    gamma : float
        A finite number >= 0. 0 is gradient x input; large values approach z+.

    Raises
    ------
    ValueError
        `gamma` is no finite number >= 0.

    Notes
    -----
    With ``A = |W| |x| + |b|``, P and N are ``(y + A) / 2`` and ``(y - A) / 2``. One formula then covers all signs
    of x and y, with ``c = gamma / (2 + gamma)``: ``s = m y / (|y| + c A)`` at the output and
    ``W' (sign(y) s) + c sign(x) |W|' s`` at the input. If neither x nor any y with relevance is negative, one
    transposed product with ``W+ + W- / (1 + gamma)`` is enough.

    References
    ----------
    .. [1] G. Montavon et al., "Layer-wise relevance propagation: an overview", 2019.
    .. [2] J. Kauffmann et al., "From clustering to cluster explanations via neural networks", VI-B.
    """

    gamma: float = 0.25

    def __post_init__(self) -> None:
        check_number("gamma", self.gamma)

    def __call__(self, layer: LinearLayer, x: Tensor, y: Tensor, m: Tensor) -> Tensor:
        """Compute the multiplier at the input; see :class:`Rule`."""
        if self.gamma == 0:
            return layer.transpose(m.where(y != 0, 0.0), layer.weight, x)
        signed = layer.remember("signed", lambda: has_negative(x))
        if layer.rectified and not signed:  # a layer between two ReLUs
            lifted, share = layer.remember(self, lambda: self._lifted(layer, x, y))
            return layer.transpose(share * m, lifted, x)
        size, share = layer.remember(self, lambda: self._shares(layer, x, y))  # share has the sign of y
        across = share * m
        along = across if layer.rectified else share.abs() * m
        if not signed and layer.channels is not None:  # one product is faster than two
            joint = layer.remember((self, "joint"), lambda: torch.cat([layer.weight, size]))
            return layer.transpose(torch.cat([along, across], layer.channels), joint, x)
        along = layer.transpose(along, layer.weight, x)
        across = layer.transpose(across, size, x)
        return along.add_(across * x.sign() if signed else across)

    def _lifted(self, layer: LinearLayer, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """``W+ + W- / (1 + gamma)`` and the share of y in its product with x, for x and y >= 0."""
        slope = 1 / (1 + self.gamma)
        weight = F.leaky_relu(layer.weight, slope)
        whole = layer.apply(x, weight).add_(F.leaky_relu(torch.as_tensor(layer.bias), slope))
        whole = torch.maximum(whole, y, out=whole).clamp_(min=torch.finfo(y.dtype).tiny)
        return weight, torch.div(y, whole, out=whole)  # in place: each pass over large maps costs some percent

    def _shares(self, layer: LinearLayer, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """``c |W|`` and the share ``y / (|y| + c A)``."""
        c = self.gamma / (2 + self.gamma)
        weight = layer.weight.abs().mul_(c)
        whole = layer.apply(x.abs(), weight).add_(torch.as_tensor(layer.bias).abs(), alpha=c)
        return weight, quotient(y, whole.add_(y.abs()))
