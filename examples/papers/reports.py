"""Parts of the reports of the examples: tables in Markdown, the machine, numbers of clusters."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
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
