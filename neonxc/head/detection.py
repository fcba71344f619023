"""Detection layers of linear neurons on the raw columns, and the relevance that they assign to the columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from typing import Any

import torch
from torch import Tensor, nn

from neonxc.common.registry import storable
from neonxc.data.inputs import check_range, compute_dtype, spreads
from neonxc.data.sparse import ORDERS, SparseRows, dense
from neonxc.head.preprocessing import mapped


class Detection(nn.Module, ABC):
    """Base class of detection layers: a decision is a weighted sum of their neurons.

    The plain attributes and buffers are given by name; the first buffer has one row per neuron.
    """

    PLAIN: tuple[str, ...] = ()

    def __init__(self, **parts: Any) -> None:
        super().__init__()
        for name, value in parts.items():
            if name in self.PLAIN:
                setattr(self, name, value)
            else:
                self.register_buffer(name, value)

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
        # `buffers` walks over all modules, which takes a while
        return next(buffer for buffer in self._buffers.values() if buffer is not None)

    @property
    def width(self) -> int:
        """The number of values computed per point, from which callers bound memory."""
        return max(self.n_neurons, self.n_features)

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Compute neurons [N, M] from raw points [N, d], in float32 or float64 and with autocast off."""

    @abstractmethod
    def relevance(self, x: Tensor, weights: Tensor, own: Tensor | None) -> Tensor:
        """Compute the relevance [N, d] of the weighted sum ``sum_m weights_m a_m(x)``.

        Every neuron, or contrast of two neurons, is measured from its reference point.

        Parameters
        ----------
        x : Tensor [N, d]
        weights : Tensor [N, M]
        own : Tensor [N, M] or None
            If the sum consists of contrasts with the target cluster: the weights of the target's own neurons in
            each contrast, which sum to 1.
        """

    @abstractmethod
    def multiplier(self, x: Tensor, weights: Tensor) -> Tensor:
        """Compute the gradient [N, d] of the weighted sum: the multipliers of the standard linear rule."""

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


