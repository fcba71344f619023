"""HDBSCAN as a network: labels of fitted and of new rows, pixel-flipping and time, for `density`.

A row is new if it is in the other half of a data set. Two judges say which cluster it belongs to. One fits again
with this row added, where clusters go by the rows that they share. The other is `approximate_predict` of the
package hdbscan. It counts one neighbour too many, because a row of the fit is among its own neighbours, and a new
one is not.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.base import clone
from sklearn.cluster import HDBSCAN
from sklearn.datasets import load_breast_cancer, load_digits, load_wine, make_blobs
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import scale

import neonxc
from neonxc.evaluation import KDEImputer, methods, pixel_flipping
from tests.benchmarks.timing import Report, Table, progress

try:
    import hdbscan
except ImportError:
    hdbscan = None

POINTS = 60  # whose relevance is judged, and that are fitted again
MOST = 3000
NOISE = 10  # every tenth row of the blobs that are timed
ZERO = 1e-12
BESIDE = 1e-6  # standard deviations between a row and what is nearly a copy of it
KEPT = 0.95  # least share of the rows that keep their label if a row is added, for this fit to be a judge
LARGE = {"20,000 x 20": (20_000, 20), "100,000 x 5": (100_000, 5)}
SIZES = [{"min_cluster_size": 8, "min_samples": 4}, {"min_cluster_size": 6, "min_samples": 3}]
SIZES.append({"min_cluster_size": 5, "min_samples": 2})
BROAD = {"min_cluster_size": 50, "min_samples": 5}
Method = Callable[[Any, torch.Tensor, torch.Tensor], Any]


def theirs(**options: Any) -> Any:
    """An HDBSCAN of the package hdbscan."""
    return hdbscan.HDBSCAN(prediction_data=True, core_dist_n_jobs=1, **options)


MAKERS = {"scikit-learn": lambda **options: HDBSCAN(copy=True, **options)} | (
    {"hdbscan": theirs} if hdbscan else {}
)


def data(folder: str | None) -> Iterator[tuple[str, np.ndarray]]:
    """Yield data sets in random order, of at most 3,000 rows."""
    blobs, _ = make_blobs(1000, 5, centers=6, cluster_std=1.2, random_state=0)
    noise = np.random.default_rng(0).uniform(blobs.min(), blobs.max(), (250, 5))
    sets = {"wine": scale(load_wine().data), "cancer": scale(load_breast_cancer().data)}
    sets |= {"digits": load_digits().data, "blobs and noise": np.concatenate([blobs, noise])}
    for name in ("segment", "letter") if folder else ():
        sets[name] = scale(pd.read_csv(Path(str(folder)) / f"{name}.csv.gz").iloc[:, :-1].to_numpy(float))
    for name, X in sets.items():
        yield name, X[np.random.default_rng(0).permutation(len(X))[:MOST]]


def settings(X: np.ndarray) -> Iterator[dict[str, Any]]:
    yield from ({"min_cluster_size": 6, "min_samples": count} for count in (1, 2, 3, 5, 10))
    yield {"min_cluster_size": 8}
    few = {"min_cluster_size": 6, "min_samples": 3}
    near = NearestNeighbors(n_neighbors=5).fit(X).kneighbors(X)[0][:, -1]
    yield few | {"cluster_selection_method": "leaf"}
    yield few | {"cluster_selection_method": "leaf", "cluster_selection_epsilon": float(np.median(near))}
    yield few | {"allow_single_cluster": True}


def fitted(model: Any, X: np.ndarray) -> Any:
    """The fitted model, or None: scikit-learn's fails with some values of cluster_selection_epsilon."""
    try:
        return model.fit(X)
    except TypeError:
        return None


def network(model: Any, X: np.ndarray) -> Any:
    """The network of a clusterer of some clusters and noise, or None."""
    if model.labels_.max() < 0 or not model.labels_.any():
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the surrogate that it may be
        return neonxc.neuralize(model, X)


