"""Supports that are moved until they reproduce given labels: gradient descent on the margins."""

from __future__ import annotations

import torch
from torch import Tensor
from tqdm import tqdm

from .supports import Supports, squared_distances

DONE = 0.999  # agreement that ends a descent, and ...
STEPS = 400  # ... what ends it otherwise
BATCH = 1024
EVERY = 20  # steps between two looks at all points
PATIENCE = 10  # looks in a row that must gain ...
GAIN = 0.002  # ... so much agreement, or the descent ends


def refined(supports: Supports, x: Tensor, labels: Tensor) -> Supports:
    """Move supports, their weights and gamma down the gradient of a logistic loss of the margins.

    Parameters
    ----------
    supports : Supports
        Where to start.
    x : Tensor [n, d]
    labels : Tensor [n] of int64

    Returns
    -------
    Supports
        Those that agreed best with the labels, of the ones looked at.
    """
    size = float(x.square().mean().sqrt()) or 1.0  # in units of it, the same steps do for any data
    best, seen = _in_units(supports, size), [agreement(supports, x, labels)]
    # float32: where it would not do, these steps would be too long as well
    scaled, points = (x / size).float(), best.points.float().clone()
    log_weights = best.log_weights.clamp(min=-30).float()
    log_gamma = points.new_tensor(best.gamma).log()
    optimizer = torch.optim.Adam(
        [{"params": [points], "lr": 0.02}, {"params": [log_weights, log_gamma], "lr": 0.05}]
    )
    generator = torch.Generator(x.device).manual_seed(0)
    for step in tqdm(range(1, STEPS + 1), desc="surrogate", delay=2, leave=False):
        batch = torch.randperm(len(x), generator=generator, device=x.device)[:BATCH]
        slopes = gradient(scaled[batch], labels[batch], points, log_weights, log_gamma)
        points.grad, log_weights.grad, log_gamma.grad = slopes
        optimizer.step()
        if step % EVERY:
            continue
        now = Supports(points.clone(), log_weights.double(), float(log_gamma.exp()))
        fidelity = agreement(now, scaled, labels)
        if fidelity > max(seen):
            best = now
        seen.append(fidelity)
        flat = len(seen) > PATIENCE and max(seen[-PATIENCE:]) < max(seen[:-PATIENCE]) + GAIN
        if flat or fidelity >= DONE:
            break
    return _in_units(Supports(best.points.to(x), best.log_weights, best.gamma), 1 / size)


def gradient(
    x: Tensor, labels: Tensor, points: Tensor, log_weights: Tensor, log_gamma: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradient of the mean of ``-log softmax(-gamma D)_label`` in supports, log weights and log gamma.

    In closed form: a point's loss is the logsumexp of ``log w - gamma |x - u|^2`` over all supports, minus that
    over its own cluster's. Its gradient in one of these logits is the support's share among all, minus, in its own
    cluster, that among the cluster's.

    Parameters
    ----------
    x : Tensor [n, d]
    labels : Tensor [n] of int64
    points : Tensor [K, p, d]
    log_weights : Tensor [K, p]
    log_gamma : scalar Tensor
    """
    far = squared_distances(x, points.flatten(0, 1)).view(len(x), *log_weights.shape)
    gamma, every = log_gamma.exp(), torch.arange(len(x), device=x.device)
    logits = log_weights - gamma * far
    excess = logits.flatten(1).softmax(1).view_as(logits)
    excess[every, labels] -= logits[every, labels].softmax(1)
    excess /= len(x)
    mass = excess.sum(0)
    moments = (excess.flatten(1).T @ x).view_as(points)
    return 2 * gamma * (moments - mass[..., None] * points), mass, -gamma * far.mul_(excess).sum()


def agreement(supports: Supports, x: Tensor, labels: Tensor) -> float:
    """Share of points whose nearest cluster is the one they are labelled with."""
    return float((supports.distances(x).argmin(1) == labels).double().mean())


def _in_units(supports: Supports, size: float) -> Supports:
    """The same supports where lengths are measured in units of `size`."""
    return Supports(supports.points / size, supports.log_weights, supports.gamma * size**2)
