"""Parts of the reports of the examples: files and tables, the machine, figures, numbers of clusters."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image
from scipy import stats
from scipy.optimize import linear_sum_assignment
from sklearn.metrics.cluster import contingency_matrix


def machine() -> dict[str, Any]:
    """Return the load, the processor, and the version and threads of torch."""
    return {
        "load (1, 5, 15 min)": [round(load, 2) for load in os.getloadavg()],
        "processor": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
        "torch": torch.__version__,
        "torch threads": torch.get_num_threads(),
    }


def markdown(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], note: str = "") -> str:
    """Format a Markdown table with aligned columns, the first one to the left."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    ruler = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]

    def line(cells: Sequence[str]) -> str:
        first, *rest = (
            cell.ljust(width) if not place else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return "| " + " | ".join([first, *rest]) + " |"

    lines = [f"### {title}", "", line(header), line(ruler), *map(line, rows)]
    return "\n".join([*lines, *(["", note] if note else [])])


def renumbered(labels: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Renumber labels so that they match the true clusters best."""
    rows, columns = linear_sum_assignment(contingency_matrix(truth, labels), maximize=True)
    return rows[np.argsort(columns)][labels]


def save(file: Path, title: str, tables: Mapping[str, Any], **records: Mapping[str, Any]) -> None:
    """Write a report in the format of the benchmarks; tables and records of an earlier run that it lacks are
    kept."""
    report = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"title": title}
    report["machine"] = machine()
    for name, found in {"tables": tables, **records}.items():
        report.setdefault(name, {}).update(found)
    file.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def rows_table(title: str, rows: Sequence[Mapping[str, Any]], note: str = "") -> str:
    """Format rows as a Markdown table with a column for every key."""
    names = list(dict.fromkeys(name for row in rows for name in row))

    def show(value: Any) -> str:
        return "" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)

    return markdown(title, names, [[show(row.get(name)) for name in names] for row in rows], note)


def tidy(axes: Axes) -> None:
    """Draw horizontal lines behind the data, and no frame above and to the right of it."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="0.93")
    axes.set_axisbelow(True)


def interval(values: Any) -> float:
    """Half the width of the 95% confidence interval of a mean (Student's t); of one value, 0."""
    if len(values) < 2:
        return 0.0
    return float(stats.sem(values) * stats.t.ppf(0.975, len(values) - 1))


def save_figure(figure: Figure, path: Path, dpi: int) -> None:
    """Write a PNG of 256 colours with dithering, which has a third of the size and keeps gradients smooth."""
    figure.savefig(path, dpi=dpi)
    image = Image.open(path).convert("RGB")
    palette = image.quantize(256, method=Image.Quantize.MAXCOVERAGE, kmeans=3, dither=Image.Dither.NONE)
    image.quantize(palette=palette, dither=Image.Dither.FLOYDSTEINBERG).save(path, optimize=True)
