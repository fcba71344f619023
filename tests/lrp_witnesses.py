"""Layer-wise relevance propagation as its formulas read: dense matrices, relevance itself, one point at a time.

Nothing here comes from the package; NumPy in float64 throughout. PyTorch computes no more than the values of
layers: a linear layer becomes a matrix by what it makes of unit vectors.
"""

import copy
from functools import lru_cache
from itertools import pairwise
from math import prod, sqrt
from typing import NamedTuple

import numpy as np
import torch
from torch import nn


class Matrix(NamedTuple):
    """``y = W x + b``, and which inputs each output reads, whatever the weight: all flat, [out, in]."""

    W: np.ndarray
    b: np.ndarray
    wired: np.ndarray


# --- rules: relevance of a linear layer's inputs from that of its outputs ----------------------------------


def shared(parts, whole, R):
    """``sum_j parts_ji / whole_j R_j``; an output without anything to share loses its relevance."""
    return np.divide(R, whole, out=np.zeros_like(R), where=whole != 0) @ parts


def epsilon(x, layer, R, size):
    parts = layer.W * x
    y = parts.sum(axis=1) + layer.b
    return shared(parts, y + size * np.sign(y), R)


def gamma(x, layer, R, gamma):
    parts = np.column_stack([layer.W * x, layer.b])
    y = parts.sum(axis=1)
    favoured = np.where(parts * y[:, None] > 0, 1 + gamma, 1) * parts
    return shared(favoured[:, :-1], np.where(y == 0, 0, favoured.sum(axis=1)), R)


def sign_part(part, x, layer, R):
    """Relevance in proportion to the contributions of one sign, the bias's among them."""
    parts = part(layer.W * x, 0)
    return shared(parts, parts.sum(axis=1) + part(layer.b, 0), R)


def z_plus(x, layer, R):
    return sign_part(np.maximum, x, layer, R)


def alpha_beta(x, layer, R, alpha, beta):
    return alpha * sign_part(np.maximum, x, layer, R) - beta * sign_part(np.minimum, x, layer, R)


def flat(x, layer, R):
    return shared(1.0 * layer.wired, layer.wired.sum(axis=1), R)


def w_square(x, layer, R):
    return shared(layer.W**2, (layer.W**2).sum(axis=1), R)


def z_box(x, layer, R, low, high):
    """`low` and `high`: numbers, or flat as x is."""
    parts = layer.W * x - np.maximum(layer.W, 0) * low - np.minimum(layer.W, 0) * high
    return shared(parts, parts.sum(axis=1), R)


# --- layers as matrices ------------------------------------------------------------------------------------


def values(layer, x):
    with torch.no_grad():
        return layer(torch.from_numpy(x)).numpy()


@lru_cache(64)
def affine(layer, shape):
    """W and b of an affine layer, from its values at zero and at the unit vectors; it must not change later."""
    n = prod(shape)
    points = np.concatenate([np.zeros((1, n)), np.eye(n)]).reshape(-1, *shape)
    at_zero, *at_units = values(layer, points).reshape(n + 1, -1)
    return (np.array(at_units) - at_zero).T, at_zero


@lru_cache(64)
def matrix(layer, shape, norm=None):
    """A linear layer, a BatchNorm that follows it folded in."""
    ones = copy.deepcopy(layer)
    for name, parameter in ones.named_parameters():
        nn.init.constant_(parameter, name != "bias")
    wired, _ = affine(ones, shape)
    return Matrix(*affine(layer if norm is None else nn.Sequential(layer, norm), shape), wired > 0)


def centering(layer, x):
    """LayerNorm and GroupNorm at x, their standard deviation a constant: the matrix that is left."""
    if isinstance(layer, nn.LayerNorm):
        rows = x.reshape(-1, prod(layer.normalized_shape))
        weight = np.tile(layer.weight.detach().numpy().ravel(), len(rows))
    else:
        rows = x.reshape(layer.num_groups, -1)
        weight = np.repeat(layer.weight.detach().numpy(), x[0].size)
    d = rows.shape[1]
    spread = np.repeat(np.sqrt(rows.var(axis=1) + layer.eps), d)
    mean = np.kron(np.eye(len(rows)), np.full((d, d), 1 / d))
    return (weight / spread)[:, None] * (np.eye(x.size) - mean)


# --- networks ----------------------------------------------------------------------------------------------


class Sum(nn.Module):
    """The sum of what some branches make of the same input."""

    def __init__(self, *branches):
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x):
        return sum(branch(x) for branch in self.branches)


class Concatenation(Sum):
    """Branches side by side, in the first dimension after the batch."""

    def forward(self, x):
        return torch.cat([branch(x) for branch in self.branches], dim=1)


class Gated(nn.Module):
    """The input times a gate that depends on it, which is held constant."""

    def __init__(self, *gate):
        super().__init__()
        self.gate = nn.Sequential(*gate)

    def forward(self, x):
        return x * self.gate(x)


class Attention(nn.Module):
    """One head over points [N, tokens, d]."""

    def __init__(self, d, fused=False):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(d, d) for _ in range(3))
        self.fused = fused

    def forward(self, x):
        q = self.q(x)
        k = self.k(x)
        v = self.v(x)
        if self.fused:
            return nn.functional.scaled_dot_product_attention(q, k, v)
        return (q @ k.transpose(1, 2) / sqrt(q.shape[-1])).softmax(dim=-1) @ v


