"""Marker rules of `neonxc.markers`, of NS-Forest's way of counting, and of trees on the top genes of scanpy.

    pip install -e ".[cells]"
    python -m tests.benchmarks.markers [--seeds 5] [--large FOLDER] [--json FILE]

Rules of at most three genes are found on two thirds of the 700 cells of scanpy's pbmc68k_reduced and measured on
the others; means over clusters and seeds. "NS-Forest" is a random forest of 1,000 trees per cluster on genes of
positive median, its 15 most important genes ranked by the binary score, thresholds of stumps, and the best of all
combinations of the first six by F-beta (Aevermann et al., 2021). "top genes" is the best leaf of a decision tree
of depth three on the ten best genes of Wilcoxon's test. "binary score" is the mean of that score over the genes
that a rule requires to be above a threshold, 0 to 1. "panel" is the number of genes of all rules.

--large builds 100,000 cells x 20,000 genes, of which 5% are not zero, in FOLDER, and gives the time and the peak
of the memory of a process, which contains the matrix of 0.8 GB.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.ensemble import RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier

import neonxc
from neonxc.common.progress import hide
from neonxc.rules.rule import Counts
from tests.benchmarks.timing import Report, Table

BETA = 0.5
GENES = 3
Rule = tuple[Callable[[np.ndarray], np.ndarray], list[int], list[int]]  # test, genes, those required to be high


def counts(met: np.ndarray, inside: np.ndarray) -> Counts:
    return Counts(met.sum(), (met & ~inside).sum(), inside.sum())


def binary_score(medians: np.ndarray, cluster: int, gene: int) -> float:
    """Mean over the other clusters of 1 - median / median of the cluster, or 0 if that is negative (NS-Forest)."""
    own = medians[cluster, gene]
    others = np.delete(medians[:, gene], cluster)
    return float(np.maximum(0, 1 - others / own).mean()) if own > 0 else 0.0


def ns_forest(X: np.ndarray, own: np.ndarray, cluster: int, medians: np.ndarray, seed: int) -> Rule:
    inside = own == cluster
    known = np.flatnonzero(medians[cluster] > 0)
    forest = RandomForestClassifier(1000, random_state=seed, n_jobs=-1).fit(X[:, known], inside)
    best = known[np.argsort(-forest.feature_importances_)[:15]]
    best = sorted(best, key=lambda gene: -binary_score(medians, cluster, gene))[:6]
    stumps = {g: DecisionTreeClassifier(max_leaf_nodes=2, random_state=0).fit(X[:, [g]], inside) for g in best}
    high = {gene: stump.tree_.threshold[0] for gene, stump in stumps.items()}

    def test(genes: tuple[int, ...]) -> Callable[[np.ndarray], np.ndarray]:
        return lambda Z: np.all([Z[:, gene] > high[gene] for gene in genes], axis=0)

    tried = [genes for size in range(1, GENES + 1) for genes in combinations(best, size)]
    genes = max(tried, key=lambda genes: counts(test(genes)(X), inside).f_score(BETA))
    return test(genes), [*genes], [*genes]


def top_genes(X: np.ndarray, own: np.ndarray, cluster: int, ranked: list[int]) -> Rule:
    inside = own == cluster
    genes = ranked[:10]
    tree = DecisionTreeClassifier(max_depth=GENES, random_state=0).fit(X[:, genes], inside)
    leaves = tree.apply(X[:, genes])
    leaf = max(np.unique(leaves), key=lambda leaf: counts(leaves == leaf, inside).f_score(BETA))
    path = tree.decision_path(X[leaves == leaf][:1][:, genes]).indices[:-1]
    used = [genes[tree.tree_.feature[node]] for node in path]
    high = [used[i] for i, node in enumerate(path) if tree.tree_.children_right[node] in {*path[1:], leaf}]
    return lambda Z: tree.apply(Z[:, genes]) == leaf, used, high


def of_seed(cells: Any, groupby: str, seed: int) -> Iterator[dict[str, Any]]:
    """Yield a row per method."""
    import scanpy

    start = time.perf_counter()
    found = neonxc.markers(cells, groupby, random_state=seed)
    seconds = {"neonxc.markers": time.perf_counter() - start}
    X = cells.raw.X.toarray()
    names = cells.raw.var_names
    train, test = split(cells, groupby, seed)
    groups = cells.obs[groupby].cat
    own = groups.codes.to_numpy()
    place = {name: i for i, name in enumerate(names)}
    part = cells[train].copy()
    scanpy.tl.rank_genes_groups(part, groupby, method="wilcoxon", use_raw=True)
    medians = np.array([np.median(X[train][own[train] == g], axis=0) for g in range(len(groups.categories))])
    ours = {}
    for rule in found.rules:
        genes = [test.column.position for test in rule.conditions]
        high = [test.column.position for test in rule.conditions if test.low > 0]
        ours[rule.label] = (rule.matches, genes, high)
    rules: dict[str, list[Rule]] = {"neonxc.markers": [ours[label] for label in groups.categories]}
    start = time.perf_counter()
    rules["NS-Forest"] = [ns_forest(X[train], own[train], g, medians, seed) for g in range(len(medians))]
    seconds["NS-Forest"] = time.perf_counter() - start
    ranked = [
        [place[name] for name in part.uns["rank_genes_groups"]["names"][label]] for label in groups.categories
    ]
    rules["top genes"] = [top_genes(X[train], own[train], g, ranked[g]) for g in range(len(medians))]
    for name, made in rules.items():
        measures = [counts(np.asarray(rule(X[test])), own[test] == g) for g, (rule, _, _) in enumerate(made)]
        scores = [binary_score(medians, g, gene) for g, (_, _, high) in enumerate(made) for gene in high]
        yield {
            "clusters": groupby,
            "method": name,
            "F-beta": np.mean([one.f_score(BETA) for one in measures]),
            "precision": np.mean([np.nan_to_num(one.precision) for one in measures]),
            "recall": np.mean([one.coverage for one in measures]),
            "binary score": np.mean(scores),
            "panel": len({gene for _, genes, _ in made for gene in genes}),
            "s": seconds.get(name, np.nan),
        }


def split(cells: Any, groupby: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The cells on which `neonxc.markers` finds rules, and those on which it measures them."""
    from neonxc.trees.genes import Expression

    data = Expression.of(cells, groupby, None, True, None, seed)
    return data.train, data.test


