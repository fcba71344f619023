"""How time grows with rows, columns, clusters and leaves, and whether the cost model says so.

python -m tests.benchmarks.growth [--quick] [--json FILE]

Everything runs on one thread, and seconds are those of the processor, the least of a few rounds: a machine that
does other things as well hardly changes them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from math import log
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

import neonxc
from neonxc import NEON
from neonxc.models import KernelKMeans
from neonxc.models.kernel.em import em
from neonxc.models.kernel.supports import uniform
from neonxc.trees import CART, IMM, ExKMC, ExShallow, SpExClique, ThresholdTree
from tests.benchmarks import cost_model
from tests.benchmarks.cost_model import Machine, Size, Work
from tests.benchmarks.timing import Report, Table, progress
from tests.launches import launches

LIMIT = 2.0  # how far the model may be off, as a factor


def _bins(size: Size) -> int | None:
    return None if size.whole else size.bins


TREES: dict[str, Callable[[Size], Any]] = {
    "IMM": lambda size: IMM(size.k, max_bins=_bins(size)),
    "ExShallow": lambda size: ExShallow(size.k, max_bins=_bins(size)),
    "CART": lambda size: CART(size.k, max_bins=_bins(size), max_leaves=size.leaves or None),
    "SpExClique": lambda size: SpExClique(size.k, max_bins=_bins(size), max_leaves=size.leaves or None),
    "ExKMC": lambda size: ExKMC(size.k, max_bins=_bins(size), max_leaves=size.leaves or None),
}
TREE, POINTS = Size(40_000, 32, 16), Size(20_000, 64, 16)
OTHERS = [  # sizes that are not on the axes, of which no constant of the model was chosen
    Size(100_000, 50, 10),
    Size(6_000, 150, 25),
    Size(300_000, 10, 6),
    Size(30_000, 20, 40, bins=64),
    Size(100_000, 20, 10, whole=False),
]
SMALL = Size(600, 8, 12)  # operators are counted on so few rows


@dataclass(frozen=True)
class Task:
    """Something that is timed.

    Attributes
    ----------
    name : str
    base : Size
    axes : dict of str to list of int
        Values of one size at a time, the others as in `base`.
    prepare : callable
        Size -> a call that does it once.
    work : callable
        Size -> what the model says.
    """

    name: str
    base: Size
    axes: dict[str, list[int]]
    prepare: Callable[[Size], Callable[[], Any]]
    work: Callable[[Size], Work]


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
    report.table("A billion rows of 100 columns on 16 GPUs, on paper", cost_model.billion(), PAPER)
    report.close(options.json)
    if max(off) > LIMIT and not options.quick:
        raise SystemExit(f"the model is off by {max(off):.2f}, more than {LIMIT}")


def worst(rows: Table) -> float:
    """How far the model is off, as a factor."""
    return max(max(row["ratio"], 1 / row["ratio"]) for row in rows)


PAPER = (
    "k = 16, 256 bins. Levels: the average depth of a row. Seconds in all, and of each kind of work. "
    "The guide to costs says what is assumed."
)
SLOPES = (
    "The exponent e of time ~ size^e, by least squares on logarithms, and between the two greatest sizes. "
    "What is constant, such as the start of an operator, makes it less than it is in the limit."
)


def all_tasks() -> Iterable[Task]:
    """Trees, attributions, and an iteration of EM."""
    sizes = {
        "n": [2_500, 10_000, 40_000, 160_000],
        "d": [8, 32, 128],
        "k": [4, 16, 64],
    }
    for name, explainer in TREES.items():
        more = {} if name in ("IMM", "ExShallow") else {"leaves": [32, 128, 512]}
        work = partial(cost_model.tree, name, operators=of_cuts(name))
        yield Task(name, TREE, sizes | more, partial(fit, explainer), work)
    points = {"n": [1_250, 5_000, 20_000, 80_000], "d": [16, 64, 256], "k": [4, 16, 64]}
    work = partial(cost_model.attribution, operators=of_clusters(attribution, 1))
    yield Task("NEON, k-means", POINTS, points, attribution, work)
    kernel = replace(POINTS, n=5_000, supports=8)
    points = {"n": [1_250, 5_000, 20_000], "d": [16, 64, 256], "k": [4, 16, 64], "supports": [2, 8, 32]}
    work = partial(cost_model.attribution, operators=of_clusters(attribution, 2))
    yield Task("NEON, kernel k-means", kernel, points, attribution, work)
    work = partial(cost_model.em_iteration, operators=of_clusters(iteration, 2))
    yield Task("EM, one iteration", kernel, points, iteration, work)


# --- what is timed -------------------------------------------------------------------------------------------


def table(size: Size) -> tuple[Tensor, Tensor]:
    """Gaussian clusters, [n, d], and their labels; whole numbers below `size.bins` in uint8, or float32."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(size.k, (size.n,), generator=generator)
    centers = 2 * torch.randn(size.k, size.d, generator=generator)
    x = centers[labels] + torch.randn(size.n, size.d, generator=generator)
    return ((x + 8) * (size.bins / 16)).clamp_(0, size.bins - 1).to(torch.uint8) if size.whole else x, labels


