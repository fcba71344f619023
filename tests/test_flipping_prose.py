"""What the guide to pixel-flipping says in figures is what the experiments measured."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_the_guide(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    from tests.benchmarks import neon_paper

    guide = (ROOT / "docs" / "flipping.md").read_text(encoding="utf-8")
    assert guide == neon_paper.with_figures(guide)