def several(X: np.ndarray, make: Callable[..., Any] = MAKERS["scikit-learn"]) -> Any:
    """A clustering of several clusters and some noise, the coarsest of three."""
    models = (make(**sizes).fit(X) for sizes in SIZES)
    return next(one for one in models if one.labels_.max() > 0 > one.labels_.min())


def labels(folder: str | None) -> Table:
    """Shares of the rows of the fit that get their label, and the greatest share whose logits are zero."""
    rows = []
    for name, X in [*data(folder), ("cancer, above the medians", ties())]:
        X = X[::2]
        row: dict[str, Any] = {"data": name, "rows": len(X), "columns": X.shape[1]}
        zero = []
        for package, make in MAKERS.items():
            models = [model for options in settings(X) if (model := fitted(make(**options), X)) is not None]
            nets = [(net, model) for model in models if (net := network(model, X)) is not None]
            exact = [(net, model) for net, model in nets if net.fidelity_ is None]
            equal = [float((net.predict(X) == model.labels_).mean()) for net, model in exact]
            zero += [float((net(torch.tensor(X)).amax(1) < ZERO).double().mean()) for net, _ in exact]
            row[f"{package}: exact networks"] = f"{len(exact)} of {len(nets)}"
            row[f"{package}: mean"] = float(np.mean(equal)) if equal else ""
            row[f"{package}: least"] = min(equal, default="")
        rows.append(row | {"logits of zero": max(zero, default="")})
    return rows


def ties() -> np.ndarray:
    """A table of truth values, many of whose distances are equal."""
    X = load_breast_cancer().data
    return (np.median(X, axis=0) < X).astype(float)


def again(model: Any, X: np.ndarray, row: np.ndarray) -> tuple[int, float]:
    """The label that a row gets if it is added to the fit, and the share of the other rows that keep theirs.

    Clusters go by the rows that they share.
    """
    found = clone(model).fit(np.concatenate([X, row[None]])).labels_
    names = np.array(
        [np.bincount(model.labels_[found[:-1] == k] + 1).argmax() - 1 for k in range(found.max() + 1)]
    )
    names = np.append(names, -1)[found]
    return int(names[-1]), equal(names[:-1], model.labels_)


def new_rows(folder: str | None) -> Table:
    """Shares of noise, and of new rows that get the same label by two rules."""
    rows = []
    for name, X in data(folder):
        progress(name)
        X, new = X[::2], X[1::2]
        model = several(X, [*MAKERS.values()][-1])
        net = neonxc.neuralize(model, X)
        some = np.random.default_rng(0).permutation(len(new))[:POINTS]
        ours = net.predict(new)
        refitted, kept = np.array([again(model, X, row) for row in new[some]]).T
        judged = kept >= KEPT  # otherwise the row changes the clusters
        refitted = refitted[judged]
        sample = ours[some][judged]
        row = {"data": name, "noise, fitted rows": share(model.labels_), "network": share(net.predict(X))}
        row |= {"noise, new rows: network": share(ours), "judged": int(judged.sum()), "network ": share(sample)}
        row |= {"fitted again": share(refitted), "network = fitted again": equal(sample, refitted)}
        if hdbscan is not None:
            theirs, _ = hdbscan.approximate_predict(model, new)
            row |= {"approximate_predict": share(theirs), "network = approximate_predict": equal(ours, theirs)}
            row["approximate_predict = fitted again"] = equal(theirs[some][judged], refitted)
        rows.append(row)
    return rows


def share(labels: np.ndarray) -> float:
    return float((labels < 0).mean())


def equal(first: np.ndarray, second: np.ndarray) -> float:
    return float((first == second).mean())


