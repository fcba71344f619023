"""Rerun the experiments of ExShallow: the cost of trees with k leaves and the length of their explanations.

    python examples/papers/exshallow.py --quick
    python examples/papers/exshallow.py --data FOLDER

Tables 2, 3 and 4 and Figures 4 and 5 of E. S. Laber, L. Murtinho, F. Oliveira, "Shallow decision trees for
explainable k-means clustering", Pattern Recognition, 2023. All trees of one seed explain the same k-means
clustering. FOLDER contains tables NAME.csv.gz of numeric columns and a last column `label`, which are added to the
data sets of scikit-learn.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from datasets import Dataset, tables, toys
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from reports import interval, markdown, tidy
from scipy import stats
from sklearn.cluster import KMeans
from tqdm import tqdm

from neonxc.evaluation import cost_ratio, label_agreement, wad, waes
from neonxc.trees import IMM, ExGreedy, ExKMC, ExShallow

Record = dict[str, Any]
CHOSEN = 0.03  # the paper's depth factor
FACTORS = (0.0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2)
ALGORITHMS: dict[str, Callable[[int], Any]] = {
    "ExShallow": lambda k: ExShallow(k, depth_factor=CHOSEN),
    "ExGreedy": lambda k: ExGreedy(k),
    "IMM": lambda k: IMM(k),
    "ExKMC": lambda k: ExKMC(k, base="none", max_leaves=k),
}
METRICS = {  # keys of a record: the title, and whether a smaller number is better
    "cost": ("cost ratio", True),
    "waes": ("WAES", True),
    "wad": ("WAD", True),
    "nmi": ("NMI", False),
}
LEGEND = "Means over seeds; bold: best; ▲ ▼: larger, smaller than {} (one-sided t-tests at 95%)."


def compare(data: Dataset, seed: int) -> list[Record]:
    """Explain one k-means clustering by every algorithm; return a record for each, and one for k-means itself."""
    start = time.perf_counter()
    kmeans = KMeans(data.k, n_init=10, random_state=seed).fit(data.X)
    first = time.perf_counter() - start
    centers = kmeans.cluster_centers_
    records = [{"dataset": data.name, "k": data.k, "seed": seed, "algorithm": "k-means", "seconds": first}]

    def measure(name: str, fit: Callable[[], Any]) -> Record:
        start = time.perf_counter()
        model = fit()
        seconds = first + time.perf_counter() - start
        record = {
            **records[0],
            "algorithm": name,
            "seconds": seconds,
            "cost": cost_ratio(data.X, model.labels_, kmeans.labels_),
            "waes": waes(model.tree_),
            "wad": wad(model.tree_),
            "nmi": label_agreement(model.labels_, kmeans.labels_)["nmi"],
        }
        if isinstance(model, ExShallow):
            record["depth_factor"] = model.depth_factor_
        records.append(record)
        return record

    for name, make in ALGORITHMS.items():
        goal = measure(name, lambda make=make: make(data.k).fit(data.X, centers=centers))  # ExKMC's last tree
    tuned = ExShallow(data.k, depth_factor=CHOSEN)
    goals = {"goal_cost": goal["cost"], "goal_waes": goal["waes"]}
    measure("ExShallow*", lambda: tuned.tune_depth_factor(data.X, centers=centers, **goals))
    return records


def vary(data: Dataset, seed: int, factors: Sequence[float]) -> list[Record]:
    """Explain one k-means clustering with every depth factor."""
    kmeans = KMeans(data.k, n_init=10, random_state=seed).fit(data.X)
    records = []
    for factor in factors:
        model = ExShallow(data.k, depth_factor=factor).fit(data.X, centers=kmeans.cluster_centers_)
        cost = cost_ratio(data.X, model.labels_, kmeans.labels_)
        size = waes(model.tree_)
        records.append({"dataset": data.name, "seed": seed, "depth_factor": factor, "cost": cost, "waes": size})
    return records


def select(records: Sequence[Record], key: str, **where: Any) -> np.ndarray:
    """Select one value of all records that match `where`."""
    return np.array([r[key] for r in records if all(r[name] == value for name, value in where.items())])


def differs(values: np.ndarray, base: np.ndarray) -> str:
    """Return ▲ or ▼ if the values are larger or smaller by a one-sided t-test with equal variances at the 95%
    level."""
    if len(base) < 2 or np.allclose(values, base, rtol=1e-9):
        return ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # neither sample has any variance
        for sign, alternative in (("▲", "greater"), ("▼", "less")):
            if stats.ttest_ind(values, base, alternative=alternative).pvalue < 0.05:
                return sign
    return ""


def compared(records: Sequence[Record], metric: str, algorithms: Sequence[str], base: str) -> list[list[str]]:
    """Rows of a table: the mean of a metric by data set and algorithm, then the medians over data sets."""
    rows = []
    means = []
    for name in dict.fromkeys(r["dataset"] for r in records):
        values = [select(records, metric, dataset=name, algorithm=algorithm) for algorithm in algorithms]
        reference = select(records, metric, dataset=name, algorithm=base)
        texts = [f"{value.mean():.2f}" for value in values]
        best = (min if METRICS[metric][1] else max)(texts, key=float)
        cells = [
            (f"**{text}**" if text == best else text) + (differs(value, reference) or " ")
            for text, value in zip(texts, values, strict=True)
        ]
        rows.append([name, str(int(select(records, "k", dataset=name)[0])), *cells])
        means.append([value.mean() for value in values])
    rows.append(["median", "", *(f"{value:.2f} " for value in np.median(means, axis=0))])
    return rows


def report(records: Sequence[Record]) -> str:
    """Write Tables 2, 3 and 4."""
    parts = []
    for metric, (title, _) in METRICS.items():
        rows = compared(records, metric, list(ALGORITHMS), "ExShallow")
        parts.append(markdown(f"Table 2: {title}", ["dataset", "k", *ALGORITHMS], rows))
    parts[-1] += "\n\n" + LEGEND.format("ExShallow's") + " NMI: with the k-means clustering."
    pair = ["ExKMC", "ExShallow*"]
    blocks = [compared(records, metric, pair, "ExShallow*") for metric in METRICS]
    rows = [[*whole[0][:2], *(cell for row in whole for cell in row[2:])] for whole in zip(*blocks, strict=True)]
    header = ["dataset", "k", *(f"{title}: {name}" for title, _ in METRICS.values() for name in pair)]
    parts.append(markdown("Table 3: a tuned depth factor", header, rows, LEGEND.format("ExShallow*'s")))
    names = ["k-means", *ALGORITHMS, "ExShallow*"]
    datasets = list(dict.fromkeys(r["dataset"] for r in records))
    seconds = np.array(
        [[select(records, "seconds", dataset=data, algorithm=name).mean() for name in names] for data in datasets]
    )
    rows = [
        [data, *(f"{value:.3f}" for value in row)]
        for data, row in zip([*datasets, "median"], np.vstack([seconds, np.median(seconds, axis=0)]), strict=True)
    ]
    note = "Means over seeds; all but the first include k-means."
    parts.append(markdown("Table 4: seconds", ["dataset", *names], rows, note))
    return "\n\n".join(parts)


def figures(records: Sequence[Record]) -> Figure:
    """Draw Figures 4 and 5: explanation size and cost against the depth factor, for each data set and on
    average."""
    factors = sorted({r["depth_factor"] for r in records})
    names = list(dict.fromkeys(r["dataset"] for r in records))
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    for axes, metric, title in zip(
        figure.subplots(1, 2),
        ("waes", "cost"),
        ("explanation size (WAES)\nover that at λ = 0", "k-means cost\nover that of k-means"),
        strict=True,
    ):
        runs = []  # [dataset][factor, seed]
        for name in names:
            values = np.array([select(records, metric, dataset=name, depth_factor=f) for f in factors])
            runs.append(values / values[0].mean() if metric == "waes" else values)
            axes.plot(factors, runs[-1].mean(1), color="0.75", lw=1, zorder=1)
        pooled = np.concatenate(runs, axis=1)
        mean = pooled.mean(1)
        error = [interval(row) for row in pooled]
        axes.errorbar(factors, mean, error, fmt="o-", ms=4, color="C0", capsize=2.5, label="mean, 95% interval")
        if CHOSEN in factors:
            place = factors.index(CHOSEN)
            axes.errorbar(
                CHOSEN, mean[place], error[place], fmt="o", ms=6, color="C3", capsize=2.5, label=f"λ = {CHOSEN}"
            )
        end_labels(axes, names, [run[-1].mean() for run in runs], factors[-1])
        axes.set_xlabel("depth factor λ")
        axes.set_ylabel(title)
        tidy(axes)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=2, frameon=False, fontsize=9)
    return figure


def end_labels(axes: Axes, names: Sequence[str], values: Sequence[float], x: float, size: float = 7) -> None:
    """Write names at the right ends of lines, moved apart where they would overlap."""
    axes.figure.draw_without_rendering()
    low, high = axes.get_ylim()
    apart = (high - low) * 1.25 * size / 72 * axes.figure.dpi / axes.get_window_extent().height
    order = np.argsort(values, kind="stable")
    places = np.asarray(values, dtype=float)[order]
    for _ in range(1000):  # labels that are too close are moved apart
        short = np.clip(apart - np.diff(places), 0, None) / 2
        if short.max(initial=0) < 1e-3 * apart:
            break
        places[:-1] -= short
        places[1:] += short
        places = places.clip(low, high)
    for which, place in zip(order, places, strict=True):
        style = {"fontsize": size, "color": "0.4", "va": "center", "annotation_clip": False}
        axes.annotate(names[which], (x, place), (5, 0), textcoords="offset points", **style)
    axes.set_ylim(low, high)


def main(
    quick: Annotated[bool, typer.Option("--quick", help="Iris and digits, 3 seeds.")] = False,
    seeds: Annotated[int, typer.Option(min=1, help="k-means clusterings of every dataset.")] = 30,
    data: Annotated[Path | None, typer.Option(help="Folder of further tables NAME.csv.gz.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("runs/exshallow"),
) -> None:
    """Rerun Tables 2 to 4 and Figures 4 and 5 of the ExShallow paper."""
    seeds, factors = (min(seeds, 3), FACTORS[::3]) if quick else (seeds, FACTORS)
    found = toys("iris", "digits") if quick else toys()
    found += tables(data) if data is not None else []
    out.mkdir(parents=True, exist_ok=True)
    trees = []
    sweep = []
    compare(found[0], seed=0)  # loading modules at the first call does not count as running time
    for dataset, seed in tqdm([(dataset, seed) for dataset in found for seed in range(seeds)], "clusterings"):
        trees += compare(dataset, seed)
        sweep += vary(dataset, seed, factors) if seed < 10 else []
    text = report(trees)
    typer.echo(text)
    (out / "tables.md").write_text(text + "\n", encoding="utf-8")
    (out / "results.json").write_text(json.dumps({"trees": trees, "depth factors": sweep}, indent=1))
    figures(sweep).savefig(out / "figures_4_5.png", dpi=150)
    typer.echo(f"\n{out}: tables.md, results.json, figures_4_5.png")


if __name__ == "__main__":
    typer.run(main)
