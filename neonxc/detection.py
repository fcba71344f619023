"""Detection: linear and quadratic neurons on the raw columns, and what relevance they give these columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from neonxc.inputs import check_range, check_width, compute_dtype, spreads
from neonxc.registry import storable
from neonxc.sparse import ORDERS, SparseRows, dense


class Detection(nn.Module, ABC):
    """A layer of neurons; a decision is explained through a weighted sum of them."""

    @property
    @abstractmethod
    def n_features(self) -> int:
        """Number of raw columns d."""

    @property
    @abstractmethod
    def n_neurons(self) -> int:
        """Number of neurons M."""

    @property
    def width(self) -> int:
        """How many numbers are computed per point, so that callers can bound memory."""
        return max(self.n_neurons, self.n_features)

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Neurons [N, M] of raw points [N, d], in float32 or better and with autocast off."""

    @abstractmethod
    def relevance(self, x: Tensor, weights: Tensor, own: Tensor | None) -> Tensor:
        """Relevance [N, d] of ``sum_m weights_m a_m(x)``, each neuron or contrast counted from its reference.

        Parameters
        ----------
        x : Tensor [N, d]
        weights : Tensor [N, M]
        own : Tensor [N, M] or None
            Where the sum consists of contrasts with the explained cluster, the weights of this cluster's neurons
            in each contrast; they sum to 1.
        """

    @abstractmethod
    def multiplier(self, x: Tensor, weights: Tensor) -> Tensor:
        """Slope [N, d] of the weighted sum: the multipliers of the standard linear rule."""

    def slopes(self) -> Tensor | None:  # most neurons are not linear
        """Slopes [M, d] of the neurons, None where they are not linear in the raw columns."""
        return None

    def edges(self) -> tuple[Tensor, Tensor, Tensor] | None:
        """Column, zero and sign [M] of neurons of one column each, positive below their zero where the sign is 1.

        None where neurons are not linear functions of one column each.
        """
        return None

    @property
    @abstractmethod
    def references(self) -> Tensor:
        """Raw points [R, d] that the neurons are measured from: centers, supports, means."""

    def units(self) -> Tensor:
        """How far the columns spread, [d], as far as the neurons tell: as far as their references do."""
        return spreads(self.references)

    @property
    def device(self) -> torch.device:
        """Where the neurons are computed."""
        return next(self.buffers()).device

    @abstractmethod
    def scaled(self, factor: float) -> Detection:
        """Give the same neurons multiplied by a factor."""

    def check(self, x: Tensor, names: Sequence[str] | None = None) -> None:  # some neurons take any number
        """Raise a ValueError if the type of points [N, d] can't hold what neurons compute of them."""


