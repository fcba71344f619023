"""Kernel k-means as a network: time by number of supports, agreement, and surrogates.

python -m tests.benchmarks.kernel [--rounds 5] [--json FILE]
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

import numpy as np
import torch
from sklearn import datasets
from sklearn.cluster import DBSCAN, HDBSCAN, AgglomerativeClustering, SpectralClustering
from sklearn.preprocessing import scale
from torch import Tensor

import neonxc
from neonxc.head import centroid_head as CentroidHead
from neonxc.head.competition import take_most
from neonxc.models import KernelKMeans
from neonxc.network import NeuralizedClustering
from tests.benchmarks.timing import Report, Table, progress, race

CLUSTERS = 10
FEATURES = 64
POINTS = 1000
SUPPORTS = (10, 30, 100, 300, 1000, 3000)
LITERAL = 100  # supports per cluster up to which the network of pairs is run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json")
    options = parser.parse_args()
    report = Report("Kernel k-means")
    report.table(
        f"Attribution: {POINTS} points x {FEATURES} features, {CLUSTERS} clusters, float64",
        cost(options.rounds),
        "`NEON.attribute` for each point's own cluster, beside the network of Proposition 5 laid out pair by pair "
        "of supports (batched matrix products in torch) while that fits.",
    )
    report.table(
        "Agreement of classical kernel k-means with its network (Proposition 4)",
        agreement(),
        "Share of points that the network of members gives the clusterer's own label.",
    )
    report.table(
        "Surrogates", surrogates(), "Share of points (noise aside) with the explained clustering's label."
    )
    report.close(options.json)


def cost(rounds: int) -> Table:
    """Measure the median milliseconds by number of supports per cluster."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(POINTS, FEATURES, generator=generator, dtype=torch.float64)
    rows: list[dict[str, Any]] = []
    for p in SUPPORTS:
        progress(f"{p} supports per cluster")
        points = torch.randn(CLUSTERS, p, FEATURES, generator=generator, dtype=torch.float64)
        groups = torch.arange(CLUSTERS).repeat_interleave(p)
        net = NeuralizedClustering(CentroidHead(points.flatten(0, 1), groups, gamma=0.1)).calibrate(x)
        neon = neonxc.NEON(net)
        runs = {"ours": lambda n=neon: n.attribute(x)}
        if p <= LITERAL:
            own = net.head.assign(x)
            runs["pairs"] = lambda u=points, c=own, b=net.beta: pairs(x, u, 0.1, c, b)
            difference = (runs["ours"]() - runs["pairs"]()).abs().max() / runs["ours"]().abs().max()
            assert float(difference) < 1e-9, difference
        times = {name: 1000 * statistics.median(t) for name, t in race(runs, rounds).items()}
        rows.append(
            {
                "supports per cluster": p,
                "ms": times["ours"],
                "ms per support": times["ours"] / p,
                "pair by pair, ms": times.get("pairs", "-"),
                "times faster": times["pairs"] / times["ours"] if "pairs" in times else "-",
            }
        )
    return rows


def pairs(x: Tensor, supports: Tensor, gamma: float, own: Tensor, beta: float) -> Tensor:
    """Proposition 5 with Eqs. 2, 4 and 10: a linear neuron for each pair of supports of two clusters."""
    k, p, _ = supports.shape
    relevance = torch.empty_like(x)
    for c in range(k):
        rows = (own == c).nonzero()[:, 0]
        if not len(rows):
            continue
        points = x[rows]
        contrasts = torch.full((len(rows), k), torch.inf, dtype=x.dtype)
        parts = {}
        for other in range(k):
            if other == c:
                continue
            w = 2 * (supports[c][:, None] - supports[other]).flatten(0, 1)
            b = (supports[other].square().sum(1) - supports[c].square().sum(1)[:, None]).flatten()
            h_ij = torch.addmm(b, points, w.T).view(-1, p, p)
            over_i = (gamma * h_ij).softmax(1)
            h_j = ((gamma * h_ij).logsumexp(1) - np.log(p)) / gamma
            contrasts[:, other] = ((-gamma * h_j).logsumexp(1) - np.log(p)) / -gamma
            share = over_i * (-gamma * h_j).softmax(1)[:, None]
            parts[other] = (share.flatten(1), w)
        s = take_most(contrasts, beta)
        total = torch.zeros_like(points)
        for other, (share, w) in parts.items():
            middle = ((supports[c][:, None] + supports[other]) / 2).flatten(0, 1)
            total += s[:, other, None] * (points * (share @ w) - share @ (middle * w))
        relevance[rows] = total
    return relevance


def agreement() -> Table:
    rows = []
    for name, X in tables().items():
        for objective in ("feature", "spherical"):
            model = KernelKMeans(8, objective=objective, random_state=0).fit(X)
            same = (neonxc.neuralize(model, X).predict(X) == model.labels_).mean()
            rows.append({"data": name, "objective": objective, "gamma": model.gamma_, "same label": float(same)})
    return rows


def surrogates() -> Table:
    shapes = {
        "two moons": (datasets.make_moons(1000, noise=0.05, random_state=0)[0], DBSCAN(0.15), 2),
        "circles": (datasets.make_circles(1000, factor=0.5, noise=0.04, random_state=0)[0], DBSCAN(0.15), 2),
        "digits": (datasets.load_digits().data, HDBSCAN(min_cluster_size=15, copy=True), 10),
    }
    rows = []
    for name, (X, density, k) in shapes.items():
        linkage = "ward" if k > 2 else "single"
        for model in (
            density,
            SpectralClustering(k, affinity="nearest_neighbors", n_neighbors=20, random_state=0),
            AgglomerativeClustering(k, linkage=linkage),
        ):
            progress(f"{name}: {type(model).__name__}")
            net = neonxc.neuralize(labels=model.fit(X).labels_, X=X)
            rows.append(
                {
                    "data": name,
                    "clustering": f"{type(model).__name__}"
                    + (f", {linkage}" if "Agglo" in type(model).__name__ else ""),
                    "clusters": len(net.classes_),
                    "noise": int((model.labels_ == -1).sum()),
                    "fidelity": net.fidelity_,
                    "held out": net.fidelity_held_out_,
                    "stability": net.stability_,
                    "supports": net.head.detection.n_neurons,
                }
            )
    return rows


def tables() -> dict[str, np.ndarray]:
    found = {name: scale(getattr(datasets, f"load_{name}")().data) for name in ("iris", "wine", "breast_cancer")}
    return {**found, "digits": datasets.load_digits().data}


if __name__ == "__main__":
    main()
