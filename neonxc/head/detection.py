"""Detection layers: linear neurons behind affine steps and single columns, and the relevance that columns get.

The affine steps of a pipeline are one map from raw columns to the space of the centroids,
``z = (A x + b) / n(x) + c``, with the row norm n(x) if the pipeline has a Normalizer, and 1 otherwise.
Explanations hold n(x) constant, so that cluster boundaries are hyperplanes in the raw columns.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from neonxc.common.registry import storable
from neonxc.data.inputs import check_range, compute_dtype, spreads
from neonxc.data.sparse import ORDERS, SparseRows, dense


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
        both = weight * self.weight if self.diagonal else mapped(weight, self.weight.T).T
        step = replace(self, weight=both, bias=mapped(weight, self.bias), offset=mapped(weight, self.offset))
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

    def equal_shares(self) -> Tensor:
        """Shares [d] of the raw columns in what belongs to all dimensions of z alike; they sum to 1.

        The share of a dimension goes to the raw columns as differences in all directions alike would.
        """
        if self.diagonal:
            return torch.full_like(self.weight, 1 / len(self.weight))
        back = self.preimage(torch.eye(len(self.bias)).to(self.weight)).T
        return (back * self.weight.T).sum(dim=1) / len(self.bias)

    def point(self, z: Tensor) -> Tensor:
        """Return the raw point [d] with ``A x + b = z`` that is nearest to `center`."""
        return self.center + self.preimage((z - mapped(self.weight, self.center) - self.bias)[None])[0]

    def frame(self, z: Tensor) -> dict[str, Any]:
        """The coordinates of a ``LinearDetection`` that are zero where the preprocessing maps to z [p]."""
        if self.norm is None:  # only root + origin matters
            return {"root": self.point(z), "origin": torch.zeros_like(self.center), "diagonal": self.diagonal}
        zero = torch.zeros_like(z)
        norm = self.norm
        origin = self.preimage(z[None])[0]
        named = {"norm": norm.kind, "norm_weight": norm.weight, "norm_bias": norm.bias}
        return {"root": self.point(zero), "origin": origin, "diagonal": self.diagonal, **named}


def mapped(weight: Tensor, x: Tensor) -> Tensor:
    """Map a vector [d] or rows [N, d] by a diagonal [d] or a matrix [p, d]."""
    return x * weight if weight.ndim == 1 else x @ weight.T


class Stage(nn.Module):
    """Base class of the layers of a head: their plain attributes, whose names they list, and buffers."""

    PLAIN: tuple[str, ...] = ()

    def __init__(self, **parts: Any) -> None:
        super().__init__()
        for name, value in parts.items():
            if name in self.PLAIN:
                setattr(self, name, value)
            else:
                self.register_buffer(name, value)

    def changed(self, **parts: Any) -> Self:
        """Return the same layer with other values of some attributes and buffers."""
        other = copy(self)
        other._buffers = self._buffers.copy()
        for name, value in parts.items():
            setattr(other, name, value)
        return other


class Detection(Stage):
    """Base class of detection layers: a decision is a weighted sum of their neurons.

    The first buffer has one row per neuron.
    """

    @property
    def n_features(self) -> int:
        """Number of raw columns d."""
        return self._first.shape[1]

    @property
    def n_neurons(self) -> int:
        """Number of neurons M."""
        return len(self._first)

    @property
    def device(self) -> torch.device:
        """Device of the neurons."""
        return self._first.device

    @property
    def _first(self) -> Tensor:
        return next(iter(self._buffers.values()))  # type: ignore[return-value]  # `buffers` takes a while

    @property
    def width(self) -> int:
        """The number of values computed per point, from which callers bound memory."""
        return max(self.n_neurons, self.n_features)

    by_contrast = False
    """Whether the relevance of a contrast of two neurons is not the difference of theirs: `own` is then needed."""
    stand_in = "surrogate"
    """What the network is called if its decisions are not those of the clusterer."""

    def forward(self, x: Tensor | SparseRows) -> Tensor:
        """Compute neurons [N, M] from raw points [N, d], dense or sparse, with autocast off."""
        return self.neurons(self.located(x))

    def located(self, x: Tensor | SparseRows) -> Any:
        """What the neurons and their relevance are computed from, once per block of points; here the points."""
        return x

    @abstractmethod
    def neurons(self, at: Any) -> Tensor:
        """Compute neurons [N, M] at points from :meth:`located`, in float32 or float64."""

    @abstractmethod
    def relevance(self, at: Any, weights: Tensor, own: Tensor | None = None) -> Tensor:
        """Compute the relevance [N, d] of the weighted sum ``sum_m weights_m a_m(x)``.

        Every neuron, or contrast of two neurons, is measured from its reference point.

        Parameters
        ----------
        at : points from :meth:`located`
        weights : Tensor [N, M]
        own : Tensor [N, M], optional
            If the sum consists of contrasts with the target cluster: the weights of the target's own neurons in
            each contrast, which sum to 1.
        """

    def multiplier(self, at: Any, weights: Tensor) -> Tensor:
        """Compute the gradient [N, d] of the weighted sum, with row norms held constant: the linear rule."""
        slopes = self.slopes()
        assert slopes is not None  # other neurons have a gradient of their own
        with full_precision(weights):
            return weights @ slopes.to(weights)

    def among_parts(self, at: Any, parts: Tensor, weights: Tensor) -> Tensor:
        """Compute what each of some parts [P, d] contributes to points that are means of such parts, [N, P].

        The weighted sum ``sum_m weights_m a_m(x)`` is the mean of the contributions of a point's parts, if the
        neurons allow for it.

        Raises
        ------
        ValueError
            The neurons are not linear in the mean.
        """
        raise ValueError(
            "this clustering is not linear in the mean word vector: its relevance can't be divided among words"
        )

    def slopes(self) -> Tensor | None:
        """Return the gradients [M, d] of the neurons; None if they are not linear in the raw columns."""
        return None

    def edges(self) -> tuple[Tensor, Tensor, Tensor] | None:
        """Return the column, the threshold and the sign [M] of neurons that are linear in one column each.

        A neuron with sign 1 is positive below its threshold, one with sign -1 above it. None if the neurons are
        not linear functions of one column each.
        """
        return None

    @property
    def references(self) -> Tensor:
        """Reference points [R, d] in raw columns: centers, supports or means."""
        raise NotImplementedError

    def units(self) -> Tensor:
        """Estimate the spread [d] of the columns by the standard deviations of the reference points."""
        return spreads(self.references)

    def check(self, x: Tensor, names: Sequence[str] | None = None) -> None:  # optional for subclasses
        """Raise a ValueError if the neurons of points [N, d] overflow the dtype of the points."""


class Framed(Detection):
    """Neurons of the coordinates ``y = (x - root) / n(x) - origin`` of raw columns.

    Attributes
    ----------
    root, origin : Tensor [d]
        Where y is zero: at the centroids' mean, as float32 is not translation invariant.
    diagonal : bool
        Whether the preprocessing keeps columns separate.
    norm : {"l1", "l2", "max"} or None
        The row norm n(x) that a Normalizer divides by; None: 1.
    norm_weight, norm_bias : Tensor
        The affine map of x whose norm it is, if there is one.
    """

    diagonal = True
    norm: str | None = None
    root: Tensor
    origin: Tensor
    norm_weight: Tensor
    norm_bias: Tensor

    def located(self, x: Tensor | SparseRows) -> Any:
        """The points with their coordinates."""
        return Located(x, None if isinstance(x, SparseRows) else self.coordinates(x))

    def coordinates_at(self, at: Located) -> tuple[Tensor, Tensor | float]:
        """The coordinates y [N, d] of points, which are dense, and their row norms [N, 1]."""
        return self.coordinates(at.x) if at.known is None else at.known

    def coordinates(self, x: Tensor | SparseRows) -> tuple[Tensor, Tensor | float]:
        """Compute the coordinates y [N, d] of raw points, and their row norms [N, 1]."""
        x = x.dense() if isinstance(x, SparseRows) else x
        with full_precision(x):
            x = x.to(compute_dtype(x.dtype))
            if self.norm is None:
                return _minus(x, self.root + self.origin), 1.0
            norm = self.row_norm(x)
            return _minus(x, self.root) / norm - self.origin.to(x), norm

    def row_norm(self, x: Tensor | SparseRows) -> Tensor | float:
        """Compute the row norms [N, 1] that the Normalizer divides by; 1 without a Normalizer."""
        if self.norm is None:
            return 1.0
        weight = self.norm_weight
        bias = self.norm_bias
        if isinstance(x, SparseRows):
            norm = x.norms(weight, bias, self.norm)[:, None]
        else:
            norm = torch.linalg.vector_norm(
                mapped(weight.to(x), x) + bias.to(x), ORDERS[self.norm], dim=1, keepdim=True
            )
        return torch.where(norm > 0, norm, 1.0)  # scikit-learn does not scale zero rows either


class Located(NamedTuple):
    """Points with their coordinates y [N, d] and row norms [N, 1]; None for sparse ones, until they are needed."""

    x: Tensor | SparseRows
    known: tuple[Tensor, Tensor | float] | None


@storable
class LinearDetection(Framed):
    """Linear neurons ``a_m(x) = bias_m - D_m y`` of the coordinates ``y = (x - root) / n(x) - origin``.

    Parameters
    ----------
    directions : Tensor [M, d]
        The directions D.
    anchors : Tensor [M, d]
        The anchors A. The relevance of a neuron is measured from its anchor: column i gets ``D_mi (A_mi - y_i)``.
        A contrast of two neurons is measured from the sum of their anchors, which for two centroids is the point
        halfway between them (NEON paper, Eq. 4).
    bias : Tensor [M], optional
        Values of the neurons at y = 0. Default: ``D_m A_m``, so that a neuron is zero at its anchor.
    **frame
        The coordinates; see :class:`Framed`.
    nearest_zero : bool
        Measure a contrast from the point nearest to y = 0 where it is zero instead: for linear layers, which have
        no centroids. The bias of a contrast is then shared among the columns in proportion to their squared
        slopes.
    """

    PLAIN = ("diagonal", "norm", "nearest_zero")
    nearest_zero = False
    directions: Tensor
    anchors: Tensor
    bias: Tensor

    def __init__(self, directions: Tensor, anchors: Tensor, bias: Tensor | None = None, **frame: Any) -> None:
        bias = (directions * anchors).sum(dim=1) if bias is None else bias
        super().__init__(directions=directions, anchors=anchors, bias=bias, **frame)

    @property
    def references(self) -> Tensor:
        """Centroids in raw columns; for other neurons, twice their anchors in place of the centroids."""
        return self.root + self.origin + 2 * self.anchors

    def among_parts(self, at: Located, parts: Tensor, weights: Tensor) -> Tensor:
        """Compute the contributions [N, P] of parts; see :meth:`Detection.among_parts`."""
        if self.norm is not None:
            return super().among_parts(at, parts, weights)
        return weights @ (self(parts) - self.unshared).to(weights).T

    def slopes(self) -> Tensor | None:
        """Return the gradients [M, d] of the neurons; None after a Normalizer."""
        return -self.directions if self.norm is None else None

    def edges(self) -> tuple[Tensor, Tensor, Tensor] | None:
        """Return the column, the threshold and the sign [M] of the neurons; see :meth:`Detection.edges`."""
        row, column = self.directions.nonzero(as_tuple=True)
        if self.norm is not None or not torch.equal(row, torch.arange(self.n_neurons, device=row.device)):
            return None
        slope = self.directions.sum(dim=1)
        return column, (self.root + self.origin)[column] + self.bias / slope, slope.sign()

    @property
    def unshared(self) -> Tensor:
        """The part of each neuron, [M], that no column gets: its value at its anchor."""
        if self.nearest_zero:
            return torch.zeros_like(self.bias)
        return self.bias - (self.directions * self.anchors).sum(dim=1)

    def check(self, x: Tensor, names: Sequence[str] | None = None) -> None:
        """Raise a ValueError if products with the directions overflow, or centroids' distances underflow."""
        info = torch.finfo(x.dtype)
        slope, size = torch.stack([self.directions.abs().amax(), self.anchors.abs().amax()]).tolist()
        check_range(x, info.max / (16 * self.n_features * max(slope, info.tiny)), names=names)
        size *= slope
        if not self.nearest_zero and size < info.tiny / info.eps:
            raise ValueError(
                f"squared distances between the clusters are at most {size:.3g}, too small for {x.dtype}; rescale "
                "the columns, or pass float64"
            )

    @property
    def by_contrast(self) -> bool:  # type: ignore[override]
        """Where columns are mixed, the sum of two anchors is not the point halfway between the centroids."""
        return self.nearest_zero or not self.diagonal

    def neurons(self, at: Located) -> Tensor:
        """Compute neurons [N, M]; see :meth:`Detection.neurons`."""
        x = at.x
        with full_precision(x):
            if isinstance(x, SparseRows):  # in float64, as the shift is subtracted after the matrix product
                directions = self.directions.double()
                origin = self.origin.double()
                along = (x @ directions.T - directions @ self.root.double()) / self.row_norm(x)
                return (self.bias.double() + directions @ origin - along).to(x.dtype)
            y, _ = self.coordinates_at(at)
            return torch.addmm(self.bias.to(y), y, self.directions.to(y).T, alpha=-1)

    def relevance(self, at: Located, weights: Tensor, own: Tensor | None = None) -> Tensor:
        """Compute the relevance [N, d] of a weighted sum; see :meth:`Detection.relevance`."""
        with full_precision(weights):
            y, _ = self.coordinates_at(at)
            directions = self.directions.to(y)
            anchors = self.anchors.to(y)
            slope = weights @ directions
            relevance = (weights @ (directions * anchors)).addcmul_(y, slope, value=-1)
            if own is not None and self.nearest_zero:
                relevance += self._biases(weights, own.to(y))
            elif own is not None and not self.diagonal:
                relevance += (own @ anchors) * slope - (own @ directions) * (weights @ anchors)
            return relevance

    def multiplier(self, at: Located, weights: Tensor) -> Tensor:
        """Compute the gradient [N, d] of a weighted sum, with the row norm held constant."""
        with full_precision(weights):
            return -(weights @ self.directions.to(weights)) / self.coordinates_at(at)[1]

    def _biases(self, weights: Tensor, own: Tensor) -> Tensor:
        """Shares [N, d] in the contrasts' biases: ``sum_k s_k b_k / |w_k|^2 w_k^2``, w_k = D_k - D_c."""
        directions = self.directions.to(weights)
        bias = self.bias.to(weights)
        target = own.argmax(dim=1)
        mode = "donot_use_mm_for_euclid_dist"  # the matrix product suffers from cancellation
        apart = torch.cdist(directions, directions, compute_mode=mode).square()[target]
        share = torch.where(apart > 0, weights * (bias - bias[target][:, None]) / apart, 0.0)
        mine = directions[target]
        squares = share @ directions.square() - 2 * mine * (share @ directions)
        return squares + share.sum(1, keepdim=True) * mine.square()


