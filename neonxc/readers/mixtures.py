"""Gaussian mixtures: the component with the greatest posterior probability."""

from __future__ import annotations

import math

import numpy as np
import torch
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from neonxc.heads import CentroidHead, Head, MixtureHead
from neonxc.preprocessing import Preprocessing
from neonxc.readers.model import ClusterModel, read


@read.register(GaussianMixture)
@read.register(BayesianGaussianMixture)
def _(model: GaussianMixture | BayesianGaussianMixture) -> ClusterModel:
    check_is_fitted(model)
    means = torch.as_tensor(model.means_, dtype=torch.float64)
    if len(means) < 2:
        raise ValueError("explaining a mixture needs at least 2 components: with one there is no competitor")
    precisions = torch.as_tensor(model.precisions_, dtype=torch.float64)
    # at a mean, what is left of -log(pi_k p_k) is the determinant's part and the prior's
    at_means = -torch.as_tensor(np.diag(model._estimate_weighted_log_prob(model.means_)).copy())
    rest = at_means - means.shape[1] / 2 * math.log(2 * math.pi)
    if model.covariance_type == "tied":
        return ClusterModel(lambda chain: _tied(means, precisions, rest, chain), means)
    if model.covariance_type == "spherical":
        precisions = precisions[:, None].expand_as(means)
    return ClusterModel(lambda chain: _own(means, precisions, rest, chain), means)


def _tied(means: Tensor, precision: Tensor, rest: Tensor, chain: Preprocessing | None) -> Head:
    """One covariance for all: nearest center where it is the identity, and the priors beside the distances."""
    root = torch.linalg.cholesky(precision).T
    chain = (chain or Preprocessing.identity(means.shape[1])).then(root, torch.zeros(len(root), dtype=root.dtype))
    return CentroidHead(means @ root.T, preprocessing=chain, offsets=rest - rest.mean(), scale=0.5)


def _own(means: Tensor, precisions: Tensor, rest: Tensor, chain: Preprocessing | None) -> Head:
    """A covariance for each component, in the columns before the preprocessing."""
    if precisions.ndim == 2:
        shares = -precisions.log() / 2
    else:
        values, vectors = torch.linalg.eigh(precisions)
        shares = -torch.einsum("kij,kj,kij->ki", vectors, values.log(), vectors) / 2  # diagonal of log P
    priors = rest - shares.sum(1)
    priors = priors - priors.mean()
    if chain is None:
        return MixtureHead(means, precisions, shares, priors)
    if chain.norm is not None:
        raise ValueError("a Normalizer before a Gaussian mixture can't be folded; fit the mixture without it")
    at = torch.stack([chain.point(mean) for mean in means])
    if chain.diagonal:
        square = chain.weight.square() if precisions.ndim == 2 else torch.outer(chain.weight, chain.weight)
        return MixtureHead(at, precisions * square, shares, priors)
    # the columns of a mixture behind a map that mixes columns are not the raw ones: no raw column has these shares
    full = torch.diag_embed(precisions) if precisions.ndim == 2 else precisions
    pulled = chain.weight.T @ full @ chain.weight
    return MixtureHead(at, pulled, torch.zeros_like(at), priors + shares.sum(1))
