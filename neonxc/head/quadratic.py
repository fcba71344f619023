"""A detection layer of quadratic neurons: negative log densities of Gaussians.

With the means mu_m, factors L_m of the precisions ``P_m = L_m L_m'``, and ``delta = x - mu_m``::

    neuron       a_m(x) = |L_m' delta|^2 / 2 + sum_i shares_mi + offsets_m
    relevance    R_mi   = delta_i (P_m delta)_i / 2 + shares_mi
    multiplier   P_m delta

The shares of the columns sum to ``-log det(P_m) / 2``; ``offsets_m = -log pi_m`` belongs to no column.
"""

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
        largest = self.kept("largest", lambda: float(self.roots.abs().amax()))
        check_range(x, root / max(largest, 1.0), names=names)

    def located(self, x: Tensor | SparseRows) -> tuple[Tensor, Tensor]:
        """Compute ``delta`` [N, M, d] and ``L' delta`` [N, M, p] in the dtype of the buffers.

        The squares of the second sum up without cancellation, unlike the terms of ``delta' P delta``; the dtype of
        the buffers keeps the digits of data far from zero or nearly collinear.
        """
        x = dense(x)
        with full_precision(x):
            delta = x[:, None].to(self.means) - self.means
            if self.roots.ndim == 2:
                rooted = delta * self.roots
            else:
                rooted = torch.einsum("nkd,kdp->nkp", delta, self.roots)
            dtype = compute_dtype(x.dtype)
            return delta.to(dtype), rooted.to(dtype)

    def neurons(self, at: tuple[Tensor, Tensor]) -> Tensor:
        """Compute neurons [N, M]; see :meth:`Detection.neurons`."""
        _, rooted = at
        constants = self.shares.sum(dim=1) + self.offsets
        return rooted.square().sum(dim=2) / 2 + constants.to(rooted)

    def relevance(self, at: tuple[Tensor, Tensor], weights: Tensor, target: Tensor | None = None) -> Tensor:
        """Compute the relevance [N, d] of a weighted sum; see :meth:`Detection.relevance`."""
        delta, rooted = at
        with full_precision(weights):
            terms = delta * self._slopes(rooted) / 2 + self.shares.to(delta)
            return torch.einsum("nk,nkd->nd", weights, terms)

    def multiplier(self, at: tuple[Tensor, Tensor], weights: Tensor) -> Tensor:
        """Compute the gradient [N, d] of a weighted sum."""
        _, rooted = at
        with full_precision(weights):
            return torch.einsum("nk,nkd->nd", weights, self._slopes(rooted))

    def _slopes(self, rooted: Tensor) -> Tensor:
        """Compute ``P delta`` [N, M, d] as ``L (L' delta)``."""
        roots = self.roots.to(rooted)
        if roots.ndim == 2:
            return rooted * roots
        return torch.einsum("nkp,kdp->nkd", rooted, roots)
