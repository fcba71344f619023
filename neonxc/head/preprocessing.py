"""The affine steps of a pipeline as one map from raw columns to the space of the centroids.

The map is ``z = (A x + b) / n(x) + c``, where n(x) is the row norm if the pipeline has a Normalizer, and 1
otherwise. Explanations hold n(x) constant, so that cluster boundaries are hyperplanes in the raw columns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class RowNorm:
    """The divisor of a Normalizer: the norm (l1, l2 or max) of ``A x + b``."""

    kind: str
    weight: Tensor
    bias: Tensor


@dataclass(frozen=True)
class Preprocessing:
    """The map ``z = (weight x + bias) / norm(x) + offset``.

    `weight` is [d] (a diagonal matrix) or [p, d]. `center` and `scale` [d] are those of the data in raw units:
    among all raw points that map to a given z, :meth:`preimage` takes the one nearest to `center` in units of
    `scale`.
    """

    weight: Tensor
    bias: Tensor
    offset: Tensor
    center: Tensor
    scale: Tensor
    norm: RowNorm | None = None

    @classmethod
    def identity(cls, d: int, device: torch.device | None = None) -> Preprocessing:
        """Return the identity map of `d` columns."""
        zero = torch.zeros(d, dtype=torch.float64, device=device)
        one = torch.ones_like(zero)
        return cls(one, zero, zero, zero, one)

    @property
    def diagonal(self) -> bool:
        """Whether the map keeps columns separate."""
        return self.weight.ndim == 1

    def then(self, weight: Tensor, bias: Tensor) -> Preprocessing:
        """Append the affine step ``z -> weight z + bias``."""
        step = replace(self, weight=compose(weight, self.weight), bias=mapped(weight, self.bias))
        if self.norm is None:
            return replace(step, bias=step.bias + bias, offset=torch.zeros_like(bias))
        return replace(step, offset=mapped(weight, self.offset) + bias)

    def normalized(self, kind: str) -> Preprocessing:
        """Append a Normalizer."""
        if self.norm is not None and bool(self.offset.any()):
            raise ValueError(
                "a pipeline that shifts points between two Normalizer steps can't be folded; keep one of them"
            )
        # without a shift in between, the second Normalizer cancels the first
        return replace(self, norm=RowNorm(kind, self.weight, self.bias))

    def pullback(self, directions: Tensor) -> Tensor:
        """Map directions [M, p] of z to directions [M, d] of the raw columns, ``A' w``."""
        return directions * self.weight if self.diagonal else directions @ self.weight

    def preimage(self, shifts: Tensor) -> Tensor:
        """Map shifts [M, p] of z to the smallest shifts [M, d] of the raw columns, in units of `scale`."""
        if self.diagonal:
            return shifts / self.weight
        back = shifts @ torch.linalg.pinv(self.weight * self.scale, rtol=1e-12).T * self.scale
        if not torch.allclose(back @ self.weight.T, shifts, atol=1e-6 * float(shifts.abs().max()) + 1e-12):
            raise ValueError(
                "the preprocessing maps no raw point to the midpoints of the centroids: it was fitted again after "
                "the clusterer, or it repeats columns before a Normalizer"
            )
        return back

    def point(self, z: Tensor) -> Tensor:
        """Return the raw point [d] with ``A x + b = z`` that is nearest to `center`."""
        return self.center + self.preimage((z - mapped(self.weight, self.center) - self.bias)[None])[0]

    def frame(self, z: Tensor) -> dict[str, Any]:
        """The coordinates of a ``LinearDetection`` that are zero where the preprocessing maps to z [p]."""
        if self.norm is None:  # only root + origin matters
            return {"root": self.point(z), "origin": torch.zeros_like(self.center), "diagonal": self.diagonal}
        zero, norm = torch.zeros_like(z), self.norm
        origin = self.preimage(z[None])[0]
        named = {"norm": norm.kind, "norm_weight": norm.weight, "norm_bias": norm.bias}
        return {"root": self.point(zero), "origin": origin, "diagonal": self.diagonal, **named}


def mapped(weight: Tensor, x: Tensor) -> Tensor:
    """Map a vector [d] or rows [N, d] by a diagonal [d] or a matrix [p, d]."""
    return x * weight if weight.ndim == 1 else x @ weight.T


def compose(outer: Tensor, inner: Tensor) -> Tensor:
    """Return the matrix of ``outer(inner(x))``, which is diagonal if both are."""
    if inner.ndim == 1:
        return outer * inner
    return outer[:, None] * inner if outer.ndim == 1 else outer @ inner
