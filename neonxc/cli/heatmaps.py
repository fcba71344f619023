"""Heatmaps of clusters of photos or of their locations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

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
    whole = mode == "image"
    together = None if mode == "per photo" else _together(photos, clusters, features, whole)
    each = "each of " if mode == "per photo" else ""
    of = f" of {each}{plural(len(photos), 'photo')}" if whole or len(photos) > 1 else ""
    layer = f"{features.layer or 'the output'} of {type(features.net).__name__}"
    header = ["photo", "cluster", "logit"] if whole else ["photo", "cluster", "locations", "mean logit", "inside"]
    notes = [f"heatmaps: LRP rules {rules}, {CHOSEN_BY.get(rules, PUBLISHED)}", *([] if whole else [INSIDE])]
    propagation = composite(rules, features)
    result = CommandOutput(
        f"{clusters} {'' if whole else 'spatial '}clusters{of} at {layer}", header, Path(out), notes
    )
    with staged_folder(out) as stage, TemporaryDirectory() as folder:
        stored = [Path(folder, f"{row}.safetensors") for row in range(len(photos))]  # not all fit into memory
        keys = []
        lines = []
        overlays = []
        best = defaultdict[int, list[PhotoLocation]](list)
        for row, name in enumerate(progress_bar(names, desc="photos")):
            photo = photos[row][1]
            x = preprocessed(photo, features)
            net = together
            if net is None:
                what = f"locations of {name} at this layer"
                net = neuralize(kmeans(features.points(x).cpu().numpy(), clusters, what), x, features)
            explained = _explain(net, x, propagation, whole)
            write_tensors(explained._asdict(), stored[row], {})
            keys.append((int(explained.cluster) if whole else row, name))
            lines.append([*_lines(name, explained)])
            overlays.append(_draw_overlays(photo, name, explained, stage))
            for k, places in enumerate(
                typical_places(explained.logits, row, PATCHES) if mode == "spatial" else ()
            ):
                best[k] = sorted(best[k] + places, key=lambda place: -place.logit)[:PATCHES]
        patches = [[patch(photos[place.photo][1], place) for place in places] for places in best.values()]
        order = sorted(range(len(photos)), key=keys.__getitem__)
        for first in range(0, len(photos), SHEET):
            rows = order[first : first + SHEET]
            sheet = {names[row]: (photos[row][1], Explained(**load_file(stored[row]))) for row in rows}
            file = f"contact-sheet-{first // SHEET + 1}.png" if first else "contact-sheet.png"
            result.files.append(_save(_draw_sheet(sheet, patches or None, mode), file, stage))
        for row in order:
            result.rows += lines[row]
            result.files += overlays[row]
        if keep is not None:
            tensors = {
                f"{name}/{what}": values
                for name, file in zip(names, stored, strict=True)
                for what, values in load_file(file).items()
            }
            write_tensors(tensors, with_folder(Path(keep)), {"layer": layer})
    remove_earlier(result.out, result.files)
    return result


def _together(photos: Named, clusters: int, features: FeatureExtractor, whole: bool) -> Any:
    """Return the network of the clusters of all photos."""
    points = _sample(photos, features, SAMPLE if whole else PHOTOS).cpu().numpy()
    names = names_of(photos)
    what = "photos" if whole else f"locations of {names[0] if len(names) == 1 else 'the photos'} at this layer"
    model = kmeans(points, clusters, what, names if len(points) == len(names) else ())
    net = neuralize(model, features=features)
    net.beta = neuralize(model, points).beta  # photos differ in size, so that calibration uses their features
    return net


def _sample(photos: Named, features: FeatureExtractor, most: int) -> Tensor:
    """Return points [n, d] of a bounded number of photos, in their order."""
    rows = _drawn(len(photos), most, 0).tolist()
    samples = []
    for seed, row in enumerate(progress_bar(rows, desc="features")):
        points = features.points(preprocessed(photos[row][1], features))
        drawn = _drawn(len(points), max(1, SAMPLE // len(rows)), seed)
        samples.append(points[torch.from_numpy(drawn).to(points.device)])
    return torch.cat(samples)


def _drawn(n: int, most: int, seed: int) -> np.ndarray:
    """Return the numbers below n in their order, or a random sample if there are too many."""
    return np.arange(n) if n <= most else np.sort(np.random.default_rng(seed).choice(n, most, replace=False))


def _explain(net: NeuralizedClustering, x: Tensor, rules: Composite, whole: bool) -> Explained:
    """Explain a photo [1, 3, H, W]: all clusters of locations, or the cluster of the whole photo."""
    with torch.no_grad():
        logits = net(x)[0].cpu()
    positions = [int(logits.argmax())] if whole else list(range(len(logits)))
    relevance = NEON(net, rules).heatmaps(x, positions)[0].cpu()
    return Explained(logits, relevance[0] if whole else relevance)


def _draw_overlays(photo: Tensor, name: str, explained: Explained, stage: Path) -> list[str]:
    """Draw the heatmaps of the clusters that occur in a photo, and return the names of the files."""
    whole = explained.logits.ndim == 1
    colors = cluster_colors(len(explained.logits))
    files = []
    for k in explained.cluster.unique().tolist():
        heatmap = explained.relevance if whole else explained.relevance[k]
        region = None if whole else explained.cluster == k
        figure = plot.overlay(photo, heatmap, title=f"{name}, cluster {k}", region=region, color=colors(k))
        files.append(_save(figure, f"cluster-{k}-{name}.png" if whole else f"{name}-cluster-{k}.png", stage))
    return files


def _draw_sheet(
    sheet: dict[str, tuple[Tensor, Explained]], patches: list[list[Tensor]] | None, mode: Mode
) -> Figure:
    """Draw photos, with what explains them, on a contact sheet."""
    photos, explained = zip(*sheet.values(), strict=True)
    word = "own cluster" if mode == "per photo" else "cluster"
    return plot.contact_sheet(
        photos,
        [each.relevance for each in explained],
        [each.cluster for each in explained],
        row_titles=[*sheet],
        column_titles=None if mode == "image" else [f"{word} {k}" for k in range(len(explained[0].logits))],
        patches=patches,
        same_clusters=mode == "spatial",
    )


def _lines(name: str, explained: Explained) -> Iterator[list[str]]:
    """Return the rows of the table."""
    (logits, relevance), cluster = explained, explained.cluster
    if logits.ndim == 1:
        yield [name, str(int(cluster)), text(logits.max().item(), 3)]
        return
    for k, (logit, heatmap) in enumerate(zip(logits, relevance, strict=True)):
        region = cluster == k
        cells = ["none", "", ""]
        if region.any():
            pixels = F.interpolate(region[None, None].to(heatmap), size=heatmap.shape, mode="nearest")[0, 0]
            positive = heatmap.clamp(min=0)
            inside = ((positive * pixels).sum() / positive.sum()).nan_to_num().item()
            share = region.double().mean().item()
            mean = logit[region].mean().item()
            cells = [percent(share), text(mean, 3), percent(inside)]
        yield [name, str(k), *cells]


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
                ours = mark(path.name).items() <= picture.info.items()
        except OSError:
            continue
        if ours:
            path.unlink()
