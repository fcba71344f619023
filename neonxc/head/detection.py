"""Detection layers: the base class, linear neurons, and neurons that measure single columns.

A detection layer computes neurons a_m(x) [N, M] of points x [N, d]. A decision for a cluster is a sum of neurons
with weights s_m, which grouping and competition compute for every point. Layers divide it among the columns::

    decision                          f(x) = sum_m s_m a_m(x)
    relevance by the midpoint rule    R_i(x) [N, d], from the reference point of every neuron or contrast
    multiplier of the linear rule     df / dx_i [N, d], with row norms held constant

With the coordinates y of :mod:`neonxc.head.preprocessing`, linear neurons are::

    neuron                            a_m(x) = bias_m - D_m y
    relevance                         R_i = sum_m s_m D_mi (A_mi - y_i)    with the anchors A
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from typing import Any, NamedTuple, Self, TypeVar

import torch
from torch import Tensor, nn

from neonxc.common.registry import storable
from neonxc.data.inputs import check_range, compute_dtype, spreads
from neonxc.data.sparse import SparseRows, dense
from neonxc.head.preprocessing import Coordinates, RowNorm

Value = TypeVar("Value")


class Kept(NamedTuple):
    """A value, and the buffers of a layer that it was computed from."""

    value: Any
    buffers: list[Tensor]
    versions: list[int]  # which PyTorch counts up when a buffer is changed in place

    def is_of(self, buffers: list[Tensor]) -> bool:
        """Whether these are the buffers, and unchanged."""
        if len(buffers) != len(self.buffers):
            return False
        for buffer, known, version in zip(buffers, self.buffers, self.versions, strict=True):
            if buffer is not known or buffer._version != version:
                return False
        return True


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
        layer = copy(self)
        layer._buffers = self._buffers.copy()  # which a copy would share with this layer
        for name, value in parts.items():
            setattr(layer, name, value)
        return layer

    def kept(self, key: Hashable, compute: Callable[[], Value]) -> Value:
        """Return what is computed from the buffers alone, once for as long as no buffer changes."""
        if torch.compiler.is_compiling():
            return compute()
        known: dict[Hashable, Kept] = self.__dict__.setdefault("_kept", {})
        kept = known.get(key)
        buffers = [buffer for buffer in self._buffers.values() if buffer is not None]
        if kept is None or not kept.is_of(buffers):
            if any(buffer.is_inference() for buffer in buffers):
                return compute()  # they do not tell when they change
            with torch.inference_mode(False):  # what is made in that mode serves no gradient
                kept = known[key] = Kept(compute(), buffers, [buffer._version for buffer in buffers])
        value: Value = kept.value
        return value

    def __getstate__(self) -> dict[str, Any]:
        """Return what copies and files have of the layer: not what is kept."""
        return {name: value for name, value in self.__dict__.items() if name != "_kept"}


class Detection(Stage):
    """Base class of detection layers: a decision is a weighted sum of their neurons.

    The first buffer has one row per neuron.
    """

    searches = False
    """Whether the nearest of many rows are searched for every point, which takes long."""

    @property
    def of_clusters(self) -> Detection:
        """The layer without neurons of noise."""
        return self

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
    """Whether the relevance of a contrast of two neurons differs from the difference of theirs.

    Then :meth:`relevance` needs the weights of the target's neurons."""
    stand_in = "surrogate"
    """What the network is called if its decisions are not those of the clusterer."""

    def forward(self, x: Tensor | SparseRows) -> Tensor:
        """Compute neurons [N, M] from raw points [N, d], dense or sparse, with autocast off."""
        return self.neurons(self.located(x))

    def located(self, x: Tensor | SparseRows) -> Any:
        """Compute what the neurons and their relevance have in common, once per block; by default the points."""
        return x

    @abstractmethod
    def neurons(self, at: Any) -> Tensor:
        """Compute neurons [N, M] at points from :meth:`located`, in float32 or float64."""

    @abstractmethod
    def relevance(self, at: Any, weights: Tensor, target: Tensor | None = None) -> Tensor:
        """Compute the relevance [N, d] of the weighted sum ``sum_m weights_m a_m(x)``.

        Every neuron, or contrast of two neurons, is measured from its reference point.

        Parameters
        ----------
        at : points from :meth:`located`
        weights : Tensor [N, M]
        target : Tensor [N, M], optional
            If the sum consists of contrasts with the target cluster: the weights of the target's neurons in each
            contrast, which sum to 1.
        """

    def multiplier(self, at: Any, weights: Tensor) -> Tensor:
        """Compute the gradient [N, d] of the weighted sum, with row norms held constant: the linear rule."""
        slopes = self.slopes()
        assert slopes is not None  # other neurons have a gradient of their own
        with full_precision(weights):
            return weights @ slopes.to(weights)

    def among_parts(self, at: Any, parts: Tensor, weights: Tensor) -> Tensor:
        """Compute the contributions [N, P] of parts [P, d] to decisions at points that are means of such parts.

        The weighted sum ``sum_m weights_m a_m(x)`` is the mean of the contributions of a point's parts, as it is
        for neurons that are linear in x.

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

    def spreads(self) -> Tensor:
        """Estimate the spread [d] of the columns by the standard deviations of the reference points."""
        return spreads(self.references)

    def check(self, x: Tensor, names: Sequence[str] | None = None) -> None:  # optional for subclasses
        """Raise a ValueError if the neurons of points [N, d] overflow the dtype of the points."""


class CoordinateDetection(Detection):
    """Base class of layers whose neurons are functions of the coordinates ``y = (x - root) / n(x) - origin``.

    Attributes
    ----------
    root, origin : Tensor [d]
        See :mod:`neonxc.head.preprocessing`.
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

    @property
    def frame(self) -> Coordinates:
        """The map from raw points to coordinates, on the device of the layer."""
        norm = None
        if self.norm is not None:
            norm = RowNorm(self.norm, self.norm_weight, self.norm_bias)
        return Coordinates(self.root, self.origin, norm, self.diagonal)

    def located(self, x: Tensor | SparseRows) -> Any:
        """Compute the coordinates of dense points; those of sparse ones are computed where they are needed."""
        if isinstance(x, SparseRows):
            return Located(x, None)
        return Located(x, self.coordinates(x))

    def coordinates_at(self, at: Located) -> tuple[Tensor, Tensor | float]:
        """Return the coordinates y [N, d] of points, and their row norms [N, 1]."""
        return self.coordinates(at.x) if at.coordinates is None else at.coordinates

    def coordinates(self, x: Tensor | SparseRows) -> tuple[Tensor, Tensor | float]:
        """Compute the coordinates y [N, d] of raw points, and their row norms [N, 1]."""
        x = dense(x)
        x = x.to(compute_dtype(x.dtype))
        rounded = self.kept(("coordinates", x.dtype, x.device), lambda: self.frame.rounded(x))
        with full_precision(x):
            return rounded.of(x)

    def row_norm(self, x: Tensor | SparseRows) -> Tensor | float:
        """Compute the row norms [N, 1] that the Normalizer divides by; 1 without a Normalizer."""
        norm = self.frame.norm
        return 1.0 if norm is None else norm.of(x)


