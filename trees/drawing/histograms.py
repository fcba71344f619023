"""Histograms of the tested column at every test of a tree, by the predicted cluster."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.patches import Patch, Polygon, Rectangle

from neonxc.common.colours import colors
from neonxc.trees.fitted.routing import tested_columns, ways
from neonxc.trees.fitted.tree import ThresholdTree

BINS = 24


@dataclass(frozen=True)
class Histogram:
    """Histogram of the points at a test by the tested column.

    Attributes
    ----------
    edges : ndarray [bins + 1]
    counts : ndarray [bins, clusters]
    bounds : list of float
        The bounds of the test. A single bound is an edge of the histogram.
    colors : list of str
        Colours of the clusters.
    """

    edges: np.ndarray
    counts: np.ndarray
    bounds: list[float]
    colors: list[str]

    def draw(self, ax: Axes, x: float, y: float, width: float, height: float) -> None:
        """Draw stacked bars in the clusters' colours, and mark the bounds; the lower left corner is at (x, y)."""
        low, high = self.edges[0], self.edges[-1]
        at = x + (self.edges - low) / (high - low) * width
        tops = y - height * np.cumsum(self.counts, 1) / max(self.counts.sum(1).max(), 1)
        patches: list[Patch] = [Rectangle((x, y), width, -0.4, fc="0.6")]
        for i, k in zip(*self.counts.nonzero(), strict=True):
            bottom, wide = tops[i, k - 1] if k else y, at[i + 1] - at[i]
            corner = at[i] + 0.04 * wide, bottom
            patches.append(Rectangle(corner, 0.92 * wide, tops[i, k] - bottom, fc=self.colors[k]))
        size = height / 12
        for bound in self.bounds:
            place = x + (bound - low) / (high - low) * width
            foot = [(place - size, y + 2 * size), (place + size, y + 2 * size), (place, y)]
            patches += [Polygon(foot, fc="0.1"), Rectangle((place - 0.35, y), 0.7, -height, fc="0.1")]
        for patch in patches:
            patch.set_linewidth(0)
        ax.add_collection(PatchCollection(patches, match_original=True, zorder=3), autolim=False)


def histograms(tree: ThresholdTree, X: Any) -> dict[int, Histogram]:
    """Count the points of X at every test, by the tested column and the cluster of their leaf.

    Missing numbers are counted beside the smallest or the largest value, depending on the side to which the tree
    sends them. A category is 1, and all others are 0.
    """
    used, values, _ = tested_columns(tree, X)
    way = ways(tree, used, values)
    label = tree.label[way[-1]].numpy()
    columns = dict(zip(used.tolist(), values.detach().double().cpu().numpy().T, strict=True))
    clusters, table, found = np.arange(len(tree.classes) + 1) - 0.5, colors(len(tree.classes)), {}
    for node in (tree.feature >= 0).nonzero()[:, 0].tolist():
        here = (way[int(tree.depths[node])] == node).numpy()
        bounds = [bound for pair in tree.tests[node] for bound in pair if isfinite(bound)]
        own = columns[int(tree.feature[node])][here]
        edges = _edges(own, bounds)
        counts, _, _ = np.histogram2d(own, label[here], [edges, clusters])
        found[node] = Histogram(edges, counts, bounds, table)
    return found


def _edges(values: np.ndarray, bounds: list[float]) -> np.ndarray:
    """Return the edges of equal bins over all values, one of which is the first bound."""
    every = np.append(values, bounds)
    low, high = every.min(), every.max()
    width = (high - low) / BINS or 1.0
    if (values == np.round(values)).all():
        width = max(1.0, np.ceil(width))
    middle = bounds[0] if bounds else low
    below, above = (max(int(np.ceil(side / width)), 1) for side in (middle - low, high - middle))
    edges = middle + width * np.arange(-below, above + 1)
    edges[0], edges[-1] = min(edges[0], low), max(edges[-1], high)
    edges = np.unique(edges)
    return edges if len(edges) > 1 else np.array([low - 0.5, low + 0.5])
