"""Variants of the paper's NEON: other betas, other reference points, other rules for deep clusterings.

What is chosen by data is chosen on one half of the points and measured on the other half, and vice versa.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from flipping_deep import Deep
from flipping_figures import CHANNELS
from flipping_rows import MODELS, Points, areas, by_auc
from scipy import stats
from torch import Tensor

from neonxc.evaluation import KDEImputer, ZeroImputer, methods
from neonxc.head.answer import Answer
from neonxc.head.competition import take_most
from neonxc.lrp import Composite, Gamma

Record = dict[str, Any]
BASE = "NEON"
HELD_OUT = "β by area, held out"
LEAST = "β of Eq. 3"
HALF = "half of Eq. 3"
MEDIAN = "β by the median contrast"


def with_beta(beta: Callable[[Any, Tensor, Tensor], Any]) -> methods.Method:
    """NEON with a beta for each point, computed from the network, the points and their columns."""

    def method(net: Any, x: Tensor, target: Tensor) -> Tensor:
        with torch.no_grad():
            return Answer(net.head, x, target, beta=beta(net, x, target)).relevance()

    return method


def per_point(net: Any, x: Tensor, target: Tensor) -> Tensor:
    """``1 / f_c(x)``."""
    return 1 / net(x).gather(1, target[:, None]).clamp(min=1e-12)


def per_cluster(X: np.ndarray) -> Callable[[Any, Tensor, Tensor], Tensor]:
    """``1 / E[f_c | x in c]``."""

    def beta(net: Any, x: Tensor, target: Tensor) -> Tensor:
        f, column = net(torch.as_tensor(X).to(x)).max(1)
        k = net.head.n_clusters
        total = torch.zeros(k, dtype=f.dtype).index_add_(0, column, f)
        mean = total / torch.bincount(column, minlength=k).clamp(min=1)
        return 1 / mean.clamp(min=1e-12)[target][:, None]

    return beta


def other_betas(net: Any, X: Any) -> dict[str, float]:
    """Statistics of a point's contrasts that replace their harmonic mean."""
    least, median = (net.heuristic_beta(X, contrast) for contrast in ("least", "median"))
    return {LEAST: least, HALF: least / 2, MEDIAN: median}


def likeliest(X: np.ndarray) -> Callable[[Any, Tensor, Tensor], float]:
    """``1 / 2 sigma^2`` of a mixture of equal spherical Gaussians at the centers: the beta of its posteriors."""

    def beta(net: Any, x: Tensor, target: Tensor) -> float:
        y, _ = net.head.detection.coordinates(torch.as_tensor(X).to(x))
        least = torch.cdist(y, net.head.detection.directions.to(x) / 2).amin(1).square()
        return float(y.shape[1] / (2 * least.mean()))

    return beta


def from_point(reference: str, X: np.ndarray) -> methods.Method:
    """NEON for k-means with another reference point than the mid-point m in each contrast ``w'(x - m)``.

    Parameters
    ----------
    reference : str
        "mid-point"; on the boundary of the two clusters "nearest" to x, "nearest to the mean" of the data, or "on
        the way to the competitor"; or the "mean" or the "competitor" itself, which do not conserve relevance.
    X : array [n, d]
        Data.
    """

    def method(net: Any, x: Tensor, target: Tensor) -> Tensor:
        detection = net.head.detection
        y = detection.coordinates(x)[0]
        mean = detection.coordinates(torch.as_tensor(X).to(x))[0].mean(0)
        centers = detection.directions.to(x) / 2
        shares = take_most(net.head.competition.evidence(detection(x), target)[0], net.beta)
        own = centers[target][:, None]
        # [N, K, d]
        w = 2 * (own - centers)
        middle = (own + centers) / 2
        square = w.square().sum(2, keepdim=True).clamp(min=1e-12)
        h = (w * (y[:, None] - middle)).sum(2, keepdim=True)
        if reference == "mid-point":
            away = y[:, None] - middle
        elif reference == "nearest":
            away = w * h / square
        elif reference == "nearest to the mean":
            away = y[:, None] - mean + w * (w * (mean - middle)).sum(2, keepdim=True) / square
        elif reference == "on the way to the competitor":
            away = (y[:, None] - centers) * h / (h + square / 4)
        else:
            away = y[:, None] - (mean if reference == "mean" else centers)
        return (shares[:, :, None] * w * away).sum(1)

    return method


REFERENCES = ("nearest", "nearest to the mean", "on the way to the competitor", "mean", "competitor")


