"""Pixel-flipping AUC of several choices of the default beta, compared with Eq. 3 of the paper.

A row is a clustering of a table: k-means, or kernel k-means with 10 supports per cluster. All betas explain the
same points and are measured on the same draws of the KDE sampler.

    python -m tests.benchmarks.beta [--full] [--data FOLDER] [--json FILE]

The default uses iris, wine, breast cancer and digits, one seed and up to 16 clusters, and takes about three
minutes. `--full` uses K up to 64, two seeds, and kernel k-means as well. FOLDER contains further tables
NAME.csv.gz of numeric columns and a last column `label`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats
from sklearn import datasets
from sklearn.cluster import KMeans
from sklearn.preprocessing import scale

import neonxc
from neonxc import NEON, NeuralizedClustering
from neonxc.evaluation import KDEImputer, pixel_flipping
from neonxc.models import KernelKMeans
from tests.benchmarks.timing import Report, Table, progress

GAINS = "Gains in AUC over Eq. 3"
DEFAULT = "1 / E[harmonic mean]"
NAMES = {"k-means": "k-means", "kernel": "kernel k-means"}
TOYS = ("iris", "wine", "breast_cancer", "digits")
LEAST = "1 / E[least], Eq. 3"
BETAS: dict[str, Callable[[NeuralizedClustering, np.ndarray], float]] = {
    LEAST: lambda net, X: net.calibrate(X, contrast="least").beta,
    "half of Eq. 3": lambda net, X: net.calibrate(X, contrast="least").beta / 2,
    DEFAULT: lambda net, X: net.calibrate(X, contrast="harmonic").beta,
    "1 / E[median]": lambda net, X: net.calibrate(X, contrast="median").beta,
}


def tables(folder: Path | None, most: int) -> Iterator[tuple[str, np.ndarray]]:
    """Load tables with at most `most` different points; columns are z-scored, except the pixels of digits."""
    found = {name: getattr(datasets, f"load_{name}")().data for name in TOYS}
    for path in [] if folder is None else sorted(folder.glob("*.csv.gz")):
        table = pd.read_csv(path)
        if table.columns[-1] == "label" and len(table.select_dtypes("number").columns) == table.shape[1]:
            found[path.name.removesuffix(".csv.gz")] = table.iloc[:, :-1].to_numpy(float)
    for name, X in found.items():
        if X.shape[1] >= 4:  # tables with fewer columns are too easy
            X = X[np.sort(np.random.default_rng(0).permutation(len(X))[:most])]
            yield name, np.unique(X if name == "digits" else scale(X), axis=0)


def clustering(model: str, X: np.ndarray, K: int, seed: int) -> NeuralizedClustering:
    """Cluster a table and neuralize the clustering."""
    if model == "k-means":
        return neonxc.neuralize(KMeans(K, n_init=3, random_state=seed).fit(X), X)
    return neonxc.neuralize(KernelKMeans(K, n_support=10, random_state=seed).fit(X), X)


def areas(net: NeuralizedClustering, X: np.ndarray, x: np.ndarray, imputer: KDEImputer) -> dict[str, np.ndarray]:
    """Return the AUC of every explained point, by beta."""
    found = {}
    for name, beta in BETAS.items():
        relevance = NEON(net, beta=beta(net, X)).attribute(x)
        found[name] = pixel_flipping(net, x, relevance, imputer, repeats=5).auc_per_input
    return found


def measured(folder: Path | None, full: bool) -> Table:
    """Measure a row per table, model, K and seed: the AUC of Eq. 3, and gains with standard errors over the
    points."""
    rows = []
    Ks, seeds, models = (
        ((3, 8, 16, 32, 64), (0, 1), ("k-means", "kernel")) if full else ((3, 8, 16), (0,), ("k-means",))
    )
    for name, X in tables(folder, 2000 if full else 1000):
        progress(name)
        imputer = KDEImputer(X)
        x = X[np.random.default_rng(1).permutation(len(X))[: 300 if full else 150]]
        for model, K, seed in [(m, K, s) for m in models for K in Ks for s in seeds if len(X) >= 4 * K]:
            area = areas(clustering(model, X, K, seed), X, x, imputer)
            row = {"data": name, "model": model, "K": K, "seed": seed, LEAST: float(area[LEAST].mean())}
            for beta in list(BETAS)[1:]:
                gain = area[beta] - area[LEAST]
                row |= {beta: float(gain.mean()), f"± {beta}": float(stats.sem(gain))}
            rows.append(row)
    return rows


def verdicts(rows: Table) -> Table:
    """Summarize gains over Eq. 3 by model and K: mean, standard error, rows won and lost, and the worst row."""
    found = []
    for model in dict.fromkeys(row["model"] for row in rows):
        own = [row for row in rows if row["model"] == model]
        for K in ["all", *sorted({row["K"] for row in own})]:
            some = own if K == "all" else [row for row in own if row["K"] == K]
            for beta in list(BETAS)[1:]:
                gain = np.array([row[beta] for row in some])
                line = {"model": model, "K": K, "beta": beta, "rows": len(gain), "gain": float(gain.mean())}
                line["±"] = float(stats.sem(gain)) if len(gain) > 1 else float("nan")
                line |= {"won": int((gain > 0).sum()), "lost": int((gain < 0).sum()), "worst": float(gain.min())}
                found.append(line)
    return found


def figures(report: dict[str, Any]) -> str:
    """Return the guide's table of betas."""
    rows = report["tables"][GAINS]["rows"]
    models = list(dict.fromkeys(row["model"] for row in rows))
    lines = ["| β | " + " | ".join(NAMES[model] for model in models) + " |", "|---" * (len(models) + 1) + "|"]
    for beta in list(BETAS)[1:]:
        found = [next(r for r in rows if (r["model"], r["K"], r["beta"]) == (m, "all", beta)) for m in models]
        cells = [
            f"{row['gain']:+.2f} ± {row['±']:.2f}; won {row['won']}, lost {row['lost']}; worst {row['worst']:.2f}"
            for row in found
        ]
        lines.append(f"| {beta} | " + " | ".join(cells) + " |")
    own = [row for row in rows if (row["model"], row["beta"]) == (models[0], DEFAULT) and row["K"] != "all"]
    first = own[0]
    last = own[-1]
    text = f"The default's gain grows from {first['gain']:.2f} at K = {first['K']} to {last['gain']:.2f} at "
    return "\n".join([*lines, "", f"{text}K = {last['K']} (k-means)."])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="further tables NAME.csv.gz")
    parser.add_argument("--json", metavar="FILE", help="save the tables")
    options = parser.parse_args()
    report = Report("Default beta")
    rows = measured(options.data, options.full)
    report.table(GAINS, verdicts(rows), "± is the standard error over the rows.")
    report.table("Rows", rows, "AUC of Eq. 3 and gains over it, ± standard error over the points.")
    report.close(options.json)


if __name__ == "__main__":
    main()
