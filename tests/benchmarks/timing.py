"""Shared by all benchmarks: races, the state of the machine, and reports in Markdown and JSON."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

ROUNDS = 9
Table = list[dict[str, Any]]


def race(
    contestants: Mapping[str, Callable[[], Any]], rounds: int = ROUNDS, least: float = 0.05
) -> dict[str, list[float]]:
    """Return the seconds per call in each round; the contestants take turns: A, B, A, B, ...

    A call shorter than `least` seconds is repeated. Other work on the machine affects all contestants of a round
    alike, so that the ratio within a round is what counts.
    """
    repeats = {}
    for name, run in contestants.items():
        first = seconds(run)  # the first call warms up caches, thread pools and lazy imports
        repeats[name] = 1 if first > 1 else max(1, round(least / max(seconds(run), 1e-7)))
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, run in contestants.items():
            times[name].append(seconds(run, repeats[name]))
    return times


def seconds(run: Callable[[], Any], repeats: int = 1) -> float:
    """Return the seconds per call by the clock."""
    start = time.perf_counter()
    for _ in range(repeats):
        run()
    return (time.perf_counter() - start) / repeats


def results(times: Mapping[str, Sequence[float]], base: str) -> Table:
    """Return a row per contestant: its median time, and its ratio to the base with quartiles over rounds."""
    rows = []
    for name, measured in times.items():
        ratios = [a / b for a, b in zip(measured, times[base], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
        row = {"what": name, "median ms": 1000 * statistics.median(measured)}
        rows.append({**row, "ratio": middle, "lower quartile": low, "upper quartile": high, "rounds": len(ratios)})
    return rows


def machine(device: torch.device | None = None) -> dict[str, Any]:
    """Describe the machine on which the figures were measured, and its card if one was used."""
    card = {} if device is None else {"card": card_name(device)}
    return card | {
        "load (1, 5, 15 min)": [round(load, 2) for load in os.getloadavg()],
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "torch threads": torch.get_num_threads(),
        "processor": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def card_name(device: torch.device) -> str:
    """Return what the maker calls a device."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"device {device}, emulated"


class Report:
    """Tables under headings, printed as they are added, with the state of the machine at the start and the end."""

    def __init__(self, title: str, device: torch.device | None = None) -> None:
        self.data: dict[str, Any] = {"title": title, "machine": machine(device), "tables": {}}
        print(f"# {title}\n\n" + ", ".join(f"{key}: {value}" for key, value in self.data["machine"].items()))

    def table(self, heading: str, rows: Table, note: str = "") -> None:
        self.data["tables"][heading] = {"note": note, "rows": [_rounded(row) for row in rows]}
        print(f"\n## {heading}\n" + (f"\n{note}\n" if note else "") + f"\n{markdown(rows)}", flush=True)

    def close(self, path: str | os.PathLike[str] | None, keep: bool = False) -> None:
        """Save the tables; with `keep`, tables of the file that were not measured again stay."""
        self.data["load at the end"] = machine()["load (1, 5, 15 min)"]
        print(f"\nload at the end: {self.data['load at the end']}")
        if path is not None:
            if keep and Path(path).exists():
                before = json.loads(Path(path).read_text(encoding="utf-8"))["tables"]
                self.data["tables"] = before | self.data["tables"]
            Path(path).write_text(json.dumps(self.data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def markdown(rows: Table) -> str:
    """Format a table whose header is the keys of the first row."""
    head = list(rows[0])
    lines = ["| " + " | ".join(map(_text, head)) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(_text(row.get(key, "")) for key in head) + " |" for row in rows]
    return "\n".join(lines)


def progress(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def _text(value: Any) -> str:
    text = f"{value:.3g}" if isinstance(value, float) and abs(value) < 1000 else str(_round(value))
    return text.replace("|", r"\|")


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    return {key: _round(value) for key, value in row.items()}


def _round(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value