def contestants(data: Points, model: str, net: Any, repeats: int, seed: int) -> dict[str, methods.Method]:
    """Return the variants of NEON for one clustering."""
    found = {
        BASE: methods.neon,
        "β = 0": methods.neon_with(beta=0.0),
        "β = ∞ (NCA)": methods.nca,
        "β per cluster": with_beta(per_cluster(data.X)),
        "β per point": with_beta(per_point),
        **{name: methods.neon_with(beta=beta) for name, beta in other_betas(net, data.X).items()},
        HELD_OUT: by_auc(KDEImputer(data.X), repeats, seed),
    }
    if model == "k-means":
        found["β by likelihood"] = with_beta(likeliest(data.X))
        found |= {f"reference: {name}": from_point(name, data.X) for name in REFERENCES}
    return found


def shallow_variants(data: Points, model: str, seeds: int, repeats: int) -> list[Record]:
    """Compute records for every seed, with K at the elbow and three times as many clusters."""
    records = []
    imputer = KDEImputer(data.X)
    for k, seed in [(k, seed) for k in (data.k, 3 * data.k) for seed in range(seeds)]:
        net = MODELS[model](data, seed, k)
        chosen = contestants(data, model, net, repeats, seed)
        area = areas(net, data.X[data.explained], chosen, imputer, repeats, seed)
        auc = {name: float(values.mean()) for name, values in area.items()}
        records.append({"data": data.name, "model": model, "K": k, "seed": seed, "AUC": auc})
    return records


def deep_variants(row: Deep) -> Record:
    """Compute the record of one deep clustering: other rules for the head, other betas and gammas."""
    chosen: dict[str, methods.Method] = {BASE: methods.neon}
    for gamma in (0.1, 0.5, 1.0, 2.0):
        chosen[f"γ = {gamma}"] = methods.neon_with(Composite(Gamma(gamma)))
    for gamma in (0.1, 0.25, 1.0):
        name = f"mid-point, γ = {gamma}"
        chosen[name] = methods.neon_with(Composite(Gamma(gamma)), head_rule="midpoint")
    chosen["β = 0"] = methods.neon_with(beta=0.0)
    chosen["β = ∞ (NCA)"] = methods.nca
    chosen["β per point"] = _deep_beta(per_point)
    for name, beta in other_betas(row.net, row.activations).items():
        chosen[name] = methods.neon_with(beta=beta)
    chosen[HELD_OUT] = by_auc(ZeroImputer(), groups=CHANNELS)
    area = areas(row.net, row.activations, chosen, ZeroImputer(), 1, 0, CHANNELS)
    kind = row.kind.split(",")[0]
    auc = {name: float(values.mean()) for name, values in area.items()}
    return {"data": f"{row.name}, {kind}", "model": "deep", "K": row.k, "seed": 0, "AUC": auc}


def _deep_beta(beta: Callable[[Any, Tensor, Tensor], Tensor]) -> methods.Method:
    """NEON on features with a beta for each point; points are explained one by one, because a network has one
    beta."""

    def method(net: Any, x: Tensor, target: Tensor) -> Tensor:
        with torch.no_grad():
            betas = beta(net, x, target).flatten().tolist()
        parts = [
            methods.neon_with(beta=value)(net, x[i : i + 1], target[i : i + 1]) for i, value in enumerate(betas)
        ]
        return torch.cat(parts)

    return method


def verdicts(records: Sequence[Record]) -> list[Record]:
    """Rows by model and variant: the mean gain over NEON, and a t-test over data sets (means over K and seeds)."""
    rows = []
    for model in dict.fromkeys(r["model"] for r in records):
        some = [r for r in records if r["model"] == model]
        for variant in dict.fromkeys(name for r in some for name in r["AUC"]):
            if variant == BASE:
                continue
            gains = [
                np.mean([r["AUC"][variant] - r["AUC"][BASE] for r in some if r["data"] == data])
                for data in dict.fromkeys(r["data"] for r in some)
            ]
            spread = float(np.std(gains, ddof=1) / np.sqrt(len(gains))) if len(gains) > 1 else float("nan")
            known = len(gains) > 2 and spread > 1e-9
            p = float(stats.ttest_1samp(gains, 0).pvalue) if known else 1.0
            mean = float(np.mean(gains))
            row = {"model": model, "variant": variant, "gain": round(mean, 3), "±": round(spread, 3), "p": p}
            row |= {"better on": int(np.sum(np.array(gains) > 0)), "of": len(gains)}
            rows.append(row | {"worst": round(float(min(gains)), 2)})
        _adjust(rows, model)
    return rows


def _adjust(rows: list[Record], model: str) -> None:
    """Add p-values adjusted for the number of variants (Holm), and whether a variant is better at the 1% level."""
    least = 0.0
    some = sorted((row for row in rows if row["model"] == model), key=lambda row: row["p"])
    for rank, row in enumerate(some):
        least = max(least, min(1.0, row["p"] * (len(some) - rank)))
        row |= {"p, Holm": least, "better": row["gain"] > 0 and least < 0.01}
