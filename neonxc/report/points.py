"""The map of a report, and the values, relevance and counterfactual of each of its points."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from typing import Any, Literal

import numpy as np
import pandas as pd
from sklearn.decomposition import PCA, TruncatedSVD

from neonxc.attribution.contrasts import some_of
from neonxc.common.colours import NOISE
from neonxc.common.numbers import percent, rounded, text
from neonxc.counterfactuals import counterfactual
from neonxc.counterfactuals.find import is_curved
from neonxc.data.table import Table
from neonxc.report.clustering import Clustering, stratified
from neonxc.report.contents import Card, Change, Item, PointMap
from neonxc.report.relevance import Relevance
from neonxc.report.statements import is_category, printed

Projection = Literal["pca", "tsne", "umap"]
MOST = 5000  # maximum number of points on the map
VALUES = 40_000  # approximate number of values of all points together
LEAST = 15  # minimum number of points of a cluster, if it has that many
CHANGED = 3  # maximum number of columns that a counterfactual changes
DIGITS = (4, 6, 9, 17)  # numbers of significant digits tried for changed values
SLOW, FEW = 100, 12  # maximum number of points and of columns if counterfactuals take long
WORK = 600_000  # maximum product of points, clusters and columns for counterfactuals of more points


def points(
    clustering: Clustering,
    relevance: Relevance,
    table: pd.DataFrame,
    names: list[str] | None,
    cards: list[Card],
    others: list[Item],
    leaf: np.ndarray | None,
    projection: Projection,
) -> PointMap:
    """Take a stratified sample of the points, which includes `others` and those on the cards."""
    own = clustering.own[relevance.index]
    most = max(500, min(MOST, VALUES // (len(relevance.shown) + 6)))
    shown = {item.row for card in cards for item in [*card.prototypes, *card.borderline]}
    shown |= {item.row for item in others}
    needed = np.flatnonzero(np.isin(relevance.index, list(shown)))
    places = np.union1d(stratified(own, most - min(most // 2, len(needed)), LEAST), needed)
    index = relevance.index[places]
    space = clustering.space(index)
    flat, axes = _projected(space, projection)
    x, y = (_scaled(flat[:, i]) for i in (0, 1))
    share = relevance.values[places] / np.maximum(np.abs(relevance.logit[places]), 1e-300)[:, None]
    return PointMap(
        index.tolist(),
        None if names is None else [names[row] for row in index.tolist()],
        x.tolist(),
        (1000 - y).tolist(),
        own[places].tolist(),
        relevance.rival[places].tolist(),
        [-1] * len(index) if leaf is None else leaf[index].tolist(),
        rounded(relevance.logit[places]),
        [printed(table.iloc[places, i]) for i in range(table.shape[1])],
        [rounded(column, 2) for column in share.T],
        _changes(clustering, relevance, index),
        axes,
        _picture(x, 1000 - y, own[places], cards),
    )


def _projected(space: Any, projection: Projection) -> tuple[np.ndarray, str]:
    """Project points into the plane; return them with the name of the projection."""
    if projection == "tsne":
        from sklearn.manifold import TSNE  # takes long

        perplexity = min(30.0, max(1.0, (space.shape[0] - 1) / 3))
        return TSNE(perplexity=perplexity, init="pca", random_state=0).fit_transform(_dense(space)), "t-SNE"
    if projection == "umap":
        try:
            from umap import UMAP
        except ImportError:
            raise ImportError('projection="umap" needs umap-learn: pip install "neonxc[umap]"') from None
        return UMAP(random_state=0).fit_transform(space), "UMAP"
    if space.shape[1] < 2:
        return np.column_stack([_dense(space)[:, 0], np.zeros(space.shape[0])]), "the values of the only column"
    model = TruncatedSVD(2, random_state=0) if Table.read(space).is_sparse else PCA(2, random_state=0)
    flat = model.fit_transform(space) * _signs(model.components_)
    first, second = np.nan_to_num(model.explained_variance_ratio_)
    return flat, f"{type(model).__name__}: {percent(first)} and {percent(second)} of the variance"


def _signs(components: np.ndarray) -> np.ndarray:
    """Signs that make the first of the largest loadings of every component positive.

    The two columns of a binary category have opposite loadings, equal up to rounding, which differs by processor.
    """
    sizes = np.abs(components)
    largest = np.isclose(sizes, sizes.max(axis=1, keepdims=True), rtol=1e-6, atol=0).argmax(axis=1)
    return np.where(np.take_along_axis(components, largest[:, None], axis=1)[:, 0] < 0, -1, 1)


def _dense(space: Any) -> np.ndarray:
    return Table.read(space).dense()


def _scaled(values: np.ndarray) -> np.ndarray:
    """Scale values to integers from 0 to 1000."""
    low, high = values.min(), values.max()
    return np.round(1000 * (values - low) / (high - low if high > low else 1)).astype(int)


def _picture(x: np.ndarray, y: np.ndarray, own: np.ndarray, cards: list[Card]) -> str:
    """Draw the map as SVG, with one path of dots per cluster."""
    paths = []
    for cluster in np.unique(own).tolist():
        color = cards[cluster].color if cluster >= 0 else NOISE
        dots = "".join(
            f"M{a} {b}h0" for a, b in zip(x[own == cluster].tolist(), y[own == cluster].tolist(), strict=True)
        )
        paths.append(f'<path stroke="{color}" d="{dots}"/>')
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
    places = some_of(np.arange(len(index)), searched(clustering, relevance))
    if not len(places):
        return changes
    d = len(clustering.units)
    x = Table.read(clustering.columns(index[places])).frame(clustering.units)
    numbers = [name for name in x.columns if not is_category(x[name])]
    ends = [(float(x[name].min()), float(x[name].max())) for name in numbers]
    found = counterfactual(
        clustering.net,
        clustering.inputs(index[places]),
        columns=None if _is_slow(clustering) else min(CHANGED, d),
        fixed=np.setdiff1d(np.arange(d), relevance.shown).tolist(),
        integer=_keys(clustering, [name for name in numbers if x[name].dtype.kind in "iu"]),
        bounds=dict(zip(_keys(clustering, numbers), ends, strict=True)),
    )
    after = Table.read(found.points).frame(list(x.columns))
    moved = ~((after.to_numpy() == x.to_numpy()) | (after.isna().to_numpy() & x.isna().to_numpy()))
    short = _shortest_texts(clustering, x, after, moved, np.asarray(found.target))
    place = {int(unit): i for i, unit in enumerate(relevance.shown)}
    position = {label: i for i, label in enumerate(clustering.net.classes_.tolist())}
    for i in np.flatnonzero(found.found).tolist():
        values = [(place[unit], short[i][unit]) for unit in np.flatnonzero(moved[i]).tolist()]
        changes[places[i]] = Change(position[found.target[i]], rounded([found.distance[i]])[0], values)
    return changes


def _shortest_texts(
    clustering: Clustering, before: pd.DataFrame, after: pd.DataFrame, moved: np.ndarray, target: np.ndarray
) -> list[dict[int, str]]:
    """Print changed values by column, with as few digits as still move the point to the target cluster."""
    found: list[dict[int, str]] = [{} for _ in range(len(after))]
    unsettled = np.arange(len(after))
    for digits in DIGITS:
        tried = after.iloc[unsettled].copy()
        written: list[dict[int, str]] = []
        for place, row in enumerate(unsettled.tolist()):
            written.append({})
            for unit in np.flatnonzero(moved[row]).tolist():
                value = after.iat[row, unit]
                if isinstance(value, float) and np.isfinite(value):
                    value = _beyond(value, before.iat[row, unit], digits)
                    tried.iat[place, unit] = value
                written[-1][unit] = text(value, digits)
        given = tried if clustering.names is None else tried.to_numpy()
        there = np.asarray(clustering.net.predict(given)) == target[unsettled]
        for place, row in enumerate(unsettled.tolist()):
            if there[place] or digits == DIGITS[-1]:
                found[row] = written[place]
        unsettled = unsettled[~there]
        if not len(unsettled):
            break
    return found


def _beyond(value: float, before: float, digits: int) -> float:
    """Round a changed value to significant digits, away from the old value, so that boundaries stay crossed."""
    rounding = ROUND_CEILING if value > before else ROUND_FLOOR
    return float(Context(prec=digits, rounding=rounding).create_decimal_from_float(value))


def _keys(clustering: Clustering, names: list[str]) -> list[Any]:
    """Return columns by name, or by position if the network has no column names."""
    return names if clustering.names is None else [clustering.units.index(name) for name in names]
