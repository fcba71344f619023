"""Rerun the pixel-flipping experiments of Section VII of the NEON paper.

    pip install -e ".[evaluation]"
    python examples/papers/flipping.py --quick
    python examples/papers/flipping.py --experiment all --data FOLDER --fashion FOLDER

Tables I and II, Figures 9 and 10 of J. Kauffmann et al., "From clustering to cluster explanations via neural
networks", 2022, and a search for better variants of NEON. FOLDER of --data contains tables NAME.csv.gz of numeric
columns and a last column `label`, which are added to the data sets of scikit-learn; FOLDER of --fashion contains
the four files `*-ubyte.gz` of Fashion-MNIST, as in Debian's package dataset-fashion-mnist. Results in OUT of
experiments that are not rerun are kept.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from flipping_deep import SMALL, Deep, Size, deep_rows
from flipping_figures import (
    CHANNELS,
    FACTORS,
    GAMMAS,
    channel_numbers,
    figure_9,
    figure_10,
    grid,
    grid_summary,
    sweep,
    sweep_gamma,
)
from flipping_rows import (
    BY_AUC,
    KERNEL,
    MODELS,
    OWN,
    Points,
    by_auc,
    cell,
    lead_rows,
    load,
    record,
    shallow_row,
    table,
    verdict,
)
from flipping_time import exponents, measure
from flipping_variants import deep_variants, shallow_variants, verdicts
from reports import machine, rows_table, save

from neonxc.evaluation import KDEImputer, ZeroImputer, compare, methods
from neonxc.lrp import Composite, Gamma

Experiment = Literal["table1", "figure9", "figure10", "table2", "variants", "all"]
LARGE = Size()
LEADS = "AUC, ± standard error of the difference over the inputs."
SWEPT = ("wine", "digits", "breast cancer", "yeast", "segment", "ecoli")  # in figure 10


@dataclass(frozen=True)
class Plan:
    """Sizes of the experiments."""

    seeds: int
    repeats: int = 10
    samples: int = 10  # permutations of Shapley sampling
    explained: int = 200
    names: tuple[str, ...] = ()
    kernels: tuple[str, ...] = KERNEL
    ks: tuple[int, ...] = (2, 4, 8, 16, 32, 64)
    ds: tuple[int, ...] = tuple(range(2, 14))
    factors: tuple[float, ...] = FACTORS
    gammas: tuple[float, ...] = GAMMAS
    size: Size = LARGE
    rounds: int = 5
    points: int = 1024  # inputs whose running time is measured


QUICK = Plan(
    1, 4, 2, 40, ("iris", "wine"), ("wine",), (2, 8), (4, 13), (0.25, 1.0, 4.0), (0.0, 0.1, 1.0), SMALL, 1, 16
)


class Report:
    """The measurements, written to OUT after every step; records of earlier runs are kept unless they are
    replaced."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.file = out / "flipping.json"
        out.mkdir(parents=True, exist_ok=True)
        self.found: dict[str, Any] = json.loads(self.file.read_text("utf-8")) if self.file.exists() else {}

    def records(self, name: str) -> list[dict[str, Any]]:
        """All records of an experiment."""
        return list(self.found.get(name, {}).get("records", []))

    def keep(self, name: str, records: Sequence[dict[str, Any]], **values: Any) -> None:
        """Add records to an experiment, replacing those with the same key, and other values."""
        known = {called(record): record for record in [*self.records(name), *records]}
        self.found.setdefault(name, {}).update(values, records=list(known.values()))
        self.found["machine"] = machine()
        self.file.write_text(json.dumps(self.found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    def text(self, name: str, text: str) -> None:
        """Write and print a page."""
        (self.out / f"{name}.md").write_text(text + "\n", encoding="utf-8")
        typer.echo(text + "\n")

    def figure(self, name: str, drawn: Any) -> None:
        """Write a picture."""
        drawn.savefig(self.out / f"{name}.png", dpi=110)

    def benchmarks(self, file: Path) -> None:
        """Write the tables in the format of docs/benchmarks."""
        tables: dict[str, Any] = {}
        for value in ("AUC", "SRG") if "table1" in self.found else ():
            rows = [
                {key: r[key] for key in ("data", "model", "N", "D", "K")}
                | {m: cell(found, value) for m, found in r["methods"].items()}
                for r in self.records("table1")
            ]
            names = list(dict.fromkeys(key for row in rows for key in row))
            rows = [{name: row.get(name, "—") for name in names} for row in rows]
            tables[f"Table I: {value}"] = {"note": self.found["table1"]["note"], "rows": rows}
        summaries = {
            "table1": ("Table I: lead of NEON over the best baseline", lead_rows),
            "figure9": ("Figure 9: wine, by clusters", grid_summary),
            "table2": ("Table II: fitted exponents", exponents),
            "variants": ("Variants of NEON", verdicts),
        }
        for name, (title, summary) in summaries.items():
            if name in self.found:
                rows = summary(self.records(name))
                note = LEADS if name == "table1" else self.found[name]["note"]
                tables[title] = {"note": note, "rows": rows}
        save(file, "Pixel-flipping: the experiments of the NEON paper", tables)


def called(record: dict[str, Any]) -> tuple[Any, ...]:
    """Return the key that identifies a record within its experiment."""
    return tuple(record.get(key) for key in ("data", "model", "K", "d", "p", "seed", "axis", "method", "what"))


def deep(plan: Plan, fashion: Path | None, out: Path) -> list[Deep]:
    """Run the deep clusterings of MNIST, and of Fashion-MNIST if its files are given."""
    names = ["MNIST", *(["Fashion-MNIST"] if fashion is not None else [])]
    return [row for name in names for row in deep_rows(name, fashion, out, plan.size, seed=0)]


def deep_record(row: Deep, samples: int) -> dict[str, Any]:
    """Compute one row of Table I for a deep clustering."""
    numbers = channel_numbers(row.activations)
    chosen = methods.default_methods(None, numbers)
    chosen["Shapley"] = methods.shapley_sampling(samples, numbers)
    chosen[BY_AUC] = by_auc(ZeroImputer(), groups=CHANNELS)
    chosen["NEON, γ = 0.1"] = methods.neon_with(Composite(Gamma(0.1)))
    chosen["NEON, mid-point"] = methods.neon_with(head_rule="midpoint")
    run = compare(row.net, row.activations, chosen, ZeroImputer(), groups=CHANNELS, points=None, steps=None)
    return record(row.name, row.kind, [run], row.activations.shape[1], row.k)


def table_1(plan: Plan, points: Sequence[Points], deeps: Sequence[Deep], report: Report) -> None:
    """Write Table I, by area and by gain, and the rows in which NEON is not first."""
    jobs: list[tuple[Points, str, int | None]] = [(data, "k-means", None) for data in points]
    jobs += [(data, "k-means", 6) for data in points if data.name == "wine"]  # as in the paper
    jobs += [(data, "kernel", None) for data in points if data.name in plan.kernels]
    note = (
        f"z-scored but for digits; K by the elbow (wine also with the paper's 6); {plan.repeats} draws of the KDE "
        f"sampler; means over {plan.seeds} clusterings, ± standard error over the inputs. Deep: channels, zeros "
        "for missing ones; NEON's γ is 0.25, the paper's 0.1. β by AUC: of either "
        "half of the points, the one that suits the other half."
    )
    start = time.perf_counter()

    def add(row: dict[str, Any]) -> None:
        report.keep("table1", [row], note=note)
        seconds = time.perf_counter() - start
        typer.echo(f"{row['data']}, {row['model']}, K = {row['K']}: {seconds:.0f} s")

    for data, model, k in jobs:
        add(shallow_row(data, model, plan.seeds, plan.repeats, plan.samples, k))
    for row in deeps:
        add(deep_record(row, plan.samples))
    rows = report.records("table1")
    texts = {name: verdict(rows, name) for name in OWN if any(name in row["lead"] for row in rows)}
    report.keep("table1", [], verdicts={name: found for name, (_, found) in texts.items()})
    report.text(
        "table1", "\n\n".join([table(rows, "AUC"), note, *(t for t, _ in texts.values()), table(rows, "SRG")])
    )


def figure9(plan: Plan, report: Report) -> None:
    """Rerun Figure 9."""
    found = grid(load(None, ["wine"])[0], plan.ks, plan.ds, plan.seeds, plan.repeats)
    report.keep("figure9", found, note=f"AUC, means over columns and {plan.seeds} seeds, which draw them.")
    report.figure("figure9", figure_9(report.records("figure9")))
    report.text("figure9", rows_table("Figure 9: wine, by clusters", grid_summary(report.records("figure9"))))


def figure10(plan: Plan, points: Sequence[Points], deeps: Sequence[Deep], report: Report) -> None:
    """Rerun Figure 10."""
    for model in MODELS:
        names = [name for name in SWEPT if model == "k-means" or name in plan.kernels][:4]
        for data in (d for name in names for d in points if d.name == name):
            net = MODELS[model](data, 0, None)
            explained = data.X[data.explained]
            imputer = KDEImputer(data.X)
            found = sweep(net, explained, (data.name, model, data.k), plan.factors, imputer, plan.repeats)
            report.keep("figure10", [found])
    for row in deeps:
        report.keep("figure10", [sweep_gamma(row, plan.gammas)])
    report.figure("figure10", figure_10(report.records("figure10")))


def table_2(plan: Plan, report: Report) -> None:
    """Rerun Table II."""
    note = "Exponents of processor time in columns d, clusters K, supports p, fitted; one thread, "
    note += f"{plan.points} points."
    report.keep("table2", measure(plan.rounds, plan.points), note=note)
    report.text("table2", rows_table("Table II, measured", exponents(report.records("table2"))))


def variants(plan: Plan, points: Sequence[Points], deeps: Sequence[Deep], report: Report) -> None:
    """Compare variants of NEON with the paper's."""
    note = "Gain in AUC over NEON as it is; p of a paired t-test over data, of each the mean over K and seeds."
    note += f" Deep: {plan.size.explained} images."
    for model in MODELS:
        for data in points:
            if model == "k-means" or data.name in plan.kernels:
                found = shallow_variants(data, model, plan.seeds, plan.repeats)
                report.keep("variants", found, note=note)
    for row in deeps:
        report.keep("variants", [deep_variants(row)], note=note)
    report.text("variants", rows_table("Variants of NEON", verdicts(report.records("variants"))))


def main(
    experiment: Annotated[Experiment, typer.Option()] = "table1",
    quick: Annotated[bool, typer.Option("--quick", help="Iris and wine, tiny networks.")] = False,
    seeds: Annotated[int, typer.Option(min=1, help="Clusterings of every table.")] = 2,
    data: Annotated[Path | None, typer.Option(help="Folder of further tables NAME.csv.gz.")] = None,
    fashion: Annotated[Path | None, typer.Option(help="Folder of Fashion-MNIST's files.")] = None,
    rows: Annotated[Literal["all", "shallow", "deep"], typer.Option(help="Tables, networks, or both.")] = "all",
    benchmarks: Annotated[Path | None, typer.Option(help="Also write docs/benchmarks/neon_paper.json.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for results and trained networks.")] = Path("runs/flipping"),
) -> None:
    """Rerun Table I, Table II, Figure 9 or Figure 10, or compare variants of NEON."""
    plan = QUICK if quick else Plan(seeds)
    every = ("table1", "figure9", "figure10", "table2", "variants")
    chosen = every if experiment == "all" else (experiment,)
    report = Report(out)
    needed = bool({"table1", "figure10", "variants"} & set(chosen))
    points = load(data, plan.names, plan.explained) if needed and rows != "deep" else []
    deeps = deep(plan, fashion, out) if needed and rows != "shallow" else []
    if "table1" in chosen:
        table_1(plan, points, deeps, report)
    if "figure9" in chosen:
        figure9(plan, report)
    if "figure10" in chosen:
        figure10(plan, points, deeps, report)
    if "table2" in chosen:
        table_2(plan, report)
    if "variants" in chosen:
        variants(plan, points, deeps, report)
    if benchmarks is not None:
        report.benchmarks(benchmarks)
    typer.echo(f"{out}: {', '.join(sorted(path.name for path in out.iterdir()))}")


if __name__ == "__main__":
    typer.run(main)
