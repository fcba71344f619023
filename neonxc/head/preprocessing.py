"""The affine steps of a pipeline as one map from raw columns to the space of the clusterer, and coordinates of it.

With a matrix A [p, d] or a diagonal [d], and the row norm n(x) if the pipeline has a Normalizer, the map is::

    row norm      n(x) = |A_n x + b_n|            1 for zero rows and without a Normalizer
    map           z(x) = (A x + b) / n(x) + c
    coordinates   y(x) = (x - root) / n(x) - origin    [N, d], so that A y(x) = z(x) - c - z_0

Layers compute with the coordinates y, which have one column per raw column. They are zero where z - c is z_0, such
as the mean of the centroids, as float32 is not translation invariant::

    without a Normalizer   A root + b = z_0    and    origin = 0
    with a Normalizer      A root + b = 0      and    A origin = z_0

A linear function ``w' z`` has the gradient ``A' w / n(x)`` in the raw columns: explanations hold n(x) constant, so
that cluster boundaries are hyperplanes in the raw columns. A squared distance needs A itself: ``|z - c - z_0|^2 =
|A y|^2``, with the gradient ``2 A'A y / n(x)``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from neonxc.data.sparse import ORDERS, SparseRows


@dataclass(frozen=True)
class RowNorm:
    """The divisor n(x) of a Normalizer: the norm (l1, l2 or max) of ``A_n x + b_n``."""

    kind: str
    weight: Tensor  # A_n, [d] or [p, d]
    bias: Tensor  # b_n, [p]

    def of(self, x: Tensor | SparseRows) -> Tensor:
        """Compute the row norms [N, 1] of points [N, d]."""
        if isinstance(x, SparseRows):
            norm = x.norms(self.weight, self.bias, self.kind)[:, None]
        else:
            scaled = mapped(self.weight.to(x), x).add_(self.bias.to(x))
            norm = torch.linalg.vector_norm(scaled, ORDERS[self.kind], dim=1, keepdim=True)
        return torch.where(norm > 0, norm, 1.0)  # scikit-learn does not scale zero rows either


@dataclass(frozen=True)
class Preprocessing:
    """The map ``z = (A x + b) / n(x) + c``.

    Attributes
    ----------
    weight : Tensor [d] or [p, d]
        A, as a diagonal or a matrix.
    bias, offset : Tensor [p]
        b and c.
    center, scale : Tensor [d]
        Those of the data in raw columns. Among all raw points that map to the same z, :meth:`point` takes the one
        nearest to `center` in units of `scale`.
    norm : RowNorm, optional
        The row norm n(x), if the pipeline has a Normalizer.
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
        if self.diagonal:
            product = weight * self.weight
        else:
            product = mapped(weight, self.weight.T).T
        step = replace(self, weight=product, bias=mapped(weight, self.bias), offset=mapped(weight, self.offset))
        # behind a Normalizer, what is added is not divided by n(x)
        if self.norm is None:
            return replace(step, bias=step.bias + bias)
        return replace(step, offset=step.offset + bias)

    def normalized(self, kind: str) -> Preprocessing:
        """Append a Normalizer."""
        if self.norm is not None and bool(self.offset.any()):
            raise ValueError(
                "a pipeline that shifts points between two Normalizer steps can't be folded; keep one of them"
            )
        # without a shift in between, the second Normalizer cancels the first
        return replace(self, norm=RowNorm(kind, self.weight, self.bias))

    def preimage(self, shifts: Tensor) -> Tensor:
        """Map shifts [M, p] of z to the smallest shifts [M, d] of the raw columns, in units of `scale`."""
        if self.diagonal:
            return shifts / self.weight
        # the pseudoinverse has the solution of least norm, here the norm of the shift divided by `scale`
        inverse = torch.linalg.pinv(self.weight * self.scale, rtol=1e-12)
        raw = shifts @ inverse.T * self.scale

        tolerance = 1e-6 * float(shifts.abs().max()) + 1e-12
        if not torch.allclose(raw @ self.weight.T, shifts, atol=tolerance):
            raise ValueError(
                "the preprocessing maps no raw point to the midpoints of the centroids: it was fitted again after "
                "the clusterer, or it repeats columns before a Normalizer"
            )
        return raw

    def equal_shares(self) -> Tensor:
        """Compute shares [d] of the raw columns in what belongs to all dimensions of z alike; they sum to 1.

        The share of a dimension goes to the raw columns as differences in all directions alike would.
        """
        if self.diagonal:
            return torch.full_like(self.weight, 1 / len(self.weight))
        unit_vectors = torch.eye(len(self.bias)).to(self.weight)
        inverse = self.preimage(unit_vectors).T  # [d, p]
        return (inverse * self.weight.T).sum(dim=1) / len(self.bias)

    def point(self, z: Tensor) -> Tensor:
        """Return the raw point [d] with ``A x + b = z`` that is nearest to `center`."""
        from_center = z - mapped(self.weight, self.center) - self.bias
        return self.center + self.preimage(from_center[None])[0]

    def coordinates(self, z_0: Tensor) -> Coordinates:
        """Return the coordinates that are zero where ``z - c`` is z_0 [p]."""
        if self.norm is None:  # only root + origin matters
            return Coordinates(self.point(z_0), torch.zeros_like(self.center), None, self.diagonal)
        origin = self.preimage(z_0[None])[0]
        root = self.point(torch.zeros_like(z_0))
        return Coordinates(root, origin, self.norm, self.diagonal)


