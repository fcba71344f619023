"""Figures 9 and 10 of `flipping.py`: numbers of clusters and columns, and the effect of beta and gamma."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from flipping_deep import Deep
from flipping_rows import Points, areas, kmeans, paper_methods
from matplotlib.figure import Figure
from tqdm import tqdm

from neonxc.evaluation import KDEImputer, ZeroImputer, methods
from neonxc.lrp import Composite, Gamma

Record = dict[str, Any]
FACTORS = tuple(2.0**i for i in range(-4, 5))
GAMMAS = (0.0, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0)
CHANNELS = "channels"


def grid(data: Points, ks: Sequence[int], ds: Sequence[int], seeds: int, repeats: int) -> list[Record]:
    """Compute Figure 9: a record per number of clusters, number of columns and seed, which selects the columns."""
    records = []
    for k, d, seed in tqdm([(k, d, seed) for d in ds for k in ks for seed in range(seeds)], "figure 9"):
        columns = np.random.default_rng(seed).permutation(data.X.shape[1])[:d]
        X = np.unique(data.X[:, columns], axis=0)  # identical rows cannot form two clusters
        some = Points(data.name, X, np.arange(len(X)), k)
        imputer = KDEImputer(X)
        found = areas(kmeans(some, seed), X, paper_methods(imputer, seed=seed), imputer, repeats, seed)
        records.append({"K": k, "d": d, "seed": seed, "AUC": {m: float(v.mean()) for m, v in found.items()}})
    return records


def figure_9(records: Sequence[Record]) -> Figure:
    """Draw the difference between NEON and the best other method, and the area of every method."""
    ks = sorted({r["K"] for r in records})
    ds = sorted({r["d"] for r in records})
    names = [name for name in records[0]["AUC"] if name != "NEON"] + ["NEON"]
    values = {
        name: np.array(
            [[np.mean([r["AUC"][name] for r in records if (r["K"], r["d"]) == (k, d)]) for d in ds] for k in ks]
        )
        for name in names
    }
    ahead = values["NEON"] - np.max([values[name] for name in names[:-1]], axis=0)
    columns = 3
    figure = Figure(figsize=(8.6, 1.9 * -(-(len(names) + 1) // columns)), layout="constrained")
    panels = figure.subplots(-(-(len(names) + 1) // columns), columns, squeeze=False)
    low = min(v.min() for v in values.values())
    high = max(v.max() for v in values.values())
    bound = np.abs(ahead).max()
    for axes, name in zip(panels.flat, ["difference", *names], strict=False):
        if name == "difference":
            image = axes.imshow(ahead, "RdBu_r", vmin=-bound, vmax=bound, origin="lower", aspect="auto")
            axes.set_title("NEON − best of the others", fontsize=9, fontweight="bold")
        else:
            image = axes.imshow(values[name], "viridis", vmin=low, vmax=high, origin="lower", aspect="auto")
            axes.set_title(f"{name}   {values[name].mean():.1f}", fontsize=9, parse_math=False)
        bar = figure.colorbar(image, ax=axes)
        bar.ax.tick_params(labelsize=7)
        axes.set_xticks(range(len(ds)), ds, fontsize=7)
        axes.set_yticks(range(len(ks)), ks, fontsize=7)
    for axes in panels.flat[len(names) + 1 :]:
        axes.set_visible(False)
    for axes in panels[:, 0]:
        axes.set_ylabel("clusters K", fontsize=8)
    for axes in panels[-1]:
        axes.set_xlabel("columns d", fontsize=8)
    return figure


def grid_summary(records: Sequence[Record]) -> list[Record]:
    """Rows by K: the mean of every method over d and seeds, and the number of cells in which NEON is first."""
    rows = []
    for k in sorted({r["K"] for r in records}):
        some = [r for r in records if r["K"] == k]
        cells = []
        for d in sorted({r["d"] for r in some}):
            means = {m: np.mean([r["AUC"][m] for r in some if r["d"] == d]) for m in some[0]["AUC"]}
            cells.append(means["NEON"] - max(v for m, v in means.items() if m != "NEON"))
        mean = {m: round(float(np.mean([r["AUC"][m] for r in some])), 2) for m in some[0]["AUC"]}
        rows.append(
            {"K": k, **mean, "ahead in cells": int(np.sum(np.array(cells) > 0)), "of": len(cells)}
            | {"mean lead": round(float(np.mean(cells)), 2), "least lead": round(float(np.min(cells)), 2)}
        )
    return rows


def sweep(
    net: Any, X: Any, label: tuple[str, str, int], factors: Sequence[float], imputer: Any, repeats: int
) -> Record:
    """Compute the area of one clustering against beta, in units of the heuristic, and that of the best
    baseline."""
    chosen = paper_methods(imputer)
    chosen |= {f"x{factor}": methods.neon_with(beta=factor * net.beta) for factor in factors}
    return _curve(label, "β / heuristic", factors, 1.0, areas(net, X, chosen, imputer, repeats))


def sweep_gamma(row: Deep, gammas: Sequence[float]) -> Record:
    """Compute the area of one deep clustering against gamma."""
    numbers = channel_numbers(row.activations)
    chosen = paper_methods(ZeroImputer(), numbers)
    chosen |= {f"x{gamma}": methods.neon_with(Composite(Gamma(gamma))) for gamma in gammas}
    found = areas(row.net, row.activations, chosen, ZeroImputer(), 1, 0, CHANNELS)
    return _curve((row.name, row.kind.split(",")[0], row.k), "γ", gammas, 0.1, found)


def channel_numbers(activations: Any) -> Any:
    """Number the channels of activations [N, C, h, w] as groups, in the shape of one input."""
    _, channels, *places = activations.shape
    return torch.arange(channels)[:, None, None].expand(channels, *places).contiguous()


def _curve(
    label: tuple[str, str, int], what: str, values: Sequence[float], marked: float, found: dict[str, np.ndarray]
) -> Record:
    swept = [f"x{value}" for value in values]
    baselines = {m: float(v.mean()) for m, v in found.items() if m not in (*swept, "NEON")}
    if what == "γ":
        baselines.pop("NCA", None)  # the paper has no such figure for deep clusterings
    best = max(baselines, key=lambda name: baselines[name])
    curve = [found[name] for name in swept]
    return {
        **dict(zip(("data", "model", "K"), label, strict=True)),
        "N": len(next(iter(found.values()))),
        "what": what,
        "values": list(values),
        "marked": marked,
        "AUC": [float(v.mean()) for v in curve],
        # standard error of the difference to the marked value, by which the shape of the curve should be judged
        "±": [float((v - found[f"x{marked}"]).std(ddof=1) / np.sqrt(len(v))) for v in curve],
        "best baseline": best,
        "baseline": baselines[best],
    }


def figure_10(records: Iterable[Record]) -> Figure:
    """Draw the areas against beta and gamma, with the heuristic marked and the best baseline dotted."""
    records = list(records)
    columns = 4
    lines = -(-len(records) // columns)
    figure = Figure(figsize=(9.6, 1.95 * lines), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False)
    for axes, record in zip(panels.flat, records, strict=False):
        place = record["values"].index(record["marked"])
        x = np.arange(len(record["values"]))  # evenly spaced, because gamma 0 has no logarithm
        auc = np.array(record["AUC"])
        error = np.array(record["±"])
        axes.fill_between(x, auc - error, auc + error, color="0.88", lw=0)
        axes.plot(x, auc, color="0.45", lw=1.5)
        axes.axhline(record["baseline"], color="C0", ls=":", lw=1.5)
        axes.plot(x[place], auc[place], "o", color="C1", ms=6)
        style: dict[str, Any] = {"textcoords": "offset points", "fontsize": 6.5, "color": "C0", "ha": "right"}
        at = (1, record["baseline"])
        coordinates = ("axes fraction", "data")
        axes.annotate(record["best baseline"], at, (0, 2), coordinates, parse_math=False, **style)
        axes.set_title(f"{record['data']}, {record['model']}, K = {record['K']}", fontsize=7)
        axes.set_xticks(x[::2], [_short(value) for value in record["values"]][::2], fontsize=7)
        axes.set_xlabel(record["what"], fontsize=7, labelpad=1)
        axes.tick_params(axis="y", labelsize=7)
        axes.spines[["top", "right"]].set_visible(False)
        axes.margins(y=0.15)
    for axes in panels.flat[len(records) :]:
        axes.set_visible(False)
    return figure


def _short(value: float) -> str:
    return f"1/{round(1 / value)}" if 0 < value < 1 and 1 / value == round(1 / value) else f"{value:g}"
