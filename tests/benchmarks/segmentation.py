"""Figures in docs/segmentation.md that come from docs/benchmarks/segmentation.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

MARKS = ("<!-- figures of the experiment -->", "<!-- end of figures -->")
FILE = Path(__file__).resolve().parents[2] / "docs" / "benchmarks" / "segmentation.json"
NEON = "NEON"


def with_figures(text: str, file: Path = FILE) -> str:
    """Return the guide with its figures between the two marks."""
    before, rest = text.split(MARKS[0])
    middle = figures(json.loads(file.read_text("utf-8")))
    return f"{before}{MARKS[0]}\n\n{middle}\n\n{MARKS[1]}{rest.split(MARKS[1])[1]}"


def figures(report: dict[str, Any]) -> str:
    """Return a table with a column per setting: NEON's scores, and the number of blocks in which it leads."""
    settings = {
        name.replace(", collages", "") + (f", blurred by {sigma}" if float(sigma) else ""): list(blocks.values())
        for name, blurs in report["scores"].items()
        for sigma, blocks in blurs.items()
    }
    means = [[float(np.mean(block[NEON])) for block in blocks] for blocks in settings.values()]
    rows = {"NEON's score": [f"{min(own):.2f} … {max(own):.2f}" for own in means]}
    for method in next(iter(settings.values()))[0]:
        if method != NEON:
            ahead = [[_ahead(block[NEON], block[method]) for block in blocks] for blocks in settings.values()]
            rows[f"ahead of {method}"] = [f"{sum(blocks)} of {len(blocks)}" for blocks in ahead]
    lines = [["", *settings], ["---"] * (len(settings) + 1), *([name, *cells] for name, cells in rows.items())]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _ahead(ours: list[float], theirs: list[float]) -> bool:
    """Whether the 95% interval of the mean difference on the same images is above 0."""
    difference = np.subtract(ours, theirs)
    return bool(difference.mean() > stats.sem(difference) * stats.t.ppf(0.975, len(difference) - 1))
