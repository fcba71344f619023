"""Heatmaps of pooled features without a baseline and with one.

A heatmap explains the cluster that an image is assigned to, by the mean over the locations of a network's
features. Half of the rows are for choosing: a small network on digits (three convolutions with biases, trained for
15 epochs), and EfficientNet-Lite0 on crops of three photos. Garments and crops of three other photos are held out.
Patches are replaced by zero (4 x 4 pixels), or in photos by the blurred photo (16 x 16 pixels). Columns:

    mostly blue    share of the images with less than 20% of their absolute relevance positive
    blue is right  share of the patches of negative relevance without which the logit is larger
    occlusion      rank correlation of patches with the decrease of the logit without them
    insertion      area under the curve if the most relevant patches come in first (larger is better)
    removal        area if they go out first (smaller is better)
    collage        share of the positive relevance that is in the photo of the cluster, one of four (chance: 0.25)

    python -m tests.benchmarks.pooled [--fashion FOLDER] [--images 16] [--json FILE]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy import stats
from sklearn.cluster import KMeans
from torch import Tensor, nn
from torchvision.transforms.functional import gaussian_blur

from neonxc import NEON, NeuralizedClustering, neuralize
from neonxc.common.progress import hide
from neonxc.evaluation import BlurImputer, ZeroImputer
from neonxc.lrp import Composite, Gamma
from neonxc.models import backbone
from tests.benchmarks.baseline import by_both
from tests.benchmarks.head_rules import photos
from tests.benchmarks.many_clusters import digits
from tests.benchmarks.timing import Report, Table, progress

CROP = 96
PHOTOS = {"choose": ("chelsea", "coffee", "china"), "report": ("astronaut", "rocket", "flower")}
GAMMA = Composite(Gamma(0.25))
Heatmap = Callable[[Tensor, Tensor], Tensor]
"""Heatmaps [N, H, W] of images [N, C, H, W] for clusters [N]."""


@dataclass(frozen=True)
class Case:
    """A clustering of pooled features, images that are explained, and what collages are made of."""

    name: str
    net: NeuralizedClustering
    x: Tensor
    mean: Tensor
    side: int

    @property
    def clusters(self) -> Tensor:
        """The cluster [N] of every image."""
        with torch.no_grad():
            return self.net(self.x).argmax(1)


def garments(folder: Path) -> tuple[Tensor, Tensor]:
    """Load 2,000 images [N, 1, 28, 28] of Fashion-MNIST and their classes [N]."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "papers"))
    from flipping_deep import images_of

    images, classes = images_of("Fashion-MNIST", folder, "train")
    return images[:2000], classes[:2000]


def of_small(half: str, fashion: Path, n: int) -> Case:
    """Cluster the pooled features of a small network."""
    images, classes = digits() if half == "choose" else garments(fashion)
    torch.manual_seed(0)
    layers = [
        nn.Conv2d(1, 16, 3),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3),
        nn.ReLU(),
    ]
    features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    network = nn.Sequential(features, nn.Linear(32, 10))
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    for _ in range(15):
        for rows in torch.randperm(1500).split(50):
            optimizer.zero_grad()
            F.cross_entropy(network(images[rows]), classes[rows]).backward()
            optimizer.step()
    with torch.no_grad():
        points = features(images[:-n]).numpy()
    kmeans = KMeans(10, n_init=2, random_state=0).fit(points)
    name = "digits" if half == "choose" else "garments"
    return Case(name, neuralize(kmeans, images[:500], features), images[-n:], images.mean(0), 4)


def of_photos(half: str, n: int) -> Case:
    """Cluster the pooled features of crops of three photos."""
    extractor = backbone("efficientnet_lite0", layer="blocks.14", pool="avg", normalize=True)
    rng = np.random.default_rng(0)
    crops = []
    pictures = photos(False)
    for i in range(96 + n):
        picture = pictures[PHOTOS[half][i % 3]]
        top, left = (int(rng.integers(side - CROP + 1)) for side in picture.shape[1:])
        crops.append(picture[:, top : top + CROP, left : left + CROP])
    x = extractor.preprocess(torch.stack(crops))
    kmeans = KMeans(6, n_init=4, random_state=0).fit(extractor.points(x).numpy())
    return Case("photos", neuralize(kmeans, x, features=extractor), x[-n:], x.mean(0), 16)


def heatmaps(case: Case) -> dict[str, Heatmap]:
    """Return the heatmaps that are compared."""

    def one(**options: object) -> Heatmap:
        return lambda x, target: NEON(case.net, **options).attribute(x, target).sum(1)

    def by_image(steps: int, composite: Composite | None) -> Heatmap:
        def heatmap(x: Tensor, target: Tensor) -> Tensor:
            maps = []
            for image, cluster in zip(x, target, strict=True):
                base = gaussian_blur(image[None], 31, 12.0)[0]
                neon = NEON(case.net, composite, baseline=base, steps=steps)
                maps.append(neon.attribute(image[None], int(cluster))[0].sum(0))
            return torch.stack(maps)

        return heatmap

    methods = {"LRP-γ, 1 pass": one()}
    for steps in (2, 6) if case.name == "photos" else (2, 6, 20):
        methods[f"zero, {steps} passes"] = one(baseline=0.0, steps=steps)
    methods["mean of the data, 6 passes"] = one(baseline=case.mean, steps=6)
    if case.name == "photos":
        methods["blurred, 6 passes"] = by_image(6, None)
        methods["blurred, 6 passes, LRP-γ"] = by_image(6, GAMMA)
    else:
        methods["zero, 6 passes, LRP-γ"] = one(composite=GAMMA, baseline=0.0, steps=6)
    return methods


