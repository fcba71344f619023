"""Are parts of one cloud told from clusters that are separated?

Clouds of eight shapes are cut by seven clusterings; pairs of Gaussian clusters are at known distances; and
clusters of planted hierarchies are cut once more. Thresholds were chosen on every other setting of the clouds; the
others are held out. The data of all other tables are drawn with seeds that nothing was chosen with.

    python -m tests.benchmarks.separation [--quick] [--json FILE]
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.cluster import DBSCAN, HDBSCAN, AgglomerativeClustering, KMeans
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine, make_circles, make_moons
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import scale

import neonxc
from neonxc.evaluation import separation
from tests.benchmarks.timing import Report, Table, markdown, progress

SEED = 66
SHAPES: dict[str, Callable[[np.random.Generator, int, int], np.ndarray]] = {
    "Gaussian": lambda g, n, d: g.normal(size=(n, d)),
    "long": lambda g, n, d: g.normal(size=(n, d)) * np.r_[5, np.ones(d - 1)],
    "correlated": lambda g, n, d: g.normal(size=(n, d)) @ g.normal(size=(d, d)),
    "uniform": lambda g, n, d: g.uniform(size=(n, d)),
    "ball": lambda g, n, d: ball(g, n, d),
    "t, 3 degrees of freedom": lambda g, n, d: g.normal(size=(n, d)) / np.sqrt(g.chisquare(3, (n, 1)) / 3),
    "log-normal": lambda g, n, d: np.exp(0.7 * g.normal(size=(n, d))),
    "exponential": lambda g, n, d: g.exponential(size=(n, d)),
}
NOTE = "Rates of the pairs that were judged."
BY_CLUSTERING = {  # headings
    "chosen on": "Parts of one cloud, chosen on, by clustering",
    "held out": "Parts of one cloud, held out, by clustering",
}
PAIRS = "Pairs at a distance"
HIERARCHIES = "Planted hierarchies"
SHAPES_WITHOUT_AXIS = "Moons and rings"
EQUAL = "Three seeds"


def ball(generator: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Draw points in a ball."""
    x = generator.normal(size=(n, d))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return x * generator.uniform(size=(n, 1)) ** (1 / d)


def single_linkage(X: np.ndarray, k: int) -> Any:
    """Cut a single linkage where two clusters or more have 20 rows or more, if there is such a cut."""
    for n_clusters in range(2, 40):
        model = AgglomerativeClustering(n_clusters, linkage="single").fit(X)
        if np.sort(np.bincount(model.labels_))[-2] >= 20:
            return model
    return None


def dbscan(X: np.ndarray, k: int) -> Any:
    """Fit a DBSCAN with the largest radius that finds several clusters with 20 rows or more."""
    distances, _ = NearestNeighbors(n_neighbors=5).fit(X).kneighbors(X)
    for quantile in (0.9, 0.8, 0.7, 0.6, 0.5, 0.4):
        model = DBSCAN(eps=np.quantile(distances[:, -1], quantile), min_samples=5).fit(X)
        sizes = np.bincount(model.labels_ + 1)[1:]
        if (sizes >= 20).sum() >= 2:
            return model
    return None


MODELS: dict[str, Callable[[np.ndarray, int], Any]] = {
    "k-means": lambda X, k: KMeans(k, n_init=3, random_state=0).fit(X),
    "Gaussian mixture": lambda X, k: GaussianMixture(k, random_state=0, reg_covar=1e-3).fit(X),
    "Ward": lambda X, k: AgglomerativeClustering(k).fit(X),
    "average linkage": lambda X, k: AgglomerativeClustering(k, linkage="average").fit(X),
    "single linkage": single_linkage,
    "DBSCAN": dbscan,
    "HDBSCAN": lambda X, k: HDBSCAN(min_cluster_size=20, min_samples=5, copy=True).fit(X),
}
DENSITY = ("single linkage", "DBSCAN", "HDBSCAN")


class Setting(NamedTuple):
    """A cloud, and what cuts it."""

    model: str
    shape: str
    d: int
    n: int
    k: int


