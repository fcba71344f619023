"""Write the documentation's page of benchmark figures from the JSON files.

python -m tests.benchmarks.page
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.benchmarks import along, beta, growth, neon_paper, segmentation
from tests.benchmarks.timing import markdown

DOCS = Path(__file__).resolve().parents[2] / "docs"
MOST = 150  # longest table on the page; longer ones stay in the JSON file
MARKS = ("<!-- figures of the benchmark -->", "<!-- end of figures -->")
INTRODUCTION = """# Benchmarks

Figures of `python -m tests.benchmarks.NAME --json docs/benchmarks/NAME.json` for NAME one of `along`,
`attribution`, `beta`, `flipping`, `growth`, `heatmaps`, `head_rules`, `kernel`, `report`, `sparse`, `streams` and
`trees`, and of the experiments `examples/flipping.py` (`neon_paper.json`), `examples/segmentation.py`,
`examples/scan.py`, `examples/spex.py` and `examples/beta_interpretable.py` (`interpretable.json`), written to this
page by `python -m tests.benchmarks.page`. Contestants take turns in one process, and a ratio is the median over
rounds of ratios within a round: on a machine that does other things as well, only ratios mean anything. Figures on
a GPU have not been measured yet.
"""


def page(folder: Path = DOCS / "benchmarks") -> str:
    """Return the page in markdown."""
    return "\n".join([INTRODUCTION, *(_section(json.loads(p.read_text())) for p in sorted(folder.glob("*.json")))])


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
    for name, figures in (("beta", beta.figures), ("along", along.figures)):
        text = with_figures_of(text, name, figures)
    return text


def with_figures_of(text: str, name: str, figures: Callable[[dict[str, Any]], str]) -> str:
    """Return a guide with the figures of a benchmark between their marks."""
    start, end = (f"<!-- {edge} of the figures of {name} -->" for edge in ("start", "end"))
    report = json.loads((DOCS / "benchmarks" / f"{name}.json").read_text())
    before, rest = text.split(start)
    return f"{before}{start}\n\n{figures(report)}\n\n{end}{rest.split(end)[1]}"


def _section(report: dict[str, Any]) -> str:
    machine = ", ".join(f"{key} {value}" for key, value in report["machine"].items())
    parts = [f"## {report['title']}", machine]
    for heading, table in report["tables"].items():
        long = f"{len(table['rows'])} rows, which are in the file."
        parts += [f"### {heading}", table["note"], markdown(table["rows"]) if len(table["rows"]) < MOST else long]
    return "\n\n".join(part for part in parts if part) + "\n"


GUIDES = {
    "trees.md": partial(with_table, table=trees_table),
    "interpretable.md": partial(with_table, table=interpretable_table),
    "flipping.md": with_flipping,
    "cost.md": partial(with_figures_of, name="growth", figures=growth.figures),
    "segmentation.md": segmentation.with_figures,
}
"""Guides with figures of the benchmarks, and what puts them there."""


if __name__ == "__main__":
    (DOCS / "benchmarks.md").write_text(page(), encoding="utf-8")
    for name, with_figures in GUIDES.items():
        guide = DOCS / name
        guide.write_text(with_figures(guide.read_text(encoding="utf-8")), encoding="utf-8")
