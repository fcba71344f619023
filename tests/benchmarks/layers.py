"""Why did a cluster split? The accuracy of rules, the verdicts, names and times of `neonxc.layers`.

    python -m tests.benchmarks.layers [--data DIR] [--quick] [--json FILE]

Tables are clustered by Ward's linkage, bisecting k-means and k-means with 3, 6 and 10 clusters, all on
standardized columns. The rules' accuracy is that of held-out rows; it is averaged with the rows of the splits as
weights, as is the base, the fraction of the largest part. Nothing was chosen on the held-out tables, the cells
and the texts; the number of rows of a surrogate was chosen on the other tables, which --quick leaves out.

Planted hierarchies have three far clusters of three near ones each, and two layers of slices: halves and quarters
of these by k-means. Simulated cells have three lineages, seven types, and halves of these. Texts are descriptions
of Debian packages (packages.csv.gz in DIR), whose sections are in groups. Seconds are CPU time on one core.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.cluster.hierarchy import linkage
from sklearn.cluster import HDBSCAN, BisectingKMeans, KMeans
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import neonxc
from neonxc.common.progress import hide
from tests.benchmarks.names import tables
from tests.benchmarks.timing import Report, Table, progress

HELD_OUT = ("breast_cancer", "iris", "ecoli", "yeast", "avila", "communities")
OTHERS = ("wine", "digits", "segment", "pendigits", "letter")
ROWS = 1500
NUMBERS = (3, 6, 10)
GROUPS = {
    "media": ["games", "graphics", "sound"],
    "net": ["net", "web", "mail"],
    "code": ["php", "ruby", "database"],
}
LINEAGES = {"T": ["CD4", "CD8", "NK"], "B": ["naive", "memory"], "M": ["mono", "dc"]}
REAL = ("separated", "partly separated")


# --- figures -----------------------------------------------------------------------------------------------------


def figures(run: Callable[[], neonxc.Layers], **known: object) -> pd.DataFrame:
    """Return one row per split: what is known of all of them, and what was found."""
    start = time.process_time()
    found = run()
    seconds = time.process_time() - start
    said: dict[str, set[str]] = {"all": set()}
    rows = []
    for split in found.splits:
        above = said.get(split.parent, set())
        n_repeated = 0
        for child, statements in split.statements().items():
            n_repeated += bool(above & {*statements})
            said[child] = above | {*statements}
        row = {
            **known,
            "parent": split.parent,
            "n": len(split.rows),
            "verdict": split.verdict,
            "kept": split.kept,
            "accuracy": split.accuracy,
            "base": split.base,
            "fidelity": np.nan if split.fidelity is None else split.fidelity,
            "parts": len(split.children),
            "repeated": n_repeated,
            "seconds": seconds / len(found.splits),
        }
        rows.append(row)
    progress(f"{known}: {len(rows)} splits, {seconds / len(rows):.2f} s each")
    return pd.DataFrame(rows)


def mean(splits: pd.DataFrame, column: str) -> float | str:
    """Return the mean of a column over splits, weighted by their rows; "–" if there is nothing to average."""
    known = splits[splits[column].notna()]
    if not len(known):
        return "–"
    return float(np.average(known[column], weights=known["n"]))


def accuracies(splits: pd.DataFrame, by: str) -> Table:
    """Return the accuracies of the rules of separated splits and of all splits, by the values of a column."""
    rows: Table = []
    groups = [*splits.groupby(by, sort=False), ("all", splits)]
    for name, group in groups:
        separated = group[group["verdict"] == "separated"]
        rows.append(
            {
                by: name,
                "splits": len(group),
                "separated": len(separated),
                "accuracy, separated": mean(separated, "accuracy"),
                "base, separated": mean(separated, "base"),
                "accuracy, all": mean(group, "accuracy"),
                "base, all": mean(group, "base"),
                "kept": mean(group, "kept"),
                "fidelity": mean(group, "fidelity"),
                "names that repeat": f"{int(group['repeated'].sum())} of {int(group['parts'].sum())}",
                "seconds a split": float(group["seconds"].mean()),
            }
        )
    return rows


# --- tables ------------------------------------------------------------------------------------------------------


def explained(hierarchy: str, table: pd.DataFrame) -> neonxc.Layers:
    """Cluster a table in one of several ways, and explain its layers."""
    if hierarchy == "Ward":
        return neonxc.layers(None, table, linkage=linkage(StandardScaler().fit_transform(table), "ward"))
    if hierarchy == "bisecting":
        model = make_pipeline(StandardScaler(), BisectingKMeans(10, random_state=0)).fit(table)
        return neonxc.layers(model, table)
    models = []
    for k in NUMBERS:
        models.append(make_pipeline(StandardScaler(), KMeans(k, n_init=2, random_state=0)).fit(table))
    return neonxc.layers(models, table)


def of_tables(folder: str | None, names: tuple[str, ...]) -> pd.DataFrame:
    """Return the splits of tables."""
    parts = []
    for name, table in tables(folder, names):
        rows = np.sort(np.random.default_rng(0).permutation(len(table))[:ROWS])
        numbers = table.iloc[rows].reset_index(drop=True)
        numbers = numbers.fillna(numbers.median())
        for hierarchy in ("Ward", "bisecting", "k-means"):
            run = lambda kind=hierarchy, rows=numbers: explained(kind, rows)  # noqa: E731
            parts.append(figures(run, table=name, hierarchy=hierarchy))
    return pd.concat(parts, ignore_index=True)


# --- hierarchies that are known ----------------------------------------------------------------------------------


def halves(X: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Divide every cluster into two slices by k-means, and return the labels of all of them."""
    slices = labels * 2
    for label in np.unique(labels):
        rows = labels == label
        slices[rows] += KMeans(2, n_init=1, random_state=0).fit_predict(X[rows])
    return slices