def large(folder: Path) -> dict[str, Any]:
    """Time and peak memory of 100,000 cells x 20,000 genes, in a process of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (file := folder / "large.npz").exists():
        rng = np.random.default_rng(0)
        rates = rng.gamma(0.5, 0.1, 20_000).clip(0.001, 0.9)
        rates *= 0.05 / rates.mean()
        clusters = np.sort(rng.integers(0, 30, 100_000))
        parts = []
        for g in range(30):
            own = rates.copy()
            own[rng.choice(20_000, 50, replace=False)] = 0.6
            parts.append(sparse.random(int((clusters == g).sum()), 20_000, 0.05, "csr", np.float32, rng))
            parts[-1].indices[:] = rng.choice(20_000, parts[-1].nnz, p=own / own.sum())
            parts[-1].sum_duplicates()
        sparse.save_npz(file, sparse.vstack(parts, "csr"), compressed=False)
        np.save(folder / "clusters.npy", clusters)
    command = [sys.executable, "-m", "tests.benchmarks.markers", "--measure", str(folder)]
    seconds, gigabytes, score = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split()
    return {"cells": 100_000, "genes": 20_000, "s": float(seconds), "GB": float(gigabytes), "F-beta": float(score)}


def measure(folder: Path) -> None:
    """Print seconds, gigabytes and the mean F-beta score of the large table."""
    from anndata import AnnData

    obs = pd.DataFrame({"own": np.load(folder / "clusters.npy").astype(str)}, [*map(str, range(100_000))])
    cells = AnnData(sparse.load_npz(folder / "large.npz"), obs)
    start = time.perf_counter()
    found = neonxc.markers(cells, "own")
    seconds = time.perf_counter() - start
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    kilobytes = int(status["VmHWM"].split()[0])  # ru_maxrss would contain the peak of the parent process
    print(seconds, kilobytes / 2**20, found.to_frame()["f_beta"].mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--large", type=Path)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--json")
    options = parser.parse_args()
    hide()
    if options.measure:
        return measure(options.measure)
    import scanpy

    report = Report("Marker rules")
    rows = Table()
    cells = scanpy.datasets.pbmc68k_reduced()
    for groupby in ("louvain", "bulk_labels"):
        for seed in range(options.seeds):
            rows += of_seed(cells, groupby, seed)
    means = pd.DataFrame(rows).groupby(["clusters", "method"], sort=False).mean().reset_index()
    report.table("Held-out cells", means.to_dict("records"))
    if options.large:
        report.table("Large", [large(options.large)])
    report.close(options.json)


if __name__ == "__main__":
    main()
