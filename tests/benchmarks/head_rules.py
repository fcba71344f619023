"""Which head rule explains clusters of deep features more faithfully: "linear" or "midpoint"?

Two settings. Locations: the unit-norm features of every location of a photo are clustered, a heatmap explains a
cluster's decision at all of its own locations. Images: pooled unit-norm features of crops are clustered, a heatmap
explains the crop's own cluster. Heatmaps are judged by flipping: patches of 16 x 16 pixels are replaced by the
strongly blurred image, and the explained logits (those of the cluster, at the locations that were its own before)
are recorded, in units of their initial value. `deletion` is the area under that curve where the most relevant
patches go first (lower is better), `reversed` where the least relevant go first (higher is better), and `score` is
the difference (higher is better; 0 for a random order). `inside` is the share of the positive relevance that lies
in the cluster's own region, `negative` is negative over positive relevance.

    python -m tests.benchmarks.head_rules [--quick] [--json FILE]
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable, Iterator
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
from neonxc.models import efficientnet_lite0, to_tensor
from tests.benchmarks.timing import Report, Table, progress

PATCH = 16
FRACTIONS = (0.0, 0.05, 0.12, 0.25, 0.5, 0.8, 1.0)  # of the patches; dense where the curves bend
COMPOSITES = {"gamma 0.25": Composite(Gamma(0.25)), "gradient x input": Composite(Epsilon(0.0))}
RULES = ("linear", "midpoint")
SIDE, CROP, CROPS = 320, 160, 10

Score = Callable[[Tensor], Tensor]
"""Images [B, 3, H, W] -> logits [B, K, ...], or the explained one [B]."""


def photos(quick: bool) -> dict[str, Tensor]:
    pictures = {name: getattr(data, name)() for name in ("chelsea", "coffee", "astronaut", "rocket")}
    pictures |= dict(zip(("china", "flower"), load_sample_images().images, strict=True))
    return {name: to_tensor(array, SIDE) for name, array in list(pictures.items())[: 2 if quick else None]}


def blurred(image: Tensor) -> Tensor:
    """Fill for patches: what is left is a colour that changes slowly."""
    return gaussian_blur(image, 95, 24.0)


def areas(score: Score, image: Tensor, heatmaps: dict[str, Tensor], seed: int) -> Iterator[tuple[str, dict]]:
    """Areas under the flipping curves of one decision, for each heatmap [H, W]."""
    fill = blurred(image)
    start, end = score(torch.stack([image, fill])).tolist()
    heatmaps = {**heatmaps, "random": torch.rand(image.shape[1:], generator=torch.Generator().manual_seed(seed))}
    for name, heatmap in heatmaps.items():
        values = patches(heatmap)
        area = {}
        for kind, order in (("deletion", (-values.flatten()).argsort()), ("reversed", values.flatten().argsort())):
            rank = order.argsort().reshape(values.shape)
            flipped = torch.stack([rank < round(f * rank.numel()) for f in FRACTIONS[1:-1]])
            flipped = flipped.repeat_interleave(PATCH, 1).repeat_interleave(PATCH, 2)
            flipped = flipped[:, None, : image.shape[1], : image.shape[2]]
            logits = score(torch.where(flipped, fill, image)).tolist()
            area[kind] = float(np.trapezoid([start, *logits, end], FRACTIONS)) / start
        yield name, {**area, "score": area["reversed"] - area["deletion"]}


def patches(heatmap: Tensor) -> Tensor:
    """Sum of a heatmap [H, W] over each patch."""
    height, width = heatmap.shape
    padded = F.pad(heatmap, (0, -width % PATCH, 0, -height % PATCH))
    return padded.unfold(0, PATCH, PATCH).unfold(1, PATCH, PATCH).sum(dim=(2, 3))


def fast(net: NeuralizedClustering) -> Score:
    """Logits [B, K, ...] of the same network with BatchNorm folded: only they are needed thousands of times."""
    features = copy.deepcopy(net.features)
    for module in features.modules():
        if isinstance(getattr(module, "bn", None), nn.BatchNorm2d):
            module.conv, module.bn = fuse_conv_bn_eval(module.conv, module.bn), nn.Identity()
    quick = NeuralizedClustering(net.head, features.to(memory_format=torch.channels_last))
    return torch.inference_mode()(lambda x: quick(x.contiguous(memory_format=torch.channels_last)))


def heatmaps_of(net: NeuralizedClustering, explain: Callable[[NEON], Tensor]) -> dict[str, Tensor]:
    """Heatmaps by composite and rule."""
    return {
        f"{name} / {rule}": explain(NEON(net, composite, head_rule=rule))
        for name, composite in COMPOSITES.items()
        for rule in RULES
    }


def locations(block: int, K: int, seed: int, pictures: dict[str, Tensor]) -> Table:
    extractor, rng, rows = efficientnet_lite0(block, normalize=True), np.random.default_rng(seed), []
    for photo, picture in pictures.items():
        x = extractor.preprocess(picture)
        points = extractor.points(x[None])
        net = neuralize(KMeans(K, n_init=4, random_state=seed).fit(points.numpy()), x[None], features=extractor)
        own = net.assign(x[None])[0]
        cluster = int(rng.choice(own.unique().numpy()))
        place = own == cluster
        region = F.interpolate(place[None, None].float(), x.shape[1:])[0, 0]
        maps = heatmaps_of(net, lambda neon, x=x, c=cluster: neon.heatmaps(x[None], [c])[0, 0])
        maps["region"] = gaussian_blur(region[None], 31)[0]  # the cluster itself, from the inside out
        score = partial(explained, logits=fast(net), cluster=cluster, place=place)
        for name, area in areas(score, x, maps, seed):
            where = localisation(maps[name], region) if "/" in name else {}
            rows.append({"photo": photo, "block": block, "heatmap": name, **area, **where})
    return rows


def explained(images: Tensor, logits: Score, cluster: int, place: Tensor | None = None) -> Tensor:
    """Logits [B] of a cluster: the image's, or the sum over a place [h, w]."""
    f = logits(images)[:, cluster]
    return f if place is None else f[:, place].sum(dim=1)