LINEAR = (nn.Linear, nn.modules.conv._ConvNd)
BATCH_NORM = nn.modules.batchnorm._BatchNorm
# relevance goes where the values come from, unchanged
MOVES = (nn.Flatten, nn.Unflatten, nn.Upsample, nn.PixelShuffle)
AVERAGES = tuple(getattr(nn, f"{kind}AvgPool{n}d") for kind in ("", "Adaptive") for n in (1, 2, 3))
MAXIMA = tuple(getattr(nn, f"{kind}MaxPool{n}d") for kind in ("", "Adaptive") for n in (1, 2, 3))


def relevance(net, x, target, rules):
    """Relevance, shaped like one point `x`, of the output's entry `target`.

    `rules`: one for each linear layer, in the order in which they run (an iterable, which may be endless).
    """
    y, back = run(net, x, iter(rules))
    R = np.zeros_like(y)
    R[target] = y[target]
    return back(R)


def run(layer, x, rules, norm=None):
    """What a layer makes of one point, and the function that takes relevance from there back to the point."""
    parts = {nn.Sequential: chain, Concatenation: concatenation, Sum: summed, Attention: attention}
    if type(layer) in parts:
        return parts[type(layer)](layer, x, rules)
    y = values(layer if norm is None else nn.Sequential(layer, norm), x[None])[0]
    if isinstance(layer, (*LINEAR, BATCH_NORM)):
        rule = next(rules)
        layer = matrix(layer, x.shape, norm)
        return y, lambda R: rule(x.ravel(), layer, R.ravel()).reshape(x.shape)
    if isinstance(layer, MOVES):
        W, _ = affine(layer, x.shape)
        return y, lambda R: (R.ravel() @ W).reshape(x.shape)
    if isinstance(layer, (*AVERAGES, nn.LayerNorm, nn.GroupNorm)):
        W = affine(layer, x.shape)[0] if isinstance(layer, AVERAGES) else centering(layer, x)
        return y, lambda R: shared(W * x.ravel(), y.ravel(), R.ravel()).reshape(x.shape)
    if isinstance(layer, MAXIMA):
        return y, lambda R: to_winners(layer, x, R)
    return y, lambda R: R  # activations, gates, dropout, identity


def chain(layers, x, rules):
    def folds(layer, after):
        return isinstance(layer, LINEAR) and isinstance(after, BATCH_NORM)

    backs = []
    for before, layer, after in zip([None, *layers], layers, [*layers[1:], None], strict=False):
        if not folds(before, layer):
            x, back = run(layer, x, rules, norm=after if folds(layer, after) else None)
            backs.append(back)

    def walk(R):
        for back in reversed(backs):
            R = back(R)
        return R

    return x, walk


def summed(layer, x, rules):
    ys, backs = zip(*(run(branch, x, rules) for branch in layer.branches), strict=True)
    y = sum(ys)

    def walk(R):
        m = np.divide(R, y, out=np.zeros_like(R), where=y != 0)
        return sum(back(part * m) for part, back in zip(ys, backs, strict=True))

    return y, walk


def concatenation(layer, x, rules):
    ys, backs = zip(*(run(branch, x, rules) for branch in layer.branches), strict=True)
    ends = np.cumsum([0, *map(len, ys)])
    pieces = [slice(*ends) for ends in pairwise(ends)]
    return np.concatenate(ys), lambda R: sum(back(R[piece]) for piece, back in zip(pieces, backs, strict=True))


def to_winners(pool, x, R):
    """A maximum's relevance belongs to the input that is the maximum."""
    pool = copy.copy(pool)
    pool.return_indices = True
    _, winners = pool(torch.from_numpy(x[None]))
    result = torch.zeros(len(x), x[0].size, dtype=torch.float64)
    result.scatter_add_(1, winners[0].flatten(1), torch.from_numpy(R).flatten(1))
    return result.numpy().reshape(x.shape)


def attention(layer, x, rules):
    (q, back_q), (k, back_k), (v, back_v) = (run(part, x, rules) for part in (layer.q, layer.k, layer.v))
    logits = q @ k.T / sqrt(q.shape[1])
    weights = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)

    def walk(R):
        of_weights, of_v = halves(weights, v, R)
        # AttnLRP's first-order Taylor expansion of a softmax s of x: R_i = x_i (R_i - s_i sum_j R_j)
        of_logits = logits * (of_weights - weights * of_weights.sum(axis=1, keepdims=True))
        of_q, of_k = halves(q, k.T, of_logits)
        return back_q(of_q) + back_k(of_k.T) + back_v(of_v)

    return weights @ v, walk


def halves(A, B, R):
    """Either factor of ``A B`` gets half of the relevance, in proportion to the contributions A_ik B_kj."""
    C = A @ B
    shares = np.divide(R, 2 * C, out=np.zeros_like(R), where=C != 0)
    parts = A[:, :, None] * B * shares[:, None]  # [i, k, j]
    return parts.sum(axis=2), parts.sum(axis=0)