def areas(net: Any, known: np.ndarray, X: np.ndarray, contestants: dict[str, Method]) -> dict[str, np.ndarray]:
    """Areas under the flipping curves of noise and of clustered points; columns are drawn as in `known`.

    Left out is noise of the fit whose copies are clustered, as the row itself is one more neighbour of a copy.
    """
    X = X[net.predict(X + BESIDE * X.std(0)) == net.predict(X)]
    noise = net.predict(X) < 0
    imputer = KDEImputer(known)
    found = {name: np.zeros(2) for name in contestants}
    for at, which in enumerate((noise, ~noise)):
        x = torch.tensor(X[which][:: max(1, which.sum() // POINTS)][:POINTS])
        own = net.assign(x)
        for name, method in contestants.items():
            relevance = torch.as_tensor(method(net, x, own)).detach()
            found[name][at] = pixel_flipping(net, x, relevance, imputer, repeats=3).auc
    return found


def gradients(X: np.ndarray) -> dict[str, Method]:
    integrated = methods.integrated_gradients(10, torch.tensor(X.mean(0)))
    return {"IG-10, from the mean": integrated, "gradient × input": methods.gradient_x_input}


def surrogate(labels: np.ndarray, X: np.ndarray) -> dict[str, Method]:
    """NEON by the network that the labels alone get."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a surrogate that differs from the labels is what is shown here
        net = neonxc.neuralize(labels=labels, X=X)
    return {"surrogate": lambda _, x, own: neonxc.NEON(net).attribute(x)}


def text(pair: np.ndarray) -> str:
    return f"{pair[0]:.1f} ({pair[1]:.1f})"


def flipping(folder: str | None) -> Table:
    """Areas under the flipping curves of noise (of clustered points), by data set and in the mean."""
    rows = []
    every = {"fitted": [], "new": []}
    for name, X in data(folder):
        progress(name)
        X, new = X[::2], X[1::2]
        model = several(X)
        contestants = {"NEON": methods.neon} | gradients(X) | {"random": methods.random()}
        contestants |= surrogate(model.labels_, X)
        for kind, (points, known) in {"fitted": (X, new), "new": (new, X)}.items():  # known ones are others
            found = areas(neonxc.neuralize(model, X), known, points, contestants)
            every[kind].append(found)
            rows.append({"data": name, "rows": kind} | {method: text(pair) for method, pair in found.items()})
    for kind, sets in every.items():
        means = {method: text(np.mean([one[method] for one in sets], axis=0)) for method in sets[0]}
        rows.append({"data": "mean", "rows": kind} | means)
    return rows


def seconds() -> Table:
    """Seconds of processor time of the fit, the network and what it is asked, for blobs and noise."""
    rows = []
    for name, (n, d) in LARGE.items():
        if n > 50_000 and hdbscan is None:  # scikit-learn needs minutes
            continue
        X, _ = make_blobs(n, d, centers=10, cluster_std=1.5, random_state=0)
        X[::NOISE] = np.random.default_rng(0).uniform(X.min(), X.max(), X[::NOISE].shape)
        rows.append({"rows x columns": name} | timed([*MAKERS.values()][-1](**BROAD), X))
    return rows


def timed(model: Any, X: np.ndarray) -> dict[str, Any]:
    nets = list[Any]()
    some = X[:1000]
    row = {}
    for what, run in {
        "fit, s": lambda: model.fit(X),
        "neuralize, s": lambda: nets.append(neonxc.neuralize(model, X)),
        "predict 1,000 rows, s": lambda: nets[0].predict(some),
        "attribute 1,000 rows, s": lambda: neonxc.NEON(nets[0]).attribute(some),
    }.items():
        start = time.process_time()
        run()
        row[what] = time.process_time() - start
    return row | {"clusters": len(nets[0].classes_) - 1, "noise": share(model.labels_)}


def report(document: Report, folder: str | None) -> None:
    """Add the tables."""
    progress("HDBSCAN")
    document.table("HDBSCAN, labels of the rows of the fit", labels(folder))
    document.table("HDBSCAN, new rows", new_rows(folder))
    document.table("HDBSCAN, AUC of noise (of clustered points)", flipping(folder))
    document.table("HDBSCAN, time", seconds())
