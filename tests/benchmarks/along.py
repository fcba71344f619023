"""Pixel-flipping AUC of NEON with a baseline, of NEON at the input alone, and of other methods, on deep features.

A row explains a k-means clustering of deeper features by channels of an earlier layer, or by words. Flipping adds
channels to zeros, or words to masks, the most relevant ones first. Settings were chosen on one half of the 40
rows; the other half has other layers, data and encoders. "greedy" adds, each time, what raises the network's own
logit most: how much a method could reach that asks the network at every step. Passes are those of one input; a
pass of Shapley values, PDA and "greedy" has no backward part.

    apt-get install dataset-fashion-mnist && apt-get update -o Acquire::Languages=en
    python -m tests.benchmarks.along [--half choose] [--explained 32] [--networks FOLDER] [--json FILE]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.preprocessing import scale
from torch import Tensor

import neonxc
from neonxc import NEON
from neonxc.common.progress import hide
from neonxc.evaluation import KDEImputer, MaskImputer, MeanImputer, ZeroImputer, methods, pixel_flipping
from neonxc.lrp import Composite, Gamma
from tests.benchmarks.deep_rows import Folders, Row, rows
from tests.benchmarks.timing import Report, Table, progress

ALONG, NEON_AT_X, BOUND = "NEON, along, 20 steps", "NEON", "greedy"
Method = Callable[[Row, Tensor], Tensor]
"""Relevance of the inputs of a row for given columns."""


def contestants(row: Row) -> dict[str, tuple[Method, float]]:
    """Return the methods, and the passes that they take per input."""
    x = row.x
    units = float((x >= 0).sum(1).float().mean()) if row.in_words else x.shape[1]
    found: dict[str, tuple[Method, float]] = {
        "random": (of(methods.random()), 0),
        "x²": (of(methods.squared), 0),
        "PDA": (of(methods.pda(_imputer(row), groups=_channels(row))), units),
        "gradient × input": (of(methods.gradient_x_input), 1),
        "IG-10": (of(methods.integrated_gradients(10)), 10),
        "IG-50": (of(methods.integrated_gradients(50)), 50),
        "Shapley, 10 permutations": (shapley(10), 10 * units),
        "Shapley, 50 permutations": (shapley(50), 50 * units),
        NEON_AT_X: (lambda row, target: NEON(row.net).attribute(row.x, target), 1),
    }
    if row.in_words:  # numbers of words have no gradient
        del found["x²"]
        found["gradient × input"] = along_words(1.0), 1
        for steps in (10, 50):
            found[f"IG-{steps}"] = along_words(*((i + 0.5) / steps for i in range(steps))), steps
    for name, composite, steps in (
        ("NEON, along, 10 steps", None, 10),
        (ALONG, None, 20),
        ("NEON, along, 40 steps", None, 40),
        ("NEON, along, 20 steps, LRP-γ", Composite(Gamma(0.25)), 20),
    ):
        found[name] = (along(steps, composite), steps)
    return found | {BOUND: (greedy, units * (units + 1) / 2)}


def of(method: methods.Method) -> Method:
    """A method that needs no more than the network."""
    return lambda row, target: method(row.net, row.x, target)


def along(steps: int, composite: Composite | None) -> Method:
    def method(row: Row, target: Tensor) -> Tensor:
        options: dict[str, Any] = {"along": "mask"} if row.in_words else {"along": 0.0, "groups": "channels"}
        return NEON(row.net, composite, steps=steps, **options).attribute(row.x, target)

    return method


def shapley(permutations: int) -> Method:
    def method(row: Row, target: Tensor) -> Tensor:
        if not row.in_words:
            return methods.shapley_sampling(permutations, _channels(row))(row.net, row.x, target)
        from captum.attr import ShapleyValueSampling

        torch.manual_seed(0)
        missing = torch.where(row.x < 0, row.x, row.net.inputs.mask)
        with torch.no_grad():
            sampling = ShapleyValueSampling(row.net)
            return sampling.attribute(row.x, baselines=missing, target=target, n_samples=permutations)

    return method


def along_words(*shares: float) -> Method:
    """Gradients of the logit between the masked words (0) and the text (1), summed."""

    def method(row: Row, target: Tensor) -> Tensor:
        from sentences import gradient_of

        found = [gradient_of(row.net.features, row.net, row.x.long(), share) for share in shares]
        return torch.stack(found).sum(0)

    return method


@torch.no_grad()
def greedy(row: Row, target: Tensor) -> Tensor:
    """Relevance [N, ...] in the order in which the units raise the logit most."""
    x, filling = row.x, _imputer(row).start(row.x)
    groups = torch.arange(x.shape[1])
    place = groups if row.in_words else _channels(row).flatten()
    missing = filling.fill(torch.zeros(1, len(x), place.numel(), dtype=torch.bool), 1, torch.Generator())[0, 0]
    found = torch.zeros(len(x), x.shape[1])
    for i, own in enumerate(x):
        known = torch.zeros(x.shape[1], dtype=torch.bool)
        live = own >= 0 if row.in_words else own.flatten(1).any(1)
        for step in range(int(live.sum())):
            left = (live & ~known).nonzero()[:, 0]
            tried = known.repeat(len(left), 1)
            tried[torch.arange(len(left)), left] = True
            points = torch.where(tried[:, place], own.flatten(), missing[i].flatten()).view(-1, *own.shape)
            best = left[row.net(points)[:, target[i]].argmax()]
            known[best], found[i, best] = True, len(live) - step
    return found if row.in_words else found[..., None, None].expand(x.shape)


def _channels(row: Row) -> Tensor | None:
    if row.in_words:
        return None
    _, C, height, width = row.x.shape
    return torch.arange(C)[:, None, None].expand(C, height, width)


def _imputer(row: Row) -> Any:
    return MaskImputer(row.net.inputs.mask or 0) if row.in_words else ZeroImputer()


def measured(row: Row) -> Table:
    """Measure one row: the AUC of every method, and its lead over NEON at the input."""
    with torch.no_grad():
        target = row.net(row.x).argmax(1)
    contest = contestants(row)
    areas, lines = {}, []
    for name, (method, passes) in contest.items():
        start = time.perf_counter()
        relevance = method(row, target)
        seconds = (time.perf_counter() - start) / len(row.x)
        groups = None if row.in_words else "channels"
        areas[name] = pixel_flipping(row.net, row.x, relevance, _imputer(row), groups=groups).auc_per_input
        lines.append({**row.names, "half": row.half, "method": name, "passes": passes, "ms": 1000 * seconds})
    for line, area in zip(lines, areas.values(), strict=True):
        gain = area - areas[NEON_AT_X]
        line |= {"AUC": float(area.mean()), "lead over NEON": float(gain.mean()), "±": float(stats.sem(gain))}
    return lines


def on_tables() -> Table:
    """Measure z-scored columns of tables, with the mean as the baseline; missing values are drawn, or the mean."""
    found = []
    for data, load in (("iris", load_iris), ("wine", load_wine), ("cancer", load_breast_cancer)):
        X = scale(load().data)
        for K in (3, 6, 10):
            net = neonxc.neuralize(KMeans(K, n_init=3, random_state=0).fit(X), X)
            x, line = X[::4][:120], {"data": data, "K": K}
            for name, explainer in (("NEON", NEON(net)), ("along", NEON(net, along=0.0))):
                relevance = explainer.attribute(x)
                for missing, imputer in (("drawn", KDEImputer(X)), ("mean", MeanImputer(X))):
                    line[f"{name}, {missing}"] = pixel_flipping(net, x, relevance, imputer, repeats=5).auc
            found.append(line)
    return found


def verdicts(lines: Table, half: str) -> Table:
    """Summarize a half: mean AUC, how often a method is first, and its worst row.

    A method competes with all others but "greedy", and with one form of `along`, itself or the default.
    """
    area: dict[str, dict[str, float]] = {}
    lines = [line for line in lines if line["half"] == half]
    for line in lines:
        row = ", ".join(str(line[key]) for key in ("network", "layers", "inputs", "K"))
        area.setdefault(row, {})[line["method"]] = line["AUC"]
    found = []
    for name in dict.fromkeys(line["method"] for line in lines):
        own = [line for line in lines if line["method"] == name]
        form = name if "along" in name else ALONG

        def competes(other: str, form: str = form) -> bool:
            return other != BOUND and ("along" not in other or other == form)

        best = {row: max(auc for m, auc in of_row.items() if competes(m)) for row, of_row in area.items()}
        first = sum(of_row.get(name, 0.0) >= best[row] for row, of_row in area.items())
        worst = min(line["lead over NEON"] / max(line["±"], 1e-9) for line in own)
        found.append(
            {
                "method": name,
                "passes": float(np.mean([line["passes"] for line in own])),
                "ms": float(np.mean([line["ms"] for line in own])),
                "AUC": float(np.mean([line["AUC"] for line in own])),
                "first": f"{first} of {len(own)}",
                "worst lead over NEON, in standard errors": worst if name != NEON_AT_X else 0.0,
            }
        )
    return found


def figures(report: dict[str, Any]) -> str:
    """Return the guide's table of the half that nothing was chosen on."""
    table = ["| | passes | ms per input | AUC | first |", "|---|---|---|---|---|"]
    for row in report["tables"]["Held out"]["rows"]:
        times = f"{row['passes']:,.0f} | {row['ms']:,.0f}"
        table.append(f"| {row['method']} | {times} | {row['AUC']:.1f} | {row['first']} |")
    return "\n".join(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", choices=["choose", "report"], help="default: both")
    parser.add_argument("--explained", type=int, default=32, help="inputs of a row")
    parser.add_argument("--fashion", type=Path, default=Path("/usr/share/datasets/fashion-mnist"))
    parser.add_argument("--packages", type=Path, default=Path("/var/lib/apt/lists"), help="folder of apt's lists")
    parser.add_argument("--networks", type=Path, default=Path("networks"), help="where trained networks are kept")
    parser.add_argument("--json", metavar="FILE", help="save the tables")
    options = parser.parse_args()
    hide()
    folders, lines = Folders(options.fashion, options.packages, options.networks), []
    folders.networks.mkdir(exist_ok=True)
    report = Report("NEON with a baseline")
    for half in [options.half] if options.half else ["choose", "report"]:
        for row in rows(folders, options.explained, half):
            progress(", ".join(f"{key} {value}" for key, value in row.names.items()))
            lines += measured(row)
    for half, heading in (("report", "Held out"), ("choose", "For choosing")):
        if any(line["half"] == half for line in lines):
            report.table(heading, verdicts(lines, half))
    report.table("Tables, AUC", on_tables())
    report.table("Rows", lines)
    report.close(options.json)


if __name__ == "__main__":
    main()
