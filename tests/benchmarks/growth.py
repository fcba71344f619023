"""Measured growth of time with rows, columns, clusters and leaves, compared with the cost model.

python -m tests.benchmarks.growth [--quick] [--json FILE]

Everything runs on one thread, and seconds are processor time, the minimum of a few rounds, so that other work on
the machine hardly changes them.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from math import log
from statistics import median
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from neonxc.trees import ThresholdTree
from neonxc.trees.fit.problem import Problem
from tests.benchmarks import cost_model
from tests.benchmarks.cost_model import Machine, Size
from tests.benchmarks.tasks import OTHERS, SMALL, TREE, TREES, Task, all_tasks, fit
from tests.benchmarks.throughput import billion, fastest, this_machine
from tests.benchmarks.timing import Report, Table, markdown, progress
from tests.launches import launches

LIMIT = 2.0  # tolerated error of the model, as a factor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two sizes of every kind, one round")
    parser.add_argument("--json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    report = Report("Growth and the cost model")
    rows: Table = []
    others: Table = []
    machines = []
    for task in all_tasks():
        machines.append(calibrated())  # other work on the machine comes and goes
        rows += measured(task, machines[-1], options.quick)
        if task.name in TREES:
            others += elsewhere(task, machines[-1], options.quick)
    report.table("The machine", constants(machines), "Time that one of each takes, one thread: least to greatest.")
    report.table("Slopes", slopes(rows), SLOPES)
    note = "Ratio: predicted over measured; the worst is off {:.2f}×."
    off = [worst(rows), worst(others)]
    report.table("Measured and predicted", rows, note.format(off[0]))
    report.table("Tables of other sizes", others, note.format(off[1]))
    report.table("Bytes summed over a group", summed(), "Megabytes, counted in one process that has all rows.")
    report.table("A billion rows of 100 columns on 16 GPUs, on paper", billion(), PAPER)
    report.close(options.json)
    if max(off) > LIMIT and not options.quick:
        raise SystemExit(f"the model is off by {max(off):.2f}, more than {LIMIT}")


def worst(rows: Table) -> float:
    """Return the error of the model, as a factor."""
    return max(max(row["ratio"], 1 / row["ratio"]) for row in rows)


PAPER = (
    "k = 16, 256 bins. Levels: the average depth of a row. Seconds in all, and of each kind of work. "
    "The guide to costs says what is assumed."
)
SLOPES = (
    "The exponent e of time ~ size^e, by least squares on logarithms, and between the two greatest sizes. "
    "What is constant, such as the start of an operator, makes it less than it is in the limit."
)


# --- the machine ---------------------------------------------------------------------------------------------


def calibrated() -> Machine:
    """Measure the throughputs of this machine; the time of an operator comes from small fits."""
    runs = [fit(explainer, SMALL) for explainer in TREES.values()]
    seconds = sum(map(fastest, runs))
    operators = sum(launches(run).total for run in runs)
    return replace(this_machine(), operators=seconds / operators)


def constants(machines: list[Machine]) -> Table:
    """Describe the range of the throughputs between tasks."""
    words = {
        "scattered": "entry added to a histogram",
        "gathered": "entry picked by a mask or an index",
        "streamed": "byte read or written in order",
        "multiplied": "multiplication of a matrix product, float32",
        "sorted": "entry sorted",
        "ordered": "entry sorted together with where it was",
        "operators": "operator started",
    }
    rows = []
    for name, what in words.items():
        times = sorted(1e9 * getattr(machine, name) for machine in machines)
        rows.append({"what": what, "least ns": times[0], "median ns": median(times), "greatest ns": times[-1]})
    return rows


# --- tables --------------------------------------------------------------------------------------------------


def measured(task: Task, machine: Machine, quick: bool) -> Table:
    """Measure the seconds of every size along the axes, with the model's prediction."""
    rows: Table = []
    for axis, values in task.axes.items():
        for value in values[:2] if quick else values:
            found = compared(task, replace(task.base, **{axis: value}), machine, 1 if quick else 3)
            rows.append({"what": task.name, "axis": axis, "size": value, **found})
            progress(f"{task.name}, {axis} {value}: {found['ms']:.1f} ms, {found['ratio']:.2f} of it predicted")
    return rows


