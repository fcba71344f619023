"""Figures in docs/flipping.md that come from docs/benchmarks/neon_paper.json."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

MARKS = ("<!-- figures of the experiments -->", "<!-- end of figures -->")
FILE = Path(__file__).resolve().parents[2] / "docs" / "benchmarks" / "neon_paper.json"
KINDS = {"k-means": "k-means", "kernel": "kernel k-means", "deep": "deep"}
BETAS = {  # variants in the guide's table of betas, and their names there
    "β by area, held out": "the best by AUC on the other half of the points",
    "β of Eq. 3": "1 / E[least contrast] (Eq. 3)",
    "half of Eq. 3": "half of that",
    "β by the median contrast": "1 / E[median contrast]",
    "β per cluster": "1 / E[f], the mean over the cluster's own points",
    "β per point": "1 / f(x)",
    "β = 0": "0, all competitors alike",
    "β = ∞ (NCA)": "∞, the nearest competitor alone",
}


def with_figures(text: str, file: Path = FILE) -> str:
    """Return the guide with its figures between the two marks."""
    before, rest = text.split(MARKS[0])
    middle = figures(json.loads(file.read_text("utf-8")))
    return f"{before}{MARKS[0]}\n\n{middle}\n\n{MARKS[1]}{rest.split(MARKS[1])[1]}"


def figures(report: dict[str, Any]) -> str:
    """Return two sentences, on tables and on networks, and the table of betas."""
    tables = report["tables"]
    leads = tables["Table I: lead of NEON over the best baseline"]["rows"]

    def of(method: str, on_tables: bool) -> list[dict[str, Any]]:
        return [row for row in leads if row["method"] == method and (row["model"] in KINDS) == on_tables]

    sentences = [_sentence("On tables", "NEON", of("NEON", True))]
    if deep := of("NEON", False):
        sentences.append(_sentence("On channels of a small VGG", "NEON", deep))
    return "\n".join([*sentences, "", *_betas(tables["Variants of NEON"]["rows"])])


def _sentence(where: str, method: str, rows: list[dict[str, Any]]) -> str:
    K = [row["K"] for row in rows]
    behind = [row["best baseline"] for row in rows if row["lead"] < -row["±"]]
    others = ", ".join(f"{name.replace(',', '')} in {n}" for name, n in Counter(behind).most_common())
    first = f"{len(rows) - len(behind)} of {len(rows)} rows"
    return (
        f"- **{where}**, {min(K)} to {max(K):,} clusters, {method} is first by insertion, or within one standard "
        f"error of the best baseline, in {first}" + (f"; ahead: {others}." if others else ".")
    )


def _betas(rows: list[dict[str, Any]]) -> list[str]:
    models = [model for model in KINDS if any(row["model"] == model for row in rows)]
    found = {(row["variant"], row["model"]): row for row in rows}
    lines = ["| β | " + " | ".join(KINDS[model] for model in models) + " |", "|---" * (len(models) + 1) + "|"]
    for variant, name in BETAS.items():
        some = [found.get((variant, model)) for model in models]
        if any(some):
            lines.append(f"| {name} | " + " | ".join(map(_gain, some)) + " |")
    return lines


def _gain(row: dict[str, Any] | None) -> str:
    if row is None:
        return "—"
    return f"{row['gain']:+.2f} ± {row['±']:.2f}, better on {row['better on']} of {row['of']}"
