"""Pixel-flipping: the wine row of Table I, and the same removal curves as Quantus.

python -m tests.benchmarks.flipping [--rounds 5] [--json FILE]
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits, load_wine
from sklearn.preprocessing import scale
from torch import nn

import neonxc
from neonxc.evaluation import KDEImputer, ZeroImputer, compare, pixel_flipping
from tests.benchmarks.timing import Report, Table, race, results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json")
    options = parser.parse_args()
    report = Report("Pixel-flipping")
    rows, seconds = wine()
    report.table(
        "wine, 178 x 13, k-means with K = 6, 100 repeats",
        rows,
        f"All methods and both orders: {seconds:.1f} s, the KDE's bandwidth included.",
    )
    report.table(
        "Removal curves of the logit, zeros, one pixel at a time: 100 digits of 8 x 8",
        quantus(options.rounds),
        "The curves agree to 1e-6 in every point.",
    )
    report.close(options.json)


def wine() -> tuple[Table, float]:
    X = scale(load_wine().data)
    net = neonxc.neuralize(KMeans(6, n_init=10, random_state=0).fit(X), X)
    start = time.perf_counter()
    found = compare(net, X, None, KDEImputer(X), repeats=100, points=None, steps=None)
    seconds = time.perf_counter() - start
    table = found.to_frame().drop(columns=["best", "tied"]).reset_index()
    return table.to_dict("records"), seconds


def quantus(rounds: int) -> Table:
    from quantus import PixelFlipping

    X, labels = load_digits(return_X_y=True)
    x = (X[:100] / 16).reshape(-1, 1, 8, 8).astype(np.float32)
    labels = labels[:100]
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).eval()
    relevance = np.random.default_rng(0).normal(size=x.shape).astype(np.float32)
    metric = PixelFlipping(
        features_in_step=1, perturb_baseline="black", disable_warnings=True, normalise=False, abs=False
    )

    def theirs() -> np.ndarray:
        return np.array(
            metric(model=net, x_batch=x, y_batch=labels, a_batch=relevance, device="cpu", softmax=False)
        )

    def ours() -> np.ndarray:
        return pixel_flipping(net, x, relevance, ZeroImputer(), mode="remove", target=labels).logit_per_input

    assert np.abs(ours() - theirs()).max() < 1e-6
    return results(race({"neonxc": ours, "Quantus": theirs}, rounds), "neonxc")


if __name__ == "__main__":
    main()
