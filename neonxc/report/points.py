"""The map of a report, and what is known of each of its points."""

from __future__ import annotations

from io import BytesIO
from typing import Any, Literal

import numpy as np
import pandas as pd
from sklearn.decomposition import PCA, TruncatedSVD

from neonxc.counterfactuals import counterfactual
from neonxc.report.contents import Card, Change, Points
from neonxc.report.numbers import rounded, text
from neonxc.report.relevance import Relevance
from neonxc.report.statements import printed
from neonxc.report.subject import Subject, stratified

Projection = Literal["pca", "tsne", "umap"]
MOST = 5000  # points of the map
VALUES = 40_000  # that all of its points have together
CHANGED = 3  # columns of a least change


def points(
    subject: Subject,
    relevance: Relevance,
    table: pd.DataFrame,
    names: list[str] | None,
    cards: list[Card],
    leaf: np.ndarray | None,
    projection: Projection,
) -> Points:
    """A sample of the points, of every cluster its share, with the prototypes and the borderline cases."""
    own = subject.own[relevance.index]
    most = max(500, min(MOST, VALUES // (len(relevance.shown) + 6)))
    shown = {item.row for card in cards for item in [*card.prototypes, *card.borderline]}
    needed = np.flatnonzero(np.isin(relevance.index, list(shown)))
    places = np.union1d(stratified(own, most - min(most // 2, len(needed))), needed)
    index = relevance.index[places]
    space = subject.space(index)
    flat, axes = _projected(space, projection)
    x, y = (_scaled(flat[:, i]) for i in (0, 1))
    share = relevance.values[places] / np.maximum(np.abs(relevance.logit[places]), 1e-300)[:, None]
    return Points(
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
        _changes(subject, relevance, index),
        axes,
        _picture(x, y, own[places], cards),
    )


def _projected(space: Any, projection: Projection) -> tuple[np.ndarray, str]:
    """Points in the plane, and how they got there."""
    if projection == "tsne":
        from sklearn.manifold import TSNE

        perplexity = min(30.0, max(1.0, (space.shape[0] - 1) / 3))
        return TSNE(perplexity=perplexity, init="pca", random_state=0).fit_transform(_dense(space)), "t-SNE"
    if projection == "umap":
        try:
            from umap import UMAP
        except ImportError:
            raise ImportError('projection="umap" needs umap-learn: pip install umap-learn') from None
        return UMAP(random_state=0).fit_transform(space), "UMAP"
    if space.shape[1] < 2:
        return np.column_stack([_dense(space)[:, 0], np.zeros(space.shape[0])]), "the only column"
    model = TruncatedSVD(2, random_state=0) if hasattr(space, "tocsr") else PCA(2, random_state=0)
    flat = model.fit_transform(space)
    first, second = np.nan_to_num(model.explained_variance_ratio_)
    return flat, f"{type(model).__name__}: {first:.0%} and {second:.0%} of the variance"


def _dense(space: Any) -> np.ndarray:
    return space.toarray() if hasattr(space, "tocsr") else space


def _scaled(values: np.ndarray) -> np.ndarray:
    """Numbers from 0 to 1000."""
    low, high = values.min(), values.max()
    return np.round(1000 * (values - low) / (high - low if high > low else 1)).astype(int)


def _picture(x: np.ndarray, y: np.ndarray, own: np.ndarray, cards: list[Card]) -> str:
    """The map as a small picture."""
    from matplotlib.figure import Figure
    from PIL import Image

    from neonxc.report.items import data_uri

    figure = Figure(figsize=(6, 4), dpi=100)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.axis("off")
    colors = np.array([*(card.color for card in cards), "#888888"])
    axes.scatter(x, y, s=6, c=colors[own], linewidths=0)
    buffer = BytesIO()
    figure.savefig(buffer, format="png")
    return data_uri(Image.open(buffer).convert("RGB"), quality=60)


def _changes(subject: Subject, relevance: Relevance, index: np.ndarray) -> list[Change | None]:
    """The least change of a few columns that moves each point to its nearest other cluster."""
    none: list[Change | None] = [None] * len(index)
    if subject.kind != "table" or subject.net.encoding is not None:
        return none
    x = subject.inputs(index)
    found = counterfactual(subject.net, x, columns=min(CHANGED, len(subject.units)), integer=_whole(x))
    place = {int(unit): i for i, unit in enumerate(relevance.shown)}
    before, after = (np.asarray(values) for values in (x, found.points))
    position = {label: i for i, label in enumerate(subject.net.classes_.tolist())}
    for i in np.flatnonzero(found.found):
        moved = [unit for unit in np.flatnonzero(before[i] != after[i]).tolist() if unit in place]
        values = [(place[unit], text(after[i][unit])) for unit in moved]
        none[i] = Change(position[found.target[i]], rounded([found.distance[i]])[0], values)
    return none


def _whole(x: Any) -> list[Any]:
    """Columns of whole numbers."""
    return [name for name, dtype in x.dtypes.items() if dtype.kind in "iu"] if hasattr(x, "dtypes") else []
