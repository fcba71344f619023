"""Propagation rules for linear layers ``y_j = sum_i x_i w_ij + b_j``.

A rule distributes the relevance R_j of every output over the inputs, in proportion to some q_ij:

    R_i = sum_j q_ij / z_j R_j

    rule               q_ij                                        z_j
    Epsilon            x_i w_ij                                    y_j + epsilon sign(y_j)
    ZPlus              (x_i w_ij)^+                                sum_i q_ij + b_j^+
    Flat               1                                           sum_i q_ij
    WSquare            w_ij^2                                      sum_i q_ij
    ZBox               x_i w_ij - low_i w_ij^+ - high_i w_ij^-     sum_i q_ij
    Gamma, y_j > 0     x_i w_ij (1 + gamma [x_i w_ij > 0])         sum_i q_ij + b_j (1 + gamma [b_j > 0])
    Gamma, y_j < 0     x_i w_ij (1 + gamma [x_i w_ij < 0])         sum_i q_ij + b_j (1 + gamma [b_j < 0])

AlphaBeta is alpha times ZPlus minus beta times its counterpart for negative contributions. Rules get and return
multipliers ``m = R / y``. The quotient y_j / z_j depends on the forward pass alone and is cached, and

    s_j = y_j / z_j m_j
    m_i = sum_j q_ij s_j / x_i, which is W' s for q_ij = x_i w_ij
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from neonxc.common.arguments import check_number
from neonxc.lrp.layer import LinearLayer, has_negative, quotient

Bound: TypeAlias = float | Sequence[float] | Tensor
"""Smallest or largest value of the inputs: one number for all, one per channel, or a tensor that broadcasts."""


@dataclass(frozen=True)
class Epsilon:
    """LRP-epsilon: relevance follows the contributions ``x_i w_ij`` in proportion, and is damped if y is small.

    Parameters
    ----------
    epsilon : float
        Stabilizer >= 0 that is added to ``|y|``, in the units of y; 0 is gradient x input.

    Raises
    ------
    ValueError
        `epsilon` is not a finite number >= 0.

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
        magnitude = y.abs()
        # y / (y + epsilon sign(y))
        ratio = layer.remember(self, lambda: quotient(magnitude, magnitude + self.epsilon))
        return layer.transpose(ratio * m, layer.weight, x)


@dataclass(frozen=True)
class AlphaBeta:
    """LRP-alpha-beta: positive contributions get alpha times the relevance, negative ones minus beta times.

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
    """Compute the multiplier that distributes relevance over the contributions of one sign.

    The limit is ``min=0`` for positive contributions, and ``max=0`` for negative ones.
    """
    # the weights that contribute with this sign, to positive and to negative inputs
    weight_at_positive = layer.weight.clamp(**limit)
    weight_at_negative = (-layer.weight).clamp(**limit).neg_()

    def distribution() -> tuple[bool, Tensor]:
        is_signed = has_negative(x)
        z = layer.apply(x.clamp(min=0), weight_at_positive)
        if is_signed:
            z += layer.apply(x.clamp(max=0), weight_at_negative)
        bias = torch.as_tensor(layer.bias).clamp(**limit)
        return is_signed, quotient(y, z.add_(bias))

    is_signed, ratio = layer.remember(("contributions", *limit), distribution)
    s = ratio * m
    multiplier = layer.transpose(s, weight_at_positive, x)
    if not is_signed:
        return multiplier
    return torch.where(x < 0, layer.transpose(s, weight_at_negative, x), multiplier)


@dataclass(frozen=True)
class ZPlus:
    """LRP-z+: relevance is distributed over the positive contributions alone (alpha = 1, beta = 0).

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
    """LRP-flat: all inputs of an output get the same relevance, zeros included; for the first layers.

    References
    ----------
    .. [1] S. Lapuschkin et al., "Unmasking Clever Hans predictors and assessing what machines really learn",
       Nature Communications, 2019.
    """

    reaches_zeros: ClassVar[bool] = True

    def __call__(self, layer: LinearLayer, x: Tensor, y: Tensor, m: Tensor) -> Tensor:
        """Compute the multiplier at the input; see :class:`Rule`."""
        ones = (torch.ones_like(x), torch.ones_like(layer.weight))
        return _in_proportion([ones], layer, x, y, m)


@dataclass(frozen=True)
class WSquare:
    """LRP-w2: relevance is distributed in proportion to the squared weights; for the first layer.

    References
    ----------
    .. [1] G. Montavon et al., "Explaining nonlinear classification decisions with deep Taylor decomposition",
       Pattern Recognition, 2017.
    """

    reaches_zeros: ClassVar[bool] = True

    def __call__(self, layer: LinearLayer, x: Tensor, y: Tensor, m: Tensor) -> Tensor:
        """Compute the multiplier at the input; see :class:`Rule`."""
        squares = (torch.ones_like(x), layer.weight**2)
        return _in_proportion([squares], layer, x, y, m)


