"""Supports that are moved until they reproduce given labels, by gradient descent on the margins."""

from __future__ import annotations

import torch
from torch import Tensor

from neonxc.progress_bars import progress_bar

from .supports import Supports, squared_distances

DONE = 0.999  # a descent ends at this agreement, ...
STEPS = 400  # ... after so many steps, ...
PATIENCE = 10  # ... or when so many looks in a row ...
GAIN = 0.002  # ... have gained less agreement than this
EVERY = 20  # steps between two looks at all points
BATCH = 1024


def refined(supports: Supports, x: Tensor, labels: Tensor) -> Supports:
    """Move supports, their weights and gamma down the gradient of a logistic loss of the margins.

    The result is what agreed best with the labels at those steps after which all points were looked at.
    """
    size = float(x.square().mean().sqrt()) or 1.0  # the unit of length: the same steps then suit any data
    best, seen = _in_units(supports, size), [agreement(supports, x, labels)]
    # float32: where it would not do, these steps would be too long as well
    scaled, points = (x / size).float(), best.points.float().clone()
    log_weights = best.log_weights.clamp(min=-30).float()
    log_gamma = points.new_tensor(best.gamma).log()
    optimizer = torch.optim.Adam(
        [{"params": [points], "lr": 0.02}, {"params": [log_weights, log_gamma], "lr": 0.05}]
    )
    generator = torch.Generator(x.device).manual_seed(0)
    for step in progress_bar(range(1, STEPS + 1), desc="surrogate"):
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

    A point's loss is the logsumexp of ``log w - gamma |x - u|^2`` over all supports, minus the same over the
    supports of its own cluster. The derivative in one of these logits is the support's share among all supports,
    minus, in the point's own cluster, its share among the cluster's.
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


def agreeing(supports: Supports, x: Tensor, labels: Tensor) -> Tensor:
    """Which points [n] have the cluster they are labelled with as their nearest."""
    return supports.distances(x).argmin(1) == labels


def agreement(supports: Supports, x: Tensor, labels: Tensor) -> float:
    """Share of the points whose nearest cluster is the one they are labelled with."""
    return float(agreeing(supports, x, labels).double().mean())


def _in_units(supports: Supports, size: float) -> Supports:
    """The same supports where lengths are measured in units of `size`."""
    return Supports(supports.points / size, supports.log_weights, supports.gamma * size**2)
