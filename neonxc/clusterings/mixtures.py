"""Reader for Gaussian mixtures, which assign points to the component with the largest posterior probability."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from neonxc.clusterings.centers import check_distinct
from neonxc.clusterings.model import ClusterModel, read
from neonxc.data.inputs import check_finite
from neonxc.head import Head
from neonxc.head.head import centroids
from neonxc.head.preprocessing import Preprocessing
from neonxc.head.quadratic import QuadraticDetection


@read.register(GaussianMixture)
@read.register(BayesianGaussianMixture)
def _(model: Any) -> ClusterModel:
    check_is_fitted(model)
    for name in ("means_", "precisions_cholesky_", "weights_"):
        what = f"the {type(model).__name__} was not fitted properly: {name}"
        check_finite(torch.as_tensor(getattr(model, name)), name=what)
    # copies, because the model may be fitted again
    means, roots = (torch.tensor(part).double() for part in (model.means_, model.precisions_cholesky_))
    tied = model.covariance_type == "tied"
    if isinstance(model, GaussianMixture):  # the spare components of a Bayesian mixture may all equal the prior
        own = means if tied else torch.cat([means, roots.reshape(len(means), -1)], 1)
        check_distinct(own, message="components {} and {} have identical means and covariances")
    if model.covariance_type == "spherical":
        roots = roots[:, None].expand_as(means)
    # -log(pi_k p_k) at the means; only this method knows the expected logarithms of a Bayesian mixture
    least = torch.as_tensor(-np.diag(model._estimate_weighted_log_prob(model.means_)))
    least -= least.mean()

    def head(chain: Preprocessing | None) -> Head:
        chain = chain or Preprocessing.identity(means.shape[1])
        if not tied:
            return _own(means, roots, least, chain)
        # with one covariance, the nearest center after whitening
        white = chain.then(roots.T, torch.zeros_like(means[0]))
        return Head(centroids(means @ roots, white, factor=0.5, offsets=least))

    return ClusterModel(head, means, scale=1.0)


def _own(means: Tensor, roots: Tensor, least: Tensor, chain: Preprocessing) -> Head:
    """Head of components with a covariance each, whose values at their means are `least` [K]."""
    if chain.norm is not None:
        raise ValueError("a Normalizer before a Gaussian mixture can't be folded; fit the mixture without it")
    at = torch.stack([chain.point(mean) for mean in means])
    if not chain.diagonal:  # the shares of the determinant belong to the mixture's columns and not to the raw ones
        full = torch.diag_embed(roots) if roots.ndim == 2 else roots
        roots, shares = chain.weight.T @ full, torch.zeros_like(at)
    elif roots.ndim == 2:
        roots, shares = roots * chain.weight, -roots.log()
    else:  # with L = U S V', log P = 2 U log(S) U', even if rounding gives P a negative eigenvalue
        U, S, _ = torch.linalg.svd(roots)
        roots, shares = roots * chain.weight[:, None], -torch.einsum("kij,kj->ki", U.square(), S.log())
    return Head(QuadraticDetection(means=at, roots=roots, shares=shares, offsets=least - shares.sum(1)))
