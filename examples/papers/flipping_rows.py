"""Rows of Table I of `flipping.py`: the clusterings that are explained, and the scores of the methods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import tables, toys
from kneed import KneeLocator
from reports import rows_table
from sklearn.cluster import KMeans
from sklearn.preprocessing import scale
from torch import Tensor

import neonxc
from neonxc.common.numbers import mean_error
from neonxc.evaluation import (
    Comparison,
    Imputer,
    KDEImputer,
    calibrate_by_flipping,
    compare,
    methods,
    pixel_flipping,
)
from neonxc.models import KernelKMeans

BY_AUC = "NEON, β by AUC"
# the methods that are compared with the baselines
OWN = ("NEON", BY_AUC, "NEON, γ = 0.1", "NEON, mid-point")
KERNEL = ("iris", "wine", "breast cancer", "ecoli", "yeast", "segment")
REFERENCE = 2000  # number of points that clusterings and imputers are fitted to


@dataclass(frozen=True)
class Points:
    """Data [n, d], and the indices of the points that are explained."""

    name: str
    X: np.ndarray
    explained: np.ndarray
    k: int
    """Clusters, by the elbow."""


Record = dict[str, Any]
Maker = Callable[[Points, int], Any]


def kmeans(data: Points, seed: int, k: int | None = None) -> neonxc.network.NeuralizedClustering:
    """Explain k-means."""
    return neonxc.neuralize(KMeans(k or data.k, n_init=10, random_state=seed).fit(data.X), data.X)


def kernel(data: Points, seed: int, k: int | None = None) -> neonxc.network.NeuralizedClustering:
    """Explain kernel k-means with 10 supports per cluster."""
    return neonxc.neuralize(KernelKMeans(k or data.k, n_support=10, random_state=seed).fit(data.X), data.X)


MODELS: dict[str, Maker] = {"k-means": kmeans, "kernel": kernel}


def elbow(X: np.ndarray, most: int = 20) -> int:
    """Return the number of clusters at the elbow of the k-means cost (kneed), at least 2."""
    ks = range(1, min(most, len(X) - 1) + 1)
    costs = [KMeans(k, n_init=10, random_state=0).fit(X).inertia_ for k in ks]
    found = KneeLocator(list(ks), costs, curve="convex", direction="decreasing").elbow
    return max(2, int(found or 2))


def load(folder: Path | None, names: Iterable[str] = (), most: int = 200) -> list[Points]:
    """Load data sets of scikit-learn and of a folder; columns are z-scored, except the pixels of digits.

    Parameters
    ----------
    folder : path, optional
    names : iterable of str, optional
        Load these alone; by default all data sets of 4 or more columns, because fewer are too easy.
    most : int
        Number of points to explain. A random sample of 2000 points of large tables is clustered.
    """
    found = []
    names = set(names)
    for data in [*toys(), *([] if folder is None else tables(folder))]:
        if data.name not in names if names else data.X.shape[1] < 4:
            continue
        generator = np.random.default_rng(0)
        rows = np.sort(generator.permutation(len(data.X))[:REFERENCE])
        X = data.X[rows] if data.name == "digits" else scale(data.X[rows])
        X = np.unique(X, axis=0)  # a point must not be among the kernels
        explained = np.sort(generator.permutation(len(X))[:most])
        found.append(Points(data.name, X, explained, elbow(X)))
    return found


def record(name: str, model: str, runs: Sequence[Comparison], d: int, k: int) -> Record:
    """Combine comparisons of several seeds on the same inputs into one row of Table I.

    Every method's area (AUC) and gain (SRG), means over seeds and inputs with standard errors over the inputs;
    which is best, and which are tied with it, within one standard error of the paired difference. `lead`: how far
    forms of NEON are ahead of the best baseline.
    """
    order = ["random", *(m for m in runs[0].results if m not in ("random", *OWN))]
    order += [m for m in OWN if m in runs[0].results]
    values = {
        "AUC": lambda run, m: run.results[m].auc_per_input,
        "SRG": lambda run, m: run.results[m].auc_per_input - run.reversed[m].auc_per_input,
    }
    rows: dict[str, Record] = {m: {"seconds": float(np.median([run.seconds[m] for run in runs]))} for m in order}
    for value, get in values.items():
        own = {m: np.mean([get(run, m) for run in runs], axis=0) for m in order}
        best = max(own, key=lambda m, own=own: own[m].mean())
        for m in order:
            mean, error = mean_error(own[m])
            behind, spread = mean_error(own[best] - own[m])
            rows[m] |= {value: mean, f"± {value}": error, f"best {value}": m == best}
            rows[m][f"tied {value}"] = bool(m == best or behind <= spread)
        if value == "AUC":
            n = len(own["random"])
            lead = {m: _lead(own, m) for m in OWN if m in own}
    return {"data": name, "model": model, "K": k, "N": n, "D": d, "lead": lead, "methods": rows}


def _lead(own: Mapping[str, np.ndarray], method: str) -> Record:
    """Return the difference between a method and the best baseline."""
    best = max((m for m in own if m not in OWN), key=lambda m: own[m].mean())
    lead, error = mean_error(own[method] - own[best])
    return {"baseline": best, "by": lead, "±": error}


def by_auc(imputer: Imputer, repeats: int = 10, seed: int = 0, groups: str | None = None) -> methods.Method:
    """NEON with beta chosen by pixel-flipping: each half of the points uses the beta chosen on the other half."""

    def method(net: Any, x: Tensor, target: Tensor) -> Tensor:
        half = torch.from_numpy(np.random.default_rng(seed).permutation(len(x)) % 2 == 0)
        relevance = torch.empty_like(x)
        for own, others in ((half, ~half), (~half, half)):
            found = calibrate_by_flipping(net, x[others], imputer, repeats, groups=groups, random_state=seed)
            relevance[own] = methods.neon_with(beta=found.beta)(net, x[own], target[own])
        return relevance

    return method


def shallow_row(data: Points, model: str, seeds: int, repeats: int, samples: int, k: int | None = None) -> Record:
    """Compute one row for k-means or kernel k-means; every seed gives another clustering."""
    imputer = KDEImputer(data.X)
    runs = []
    for seed in range(seeds):
        net = MODELS[model](data, seed, k)
        chosen = methods.default_methods(imputer, seed=seed)
        chosen["Shapley"] = methods.shapley_sampling(samples, seed=seed)
        chosen[BY_AUC] = by_auc(imputer, repeats, seed)
        runs.append(
            compare(
                net, data.X[data.explained], chosen, imputer, repeats, points=None, steps=None, random_state=seed
            )
        )
    return record(data.name, model, runs, data.X.shape[1], k or data.k)


def areas(
    net: Any,
    X: Any,
    chosen: Mapping[str, methods.Method],
    imputer: Imputer,
    repeats: int = 10,
    seed: int = 0,
    groups: str | None = None,
) -> dict[str, np.ndarray]:
    """Return the area of every input by every method, with the most relevant features first."""
    x = net.batch(X).tensor
    with torch.no_grad():
        target = torch.cat([net(part) for part in x.split(500)]).argmax(1)
    options: dict[str, Any] = {"groups": groups, "target": target, "random_state": seed}
    return {
        name: pixel_flipping(net, x, method(net, x, target), imputer, repeats, **options).auc_per_input
        for name, method in chosen.items()
    }


def paper_methods(imputer: Imputer, numbers: Any = None, seed: int = 0) -> dict[str, methods.Method]:
    """Return the methods of Table I that the paper has, too."""
    drop = ("PDA, zero, indicator", "PDA, sampled, indicator", "gradient × input", "Shapley")
    every = methods.default_methods(imputer, numbers, seed)
    return {name: method for name, method in every.items() if name not in drop}


def table(rows: Sequence[Record], value: str) -> str:
    """Format Table I: the best method in bold, and * for those within one standard error of the difference to
    it."""
    names = list(dict.fromkeys(name for row in rows for name in row["methods"]))
    names = [name for name in names if name not in OWN] + [name for name in OWN if name in names]
    return rows_table(
        f"Table I: {value}",
        [
            {key: str(row[key]) for key in ("data", "model", "N", "D", "K")}
            | {name: cell(row["methods"].get(name), value) for name in names}
            for row in rows
        ],
    )


def cell(found: Record | None, value: str) -> str:
    """Format one cell of Table I."""
    if found is None:
        return "—"
    text = f"{found[value]:.1f}"
    text = f"**{text}**" if found[f"best {value}"] else text + ("*" if found[f"tied {value}"] else "")
    return f"{text} ±{found[f'± {value}']:.1f}"


def lead_rows(rows: Sequence[Record]) -> list[Record]:
    """Rows: the difference between each form of NEON and the best baseline."""
    return [
        {key: row[key] for key in ("data", "model", "K")}
        | {
            "method": method,
            "best baseline": lead["baseline"],
            "lead": round(lead["by"], 3),
            "±": round(lead["±"], 3),
        }
        for row in rows
        for method, lead in row["lead"].items()
    ]


def verdict(rows: Sequence[Record], method: str = "NEON") -> tuple[str, Record]:
    """Count the rows in which a method is first or within one standard error of the best, and list the others."""
    leads = {f"{r['data']}, {r['model']}, K = {r['K']}": r["lead"][method] for r in rows if method in r["lead"]}
    first = [label for label, lead in leads.items() if lead["by"] >= 0]
    near = [label for label, lead in leads.items() if -lead["±"] <= lead["by"] < 0]
    behind = {label: lead for label, lead in leads.items() if lead["by"] < -lead["±"]}
    lines = [
        f"{method} is first in {len(first)} of {len(leads)} rows, within one standard error of the best baseline "
        f"in {len(near)} more." + (" Behind:" if behind else ""),
        *(f"- {x}: by {-r['by']:.2f} ± {r['±']:.2f} behind {r['baseline']}" for x, r in behind.items()),
    ]
    return "\n".join(lines), {"rows": len(leads), "first": first, "near": near, "behind": behind}