@storable
class LinearDetection(Detection):
    """Neurons ``a_m(x) = bias_m - D_m y`` with ``y = (x - root) / n(x) - origin``.

    Parameters
    ----------
    directions : Tensor [M, d]
        D.
    anchors : Tensor [M, d]
        A. A neuron's relevance is counted from the point A_m: column i gets ``D_mi (A_mi - y_i)``. A contrast of
        two neurons is counted from the sum of their anchors, which for two centroids is the point halfway between
        them (NEON paper, Eq. 4).
    bias : Tensor [M], optional
        Default: ``D_m A_m``, with which a neuron is zero at its anchor.
    frame : dict, optional
        What all neurons share: `root` and `origin` [d], where y is zero (float32 is not translation invariant, so
        y is measured from the centroids' mean); `diagonal`, whether no preprocessing mixes columns; and where a
        pipeline has a Normalizer its `norm` ("l1", "l2" or "max"), `norm_weight` and `norm_bias`. Default: y = x.
    nearest_zero : bool
        Count each contrast from its zero that is nearest to y = 0 instead: for linear layers, which have no
        centroids. A contrast's bias then belongs to the columns in proportion to their squared slopes.
    """

    PLAIN = ("diagonal", "norm", "nearest_zero")
    directions: Tensor
    anchors: Tensor
    bias: Tensor
    root: Tensor
    origin: Tensor
    norm_weight: Tensor | None
    norm_bias: Tensor | None

    def __init__(
        self,
        directions: Tensor,
        anchors: Tensor,
        bias: Tensor | None = None,
        frame: dict[str, Any] | None = None,
        nearest_zero: bool = False,
    ) -> None:
        super().__init__()
        frame = frame or {}
        zero = directions.new_zeros(directions.shape[1])
        self.diagonal, self.norm = bool(frame.get("diagonal", True)), frame.get("norm")
        self.nearest_zero = nearest_zero
        self.register_buffer("directions", directions)
        self.register_buffer("anchors", anchors)
        self.register_buffer("bias", (directions * anchors).sum(dim=1) if bias is None else bias)
        self.register_buffer("root", frame.get("root", zero))
        self.register_buffer("origin", frame.get("origin", zero.clone()))
        self.register_buffer("norm_weight", frame.get("norm_weight"))
        self.register_buffer("norm_bias", frame.get("norm_bias"))

    @property
    def n_features(self) -> int:
        """Number of raw columns d."""
        return self.directions.shape[1]

    @property
    def n_neurons(self) -> int:
        """Number of neurons M."""
        return len(self.directions)

    @property
    def references(self) -> Tensor:
        """Centroids in raw columns; of other neurons, where a contrast with themselves would be zero."""
        return self.root + self.origin + 2 * self.anchors

    def slopes(self) -> Tensor | None:
        """Slopes [M, d] of the neurons; None behind a Normalizer."""
        return -self.directions if self.norm is None else None

    def edges(self) -> tuple[Tensor, Tensor, Tensor] | None:
        """Column, zero and sign [M] of neurons, see :meth:`Detection.edges`."""
        of_column = self.directions != 0
        if self.norm is not None or not bool((of_column.sum(dim=1) == 1).all()):
            return None
        column = of_column.to(torch.int8).argmax(dim=1)
        slope = self.directions.gather(1, column[:, None])[:, 0]
        return column, (self.root + self.origin)[column] + self.bias / slope, slope.sign()

    @property
    def unshared(self) -> Tensor:
        """What of each neuron, [M], no column has: what its bias differs by from that of a zero at its anchor."""
        if self.nearest_zero:
            return torch.zeros_like(self.bias)
        return self.bias - (self.directions * self.anchors).sum(dim=1)

    def scaled(self, factor: float) -> LinearDetection:
        """Give the same neurons multiplied by a factor."""
        frame = {"diagonal": self.diagonal, "norm": self.norm, **self._buffers}
        return LinearDetection(
            self.directions * factor, self.anchors, self.bias * factor, frame, self.nearest_zero
        )

    def check(self, x: Tensor, names: Sequence[str] | None = None) -> None:
        """Raise a ValueError if products with the directions overflow, or distances of centroids underflow."""
        info, slope = torch.finfo(x.dtype), float(self.directions.abs().amax())
        check_range(x, info.max / (16 * self.n_features * max(slope, info.tiny)), names=names)
        size = slope * float(self.anchors.abs().amax())
        if not self.nearest_zero and size < info.tiny / info.eps:
            kind = str(x.dtype).removeprefix("torch.")
            raise ValueError(
                f"squared distances between the clusters are at most {size:.3g}, too small for {kind}; rescale "
                "the columns, or pass float64"
            )

    def coordinates(self, x: Tensor) -> Tensor:
        """Points [N, d] where they are measured, y."""
        with full_precision(x):
            return self._coordinates(x)[0]

    def forward(self, x: Tensor) -> Tensor:
        """Neurons [N, M] of raw points [N, d], dense or sparse, in float32 or better and with autocast off."""
        with full_precision(x):
            if isinstance(x, SparseRows):
                return self._of_sparse(x)
            y, _ = self._coordinates(x)
            return torch.addmm(self.bias.to(y), y, self.directions.to(y).T, alpha=-1)

    def relevance(self, x: Tensor, weights: Tensor, own: Tensor | None) -> Tensor:
        """Relevance [N, d] of a weighted sum, see :class:`Detection`, in two or three matrix products."""
        with full_precision(x):
            y, _ = self._coordinates(x)
            directions, anchors = self.directions.to(y), self.anchors.to(y)
            slope = weights @ directions
            relevance = torch.addcmul(weights @ (directions * anchors), y, slope, value=-1)
            if own is not None and self.nearest_zero:
                relevance += self._biases(weights, own.to(y))
            elif own is not None and not self.diagonal:
                # the point halfway between two centroids is not made of their separate anchors: columns are mixed
                relevance += (own @ anchors) * slope - (own @ directions) * (weights @ anchors)
            return relevance

    def multiplier(self, x: Tensor, weights: Tensor) -> Tensor:
        """Slope [N, d] of a weighted sum, a row's norm held constant."""
        with full_precision(x):
            _, norm = self._coordinates(x)
            return -(weights @ self.directions.to(weights)) / norm

    def _biases(self, weights: Tensor, own: Tensor) -> Tensor:
        """Shares [N, d] of the contrasts' biases: ``sum_k s_k b_k / |w_k|^2 w_k * w_k``, w_k = D_k - D_c."""
        directions, bias = self.directions.to(weights), self.bias.to(weights)
        target = own.argmax(dim=1)
        mode = "donot_use_mm_for_euclid_dist"  # the other one cancels
        apart = torch.cdist(directions, directions, compute_mode=mode).square()[target]
        share = torch.where(apart > 0, weights * (bias - bias[target][:, None]) / apart, 0.0)
        mine = directions[target]
        squares = share @ directions.square() - 2 * mine * (share @ directions)
        return squares + share.sum(1, keepdim=True) * mine.square()

    def _of_sparse(self, x: SparseRows) -> Tensor:
        """Neurons [N, M] of sparse points, in float64: the part that the shift has is taken off afterwards."""
        check_width(x.shape[1], self.n_features, name="x")
        directions, origin = self.directions.double(), self.origin.double()
        along = (x @ directions.T - directions @ self.root.double()) / self.row_norm(x) - directions @ origin
        return (self.bias.double() - along).to(x.dtype)

    def _coordinates(self, x: Tensor) -> tuple[Tensor, Tensor | float]:
        check_width(x.shape[1], self.n_features, name="x")
        x = dense(x)
        x = x.to(compute_dtype(x.dtype))
        if self.norm is None:
            return _minus(x, self.root + self.origin), 1.0
        norm = self.row_norm(x)
        return _minus(x, self.root) / norm - self.origin.to(x), norm

    def row_norm(self, x: Tensor | SparseRows) -> Tensor | float:
        """What rows are divided by, [N, 1]; 1 without a Normalizer."""
        if self.norm is None:
            return 1.0
        assert self.norm_weight is not None
        assert self.norm_bias is not None
        if isinstance(x, SparseRows):
            norm = x.norms(self.norm_weight, self.norm_bias, self.norm)[:, None]
            return torch.where(norm > 0, norm, torch.ones_like(norm))
        weight, bias = self.norm_weight.to(x), self.norm_bias.to(x)
        z = (x * weight if weight.ndim == 1 else x @ weight.T) + bias
        norm = torch.linalg.vector_norm(z, ORDERS[self.norm], dim=1, keepdim=True)
        return torch.where(norm > 0, norm, torch.ones_like(norm))  # as scikit-learn leaves zero rows alone


def _minus(x: Tensor, shift: Tensor) -> Tensor:
    """``x - shift``; what rounding the shift to the type of x would lose is subtracted after it."""
    rounded = shift.to(x)
    return x - rounded - (shift - rounded.to(shift)).to(x)


@contextmanager
def full_precision(x: Tensor) -> Iterator[None]:
    """Autocast off: distances overflow float16."""
    if not torch.is_autocast_enabled(x.device.type):
        yield
        return
    with torch.autocast(x.device.type, enabled=False):
        yield
