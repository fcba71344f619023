"""Gaussian mixtures whose components have covariances of their own."""

from __future__ import annotations

import torch
from torch import Tensor

from neonxc.detection import full_precision
from neonxc.heads.base import Head
from neonxc.inputs import check_width, compute_dtype
from neonxc.pooling import competitor_weights, logits


class MixtureHead(Head):
    """The component with the greatest posterior probability: ``E_k = -log(pi_k p_k(x))``.

    Parameters
    ----------
    means : Tensor [K, d]
        In raw columns.
    roots : Tensor [K, d] or [K, d, p]
        L of the precisions ``P = L L'`` in raw columns: standard deviations inverted, or matrices.
    shares : Tensor [K, d]
        What each column has in ``-log det(P) / 2``.
    priors : Tensor [K]
        The rest of ``E_k``: ``-log pi_k``.
    threshold : float, optional
        Explain ``p_c > threshold`` instead of ``p_c > p_k`` for all k.

    Notes
    -----
    ``E_k = 1/2 |L' delta|^2 - 1/2 sum_i (log P)_ii - log pi_k`` with ``delta = x - mu_k``: column i gets
    ``delta_i (P delta)_i / 2`` and its term of the sum. The first is the Shapley value of the quadratic form with
    reference point mu_k, the second is exact per column where P is diagonal, and ``tr log P = log det P`` where it
    is not. What the priors contribute no column has: relevance sums to the logit less that.
    """

    PLAIN = ("n_clusters", "threshold")
    means: Tensor
    roots: Tensor
    shares: Tensor
    priors: Tensor

    def __init__(
        self, means: Tensor, roots: Tensor, shares: Tensor, priors: Tensor, threshold: float | None = None
    ) -> None:
        super().__init__(len(means))
        self.threshold = threshold
        for name, value in (("means", means), ("roots", roots), ("shares", shares), ("priors", priors)):
            self.register_buffer(name, value)

    @property
    def n_features(self) -> int:
        """Number of columns d."""
        return self.means.shape[1]

    @property
    def n_neurons(self) -> int:
        """What it computes per point."""
        return self.means.numel()

    def assign(self, x: Tensor) -> Tensor:
        """Column [N] of the most probable component."""
        return self._energy(self._rooted(x)[1]).argmin(dim=1)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [N, K]: log likelihood ratio to the best other component."""
        return logits(self._energy(self._rooted(x)[1]), self.threshold)

    def relevance(
        self, x: Tensor, target: Tensor, beta: float | Tensor, competitor: Tensor | None = None
    ) -> Tensor:
        """Relevance [N, d]."""
        delta, rooted = self._rooted(x)
        weights = competitor_weights(self._energy(rooted), target, beta, competitor, self.threshold)
        with full_precision(x):
            terms = delta * self._slopes(rooted) / 2 + self.shares.to(delta)
            return torch.einsum("nk,nkd->nd", weights, terms)

    def multiplier(
        self, x: Tensor, target: Tensor, beta: float | Tensor, competitor: Tensor | None = None
    ) -> Tensor:
        """Multipliers [N, d]: the slope of the weighted contrasts at x."""
        rooted = self._rooted(x)[1]
        weights = competitor_weights(self._energy(rooted), target, beta, competitor, self.threshold)
        with full_precision(x):
            return torch.einsum("nk,nkd->nd", weights, self._slopes(rooted))

    def _rooted(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """``delta`` [N, K, d] and ``L' delta`` [N, K, p] of every component.

        The squares of the second add up without cancelling, as the terms of ``delta' P delta`` do not. Both are
        computed in the buffers' own type: data far from zero, or nearly collinear, has no digits to lose.
        """
        check_width(x.shape[1], self.n_features, name="x")
        with full_precision(x):
            delta = x[:, None].to(self.means) - self.means
            roots = self.roots
            rooted = delta * roots if roots.ndim == 2 else torch.einsum("nkd,kdp->nkp", delta, roots)
            dtype = compute_dtype(x.dtype)
            return delta.to(dtype), rooted.to(dtype)

    def _slopes(self, rooted: Tensor) -> Tensor:
        """``P delta`` [N, K, d]."""
        roots = self.roots.to(rooted)
        return rooted * roots if roots.ndim == 2 else torch.einsum("nkp,kdp->nkd", rooted, roots)

    def _energy(self, rooted: Tensor) -> Tensor:
        """``E_k`` [N, K]."""
        return rooted.square().sum(dim=2) / 2 + (self.shares.sum(dim=1) + self.priors).to(rooted)