def occluded(case: Case, fill: Tensor) -> Tensor:
    """Compute the decrease [N, patches] of the logit without each patch."""
    n_side = case.x.shape[-1] // case.side
    target = case.clusters
    decreases = []
    with torch.no_grad():
        logit = case.net(case.x).gather(1, target[:, None])
        for patch in range(n_side**2):
            row, column = divmod(patch, n_side)
            block = (
                slice(row * case.side, (row + 1) * case.side),
                slice(column * case.side, (column + 1) * case.side),
            )
            x = case.x.clone()
            x[..., block[0], block[1]] = fill[..., block[0], block[1]]
            decreases.append(logit - case.net(x).gather(1, target[:, None]))
    return torch.cat(decreases, 1)


def by_patch(relevance: Tensor, side: int) -> Tensor:
    """Sum heatmaps [N, H, W] by patches, [N, patches]."""
    return F.avg_pool2d(relevance[:, None], side).flatten(1) * side**2


def in_collages(case: Case, heatmap: Heatmap) -> float:
    """Compute the share of the positive relevance inside of the photo of the cluster, in collages of four."""
    small = F.interpolate(case.x, scale_factor=0.5, mode="area")
    n = len(small)
    chosen = torch.stack([torch.arange(n), *(torch.arange(n).roll(k) for k in (1, 2, 3))])  # four different ones
    top = torch.cat([small[chosen[0]], small[chosen[1]]], -1)
    bottom = torch.cat([small[chosen[2]], small[chosen[3]]], -1)
    collages = torch.cat([top, bottom], -2)
    positive = heatmap(collages, case.clusters).clamp(min=0)
    half = collages.shape[-1] // 2
    own = positive[:, :half, :half].sum((1, 2))
    return float((own / positive.sum((1, 2)).clamp(min=1e-30)).mean())


def measured(case: Case) -> Table:
    """Measure all heatmaps of a case."""
    target = case.clusters
    if case.name == "photos":
        imputer = BlurImputer()
        fill = gaussian_blur(case.x, 31, 12.0)
    else:
        imputer = ZeroImputer()
        fill = torch.zeros_like(case.x)
    decrease = occluded(case, fill)
    table = []
    for name, heatmap in heatmaps(case).items():
        start = time.process_time()
        maps = heatmap(case.x, target).detach()
        line: dict[str, object] = {"images": case.name, "heatmap": name}
        line["ms"] = 1000 * (time.process_time() - start) / len(case.x)
        positive = maps.clamp(min=0).sum((1, 2)) / maps.abs().sum((1, 2))
        line["mostly blue"] = float((positive < 0.2).float().mean())
        patches = by_patch(maps, case.side)
        spread = maps[:, None].expand(-1, case.x.shape[1], -1, -1) / case.x.shape[1]
        line["blue is right"] = float((decrease[patches < 0] < 0).float().mean())
        ranks = [stats.spearmanr(a, b).statistic for a, b in zip(patches, decrease, strict=True)]
        line["occlusion"] = float(np.nanmean(ranks))
        areas = by_both(case.net, case.x, spread, imputer, groups=case.side, repeats=1, steps=9)
        line["insertion"] = float(areas["insertion"].mean())
        line["removal"] = float(areas["removal"].mean())
        if case.name == "photos":
            line["collage"] = in_collages(case, heatmap)
        table.append(line)
    return table


def figures(report: dict[str, Any]) -> str:
    """Return the guide's table of what is held out."""
    heading = (
        "held out | heatmap | mostly blue | blue is right | correlation with occlusion | insertion ↑ | removal ↓ "
        "| in the photo ↑"
    )
    lines = [f"| {heading} |", "|---" * 8 + "|"]
    for title, table in report["tables"].items():
        if not title.startswith("Held out"):
            continue
        for row in table["rows"]:
            shares = [f"{100 * row[key]:.0f}%" for key in ("mostly blue", "blue is right")]
            areas = [f"{row[measure]:.1f}" for measure in ("insertion", "removal")]
            collage = f"{row['collage']:.2f}" if "collage" in row else ""
            cells = [row["images"], row["heatmap"], *shares, f"{row['occlusion']:.2f}", *areas, collage]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--images", type=int, default=6, help="photos that are explained, and 8 times as many others"
    )
    parser.add_argument("--fashion", type=Path, default=Path("/usr/share/datasets/fashion-mnist"))
    parser.add_argument("--half", choices=["choose", "report"], help="default: both")
    parser.add_argument("--small", action="store_true", help="no photos, which take most of the time")
    parser.add_argument("--json", metavar="FILE", help="save the tables")
    options = parser.parse_args()
    hide()
    report = Report("Heatmaps of pooled features")
    for half in [options.half] if options.half else ["report", "choose"]:
        heading = "Held out" if half == "report" else "For choosing"
        cases = [of_small(half, options.fashion, 8 * options.images)]
        if not options.small:
            cases.append(of_photos(half, options.images))
        for case in cases:
            progress(f"{heading}: {case.name}")
            report.table(f"{heading}: {case.name}", measured(case))
    report.close(options.json)


if __name__ == "__main__":
    main()
