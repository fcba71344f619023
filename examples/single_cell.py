"""Explain clusters of cells by genes: a report, and marker rules of at most three genes.

The data set is part of scanpy: 700 blood cells by 765 genes, with clusters found by Louvain's method.

    pip install -e ".[cells]"
    python examples/single_cell.py --out single-cell

The example writes report.html and markers.csv, which contains a rule of at most three genes per cluster. The rules
are found on two thirds of the cells; their precision and recall are measured on the other third.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

import neonxc


def main(out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("single-cell")) -> None:
    """Explain the clusters of cells and find marker rules."""
    cells = load()
    out.mkdir(parents=True, exist_ok=True)
    report = neonxc.explain(cells, "louvain")
    report.save(out / "report.html")
    found = neonxc.markers(cells, "louvain")
    types = pd.crosstab(cells.obs["louvain"], cells.obs["bulk_labels"]).idxmax(axis=1)
    table = found.to_frame()
    table.insert(0, "most are", types)
    table.to_csv(out / "markers.csv")
    typer.echo(f"{found}\n{out / 'report.html'}\n{out / 'markers.csv'}")


def load() -> Any:
    """Load the cells from the files of scanpy."""
    try:
        import scanpy
    except ImportError:
        raise SystemExit('this example needs scanpy: in a checkout, pip install -e ".[cells]"') from None
    return scanpy.datasets.pbmc68k_reduced()


if __name__ == "__main__":
    typer.run(main)