def settings(quick: bool) -> list[Setting]:
    """All settings; every other one is for choosing."""
    dimensions = (2, 5, 20)
    sizes = (200, 600) if quick else (200, 600, 1500)
    combinations = product(MODELS, SHAPES, dimensions, sizes, (2, 5))
    found = [Setting(*values) for values in combinations]
    order = np.random.default_rng(0).permutation(len(found))
    chosen = [found[i] for i in order]
    return chosen[: len(chosen) // (4 if quick else 2)]


def cut(setting: Setting, seed: int) -> Iterator[pd.DataFrame]:
    """Yield the verdicts of one cloud that is cut: by the model; of density clusterings also by labels alone."""
    generator = np.random.default_rng([seed, setting.d, setting.n, setting.k, [*SHAPES].index(setting.shape)])
    X = SHAPES[setting.shape](generator, setting.n, setting.d)
    model = MODELS[setting.model](X, setting.k)
    labels = None
    if model is not None:
        labels = model.predict(X) if setting.model == "Gaussian mixture" else model.labels_
    if labels is None or len({*labels.tolist()} - {-1}) < 2:
        return
    frame = separation(X, model, random_state=seed).to_frame()
    yield frame.assign(**setting._asdict())
    if setting.model in DENSITY:
        frame = separation(X, labels, random_state=seed).to_frame()
        yield frame.assign(**setting._replace(model=f"{setting.model}, labels alone")._asdict())


def rates(frame: pd.DataFrame, by: list[str]) -> Table:
    """Return the number of pairs that were judged, and how many are called separated."""
    rows = []
    for key, group in frame.groupby(by, sort=False):
        judged = group[group["verdict"].isin(["separated", "slices"])]
        row = dict(zip(by, key, strict=True)) | {"pairs": len(judged), "other pairs": len(group) - len(judged)}
        row["separated"] = (judged["verdict"] == "separated").mean()
        row["p <= 0.05"] = (judged["p"] <= 0.05).mean()
        row["largest saddle"] = judged["saddle"].max()
        rows.append(row)
    return rows


def single_clouds(report: Report, quick: bool) -> None:
    """Report the rates of false separations."""
    for half, chosen, seed in (
        ("chosen on", settings(quick)[::2], 1),
        ("held out", settings(quick)[1::2], SEED),
    ):
        frames = []
        for setting in chosen:
            frames += cut(setting, seed)
        frame = pd.concat(frames)
        by_labels = frame["model"].str.endswith("alone")
        report.table(BY_CLUSTERING[half], rates(frame, ["model"]), NOTE)
        report.table(f"Parts of one cloud, {half}, by shape", rates(frame[~by_labels], ["shape"]), NOTE)
        progress(f"parts of one cloud, {half}")


def pair(n: int, d: int, distance: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw two Gaussian clusters at a distance in standard deviations, and cut them by k-means."""
    generator = np.random.default_rng([seed, n, d, int(10 * distance)])
    X = generator.normal(size=(n, d))
    X[: n // 2, 0] += distance
    return X, KMeans(2, n_init=3, random_state=0).fit_predict(X)


def power(report: Report, quick: bool) -> None:
    """Report how many pairs at a distance are called separated."""
    n_repeats = 5 if quick else 20
    rows = []
    for n in (60, 100, 300, 1000):
        for d in (2, 10, 50):
            row: dict[str, Any] = {"rows": n, "columns": d}
            for distance in (3, 4, 5, 6):
                verdicts = []
                for repeat in range(n_repeats):
                    X, labels = pair(n, d, distance, SEED + repeat)
                    verdicts += [*separation(X, labels, random_state=repeat).to_frame()["verdict"]]
                row[f"{distance} s.d."] = np.mean([verdict == "separated" for verdict in verdicts])
            rows.append(row)
    note = f"Pairs of Gaussian clusters, found by k-means, called separated; {n_repeats} of each."
    report.table(PAIRS, rows, note)


def hierarchy(seed: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw three groups of two to four Gaussian clusters, 6 times their largest standard deviation apart."""
    generator = np.random.default_rng([seed, d])
    centers: list[np.ndarray] = []
    groups = generator.normal(size=(3, d))
    groups *= 40 / np.linalg.norm(groups, axis=1, keepdims=True)
    for group in groups:
        n_before = len(centers)
        n_clusters = int(generator.integers(2, 5))
        while len(centers) < n_before + n_clusters:
            step = generator.normal(size=d)
            center = group + step * generator.uniform(6, 10) / np.linalg.norm(step)
            if all(np.linalg.norm(center - other) >= 6 for other in centers):
                centers.append(center)
    sizes = generator.integers(100, 400, len(centers))
    leaves = np.repeat(np.arange(len(centers)), sizes)
    spread = generator.uniform(0.5, 1, (len(centers), d))
    return np.array(centers)[leaves] + generator.normal(size=(len(leaves), d)) * spread[leaves], leaves


def planted(report: Report, quick: bool) -> None:
    """Report how many pairs of planted clusters are separated, and how many halves of them are slices."""
    rows = []
    for d in (2, 5, 20):
        verdicts: dict[str, list[str]] = {"clusters": [], "halves of one": []}
        for repeat in range(2 if quick else 8):
            X, leaves = hierarchy(SEED + repeat, d)
            verdicts["clusters"] += [*separation(X, leaves).to_frame()["verdict"]]
            halves = np.empty_like(leaves)
            for leaf in np.unique(leaves):
                of_leaf = leaves == leaf
                halves[of_leaf] = 2 * leaf + KMeans(2, n_init=3, random_state=0).fit_predict(X[of_leaf])
            frame = separation(X, halves).to_frame()
            is_one = frame["a"] // 2 == frame["b"] // 2
            verdicts["halves of one"] += [*frame.loc[is_one, "verdict"]]
        for kind, found in verdicts.items():
            shares = {word: np.mean([verdict == word for verdict in found]) for word in ("separated", "slices")}
            rows.append({"columns": d, "pairs of": kind, "pairs": len(found), **shares})
    report.table(HIERARCHIES, rows, "Halves are those of 2-means in each planted cluster.")


def shapes_without_axis(report: Report, quick: bool) -> None:
    """Report moons and rings."""
    kinds: dict[str, Callable[..., tuple[np.ndarray, np.ndarray]]] = {
        "moons, noise 0.05": partial(make_moons, noise=0.05),
        "moons, noise 0.1": partial(make_moons, noise=0.1),
        "rings, noise 0.05": partial(make_circles, noise=0.05, factor=0.5),
    }
    rows = []
    for n, (name, make) in product((200, 400, 1000), kinds.items()):
        verdicts = []
        for repeat in range(3 if quick else 10):
            X, labels = make(n, random_state=SEED + repeat)
            verdicts += [*separation(X, labels).to_frame()["verdict"]]
        is_separated = [verdict == "separated" for verdict in verdicts]
        rows.append({"shape": name, "rows": n, "separated": np.mean(is_separated)})
    report.table(SHAPES_WITHOUT_AXIS, rows, "With their true labels.")


def tables() -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yield real tables and pairs at several distances, with clusters."""
    for load, k in ((load_iris, 3), (load_wine, 3), (load_breast_cancer, 2), (load_digits, 10)):
        X = scale(load().data)
        for n_clusters in (k, 2 * k):
            yield load.__name__, X, KMeans(n_clusters, n_init=3, random_state=0).fit_predict(X)
    for n, d, distance in product((100, 300), (2, 10), (3, 4, 5)):
        yield f"{distance} s.d.", *pair(n, d, distance, SEED)
    for shape, draw in SHAPES.items():
        X = draw(np.random.default_rng(SEED), 500, 5)
        yield shape, X, KMeans(4, n_init=3, random_state=0).fit_predict(X)


def seeds(report: Report) -> None:
    """Report how many verdicts are the same under three seeds, and the processor time of a pair."""
    rows = []
    for name, X, labels in tables():
        begin = time.process_time()
        verdicts = pd.concat(
            [separation(X, labels, random_state=seed).to_frame()["verdict"] for seed in range(3)], axis=1
        )
        seconds = (time.process_time() - begin) / verdicts.size
        n_equal = int((verdicts.nunique(axis=1) == 1).sum())
        rows.append({"data": name, "pairs": len(verdicts), "equal": n_equal, "seconds a pair": seconds})
    n_pairs = sum(row["pairs"] for row in rows)
    n_equal = sum(row["equal"] for row in rows)
    mean = sum(row["pairs"] * row["seconds a pair"] for row in rows) / n_pairs
    rows.append({"data": "all", "pairs": n_pairs, "equal": n_equal / n_pairs, "seconds a pair": mean})
    report.table(EQUAL, rows, "Pairs with the same verdict under three seeds; below, their fraction.")


def figures(report: dict[str, Any]) -> str:
    """Return the tables of the guide."""
    tables = {heading: pd.DataFrame(table["rows"]) for heading, table in report["tables"].items()}
    rows = [
        *_of_clouds(tables[BY_CLUSTERING["held out"]], tables[BY_CLUSTERING["chosen on"]]),
        *_of_hierarchies(tables[HIERARCHIES]),
        *_of_shapes(tables[SHAPES_WITHOUT_AXIS]),
    ]
    over_all = tables[EQUAL].iloc[-1]
    rows.append(
        ("verdicts that are the same under three seeds", f"{over_all['equal']:.0%} of {over_all['pairs']}")
    )
    rows.append(("seconds a pair, of one core", f"{over_all['seconds a pair']:.2f}"))
    lines = ["| pairs | |", "|---|---|", *(f"| {what} | {value} |" for what, value in rows)]
    distances = [column for column in tables[PAIRS] if column.endswith("s.d.")]
    pairs = tables[PAIRS].assign(
        **{distance: tables[PAIRS][distance].map("{:.0%}".format) for distance in distances}
    )
    lines += [
        "",
        "Gaussian clusters at a distance in standard deviations, found by k-means, that are called separated:",
        "",
    ]
    return "\n".join([*lines, markdown(pairs.to_dict("records"))])


def _of_clouds(held_out: pd.DataFrame, chosen_on: pd.DataFrame) -> list[tuple[str, str]]:
    """Return how many parts of clouds are called separated, in words and as a number."""
    by_labels = held_out["model"].str.endswith("alone")
    also_by_labels = chosen_on["model"].str.endswith("alone")
    what = f"parts of one cloud of {len(SHAPES)} shapes, by {len(MODELS)} clusterings, called separated"
    return [
        (what, _count(held_out[~by_labels], "separated")),
        ("of these, density clusterings", _count(held_out[held_out["model"].isin(DENSITY)], "separated")),
        ("density clusterings of which labels alone are passed", _count(held_out[by_labels], "separated")),
        ("parts of clouds that thresholds were chosen on", _count(chosen_on[~also_by_labels], "separated")),
    ]


def _of_hierarchies(planted: pd.DataFrame) -> list[tuple[str, str]]:
    """Return how many verdicts on planted clusters and on their halves are right."""
    clusters = planted[planted["pairs of"] == "clusters"]
    halves = planted[planted["pairs of"] == "halves of one"]
    return [
        ("clusters of planted hierarchies, called separated", _count(clusters, "separated")),
        ("halves of these clusters, called slices", _count(halves, "slices")),
    ]


def _of_shapes(shapes: pd.DataFrame) -> list[tuple[str, str]]:
    """Return the rates of moons and rings, by their number of rows."""
    rows = []
    for shape, of_shape in shapes.groupby("shape", sort=False):
        sizes = ", ".join(f"{n:,}" for n in of_shape["rows"])
        rates = [f"{rate:.0%}" for rate in of_shape["separated"]]
        rows.append((f"{shape}, {sizes} rows, called separated", ", ".join(rates)))
    return rows


def _count(rows: pd.DataFrame, verdict: str) -> str:
    """Write how many pairs have a verdict, of which the table has the rates."""
    n = int((rows["pairs"] * rows[verdict]).round().sum())
    return f"{n} of {rows['pairs'].sum()}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="half of the settings, and few repeats")
    parser.add_argument("--json", metavar="FILE", help="save the tables")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # of mixtures that do not converge
    report = Report("Separated clusters, or slices of one cloud")
    with neonxc.progress(False):
        power(report, options.quick)
        planted(report, options.quick)
        shapes_without_axis(report, options.quick)
        seeds(report)
        single_clouds(report, options.quick)
    report.close(options.json)


if __name__ == "__main__":
    main()
