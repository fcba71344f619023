"""Time of k-means attributions in closed form, of the paper's rules point by point, and of captum.

python -m tests.benchmarks.attribution [--quick] [--json FILE]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from captum.attr import IntegratedGradients
from numpy.typing import NDArray
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.datasets import load_digits
from threadpoolctl import threadpool_limits
from torch.profiler import ProfilerActivity, profile

from neonxc import NEON, NeuralizedClustering, neuralize
from tests.benchmarks.timing import ROUNDS, Report, Table, race, results

K = 10


def pair_by_pair(X: NDArray, centers: NDArray, beta: float) -> NDArray:
    """NEON as in the paper: Eq. 2 for one point at a time, then Eq. 4 for one competitor at a time."""
    relevance = np.zeros_like(X)
    for n, x in enumerate(X):
        c = ((x - centers) ** 2).sum(axis=1).argmin()
        competitors = np.delete(np.arange(len(centers)), c)
        weights = [2 * (centers[c] - centers[k]) for k in competitors]
        h = np.array([(x - (centers[c] + centers[k]) / 2) @ w for k, w in zip(competitors, weights, strict=True)])
        share = np.exp(-beta * (h - h.min()))
        for k, w, R_k in zip(competitors, weights, share / share.sum() * h.min(), strict=True):
            contributions = (x - (centers[c] + centers[k]) / 2) * w
            relevance[n] += contributions / contributions.sum() * R_k
    return relevance


def point_by_point(X: NDArray, centers: NDArray, beta: float) -> NDArray:
    """NEON point by point with all competitors at once; everything that depends only on the cluster is
    precomputed."""
    others = [np.delete(np.arange(len(centers)), c) for c in range(len(centers))]
    weights = [2 * (centers[c] - centers[k]) for c, k in enumerate(others)]
    midpoints = [(centers[c] + centers[k]) / 2 for c, k in enumerate(others)]
    biases = [-(m * w).sum(axis=1) for m, w in zip(midpoints, weights, strict=True)]
    relevance = np.empty_like(X)
    for n, x in enumerate(X):
        c = ((x - centers) ** 2).sum(axis=1).argmin()
        h = weights[c] @ x + biases[c]
        share = np.exp(-beta * (h - h.min()))
        contributions = (x - midpoints[c]) * weights[c]
        relevance[n] = share / share.sum() * h.min() / contributions.sum(axis=1) @ contributions
    return relevance


def digits() -> tuple[NDArray, KMeans, NeuralizedClustering]:
    X = load_digits().data
    model = KMeans(K, n_init=10, random_state=0).fit(X)
    return X, model, neuralize(model, X)


def attributions(rounds: int) -> Table:
    X, model, net = digits()
    own = torch.as_tensor(net.predict(X)).long()
    x = torch.as_tensor(X)
    neon = NEON(net)
    captum = IntegratedGradients(net)

    def integrated_gradients() -> NDArray:
        return captum.attribute(x, target=own, n_steps=10).detach().numpy()

    ours: Callable[[], NDArray] = lambda: neon.attribute(X)  # noqa: E731
    contestants = {
        "NEON.attribute, all points at once": ours,
        "NumPy, Eqs. 2 and 4 pair by pair": lambda: pair_by_pair(X, model.cluster_centers_, net.beta),
        "NumPy, point by point, weights prepared": lambda: point_by_point(X, model.cluster_centers_, net.beta),
        "captum IntegratedGradients, 10 steps": integrated_gradients,
    }
    rows = results(race(contestants, rounds), base="NEON.attribute, all points at once")
    for row, run in zip(rows, contestants.values(), strict=True):
        row["largest difference to NEON"] = float(np.abs(run() - ours()).max())
    return rows


def logits(rounds: int) -> Table:
    X, model, net = digits()
    x = torch.as_tensor(X)
    contestants = {
        "sklearn KMeans.predict": lambda: model.predict(X),
        "net(x), all logits": torch.no_grad()(lambda: net(x)),
        "net.predict(X), inputs checked": lambda: net.predict(X),
    }
    rows = results(race(contestants, rounds), base="sklearn KMeans.predict")
    distances = ((X[:, None] - model.cluster_centers_) ** 2).sum(axis=2)
    wanted = [np.delete(distances, c, axis=1).min(axis=1) - distances[:, c] for c in range(K)]
    found = net(x).numpy()
    rows[1]["other labels than sklearn"] = int((found.argmax(1) != model.predict(X)).sum())
    rows[2]["other labels than sklearn"] = int((net.predict(X) != model.predict(X)).sum())
    rows[1]["largest difference of logits"] = float(np.abs(found - np.stack(wanted, axis=1)).max())
    return [{**dict.fromkeys(rows[1], ""), **row} for row in rows]


def many_rows(n: int, d: int, clusters: int, rounds: int) -> Table:
    """Time many rows, over a plain gradient through the same network in blocks of the size that suits it best."""
    draw = np.random.default_rng(0)
    centers = draw.normal(size=(clusters, d)) * 3
    X = (centers[draw.integers(clusters, size=n)] + draw.normal(size=(n, d))).astype("float32")
    net = neuralize(MiniBatchKMeans(clusters, n_init=1, random_state=0).fit(X[:50_000]), X[:10_000])
    x = torch.from_numpy(X)
    neon = NEON(net)

    def gradient(size: int) -> None:
        for points in x.split(size):
            leaf = points.detach().requires_grad_()
            torch.autograd.grad(net(leaf).amax(1).sum(), leaf)

    sizes = {size: race({"": partial(gradient, size)}, 1)[""][0] for size in (4096, 16_384, 65_536)}
    best = min(sizes, key=lambda size: sizes[size])
    base = f"gradient, {clusters} clusters, blocks of {best}"
    contestants = {
        base: partial(gradient, best),
        f"NEON.attribute, {clusters} clusters": lambda: neon.attribute(x),
        f"net.predict, {clusters} clusters": lambda: net.predict(x),
        f"net(x), {clusters} clusters": lambda: net(x),
    }
    return results(race(contestants, rounds), base=base)


def memory(sizes: list[tuple[int, int, int]]) -> Table:
    """Measure the peak memory of attribute, including its result, in units of N (K + d) numbers."""
    rows = []
    for n, d, clusters in sizes:
        generator = torch.Generator().manual_seed(0)
        X = torch.rand(n, d, generator=generator).numpy()
        net = neuralize(torch.rand(clusters, d, generator=generator))
        peak = peak_bytes(partial(NEON(net).attribute, X))
        row: dict[str, Any] = {"points N": n, "features d": d, "clusters K": clusters, "peak MiB": peak / 2**20}
        row["peak / (N (K + d) · 4 bytes)"] = peak / (n * (clusters + d) * X.itemsize)
        rows.append(row | {"one [N, K, d] tensor, MiB": n * clusters * d * X.itemsize / 2**20})
    return rows


def peak_bytes(run: Callable[[], Any]) -> int:
    """Return the peak of the bytes that torch allocates during a call, from its own record of allocations."""
    run()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        run()
    events = [e for e in record.profiler.kineto_results.events() if e.name() == "[memory]"]
    changes = [e.nbytes() for e in sorted(events, key=lambda e: e.start_ns())]
    return int(np.cumsum(changes).max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="three rounds instead of nine")
    parser.add_argument("--json", metavar="FILE", help="save the tables")
    options = parser.parse_args()
    report = Report("Attributions of k-means")
    rounds = 3 if options.quick else ROUNDS
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # one thread, as for the loops: this little work gains nothing from a second one
    with threadpool_limits(1):
        relevance = attributions(rounds)
        decisions = logits(rounds)
    torch.set_num_threads(threads)
    note = "One thread. Ratio: time over NEON.attribute's."
    report.table("Relevance, digits (1797 x 64, 10 clusters, float64)", relevance, note)
    note = "One thread. Ratio: time over scikit-learn's, which finds labels only."
    report.table("Logits, digits", decisions, note)
    rows = [row for clusters in (10, 100) for row in many_rows(1_000_000, 50, clusters, rounds)]
    note = "All threads. Ratio: time over that of plain gradients through the same network, block by block."
    report.table("Many rows (1,000,000 x 50, float32)", rows, note)
    sizes = [(n, 784, clusters) for n in (20_000, 40_000) for clusters in (10, 100)]
    report.table("Memory of NEON.attribute, float32", memory(sizes), "Input not counted, result counted.")
    report.close(options.json)


if __name__ == "__main__":
    main()
