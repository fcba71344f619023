"""Density clusterings: how the squared radius is shared among columns, and the time of explanations.

python -m tests.benchmarks.density [--data DIR] [--json FILE]

Noise of new points: surrogates of the labels of one half of the points, on the other half, for which DBSCAN or the
way in which points were drawn tell what is noise.

Pixel-flipping of noise ("why is this noise?") and of clustered points, with the network of DBSCAN. "equal" is what
networks do. "variance" and "neighbours" share the squared radius in proportion to the variances of the core
points, and to the mean squared differences of neighbours. The surrogate is the one that other labels get.

Planted columns: a row inside a cluster is moved along one column until it is noise. Of "why is this noise?",
recall is the fraction of rows whose greatest relevance is that of this column, by the number of members that
divide the squared reachability. The number was chosen on half of the data sets, and the others are held out.

The tables of HDBSCAN are made in the module of that name.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import torch
from sklearn.cluster import DBSCAN, HDBSCAN
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine, make_blobs, make_moons
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import scale

import neonxc
from neonxc.clusterings.supports import Supports
from neonxc.common.progress import hide
from neonxc.evaluation import methods
from neonxc.head import nearest
from tests.benchmarks import hdbscan
from tests.benchmarks.timing import Report

MEMBERS = 5  # min_samples of DBSCAN
SHARE = (0.03, 0.4)  # of noise
PLANTS = 60  # rows of each data set that are moved along a column
STEPS = np.arange(0.5, 20, 0.25)  # standard deviations by which they are moved, the first at which they are noise
SHARING = (1, 2, 4, 8, 16)  # numbers of members that divide the squared reachability
CHOSEN_ON = ("iris", "wine", "segment", "pendigits", "moons", "blobs of 3 columns")


def clusterings(folder: str | None) -> Iterator[tuple[str, np.ndarray, DBSCAN]]:
    """Yield data sets with the largest radius at which DBSCAN finds several clusters and some noise."""
    sets = {"iris": load_iris().data, "wine": scale(load_wine().data), "cancer": scale(load_breast_cancer().data)}
    sets["digits"] = load_digits().data
    for name in ("ecoli", "segment") if folder else ():
        table = pd.read_csv(Path(str(folder)) / f"{name}.csv.gz").iloc[:, :-1].to_numpy(float)
        sets[name] = table if name == "ecoli" else scale(table)
    for name, X in sets.items():
        yield name, X, coarsest(X)


def coarsest(X: np.ndarray) -> DBSCAN:
    """DBSCAN with the largest radius at which it finds several clusters and some noise."""
    radii = NearestNeighbors(n_neighbors=MEMBERS + 1).fit(X).kneighbors(X)[0][:, MEMBERS]
    models = [DBSCAN(np.quantile(radii, q), min_samples=MEMBERS).fit(X) for q in np.linspace(0.3, 0.95, 14)]
    return [one for one in models if one.labels_.max() > 0 and SHARE[0] < (one.labels_ < 0).mean() < SHARE[1]][-1]


def weights(X: np.ndarray, model: DBSCAN) -> dict[str, np.ndarray]:
    """Candidates for the columns' shares of the squared radius."""
    core = model.components_
    graph = NearestNeighbors(radius=model.eps).fit(core).radius_neighbors_graph(core).tocoo()
    neighbours = ((core[graph.row] - core[graph.col]) ** 2).mean(0)
    return {"equal": np.ones(X.shape[1]), "variance": core.var(0), "neighbours": neighbours}


def measured(X: np.ndarray, model: DBSCAN) -> dict[str, Any]:
    """Areas under the flipping curves of noise and, in brackets, of clustered points."""
    net = neonxc.neuralize(model, X)
    found = {}
    detection = net.head.detection
    shares = net.head.detection.shares.clone()
    for name, weight in weights(X, model).items():
        detection.shares.copy_(shares.sum() * torch.tensor(weight / weight.sum()))
        found |= hdbscan.areas(net, X, X, {name: methods.neon})
    detection.shares.copy_(shares)
    found |= hdbscan.areas(net, X, X, hdbscan.gradients(X) | hdbscan.surrogate(model.labels_, X))
    same = {"noise": hdbscan.share(model.labels_), "labels equal": hdbscan.equal(net.predict(X), model.labels_)}
    return {name: hdbscan.text(pair) for name, pair in found.items()} | same


def drawn() -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yield points of clusters amid noise that is drawn uniformly, in any order, and their labels."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        for name, (points, labels) in {
            "moons": make_moons(1200, noise=0.07, random_state=seed),
            "blobs of 2 columns": make_blobs(
                1200, 2, centers=6, cluster_std=rng.uniform(0.4, 1.2, 6), random_state=3
            ),
            "blobs of 8 columns": make_blobs(1200, 8, centers=6, cluster_std=1.5, random_state=seed),
        }.items():
            noise = rng.uniform(points.min(0) - 0.5, points.max(0) + 0.5, (300, points.shape[1]))
            order = rng.permutation(1500)
            yield name, np.concatenate([points, noise])[order], np.append(labels, np.full(300, -1))[order]


