"""NEON with a baseline, NEON at the input alone, and other methods, by insertion and by removal.

A row explains a k-means clustering of deeper features by channels or locations of an earlier layer, by patches of
pixels, or by words. What is missing is zero, a mask, or drawn from other texts. Insertion adds the most relevant
units first (a large area is good), removal takes them away first (a small area is good). Settings were chosen on
one half of the rows; the other half has other layers, data and encoders. "stepwise" adds, twenty times, the units
of the largest gradient times input where it stands. Passes are those of one input; a pass of Shapley values and
PDA has no backward part.

    apt-get install dataset-fashion-mnist && apt-get update -o Acquire::Languages=en
    python -m tests.benchmarks.baseline [--half choose] [--explained 32] [--networks FOLDER] [--json FILE]
"""

from __future__ import annotations

import argparse
import math
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
from neonxc.evaluation import (
    KDEImputer,
    MaskImputer,
    MeanImputer,
    WordImputer,
    ZeroImputer,
    methods,
    pixel_flipping,
)
from neonxc.inputs.groups import groups_of
from neonxc.lrp import Composite, Gamma
from tests.benchmarks.deep_rows import Folders, Row, rows
from tests.benchmarks.timing import Report, Table, progress

WITH_BASELINE = "NEON, baseline, 20 steps"
NEON_AT_X = "NEON"
MEASURES = "insertion", "removal", "difference"
FIRST = "first: or within one standard error of the first; forms with a baseline do not compete with each other."
Method = Callable[[Row, Tensor], Tensor]
"""Relevance of the inputs of a row for given columns."""


def contestants(row: Row) -> dict[str, tuple[Method, float]]:
    """Return the methods, and the passes that they take per input."""
    units = row.units
    found: dict[str, tuple[Method, float]] = {
        "random": (of(methods.random()), 0),
        "x²": (of(methods.squared), 0),
        "PDA": (of(methods.pda(_imputer(row), groups=_numbers(row))), units),
        "gradient × input": (of(methods.gradient_x_input), 1),
        "IG-10": (of(methods.integrated_gradients(10)), 10),
        "Shapley, 10 permutations": (shapley(10), 10 * units),
        "stepwise": (stepwise, 20),
        NEON_AT_X: (lambda row, target: NEON(row.net).attribute(row.x, target), 1),
    }
    if row.in_words:  # numbers of words have no gradient
        del found["x²"], found["stepwise"]
        found["gradient × input"] = between_masks_and_words(1.0), 1
        found["IG-10"] = between_masks_and_words(*((i + 0.5) / 10 for i in range(10))), 10
    for name, composite, steps in (
        ("NEON, baseline, 10 steps", None, 10),
        (WITH_BASELINE, None, 20),
        ("NEON, baseline, 40 steps", None, 40),
        ("NEON, baseline, 20 steps, LRP-γ", Composite(Gamma(0.25)), 20),
    ):
        found[name] = (with_baseline(steps, composite), steps)
    return found


def of(method: methods.Method) -> Method:
    """A method that needs no more than the network."""
    return lambda row, target: method(row.net, row.x, target)


def with_baseline(steps: int, composite: Composite | None) -> Method:
    def method(row: Row, target: Tensor) -> Tensor:
        options: dict[str, Any] = {"baseline": "mask"} if row.in_words else {"baseline": 0.0, "groups": row.groups}
        return NEON(row.net, composite, steps=steps, **options).attribute(row.x, target)

    return method


def shapley(permutations: int) -> Method:
    def method(row: Row, target: Tensor) -> Tensor:
        if not row.in_words:
            return methods.shapley_sampling(permutations, _numbers(row))(row.net, row.x, target)
        from captum.attr import ShapleyValueSampling

        torch.manual_seed(0)
        missing = torch.where(row.x < 0, row.x, row.net.inputs.mask)
        with torch.no_grad():
            sampling = ShapleyValueSampling(row.net)
            return sampling.attribute(row.x, baselines=missing, target=target, n_samples=permutations)

    return method


def between_masks_and_words(*shares: float) -> Method:
    """Gradients of the logit between the masked words (0) and the text (1), summed."""

    def method(row: Row, target: Tensor) -> Tensor:
        from sentences import gradient_of

        found = [gradient_of(row.net.features, row.net, row.x.long(), share) for share in shares]
        return torch.stack(found).sum(0)

    return method


def stepwise(row: Row, target: Tensor) -> Tensor:
    """Relevance in the order in which units come in, a twentieth of them at a time."""
    x = row.x
    numbers = groups_of(row.net, row.groups, row.x)
    found = torch.zeros_like(x)
    known = torch.zeros(len(x), row.units, dtype=torch.bool)
    for step in range(20):
        at = (x * known[:, numbers].view_as(x)).requires_grad_()
        slope = torch.autograd.grad(row.net(at).gather(1, target[:, None]).sum(), at)[0]
        gains = x.new_zeros(len(x), row.units).index_add_(1, numbers, (slope * x).flatten(1))
        best = gains.masked_fill(known, -torch.inf).topk(math.ceil(row.units / 20), dim=1)
        new = torch.zeros_like(known).scatter_(1, best.indices, best.values > -torch.inf)
        scores = new * (21 - step + gains / gains.abs().amax(1, keepdim=True).clamp(min=1e-30))
        found += scores[:, numbers].view_as(x)
        known |= new
    return found


def _numbers(row: Row) -> Tensor | None:
    """The unit of every feature, shaped like an input; None for words."""
    return None if row.in_words else groups_of(row.net, row.groups, row.x).view(row.x.shape[1:])


def _imputer(row: Row) -> Any:
    if not row.in_words:
        return ZeroImputer()
    return WordImputer(row.x) if "drawn" in str(row.names["units"]) else MaskImputer(row.net.inputs.mask or 0)


