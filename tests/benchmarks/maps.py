"""Clusterings behind UMAP: the vote of the nearest rows against a surrogate of the labels.

python -m tests.benchmarks.maps [--data DIR] [--json FILE]

On three quarters of the rows of each data set, a map of five columns is fitted, and k-means and HDBSCAN behind it
(that of the package hdbscan, which assigns new rows; without the package it is left out). The other quarter is
new: the pipeline itself (`UMAP.transform`, then the clusterer's prediction) tells its clusters, and also judges
pixel-flipping.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import scale
from torch import Tensor, nn

import neonxc
from neonxc.common.numbers import mean_error
from neonxc.common.progress import hide
from neonxc.evaluation import KDEImputer, pixel_flipping
from tests.benchmarks.timing import Report, progress

try:
    import hdbscan
except ImportError:
    hdbscan = None

os.environ.setdefault("NUMBA_NUM_THREADS", str(torch.get_num_threads()))  # UMAP sets PyTorch's number to numba's
ROWS = 900  # of a data set
SEEDS = (1, 2)
FLIPPED = 40
STEPS = 20


def tables(folder: str | None) -> Iterator[tuple[str, np.ndarray, int]]:
    """Yield data sets and a number of clusters of k-means."""
    yield "wine", scale(load_wine().data), 3
    yield "cancer", scale(load_breast_cancer().data), 4
    yield "digits", load_digits().data, 10
    if folder:
        yield "segment", scale(pd.read_csv(Path(folder) / "segment.csv.gz").iloc[:, :-1].to_numpy(float)), 7


class Pipeline(nn.Module):
    """A map and a clusterer as a network: the output of the predicted cluster is 1, and the last is noise."""

    def __init__(self, reducer: Any, clusterer: Any) -> None:
        super().__init__()
        self.reducer = reducer
        self.clusterer = clusterer

    def predict(self, X: np.ndarray) -> np.ndarray:
        coordinates = self.reducer.transform(X)
        if isinstance(self.clusterer, KMeans):
            return self.clusterer.predict(coordinates)
        return hdbscan.approximate_predict(self.clusterer, coordinates)[0]

    def forward(self, x: Tensor) -> Tensor:
        k = self.clusterer.labels_.max() + 1
        found = torch.as_tensor(self.predict(x.numpy())).long()
        return nn.functional.one_hot(torch.where(found < 0, k, found), k + 1).double()


def pipelines(folder: str | None) -> Iterator[tuple[dict[str, Any], Pipeline, np.ndarray, np.ndarray]]:
    """Yield a setting, the pipeline that was fitted, its rows, and new rows."""
    from umap import UMAP

    for seed in SEEDS:
        for name, X, k in tables(folder):
            X = X[np.random.default_rng(seed).permutation(len(X))[:ROWS]]
            new, X = np.split(X, [len(X) // 4])
            reducer = UMAP(n_neighbors=15, n_components=5, min_dist=0.0, random_state=seed, n_jobs=1).fit(X)
            clusterers = {"k-means": KMeans(k, n_init=5, random_state=0)}
            if hdbscan is not None:
                clusterers["HDBSCAN"] = hdbscan.HDBSCAN(min_cluster_size=15, prediction_data=True)
            for kind, clusterer in clusterers.items():
                clusterer.fit(reducer.embedding_)
                if clusterer.labels_.max() > 0:
                    yield {"data": name, "clusterer": kind, "seed": seed}, Pipeline(reducer, clusterer), X, new


def agreement(judge: Pipeline, nets: dict[str, Any], new: np.ndarray) -> dict[str, Any]:
    """Share of new rows that networks assign, and tell apart from noise, as the pipeline does; shares of noise."""
    truth = judge.predict(new)
    found = {}
    for name, net in nets.items():
        labels = net.predict(new)
        found[name] = float((labels == truth).mean())
        found[f"{name}, noise"] = float(((labels < 0) == (truth < 0)).mean())
    held_out = {name: getattr(nets["vote"], name) for name in ("fidelity_held_out_", "noise_held_out_")}
    noise = {"fit": judge.clusterer.labels_, "new": truth} | {name: net.predict(new) for name, net in nets.items()}
    shares = {f"noise, {name}": float((labels < 0).mean()) for name, labels in noise.items()}
    return found | shares | held_out


def areas(judge: Pipeline, nets: dict[str, Any], X: np.ndarray, new: np.ndarray, seed: int) -> dict[str, float]:
    """Areas under the flipping curves of new rows that the pipeline does not take for noise."""
    truth = judge.predict(new)
    rows = np.random.default_rng(10 + seed).permutation(np.flatnonzero(truth >= 0))[:FLIPPED]
    x = new[rows]
    target = truth[rows]
    imputer = KDEImputer(X)
    relevance = {name: neonxc.NEON(net).attribute(x, target=target) for name, net in nets.items()}
    relevance["random"] = np.random.default_rng(seed).random(x.shape)
    how = {"repeats": 3, "target": target.astype(np.int64), "steps": min(STEPS, x.shape[1]), "random_state": seed}
    return {name: pixel_flipping(judge, x, values, imputer, **how).auc for name, values in relevance.items()}


def differences(settings: pd.DataFrame) -> list[dict[str, Any]]:
    """Mean area of each method, and by how much that of the vote is greater in the same setting."""
    rows = []
    for name in ("vote", "surrogate", "random"):
        ahead = (settings["vote"] - settings[name]).to_numpy()
        mean, error = mean_error(ahead)
        row = {"method": name, "AUC": float(settings[name].mean()), "vote ahead by": mean, "standard error": error}
        rows.append(row | {"settings": len(ahead), "vote ahead in": int((ahead > 0).sum())})
    return rows


def means(table: pd.DataFrame, by: list[str]) -> list[dict[str, Any]]:
    """Mean over the settings of each group."""
    return (
        table.drop(columns="seed").groupby(by, sort=False).mean(numeric_only=True).reset_index().to_dict("records")
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data")
    parser.add_argument("--json")
    options = parser.parse_args()
    hide()
    warnings.simplefilter("ignore")  # of networks that differ from the labels, which is what is shown here
    assigned = []
    flipped = []
    report = Report("Clusterings behind UMAP")
    for setting, judge, X, new in pipelines(options.data):
        progress(str(setting))
        labels = judge.clusterer.labels_
        pipeline = make_pipeline(judge.reducer, judge.clusterer)
        nets = {"vote": neonxc.neuralize(pipeline, X), "surrogate": neonxc.neuralize(labels=labels, X=X)}
        assigned.append(setting | agreement(judge, nets, new))
        flipped.append(setting | areas(judge, nets, X, new, setting["seed"]))
    by = ["data", "clusterer"]
    report.table("New rows: share assigned as by the pipeline", means(pd.DataFrame(assigned), by))
    report.table("The same, over all data sets", means(pd.DataFrame(assigned), ["clusterer"]))
    report.table("AUC of pixel-flipping that the pipeline judges", means(pd.DataFrame(flipped), by))
    report.table("The same, over all settings", differences(pd.DataFrame(flipped)))
    report.close(options.json)


if __name__ == "__main__":
    main()
