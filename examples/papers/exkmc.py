"""Rerun the experiments of ExKMC: the cost of a clustering against the number of leaves of the tree.

    python examples/papers/exkmc.py --quick
    python examples/papers/exkmc.py --data FOLDER

Figures 2, 4 and 5 of N. Frost, M. Moshkovitz, C. Rashtchian, "ExKMC: Expanding explainable k-means clustering",
2020: trees of k to 5k leaves for k clusters, by six methods. CUBT and CLTree use no reference clustering; at each
number of leaves, their parameters (B.3) are those of least cost. FOLDER is the same as for exshallow.py.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from datasets import Dataset, synthetic_one, synthetic_two, tables, toys
from exshallow import Record, select
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullLocator
from reports import interval, markdown, tidy
from sklearn.cluster import KMeans
from tqdm import tqdm

from neonxc.evaluation import cost_ratio, kmeans_cost, surrogate_cost
from neonxc.trees import CART, CUBT, IMM, CLTree, ExKMC, KDTree

BASED = "ExKMC (base: IMM)"
# number of clusters, number of leaves, and the tree with fewer leaves
METHODS: dict[str, Callable[[int, int, Any], Any]] = {
    "ExKMC": lambda k, leaves, tree: ExKMC(k, base=tree or "none", max_leaves=leaves),
    BASED: lambda k, leaves, tree: ExKMC(k, base=tree or "imm", max_leaves=leaves),
    "CART": lambda k, leaves, tree: CART(k, max_leaves=leaves),
    "KDTree": lambda k, leaves, tree: KDTree(k, max_leaves=leaves),
}
GRIDS: dict[str, tuple[type, dict[str, tuple[float, ...]]]] = {
    "CUBT": (
        CUBT,
        {"min_size": (5, 10, 15), "min_dev": (0.001, 0.7, 0.9), "min_dist": (0.3, 0.5), "delta": (0.2, 0.4, 0.6)},
    ),
    "CLTree": (CLTree, {"min_y": (0.001, 0.005, 0.01, 0.02, 0.05), "min_rd": (0.1, 0.3, 0.5, 0.7, 0.9)}),
}
QUICK = {
    "CUBT": {"min_size": (10,), "min_dev": (0.001,), "min_dist": (0.3,), "delta": (0.2,)},
    "CLTree": {"min_y": (0.01, 0.05), "min_rd": (0.1, 0.5)},
}
SMALL = 250e6  # CUBT and CLTree are run on tables with at most this value of n d (n + d)
ROUND = np.fromstring("1.02 1.05 1.1 1.15 1.2 1.3 1.4 1.5 1.6 1.8 2 2.5 3 4 5 7 10 15 20 30 50 100 200", sep=" ")
STYLES: dict[str, dict[str, Any]] = {
    "CLTree": {"color": "C4"},
    "CUBT": {"color": "C1"},
    "KDTree": {"color": "C2"},
    "CART": {"color": "C0"},
    "ExKMC": {"color": "black", "ls": "--"},
    BASED: {"color": "black", "lw": 2},
}


def explained(data: Dataset, seed: int, numbers: Sequence[int]) -> tuple[np.ndarray, list[Record], list[Record]]:
    """Fit one k-means clustering and return its centers, the costs of its trees by number of leaves, and the
    times."""
    start = time.perf_counter()
    kmeans = KMeans(data.k, n_init=10, max_iter=300, random_state=seed).fit(data.X)
    where = {"dataset": data.name, "k": data.k, "seed": seed}
    first = time.perf_counter() - start
    times = [{**where, "method": "KMeans", "seconds": first}]
    centers = kmeans.cluster_centers_
    records = []
    for name, make in METHODS.items():
        tree = None
        for leaves in numbers:
            model = make(data.k, leaves, tree).fit(data.X, centers=centers)
            tree = model.tree_
            cost = cost_ratio(data.X, model.labels_, kmeans.labels_)
            records.append({**where, "method": name, "leaves": leaves, "cost": cost})
            if name == BASED:
                surrogate = surrogate_cost(data.X, model.tree_.apply(data.X), centers)
                records[-1]["surrogate"] = surrogate / kmeans.inertia_
    for name, model in (("IMM", IMM(data.k)), ("ExKMC, 2k leaves", ExKMC(data.k, max_leaves=2 * data.k))):
        start = time.perf_counter()
        model.fit(data.X, centers=centers)
        times.append({**where, "method": name, "seconds": first + time.perf_counter() - start})
    return centers, records, times


def unguided(data: Dataset, references: Sequence[np.ndarray], numbers: Sequence[int], quick: bool) -> list[Record]:
    """Return the least costs over the parameter grids of CUBT (its own clusters) and CLTree (whose leaves get
    labels)."""
    distances = [((data.X[:, None] - centers) ** 2).sum(2) for centers in references]
    bases = [nearest.min(1).sum() for nearest in distances]
    best: dict[tuple[str, int, int], float] = {}
    for name, (method, grid) in GRIDS.items():
        grid = {**grid, **QUICK[name]} if quick else grid
        for values, leaves in product(product(*grid.values()), numbers):
            own = {"n_clusters": data.k} if method is CUBT else {}
            model = method(**own, max_leaves=leaves, **dict(zip(grid, values, strict=True))).fit(data.X)
            for seed, (nearest, base) in enumerate(zip(distances, bases, strict=True)):
                labels = model.labels_ if method is CUBT else labelled(model.labels_, nearest)
                cost = kmeans_cost(data.X, labels) / base
                best[name, leaves, seed] = min(cost, best.get((name, leaves, seed), np.inf))
    return [
        {"dataset": data.name, "k": data.k, "seed": seed, "method": name, "leaves": leaves, "cost": cost}
        for (name, leaves, seed), cost in best.items()
    ]


def labelled(leaves: np.ndarray, distances: np.ndarray) -> np.ndarray:
    """Assign every leaf to the center of least cost: from leaves [n] and distances [n, k] to labels [n]."""
    sums = np.zeros((leaves.max() + 1, distances.shape[1]))
    np.add.at(sums, leaves, distances)
    return sums.argmin(1)[leaves]


def leaf_numbers(k: int, quick: bool) -> list[int]:
    """Numbers of leaves from k to 5k."""
    return sorted({round(k * share) for share in np.linspace(1, 5, 5 if quick else 9)})


def panels(names: Sequence[str]) -> tuple[Figure, list[Axes]]:
    """Make a figure with one panel per data set."""
    columns = min(4, len(names))
    rows = -(-len(names) // columns)
    figure = Figure(figsize=(2.9 * columns + 0.4, 2.5 * rows + 0.5), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for name, one in zip(names, axes, strict=False):
        one.set_title(name, fontsize=10)
        one.tick_params(labelsize=8)
        tidy(one)
    for one in axes[len(names) :]:
        one.set_axis_off()
    figure.supxlabel("leaves", fontsize=10)
    return figure, axes


def curve(axes: Axes, records: Sequence[Record], metric: str, style: dict[str, Any]) -> None:
    """Draw a metric against the number of leaves: the mean over seeds and its 95% confidence interval."""
    numbers = sorted({r["leaves"] for r in records})
    values = [select(records, metric, leaves=leaves) for leaves in numbers]
    mean = np.array([value.mean() for value in values])
    error = np.array([interval(value) for value in values])
    axes.plot(numbers, mean, marker="o", ms=2.5, **style)
    axes.fill_between(numbers, mean - error, mean + error, color=style["color"], alpha=0.15, lw=0)
    axes.set_xticks([records[0]["k"] * times for times in range(1, 6)])


def figure_2(records: Sequence[Record]) -> Figure:
    """Draw the cost ratio of every method against the number of leaves, on a logarithmic scale."""
    names = list(dict.fromkeys(r["dataset"] for r in records))
    figure, panel = panels(names)
    for name, axes in zip(names, panel, strict=False):
        for method, style in STYLES.items():
            own = [r for r in records if r["dataset"] == name and r["method"] == method]
            if own:
                curve(axes, own, "cost", style)
        logarithmic(axes)
    handles = [Line2D([], [], label=method, **style) for method, style in reversed(STYLES.items())]
    figure.legend(handles=handles, loc="outside upper center", ncols=6, frameon=False, fontsize=9)
    figure.supylabel("cost ratio to k-means", fontsize=10)
    return figure


def logarithmic(axes: Axes) -> None:
    """Set a logarithmic scale with round numbers at about equal distances."""
    low, high = axes.get_ylim()
    low = max(low, 0.985)
    axes.set_yscale("log")
    axes.yaxis.set_minor_locator(NullLocator())
    ticks = [1.0]
    for tick in ROUND:
        if tick <= high and tick / ticks[-1] >= (high / low) ** 0.13:
            ticks.append(tick)
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_ylim(low, high)


def figure_4(times: Sequence[Record]) -> Figure:
    """Draw stacked running times: k-means, then the tree."""
    names = list(dict.fromkeys(r["dataset"] for r in times))
    methods = list(dict.fromkeys(r["method"] for r in times))
    figure = Figure(figsize=(0.62 * len(names) + 3.6, 3.6), layout="constrained")
    axes = figure.add_subplot()
    values = np.array([[select(times, "seconds", dataset=n, method=m).mean() for m in methods] for n in names])
    axes.vlines(range(len(names)), values.min(1), values.max(1), color="0.8", lw=1, zorder=1)
    for method, column, color in zip(methods, values.T, ("0.6", "C0", "black"), strict=True):
        label = method if method == "KMeans" else f"{method} (with KMeans)"
        axes.plot(range(len(names)), column, "o", ms=5, color=color, label=label)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xticks(range(len(names)), names, **({"rotation": 40, "ha": "right"} if len(names) > 5 else {}))
    axes.set_xlim(-0.6, len(names) - 0.4)
    axes.set_ylabel("seconds")
    tidy(axes)
    figure.legend(
        loc="outside upper center", ncols=3, frameon=False, fontsize=8, handletextpad=0.2, columnspacing=1
    )
    return figure


def figure_5(records: Sequence[Record]) -> Figure:
    """Draw the surrogate cost and the actual cost of ExKMC with the tree of IMM as its base."""
    names = list(dict.fromkeys(r["dataset"] for r in records))
    figure, panel = panels(names)
    for name, axes in zip(names, panel, strict=False):
        own = [r for r in records if r["dataset"] == name and r["method"] == BASED]
        curve(axes, own, "surrogate", {"color": "C3", "ls": "--"})
        curve(axes, own, "cost", {"color": "black"})
    lines = (("surrogate: reference centers", "C3", "--"), ("actual: means of clusters", "black", "-"))
    handles = [Line2D([], [], label=label, color=color, ls=style) for label, color, style in lines]
    figure.legend(handles=handles, loc="outside upper center", ncols=2, frameon=False, fontsize=9)
    figure.supylabel("cost ratio to k-means", fontsize=10)
    return figure


def report(records: Sequence[Record], times: Sequence[Record]) -> str:
    """Write the cost ratios at k, 3k and 5k leaves, and the running times."""
    rows = []
    for name in dict.fromkeys(r["dataset"] for r in records):
        k = int(select(records, "k", dataset=name)[0])
        for leaves in (k, 3 * k, 5 * k):
            values = [select(records, "cost", dataset=name, leaves=leaves, method=method) for method in STYLES]
            cells = [f"{v.mean():.3f} ± {interval(v):.3f}" if len(v) else "" for v in reversed(values)]
            rows.append([name, str(k), str(leaves), *cells])
    methods = list(dict.fromkeys(r["method"] for r in times))
    seconds = [
        [name, *(f"{select(times, 'seconds', dataset=name, method=m).mean():.3f}" for m in methods)]
        for name in dict.fromkeys(r["dataset"] for r in times)
    ]
    return "\n\n".join(
        [
            markdown("Figure 2: cost ratio", ["dataset", "k", "leaves", *reversed(STYLES)], rows),
            markdown("Figure 4: seconds, k-means included", ["dataset", *methods], seconds),
        ]
    )


def main(
    quick: Annotated[bool, typer.Option("--quick", help="Four small datasets, 3 seeds, few parameters.")] = False,
    seeds: Annotated[int, typer.Option(min=1, help="k-means clusterings of every dataset.")] = 5,
    data: Annotated[Path | None, typer.Option(help="Folder of further tables NAME.csv.gz.")] = None,
    synthetic: Annotated[bool, typer.Option(help="Synthetic I and II, of 1,000 features.")] = True,
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("runs/exkmc"),
) -> None:
    """Rerun Figures 2, 4 and 5 of the ExKMC paper."""
    seeds = min(seeds, 3) if quick else seeds
    found = toys("iris", "digits") if quick else toys()
    found += tables(data) if data is not None else []
    # nu^2 grows with the cost of the other points, so that small tables are as hard as large ones
    if synthetic and quick:
        found += [synthetic_one(400, 60, nu=70, changed=6), synthetic_two(6, 60)]
    elif synthetic:
        found += [synthetic_one(), synthetic_two()]
    out.mkdir(parents=True, exist_ok=True)
    records: list[Record] = []
    times: list[Record] = []
    explained(found[0], 0, [found[0].k])  # loading modules at the first call does not count as running time
    bar = tqdm(total=len(found) * seeds, desc="clusterings")
    for dataset in found:
        numbers = leaf_numbers(dataset.k, quick)
        references = []
        for seed in range(seeds):
            centers, trees, seconds = explained(dataset, seed, numbers)
            references.append(centers)
            records += trees
            times += seconds
            bar.update()
        if dataset.X.size * sum(dataset.X.shape) <= SMALL:
            records += unguided(dataset, references, numbers, quick)
        text = report(records, times)  # after every table, so that an interrupted run keeps its results
        (out / "tables.md").write_text(text + "\n", encoding="utf-8")
        (out / "results.json").write_text(json.dumps({"trees": records, "times": times}, indent=1))
    bar.close()
    typer.echo(text)
    for name, figure in (("2", figure_2(records)), ("4", figure_4(times)), ("5", figure_5(records))):
        figure.savefig(out / f"figure_{name}.png", dpi=150)
    typer.echo(f"\n{out}: tables.md, results.json, figure_2.png, figure_4.png, figure_5.png")


if __name__ == "__main__":
    typer.run(main)