@storable
class LinearDetection(Detection):
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
    root, origin : Tensor [d]
        Where y is zero: at the centroids' mean, as float32 is not translation invariant.
    diagonal : bool
        Whether the preprocessing keeps columns separate.
    norm : {"l1", "l2", "max"}, optional
        The row norm n(x) that a Normalizer divides by. Default: 1.
    norm_weight, norm_bias : Tensor
        The affine map of x whose norm it is, if there is one.
    nearest_zero : bool
        Measure a contrast from the point nearest to y = 0 where it is zero instead: for linear layers, which have
        no centroids. The bias of a contrast is then shared among the columns in proportion to their squared
        slopes.
    """

    PLAIN = ("diagonal", "norm", "nearest_zero")
    diagonal, nearest_zero = True, False
    norm: str | None = None
    directions: Tensor
    anchors: Tensor
    bias: Tensor
    root: Tensor
    origin: Tensor
    norm_weight: Tensor
    norm_bias: Tensor

    def __init__(self, directions: Tensor, anchors: Tensor, bias: Tensor | None = None, **frame: Any) -> None:
        bias = (directions * anchors).sum(dim=1) if bias is None else bias
        super().__init__(directions=directions, anchors=anchors, bias=bias, **frame)

    @property
    def references(self) -> Tensor:
        """Centroids in raw columns; for other neurons, twice their anchors in place of the centroids."""
        return self.root + self.origin + 2 * self.anchors

    def slopes(self) -> Tensor | None:
        """Return the gradients [M, d] of the neurons; None after a Normalizer."""
        return -self.directions if self.norm is None else None

    def edges(self) -> tuple[Tensor, Tensor, Tensor] | None:
        """Return the column, the threshold and the sign [M] of the neurons; see :meth:`Detection.edges`."""
        uses_column = self.directions != 0
        if self.norm is not None or not bool((uses_column.sum(dim=1) == 1).all()):
            return None
        column = uses_column.to(torch.int8).argmax(dim=1)
        slope = self.directions.gather(1, column[:, None])[:, 0]
        return column, (self.root + self.origin)[column] + self.bias / slope, slope.sign()

    @property
    def unshared(self) -> Tensor:
        """The part of each neuron, [M], that no column gets: its value at its anchor."""
        if self.nearest_zero:
            return torch.zeros_like(self.bias)
        return self.bias - (self.directions * self.anchors).sum(dim=1)

    def changed(self, **buffers: Tensor) -> LinearDetection:
        """Return the same layer with other values of some buffers."""
        other = copy(self)
        other._buffers = {**self._buffers, **buffers}
        return other

    def check(self, x: Tensor, names: Sequence[str] | None = None) -> None:
        """Raise a ValueError if products with the directions overflow, or centroids' distances underflow."""
        info, slope = torch.finfo(x.dtype), float(self.directions.abs().amax())
        check_range(x, info.max / (16 * self.n_features * max(slope, info.tiny)), names=names)
        size = slope * float(self.anchors.abs().amax())
        if not self.nearest_zero and size < info.tiny / info.eps:
            kind = str(x.dtype).removeprefix("torch.")
            raise ValueError(
                f"squared distances between the clusters are at most {size:.3g}, too small for {kind}; rescale "
                "the columns, or pass float64"
            )

    def forward(self, x: Tensor) -> Tensor:
        """Compute neurons [N, M] from raw points [N, d], dense or sparse, with autocast off."""
        with full_precision(x):
            if isinstance(x, SparseRows):
                return self._sparse_forward(x)
            y, _ = self.coordinates(x)
            return torch.addmm(self.bias.to(y), y, self.directions.to(y).T, alpha=-1)

    def relevance(self, x: Tensor, weights: Tensor, own: Tensor | None) -> Tensor:
        """Compute the relevance [N, d] of a weighted sum; see :meth:`Detection.relevance`."""
        with full_precision(x):
            y, _ = self.coordinates(x)
            directions, anchors = self.directions.to(y), self.anchors.to(y)
            slope = weights @ directions
            relevance = torch.addcmul(weights @ (directions * anchors), y, slope, value=-1)
            if own is not None and self.nearest_zero:
                relevance += self._biases(weights, own.to(y))
            elif own is not None and not self.diagonal:
                # where columns are mixed, the sum of two anchors is not the point halfway between the centroids
                relevance += (own @ anchors) * slope - (own @ directions) * (weights @ anchors)
            return relevance

    def multiplier(self, x: Tensor, weights: Tensor) -> Tensor:
        """Compute the gradient [N, d] of a weighted sum, with the row norm held constant."""
        with full_precision(x):
            _, norm = self.coordinates(x)
            return -(weights @ self.directions.to(weights)) / norm

    def _biases(self, weights: Tensor, own: Tensor) -> Tensor:
        """Shares [N, d] in the contrasts' biases: ``sum_k s_k b_k / |w_k|^2 w_k^2``, w_k = D_k - D_c."""
        directions, bias = self.directions.to(weights), self.bias.to(weights)
        target = own.argmax(dim=1)
        mode = "donot_use_mm_for_euclid_dist"  # the matrix product suffers from cancellation
        apart = torch.cdist(directions, directions, compute_mode=mode).square()[target]
        share = torch.where(apart > 0, weights * (bias - bias[target][:, None]) / apart, 0.0)
        mine = directions[target]
        squares = share @ directions.square() - 2 * mine * (share @ directions)
        return squares + share.sum(1, keepdim=True) * mine.square()

    def _sparse_forward(self, x: SparseRows) -> Tensor:
        """Neurons [N, M] of sparse points, in float64, as the shift is subtracted after the matrix product."""
        directions, origin = self.directions.double(), self.origin.double()
        along = (x @ directions.T - directions @ self.root.double()) / self.row_norm(x) - directions @ origin
        return (self.bias.double() - along).to(x.dtype)

    def coordinates(self, x: Tensor) -> tuple[Tensor, Tensor | float]:
        """Compute the coordinates y [N, d] of raw points, and their row norms [N, 1]."""
        x = dense(x)
        x = x.to(compute_dtype(x.dtype))
        if self.norm is None:
            return _minus(x, self.root + self.origin), 1.0
        norm = self.row_norm(x)
        return _minus(x, self.root) / norm - self.origin.to(x), norm

    def row_norm(self, x: Tensor | SparseRows) -> Tensor | float:
        """Compute the row norms [N, 1] that the Normalizer divides by; 1 without a Normalizer."""
        if self.norm is None:
            return 1.0
        weight, bias = self.norm_weight, self.norm_bias
        if isinstance(x, SparseRows):
            norm = x.norms(weight, bias, self.norm)[:, None]
        else:
            norm = torch.linalg.vector_norm(
                mapped(weight.to(x), x) + bias.to(x), ORDERS[self.norm], dim=1, keepdim=True
            )
        return torch.where(norm > 0, norm, 1.0)  # scikit-learn does not scale zero rows either


def _minus(x: Tensor, shift: Tensor) -> Tensor:
    """``x - shift``; the rounding error of the shift in the dtype of x is subtracted afterwards."""
    rounded = shift.to(x)
    return x - rounded - (shift - rounded.to(shift)).to(x)


def full_precision(x: Tensor) -> AbstractContextManager[Any]:
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

    def forward(self, x: Tensor) -> Tensor:
        """Compute neurons [N, M] from raw points [N, d], in float32 or float64."""
        dtype = compute_dtype(x.dtype)
        # compared in float64, as the tree does
        inside = (self.edge.double() - x[:, self.column].double()) * self.sign
        neurons = (inside / self.spread.double()).to(dtype)
        least = torch.full_like(neurons, torch.finfo(dtype).tiny)
        belongs = (inside > 0) | ((inside == 0) & (self.sign > 0))
        return torch.where(neurons == 0, torch.where(belongs, least, -least), neurons)

    def relevance(self, x: Tensor, weights: Tensor, own: Tensor | None) -> Tensor:
        """Compute the relevance [N, d] of a weighted sum: a neuron's column gets all of its value."""
        values = weights * self(x)
        return values.new_zeros(len(values), self.columns).index_add(1, self.column, values)

    def multiplier(self, x: Tensor, weights: Tensor) -> Tensor:
        """Compute the gradient [N, d] of a weighted sum."""
        with full_precision(x):
            return weights @ self.slopes().to(weights)
