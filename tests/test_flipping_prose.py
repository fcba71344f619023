"""What the guide to pixel-flipping says in figures is what the experiments measured."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def paper(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    from tests.benchmarks import neon_paper

    return neon_paper


def test_the_guide(paper):
    guide = (ROOT / "docs" / "flipping.md").read_text(encoding="utf-8")
    assert guide == paper.with_figures(guide)


def test_counts(paper):
    """Three rows of tables: ahead, behind by less than the error, behind by more; and a network."""
    columns = ("data", "model", "K", "method", "best baseline", "lead", "±")
    leads = [
        ("iris", "k-means", 3, "NEON", "x²", 0.5, 0.1),
        ("wine", "kernel", 12, "NEON", "x²", -0.5, 0.6),
        ("wine", "kernel", 12, "NEON, β by AUC", "x²", -9.0, 0.6),
        ("digits", "k-means", 8, "NEON", "PDA, zero", -0.5, 0.4),
        ("MNIST", "SCAN, its head", 1000, "NEON", "Shapley", 0.0, 1.0),
    ]
    gain = {"variant": "β = 0", "gain": -1.013, "±": 0.661, "better on": 5, "of": 10}
    report = {
        "tables": {
            "Table I: lead of NEON over the best baseline": {
                "rows": [dict(zip(columns, row, strict=True)) for row in leads]
            },
            "Variants of NEON": {"rows": [{"model": "k-means", **gain}, {"model": "deep", **gain, "gain": 3.281}]},
        }
    }
    on_tables, deep, _, head, _, row = paper.figures(report).split("\n")
    assert "3 to 12 clusters" in on_tables
    assert on_tables.endswith("in 2 of 3 rows; ahead: PDA zero in 1.")
    assert "1,000 clusters" in deep
    assert deep.endswith("in 1 of 1 rows.")
    assert head == "| β | k-means | deep |"
    assert row.endswith("| -1.01 ± 0.66, better on 5 of 10 | +3.28 ± 0.66, better on 5 of 10 |")
