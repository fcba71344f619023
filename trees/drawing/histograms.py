"""Histograms of the tested column at every test of a tree, by the predicted cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
from matplotlib.collections import PatchCollection
from matplotlib.patches import Polygon, Rectangle

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
    """

    edges: np.ndarray
    counts: np.ndarray
    bounds: list[float]

    def draw(self, x: float, y: float, width: float, height: float, colors: Sequence[str]) -> PatchCollection:
        """Draw stacked bars in the clusters' colours, and mark the bounds; the lower left corner is at (x, y)."""
        low, high = self.edges[0], self.edges[-1]
        at = x + (self.edges - low) / (high - low) * width
        tops = y - height * np.cumsum(self.counts, 1) / max(self.counts.sum(1).max(), 1)
        bars = [((x, y), width, -0.4, "0.6")]
        for i, k in zip(*self.counts.nonzero(), strict=True):
            bottom, wide = tops[i, k - 1] if k else y, at[i + 1] - at[i]
            bars.append(((at[i] + 0.04 * wide, bottom), 0.92 * wide, tops[i, k] - bottom, colors[k]))
        patches: list[Any] = []
        size = height / 12
        for bound in self.bounds:
            place = x + (bound - low) / (high - low) * width
            corners = [(place - size, y + 2 * size), (place + size, y + 2 * size), (place, y)]
            patches.append(Polygon(corners, facecolor="0.1", linewidth=0))
            bars.append(((place - 0.35, y), 0.7, -height, "0.1"))
        patches += [Rectangle(*bar, facecolor=color, linewidth=0) for *bar, color in bars]
        return PatchCollection(patches, match_original=True, zorder=3)


def histograms(tree: ThresholdTree, X: Any) -> dict[int, Histogram]:
    """Count the points of X at every test, by the tested column and the cluster of their leaf.

    Missing numbers are counted beside the smallest or the largest value, depending on the side to which the tree
    sends them. A category is 1, and all others are 0.
    """
    used, values, _ = tested_columns(tree, X)
    way = ways(tree, used, values)
    label = tree.label[way[-1]].numpy()
    table = values.detach().double().cpu().numpy()
    place = {column: i for i, column in enumerate(used.tolist())}
    found = {}
    for node in (tree.feature >= 0).nonzero()[:, 0].tolist():
        here = (way[int(tree.depths[node])] == node).numpy()
        bounds = [bound for pair in tree.tests[node] for bound in pair if isfinite(bound)]
        own = table[here, place[int(tree.feature[node])]]
        edges = _edges(own, bounds)
        clusters = np.arange(len(tree.classes) + 1) - 0.5
        counts, _, _ = np.histogram2d(own, label[here], [edges, clusters])
        found[node] = Histogram(edges, counts, bounds)
    return found


def _edges(values: np.ndarray, bounds: list[float]) -> np.ndarray:
    """Return the edges of equal bins over all values, one of which is the first bound."""
    low, high = min([*values, *bounds]), max([*values, *bounds])
    width = (high - low) / BINS or 1.0
    if (values == np.round(values)).all():
        width = max(1.0, np.ceil(width))
    middle = bounds[0] if bounds else low
    below, above = max(int(np.ceil((middle - low) / width)), 1), max(int(np.ceil((high - middle) / width)), 1)
    edges = middle + width * np.arange(-below, above + 1)
    edges[0], edges[-1] = min(edges[0], low), max(edges[-1], high)
    return np.unique(edges) if len(np.unique(edges)) > 1 else np.array([low - 0.5, low + 0.5])
