"""Surrogate columns of Kernel IMM: features of a kernel, each a function of one raw column.

A threshold on such a feature is a test of its raw column: on which side of the threshold a value is decides whether
it lies in a union of at most two intervals, or outside.
"""

from __future__ import annotations

import torch
from torch import Tensor

Intervals = tuple[tuple[float, float], ...]  # low < x <= high for one of them


def taylor_features(x: Tensor, gamma: float, terms: int) -> Tensor:
    """First features ``sqrt((2γ)^m / m!) x^m exp(-γ x²)`` of the Gaussian kernel of single numbers.

    All of them together are a feature map: ``exp(-γ (x − y)²) = Σ_m φ_m(x) φ_m(y)``. With M terms the error is at
    most ``sqrt(P(N_x >= M) P(N_y >= M))`` for Poisson variables N of mean 2γx² and 2γy²: the features of x vanish
    where 2γx² is well above M.

    Parameters
    ----------
    x : Tensor [...]
        Of any size: nothing overflows. The kernel does not depend on the origin but its features do. They should be
        centred, so that 2γx² is small: by their mean, for the least sum of it.
    gamma : float
        Positive; in units of 1 / x².
    terms : int
        M, the number of features.

    Returns
    -------
    Tensor [..., M] of float64
        Between -1 and 1; `m` is the place in the last axis.

    References
    ----------
    .. [1] M. Fleissner, L. C. Vankadara, D. Ghoshdastidar, "Explaining kernel clustering via decision trees", ICLR
       2024, interpretable Taylor kernels.
    """
    x = x.to(torch.float64)[..., None]
    m = torch.arange(terms, dtype=torch.float64, device=x.device)
    scaled = x.abs() * (2 * gamma) ** 0.5
    size = (torch.xlogy(m, scaled) - torch.lgamma(m + 1) / 2 - scaled.square() / 2).exp()
    return torch.where(m % 2 == 1, x.sign() * size, size)


def anchor_features(x: Tensor, anchors: Tensor, kernel: str, gamma: float) -> Tensor:
    """Kernels of single numbers and anchors: ``exp(-γ (x − a)²)`` or ``exp(-γ |x − a|)``.

    Parameters
    ----------
    x : Tensor [...]
    anchors : Tensor [..., A]
        Of every x; broadcast.
    kernel : {"gaussian", "laplace"}
    gamma : float
        Positive; in units of 1 / x², or of 1 / x.

    Returns
    -------
    Tensor [..., A] of float64
        Between 0 and 1.

    References
    ----------
    .. [1] M. Fleissner, L. C. Vankadara, D. Ghoshdastidar, "Explaining kernel clustering via decision trees", ICLR
       2024, distance-based product kernels.
    """
    far = (x.to(torch.float64)[..., None] - anchors.to(torch.float64)).abs_()
    if kernel == "gaussian":
        far = far.square_()
    elif kernel != "laplace":
        raise ValueError(f"kernel needs to be gaussian or laplace, got {kernel!r}")
    return far.mul_(-gamma).exp_()
