"""Write the documentation's page of figures from the benchmarks' JSON files.

python -m tests.benchmarks.page
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.benchmarks.timing import markdown

DOCS = Path(__file__).resolve().parents[2] / "docs"
INTRODUCTION = """# Benchmarks

Figures of `python -m tests.benchmarks.NAME --json docs/benchmarks/NAME.json` for NAME one of
`attribution`, `heatmaps`, `head_rules` and `trees`, written to this page by `python -m tests.benchmarks.page`.
Contestants take turns in one process, and a ratio is the median over rounds of ratios within a round: on
a machine that does other things as well, only ratios mean anything. Figures on a GPU have not been
measured yet.
"""


def page(folder: Path = DOCS / "benchmarks") -> str:
    """Return the page in markdown."""
    return "\n".join([INTRODUCTION, *(_section(json.loads(p.read_text())) for p in sorted(folder.glob("*.json")))])


def _section(report: dict[str, Any]) -> str:
    machine = ", ".join(f"{key} {value}" for key, value in report["machine"].items())
    parts = [f"## {report['title']}", machine]
    for heading, table in report["tables"].items():
        parts += [f"### {heading}", table["note"], markdown(table["rows"])]
    return "\n\n".join(part for part in parts if part) + "\n"


if __name__ == "__main__":
    (DOCS / "benchmarks.md").write_text(page(), encoding="utf-8")
