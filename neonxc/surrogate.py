"""A kernel k-means in place of a clustering that is known by its labels alone."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.pipeline import Pipeline
from torch import Tensor, nn

from neonxc.heads import CentroidHead
from neonxc.inputs import as_batch, as_labels
from neonxc.models.kernel.seeding import within_clusters
from neonxc.models.kernel.supports import Supports, em, squared_distances, uniform
from neonxc.network import rows
from neonxc.preprocessing import Preprocessing
from neonxc.readers import ClusterModel

ENOUGH = 0.995  # fidelity at which a fit is left as it is: what is adjusted needlessly explains less of the labels
WARNING = 0.95
HELD_OUT = 0.2
SUPPORTS = (10, 20, 40)  # per cluster; more if fewer do not do
STEPS = 300  # of gradient descent on the margins
BATCH = 4096


def fit_surrogate(X: Any, labels: Any, steps: list[tuple[str, Any]], features: nn.Module | None) -> ClusterModel:
    """Fit supports, weights and stiffness of a kernel k-means to labels (NEON paper, section V).

    Clusters start as mixtures of their points (EM with fixed assignments). Where that does not reproduce the
    labels, the supports, their weights and gamma are moved down the gradient of a logistic loss of the margins,
    and more supports are tried. It stays a model of distances to points of the clusters on purpose: a generic
    classifier would fit as well, and might decide by something else.

    Parameters
    ----------
    X : array, frame or tensor
        What the network is called with.
    labels : array-like [n]
        -1 is noise: left out of the fit; where there is any, points as far from all clusters as noise is are
        noise.
    steps : list of (name, step)
        A pipeline's steps before the clusterer.
    features : nn.Module or None
        Network before those.
    """
    points = _points(X, steps, features)
    column, classes, there = as_labels(labels, len(points), points.device)
    if len(classes) < 2:
        raise ValueError(
            f"labels need at least 2 clusters to compare, got {classes.tolist()} (noise, -1, is none)"
        )
    shift = points[there].mean(0)
    x, y = points[there] - shift, column[there]
    held_out = _held_out(x, y, len(classes))
    supports = fitted(x, y, len(classes))
    fidelity = agreement(supports, x, y)
    if fidelity < WARNING:
        warnings.warn(
            f"the surrogate gives {fidelity:.1%} of the points their label: it explains a clustering that differs "
            "from the one given",
            UserWarning,
            stacklevel=4,
        )
    radius = None if bool(there.all()) else _radius(supports, points - shift, there)
    used = supports.log_weights.isfinite().flatten()
    centers = (supports.points.flatten(0, 1) + shift)[used].double().cpu()
    groups, log_weights = supports.groups[used].cpu(), supports.log_weights.flatten()[used].double().cpu()

    def head(chain: Preprocessing | None) -> CentroidHead:
        return CentroidHead(centers, groups, chain, gamma=supports.gamma, log_weights=log_weights, radius=radius)

    return ClusterModel(head, centers, classes, fidelity=(fidelity, held_out))


def fitted(x: Tensor, labels: Tensor, k: int) -> Supports:
    """The least adjusted supports that reproduce labels well enough, or else those that do so best."""
    best, reached = None, -1.0
    generator = torch.Generator(x.device).manual_seed(0)
    for n_support in SUPPORTS:
        start = within_clusters(x, labels, k, n_support, generator)
        far = start.distances(x).gather(1, labels[:, None])
        apart = far[far > 0]
        gamma = 1 / float(apart.median()) if len(apart) else 1.0
        supports = em(x, uniform(start.points, gamma), labels, weighted=True).supports
        for attempt in (lambda s: s, lambda s: refined(s, x, labels)):
            supports = attempt(supports)
            fidelity = agreement(supports, x, labels)
            if best is None or fidelity > reached:
                best, reached = supports, fidelity
            if fidelity >= ENOUGH:
                return supports
    assert best is not None
    return best


def refined(supports: Supports, x: Tensor, labels: Tensor) -> Supports:
    """Gradient descent on the margins, from supports on: the best that was seen."""
    size = float(x.square().mean().sqrt())
    points = supports.points.clone().requires_grad_()
    log_weights = supports.log_weights.clamp(min=-30).clone().requires_grad_()
    log_gamma = x.new_tensor(supports.gamma).log().requires_grad_()
    optimizer = torch.optim.Adam(
        [{"params": [points], "lr": 0.02 * size}, {"params": [log_weights, log_gamma], "lr": 0.05}]
    )
    generator = torch.Generator(x.device).manual_seed(0)
    best, reached = supports, agreement(supports, x, labels)
    with torch.enable_grad():
        for step in range(STEPS):
            batch = torch.randperm(len(x), generator=generator, device=x.device)[:BATCH]
            far = squared_distances(x[batch], points.flatten(0, 1)).view(len(batch), *log_weights.shape)
            similarity = (log_weights - log_gamma.exp() * far).logsumexp(-1)
            loss = F.cross_entropy(similarity, labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 10 == 9:
                now = Supports(points.detach().clone(), log_weights.detach().clone(), log_gamma.exp().item())
                fidelity = agreement(now, x, labels)
                if fidelity > reached:
                    best, reached = now, fidelity
                if reached >= ENOUGH:
                    break
    return best


def agreement(supports: Supports, x: Tensor, labels: Tensor) -> float:
    """Share of points whose nearest cluster is the one they are labelled with."""
    return float((supports.distances(x).argmin(1) == labels).double().mean())


def _held_out(x: Tensor, labels: Tensor, k: int) -> float | None:
    """Fidelity on a fifth of the points, of a fit to the others; None where a cluster has too few for that."""
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0)).to(x.device)
    test, train = order[: int(HELD_OUT * len(x))], order[int(HELD_OUT * len(x)) :]
    if not len(test) or int(torch.bincount(labels[train], minlength=k).amin()) == 0:
        return None
    return agreement(fitted(x[train], labels[train], k), x[test], labels[test])


def _radius(supports: Supports, x: Tensor, clustered: Tensor) -> float:
    """Distance to the nearest cluster that tells noise apart best: the greatest balanced accuracy."""
    far, order = supports.distances(x).amin(1).sort()
    inside = clustered[order].double()
    score = inside.cumsum(0) / inside.sum() - (1 - inside).cumsum(0) / (1 - inside).sum()
    at = int(score.argmax())
    return float((far[at] + far[min(at + 1, len(far) - 1)]) / 2)


def _points(X: Any, steps: list[tuple[str, Any]], features: nn.Module | None) -> Tensor:
    """What the clustering saw, [n, d] of float64."""
    batch = as_batch(X)
    if features is None:
        points = batch.tensor
    else:
        weight = next((p for p in features.parameters() if p.is_floating_point()), batch.tensor)
        with torch.no_grad():
            points = torch.cat([rows(features(part)) for part in batch.tensor.to(weight).split(16)])
    if points.ndim != 2:
        raise ValueError(f"X needs shape [points, features], got {list(points.shape)}")
    points = points.detach().double()
    if not steps:
        return points
    return torch.as_tensor(np.asarray(Pipeline(steps).transform(points.cpu().numpy()))).to(points)