def localisation(heatmap: Tensor, region: Tensor) -> dict[str, float]:
    positive, negative = heatmap.clamp(min=0), heatmap.clamp(max=0)
    inside = (positive * region).sum() / positive.sum()
    return {"inside": float(inside), "negative": float(-negative.sum() / positive.sum())}


def images(block: int, seed: int, pictures: dict[str, Tensor]) -> Table:
    extractor, rng, rows = efficientnet_lite0(block, pool="avg", normalize=True), np.random.default_rng(seed), []
    crops, sources = [], []
    for photo, picture in pictures.items():
        for _ in range(CROPS):
            top, left = (rng.integers(side - CROP + 1) for side in picture.shape[1:])
            crops.append(picture[:, top : top + CROP, left : left + CROP])
            sources.append(photo)
    x = extractor.preprocess(torch.stack(crops))
    net = neuralize(KMeans(3, n_init=4, random_state=seed).fit(extractor.points(x).numpy()), x, features=extractor)
    logits, own = fast(net), net.predict(x)
    maps = heatmaps_of(net, lambda neon: neon.attribute(x).sum(dim=1))
    for i, photo in enumerate(sources):
        mine = {name: heatmap[i] for name, heatmap in maps.items()}
        for name, area in areas(partial(explained, logits=logits, cluster=int(own[i])), x[i], mine, i):
            rows.append({"photo": photo, "block": block, "heatmap": name, **area})
    return rows


def means(rows: Table, measures: tuple[str, ...]) -> Table:
    table = []
    for name in dict.fromkeys(row["heatmap"] for row in rows):
        line = {"heatmap": name}
        for measure in measures:
            values = [row[measure] for row in rows if row["heatmap"] == name and measure in row]
            if values:
                line[measure] = f"{np.mean(values):.3f} ± {stats.sem(values):.3f}"
        table.append(line | {"n": sum(row["heatmap"] == name for row in rows)})
    return table


def differences(rows: Table, measures: tuple[str, ...]) -> Table:
    """Linear minus midpoint on the same heatmap; per photo, as heatmaps of one photo are not independent."""
    table = []
    for composite in COMPOSITES:
        for block in ("all", *sorted({row["block"] for row in rows})):
            chosen = [row for row in rows if block in ("all", row["block"])]
            line: dict = {"composite": composite, "block": block}
            for measure in measures:
                a, b = ([r for r in chosen if r["heatmap"] == f"{composite} / {rule}"] for rule in RULES)
                gap = np.array([p[measure] - q[measure] for p, q in zip(a, b, strict=True)])
                names = np.array([row["photo"] for row in a])
                photo = [gap[names == name].mean() for name in dict.fromkeys(names)]
                line[measure] = f"{gap.mean():+.3f} ± {stats.sem(gap):.3f}"
                line |= {f"t ({measure})": float(gap.mean() / stats.sem(gap))}
                if measure == "score":
                    line |= {"t over photos": float(np.mean(photo) / stats.sem(photo))}
                    line |= {"photos won": f"{sum(p > 0 for p in photo)} of {len(photo)}"}
            table.append(line)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="two photos and blocks, one clustering: a minute")
    parser.add_argument("--json", metavar="FILE", help="save the tables")
    options = parser.parse_args()
    report, pictures = Report("Head rules: flipping and localisation"), photos(options.quick)
    blocks, clusters, seeds = ((7, 14), (4,), (0,)) if options.quick else ((4, 7, 10, 14), (4, 8), (0, 1, 2))
    of_locations, of_images = [], []
    for block in blocks:
        for K in clusters:
            for seed in seeds:
                progress(f"locations: block {block}, {K} clusters, seed {seed}")
                of_locations += locations(block, K, seed, pictures)
        progress(f"images: block {block}")
        of_images += images(block, 0, pictures)
    flips = ("score", "deletion", "reversed")
    report.table("Locations", means(of_locations, (*flips, "inside", "negative")), "Mean and standard error.")
    report.table("Locations: linear minus midpoint", differences(of_locations, ("score", "inside", "negative")))
    report.table("Images", means(of_images, flips), "Mean and standard error.")
    report.table("Images: linear minus midpoint", differences(of_images, ("score",)))
    report.close(options.json)


if __name__ == "__main__":
    main()