class Coordinates(NamedTuple):
    """The coordinates ``y = (x - root) / n(x) - origin`` of raw points x."""

    root: Tensor  # [d]
    origin: Tensor  # [d]
    norm: RowNorm | None
    diagonal: bool  # whether the map keeps columns separate

    def rounded(self, like: Tensor) -> RoundedCoordinates:
        """Return the same coordinates of points of one dtype, on one device."""
        shift = self.root + self.origin if self.norm is None else self.root
        rounded = shift.to(like)
        error = None
        if shift.dtype != like.dtype:
            error = (shift - rounded.to(shift)).to(like)
        return RoundedCoordinates(rounded, error, self.origin.to(like), self.norm)

    def parts(self) -> dict[str, Any]:
        """Return the attributes and buffers by which a layer holds these coordinates."""
        parts: dict[str, Any] = {"root": self.root, "origin": self.origin, "diagonal": self.diagonal}
        if self.norm is not None:
            parts["norm"] = self.norm.kind
            parts["norm_weight"] = self.norm.weight
            parts["norm_bias"] = self.norm.bias
        return parts


class RoundedCoordinates(NamedTuple):
    """The coordinates of points of one dtype; the rounding error of the shift is subtracted after it."""

    shift: Tensor  # [d], root + origin without a row norm, else root
    error: Tensor | None  # [d]; None: there is none
    origin: Tensor  # [d]
    norm: RowNorm | None

    def of(self, x: Tensor) -> tuple[Tensor, Tensor | float]:
        """Compute the coordinates y [N, d] of points [N, d], and their row norms [N, 1]."""
        y = x - self.shift
        if self.error is not None:
            y.sub_(self.error)
        if self.norm is None:
            return y, 1.0
        norm = self.norm.of(x)
        if torch.is_grad_enabled():  # the quotient's gradient needs y
            return y / norm - self.origin, norm
        return y.div_(norm).sub_(self.origin), norm


def mapped(weight: Tensor, x: Tensor) -> Tensor:
    """Compute ``A x`` of a vector [d] or rows [N, d], for a diagonal [d] or a matrix [p, d]."""
    return x * weight if weight.ndim == 1 else x @ weight.T


def pulled_back(weight: Tensor, w: Tensor) -> Tensor:
    """Compute ``A' w`` of directions [..., p] of z: their directions [..., d] in the raw columns."""
    return w * weight if weight.ndim == 1 else w @ weight
