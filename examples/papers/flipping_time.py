"""Table II of `flipping.py`: measured running times of the methods by columns, clusters and supports."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

import neonxc
from neonxc.evaluation import KDEImputer, methods
from neonxc.head import centroid_head as CentroidHead
from neonxc.network import NeuralizedClustering

AXES = {  # the sizes that grow, and their base values
    "d": {"standard": (64, 128, 256, 512), "kernel": (64, 128, 256)},
    "K": {"standard": (32, 64, 128, 256), "kernel": (16, 32, 64)},
    "p": {"kernel": (4, 8, 16, 32)},
}
BASE = {"standard": {"d": 128, "K": 64}, "kernel": {"d": 64, "K": 16, "p": 8}}
PAPER = {  # exponents of d, K, p in the paper's Table II
    "x²": {"standard": (1, 0), "kernel": (1, 0, 0)},
    "PDA, zero": {"standard": (2, 1), "kernel": (2, 1, 1)},
    "PDA, sampled": {"standard": (2, 1), "kernel": (2, 1, 1)},
    "(∇f)²": {"standard": (1, 1), "kernel": (1, 1, 1)},
    "IG-10": {"standard": (1, 1), "kernel": (1, 1, 1)},
    "NCA": {"standard": (1, 1)},
    "NEON": {"standard": (1, 1), "kernel": (1, 1, 2)},
}
QUADRATIC = "NEON, network of p² neurons"


def synthetic(points: int, d: int, K: int, p: int = 1) -> tuple[NeuralizedClustering, Tensor, Tensor]:
    """Make a network of random centers, p per cluster, with points and column indices."""
    generator = torch.Generator().manual_seed(0)
    centers = torch.randn(K * p, d, generator=generator)
    x = centers[torch.randint(K * p, (points,), generator=generator)]
    x = x + torch.randn(points, d, generator=generator)
    if p == 1:
        net = neonxc.neuralize(centers)
    else:
        net = NeuralizedClustering(CentroidHead(centers, torch.arange(K).repeat_interleave(p), gamma=1 / d))
    net.calibrate(x)
    with torch.no_grad():
        return net, x, net(x).argmax(1)


def quadratic(net: Any, x: Tensor, target: Tensor) -> Tensor:
    """NEON by the paper's network, which has a neuron for every pair of supports of two clusters (Eq. 10)."""
    head = net.head
    centers = head.detection.directions / 2
    p = head.grouping.sizes[0]
    K = head.n_clusters
    supports = centers.view(K, p, -1).to(x)
    y, _ = head.detection.coordinates(x)
    own = supports[target]  # [N, p, d]
    relevance = torch.zeros_like(y)
    h = x.new_full((len(x), K), torch.inf)
    pairs = []
    for k in range(K):
        others = supports[k].expand(len(x), p, -1)
        w = 2 * (own[:, :, None] - others[:, None])  # [N, i, j, d]
        middle = (own[:, :, None] + others[:, None]) / 2
        terms = w * (y[:, None, None] - middle)
        a = terms.sum(3)
        inner = a.mul(head.grouping.gamma).logsumexp(1) / head.grouping.gamma  # soft maximum over i
        h[:, k] = -((-head.grouping.gamma * inner).logsumexp(1)) / head.grouping.gamma
        weights = (a * head.grouping.gamma).softmax(1) * (-head.grouping.gamma * inner).softmax(1)[:, None]
        pairs.append((weights[..., None] * terms).sum((1, 2)))
    h[torch.arange(len(x)), target] = torch.inf
    shares = neonxc.head.competition.take_most(h, net.beta)
    for k in range(K):
        relevance += shares[:, k, None] * torch.where((target == k)[:, None], 0.0, pairs[k])
    return relevance


def measure(rounds: int, points: int) -> list[dict[str, Any]]:
    """Measure the median processor seconds of every method and size; the methods take turns."""
    records = []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the exponents must not depend on when a second thread starts
    try:
        for axis, kinds in AXES.items():
            for kind, sizes in kinds.items():
                for size in tqdm(sizes, f"{kind}, {axis}"):
                    at = {**BASE[kind], axis: size}
                    records += [
                        {"model": kind, "axis": axis, **at, "method": name, "seconds": seconds}
                        for name, seconds in _seconds(at, axis, rounds, points).items()
                    ]
    finally:
        torch.set_num_threads(threads)
    return records


def _seconds(at: dict[str, int], axis: str, rounds: int, points: int) -> dict[str, float]:
    net, x, target = synthetic(points, **at)
    imputer = KDEImputer(x[:64], bandwidth=1.0)
    chosen: dict[str, Callable[..., Tensor]] = {
        "x²": methods.squared,
        "PDA, zero": methods.pda(),
        "PDA, sampled": methods.pda(imputer, repeats=1),
        "(∇f)²": methods.sensitivity,
        "IG-10": methods.integrated_gradients(10),
        "NCA": methods.nca,
        "NEON": methods.neon,
    }
    if axis == "p":
        chosen[QUADRATIC] = quadratic
    times: dict[str, list[float]] = {name: [] for name in chosen}
    for _ in range(rounds + 1):  # the first one warms up
        for name, method in chosen.items():
            start = time.process_time()
            method(net, x, target)
            times[name].append(time.process_time() - start)
    return {name: float(np.median(values[1:])) for name, values in times.items()}


def exponents(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows: seconds at the base size, and exponents from the three largest sizes beside the paper's."""
    rows = []
    for kind in BASE:
        axes = [axis for axis in AXES if kind in AXES[axis]]
        for name in dict.fromkeys(r["method"] for r in records if r["model"] == kind):
            row: dict[str, Any] = {"model": kind, "method": name, "ms at base": None}
            for place, axis in enumerate(axes):
                some = [r for r in records if (r["model"], r["axis"], r["method"]) == (kind, axis, name)]
                paper = PAPER.get(name, {}).get(kind)
                row |= {f"{axis}^": None, f"paper {axis}^": paper[place] if paper else None}
                if not some:
                    continue
                sizes, seconds = np.array([[r[axis], r["seconds"]] for r in some]).T
                row[f"{axis}^"] = round(float(np.polyfit(np.log(sizes[-3:]), np.log(seconds[-3:]), 1)[0]), 2)
                base = seconds[sizes == BASE[kind][axis]]
                if len(base):
                    row["ms at base"] = round(1000 * float(base[0]), 3)
            rows.append(row)
    return rows
