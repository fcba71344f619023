"""Reader for Gaussian mixtures, which assign points to the component with the largest posterior probability."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from neonxc.clusterings.centers import check_distinct
from neonxc.clusterings.model import ClusterModel, read
from neonxc.data.inputs import check_finite
from neonxc.head import Head
from neonxc.head.centroids import centroids
from neonxc.head.preprocessing import Preprocessing
from neonxc.head.quadratic import QuadraticDetection


@read.register(GaussianMixture)
@read.register(BayesianGaussianMixture)
def _(model: GaussianMixture | BayesianGaussianMixture) -> ClusterModel:
    check_is_fitted(model)
    for name in ("means_", "precisions_cholesky_", "weights_"):
        what = f"the {type(model).__name__} was not fitted properly: {name}"
        check_finite(torch.as_tensor(getattr(model, name)), name=what)
    means = torch.tensor(model.means_, dtype=torch.float64)  # a copy, because the model may be fitted again
    if len(means) < 2:
        raise ValueError("explaining a mixture needs at least 2 components: with one there is no competitor")
    roots = torch.tensor(model.precisions_cholesky_, dtype=torch.float64)
    if isinstance(model, GaussianMixture):  # the spare components of a Bayesian mixture may all equal the prior
        own = means if model.covariance_type == "tied" else torch.cat([means, roots.reshape(len(means), -1)], 1)
        check_distinct(own, message="components {} and {} have identical means and covariances")
    if model.covariance_type == "spherical":
        roots = roots[:, None].repeat(1, means.shape[1])
    priors = _priors(model)
    if model.covariance_type == "tied":
        return ClusterModel(lambda chain: _tied(means, roots.T, priors, chain), means, scale=1.0)
    return ClusterModel(lambda chain: _own(means, roots, priors, chain), means, scale=1.0)


def _priors(model: GaussianMixture | BayesianGaussianMixture) -> Tensor:
    """``-log(pi_k p_k)`` at the means without the determinant, up to a constant that all components share."""
    if isinstance(model, GaussianMixture):
        priors = -np.log(model.weights_)
    else:  # scikit-learn computes the expected logarithms under the posterior only in this private method
        priors = _log_determinants(model) - np.diag(model._estimate_weighted_log_prob(model.means_))
    return torch.as_tensor(priors - priors.mean())


def _log_determinants(model: BayesianGaussianMixture) -> np.ndarray:
    roots, d = model.precisions_cholesky_, model.means_.shape[1]
    if model.covariance_type in ("full", "tied"):
        return np.log(np.diagonal(roots, axis1=-2, axis2=-1)).sum(-1)
    return np.log(roots).sum(1) if model.covariance_type == "diag" else d * np.log(roots)


def _tied(means: Tensor, root: Tensor, priors: Tensor, chain: Preprocessing | None) -> Head:
    """Model with one covariance: the nearest center after whitening, with the priors as offsets."""
    chain = (chain or Preprocessing.identity(means.shape[1])).then(root, torch.zeros(len(root), dtype=root.dtype))
    return Head(centroids(means @ root.T, chain, factor=0.5, offsets=priors))


def _own(means: Tensor, roots: Tensor, priors: Tensor, chain: Preprocessing | None) -> Head:
    """Model with a covariance per component, in the columns before the preprocessing."""
    if roots.ndim == 2:
        shares = -roots.log()
    else:  # with L = U S V', log P = 2 U log(S) U', even if rounding gives P a negative eigenvalue
        U, S, _ = torch.linalg.svd(roots)
        shares = -torch.einsum("kij,kj->ki", U.square(), S.log())
    if chain is None:
        return Head(QuadraticDetection(means, roots, shares, priors))
    if chain.norm is not None:
        raise ValueError("a Normalizer before a Gaussian mixture can't be folded; fit the mixture without it")
    at = torch.stack([chain.point(mean) for mean in means])
    if chain.diagonal:
        weight = chain.weight if roots.ndim == 2 else chain.weight[:, None]
        return Head(QuadraticDetection(at, roots * weight, shares, priors))
    # behind a map that mixes columns, the shares belong to the mixture's columns and not to the raw ones
    full = torch.diag_embed(roots) if roots.ndim == 2 else roots
    return Head(QuadraticDetection(at, chain.weight.T @ full, torch.zeros_like(at), priors + shares.sum(1)))