def by_both(net: Any, x: Any, relevance: Any, imputer: Any, **options: Any) -> dict[str, np.ndarray]:
    """Areas [N] if the most relevant units are inserted first, if they are removed first, and their difference."""
    insertion, removal = (
        pixel_flipping(net, x, sign * relevance, imputer, **options).auc_per_input for sign in (1, -1)
    )  # the least relevant ones inserted first, read backwards, is removal
    return {"insertion": insertion, "removal": removal, "difference": insertion - removal}


def measured(row: Row) -> Table:
    """Measure one row by all methods, and how far each is behind the best other one, in standard errors."""
    with torch.no_grad():
        target = row.net(row.x).argmax(1)
    areas = {}
    lines = []
    for name, (method, passes) in contestants(row).items():
        start = time.perf_counter()
        relevance = method(row, target)
        seconds = (time.perf_counter() - start) / len(row.x)
        areas[name] = by_both(row.net, row.x, relevance, _imputer(row), groups=row.groups)
        lines.append({**row.names, "half": row.half, "method": name, "passes": passes, "ms": 1000 * seconds})
    for line in lines:
        line |= {measure: float(area.mean()) for measure, area in areas[line["method"]].items()}
        line |= {f"first by {measure}": _first(line["method"], measure, areas) for measure in MEASURES}
    return lines


def _first(name: str, measure: str, areas: dict[str, dict[str, np.ndarray]]) -> bool:
    """Whether a method is first or within a standard error; forms with a baseline do not compete."""
    sign = -1 if measure == "removal" else 1
    others = [sign * area[measure] for other, area in areas.items() if other != name and "baseline" not in other]
    if "baseline" not in name:
        others.append(sign * areas[WITH_BASELINE][measure])
    behind = max(others, key=lambda area: area.mean()) - sign * areas[name][measure]
    return bool(behind.mean() <= stats.sem(behind))


def on_tables() -> Table:
    """Measure z-scored columns of tables, with the mean as the baseline; missing values are drawn, or the mean."""
    found = []
    for data, load in (("iris", load_iris), ("wine", load_wine), ("cancer", load_breast_cancer)):
        X = scale(load().data)
        for K in (3, 6, 10):
            net = neonxc.neuralize(KMeans(K, n_init=3, random_state=0).fit(X), X)
            x = torch.from_numpy(X[::4][:120])
            target = net(x).argmax(1)
            contest: dict[str, Tensor] = {
                "gradient × input": methods.gradient_x_input(net, x, target),
                "IG-10": methods.integrated_gradients(10)(net, x, target),
                "Shapley, 10 permutations": methods.shapley_sampling(10)(net, x, target),
                NEON_AT_X: NEON(net).attribute(x),
                WITH_BASELINE: NEON(net, baseline=0.0).attribute(x),
            }
            for missing, imputer in (("drawn", KDEImputer(X)), ("mean", MeanImputer(X))):
                areas = {name: by_both(net, x, values, imputer, repeats=5) for name, values in contest.items()}
                for name, area in areas.items():
                    line: dict[str, Any] = {"data": data, "K": K, "missing": missing, "method": name}
                    line |= {measure: float(values.mean()) for measure, values in area.items()}
                    found.append(line | {f"first by {one}": _first(name, one, areas) for one in MEASURES})
    return found


def verdicts(lines: Table) -> Table:
    """Mean areas of every method, and in how many rows it is first or within one standard error of the first."""
    found = []
    for name in dict.fromkeys(line["method"] for line in lines):
        own = [line for line in lines if line["method"] == name]
        line = {"method": name}
        if "ms" in own[0]:
            line |= {key: float(np.mean([line[key] for line in own])) for key in ("passes", "ms")}
        for measure in MEASURES:
            line[measure] = float(np.mean([line[measure] for line in own]))
            line[f"first by {measure}"] = f"{sum(line[f'first by {measure}'] for line in own)} of {len(own)}"
        found.append(line)
    return found


def figures(report: dict[str, Any]) -> str:
    """Return the guide's tables of the half that nothing was chosen on."""
    found = []
    for heading, title in {"Channels": "channels", "Words": "words"}.items():
        table = [
            f"| {title} | passes | ms per input | insertion ↑ | first | removal ↓ | first |",
            "|---" * 7 + "|",
        ]
        for row in report["tables"][f"Held out: {heading.lower()}"]["rows"]:
            cells = [row["method"], f"{row['passes']:,.0f}", f"{row['ms']:,.0f}"]
            for measure in ("insertion", "removal"):
                cells += [f"{row[measure]:.1f}", row[f"first by {measure}"]]
            table.append(f"| {' | '.join(cells)} |")
        found.append("\n".join(table))
    return "\n\n".join(found)


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
    folders = Folders(options.fashion, options.packages, options.networks)
    lines = []
    folders.networks.mkdir(exist_ok=True)
    report = Report("NEON with a baseline")
    for half in [options.half] if options.half else ["report", "choose"]:
        for row in rows(folders, options.explained, half):
            progress(", ".join(f"{key} {value}" for key, value in row.names.items()))
            lines += measured(row)
    for half, heading in (("report", "Held out"), ("choose", "For choosing")):
        for units in dict.fromkeys(line["units"] for line in lines):
            if own := [line for line in lines if (line["half"], line["units"]) == (half, units)]:
                report.table(f"{heading}: {units}", verdicts(own), FIRST)
    tables = on_tables()
    for missing in ("drawn", "mean"):
        own = [line for line in tables if line["missing"] == missing]
        report.table(f"Tables, missing values: {missing}", verdicts(own), FIRST)
    report.table("Rows of tables", tables)
    report.table("Rows", lines)
    report.close(options.json)


if __name__ == "__main__":
    main()