def fit(explainer: Callable[[Size], Any], size: Size) -> Callable[[], ThresholdTree]:
    """The fit of a tree to the means of the clusters."""
    x, labels = table(size)
    centers = torch.stack([x[labels == c].double().mean(0) for c in range(size.k)])
    return lambda: explainer(size).fit(x, centers=centers).tree_


def attribution(size: Size) -> Callable[[], Tensor]:
    """Relevance of every row's own cluster."""
    x, labels = table(size)
    x = x.float()
    if size.supports == 1:
        net = neonxc.neuralize(np.stack([x[labels == c].mean(0).numpy() for c in range(size.k)]))
    else:
        few = slice(size.k * 4 * size.supports)
        model = KernelKMeans(size.k, size.supports, max_iter=1, random_state=0).fit(x[few], labels=labels[few])
        net = neonxc.neuralize(model, x[few])
    return lambda: NEON(net).attribute(x)


def iteration(size: Size) -> Callable[[], Any]:
    """One pass of EM over the rows, for supports that are some of the rows."""
    x, labels = table(size)
    x = x.float() - x.float().mean(0)
    supports = torch.stack([x[labels == c][: size.supports] for c in range(size.k)])
    return lambda: em(x, uniform(supports, 1 / (20.0 * size.d)), max_iter=0)


# --- operators, and the machine ------------------------------------------------------------------------------


def of_cuts(name: str) -> tuple[float, float]:
    """Operators of every fit, and for every cut."""
    return _operators(partial(fit, TREES[name]), SMALL, lambda tree: tree.n_leaves - 1)


def of_clusters(prepare: Callable[[Size], Callable[[], Any]], supports: int) -> tuple[float, float]:
    """Operators of every call, and for every cluster."""
    ks = iter(FEW)
    return _operators(prepare, replace(SMALL, supports=supports), lambda _: next(ks))


FEW = (4, 12)  # clusters between which operators are compared


def _operators(
    prepare: Callable[[Size], Callable[[], Any]], size: Size, of: Callable[[Any], int]
) -> tuple[float, float]:
    """Operators at the start, and for every one of something, from two small calls."""
    (few, least), (many, most) = (
        (of(run()), launches(run).total) for run in (prepare(replace(size, k=k)) for k in FEW)
    )
    each = (most - least) / (many - few)
    return least - each * few, each


def calibrated() -> Machine:
    """Throughputs of this machine; an operator takes what small fits take over their operators."""
    runs = [fit(explainer, SMALL) for explainer in TREES.values()]
    seconds, operators = sum(map(cost_model.fastest, runs)), sum(launches(run).total for run in runs)
    return replace(cost_model.measured(), operators=seconds / operators)


def constants(machines: list[Machine]) -> Table:
    """The throughputs in words, between the tasks."""
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
    """Seconds of every size along the axes, and what the model says."""
    rows: Table = []
    for axis, values in task.axes.items():
        for value in values[:2] if quick else values:
            found = compared(task, replace(task.base, **{axis: value}), machine, 1 if quick else 3)
            rows.append({"what": task.name, "axis": axis, "size": value, **found})
            progress(f"{task.name}, {axis} {value}: {found['ms']:.1f} ms, {found['ratio']:.2f} of it predicted")
    return rows


def elsewhere(task: Task, machine: Machine, quick: bool) -> Table:
    """The same for other sizes of tables."""
    rows: Table = []
    for size in OTHERS[:1] if quick else OTHERS:
        found = compared(task, size, machine, 1 if quick else 3)
        sizes = {"n": size.n, "d": size.d, "k": size.k, "bins": size.bins}
        rows.append({"what": task.name, **sizes, "type": "uint8" if size.whole else "float32", **found})
        progress(f"{task.name}, {sizes}: {found['ms']:.1f} ms, {found['ratio']:.2f} of it predicted")
    return rows


def compared(task: Task, size: Size, machine: Machine, rounds: int) -> dict[str, Any]:
    """What one size takes, what the model says, and what takes most of that."""
    run = task.prepare(size)
    done = run()
    if isinstance(done, ThresholdTree):
        size = replace(size, balance=balance(done), leaves=done.n_leaves)
    seconds = cost_model.fastest(run, rounds)
    parts = machine.parts(task.work(size))
    said, most = sum(parts.values()), max(parts, key=lambda part: parts[part])
    found = {"ms": 1000 * seconds, "predicted ms": 1000 * said, "ratio": said / seconds}
    return found | {"most": most, "share": parts[most] / said}


def balance(tree: ThresholdTree) -> float:
    """The share of a node's points that its smaller child has, on average over points."""
    inner = tree.feature >= 0
    smaller = torch.minimum(tree.samples[tree.left[inner]], tree.samples[tree.right[inner]])
    return float(smaller.sum() / tree.samples[inner].sum())


def slopes(rows: Table) -> Table:
    """Exponents, for what was measured and for what was predicted."""
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


if __name__ == "__main__":
    main()