def _minus(x: Tensor, shift: Tensor) -> Tensor:
    """``x - shift``; the rounding error of the shift in the dtype of x is subtracted afterwards."""
    rounded = shift.to(x)
    return (x - rounded).sub_((shift - rounded.to(shift)).to(x))


def full_precision(x: Tensor | SparseRows) -> AbstractContextManager[Any]:
    """Switch autocast off: squared distances overflow float16."""
    kind = x.device.type
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()


@storable
class EdgeDetection(Detection):
    """Neurons that measure how far one column is inside an edge of an interval, in spreads of the column.

    ``a_m(x) = sign_m (edge_m - x_i) / spread_m`` for the column i of neuron m. The sign is 1 for an upper edge and
    -1 for a lower one. A point on an upper edge is inside, one on a lower edge is not. A neuron is never exactly
    zero, so that its sign agrees with the tree's decision on the edges too.

    Parameters
    ----------
    column : Tensor [M] of int64
        Column of each neuron.
    edge : Tensor [M] of float64
        Thresholds in the units of the columns.
    sign : Tensor [M]
        1 for upper edges, -1 for lower ones.
    spread : Tensor [M] of float64
        Positive scales in the units of the columns, such as standard deviations.
    columns : int
        Number of raw columns d.
    """

    PLAIN = ("columns",)
    column: Tensor
    edge: Tensor
    sign: Tensor
    spread: Tensor

    columns: int

    @property
    def n_features(self) -> int:
        """Number of raw columns d."""
        return self.columns

    def units(self) -> Tensor:
        """Return the spreads [d] of the columns that are tested, and 1 for the others."""
        return self.spread.double().new_ones(self.columns).index_copy(0, self.column, self.spread.double())

    def slopes(self) -> Tensor:
        """Return the gradients [M, d] of the neurons."""
        slope = -self.sign.to(self.spread) / self.spread
        return slope.new_zeros(self.n_neurons, self.columns).scatter(1, self.column[:, None], slope[:, None])

    def edges(self) -> tuple[Tensor, Tensor, Tensor] | None:
        """Return the column, the edge and the sign [M] of the neurons."""
        return self.column, self.edge, self.sign

    def located(self, x: Tensor | SparseRows) -> Tensor:
        """The points, and dense ones for sparse."""
        return dense(x)

    def neurons(self, at: Tensor) -> Tensor:
        """Compute neurons [N, M]; see :meth:`Detection.neurons`."""
        x = at
        dtype = compute_dtype(at.dtype)
        # compared in float64, as the tree does
        inside = (self.edge.double() - x[:, self.column].double()) * self.sign
        neurons = (inside / self.spread.double()).to(dtype)
        side = torch.where(inside == 0, self.sign, inside).sign().to(dtype)
        return torch.where(neurons == 0, side * torch.finfo(dtype).tiny, neurons)

    def relevance(self, at: Tensor, weights: Tensor, own: Tensor | None = None) -> Tensor:
        """Compute the relevance [N, d] of a weighted sum: a neuron's column gets all of its value."""
        values = weights * self.neurons(at)
        return values.new_zeros(len(values), self.columns).index_add(1, self.column, values)
