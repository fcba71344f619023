"""Pixel-flipping AUC of NEON along the path from zero, of NEON at the input alone, and of other methods.

A row explains a k-means clustering of a deeper layer's pooled features by the channels of an earlier layer of
EfficientNet-Lite0 (pretrained, no download). Flipping adds channels to zeros, the most relevant ones first. The
quartiles of the sum of relevance over f(x) - f(0) measure the completeness of the relevance.

    python -m tests.benchmarks.along [--full] [--fashion FOLDER] [--json FILE]

The default uses patches of photos, 10 and 100 clusters, and channels of one layer. `--full` uses two layers, two
seeds and more patches. FOLDER contains the files of Fashion-MNIST, as in Debian's package dataset-fashion-mnist.
"""

from __future__ import annotations

import argparse
import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy import stats
from skimage import data
from sklearn.cluster import KMeans
from sklearn.datasets import load_sample_images
from torch import Tensor, nn

import neonxc
from neonxc import NEON, NeuralizedClustering
from neonxc.evaluation import ZeroImputer, methods, pixel_flipping
from neonxc.models import EfficientNetLite0
from tests.benchmarks.timing import Report, Table, progress

SIDE = 64
LEAST, ALONG, GAINS = "NEON, Eq. 3", "NEON, along", "Gains in AUC"
SPLITS = ((4, 10), (7, 14))  # last block before the inputs, last block of the features


@dataclass(frozen=True)
class Row:
    """A clustering of features, as a network that takes activations [N, C, h, w], and its identifying settings."""

    net: NeuralizedClustering
    least: float
    """Beta by Eq. 3."""
    activations: Tensor
    names: dict[str, object]


def patches(count: int) -> Tensor:
    """Draw random patches [N, 3, SIDE, SIDE] of six photos, in 0..1."""
    photos = [getattr(data, name)() for name in ("chelsea", "coffee", "astronaut", "rocket")]
    photos += load_sample_images().images
    generator = np.random.default_rng(0)
    found = np.empty((count, SIDE, SIDE, 3), np.uint8)
    for i in range(count):
        photo = photos[i % len(photos)]
        top, left = (int(generator.integers(length - SIDE)) for length in photo.shape[:2])
        found[i] = photo[top : top + SIDE, left : left + SIDE]
    return torch.from_numpy(found).permute(0, 3, 1, 2).float() / 255


def garments(folder: Path, count: int) -> Tensor:
    """Load images [N, 3, SIDE, SIDE] of Fashion-MNIST, in 0..1."""
    with gzip.open(folder / "train-images-idx3-ubyte.gz") as file:
        pixels = np.frombuffer(file.read(16 + count * 28 * 28), np.uint8, offset=16).reshape(-1, 1, 28, 28)
    images = F.interpolate(torch.from_numpy(pixels.copy()).float() / 255, size=(SIDE, SIDE), mode="bilinear")
    return images.expand(-1, 3, -1, -1)


@torch.no_grad()
def rows(pictures: dict[str, Tensor], full: bool) -> Iterator[Row]:
    """Cluster all pictures but the last ones, whose activations are explained."""
    net, explained = EfficientNetLite0.pretrained(), 150 if full else 60
    for first, last in SPLITS if full else SPLITS[:1]:
        front = nn.Sequential(net.stem, net.blocks[: first + 1])
        rest = nn.Sequential(net.blocks[first + 1 : last + 1], nn.AdaptiveAvgPool2d(1), nn.Flatten())
        for name, images in pictures.items():
            x = torch.cat([front(part) for part in ((images - 127 / 255) / (128 / 255)).split(50)])
            features = torch.cat([rest(part) for part in x.split(50)])
            known, unseen = x[:-explained], x[-explained:]
            for K, seed in [(K, seed) for K in (10, 100) for seed in range(2 if full else 1)]:
                kmeans = KMeans(K, n_init=1, max_iter=50, random_state=seed).fit(features[:-explained].numpy())
                clustering = neonxc.neuralize(kmeans, features=rest)
                least = clustering.calibrate(known, contrast="least").beta
                names = {"images": name, "layers": f"{first} to {last}", "K": K, "seed": seed}
                yield Row(clustering.calibrate(known), least, unseen, names)