@dataclass(frozen=True, eq=False)
class ZBox:
    """LRP-z^B: the rule for inputs with bounds, such as pixels; for the first layer.

    Relevance is distributed in proportion to ``x_i w_ij - low_i w_ij^+ - high_i w_ij^-``, which is never negative.

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

    low: Bound
    high: Bound
    reaches_zeros: ClassVar[bool] = True

    def __post_init__(self) -> None:
        low = torch.as_tensor(self.low).cpu()
        high = torch.as_tensor(self.high).cpu()
        try:
            is_box = (low < high) & (high - low).isfinite()
        except RuntimeError:
            raise ValueError(
                f"low and high need shapes that broadcast, got {list(low.shape)} and {list(high.shape)}"
            ) from None
        if not is_box.all():
            raise ValueError(f"low needs to be less than high, got low={self.low} and high={self.high}")

    def __call__(self, layer: LinearLayer, x: Tensor, y: Tensor, m: Tensor) -> Tensor:
        """Compute the multiplier at the input; see :class:`Rule`."""
        low = _bound(self.low, x, "low")
        high = _bound(self.high, x, "high")
        positive = layer.weight.clamp(min=0)
        negative = layer.weight.clamp(max=0)
        terms = [(x, layer.weight), (-low, positive), (-high, negative)]
        return _in_proportion(terms, layer, x, y, m)


def _in_proportion(
    terms: list[tuple[Tensor, Tensor]], layer: LinearLayer, x: Tensor, y: Tensor, m: Tensor
) -> Tensor:
    """Compute the multiplier for q_ij that is a sum of products ``inputs_i weight_ij``, the terms.

    The bias is not a part of the denominator, so that it absorbs no relevance.
    """

    def ratio() -> Tensor:
        z: Any = sum(layer.apply(inputs, weight) for inputs, weight in terms)
        return quotient(y, z)

    s = layer.remember("ratio", ratio) * m
    relevance: Any = sum(inputs * layer.transpose(s, weight, x) for inputs, weight in terms)
    return quotient(relevance, x)


def _bound(value: Bound, x: Tensor, name: str) -> Tensor:
    """Expand a bound of the inputs to their shape."""
    bound = torch.as_tensor(value, dtype=x.dtype, device=x.device)
    if bound.ndim == 1 and x.ndim > 2:  # one number per channel
        bound = bound.reshape(-1, *[1] * (x.ndim - 2))
    try:
        return bound.expand_as(x)
    except RuntimeError:
        raise ValueError(f"{name} of shape {list(bound.shape)} does not fit inputs {list(x.shape)}") from None


@dataclass(frozen=True)
class Gamma:
    r"""LRP-gamma for inputs and outputs of both signs.

    The rule favours contributions that have the sign of the output. Let P be the sum of the positive contributions
    (bias included) and N that of the negative ones, so that ``y = P + N``. Where y > 0, relevance is distributed
    in proportion to ``x_i w_ij (1 + gamma [x_i w_ij > 0])``, with the denominator ``y + gamma P``. Where y < 0,
    negative contributions and N take the place of positive ones and P. The denominator has the sign of y, so there
    is not a pole.

    Parameters
    ----------
    gamma : float
        A finite number >= 0. 0 is gradient x input; large values approach z+.

    Raises
    ------
    ValueError
        `gamma` is not a finite number >= 0.

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
        return self._through_activation(layer, x, y, y, m)

    def _through_activation(self, layer: LinearLayer, x: Tensor, y: Tensor, a: Tensor, m: Tensor) -> Tensor:
        """Compute the multiplier at the input from that at an activation ``a = f(y)``, so that ``m = R / a``."""
        if self.gamma == 0:
            ratio = layer.remember(self, lambda: quotient(a, y))
            return layer.transpose(ratio * m, layer.weight, x)
        is_signed = layer.remember("signed", lambda: has_negative(x))
        if layer.rectified and not is_signed:  # a layer between two ReLUs
            weight, ratio = layer.remember(self, lambda: self._positive_case(layer, x, a))
            return layer.transpose(ratio * m, weight, x)

        magnitude, ratio = layer.remember(self, lambda: self._general_case(layer, x, y, a, is_signed))
        s = ratio * m
        signed_s = s
        if not layer.rectified:
            signed_s = s * y.sign()

        # W' (sign(y) s) + c sign(x) |W|' s
        multiplier = layer.transpose(signed_s, layer.weight, x)
        correction = layer.transpose(s, magnitude, x)
        if is_signed:
            return multiplier.addcmul_(correction, x.sign(), value=self._c)
        return multiplier.add_(correction, alpha=self._c)

    def _positive_case(self, layer: LinearLayer, x: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        """Compute ``W+ + W- / (1 + gamma)`` and the quotient of `a` and its product with x, for x and y >= 0."""
        slope = 1 / (1 + self.gamma)
        weight = F.leaky_relu(layer.weight, slope)
        bias = F.leaky_relu(torch.as_tensor(layer.bias), slope)
        # in place: each pass over large maps costs some percent
        z = layer.apply(x, weight).add_(bias)  # P + N / (1 + gamma), which is >= y = P + N but for rounding
        z = torch.maximum(z, a, out=z).clamp_(min=torch.finfo(a.dtype).tiny)
        return weight, torch.div(a, z, out=z)

    def _general_case(
        self, layer: LinearLayer, x: Tensor, y: Tensor, a: Tensor, is_signed: bool
    ) -> tuple[Tensor, Tensor]:
        """Compute ``|W|`` and the quotient ``a / (|y| + c A)``, for x and y of both signs."""
        weight = layer.weight.abs()
        bias = torch.as_tensor(layer.bias).abs()
        magnitude = x.abs() if is_signed else x
        sums = layer.apply(magnitude, weight).add_(bias)  # A = |W| |x| + |b|
        denominator = torch.add(y.abs(), sums, alpha=self._c, out=sums)
        denominator.clamp_(min=torch.finfo(y.dtype).tiny)  # a tenth of the time of a search for zeros
        return weight, torch.div(a, denominator, out=denominator)

    @property
    def _c(self) -> float:
        """The factor of A in the denominator, see the Notes."""
        return self.gamma / (2 + self.gamma)
