"""A detection layer of quadratic neurons: negative log densities of Gaussians."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from neonxc.common.registry import storable
from neonxc.data.inputs import check_range, compute_dtype
from neonxc.data.sparse import SparseRows, dense
from neonxc.head.detection import Detection, full_precision


@storable
class QuadraticDetection(Detection):
    """Negative log densities of Gaussians: ``a_m(x) = |L_m'(x - mu_m)|^2 / 2 + sum_i shares_mi + offsets_m``.

    Parameters
    ----------
    means : Tensor [M, d]
        The means mu in raw columns.
    roots : Tensor [M, d] or [M, d, p]
        Factors L of the precisions ``P = L L'`` in raw columns: inverse standard deviations, or matrices.
    shares : Tensor [M, d]
        Share of each column in ``-log det(P) / 2``.
    offsets : Tensor [M]
        The remaining constants, which belong to no column: ``-log pi_m``.

    Notes
    -----
    With ``delta = x - mu_m``, column i gets ``delta_i (P delta)_i / 2`` and its share of the determinant. The
    first term is the Shapley value of the quadratic form with reference point mu_m. The second is exact if P is
    diagonal; otherwise it splits ``log det P = tr log P`` by the diagonal of log P.
    """

    means: Tensor
    roots: Tensor
    shares: Tensor
    offsets: Tensor

    @property
    def references(self) -> Tensor:
        """The means."""
        return self.means

    @property
    def width(self) -> int:
        """The number of values computed per point: one difference per neuron and column."""
        return self.means.numel()

    def check(self, x: Tensor, names: Sequence[str] | None = None) -> None:
        """Raise a ValueError if the squares of standardized points overflow."""
        root = (torch.finfo(x.dtype).max / (16 * self.n_features)) ** 0.5
        check_range(x, root / max(float(self.roots.abs().amax()), 1.0), names=names)

    def located(self, x: Tensor | SparseRows) -> tuple[Tensor, Tensor]:
        """Compute ``delta`` [N, M, d] and ``L' delta`` [N, M, p] in the dtype of the buffers.

        The squares of the second sum up without cancellation, unlike the terms of ``delta' P delta``; the dtype of
        the buffers keeps the digits of data far from zero or nearly collinear.
        """
        x = dense(x)
        with full_precision(x):
            delta = x[:, None].to(self.means) - self.means
            roots = self.roots
            rooted = delta * roots if roots.ndim == 2 else torch.einsum("nkd,kdp->nkp", delta, roots)
            dtype = compute_dtype(x.dtype)
            return delta.to(dtype), rooted.to(dtype)

    def neurons(self, at: tuple[Tensor, Tensor]) -> Tensor:
        """Compute neurons [N, M]; see :meth:`Detection.neurons`."""
        rooted = at[1]
        return rooted.square().sum(dim=2) / 2 + (self.shares.sum(dim=1) + self.offsets).to(rooted)

    def relevance(self, at: tuple[Tensor, Tensor], weights: Tensor, own: Tensor | None = None) -> Tensor:
        """Compute the relevance [N, d] of a weighted sum; see :meth:`Detection.relevance`."""
        delta, rooted = at
        with full_precision(weights):
            terms = delta * self._slopes(rooted) / 2 + self.shares.to(delta)
            return torch.einsum("nk,nkd->nd", weights, terms)

    def multiplier(self, at: tuple[Tensor, Tensor], weights: Tensor) -> Tensor:
        """Compute the gradient [N, d] of a weighted sum."""
        with full_precision(weights):
            return torch.einsum("nk,nkd->nd", weights, self._slopes(at[1]))

    def _slopes(self, rooted: Tensor) -> Tensor:
        """``P delta`` [N, M, d]."""
        roots = self.roots.to(rooted)
        return rooted * roots if roots.ndim == 2 else torch.einsum("nkp,kdp->nkd", rooted, roots)
