"""Faithfulness of the head rules "linear" and "midpoint" for clusters of deep features.

Two settings. Locations: the unit-norm features of every location of a photo are clustered, a heatmap explains a
cluster's decision at all of its own locations. Images: pooled unit-norm features of crops are clustered, a heatmap
explains the crop's own cluster. Heatmaps are judged by flipping: patches of 16 x 16 pixels are replaced by the
strongly blurred image, and the explained logits (those of the cluster, at the locations that were its own before)
are recorded, in units of their initial value. `deletion` is the area under that curve where the most relevant
patches go first (lower is better), `reversed` where the least relevant go first (higher is better), and `score` is
the difference (higher is better; 0 for a random order). `inside` is the share of the positive relevance that lies
in the cluster's own region, `negative` is negative over positive relevance.

Blocks end in a linear layer, so that their features have both signs; layers inside a block come after a ReLU6.
For one block, heatmaps with a baseline, the blurred image, are compared as well, with patches as groups.

    python -m tests.benchmarks.head_rules [--quick] [--json FILE]
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from scipy import stats
from skimage import data
from sklearn.cluster import KMeans
from sklearn.datasets import load_sample_images
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval
from torchvision.transforms.functional import gaussian_blur

from neonxc import NEON, NeuralizedClustering, neuralize
from neonxc.lrp import Composite, Epsilon, Gamma
from neonxc.models import backbone, to_tensor
from tests.benchmarks.patch_flipping import PATCH, areas, blurred, localisation
from tests.benchmarks.timing import Report, Table, progress

BLOCKS = ("blocks.4", "blocks.7", "blocks.10", "blocks.14")
RELU = ("blocks.7.depthwise", "blocks.14.expand")
WITH_BASELINE = "blocks.10", 0  # layer and seed
COMPOSITES = {"gamma 0.25": Composite(Gamma(0.25)), "gradient x input": Composite(Epsilon(0.0))}
RULES = ("linear", "midpoint")
SIDE = 320
CROP = 160

Logits = Callable[[Tensor], Tensor]
"""Images [B, 3, H, W] -> logits [B, K, ...]."""


def photos(quick: bool) -> dict[str, Tensor]:
    pictures = {name: getattr(data, name)() for name in ("chelsea", "coffee", "astronaut", "rocket")}
    pictures |= dict(zip(("china", "flower"), load_sample_images().images, strict=True))
    return {name: to_tensor(array, SIDE) for name, array in list(pictures.items())[: 2 if quick else None]}


def fast(net: NeuralizedClustering) -> Logits:
    """Return a function for the logits [B, K, ...] with BatchNorm folded, because they are needed thousands of
    times."""
    features = copy.deepcopy(net.features)
    for module in features.modules():
        if isinstance(getattr(module, "bn", None), nn.BatchNorm2d):
            module.conv = fuse_conv_bn_eval(module.conv, module.bn)
            module.bn = nn.Identity()
    quick = NeuralizedClustering(net.head, features.to(memory_format=torch.channels_last))
    return torch.inference_mode()(lambda x: quick(x.contiguous(memory_format=torch.channels_last)))


def heatmaps_of(
    net: NeuralizedClustering, explain: Callable[[NEON], Tensor], composites: tuple[str, ...]
) -> dict[str, Tensor]:
    """Compute heatmaps by composite and rule."""
    return {
        f"{name} / {rule}": explain(NEON(net, COMPOSITES[name], head_rule=rule))
        for name in composites
        for rule in RULES
    }


def locations(layer: str, K: int, seed: int, pictures: dict[str, Tensor]) -> Table:
    extractor = backbone("efficientnet_lite0", layer=layer, normalize=True)
    composites = tuple(COMPOSITES)[: 2 if seed == 0 else 1]  # the default layer has the most runs
    rng = np.random.default_rng(seed)
    rows = []
    for photo, picture in pictures.items():
        x = extractor.preprocess(picture)
        points = extractor.points(x[None])
        net = neuralize(KMeans(K, n_init=4, random_state=seed).fit(points.numpy()), x[None], features=extractor)
        own = net.assign(x[None])[0]
        cluster = int(rng.choice(own.unique().numpy()))
        place = own == cluster
        region = F.interpolate(place[None, None].float(), x.shape[1:])[0, 0]
        maps = heatmaps_of(net, lambda neon, x=x, c=cluster: neon.heatmaps(x[None], [c])[0, 0], composites)
        if (layer, seed) == WITH_BASELINE:
            maps |= with_baseline(net, x, cluster)
        maps["the cluster's own region"] = gaussian_blur(region[None], 31)[0]  # from the inside out
        score = partial(explained, logits=fast(net), cluster=cluster, place=place)
        for name, area in areas(score, x, maps, seed):
            where = localisation(maps[name], region) if "/" in name else {}
            rows.append(
                {"photo": photo, "layer": layer, "run": (layer, K, seed), "heatmap": name, **area, **where}
            )
    return rows


def with_baseline(net: NeuralizedClustering, x: Tensor, cluster: int) -> dict[str, Tensor]:
    """Compute heatmaps [H, W] on the path from the blurred image [3, H, W], by composite."""
    fill = blurred(x)
    found = {}
    for name, composite in COMPOSITES.items():
        neon = NEON(net, composite, baseline=fill, groups=PATCH)
        found[f"{name} / baseline"] = neon.attribute(x[None], target=cluster)[0].sum(0)
    return found


def explained(images: Tensor, logits: Logits, cluster: int, place: Tensor | None = None) -> Tensor:
    """Return the logits [B] of a cluster: those of the image, or the sum over locations [h, w]."""
    f = logits(images)[:, cluster]
    return f if place is None else f[:, place].sum(dim=1)


def images(layer: str, pictures: dict[str, Tensor], crops_each: int) -> Table:
    extractor = backbone("efficientnet_lite0", layer=layer, pool="avg", normalize=True)
    rng = np.random.default_rng(0)
    rows = []
    crops = []
    sources = []
    for photo, picture in pictures.items():
        for _ in range(crops_each):
            top, left = (rng.integers(side - CROP + 1) for side in picture.shape[1:])
            crops.append(picture[:, top : top + CROP, left : left + CROP])
            sources.append(photo)
    x = extractor.preprocess(torch.stack(crops))
    net = neuralize(KMeans(3, n_init=4, random_state=0).fit(extractor.points(x).numpy()), x, features=extractor)
    logits = fast(net)
    own = net.predict(x)
    maps = heatmaps_of(net, lambda neon: neon.attribute(x).sum(dim=1), tuple(COMPOSITES))
    for i, photo in enumerate(sources):
        mine = {name: heatmap[i] for name, heatmap in maps.items()}
        for name, area in areas(partial(explained, logits=logits, cluster=int(own[i])), x[i], mine, i):
            rows.append({"photo": photo, "layer": layer, "heatmap": name, **area})
    return rows


def means(rows: Table, measures: tuple[str, ...]) -> Table:
    table = []
    for name in dict.fromkeys(row["heatmap"] for row in rows):
        line = {"heatmap": name}
        for measure in measures:
            values = [row[measure] for row in rows if row["heatmap"] == name and measure in row]
            if values:
                line[measure] = plus_minus(np.array(values))
        table.append(line | {"n": sum(row["heatmap"] == name for row in rows)})
    return table


def differences(rows: Table, measures: tuple[str, ...]) -> Table:
    """Linear minus midpoint on the same heatmap; t also over photos, because heatmaps of a photo are dependent."""
    table = []
    for composite in COMPOSITES:
        for group, layers in {
            "blocks (linear)": BLOCKS,
            "after ReLU6": RELU,
            **{n: (n,) for n in BLOCKS + RELU},
        }.items():
            chosen = [row for row in rows if row["layer"] in layers]
            a, b = ([r for r in chosen if r["heatmap"] == f"{composite} / {rule}"] for rule in RULES)
            if not a:
                continue
            line: dict = {"composite": composite, "features": group, "n": len(a)}
            for measure in measures:
                gap = np.array([p[measure] - q[measure] for p, q in zip(a, b, strict=True)])
                line[measure] = plus_minus(gap, "+.3f")
                line[f"t ({measure})"] = float(gap.mean() / stats.sem(gap))
                if measure == "score":
                    names = np.array([row["photo"] for row in a])
                    photo = np.array([gap[names == name].mean() for name in dict.fromkeys(names)])
                    line["t over photos"] = float(photo.mean() / stats.sem(photo))
                    line["photos won"] = f"{(photo > 0).sum()} of {len(photo)}"
            table.append(line)
    return table


def plus_minus(values: np.ndarray, form: str = ".3f") -> str:
    return f"{np.mean(values):{form}} ± {stats.sem(values):.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="two photos and layers, one clustering: a minute")
    parser.add_argument("--json", metavar="FILE", help="save the tables")
    options = parser.parse_args()
    report = Report("Head rules: flipping and localisation")
    pictures = photos(options.quick)
    runs = [(layer, K, seed) for layer in BLOCKS for K in (4, 8) for seed in (0, 1, 2)]
    runs += [(layer, K, 0) for layer in RELU for K in (4, 8)]
    if options.quick:
        runs = [("blocks.7", 4, 0), ("blocks.7.depthwise", 4, 0)]
    of_locations = []
    of_images = []
    for layer, K, seed in runs:
        progress(f"locations: {layer}, {K} clusters, seed {seed}")
        of_locations += locations(layer, K, seed, pictures)
    for layer in dict.fromkeys(layer for layer, _, _ in runs):
        progress(f"images: {layer}")
        of_images += images(layer, pictures, 3 if options.quick else 10)
    flips = ("score", "deletion", "reversed")
    note = "Mean and standard error."
    for name, layers in {"Locations, blocks": BLOCKS, "Locations, after ReLU6": RELU}.items():
        rows = [row for row in of_locations if row["layer"] in layers]
        report.table(name, means(rows, (*flips, "inside", "negative")), note)
    chosen = {(row["photo"], row["run"]) for row in of_locations if "/ baseline" in row["heatmap"]}
    rows = [row for row in of_locations if (row["photo"], row["run"]) in chosen]
    if rows:
        report.table("Locations, with a baseline", means(rows, (*flips, "inside", "negative")), note)
    report.table("Locations: linear minus midpoint", differences(of_locations, ("score", "inside", "negative")))
    for name, layers in {"Images, blocks": BLOCKS, "Images, after ReLU6": RELU}.items():
        report.table(name, means([row for row in of_images if row["layer"] in layers], flips), note)
    report.table("Images: linear minus midpoint", differences(of_images, ("score",)))
    report.close(options.json)


if __name__ == "__main__":
    main()
