"""Time of tree explainers, relative to a sort of the table and to published figures, with cost and depth.

python -m tests.benchmarks.trees [--reference DIR --data DIR] [--datasets "a;b"] [--algorithms "c;d"] [--json FILE]

Without --reference, the benchmark uses scikit-learn's tables and its k-means. With it, NAME.json in that folder
contains centers, results and seconds of other implementations, and `torch_sort_seconds`, the time of sorting the
columns on the same machine; "times faster" is (their seconds / their sort) over (our seconds / our sort). Tables
are those of scikit-learn, NAME.csv.gz in --data (numeric columns, then a label), and, for fashion10k, the training
images of Fashion-MNIST in --fashion.
"""

from __future__ import annotations

import argparse
import gzip
import json
import resource
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn import datasets
from sklearn.cluster import KMeans
from sklearn.preprocessing import scale

from neonxc.evaluation import wad, waes
from neonxc.trees import (
    CART,
    EMN,
    IMM,
    ExGreedy,
    ExKMC,
    ExShallow,
    KernelExKMC,
    KernelIMM,
    RandomThresholds,
    SpExClique,
    SpExGraph,
)
from neonxc.trees.graph import knn_graph
from tests.benchmarks.timing import Report, Table, progress, seconds

OWN = ("iris", "wine", "breast_cancer", "digits")
SCALED = ("wine", "breast_cancer", "segment", "yeast")
ALGORITHMS: dict[str, Callable[[int], Any]] = {
    "imm": IMM,
    "emn": EMN,
    "exgreedy": ExGreedy,
    "exshallow": ExShallow,
    "exkmc_imm_2k": lambda k: ExKMC(k, max_leaves=2 * k),
    "exkmc_none_2k": lambda k: ExKMC(k, base="none", max_leaves=2 * k),
    "cart": lambda k: CART(k, leaf_labels="own"),
    "spex_clique": lambda k: SpExClique(k, leaf_labels="own"),
    "spex_knn20": SpExGraph,
    "exshallow, refined": lambda k: ExShallow(k, refine=True),
    "random": lambda k: RandomThresholds(k, random_state=0),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--fashion", type=Path, default=Path("/usr/share/datasets/fashion-mnist"))
    parser.add_argument("--datasets")
    parser.add_argument("--algorithms", default=";".join(ALGORITHMS))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--large", action="store_true", help="all-distinct floats and a million rows as well")
    parser.add_argument("--json")
    options = parser.parse_args()
    known = OWN if options.reference is None else tuple(sorted(p.stem for p in options.reference.glob("*.json")))
    names = known if options.datasets is None else options.datasets.split(";")
    report = Report("Trees")
    for name in names:
        X = table(name, options.data, options.fashion)
        if X is None:
            progress(f"{name}: no such table")
            continue
        report.table(*against_reference(name, X, options))
    if options.large:
        images = table("fashion10k", None, options.fashion)
        if images is not None:
            report.table("All-distinct floats: fashion10k plus noise, float32", distinct(images, options.rounds))
        report.table("Mixed: 20,000 x 100, five columns of floats, others of ten values", mixed(options.rounds))
        report.table("Many promising cuts: 4,000 x 320 bytes, k = 12", promising(options.rounds))
        report.table("Kernel trees: 10,000 x 16, k = 10", kernel())
        report.table("1,000,000 x 50 float32, k = 10", million())
    report.close(options.json)


def table(name: str, data: Path | None, fashion: Path) -> np.ndarray | None:
    """Load the numbers of a table with the scaling of the published figures."""
    if name in OWN:
        X = getattr(datasets, f"load_{name}")().data
    elif name == "fashion10k":
        file = fashion / "train-images-idx3-ubyte.gz"
        if not file.exists():
            return None
        with gzip.open(file) as images:
            X = np.frombuffer(images.read(16 + 10000 * 784), np.uint8, offset=16).reshape(10000, 784).copy()
    elif data is None or not (data / f"{name}.csv.gz").exists():
        return None
    else:
        X = np.loadtxt(data / f"{name}.csv.gz", delimiter=",", skiprows=1, dtype=str)[:, :-1].astype(np.float64)
    return scale(X) if name in SCALED else X


def against_reference(name: str, X: np.ndarray, options: argparse.Namespace) -> tuple[str, Table]:
    if options.reference is None:
        k = {"iris": 3, "wine": 3, "breast_cancer": 2, "digits": 10}[name]
        model = KMeans(k, n_init=10, random_state=0).fit(X)
        centers = model.cluster_centers_
        inertia = model.inertia_
        theirs = {}
        their_sort = None
    else:
        known = json.loads((options.reference / f"{name}.json").read_text())
        centers = np.array(known["centers"])
        inertia = known["reference_inertia"]
        theirs = known["results"]
        their_sort = known["torch_sort_seconds"]
    k = len(centers)
    rows = []
    for algorithm in options.algorithms.split(";"):
        explainer = ALGORITHMS[algorithm](k)
        if algorithm == "spex_knn20" and not theirs.get(algorithm, not theirs):
            continue
        given = {"graph": knn_graph(X)} if algorithm == "spex_knn20" else {"centers": centers}
        fit = partial(explainer.fit, X, **given)
        fitted, sort = in_turns(X, fit, options.rounds)
        row = {
            "algorithm": algorithm,
            "ms": 1000 * fitted,
            "over torch.sort": fitted / sort,
            "cost ratio": round(explainer.inertia_ / inertia, 4),
            "leaves": explainer.tree_.n_leaves,
            "WAD": wad(explainer.tree_),
            "WAES": waes(explainer.tree_),
        }
        if theirs:
            other = theirs.get(algorithm, {})
            row["published cost ratio"] = round(other["cost_ratio"], 4) if other else ""
            row["published WAES"] = other.get("waes", "")
            row["times faster"] = (other["seconds"] / their_sort) / (fitted / sort) if other else ""
        rows.append(row)
        progress(f"{name} {algorithm}: {1000 * fitted:.1f} ms")
    return f"{name}, {len(X)} x {X.shape[1]}, k = {k}", rows


def in_turns(X: Any, fit: Callable[[], Any], rounds: int) -> tuple[float, float]:
    """Return the median seconds of fitting and of sorting all columns, which take turns."""
    columns = torch.as_tensor(X)
    fits = []
    sorts = []
    fit()
    for _ in range(rounds):
        sorts.append(seconds(lambda: columns.sort(0)))
        fits.append(seconds(fit))
        if sum(fits) > 60:
            break
    return statistics.median(fits), statistics.median(sorts)


def distinct(X: np.ndarray, rounds: int) -> Table:
    """Make whole numbers plus uniform noise: all floats are different, so that no bins separate them."""
    values = X + np.random.default_rng(0).random(X.shape, dtype=np.float32)
    centers = KMeans(10, n_init=1, random_state=0).fit(values).cluster_centers_
    rows = []
    for name in ("imm", "emn", "exgreedy", "exshallow"):
        explainer = ALGORITHMS[name](10)
        fitted, sort = in_turns(values, lambda explainer=explainer: explainer.fit(values, centers=centers), rounds)
        rows.append({"algorithm": name, "ms": 1000 * fitted, "over torch.sort": fitted / sort})
    return rows


def mixed(rounds: int) -> Table:
    """Make a few columns with many values, which must not slow down the others."""
    generator = np.random.default_rng(0)
    labels = generator.integers(10, size=20_000)
    values = generator.normal(size=(10, 100))[labels] * 2 + generator.normal(size=(20_000, 100))
    table = np.clip(np.round(values), -4, 5)
    table[:, ::20] = values[:, ::20]
    rows = []
    for name in ("imm", "emn", "exgreedy", "exshallow", "exkmc_imm_2k", "cart", "spex_clique"):
        explainer = ALGORITHMS[name](10)
        fit = partial(explainer.fit, table, labels=labels)
        fitted, sort = in_turns(table, fit, rounds)
        rows.append({"algorithm": name, "ms": 1000 * fitted, "over torch.sort": fitted / sort})
    return rows


def promising(rounds: int) -> Table:
    """Make columns of bytes that overlap much, so that many cuts may be the best."""
    generator = np.random.default_rng(0)
    labels = generator.integers(12, size=4000)
    table = generator.integers(0, 256, (12, 320))[labels] + generator.normal(0, 60, (4000, 320))
    table = np.clip(table, 0, 255).astype(np.uint8)
    rows = []
    for name in ("imm", "emn", "exgreedy", "exshallow", "exkmc_imm_2k", "cart"):
        fitted, sort = in_turns(table, partial(ALGORITHMS[name](12).fit, table, labels=labels), rounds)
        rows.append({"algorithm": name, "ms": 1000 * fitted, "over torch.sort": fitted / sort})
    return rows


def kernel() -> Table:
    """Time one fit of each explainer to given labels."""
    generator = np.random.default_rng(0)
    labels = generator.integers(10, size=10_000)
    table = generator.normal(size=(10, 16))[labels] * 2 + generator.normal(size=(10_000, 16))
    explainers = {"Kernel IMM": KernelIMM(10), "Kernel ExKMC, 20 leaves": KernelExKMC(10, max_leaves=20)}
    fits = {name: partial(own.fit, table, labels=labels) for name, own in explainers.items()}
    return [{"algorithm": name, "seconds": seconds(fit)} for name, fit in fits.items()]


def million() -> Table:
    """Measure one fit, with the peak memory of the process."""
    generator = torch.Generator().manual_seed(0)
    centers = 3 * torch.randn(10, 50, generator=generator)
    X = centers[torch.randint(10, (1_000_000,), generator=generator)]
    X = X + torch.randn(len(X), 50, generator=generator)
    row = {"algorithm": "imm", "seconds": seconds(lambda: IMM(10).fit(X, centers=centers))}
    row["peak GB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    if torch.cuda.is_available():
        device = X.cuda()
        IMM(10).fit(device, centers=centers)
        row["seconds on CUDA"] = seconds(lambda: IMM(10).fit(device, centers=centers))
    return [row]


if __name__ == "__main__":
    main()
