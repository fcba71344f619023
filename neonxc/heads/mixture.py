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
    precisions : Tensor [K, d] or [K, d, d]
        Of the raw columns: variances inverted, or covariances.
    shares : Tensor [K, d]
        What each column has in ``-log det(precision) / 2``.
    priors : Tensor [K]
        The rest of ``E_k``: ``-log pi_k``.
    threshold : float, optional
        Explain ``p_c > threshold`` instead of ``p_c > p_k`` for all k.

    Notes
    -----
    ``E_k = 1/2 sum_i delta_i (P delta)_i - 1/2 sum_i (log P)_ii - log pi_k`` with ``delta = x - mu_k``: column i
    gets its terms of the two sums. The first is the Shapley value of the quadratic form with reference point mu_k;
    the second is exact per column where P is diagonal, and ``tr log P = log det P`` where it is not. What the
    priors contribute no column has: relevance sums to the logit less that.
    """

    means: Tensor
    precisions: Tensor
    shares: Tensor
    priors: Tensor

    def __init__(
        self, means: Tensor, precisions: Tensor, shares: Tensor, priors: Tensor, threshold: float | None = None
    ) -> None:
        super().__init__(len(means))
        self.threshold = threshold
        for name, value in (("means", means), ("precisions", precisions), ("shares", shares), ("priors", priors)):
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
        return self._energy(self._terms(x)[1]).argmin(dim=1)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [N, K]: log likelihood ratio to the best other component."""
        return logits(self._energy(self._terms(x)[1]), self.threshold)

    def relevance(
        self, x: Tensor, target: Tensor, beta: float | Tensor, competitor: Tensor | None = None
    ) -> Tensor:
        """Relevance [N, d]."""
        _, terms = self._terms(x)
        weights = competitor_weights(self._energy(terms), target, beta, competitor, self.threshold)
        return torch.einsum("nk,nkd->nd", weights, terms)

    def multiplier(
        self, x: Tensor, target: Tensor, beta: float | Tensor, competitor: Tensor | None = None
    ) -> Tensor:
        """Multipliers [N, d]: the slope of the weighted contrasts at x."""
        slopes, terms = self._terms(x)
        weights = competitor_weights(self._energy(terms), target, beta, competitor, self.threshold)
        return torch.einsum("nk,nkd->nd", weights, slopes)

    def _terms(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Slope [N, K, d] of every component's distance, and each column's part in it."""
        check_width(x.shape[1], self.n_features, name="x")
        with full_precision(x):
            x = x.to(compute_dtype(x.dtype))
            # the shift in the buffers' own type, so that data far from zero loses no digits to it
            delta = (x[:, None].to(self.means) - self.means).to(x)
            precisions = self.precisions.to(x)
            if precisions.ndim == 2:
                slopes = delta * precisions
            else:
                slopes = torch.einsum("nkd,kde->nke", delta, precisions)
            return slopes, delta * slopes / 2 + self.shares.to(x)

    def _energy(self, terms: Tensor) -> Tensor:
        return terms.sum(dim=2) + self.priors.to(terms)
