"""Greedy passes of NEON with a baseline, for inputs that are decided late, by the number of clusters.

Clusterings of the last features of small VGGs (with labels and SCAN, trained briefly) and of EfficientNet-Lite0
are explained by channels of a middle layer. The rule was chosen on digits and two cuts of EfficientNet-Lite0;
garments and two other cuts are held out. "late" is the share of the inputs that get greedy passes, and "no greedy
passes" is the relevance if none does.

    apt-get install dataset-fashion-mnist
    python -m tests.benchmarks.many_clusters [--fashion FOLDER] [--explained 24] [--json FILE]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn

from neonxc import NEON
from neonxc.attribution.paths import PathAttribution
from neonxc.common.progress import hide
from neonxc.evaluation import ZeroImputer
from neonxc.models import EfficientNetLite0
from tests.benchmarks.baseline import by_both, stepwise
from tests.benchmarks.deep_rows import CUTS, Row, clustered, folded, in_parts, patches
from tests.benchmarks.timing import Report, Table, progress

CLUSTERS = {"VGG": (10, 20, 50, 100, 200), "EfficientNet-Lite0": (10, 50, 200)}
N_TRAIN = {"supervised": 4000, "SCAN": 1500}
MANY = 40


def digits() -> tuple[Tensor, Tensor]:
    """Load the digits of scikit-learn as images [N, 1, 28, 28], shuffled, and their classes [N]."""
    data = load_digits()
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(data.images)))
    images = torch.from_numpy(data.images[:, None] / 16).float()
    images = F.interpolate(images, size=(28, 28), mode="bilinear")
    return images[order], torch.from_numpy(data.target).long()[order]


def small_networks(half: str, fashion: Path) -> Iterator[tuple[str, nn.Sequential, Tensor]]:
    """Yield small VGGs, trained with and without labels, and 1,800 images."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "papers"))
    from flipping_deep import SCAN_OPTIONS, VIEWS, Size, images_of, supervised, unsupervised

    if half == "choose":
        images, classes = digits()
        views = VIEWS["MNIST"]
        epochs = 6
    else:
        images, classes = images_of("Fashion-MNIST", fashion, "train")
        views = VIEWS["Fashion-MNIST"]
        epochs = 3
    n = min(N_TRAIN["supervised"], len(images) - 200)
    yield "supervised", supervised(images[:n], classes[:n], Size(epochs=epochs), 0), images[-1800:]
    options = SCAN_OPTIONS | {"pretext_epochs": 3, "epochs": 2, "augment": views, "amp": False}
    size = Size(scan_images=N_TRAIN["SCAN"])
    yield "SCAN", unsupervised(images[: N_TRAIN["SCAN"]], options, size, 0), images[-1800:]


def rows(half: str, fashion: Path, explained: int) -> Iterator[Row]:
    """Yield the clusterings of a half, and the inputs that are explained."""
    for kind, net, images in small_networks(half, fashion):
        front = net.features[:2]
        rest = nn.Sequential(net.features[2], net.pool, net.flatten)
        names: dict[str, object] = {"network": f"VGG, {kind}"}
        yield from clustered(rest, in_parts(front, images), "channels", explained, half, names, CLUSTERS["VGG"])
    network = EfficientNetLite0.pretrained()
    pixels = (patches(1600 + explained) - 127 / 255) / (128 / 255)
    for first, last in CUTS[half]:
        front = folded(nn.Sequential(network.stem, network.blocks[: first + 1]))
        rest = folded(nn.Sequential(network.blocks[first + 1 : last + 1], nn.AdaptiveAvgPool2d(1), nn.Flatten()))
        names = {"network": f"EfficientNet-Lite0, {first} to {last}"}
        x = in_parts(front, pixels)
        yield from clustered(rest, x, "channels", explained, half, names, CLUSTERS["EfficientNet-Lite0"])


def measured(row: Row) -> dict[str, object]:
    """Measure insertion and removal of one row."""
    with torch.no_grad():
        target = row.net(row.x).argmax(1)
    neon = NEON(row.net, baseline=0.0, groups=row.groups)
    relevance = neon.attribute(row.x, target)
    with patch.object(PathAttribution, "_is_late", lambda self, logit: torch.zeros_like(logit, dtype=torch.bool)):
        never = neon.attribute(row.x, target)
    line = {key: row.names[key] for key in ("network", "K")}
    line["late"] = float((relevance != never).flatten(1).any(1).float().mean())
    for name, values in (("stepwise", stepwise(row, target)), ("no greedy passes", never), ("NEON", relevance)):
        areas = by_both(row.net, row.x, values, ZeroImputer(), groups=row.groups)
        for measure in ("insertion", "removal"):
            line[f"{measure}, {name}"] = float(areas[measure].mean())
    return line


def means(lines: Table) -> Table:
    """Return means over the rows with few and with many clusters, by the kind of the network."""
    kinds = {
        f"{network}, {size}": [
            line for line in lines if str(line["network"]).startswith(network) and (line["K"] >= MANY) == is_many
        ]
        for network in CLUSTERS
        for size, is_many in ((f"K < {MANY}", False), (f"K ≥ {MANY}", True))
    }
    table = []
    for kind, own in kinds.items():
        keys = [key for key in own[0] if key not in ("network", "K")]
        table.append(
            {"rows": kind, "n": len(own)} | {key: float(np.mean([line[key] for line in own])) for key in keys}
        )
    return table


def figures(report: dict[str, Any]) -> str:
    """Return the guide's table of the half that nothing was chosen on."""
    table = [
        "| held out | late | insertion ↑: stepwise | not greedy | NEON | removal ↓: stepwise | not greedy | NEON |"
    ]
    table.append("|---" * 8 + "|")
    for row in report["tables"]["Held out"]["rows"]:
        areas = [
            f"{row[f'{measure}, {name}']:.1f}"
            for measure in ("insertion", "removal")
            for name in ("stepwise", "no greedy passes", "NEON")
        ]
        late = f"{100 * row['late']:.0f}%"
        table.append(f"| {' | '.join([row['rows'], late, *areas])} |")
    return "\n".join(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", choices=["choose", "report"], help="default: both")
    parser.add_argument("--explained", type=int, default=24, help="inputs of a row")
    parser.add_argument("--fashion", type=Path, default=Path("/usr/share/datasets/fashion-mnist"))
    parser.add_argument("--json", metavar="FILE", help="save the tables")
    options = parser.parse_args()
    hide()
    report = Report("NEON with a baseline and many clusters")
    for half in [options.half] if options.half else ["report", "choose"]:
        heading = "Held out" if half == "report" else "For choosing"
        lines = []
        for row in rows(half, options.fashion, options.explained):
            progress(f"{heading}: {row.names['network']}, {row.names['K']} clusters")
            lines.append(measured(row))
        report.table(heading, means(lines), "Means over the rows.")
        report.table(f"Rows: {heading.lower()}", lines)
    report.close(options.json)


if __name__ == "__main__":
    main()
