"""Rerun the experiments on β-interpretable clustering: the cost of homogeneous clusters.

    python examples/papers/beta_interpretable.py --quick
    python examples/papers/beta_interpretable.py --data FOLDER --figure 2 --figure 3

Figures 2 to 5 of S. Saisubramanian, S. Galhotra, S. Zilberstein, "Balancing the tradeoff between clustering value
and interpretability", AIES 2020, on Adult, with age and income as features of interest, and on Communities and
Crime, with the rate of violent crimes. FOLDER contains adult.csv.gz and communities.csv.gz; without it, both are
fetched from OpenML. The other two tables of the paper, on sanitation and accidents in Kenya, are left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from reports import machine, rows_table, save
from sklearn.datasets import fetch_openml
from tqdm import tqdm

from neonxc.evaluation import interpretability, kcenter_cost
from neonxc.models import BetaInterpretable, KCenter, StronglyInterpretable, patterns
from neonxc.plot.images import cluster_colors

Record = dict[str, Any]
TITLE = "Interpretable clusterings"
K = 5
METRIC = "gower"
BETAS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
CLUSTERS = (10, 20, 30, 40, 50)
MARKERS = {"KC": "s", "KC*": "P", "P_F": "^", "KC_F": "v", "β-IC": "o", "IKC": "D"}
WHAT = {
    "KC": "greedy k-center on all columns",
    "KC*": "`BetaInterpretable` without features of interest, which moves the centers of greedy k-center",
    "P_F": "a partition by the values of interest",
    "KC_F": "greedy k-center on the columns of interest",
    "β-IC": "`BetaInterpretable`",
    "IKC": "`StronglyInterpretable`",
}


@dataclass(frozen=True)
class Data:
    """A table and its features of interest."""

    name: str
    X: pd.DataFrame
    foi: list[str]
    bins: int  # of a feature of interest

    def sample(self, n: int) -> Data:
        """Draw a fixed sample of the rows."""
        rows = self.X.sample(min(n, len(self.X)), random_state=0).reset_index(drop=True)
        return Data(self.name, rows, self.foi, self.bins)


def adult(folder: Path | None) -> Data:
    """Adult: numbers and categories; the features of interest are two bins of age and two of income."""
    if folder is None:
        X = fetch_openml("adult", version=2, as_frame=True, parser="auto").frame.rename(
            columns={"class": "income"}
        )
    else:
        X = pd.read_csv(folder / "adult.csv.gz")
    weights_of_the_census = [column for column in X.columns if column.startswith("fnlwgt")]
    return Data("Adult", X.drop(columns=weights_of_the_census), ["age", "income"], 2)


def communities(folder: Path | None) -> Data:
    """Communities and Crime: numbers, some missing; the feature of interest has four bins of violent crimes."""
    foi = "ViolentCrimesPerPop"
    if folder is None:
        X = fetch_openml("us_crime", version=2, as_frame=True, parser="auto").frame
    else:
        X = pd.read_csv(folder / "communities.csv.gz")
        X = X.drop(columns=[column for column in X.columns[X.columns.get_loc("murders") :] if column != foi])
    numbers = X[X[foi].notna()].select_dtypes("number")
    names = ["fold", "state", "county", "countyCode", "community", "communityCode"]
    numbers = numbers.drop(columns=names, errors="ignore")
    return Data("Communities", numbers.reset_index(drop=True), [foi], 4)


def partition(values: np.ndarray, k: int) -> np.ndarray:
    """Partition by the features of interest alone: the largest part is halved at random until there are k
    clusters."""
    rng = np.random.default_rng(0)
    labels = values.copy()
    while (n := len(np.unique(labels))) < k:
        largest = np.flatnonzero(labels == np.bincount(labels).argmax())
        labels[rng.permutation(largest)[: len(largest) // 2]] = labels.max() + 1
        assert len(np.unique(labels)) == n + 1
    return labels


def contestants(data: Data, k: int, values: np.ndarray, betas: tuple[float, ...]) -> dict[str, Callable[[], Any]]:
    """Return a function for each method that computes its labels."""
    common = {"metric": METRIC}
    found: dict[str, Callable[[], Any]] = {
        "KC": lambda: KCenter(k, **common).fit(data.X),
        "KC*": lambda: BetaInterpretable(k, **common).fit(data.X),
        "P_F": lambda: partition(values, k),
        "KC_F": lambda: KCenter(k, **common).fit(data.X[data.foi]),
        "IKC": lambda: StronglyInterpretable(k, foi_bins=data.bins, **common).fit(data.X, foi=data.foi),
    }
    for beta in betas:
        model = BetaInterpretable(k, beta, foi_bins=data.bins, **common)
        found[f"β-IC {beta:g}"] = lambda model=model: model.fit(data.X, foi=data.foi)
    return found


def values_of_interest(data: Data) -> tuple[np.ndarray, list[str]]:
    """Return the codes [n] of the values of interest, and their names."""
    model = StronglyInterpretable(K, metric=METRIC, foi_bins=data.bins).fit(data.X, foi=data.foi)
    return model.foi_codes_, model.foi_values_


def measure(data: Data, k: int, betas: tuple[float, ...]) -> list[Record]:
    """Measure every method and return one record each, with its labels."""
    values, names = values_of_interest(data)
    records = []
    for method, fit in contestants(data, k, values, betas).items():
        start = time.perf_counter()
        found = fit()
        seconds = time.perf_counter() - start
        labels = getattr(found, "labels_", found)
        name, _, beta = method.partition(" ")
        record = {
            "data": data.name,
            "k": k,
            "method": name,
            "beta": float(beta) if beta else None,
            "objective": kcenter_cost(data.X, labels, metric=METRIC),
            "interpretability": interpretability(labels, values),
            "clusters": len(np.unique(labels)),
            "converged": getattr(found, "converged_", None),
            "seconds": seconds,
            "counts": np.stack(
                [np.bincount(values[labels == c], minlength=len(names)) for c in np.unique(labels)]
            ),
            "values": names,
            "labels": labels,
        }
        records.append(record | {"over KC": record["objective"] / (records or [record])[0]["objective"]})
    return records


def rows(records: list[Record]) -> list[dict[str, Any]]:
    """Rows of the reported table, one per record."""
    return [
        {
            "method": one["method"] if one["beta"] is None else f"β-IC, β = {one['beta']:g}",
            "interpretability": round(one["interpretability"], 4),
            "objective": round(one["objective"], 4),
            "over KC": round(one["over KC"], 3),
            "clusters": one["clusters"],
            "converged": {None: "", True: "yes", False: "no"}[one["converged"]],
            "seconds": round(one["seconds"], 2),
        }
        for one in records
    ]


def plot_trade_off(ax: Axes, records: list[Record]) -> None:
    """Draw Figure 2: the objective against interpretability; the lower right corner is best."""
    for method, marker in MARKERS.items():
        own = [one for one in records if one["method"] == method]
        x, y = ([one[name] for one in own] for name in ("interpretability", "objective"))
        ax.plot(x, y, marker, label=method, markersize=8, alpha=0.8)
    ax.set(title=records[0]["data"], xlabel="interpretability", ylabel="k-center objective", xlim=(0, 1.05))
    ax.set_ylim(0, 1.1 * max(one["objective"] for one in records))


def plot_composition(ax: Axes, record: Record, title: str) -> None:
    """Draw Figures 3 and 5: the shares of the values of interest in every cluster."""
    counts = record["counts"][np.argsort(-record["counts"].sum(1), kind="stable")]
    shares = counts / counts.sum(1, keepdims=True)
    color = cluster_colors(len(record["values"]))
    for value, name in enumerate(record["values"]):
        bottom = shares[:, :value].sum(1)
        ax.bar(range(len(counts)), shares[:, value], bottom=bottom, color=color(value), label=name, width=0.8)
    ax.set_xticks(range(len(counts)), [f"{size:,}" for size in counts.sum(1)], rotation=45, ha="right", fontsize=7)
    ax.set(title=title, ylim=(0, 1))


def compositions(records: list[Record], titles: list[str]) -> Figure:
    """Draw one panel of shares per record."""
    figure = Figure(figsize=(2.6 * len(records), 3.4), layout="constrained")
    axes = figure.subplots(1, len(records), sharey=True, squeeze=False)[0]
    for ax, record, title in zip(axes, records, titles, strict=True):
        plot_composition(ax, record, title)
    axes[0].set_ylabel("share of the cluster")
    axes[0].set_xlabel("points", fontsize=8)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    return figure


def figure_2(data: list[Data], out: Path) -> dict[str, list[Record]]:
    """Rerun Figure 2: the objective against interpretability for k = 5 and β from 0.5 to 1."""
    found = [measure(one, K, BETAS) for one in tqdm(data, desc="Figure 2")]
    figure = Figure(figsize=(4.6 * len(data), 3.6), layout="constrained")
    for ax, records in zip(figure.subplots(1, len(data), squeeze=False)[0], found, strict=True):
        plot_trade_off(ax, records)
    figure.axes[-1].legend()
    figure.savefig(out / "figure2.png", dpi=150)
    return {f"Figure 2: {records[0]['data']}, k = {K}": records for records in found}


def figure_3(data: list[Data], out: Path) -> dict[str, list[Record]]:
    """Rerun Figure 3: the shares of the values of interest in every cluster for four values of β."""
    every = {}
    for one in tqdm(data, desc="Figure 3"):
        records = [r for r in measure(one, K, BETAS[2:]) if r["method"] == "β-IC"]
        figure = compositions(records, [f"β = {r['beta']:g}" for r in records])
        figure.savefig(out / f"figure3_{one.name.lower()}.png", dpi=150)
        every[f"Figure 3: {one.name}, k = {K}"] = records
    return every


def figure_4(data: list[Data], out: Path, clusters: tuple[int, ...]) -> dict[str, list[Record]]:
    """Rerun Figure 4: the objective for larger numbers of clusters and β = 1."""
    every = {}
    figure = Figure(figsize=(4.6 * len(data), 3.6), layout="constrained")
    for ax, one in zip(figure.subplots(1, len(data), squeeze=False)[0], data, strict=True):
        records = [r for k in tqdm(clusters, desc=f"Figure 4, {one.name}") for r in measure(one, k, (1.0,))]
        for method, marker in MARKERS.items():
            own = [r for r in records if r["method"] == method]
            ax.plot([r["k"] for r in own], [r["objective"] for r in own], f"{marker}-", label=method)
        ax.set(title=one.name, xlabel="clusters", ylabel="k-center objective")
        ax.set_ylim(0, 1.1 * max(r["objective"] for r in records))
        every |= {f"Figure 4: {one.name}, k = {k}, β = 1": [r for r in records if r["k"] == k] for k in clusters}
    figure.axes[-1].legend()
    figure.savefig(out / "figure4.png", dpi=150)
    return every


def figure_5(data: list[Data], out: Path) -> dict[str, list[Record]]:
    """Rerun Figure 5: the shares and explanations of all methods for β = 1."""
    every = {}
    for one in tqdm(data, desc="Figure 5"):
        records = measure(one, K, (1.0,))
        figure = compositions(records, [record["method"] for record in records])
        figure.savefig(out / f"figure5_{one.name.lower()}.png", dpi=150)
        for record in records:
            options = {"columns": one.foi, "max_length": len(one.foi), "n_bins": one.bins}
            record["patterns"] = str(patterns(one.X, record["labels"], **options))
        every[f"Figure 5: {one.name}, k = {K}, β = 1"] = records
    return every


def section(heading: str, records: list[Record]) -> str:
    """Format a table and, if there are any, the frequent patterns."""
    said = [f"{one['method']}:\n\n```\n{one['patterns']}\n```" for one in records if "patterns" in one]
    return "\n\n".join([rows_table(heading, rows(records)), *said])


def main(
    data: Annotated[Path | None, typer.Option(help="Folder of adult.csv.gz and communities.csv.gz.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the report, its figures and the pictures.")] = Path(
        "runs/interpretable"
    ),
    figure: Annotated[list[int] | None, typer.Option(min=2, max=5, help="All by default.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="1,000 rows of each table, two k in Figure 4.")] = False,
) -> None:
    """Rerun Figures 2 to 5; write report.md, interpretable.json and the pictures."""
    out.mkdir(parents=True, exist_ok=True)
    tables = [adult(data), communities(data)]
    tables = [one.sample(1000) for one in tables] if quick else tables
    clusters = CLUSTERS[:2] if quick else CLUSTERS
    experiments = {2: figure_2, 3: figure_3, 4: partial(figure_4, clusters=clusters), 5: figure_5}
    found: dict[str, list[Record]] = {}
    for number in figure or experiments:
        found |= experiments[number](tables, out)
    sizes = "; ".join(f"{one.name}: {len(one.X):,} × {one.X.shape[1]}" for one in tables)
    note = f"{sizes}; Gower's distance. " + "; ".join(f"{name}: {what}" for name, what in WHAT.items()) + "."
    text = "\n\n".join([f"# {TITLE}", note, str(machine()), *(section(*item) for item in found.items())])
    (out / "report.md").write_text(text + "\n", encoding="utf-8")
    reported = {  # one warning is enough
        heading: {"note": note if heading == next(iter(found)) else "", "rows": rows(records)}
        for heading, records in found.items()
    }
    save(out / "interpretable.json", TITLE, reported)
    typer.echo(f"{out}: report.md, interpretable.json, pictures")


if __name__ == "__main__":
    typer.run(main)