def planted(shape: str, d: int, apart: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw 1,200 rows of three times three clusters, and return them with four layers, two of them of slices."""
    generator = np.random.default_rng([seed, d, int(apart), len(shape)])
    n = 1200
    coarse = generator.integers(0, 3, n)
    fine = generator.integers(0, 3, n)
    middle = _far(generator, d, 4 * apart)
    middles = np.stack([_far(generator, d, apart) for _ in range(3)])
    noise = {
        "Gaussian": lambda: generator.normal(size=(n, d)),
        "uniform": lambda: generator.uniform(-1.73, 1.73, (n, d)),
        "exponential": lambda: generator.exponential(size=(n, d)) - 1,
    }[shape]()
    X = middle[coarse] + middles[coarse, fine] + noise
    types = coarse * 3 + fine
    slices = halves(X, types)
    return X, np.column_stack([coarse, types, slices, halves(X, slices)])


def _far(generator: np.random.Generator, d: int, least: float) -> np.ndarray:
    """Draw three centers, any two of which are at least so far apart."""
    while True:
        centers = generator.normal(size=(3, d)) * least * 1.6 / np.sqrt(2 * d)
        distances = np.linalg.norm(centers[:, None] - centers, axis=2)
        if distances[np.triu_indices(3, 1)].min() >= least:
            return centers


def verdicts(splits: pd.DataFrame, name: str) -> Table:
    """Return how many of the true splits are separated, and how many of the others are slices."""
    rows: Table = []
    for is_true, what, right in ((True, "clusters", REAL[:1]), (False, "slices", ("slices",))):
        group = splits[splits["true"] == is_true]
        judged = group[~group["verdict"].isin(["too few rows", "not judged"])]
        n_right = int(judged["verdict"].isin(right).sum())
        share = n_right / max(len(judged), 1)
        rows.append(
            {
                "data": name,
                "splits": what,
                "number": len(group),
                "judged": len(judged),
                "right": n_right,
                "share": share,
            }
        )
    return rows


def of_planted(n_seeds: int) -> Table:
    """Return the verdicts on planted hierarchies."""
    parts = []
    for shape in ("Gaussian", "uniform", "exponential"):
        for d in (4, 12):
            for apart in (5.0, 6.0):
                for seed in range(n_seeds):
                    X, L = planted(shape, d, apart, seed)
                    run = lambda X=X, L=L: neonxc.layers(L, X)  # noqa: E731
                    splits = figures(run, shape=shape, d=d, apart=apart)
                    is_coarse = splits["parent"].str.count("/") == 0
                    parts.append(splits.assign(true=is_coarse))
    splits = pd.concat(parts, ignore_index=True)
    rows = []
    for shape, group in splits.groupby("shape", sort=False):
        rows += verdicts(group, str(shape))
    return rows + verdicts(splits, "all")


def cells(n: int = 1200, n_genes: int = 300, seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Simulate the logarithms of counts of cells, with marker genes of lineages and types, and their labels."""
    generator = np.random.default_rng(seed)
    types = [(lineage, kind) for lineage, kinds in LINEAGES.items() for kind in kinds]
    genes = iter(generator.permutation(n_genes))
    lift: dict[str, dict[int, float]] = {}
    for lineage in LINEAGES:
        lift[lineage] = {next(genes): generator.uniform(6, 15) for _ in range(12)}
    for _, kind in types:
        lift[kind] = {next(genes): generator.uniform(4, 10) for _ in range(8)}
    which = generator.choice(len(types), n, p=np.array([4, 2, 2, 2, 1, 3, 1]) / 15)
    expected = np.tile(generator.lognormal(-0.5, 1.2, n_genes), (n, 1))
    for cell, number in enumerate(which):
        for name in types[number]:
            for gene, factor in lift[name].items():
                expected[cell, gene] *= factor
    expected *= generator.lognormal(0, 0.35, (n, 1))  # depth
    counts = generator.negative_binomial(2, 2 / (2 + expected))
    logs = np.log1p(counts / np.maximum(counts.sum(axis=1, keepdims=True), 1) * 1e3)
    X = pd.DataFrame(logs).add_prefix("gene")
    lineages = np.array([[*LINEAGES].index(types[number][0]) for number in which])
    return X, pd.DataFrame({"lineage": lineages, "type": which, "slice": halves(logs, which)})


def of_cells() -> tuple[Table, Table]:
    """Return the verdicts on simulated cells, and the accuracy of rules."""
    X, labels = cells()
    splits = figures(lambda: neonxc.layers(labels, X), data="cells")
    is_coarse = splits["parent"].str.count("/") == 0
    return verdicts(splits.assign(true=is_coarse), "cells"), accuracies(splits[is_coarse], "data")[:1]


def of_texts(folder: str) -> Table:
    """Return the accuracy of the rules of sections in groups."""
    packages = pd.read_csv(Path(folder) / "packages.csv.gz")
    group_of = {section: group for group, sections in GROUPS.items() for section in sections}
    packages = packages[packages["section"].isin([*group_of])].reset_index(drop=True)
    labels = pd.DataFrame({"group": packages["section"].map(group_of), "section": packages["section"]})
    splits = figures(lambda: neonxc.layers(labels, packages["text"].tolist()), data="sections of Debian")
    return accuracies(splits, "data")[:1]


def of_chance() -> Table:
    """Return the verdicts on splits of HDBSCAN in one cloud, which are chance."""
    shapes: dict[str, Callable[[np.random.Generator], np.ndarray]] = {
        "Gaussian": lambda generator: generator.normal(size=(400, 2)),
        "uniform": lambda generator: generator.uniform(size=(400, 2)),
        "exponential": lambda generator: generator.exponential(size=(400, 2)),
    }
    rows: Table = []
    for shape, draw in shapes.items():
        parts = []
        for seed in range(3):
            X = draw(np.random.default_rng(seed))
            model = HDBSCAN(min_cluster_size=8, copy=True).fit(X)
            parts.append(figures(lambda model=model, X=X: neonxc.layers(model, X, splits=4), shape=shape))
        found = pd.concat(parts)["verdict"]
        n_separated = int((found == "separated").sum())
        row = {"cloud": shape, "splits of HDBSCAN": len(found), "separated": n_separated}
        rows.append({**row, "slices": int((found == "slices").sum())})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder with further tables and packages.csv.gz")
    parser.add_argument("--quick", action="store_true", help="one seed of planted hierarchies")
    parser.add_argument("--json")
    options = parser.parse_args()
    hide()
    warnings.simplefilter("ignore")
    report = Report("Layers")
    neonxc.layers([0] * 20 + [1] * 20, np.arange(80.0).reshape(40, 2))  # loads what is loaded once
    held_out = of_tables(options.data, HELD_OUT)
    report.table("Held-out tables", accuracies(held_out, "table"))
    report.table("Held-out tables, by hierarchy", accuracies(held_out, "hierarchy"))
    if not options.quick:
        report.table("Other tables", accuracies(of_tables(options.data, OTHERS), "table"))
    of_types, rules = of_cells()
    report.table("Verdicts: planted hierarchies and cells", of_planted(1 if options.quick else 3) + of_types)
    report.table("Chance: splits of HDBSCAN in one cloud", of_chance())
    if options.data is not None:
        rules += of_texts(options.data)
    report.table("Cells and texts", rules)
    report.close(options.json)


if __name__ == "__main__":
    main()
