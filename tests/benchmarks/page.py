"""Write the documentation's page of benchmark figures from the JSON files.

python -m tests.benchmarks.page
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.benchmarks import (
    attention,
    baseline,
    beta,
    concepts,
    counterfactuals,
    growth,
    many_clusters,
    neon_paper,
    null_reference,
    pooled,
    segmentation,
    separation,
    two_models,
)
from tests.benchmarks.timing import markdown

DOCS = Path(__file__).resolve().parents[2] / "docs"
MARKS = ("<!-- figures of the benchmark -->", "<!-- end of figures -->")
INTRODUCTION = """# Benchmarks

Each section has the command that measures it, and its main tables. The complete tables are in the JSON files in
`docs/benchmarks`. `python -m tests.benchmarks.page` writes this page and the tables in the guides from them.

All times were measured on a CPU, but for those of the section "On a GPU". Contestants take turns in one process,
and a ratio is the median over rounds of the ratios within a round. The machine may have been busy with other work,
so compare ratios rather than times.
"""
NOTES = {
    "baseline": "Measured without the greedy passes of inputs that are decided late, "
    "which are in the section on many clusters.",
    "heatmaps": "These figures are of zennit 0.5.1, the newest one for Python 3.11.7; version 1.0 needs 3.11.11. "
    "Measured by hand with one thread, LRP-γ through VGG-11 takes 18.8 gradients in version 0.5.1, 19.8 in "
    "version 1.0.0, and 2.3 to 2.6 here.",
    "waiting": "The older checkout is version 0.3. Medians are of three to five rounds, but for the reports on "
    "cells and texts, the surrogate and HDBSCAN, which were measured once or twice.",
}
"""What is to be known about the tables of a benchmark."""
SECTIONS: dict[str, tuple[str, str, list[str]]] = {  # file: command, guide with its figures, tables to show here
    "attribution": (
        "-m tests.benchmarks.attribution",
        "",
        ["Relevance, digits", "Logits, digits", "Many rows", "Memory"],
    ),
    "kernel": ("-m tests.benchmarks.kernel", "kernel.md", ["Attribution", "Surrogates"]),
    "heatmaps": ("-m tests.benchmarks.heatmaps", "heatmaps.md", ["4 clusters", "One class"]),
    "head_rules": (
        "-m tests.benchmarks.head_rules",
        "heatmaps.md",
        ["Locations, blocks", "Locations, with", "Images, b"],
    ),
    "attention": ("-m tests.benchmarks.attention", "lrp.md", []),
    "density": (
        "-m tests.benchmarks.density --data DIR",
        "density.md",
        ["AUC of noise", "Planted columns", "HDBSCAN, AUC"],
    ),
    "smoothing": ("-m tests.benchmarks.smoothing", "heatmaps.md", ["Locations"]),
    "counterfactuals": (
        "-m tests.benchmarks.counterfactuals OTHER --data DIR --rows 10",
        "counterfactuals.md",
        ["HDBSCAN", "mixture", "Ward"],
    ),
    "sanity": ("-m tests.benchmarks.sanity", "heatmaps.md", ["EfficientNet", "VGG"]),
    "concepts": (
        "-m tests.benchmarks.concepts",
        "concepts.md",
        ["Directions", "Agreement", "Seconds", "One", "Two", "A mark"],
    ),
    "names": (
        "-m tests.benchmarks.names --quick --data DIR",
        "names.md",
        ["Held-out tables", "A second", "Sections", "Clusters"],
    ),
    "layers": (
        "-m tests.benchmarks.layers --quick --data DIR",
        "layers.md",
        ["Held-out tables", "Verdicts", "Chance", "Cells"],
    ),
    "report": ("-m tests.benchmarks.report", "report.md", ["neonxc.explain"]),
    "waiting": ("-m tests.benchmarks.waiting OLDER", "", ["Seconds"]),
    "trees": ("-m tests.benchmarks.trees", "trees.md", ["digits", "1,000,000"]),
    "sparse": ("-m tests.benchmarks.sparse", "trees.md", ["100,000"]),
    "streams": ("-m tests.benchmarks.streams", "distributed.md", ["20,000,000"]),
    "growth": ("-m tests.benchmarks.growth", "cost.md", ["The machine"]),
    "flipping": ("-m tests.benchmarks.flipping", "flipping.md", ["wine"]),
    "device": ("-m tests.benchmarks.device", "", ["Tests", "Heatmaps", "Rows", "Trees"]),
    "beta": ("-m tests.benchmarks.beta --full", "flipping.md", []),
    "null_reference": (
        "-m tests.benchmarks.null_reference",
        "real.md",
        ["Data sets", "Tables without", "Mixed and wide"],
    ),
    "two_models": (
        "-m tests.benchmarks.two_models --data DIR",
        "two_models.md",
        ["Other", "A new theme"],
    ),
    "separation": (
        "-m tests.benchmarks.separation",
        "separation.md",
        ["Pairs", "Planted", "Moons", "Parts of one cloud, held out"],
    ),
    "many_clusters": (
        "-m tests.benchmarks.many_clusters --explained 20",
        "flipping.md",
        ["Held out"],
    ),
    "pooled": ("-m tests.benchmarks.pooled", "heatmaps.md", ["Held out"]),
    "baseline": ("-m tests.benchmarks.baseline", "flipping.md", ["Held out", "For choosing", "Tables, missing"]),
    "neon_paper": ("examples/papers/flipping.py", "flipping.md", ["Table I: AUC", "Figure 9"]),
    "segmentation": ("examples/papers/segmentation.py", "segmentation.md", []),
    "scan": ("examples/papers/scan.py", "scan.md", ["MNIST", "Fashion-MNIST"]),
    "spex": ("examples/papers/spex.py", "spex_results.md", []),
    "interpretable": ("examples/papers/beta_interpretable.py", "interpretable.md", ["Figure 3"]),
}


def page(folder: Path = DOCS / "benchmarks") -> str:
    """Return the page in markdown."""
    sections = [section(name, folder / f"{name}.json") for name in SECTIONS]
    return "\n".join([INTRODUCTION, *sections])


TREES = {  # columns of the table in the guide to trees, and their names in the benchmark
    "IMM": "imm",
    "EMN": "emn",
    "ExGreedy": "exgreedy",
    "ExShallow": "exshallow",
    "CART": "cart",
    "ExShallow, refined": "exshallow, refined",
    "and 4 starts": "exshallow, refined, 4 starts",
}


def trees_table(file: Path = DOCS / "benchmarks" / "trees.json") -> str:
    """Return the cost ratio and WAES of trees with one leaf per cluster, for tables on which they differ."""
    lines = ["| | " + " | ".join(TREES) + " |", "|---" * (len(TREES) + 1) + "|"]
    for name, table in json.loads(file.read_text())["tables"].items():
        rows = {row.get("algorithm"): row for row in table["rows"]}
        if not rows.keys() >= set(TREES.values()):
            continue
        own = [rows[algorithm] for algorithm in TREES.values()]
        least = min(row["cost ratio"] for row in own)
        cells = [f"{row['cost ratio']:.3f} / {row['WAES']:.1f}" for row in own]
        best = [row["cost ratio"] == least for row in own]
        cells = [
            f"**{c.split(' / ')[0]}** / {c.split(' / ')[1]}" if b else c for c, b in zip(cells, best, strict=True)
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def names_table(file: Path = DOCS / "benchmarks" / "names.json") -> str:
    """Return what names of tables reach that no constant was chosen on."""
    return markdown(json.loads(file.read_text())["tables"]["Held-out tables"]["rows"])


def layers_table(file: Path = DOCS / "benchmarks" / "layers.json") -> str:
    """Return the accuracy of the rules of splits of tables that nothing was chosen on."""
    return markdown(json.loads(file.read_text())["tables"]["Held-out tables"]["rows"])


def with_table(text: str, table: Callable[[], str]) -> str:
    """Return a guide with a table between its two marks."""
    before, rest = text.split(MARKS[0])
    return f"{before}{MARKS[0]}\n\n{table()}\n\n{MARKS[1]}{rest.split(MARKS[1])[1]}"


def interpretable_table(file: Path = DOCS / "benchmarks" / "interpretable.json") -> str:
    """Return the objective of every method over that of k-center, and its interpretability, for both tables."""
    tables = json.loads(file.read_text())["tables"]
    found = {
        heading.removeprefix("Figure 2: ").partition(",")[0]: {row["method"]: row for row in table["rows"]}
        for heading, table in tables.items()
        if heading.startswith("Figure 2")
    }
    lines = ["| | " + " | ".join(f"{name}: objective over KC | share" for name in found) + " |"]
    lines.append("|---" * (2 * len(found) + 1) + "|")
    for method in next(iter(found.values())):
        cells = [
            f"{rows[method]['over KC']:.2f} | {rows[method]['interpretability']:.2f}" for rows in found.values()
        ]
        lines.append(f"| {method.replace('*', chr(92) + '*')} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def with_flipping(text: str) -> str:
    """Return the guide to pixel-flipping with its figures between their marks."""
    text = neon_paper.with_figures(text)
    for name, figures in (
        ("beta", beta.figures),
        ("baseline", baseline.figures),
        ("many_clusters", many_clusters.figures),
    ):
        text = with_figures_of(text, name, figures)
    return text


def with_figures_of(text: str, name: str, figures: Callable[[dict[str, Any]], str]) -> str:
    """Return a guide with the figures of a benchmark between their marks."""
    start, end = (f"<!-- {edge} of the figures of {name} -->" for edge in ("start", "end"))
    report = json.loads((DOCS / "benchmarks" / f"{name}.json").read_text())
    before, rest = text.split(start)
    return f"{before}{start}\n\n{figures(report)}\n\n{end}{rest.split(end)[1]}"


def section(name: str, file: Path) -> str:
    """Return the section of a benchmark, from the file with its tables."""
    command, guide, shown = SECTIONS[name]
    if name == "device" and not file.exists():
        return f"## On a GPU\n\n```bash\npython {command}\n```\n\nNo card was measured.\n"
    report = json.loads(file.read_text())
    machine = ", ".join(f"{key} {value}" for key, value in report["machine"].items() if not key.startswith("load"))
    known = f"More figures are in [the guide]({guide})." if guide else ""
    parts = [f"## {report['title']}", f"```bash\npython {command}\n```", f"{known} Machine: {machine}.".strip()]
    parts += [NOTES[name]] if name in NOTES else []
    for heading, table in report["tables"].items():
        if any(heading.startswith(start) for start in shown):
            parts += [f"**{heading}.** {table['note']}", markdown(table["rows"])]
    return "\n\n".join(parts) + "\n"


GUIDES = {
    "trees.md": partial(with_table, table=trees_table),
    "heatmaps.md": partial(with_figures_of, name="pooled", figures=pooled.figures),
    "interpretable.md": partial(with_table, table=interpretable_table),
    "names.md": partial(with_table, table=names_table),
    "layers.md": partial(with_table, table=layers_table),
    "flipping.md": with_flipping,
    "concepts.md": partial(with_figures_of, name="concepts", figures=concepts.figures),
    "lrp.md": partial(with_figures_of, name="attention", figures=attention.figures),
    "real.md": partial(with_figures_of, name="null_reference", figures=null_reference.figures),
    "two_models.md": partial(with_figures_of, name="two_models", figures=two_models.figures),
    "separation.md": partial(with_figures_of, name="separation", figures=separation.figures),
    "counterfactuals.md": partial(with_figures_of, name="counterfactuals", figures=counterfactuals.means),
    "cost.md": partial(with_figures_of, name="growth", figures=growth.figures),
    "segmentation.md": segmentation.with_figures,
}
"""Guides with figures of the benchmarks, and what puts them there."""


def write() -> None:
    """Write the page, and the figures of the guides."""
    (DOCS / "benchmarks.md").write_text(page(), encoding="utf-8")
    for name, with_figures in GUIDES.items():
        guide = DOCS / name
        guide.write_text(with_figures(guide.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    write()