def halves(folder: str | None) -> Iterator[tuple[str, np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Yield points of two halves of a data set, with labels of the first and true labels of the second."""
    for name, X, y in drawn():
        yield name, X[::2], y[::2], X[1::2], y[1::2]
    for name, X, model in clusterings(folder):
        X = X[np.random.default_rng(0).permutation(len(X))]
        half = DBSCAN(model.eps, min_samples=MEMBERS).fit(X[::2])
        if half.labels_.max() > 0:
            near, core = NearestNeighbors(n_neighbors=1).fit(half.components_).kneighbors(X[1::2])
            told = half.labels_[half.core_sample_indices_][core[:, 0]]
            yield name, X[::2], half.labels_, X[1::2], np.where(near[:, 0] <= half.eps, told, -1)


def new_points(folder: str | None) -> list[dict[str, Any]]:
    """Agreement about noise, with radii that suit points of the fit (which support themselves) and new points."""
    rows = []
    left_out = Supports.left_out
    for name, X, labels, new, truth in halves(folder):
        row: dict[str, Any] = {"data": name}
        for radii, distances in {"of the fit": lambda one, x, *_: one.distances(x), "left out": left_out}.items():
            setattr(Supports, "left_out", distances)  # noqa: B010  # restored by the last one
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                net = neonxc.neuralize(labels=labels, X=X)
            row[f"{radii}: points of the fit"] = float(((net.predict(X) < 0) == (labels < 0)).mean())
            row[f"{radii}: new points"] = float(((net.predict(new) < 0) == (truth < 0)).mean())
        rows.append(row | {"noise_held_out_": net.noise_held_out_})
    table = pd.DataFrame(rows).groupby("data", sort=False).mean()
    return [*table.reset_index().to_dict("records"), {"data": "mean", **table.mean()}]


def tables(folder: str | None) -> Iterator[tuple[str, np.ndarray]]:
    """Yield data sets in which columns are planted."""
    yield from ((name, X) for name, X, _ in clusterings(folder))
    yield "moons", make_moons(1000, noise=0.07, random_state=0)[0]
    for columns in (2, 3, 5):
        yield f"blobs of {columns} columns", make_blobs(1000, columns, centers=5, random_state=columns)[0]
    for name in ("pendigits", "letter", "yeast") if folder else ():
        table = pd.read_csv(Path(str(folder)) / f"{name}.csv.gz").iloc[:, :-1].to_numpy(float)
        yield name, scale(np.random.default_rng(0).permutation(table)[:2000])


def plants(net: Any, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows that one column made noise, and this column of each; before, they were farther from noise than most."""
    rng = np.random.default_rng(0)
    spread = X.std(0)
    from_noise = net.head.values(torch.tensor(X))[:, -1].numpy()
    is_inside = from_noise >= np.median(from_noise[net.predict(X) >= 0])
    moved = []
    columns = []
    for row in rng.permutation(X[is_inside])[:PLANTS]:
        column = rng.choice(np.flatnonzero(spread))
        candidates = np.repeat(row[None], len(STEPS), axis=0)
        candidates[:, column] += rng.choice([-1, 1]) * STEPS * spread[column]
        is_noise = net.predict(candidates) < 0
        if is_noise.any():
            moved.append(candidates[is_noise.argmax()])
            columns.append(column)
    return np.array(moved), np.array(columns)


def planted(folder: str | None, make: Callable[[np.ndarray], Any]) -> list[dict[str, Any]]:
    """Recall of the planted column by the number of members that share, and means of both halves."""
    rows = []
    for name, X in tables(folder):
        model = make(X)
        net = neonxc.neuralize(model, X)
        points, columns = plants(net, X)
        row = {"data": name, "rows": len(points), "columns": X.shape[1]}
        for number in SHARING:
            with mock.patch.object(nearest, "SHARING", number):
                found = neonxc.NEON(net).attribute(points, target=-1).argmax(axis=1)
            row[f"{number} members"] = float((found == columns).mean())
        rows.append(row)
    table = pd.DataFrame(rows)
    chosen = table["data"].isin(CHOSEN_ON)
    numeric = table.columns.drop("data")
    for half, which in (("mean, chosen on", chosen), ("mean, held out", ~chosen)):
        rows.append(
            {"data": half, **table.loc[which, numeric].mean(), "rows": int(table.loc[which, "rows"].sum())}
        )
    return rows


def of_one_sample(X: np.ndarray) -> HDBSCAN:
    """HDBSCAN whose core distances are zero, so that the reachability is the distance."""
    return HDBSCAN(min_cluster_size=10, min_samples=1, copy=True).fit(X)


def seconds() -> dict[str, float]:
    """Time of 20,000 points of six columns, of which 14,000 are core points of ten clusters."""
    X, _ = make_blobs(20_000, 6, centers=10, random_state=0)
    radius = np.quantile(NearestNeighbors(n_neighbors=10).fit(X).kneighbors(X)[0][:, 9], 0.7)
    model = DBSCAN(radius, min_samples=10).fit(X)
    net = neonxc.neuralize(model)
    found = {"core points": len(model.components_)}
    for name, run in {
        "attribution of all points": lambda: neonxc.NEON(net).attribute(X),
        "20 counterfactuals": lambda: neonxc.counterfactual(net, X[:20]),
        "report, fast=True": lambda: neonxc.explain(model, X, fast=True),
    }.items():
        start = time.perf_counter()
        run()
        found[f"{name}, s"] = time.perf_counter() - start
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data")
    parser.add_argument("--json")
    options = parser.parse_args()
    hide()
    report = Report("Density clusterings")
    report.table(
        "AUC of noise (of clustered points)",
        [{"data": name} | measured(X, model) for name, X, model in clusterings(options.data)],
    )
    report.table("Planted columns, DBSCAN", planted(options.data, coarsest))
    report.table("Planted columns, HDBSCAN", planted(options.data, of_one_sample))
    report.table("Noise of new points: share told apart as it is", new_points(options.data))
    report.table("Time", [seconds()])
    hdbscan.report(report, options.data)
    report.close(options.json)


if __name__ == "__main__":
    main()