def contestants(row: Row, full: bool) -> dict[str, methods.Method]:
    """Return the variants of NEON, and the other methods that take zero as the missing value."""
    _, C, height, width = row.activations.shape
    channels = torch.arange(C)[:, None, None].expand(C, height, width)
    found: dict[str, methods.Method] = {
        LEAST: lambda net, x, target: NEON(net, beta=row.least).attribute(x, target),
        "NEON": lambda net, x, target: NEON(net).attribute(x, target),
        ALONG: lambda net, x, target: NEON(net, along=0.0).attribute(x, target),
        "x²": methods.squared,
        "PDA, zero": methods.pda(groups=channels),
        "gradient × input": methods.gradient_x_input,
        "IG-10": methods.integrated_gradients(10),
    }
    return found | ({"Shapley": methods.shapley_sampling(10, channels)} if full else {})


def measured(row: Row, full: bool) -> Table:
    """Measure one row: the AUC of every method, its gain over Eq. 3, and the quartiles of the sum of relevance."""
    net, x, lines = row.net, row.activations, []
    with torch.no_grad():
        f, target = net(x).max(1)
        change = f - net(torch.zeros_like(x[:1]))[0, target]
    base = None
    for name, method in contestants(row, full).items():
        relevance = torch.cat([method(net, *part) for part in zip(x.split(50), target.split(50), strict=True)])
        steps = None if full else 10
        area = pixel_flipping(net, x, relevance, ZeroImputer(), groups="channels", steps=steps).auc_per_input
        base = area if base is None else base
        line = row.names | {"method": name, "AUC": float(area.mean())}
        line |= {"gain": float((area - base).mean()), "± gain": float(stats.sem(area - base))}
        share = (relevance.flatten(1).sum(1) / change).numpy()
        low, middle, high = np.quantile(share, (0.25, 0.5, 0.75))
        lines.append(line | {"sum / (f(x) - f(0))": float(middle), "quartile": float(low), "and": float(high)})
    return lines


def verdicts(lines: Table) -> Table:
    """Summarize the gains over Eq. 3 and over the other methods: mean and standard error over the rows."""
    names = list(dict.fromkeys(line["method"] for line in lines))
    area = {name: np.array([line["AUC"] for line in lines if line["method"] == name]) for name in names}
    found = []
    for name in names[1:]:
        line: dict[str, object] = {"method": name, "rows": len(area[name])}
        for what, gain in {
            "over Eq. 3": area[name] - area[LEAST],
            "along over it": area[ALONG] - area[name],
        }.items():
            error = f"{stats.sem(gain):.2f}" if len(gain) > 1 else "—"
            line |= {what: f"{gain.mean():+.2f} ± {error}", f"{what}: won": int((gain > 0).sum())}
        found.append(line)
    return found


def figures(report: dict[str, Any]) -> str:
    """Return the guide's table of methods and of the sums of relevance."""
    gains, lines = report["tables"][GAINS]["rows"], report["tables"]["Rows"]["rows"]
    shares = [line["sum / (f(x) - f(0))"] for line in lines if line["method"] == ALONG]
    table = ["| | gain over NEON with Eq. 3 | lead of along |", "|---|---|---|"]
    for row in gains:
        lead = "" if row["method"] == ALONG else f"{row['along over it']}, first in {row['along over it: won']}"
        table.append(f"| {row['method']} | {row['over Eq. 3']} | {lead} |")
    text = f"Means over {gains[0]['rows']} clusterings of photo patches and garments, 10 and 100 clusters. "
    text += "Along the way the relevance of an input sums to "
    text += f"{min(shares):.2f} to {max(shares):.2f} times `f(x) - f(b)` (medians)."
    return "\n".join([*table, "", text])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--fashion", type=Path, metavar="FOLDER", help="Fashion-MNIST's files")
    parser.add_argument("--json", metavar="FILE", help="save the tables")
    options = parser.parse_args()
    report, count = Report("NEON along the way from zero"), 1650 if options.full else 660
    pictures = {"photos": patches(count)}
    if options.fashion is not None:
        pictures["Fashion-MNIST"] = garments(options.fashion, count)
    lines: Table = []
    for row in rows(pictures, options.full):
        progress(", ".join(f"{key} {value}" for key, value in row.names.items()))
        lines += measured(row, options.full)
    report.table(GAINS, verdicts(lines), "± is the standard error over the rows.")
    report.table("Rows", lines, "± is the standard error of the gain over the inputs.")
    report.close(options.json)


if __name__ == "__main__":
    main()
