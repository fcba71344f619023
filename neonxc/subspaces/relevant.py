"""The directions of a layer that carry the most relevance, and their rotation to concepts of their own."""

from __future__ import annotations

import math

import torch
from torch import Tensor

ANGLES = 64  # of a rotation that are tried; a step of 1.4 degrees


def principal(sums: Tensor, n: int) -> Tensor:
    """Orthonormal directions [n, C] of the greatest relevance, the greatest first (PRCA).

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
    """The rotation [k, k] of a subspace after which every place's relevance lies on as few directions as possible.

    It maximizes the sum of the squares of the relevance of all places and directions, by rotations of two
    directions at a time (Jacobi): their sum over the directions does not depend on the rotation, so that squares
    are large where one direction has all of it. The published objective (DRSA) is another one for the same aim.

    Parameters
    ----------
    values, multipliers : Tensor [n, k]
        Coordinates of activations and multipliers in the subspace.

    Returns
    -------
    Tensor [k, k]
        Its rows are the new directions.
    """
    k = values.shape[1]
    rotation = torch.eye(k, dtype=values.dtype, device=values.device)
    angles = torch.arange(ANGLES, device=values.device).to(values) * (math.pi / 2 / ANGLES)
    cos, sin = angles.cos(), angles.sin()
    for _ in range(20):
        turned = False
        for i in range(k):
            for j in range(i + 1, k):
                a, m = values @ rotation[[i, j]].mT, multipliers @ rotation[[i, j]].mT
                one = (a[:, :1] * cos + a[:, 1:] * sin) * (m[:, :1] * cos + m[:, 1:] * sin)  # [n, angles]
                gain = (one.square() + ((a * m).sum(1, keepdim=True) - one).square()).sum(0)
                best = int(gain.argmax())
                if best and gain[best] > gain[0] * (1 + 1e-9):
                    c, s = cos[best], sin[best]
                    rotation[[i, j]] = torch.stack(
                        [c * rotation[i] + s * rotation[j], c * rotation[j] - s * rotation[i]]
                    )
                    turned = True
        if not turned:
            break
    return rotation
