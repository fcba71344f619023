"""The linear detection layer under every head, in the raw columns of the data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from neonxc.inputs import check_width, compute_dtype
from neonxc.preprocessing import Preprocessing
from neonxc.registry import storable


@storable
class Detection(nn.Module):
    """Neurons ``a_m(x) = sum_i D_mi (A_mi - y_i)`` with ``y = (x - root) / n(x) - origin``.

    Two prototypes' neurons differ by the difference of their squared distances to x, in the space the
    centroids were fitted in; a common term of all prototypes is left out.

    Attributes
    ----------
    directions, anchors : Tensor [M, d]
        D and A. A contrast's relevance is counted from the point halfway between its two prototypes.
    bias : Tensor [M]
        ``sum_i D_mi A_mi``, if not given: neurons of a linear layer have one of their own.
    root, origin : Tensor [d]
        Where y is zero. float32 is not translation invariant, so y is measured from the centroids' mean.
    norm : str or None
        "l1", "l2", "max": the row norm n(x) of a Normalizer in the pipeline; None: n = 1.
    """

    PLAIN = ("diagonal", "norm")
    directions: Tensor
    anchors: Tensor
    bias: Tensor
    root: Tensor
    origin: Tensor
    norm_weight: Tensor | None
    norm_bias: Tensor | None

    def __init__(self, directions: Tensor, anchors: Tensor, frame: Frame, bias: Tensor | None = None) -> None:
        super().__init__()
        self.diagonal = frame.diagonal
        self.norm = frame.norm
        self.register_buffer("directions", directions)
        self.register_buffer("anchors", anchors)
        self.register_buffer("bias", (directions * anchors).sum(dim=1) if bias is None else bias)
        for name in ("root", "origin", "norm_weight", "norm_bias"):
            self.register_buffer(name, getattr(frame, name))

    @property
    def n_features(self) -> int:
        """Number of raw columns d."""
        return self.directions.shape[1]

    def coordinates(self, x: Tensor) -> Tensor:
        """Points [N, d] where they are measured, y."""
        with full_precision(x):
            return self._coordinates(x)[0]

    def forward(self, x: Tensor) -> Tensor:
        """Detect [N, M] from raw points [N, d], in float32 or better and with autocast off."""
        with full_precision(x):
            y, _ = self._coordinates(x)
            return torch.addmm(self.bias.to(y), y, self.directions.to(y).T, alpha=-1)

    def relevance(self, x: Tensor, coefficients: Tensor, own: Tensor | None = None) -> Tensor:
        """Relevance [N, d] of ``sum_m c_m a_m(x)`` by the mid-point rule.

        Parameters
        ----------
        x : Tensor [N, d]
        coefficients : Tensor [N, M]
            c.
        own : Tensor [N, M], optional
            Weights of the prototypes every contrast of a row has in common (those of the explained
            cluster), where contrasts are differences of two neurons. It matters only when the preprocessing
            mixes columns: then the halfway point of two prototypes is not made of their separate anchors.
        """
        with full_precision(x):
            y, _ = self._coordinates(x)
            directions, anchors = self.directions.to(y), self.anchors.to(y)
            slope = coefficients @ directions
            relevance = torch.addcmul(coefficients @ (directions * anchors), y, slope, value=-1)
            if own is not None and not self.diagonal:
                relevance += (own @ anchors) * slope - (own @ directions) * (coefficients @ anchors)
            return relevance

    def multiplier(self, x: Tensor, coefficients: Tensor) -> Tensor:
        """Multipliers [N, d] of the standard linear rule: its relevance is ``x * multiplier``."""
        with full_precision(x):
            _, norm = self._coordinates(x)
            return -(coefficients @ self.directions.to(coefficients)) / norm

    def _coordinates(self, x: Tensor) -> tuple[Tensor, Tensor | float]:
        check_width(x.shape[1], self.n_features, name="x")
        x = x.to(compute_dtype(x.dtype))
        if self.norm is None:
            return _minus(x, self.root + self.origin), 1.0
        norm = self._row_norm(x)
        return _minus(x, self.root) / norm - self.origin.to(x), norm

    def _row_norm(self, x: Tensor) -> Tensor:
        assert self.norm_weight is not None
        assert self.norm_bias is not None
        weight, bias = self.norm_weight.to(x), self.norm_bias.to(x)
        z = (x * weight if weight.ndim == 1 else x @ weight.T) + bias
        order = {"l1": 1, "l2": 2, "max": torch.inf}[self.norm or "l2"]
        norm = torch.linalg.vector_norm(z, order, dim=1, keepdim=True)
        return torch.where(norm > 0, norm, torch.ones_like(norm))  # as scikit-learn leaves zero rows alone


def _minus(x: Tensor, shift: Tensor) -> Tensor:
    """``x - shift``; what rounding the shift to the type of x would lose is subtracted after it."""
    rounded = shift.to(x)
    return x - rounded - (shift - rounded.to(shift)).to(x)


@dataclass(frozen=True)
class Frame:
    """Where a :class:`Detection` measures: what all its neurons share."""

    root: Tensor
    origin: Tensor
    diagonal: bool
    norm: str | None = None
    norm_weight: Tensor | None = None
    norm_bias: Tensor | None = None


def prototypes(centers: Tensor, preprocessing: Preprocessing) -> tuple[Tensor, Tensor, Frame]:
    """Directions [M, d], anchors [M, d] and frame of centroids [M, p] behind a preprocessing.

    Squared distances in the space of the centroids, up to a term all centroids share, are then linear in the
    raw columns: ``|M|^2 - 2 M'(A y) = D (anchor - y)`` with ``D = 2 A'M`` and the anchor half the preimage of M.
    """
    centers = centers.double() - preprocessing.offset
    mean = centers.mean(dim=0)
    norm = preprocessing.norm
    # without a norm only root + origin counts, and a map that repeats columns need not reach zero
    zero = mean if norm is None else torch.zeros_like(mean)
    frame = Frame(
        root=preprocessing.point(zero),
        origin=preprocessing.preimage((mean - zero)[None])[0],
        diagonal=preprocessing.diagonal,
        norm=None if norm is None else norm.kind,
        norm_weight=None if norm is None else norm.weight,
        norm_bias=None if norm is None else norm.bias,
    )
    return 2 * preprocessing.pullback(centers - mean), preprocessing.preimage(centers - mean) / 2, frame


@contextmanager
def full_precision(x: Tensor) -> Iterator[None]:
    """Autocast off: distances overflow float16."""
    if not torch.is_autocast_enabled(x.device.type):
        yield
        return
    with torch.autocast(x.device.type, enabled=False):
        yield
