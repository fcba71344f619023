"""How wide must heatmaps be blurred to say best which pixels a cluster depends on?

The locations of each photo are clustered as `neonxc heatmap` does it, and the heatmap of every cluster is blurred
by Gaussians of several widths. Each is judged by flipping patches, see `tests.benchmarks.head_rules`: `score` is
the area between the curves of the least and of the most relevant patches first (higher is better).

    python -m tests.benchmarks.smoothing [--quick] [--json FILE]
"""

from __future__ import annotations

import argparse
from functools import partial

import numpy as np
import torch
from scipy.ndimage import gaussian_filter
from sklearn.cluster import KMeans

from neonxc import NEON, neuralize
from neonxc.models import efficientnet_lite0
from tests.benchmarks.head_rules import SIDE, explained, fast, photos, plus_minus
from tests.benchmarks.patch_flipping import areas
from tests.benchmarks.timing import Report, Table, progress

WIDTHS = (0.0, 2.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0)
"""Standard deviations in pixels; the shorter side of a photo has 320."""

SIDES = (8, 16)
"""Sides of the patches in pixels."""


def scores(clusters: int, quick: bool) -> Table:
    """A row for every photo, cluster, side of the patches and width."""
    features = efficientnet_lite0(normalize=True)
    rows = []
    for number, (name, photo) in enumerate(photos(quick).items()):
        progress(f"smoothing: {name}, {clusters} clusters")
        x = features.preprocess(photo[None])
        net = neuralize(KMeans(clusters, n_init=4, random_state=0).fit(features.points(x).numpy()), x, features)
        own = net.assign(x)[0]
        logits = fast(net)
        for cluster, heatmap in enumerate(NEON(net).heatmaps(x)[0].numpy()):
            maps = {f"{width:g}": torch.from_numpy(gaussian_filter(heatmap, width)) for width in WIDTHS}
            score = partial(explained, logits=logits, cluster=cluster, place=own == cluster)
            for side in SIDES:
                for width, area in areas(score, x[0], maps, number, side):
                    rows.append({"photo": name, "cluster": cluster, "side": side, "width": width, **area})
    return rows


def means(rows: Table) -> Table:
    """Mean and standard error of the score by width, and how often a width is the best one."""
    table = []
    best = {}
    for row in rows:
        decision = row["photo"], row["cluster"], row["side"]
        if row["width"] != "random" and (decision not in best or row["score"] > best[decision]["score"]):
            best[decision] = row
    for width in dict.fromkeys(row["width"] for row in rows):
        line: dict = {"width": width}
        for side in SIDES:
            own = [row for row in rows if row["width"] == width and row["side"] == side]
            line[f"patches of {side}"] = plus_minus(np.array([row["score"] for row in own]))
            line[f"best of {len(own)} ({side})"] = sum(
                row is best[row["photo"], row["cluster"], side] for row in own
            )
        table.append(line)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="two photos")
    parser.add_argument("--json", metavar="FILE", help="save the tables")
    options = parser.parse_args()
    report = Report("Smoothing of heatmaps")
    rows = scores(4, options.quick)
    note = f"Width of the Gaussian in pixels; the shorter side has {SIDE}. Mean score and standard error."
    report.table("Locations of a photo, 4 clusters, EfficientNet-Lite0 block 10", means(rows), note)
    report.close(options.json)


if __name__ == "__main__":
    main()
