"""Throughputs of this machine, and assumed throughputs of GPUs for a fit on many of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from neonxc.trees.cuts import histograms
from tests.benchmarks.cost_model import Machine, Size, depth, held, tree


def fastest(run: Callable[[], object], rounds: int = 5) -> float:
    """Return the processor seconds of a call on one thread, the minimum of several rounds."""
    run()
    found = []
    for _ in range(rounds):
        start = time.process_time()
        run()
        found.append(time.process_time() - start)
    return min(found)


def this_machine() -> Machine:
    """Measure the throughputs of this machine with one thread; the time of an operator comes from a fit."""
    generator = torch.Generator().manual_seed(0)
    n = 100_000
    d = 16
    k = 16
    codes = torch.randint(256, (d, n), generator=generator, dtype=torch.uint8)
    labels = torch.randint(k, (n,), generator=generator)
    half = labels < k // 2
    values = torch.rand(n, dtype=torch.float64, generator=generator)
    rows = half.nonzero()[:, 0]
    long = torch.rand(1 << 23, dtype=torch.float64)
    copy = torch.empty_like(long)
    left = torch.rand(2048, 512)
    right = torch.rand(512, 512)

    def gather() -> None:
        labels.masked_select(half)
        labels.index_select(0, rows)

    return Machine(
        scattered=fastest(lambda: histograms.histogram(codes, 256, labels, k)) / (d * n),
        gathered=fastest(gather) / (2 * n),
        streamed=fastest(lambda: copy.copy_(long)) / (16 * len(long)),
        multiplied=fastest(lambda: left @ right) / (2048 * 512 * 512),
        sorted=fastest(lambda: values.numpy().copy().sort()) / n,
        ordered=fastest(lambda: values.sort()) / n,
        operators=0.0,
    )


GPU = Machine(
    scattered=1e-10,
    gathered=3e-11,
    streamed=1 / 2e12,
    multiplied=1e-13,
    sorted=1e-9,
    ordered=2e-9,
    operators=1e-5,
    reduced=2 / 50e9,
    calls=5e-5,
)
"""What is assumed of a GPU with 3 TB/s of memory bandwidth and its 400 Gbit/s network; docs/cost.md says why."""
OPERATORS = {"IMM": 110, "ExShallow": 750, "CART": 120, "SpExClique": 200, "ExKMC": 110}  # per cut; roughly


def billion(processes: int = 16, rows: int = 10**9, d: int = 100, k: int = 16) -> list[dict[str, Any]]:
    """Predict the seconds and memory of each process, and the bytes that are summed over all processes."""
    found = []
    for algorithm, leaves, balance, whole in (
        ("IMM", k, 0.2, True),
        ("CART", k, 0.2, True),
        ("CART", k, 0.5, True),
        ("CART", k, 0.2, False),
        ("CART", 16 * k, 0.2, True),
        ("SpExClique", k, 0.2, True),
        ("ExKMC", 4 * k, 0.2, True),
        ("ExShallow", k, 0.2, True),
    ):
        size = Size(rows // processes, d, k, leaves, balance=balance, whole=whole)
        work = tree(algorithm, size, (500, OPERATORS[algorithm]))
        parts = GPU.parts(work)
        network = parts["reduced"] + parts["calls"]
        found.append(
            {
                "tree": algorithm,
                "columns": "whole numbers" if whole else "floats in bins",
                "leaves": leaves,
                "balance": balance,
                "levels": depth(leaves, balance),
                "GB per GPU": (4 * size.n * d + held(algorithm, size)) / 1e9,
                "seconds": GPU.seconds(work),
                "histograms": parts["scattered"],
                "other passes": parts["gathered"] + parts["streamed"] + parts["multiplied"],
                "sorting": parts["sorted"] + parts["ordered"],
                "operators": parts["operators"],
                "network": network,
                "MB reduced, root": 4 * d * size.bins * k / 1e6,
                "MB reduced in all": work.reduced / 1e6,
            }
        )
    return found
