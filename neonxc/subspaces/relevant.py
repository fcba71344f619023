"""The directions of a layer that carry the most relevance, and their rotation to separate concepts.

With values a and multipliers m [D] at every location, the relevance along a direction u is ``r = (u a) (u m)``.

    principal    directions with the largest ``sum r = u' (sum a m') u``, summed over the locations, which are
                 eigenvectors of the symmetric part of ``sum a m'``
    separated    the rotation of n directions u_k with the largest ``sum_k r_k^2``, summed over the locations
"""

from __future__ import annotations

import math
from itertools import combinations

import torch
from torch import Tensor

ANGLES = 64  # of a rotation that are tried; a step of 1.4 degrees
SWEEPS = 20  # over all pairs of directions, at most


def principal(sums: Tensor, n: int) -> Tensor:
    """Find orthonormal directions [n, C] of the greatest relevance, the greatest first (PRCA).

    Parameters
    ----------
    sums : Tensor [C, C]
        Sum of the products ``a m^T`` of activations and multipliers. The relevance of a direction u is
        ``u^T sums u``.
    n : int

    References
    ----------
    .. [1] P. Chormai et al., "Disentangled explanations of neural network predictions by finding relevant
       subspaces", IEEE TPAMI, 2024: principal relevant component analysis.
    """
    _, vectors = torch.linalg.eigh((sums + sums.mT) / 2)
    directions = vectors.mT.flip(0)[:n]
    largest = directions.gather(1, directions.abs().argmax(1, keepdim=True))
    return directions * largest.sign()  # the sign of an eigenvector is arbitrary


def separated(values: Tensor, multipliers: Tensor) -> Tensor:
    """Find the rotation [k, k] of a subspace so that the relevance of every location lies on few directions.

    It maximizes the sum of the squares of the relevance of all locations and directions, by rotations of two
    directions at a time (Jacobi): the sum of the relevance over the directions does not depend on the rotation, so
    that squares are large where one direction has all of it. The published objective (DRSA) is another one for the
    same aim.

    Parameters
    ----------
    values, multipliers : Tensor [n, k]
        Coordinates of activations and multipliers in the subspace.

    Returns
    -------
    Tensor [k, k]
        Its rows are the new directions.

    Notes
    -----
    A rotation of the directions i and j by an angle takes them to ``cos u_i + sin u_j`` and ``cos u_j - sin u_i``.
    After a quarter of a turn they are exchanged, so that angles below it suffice.
    """
    k = values.shape[1]
    rotation = torch.eye(k, dtype=values.dtype, device=values.device)
    step = math.pi / 2 / ANGLES
    angles = torch.arange(ANGLES, device=values.device).to(values) * step
    cos = angles.cos()
    sin = angles.sin()
    for _ in range(SWEEPS):
        has_turned = False
        for i, j in combinations(range(k), 2):
            axes = rotation[[i, j]]
            a = values @ axes.mT  # [n, 2]
            m = multipliers @ axes.mT

            # the relevance [n, angles] along both directions after the rotation, whose sum is that before it
            first = (a[:, :1] * cos + a[:, 1:] * sin) * (m[:, :1] * cos + m[:, 1:] * sin)
            second = (a * m).sum(1, keepdim=True) - first
            objective = (first.square() + second.square()).sum(0)
            best = int(objective.argmax())
            if best and objective[best] > objective[0] * (1 + 1e-9):  # more than rounding
                c = cos[best]
                s = sin[best]
                rotation[i] = c * axes[0] + s * axes[1]
                rotation[j] = c * axes[1] - s * axes[0]
                has_turned = True
        if not has_turned:
            break
    return rotation
