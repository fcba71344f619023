"""Figure 2 of the SpEx paper: one case in which explaining k-means fails, and one in which CART fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from reports import renumbered
from sklearn.cluster import KMeans, SpectralClustering
from sklearn.datasets import make_moons

from neonxc.trees import CART, IMM, SpExClique

COLORS = ("#4477aa", "#ee7733", "#228833")
Box = tuple[np.ndarray, np.ndarray]


def moons() -> tuple[np.ndarray, np.ndarray]:
    """Make two moons: points [300, 2] and the moon of each point."""
    X, moon = make_moons(300, noise=0.06, random_state=0)
    return X, moon


def wide_cluster(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Make two large clusters side by side and a wide, small one above both: points [330, 2] and their
    clusters."""
    generator = np.random.default_rng(seed)
    left = generator.uniform((-2.0, 0.0), (-0.6, 0.8), (150, 2))
    right = left * (-1, 1)
    above = generator.uniform((-2.0, 1.1), (2.0, 1.4), (30, 2))
    return np.concatenate([left, right, above]), np.repeat([0, 1, 2], [150, 150, 30])


def cells(tree: Any, box: Box, node: int = 0, depth: int = 0) -> Iterator[tuple[int, int, Box]]:
    """Yield the nodes of a tree of two columns in preorder, with their depths and boxes."""
    yield node, depth, box
    feature = int(tree.feature[node])
    if feature < 0:
        return
    low, high = (corner.copy() for corner in box)
    low[feature] = high[feature] = float(tree.threshold[node])
    yield from cells(tree, (box[0], high), int(tree.left[node]), depth + 1)
    yield from cells(tree, (low, box[1]), int(tree.right[node]), depth + 1)


def draw(axes: Axes, X: np.ndarray, truth: np.ndarray, model: Any, title: str) -> None:
    """Draw points in the colours of the true clusters, and the tree's boxes; crosses mark errors."""
    room = 0.04 * np.ptp(X, axis=0)
    box = (X.min(0) - room, X.max(0) + room)
    tree = model.tree_
    wrong = model.labels_ != truth
    for node, depth, (low, high) in cells(tree, box):
        feature = int(tree.feature[node])
        if feature < 0:
            color = COLORS[int(tree.classes[int(tree.label[node])])]
            axes.add_patch(Rectangle(tuple(low), *(high - low), color=color, alpha=0.15, lw=0))
            continue
        threshold = float(tree.threshold[node])
        ends = (low[1 - feature], high[1 - feature])
        line = ((threshold, threshold), ends) if feature == 0 else (ends, (threshold, threshold))
        axes.plot(*line, color="0.2", lw=2.2 if depth == 0 else 1.2, ls="-" if depth == 0 else "--")
    colors = np.array(COLORS)[truth]
    axes.scatter(*X[~wrong].T, c=colors[~wrong], s=7, lw=0)
    axes.scatter(*X[wrong].T, c=colors[wrong], s=26, marker="x", lw=1.3)
    axes.set_title(f"{title}\n{wrong.sum()} of {len(X)} points in the wrong cluster", fontsize=9)
    axes.set(xlim=(box[0][0], box[1][0]), ylim=(box[0][1], box[1][1]), xticks=[], yticks=[])


def figure_2() -> Figure:
    """Draw both cases, each with a tree that fails and one that succeeds."""
    figure = Figure(figsize=(12, 3), layout="constrained")
    panels = figure.subplots(1, 4)
    X, moon = moons()
    means = renumbered(KMeans(2, n_init=10, random_state=0).fit_predict(X), moon)
    model = SpectralClustering(2, affinity="nearest_neighbors", random_state=0)
    bands = renumbered(model.fit_predict(X), moon)
    draw(panels[0], X, moon, IMM(2).fit(X, labels=means), "k-means, then IMM")
    draw(panels[1], X, moon, SpExClique(2).fit(X, labels=bands), "spectral clustering, then SpEx-Clique")
    X, cluster = wide_cluster()
    draw(panels[2], X, cluster, CART(3).fit(X, labels=cluster), "three clusters, then CART")
    draw(panels[3], X, cluster, SpExClique(3).fit(X, labels=cluster), "three clusters, then SpEx-Clique")
    return figure
