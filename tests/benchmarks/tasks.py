"""The tasks of the growth benchmark: trees, attributions and EM on Gaussian clusters, with predicted
operations."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

import neonxc
from neonxc import NEON
from neonxc.clusterings.supports import uniform
from neonxc.models import KernelKMeans
from neonxc.models.kernel.em import em
from neonxc.trees import CART, IMM, ExKMC, ExShallow, SpExClique, ThresholdTree
from tests.benchmarks import cost_model
from tests.benchmarks.cost_model import Size, Work
from tests.launches import launches


def _bins(size: Size) -> int | None:
    return None if size.whole else size.bins


TREES: dict[str, Callable[[Size], Any]] = {
    "IMM": lambda size: IMM(size.k, max_bins=_bins(size)),
    "ExShallow": lambda size: ExShallow(size.k, max_bins=_bins(size)),
    "CART": lambda size: CART(size.k, max_bins=_bins(size), max_leaves=size.leaves or None),
    "SpExClique": lambda size: SpExClique(size.k, max_bins=_bins(size), max_leaves=size.leaves or None),
    "ExKMC": lambda size: ExKMC(size.k, max_bins=_bins(size), max_leaves=size.leaves or None),
}
TREE = Size(40_000, 32, 16)
POINTS = Size(20_000, 64, 16)
OTHERS = [  # sizes that are not on the axes, and from which no constant of the model was chosen
    Size(100_000, 50, 10),
    Size(6_000, 150, 25),
    Size(300_000, 10, 6),
    Size(30_000, 20, 40, bins=64),
    Size(100_000, 20, 10, whole=False),
]
SMALL = Size(600, 8, 12)  # number of rows on which operators are counted


@dataclass(frozen=True)
class Task:
    """A task that is timed.

    Attributes
    ----------
    name : str
    base : Size
    axes : dict of str to list of int
        Values of one size at a time, the others as in `base`.
    prepare : callable
        Size -> a function that runs the task once.
    work : callable
        Size -> the operations that the model counts.
    """

    name: str
    base: Size
    axes: dict[str, list[int]]
    prepare: Callable[[Size], Callable[[], Any]]
    work: Callable[[Size], Work]


def all_tasks() -> Iterable[Task]:
    """Return the tasks: trees, attributions, and an iteration of EM."""
    sizes = {
        "n": [2_500, 10_000, 40_000, 160_000],
        "d": [8, 32, 128],
        "k": [4, 16, 64],
    }
    for name, explainer in TREES.items():
        more = {} if name in ("IMM", "ExShallow") else {"leaves": [32, 128, 512]}
        work = partial(cost_model.tree, name, operators=of_cuts(name))
        yield Task(name, TREE, sizes | more, partial(fit, explainer), work)
    points = {"n": [1_250, 5_000, 20_000, 80_000], "d": [16, 64, 256], "k": [4, 16, 64]}
    work = partial(cost_model.attribution, operators=of_clusters(attribution, 1))
    yield Task("NEON, k-means", POINTS, points, attribution, work)
    kernel = replace(POINTS, n=5_000, supports=8)
    points = {"n": [1_250, 5_000, 20_000], "d": [16, 64, 256], "k": [4, 16, 64], "supports": [2, 8, 32]}
    work = partial(cost_model.attribution, operators=of_clusters(attribution, 2))
    yield Task("NEON, kernel k-means", kernel, points, attribution, work)
    work = partial(cost_model.em_iteration, operators=of_clusters(iteration, 2))
    yield Task("EM, one iteration", kernel, points, iteration, work)


# --- what is timed -------------------------------------------------------------------------------------------


def table(size: Size) -> tuple[Tensor, Tensor]:
    """Make Gaussian clusters [n, d] and labels, either uint8 numbers below `size.bins` or float32."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(size.k, (size.n,), generator=generator)
    centers = 2 * torch.randn(size.k, size.d, generator=generator)
    x = centers[labels] + torch.randn(size.n, size.d, generator=generator)
    return ((x + 8) * (size.bins / 16)).clamp_(0, size.bins - 1).to(torch.uint8) if size.whole else x, labels


def fit(explainer: Callable[[Size], Any], size: Size) -> Callable[[], ThresholdTree]:
    """Fit a tree to the means of the clusters."""
    x, labels = table(size)
    centers = torch.stack([x[labels == c].double().mean(0) for c in range(size.k)])
    return lambda: explainer(size).fit(x, centers=centers).tree_


def attribution(size: Size) -> Callable[[], Tensor]:
    """Compute the relevance of every row for its own cluster."""
    x, labels = table(size)
    x = x.float()
    if size.supports == 1:
        net = neonxc.neuralize(np.stack([x[labels == c].mean(0).numpy() for c in range(size.k)]))
    else:
        few = slice(size.k * 4 * size.supports)
        model = KernelKMeans(size.k, size.supports, max_iter=1, random_state=0).fit(x[few], labels=labels[few])
        net = neonxc.neuralize(model, x[few])
    return lambda: NEON(net).attribute(x)


def iteration(size: Size) -> Callable[[], Any]:
    """Run one iteration of EM, with supports that are some of the rows."""
    x, labels = table(size)
    x = x.float() - x.float().mean(0)
    supports = torch.stack([x[labels == c][: size.supports] for c in range(size.k)])
    return lambda: em(x, uniform(supports, 1 / (20.0 * size.d)), max_iter=0)


# --- operators ------------------------------------------------------------------------------


def of_cuts(name: str) -> tuple[float, float]:
    """Return the number of operators per fit, and per cut."""
    return _operators(partial(fit, TREES[name]), SMALL, lambda tree: tree.n_leaves - 1)


def of_clusters(prepare: Callable[[Size], Callable[[], Any]], supports: int) -> tuple[float, float]:
    """Return the number of operators per call, and per cluster."""
    ks = iter(FEW)
    return _operators(prepare, replace(SMALL, supports=supports), lambda _: next(ks))


FEW = (4, 12)  # numbers of clusters for which operators are compared


def _operators(
    prepare: Callable[[Size], Callable[[], Any]], size: Size, of: Callable[[Any], int]
) -> tuple[float, float]:
    """Return the constant and the slope of the number of operators, from two small calls."""
    (few, least), (many, most) = (
        (of(run()), launches(run).total) for run in (prepare(replace(size, k=k)) for k in FEW)
    )
    each = (most - least) / (many - few)
    return least - each * few, each
