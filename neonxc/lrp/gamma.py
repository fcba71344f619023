"""LRP-gamma, for inputs and outputs of both signs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from neonxc.lrp.layer import LinearLayer, check_number, has_negative, quotient

LARGE = 1 << 23  # a matrix with more entries is modified block by block, to bound memory


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
    of x and y: ``s = m |y| / ((1 + gamma/2) |y| + gamma/2 A)`` at the output, and
    ``(1 + gamma/2) W' s + gamma/2 sign(x) |W|' (sign(y) s)`` at the input. If no y with relevance is negative, one
    transposed product with ``W + gamma W+`` is enough; negative inputs use ``W + gamma W-``.

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
            if layer.channels is not None and layer.weight.ndim == 2 and layer.weight.numel() > LARGE:
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
        """Apply the rule to one block of outputs at a time, as a copy of the whole matrix would be too large."""
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
        return weight, quotient(y, whole)