def elsewhere(task: Task, machine: Machine, quick: bool) -> Table:
    """Measure and predict for tables of other sizes, to which the model was not fitted."""
    rows: Table = []
    for size in OTHERS[:1] if quick else OTHERS:
        found = compared(task, size, machine, 1 if quick else 3)
        sizes = {"n": size.n, "d": size.d, "k": size.k, "bins": size.bins}
        rows.append({"what": task.name, **sizes, "type": "uint8" if size.whole else "float32", **found})
        progress(f"{task.name}, {sizes}: {found['ms']:.1f} ms, {found['ratio']:.2f} of it predicted")
    return rows


def compared(task: Task, size: Size, machine: Machine, rounds: int) -> dict[str, Any]:
    """Return measured and predicted seconds of one size, and its dominant operation."""
    run = task.prepare(size)
    done = run()
    if isinstance(done, ThresholdTree):
        size = replace(size, balance=balance(done), leaves=done.n_leaves)
    seconds = fastest(run, rounds)
    parts = machine.parts(task.work(size))
    said = sum(parts.values())
    most = max(parts, key=lambda part: parts[part])
    found = {"ms": 1000 * seconds, "predicted ms": 1000 * said, "ratio": said / seconds}
    return found | {"most": most, "share": parts[most] / said}


def summed() -> Table:
    """Measure and predict the bytes that a fit sums over the processes of a group."""
    rows: Table = []
    for name, explainer in TREES.items():
        for size in (TREE, replace(TREE, k=64), replace(TREE, d=128)):
            run = fit(explainer, size)
            asked = [0.0]

            def counting(
                self: Problem, values: Tensor, operation: str = "sum", asked: list[float] = asked
            ) -> Tensor:
                asked[0] += values.numel() * values.element_size() / 1e6
                return values

            with mock.patch.object(Problem, "reduce", counting):
                tree = run()
            found = replace(size, balance=balance(tree), leaves=tree.n_leaves)
            said = cost_model.tree(name, found).reduced / 1e6
            sizes = {"d": size.d, "k": size.k}
            rows.append({"tree": name, **sizes, "MB": asked[0], "predicted": said, "ratio": said / asked[0]})
    return rows


def balance(tree: ThresholdTree) -> float:
    """Return the share of a node's points in its smaller child, on average over points."""
    inner = tree.feature >= 0
    smaller = torch.minimum(tree.samples[tree.left[inner]], tree.samples[tree.right[inner]])
    return float(smaller.sum() / tree.samples[inner].sum())


def slopes(rows: Table) -> Table:
    """Return the exponents of the measured and of the predicted seconds."""
    found = []
    for what, axis in dict.fromkeys((row["what"], row["axis"]) for row in rows):
        own = [row for row in rows if (row["what"], row["axis"]) == (what, axis)]
        sizes = [log(row["size"]) for row in own]
        line = {"what": what, "axis": axis, "from": own[0]["size"], "to": own[-1]["size"]}
        for name, column in (("slope", "ms"), ("predicted", "predicted ms")):
            times = [log(row[column]) for row in own]
            line[name] = float(np.polyfit(sizes, times, 1)[0])
            line[f"{name}, at the end"] = (times[-1] - times[-2]) / (sizes[-1] - sizes[-2])
        found.append(line)
    return found


def figures(report: dict[str, Any]) -> str:
    """Return the part of a report that the guide to costs shows."""
    tables = {heading: table["rows"] for heading, table in report["tables"].items()}
    found: Table = []
    for what in dict.fromkeys(row["what"] for row in tables["Slopes"]):
        own = {row["axis"]: row for row in tables["Slopes"] if row["what"] == what}
        ends = {axis: f"{own[axis]['slope, at the end']:.2f}" if axis in own else "" for axis in AXES}
        ratios = [row["ratio"] for row in tables["Measured and predicted"] if row["what"] == what]
        found.append({"": what, **ends, "predicted over measured": f"{min(ratios):.2f} to {max(ratios):.2f}"})
    others = [row["ratio"] for row in tables["Tables of other sizes"]]
    paper = next(table for heading, table in tables.items() if heading.startswith("A billion"))
    parts = [
        "Slopes between the two greatest sizes, and how far the model is off over all sizes:",
        markdown(found),
        f"On tables of other sizes, it predicts {min(others):.2f} to {max(others):.2f} of the measured time.",
        "On paper, for a billion rows of 100 columns on 16 GPUs:",
        markdown(paper),
    ]
    return "\n\n".join(parts)


AXES = ("n", "d", "k", "leaves", "supports")


if __name__ == "__main__":
    main()
