"""Projections of points into the plane, for the map of a report."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.utils.extmath import randomized_svd

from neonxc.common.extras import installed_by
from neonxc.common.numbers import percent
from neonxc.data.table import Table

Projection = Literal["pca", "tsne", "umap"]


def projected(space: Any, projection: Projection, weight: np.ndarray | None = None) -> tuple[np.ndarray, str]:
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
        return _weighted_components(space, table.is_sparse, weight)
    model = TruncatedSVD(2, random_state=0) if table.is_sparse else PCA(2, random_state=0)
    plane = model.fit_transform(space) * _signs(model.components_)
    first, second = np.nan_to_num(model.explained_variance_ratio_)
    return plane, f"{type(model).__name__}: {percent(first)} and {percent(second)} of the variance"


def _weighted_components(space: Any, is_sparse: bool, weight: np.ndarray) -> tuple[np.ndarray, str]:
    """Project points with weights to the first two singular vectors of ``sqrt(w) (x - mean)``.

    Sparse points are not centered, as `TruncatedSVD` does not center them.
    """
    fraction = weight / weight.sum()
    centered = space if is_sparse else space - fraction @ space
    root = np.sqrt(fraction)
    scaled = centered.multiply(root[:, None]).tocsr() if is_sparse else centered * root[:, None]
    _, _, components = randomized_svd(scaled, 2, n_iter=10, random_state=0)
    plane = np.asarray(centered @ components.T) * _signs(components)
    squares = centered.power(2) if is_sparse else centered**2
    variances = fraction @ squares
    if is_sparse:
        variances = variances - (fraction @ centered) ** 2
    of_axes = fraction @ plane**2 - (fraction @ plane) ** 2
    total = float(np.sum(variances))
    first, second = of_axes / total if total > 0 else (0.0, 0.0)
    name = "TruncatedSVD" if is_sparse else "PCA"
    return plane, f"{name}: {percent(float(first))} and {percent(float(second))} of the variance"


def _signs(components: np.ndarray) -> np.ndarray:
    """Signs that make the first of the largest loadings of every component positive.

    The two columns of a binary category have opposite loadings, equal up to rounding, which differs by processor.
    """
    sizes = np.abs(components)
    largest = np.isclose(sizes, sizes.max(axis=1, keepdims=True), rtol=1e-6, atol=0).argmax(axis=1)
    return np.where(np.take_along_axis(components, largest[:, None], axis=1)[:, 0] < 0, -1, 1)
