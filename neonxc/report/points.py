"""The map of a report: the projection of the points into the plane, and what a sample of them shows.

    space       the points behind the preprocessing of the clusterer, [n, p]
    plane       its first two principal components, t-SNE or UMAP; of sparse points, the first two singular vectors
    x, y        the plane, stretched along each axis to whole numbers from 0 to SIDE

The axes of PCA are named with the fraction of the variance along them, and have signs that do not depend on the
last bit of the processor.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.utils.extmath import randomized_svd

from neonxc.common.arguments import installed_by
from neonxc.common.numbers import percent, rounded
from neonxc.common.types import Points
from neonxc.data.table import Table
from neonxc.report.clustered import ClusteredData, stratified
from neonxc.report.description import Change, Example, PointMap
from neonxc.report.relevance import Relevance
from neonxc.report.statements import printed
from neonxc.report.tree import FittedTree

Projection = Literal["pca", "tsne", "umap"]
MOST = 4000  # maximum number of points on the map, which keep the page small
VALUES = 40_000  # approximate number of values of all points together
LEAST = 15  # minimum number of points of a cluster, if it has that many
SIDE = 1000  # of the map
VISIBLE = 0.006  # share of a point's relevance from which on the page shows a residual (report.js)


def map_points(
    clustering: ClusteredData,
    relevance: Relevance,
    examples: list[Example],
    tree: FittedTree,
    projection: Projection,
    n_changes: int,
) -> PointMap:
    """Take a stratified sample of the points, which includes the `examples` that the report shows.

    The smallest changes to another cluster are searched for at most `n_changes` of them.
    """
    n_max = max(500, min(MOST, VALUES // (len(relevance.shown) + 6)))
    needed = np.flatnonzero(np.isin(relevance.index, [example.row for example in examples]))
    spread = stratified(relevance.positions, n_max - min(n_max // 2, len(needed)), LEAST)
    sample = np.union1d(spread, needed)
    index = relevance.index[sample]

    plane, axes = projected(clustering.space(index), projection, clustering.weights_at(index))
    lowest = plane.min(0)
    extent = np.ptp(plane, 0)
    extent = np.where(extent > 0, extent, 1)
    x, up = np.round(SIDE * (plane - lowest) / extent).astype(int).T
    columns = [values for _, values in relevance.table.iloc[sample].items()]
    rows = index.tolist()
    names = clustering.point_names
    changes: list[Change | None] = [None] * len(index)
    if n_changes:
        from neonxc.report.changes import smallest_changes  # loads the counterfactuals

        changes = smallest_changes(clustering, relevance, index, np.searchsorted(sample, needed), n_changes)
    return PointMap(
        rows=rows,
        names=names and [names[row] for row in rows],
        x=x.tolist(),
        y=(SIDE - up).tolist(),  # of an SVG, downwards
        cluster=relevance.positions[sample].tolist(),
        competitor=relevance.competitor[sample].tolist(),
        leaf=tree.leaf[index].tolist(),
        logit=rounded(relevance.logit[sample]),
        values=[printed(*column) for column in zip(columns, relevance.decimals, strict=True)],
        relevance=[rounded(shares, 3) for shares in relevance.shares[sample].T],
        total=rounded(relevance.total[sample]),
        residual=_residual(relevance, sample),
        changes=changes,
        axes=axes,
    )


def _residual(relevance: Relevance, sample: np.ndarray) -> list[float] | None:
    """What the relevance of points lacks to their logits; None if it is too small to be seen for all of them."""
    residual = relevance.residual[sample]
    if (np.abs(residual) <= VISIBLE * relevance.total[sample]).all():
        return None
    return rounded(residual)


def projected(space: Points, projection: Projection, weight: np.ndarray | None = None) -> tuple[np.ndarray, str]:
    """Project points into the plane; return them with the name of the projection.

    The components of PCA and TruncatedSVD are those of repeated points, if the points have weights.
    """
    table = Table.read(space)
    if projection == "tsne":
        from sklearn.manifold import TSNE  # takes long

        perplexity = min(30.0, max(1.0, (len(table) - 1) / 3))
        return TSNE(perplexity=perplexity, init="pca", random_state=0).fit_transform(table.dense()), "t-SNE"
    if projection == "umap":
        try:
            from umap import UMAP
        except ImportError:
            raise ImportError(f'projection="umap" needs umap-learn: {installed_by("umap")}') from None
        return UMAP(random_state=0).fit_transform(space), "UMAP"
    if table.width < 2:
        return np.pad(table.dense(), ((0, 0), (0, 1))), "the values of the only column"
    if weight is not None:
        return _weighted_components(space, weight)
    model = TruncatedSVD(2, random_state=0) if table.is_sparse else PCA(2, random_state=0)
    plane = model.fit_transform(space) * _signs(model.components_)
    first, second = np.nan_to_num(model.explained_variance_ratio_)
    return plane, f"{type(model).__name__}: {percent(first)} and {percent(second)} of the variance"


def _weighted_components(space: Points, weight: np.ndarray) -> tuple[np.ndarray, str]:
    """Project points with weights to the first two singular vectors of ``sqrt(w) (x - mean)``.

    Sparse points are not centered, as `TruncatedSVD` does not center them.
    """
    fraction = weight / weight.sum()
    root = np.sqrt(fraction)[:, None]
    if isinstance(space, np.ndarray):
        name = "PCA"
        centered = space - fraction @ space
        scaled = centered * root
        variances = fraction @ centered**2
    else:
        name = "TruncatedSVD"
        centered = space
        scaled = space.multiply(root).tocsr()
        variances = fraction @ space.power(2) - (fraction @ space) ** 2
    _, _, components = randomized_svd(scaled, 2, n_iter=10, random_state=0)
    plane = np.asarray(centered @ components.T) * _signs(components)
    of_axes = fraction @ plane**2 - (fraction @ plane) ** 2
    total = float(np.sum(variances))
    if total <= 0:  # all points are the same, up to rounding
        of_axes = np.zeros(2)
        total = 1.0
    first, second = of_axes / total
    return plane, f"{name}: {percent(float(first))} and {percent(float(second))} of the variance"


def _signs(components: np.ndarray) -> np.ndarray:
    """Signs that make the first of the largest loadings of every component positive.

    The two columns of a binary category have opposite loadings, equal up to rounding, which differs by processor.
    """
    sizes = np.abs(components)
    largest = np.isclose(sizes, sizes.max(axis=1, keepdims=True), rtol=1e-6, atol=0).argmax(axis=1)
    return np.where(np.take_along_axis(components, largest[:, None], axis=1)[:, 0] < 0, -1, 1)