class Located(NamedTuple):
    """Points, and their coordinates if they are known."""

    x: Tensor | SparseRows
    coordinates: tuple[Tensor, Tensor | float] | None  # y [N, d] and n(x) [N, 1]; None for sparse points


class Factors(NamedTuple):
    """The factors of products with the coordinates of points."""

    bias: Tensor  # [M]
    directions: Tensor  # [M, d], D
    transposed: Tensor  # [d, M], D'
    anchors: Tensor  # [M, d], A
    joint: Tensor  # [M, 2 d], D_mi A_mi and D_mi, for one product in place of two


@storable
class LinearDetection(CoordinateDetection):
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
        The coordinates; see :class:`CoordinateDetection`.
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
        if bias is None:
            bias = (directions * anchors).sum(dim=1)
        super().__init__(directions=directions, anchors=anchors, bias=bias, **frame)

    @property
    def references(self) -> Tensor:
        """Centroids in raw columns; for other neurons, twice their anchors in place of the centroids."""
        return self.root + self.origin + 2 * self.anchors

    def among_parts(self, at: Located, parts: Tensor, weights: Tensor) -> Tensor:
        """Compute the contributions [N, P] of parts; see :meth:`Detection.among_parts`."""
        if self.norm is not None:
            return super().among_parts(at, parts, weights)
        shared = self(parts) - self.unshared  # [P, M]
        return weights @ shared.to(weights).T

    def slopes(self) -> Tensor | None:
        """Return the gradients [M, d] of the neurons; None after a Normalizer."""
        return -self.directions if self.norm is None else None

    def edges(self) -> tuple[Tensor, Tensor, Tensor] | None:
        """Return the column, the threshold and the sign [M] of the neurons; see :meth:`Detection.edges`."""
        neuron, column = self.directions.nonzero(as_tuple=True)
        every_neuron = torch.arange(self.n_neurons, device=neuron.device)
        has_single_columns = torch.equal(neuron, every_neuron)
        if self.norm is not None or not has_single_columns:
            return None
        # a_m(x) = bias_m - slope_m (x_i - root_i - origin_i) is zero at the threshold
        slope = self.directions.sum(dim=1)
        threshold = (self.root + self.origin)[column] + self.bias / slope
        return column, threshold, slope.sign()

    @property
    def unshared(self) -> Tensor:
        """The part of each neuron, [M], that no column gets: its value at its anchor."""
        if self.nearest_zero:
            return torch.zeros_like(self.bias)
        return self.bias - (self.directions * self.anchors).sum(dim=1)

    def check(self, x: Tensor, names: Sequence[str] | None = None) -> None:
        """Raise a ValueError if products with the directions overflow, or centroids' distances underflow."""
        info = torch.finfo(x.dtype)
        slope, size = self.kept("sizes", self._sizes)
        check_range(x, info.max / (16 * self.n_features * max(slope, info.tiny)), names=names)

        squared_distance = size * slope
        if not self.nearest_zero and squared_distance < info.tiny / info.eps:
            raise ValueError(
                f"squared distances between the clusters are at most {squared_distance:.3g}, too small for "
                f"{x.dtype}; rescale the columns, or pass float64"
            )

    def _sizes(self) -> list[float]:
        """Return the largest number of the directions, and of the anchors."""
        return torch.stack([self.directions.abs().amax(), self.anchors.abs().amax()]).tolist()

    @property
    def by_contrast(self) -> bool:  # type: ignore[override]
        """Where columns are mixed, the sum of two anchors is not the point halfway between the centroids."""
        return self.nearest_zero or not self.diagonal

    def neurons(self, at: Located) -> Tensor:
        """Compute neurons [N, M]; see :meth:`Detection.neurons`."""
        x = at.x
        with full_precision(x):
            if isinstance(x, SparseRows):
                return self._sparse_neurons(x)
            y, _ = self.coordinates_at(at)
            factors = self._factors(y)
            return torch.addmm(factors.bias, y, factors.transposed, alpha=-1)

    def _factors(self, y: Tensor) -> Factors:
        """Return the factors of products with coordinates, in their dtype and on their device."""
        return self.kept(("factors", y.dtype, y.device), lambda: self._computed_factors(y))

    def _computed_factors(self, y: Tensor) -> Factors:
        directions = self.directions.to(y)
        anchors = self.anchors.to(y)
        joint = torch.cat([directions * anchors, directions], dim=1)
        return Factors(self.bias.to(y), directions, directions.T, anchors, joint)

    def _sparse_neurons(self, x: SparseRows) -> Tensor:
        """Compute neurons [N, M] of sparse points, whose coordinates would be dense.

        They are computed in float64, as the shift is subtracted after the matrix product.
        """
        directions = self.directions.double()
        product = (x @ directions.T - directions @ self.root.double()) / self.row_norm(x)
        at_origin = self.bias.double() + directions @ self.origin.double()
        return (at_origin - product).to(x.dtype)

    def relevance(self, at: Located, weights: Tensor, target: Tensor | None = None) -> Tensor:
        """Compute the relevance [N, d] of a weighted sum; see :meth:`Detection.relevance`."""
        with full_precision(weights):
            y, _ = self.coordinates_at(at)
            _, directions, _, anchors, joint = self._factors(y)

            # sum_m s_m D_mi (A_mi - y_i)
            at_anchors, slope = (weights @ joint).chunk(2, dim=1)
            relevance = torch.addcmul(at_anchors, y, slope, value=-1)

            if target is not None and self.nearest_zero:
                relevance += self._contrast_biases(weights, target.to(y))
            elif target is not None and not self.diagonal:
                # A contrast with target c is measured from A_m + A_c: (D_m - D_c) (A_m + A_c - y) is
                # D_m A_c - D_c A_m more than the difference of the neurons, D_m (A_m - y) - D_c (A_c - y)
                relevance += (target @ anchors) * slope - (target @ directions) * (weights @ anchors)
            return relevance

    def multiplier(self, at: Located, weights: Tensor) -> Tensor:
        """Compute the gradient [N, d] of a weighted sum, with the row norm held constant."""
        with full_precision(weights):
            _, norm = self.coordinates_at(at)
            return -(weights @ self._factors(weights).directions) / norm

    def _contrast_biases(self, weights: Tensor, target: Tensor) -> Tensor:
        """Divide the biases of contrasts among the columns [N, d], in proportion to squared slopes.

        The contrast of cluster k and target c has the slope ``w_k = D_k - D_c`` and the bias ``b_k``, so that the
        columns get ``sum_k s_k b_k / |w_k|^2 w_k^2``. The squares are expanded as ``D_k^2 - 2 D_c D_k + D_c^2``.
        """
        directions = self.directions.to(weights)
        bias = self.bias.to(weights)
        c = target.argmax(dim=1)
        mode = "donot_use_mm_for_euclid_dist"  # the matrix product suffers from cancellation
        squared_norm = torch.cdist(directions, directions, compute_mode=mode).square()[c]  # [N, M], |w_k|^2
        contrast_bias = bias - bias[c][:, None]
        scaled = torch.where(squared_norm > 0, weights * contrast_bias / squared_norm, 0.0)
        target_directions = directions[c]
        relevance = scaled @ directions.square() - 2 * target_directions * (scaled @ directions)
        return relevance + scaled.sum(1, keepdim=True) * target_directions.square()


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

    def spreads(self) -> Tensor:
        """Return the spreads [d] of the columns that are tested, and 1 for the others."""
        spread = self.spread.double()
        return spread.new_ones(self.columns).index_copy(0, self.column, spread)

    def slopes(self) -> Tensor:
        """Return the gradients [M, d] of the neurons."""
        slope = -self.sign.to(self.spread) / self.spread
        return slope.new_zeros(self.n_neurons, self.columns).scatter(1, self.column[:, None], slope[:, None])

    def edges(self) -> tuple[Tensor, Tensor, Tensor] | None:
        """Return the column, the edge and the sign [M] of the neurons."""
        return self.column, self.edge, self.sign

    def located(self, x: Tensor | SparseRows) -> Tensor:
        """Return the points as a dense tensor."""
        return dense(x)

    def neurons(self, at: Tensor) -> Tensor:
        """Compute neurons [N, M]; see :meth:`Detection.neurons`."""
        dtype = compute_dtype(at.dtype)
        # compared in float64, as the tree does
        inside = (self.edge.double() - at[:, self.column].double()) * self.sign
        neurons = (inside / self.spread.double()).to(dtype)
        # a neuron is never zero: on the edge it has the sign of the edge, where it underflows that of `inside`
        side = torch.where(inside == 0, self.sign, inside).sign().to(dtype)
        return torch.where(neurons == 0, side * torch.finfo(dtype).tiny, neurons)

    def relevance(self, at: Tensor, weights: Tensor, target: Tensor | None = None) -> Tensor:
        """Compute the relevance [N, d] of a weighted sum: a neuron's column gets all of its value."""
        values = weights * self.neurons(at)
        return values.new_zeros(len(values), self.columns).index_add(1, self.column, values)
