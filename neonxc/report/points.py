"""The map of a report, and the values, relevance and counterfactual of each of its points."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from typing import Any, Literal

import numpy as np
import pandas as pd
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.utils.extmath import randomized_svd

from neonxc.attribution.contrasts import some_of
from neonxc.common.colours import NOISE
from neonxc.common.extras import installed_by
from neonxc.common.numbers import percent, rounded, text
from neonxc.counterfactuals import counterfactual
from neonxc.counterfactuals.find import is_curved
from neonxc.data.table import Table
from neonxc.report.clustering import Clustering, stratified
from neonxc.report.contents import Card, Change, Item, PointMap, rows_shown
from neonxc.report.relevance import Relevance
from neonxc.report.statements import is_category, printed
from neonxc.report.tree import TreePart

Projection = Literal["pca", "tsne", "umap"]
MOST = 5000  # maximum number of points on the map
VALUES = 40_000  # approximate number of values of all points together
LEAST = 15  # minimum number of points of a cluster, if it has that many
CHANGED = 3  # maximum number of columns that a counterfactual changes
DIGITS = (4, 6, 9, 17)  # numbers of significant digits tried for changed values
# maximum number of points and of columns if counterfactuals take long
SLOW = 100
FEW = 12
WORK = 600_000  # maximum product of points, clusters and columns for counterfactuals of more points


def points(
    clustering: Clustering,
    relevance: Relevance,
    cards: list[Card],
    disagreements: list[Item],
    tree: TreePart,
    projection: Projection,
) -> PointMap:
    """Take a stratified sample of the points, which includes those on the cards and the `disagreements`."""
    most = max(500, min(MOST, VALUES // (len(relevance.shown) + 6)))
    needed = np.flatnonzero(np.isin(relevance.index, list(rows_shown(cards, disagreements))))
    spread = stratified(relevance.positions, most - min(most // 2, len(needed)), LEAST)
    sample = np.union1d(spread, needed)
    index = relevance.index[sample]
    positions = relevance.positions[sample]
    names = clustering.point_names
    plane, axes = projected(clustering.space(index), projection, clustering.weights_at(index))
    low = plane.min(0)
    extent = np.ptp(plane, 0)
    x, up = np.round(1000 * (plane - low) / np.where(extent > 0, extent, 1)).astype(int).T
    y = 1000 - up
    return PointMap(
        index.tolist(),
        names and [names[row] for row in index.tolist()],
        x.tolist(),
        y.tolist(),
        positions.tolist(),
        relevance.rival[sample].tolist(),
        tree.leaf[index].tolist(),
        rounded(relevance.logit[sample]),
        [printed(values) for _, values in relevance.table.iloc[sample].items()],
        [rounded(shares, 2) for shares in relevance.shares[sample].T],
        rounded(relevance.total[sample]),
        _changes(clustering, relevance, index),
        axes,
        _picture(x, y, positions, cards),
    )


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


def _picture(x: np.ndarray, y: np.ndarray, positions: np.ndarray, cards: list[Card]) -> str:
    """Draw the map as SVG, with one path of dots per cluster."""
    paths = []
    for cluster, dots in pd.Series([f"M{a} {b}h0" for a, b in zip(x, y, strict=True)]).groupby(positions):
        color = cards[cluster].color if cluster >= 0 else NOISE
        paths.append(f'<path stroke="{color}" d="{"".join(dots)}"/>')
    frame = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="-10 -10 1020 1020">'
    return f'{frame}<g fill="none" stroke-width="9" stroke-linecap="round">{"".join(paths)}</g></svg>'


def searched(clustering: Clustering, relevance: Relevance) -> int:
    """Maximum number of points of which the smallest change is searched."""
    d = len(clustering.units)
    if clustering.kind != "table" or Table.read(clustering.points).is_sparse:
        return 0
    if _is_slow(clustering):
        return SLOW if d <= FEW else 0
    return SLOW if len(relevance.shown) < d else max(SLOW, WORK // (clustering.k * d))


def _is_slow(clustering: Clustering) -> bool:
    """Whether clusters have curved boundaries or several components."""
    return is_curved(clustering.net) or clustering.net.head.grouping is not None


def _changes(clustering: Clustering, relevance: Relevance, index: np.ndarray) -> list[Change | None]:
    """Find the smallest changes that move points to other clusters, within the range of the data.

    At most CHANGED of the shown columns change, or any number of columns where the search takes long.
    """
    changes: list[Change | None] = [None] * len(index)
    sample = some_of(np.arange(len(index)), searched(clustering, relevance))
    if not len(sample):
        return changes
    d = len(clustering.units)
    before = Table.read(clustering.columns(index[sample])).frame(clustering.units)
    inputs = clustering.inputs(index[sample])
    space = clustering.net.inputs.space(clustering.net.inputs.read(inputs))
    movable = {*space.owner[~space.is_fixed.cpu().numpy()].tolist()}
    numbers = {
        i: values for i, (_, values) in enumerate(before.items()) if i in movable and not is_category(values)
    }
    parts = getattr(clustering.net.inputs.encoding, "number_parts", {}).values()
    curved = {part.column for part in parts if part.functions}  # which no search can hold at whole numbers
    nearest = counterfactual(
        clustering.net,
        inputs,
        columns=None if _is_slow(clustering) else min(CHANGED, d),
        fixed=np.setdiff1d(np.arange(d), relevance.shown).tolist(),
        integer=[i for i, values in numbers.items() if values.dtype.kind in "iu" and i not in curved],
        bounds={i: (values.min(), values.max()) for i, values in numbers.items()},
    )
    after = Table.read(nearest.points).frame(list(before.columns))
    old = before.to_numpy()
    new = after.to_numpy()
    moved = (old != new) & (pd.notna(old) | pd.notna(new))
    texts = _shortest_texts(clustering, before, after, moved, nearest.target)
    targets = clustering.net.positions(nearest.target).numpy()
    targets = np.where(targets < clustering.k, targets, -1).tolist()
    for i in np.flatnonzero(nearest.found).tolist():
        values = [(relevance.shown_positions[column], text) for column, text in texts[i].items()]
        changes[sample[i]] = Change(targets[i], rounded([nearest.distance[i]])[0], values)
    return changes


def _shortest_texts(
    clustering: Clustering, before: pd.DataFrame, after: pd.DataFrame, moved: np.ndarray, target: np.ndarray
) -> list[dict[int, str]]:
    """Print changed values by column, with as few digits as still move the point to the target cluster."""
    texts: list[dict[int, str]] = [{} for _ in range(len(after))]
    unsettled = np.arange(len(after))
    for digits in DIGITS:
        if not len(unsettled):
            break
        rounded_points = after.iloc[unsettled].copy()
        for i, row in enumerate(unsettled.tolist()):
            for column in np.flatnonzero(moved[row]).tolist():
                value = after.iat[row, column]
                if isinstance(value, float) and np.isfinite(value):
                    value = rounded_points.iat[i, column] = _beyond(value, before.iat[row, column], digits)
                texts[row][column] = text(value, digits)
        given = rounded_points if clustering.names is None else rounded_points.to_numpy()
        unsettled = unsettled[np.asarray(clustering.net.predict(given)) != target[unsettled]]
    return texts


def _beyond(value: float, before: float, digits: int) -> float:
    """Round a changed value to significant digits, away from the old value, so that boundaries stay crossed."""
    rounding = ROUND_CEILING if value > before else ROUND_FLOOR
    return float(Context(prec=digits, rounding=rounding).create_decimal_from_float(value))
