"""Heatmaps of clusters of photos or of their locations (NEON paper, section VI-B).

    mode         clustered by k-means                                 heatmaps of a photo
    spatial      a sample of the locations of all photos              one for every cluster
    per photo    the locations of each photo alone                    one for every cluster of its own
    image        whole photos, by their features averaged over it     one for its cluster

1. The clusters of all photos become one network (not if they are of each photo alone).
2. Photos are explained one by one. What is known of a photo is written to a temporary file, as the heatmaps of
   many photos do not fit into memory.
3. Contact sheets of at most SHEET photos are drawn from these files.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor

from neonxc import plot
from neonxc.attribution.neon import NEON
from neonxc.cli.options import CommandOutput, with_folder
from neonxc.cli.photos import Named, PhotoLocation, composite, names_of, patch, preprocessed, typical_places
from neonxc.common.atomic import staged_folder
from neonxc.common.numbers import percent, plural, text
from neonxc.common.progress import progress_bar
from neonxc.common.storage import write_tensors
from neonxc.convert import neuralize
from neonxc.lrp import Composite
from neonxc.network import NeuralizedClustering
from neonxc.plot.images import cluster_colors
from neonxc.report.clusters import kmeans

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from neonxc.models import FeatureExtractor

SAMPLE = 20_000
"""Points at most that k-means is fitted on; the memory for them is bounded, however many photos there are."""
PHOTOS = 500
"""Photos at most that locations are sampled from."""
SHEET = 25
"""Photos on one contact sheet, which are in memory together."""
PATCHES = 6
"""Typical patches of a cluster."""
INSIDE = "inside: share of the positive relevance that lies in the cluster's own region"
CHOSEN_BY = {
    "gamma": "chosen by removal: the most relevant patches are blurred first, and the least relevant ones first",
    "zero-gamma": "chosen by sanity checks: heatmaps depend more on the last layers",
}
PUBLISHED = "as published, not chosen by a measure"

Mode = Literal["spatial", "per photo", "image"]


class Explained(NamedTuple):
    """Logits [clusters] of a photo, and relevance [H, W] of its own; or [clusters, h, w] and [clusters, H, W]."""

    logits: Tensor
    relevance: Tensor

    @property
    def cluster(self) -> Tensor:
        """The cluster of the photo, or of each location."""
        return self.logits.argmax(dim=0)


def heatmaps(
    photos: Named,
    clusters: int,
    out: str | Path,
    features: FeatureExtractor,
    rules: str = "gamma",
    keep: str | Path | None = None,
    mode: Mode = "spatial",
) -> CommandOutput:
    """Cluster photos or their locations and draw heatmaps of the clusters (NEON paper, VI-B).

    The locations of all photos are clustered together ("spatial"), or those of each photo alone ("per photo"), and
    each photo has a heatmap for every cluster; or whole photos are clustered by their pooled features ("image"),
    and each photo has a heatmap for its cluster. The heatmaps [clusters, H, W] or [H, W] and the logits
    [clusters, h, w] or [clusters] of every photo are written to the file `keep`.
    """
    names = names_of(photos)
    is_whole = mode == "image"
    layer = f"{features.layer or 'the output'} of {type(features.net).__name__}"
    header = ["photo", "cluster", "locations", "mean logit", "inside"]
    notes = [f"heatmaps: LRP rules {rules}, {CHOSEN_BY.get(rules, PUBLISHED)}"]
    if is_whole:
        header = ["photo", "cluster", "logit"]
    else:
        notes.append(INSIDE)
    result = CommandOutput(_title(len(photos), clusters, mode, layer), header, Path(out), notes)

    net = None
    if mode != "per photo":
        net = _together(photos, clusters, features, is_whole)
    propagation = composite(rules, features)
    with staged_folder(out) as stage, TemporaryDirectory() as folder:
        stored = [Path(folder, f"{row}.safetensors") for row in range(len(photos))]  # not all fit into memory
        keys: list[tuple[int, str]] = []  # photos are in the order of clusters, or of their own
        lines: list[list[list[str]]] = []
        overlays: list[list[str]] = []
        typical = defaultdict[int, list[PhotoLocation]](list)  # by cluster
        for row, name in enumerate(progress_bar(names, desc="photos")):
            _, photo = photos[row]
            x = preprocessed(photo, features)
            net_of_photo = net
            if net_of_photo is None:
                net_of_photo = _of_locations(x, clusters, features, name)
            explained = _explain(net_of_photo, x, propagation, is_whole)
            write_tensors(explained._asdict(), stored[row], {})
            key = row
            if is_whole:
                key = int(explained.cluster)
            keys.append((key, name))
            lines.append([*_lines(name, explained)])
            overlays.append(_draw_overlays(photo, name, explained, stage))
            if mode == "spatial":
                _add_typical(typical, explained.logits, row)

        patches = []
        for locations in typical.values():
            patches.append([patch(photos[location.photo][1], location) for location in locations])
        order = sorted(range(len(photos)), key=keys.__getitem__)
        for first in range(0, len(photos), SHEET):
            sheet = {}
            for row in order[first : first + SHEET]:
                sheet[names[row]] = (photos[row][1], Explained(**load_file(stored[row])))
            file = "contact-sheet.png"
            if first:
                file = f"contact-sheet-{first // SHEET + 1}.png"
            result.files.append(_save(_draw_sheet(sheet, patches or None, mode), file, stage))
        for row in order:
            result.rows += lines[row]
            result.files += overlays[row]
        if keep is not None:
            _write_relevance(names, stored, Path(keep), layer)
    remove_earlier(result.out, result.files)
    return result


def _title(n_photos: int, clusters: int, mode: Mode, layer: str) -> str:
    """Say what is clustered: ``"4 spatial clusters of each of 3 photos at layer4 of ResNet"``."""
    kind = "clusters" if mode == "image" else "spatial clusters"
    title = f"{clusters} {kind}"
    if mode == "per photo":
        title += f" of each of {plural(n_photos, 'photo')}"
    elif mode == "image" or n_photos > 1:
        title += f" of {plural(n_photos, 'photo')}"
    return f"{title} at {layer}"


def _of_locations(x: Tensor, clusters: int, features: FeatureExtractor, name: str) -> NeuralizedClustering:
    """Cluster the locations of one photo [1, 3, H, W]."""
    model = kmeans(features.points(x).cpu().numpy(), clusters, f"locations of {name} at this layer")
    return neuralize(model, x, features)


def _add_typical(typical: dict[int, list[PhotoLocation]], logits: Tensor, row: int) -> None:
    """Merge the most typical locations of a photo with those of the photos before it, cluster by cluster."""
    for k, locations in enumerate(typical_places(logits, row, PATCHES)):
        by_logit = sorted(typical[k] + locations, key=lambda location: -location.logit)
        typical[k] = by_logit[:PATCHES]


def _write_relevance(names: list[str], stored: list[Path], file: Path, layer: str) -> None:
    """Write the logits and the relevance of all photos to one file."""
    tensors = {}
    for name, of_photo in zip(names, stored, strict=True):
        for key, values in load_file(of_photo).items():
            tensors[f"{name}/{key}"] = values
    write_tensors(tensors, with_folder(file), {"layer": layer})


def _together(photos: Named, clusters: int, features: FeatureExtractor, is_whole: bool) -> NeuralizedClustering:
    """Return the network of the clusters of all photos."""
    names = names_of(photos)
    if is_whole:
        points = _sample(photos, features, SAMPLE).cpu().numpy()
        clustered = "photos"
    else:
        points = _sample(photos, features, PHOTOS).cpu().numpy()
        source = names[0] if len(names) == 1 else "the photos"
        clustered = f"locations of {source} at this layer"
    names_of_points = names if len(points) == len(names) else []
    model = kmeans(points, clusters, clustered, names_of_points)
    net = neuralize(model, features=features)
    net.beta = neuralize(model, points).beta  # photos differ in size, so that calibration uses their features
    return net


def _sample(photos: Named, features: FeatureExtractor, n_max: int) -> Tensor:
    """Return points [n, d] of at most `n_max` photos, in their order."""
    rows = _drawn(len(photos), n_max, 0).tolist()
    n_per_photo = max(1, SAMPLE // len(rows))
    samples = []
    for seed, row in enumerate(progress_bar(rows, desc="features")):
        points = features.points(preprocessed(photos[row][1], features))
        drawn = torch.from_numpy(_drawn(len(points), n_per_photo, seed))
        samples.append(points[drawn.to(points.device)])
    return torch.cat(samples)


def _drawn(n: int, n_max: int, seed: int) -> np.ndarray:
    """Return the numbers below n in their order, or a random sample if there are too many."""
    if n <= n_max:
        return np.arange(n)
    random = np.random.default_rng(seed)
    return np.sort(random.choice(n, n_max, replace=False))


def _explain(net: NeuralizedClustering, x: Tensor, rules: Composite, is_whole: bool) -> Explained:
    """Explain a photo [1, 3, H, W]: all clusters of locations, or the cluster of the whole photo."""
    with torch.no_grad():
        logits = net(x)[0].cpu()
    neon = NEON(net, rules)
    if is_whole:
        heatmaps = neon.heatmaps(x, [int(logits.argmax())])
        return Explained(logits, heatmaps[0, 0].cpu())
    heatmaps = neon.heatmaps(x, [*range(len(logits))])
    return Explained(logits, heatmaps[0].cpu())


def _draw_overlays(photo: Tensor, name: str, explained: Explained, stage: Path) -> list[str]:
    """Draw the heatmaps of the clusters that occur in a photo, and return the names of the files."""
    is_whole = explained.logits.ndim == 1
    colors = cluster_colors(len(explained.logits))
    files = []
    for k in explained.cluster.unique().tolist():
        if is_whole:
            heatmap = explained.relevance
            region = None
            file = f"cluster-{k}-{name}.png"
        else:
            heatmap = explained.relevance[k]
            region = explained.cluster == k
            file = f"{name}-cluster-{k}.png"
        figure = plot.overlay(photo, heatmap, title=f"{name}, cluster {k}", region=region, color=colors(k))
        files.append(_save(figure, file, stage))
    return files


def _draw_sheet(
    sheet: dict[str, tuple[Tensor, Explained]], patches: list[list[Tensor]] | None, mode: Mode
) -> Figure:
    """Draw photos, with what explains them, on a contact sheet."""
    photos, explained = zip(*sheet.values(), strict=True)
    column_titles = None
    if mode != "image":
        word = "own cluster" if mode == "per photo" else "cluster"
        n_clusters = len(explained[0].logits)
        column_titles = [f"{word} {k}" for k in range(n_clusters)]
    return plot.contact_sheet(
        photos,
        [each.relevance for each in explained],
        [each.cluster for each in explained],
        row_titles=[*sheet],
        column_titles=column_titles,
        patches=patches,
        same_clusters=mode == "spatial",
    )


def _lines(name: str, explained: Explained) -> Iterator[list[str]]:
    """Return the rows of the table."""
    cluster = explained.cluster
    if explained.logits.ndim == 1:
        yield [name, str(int(cluster)), text(explained.logits.max().item(), 3)]
        return
    for k, (logit, heatmap) in enumerate(zip(explained.logits, explained.relevance, strict=True)):
        region = cluster == k
        cells = ["none", "", ""]
        if region.any():
            fraction = region.double().mean().item()
            mean = logit[region].mean().item()
            cells = [percent(fraction), text(mean, 3), percent(_fraction_inside(heatmap, region))]
        yield [name, str(k), *cells]


def _fraction_inside(heatmap: Tensor, region: Tensor) -> float:
    """Return the fraction of the positive relevance [H, W] that is in a region [h, w]; 0 if there is none."""
    enlarged = F.interpolate(region[None, None].to(heatmap), size=heatmap.shape, mode="nearest")
    pixels = enlarged[0, 0]
    positive = heatmap.clamp(min=0)
    fraction = (positive * pixels).sum() / positive.sum()
    return fraction.nan_to_num().item()


def _save(figure: Figure, file: str, stage: Path) -> str:
    figure.savefig(stage / file, metadata=mark(file))
    return file


def mark(file: str) -> dict[str, str]:
    """Return the metadata of a picture by which a later run of the command recognises it."""
    return {"Software": "neonxc heatmap", "Title": file}


def remove_earlier(out: Path, new: list[str]) -> None:
    """Remove pictures that an earlier run has left in a folder; all other files are kept."""
    for path in {*out.glob("*.png")} - {out / file for file in new}:
        try:
            with Image.open(path) as picture:
                is_from_here = mark(path.name).items() <= picture.info.items()
        except OSError:  # not a picture
            continue
        if is_from_here:
            path.unlink()
