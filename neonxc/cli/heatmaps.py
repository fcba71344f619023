"""Heatmaps of clusters of photos or of their locations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
from neonxc.cli.options import Result, with_folder
from neonxc.cli.photos import Named, Place, names_of, patch, preprocessed, typical_places
from neonxc.common.numbers import percent, text
from neonxc.common.progress import progress_bar
from neonxc.common.storage import staged_folder, write_tensors
from neonxc.convert import neuralize
from neonxc.lrp import Composite
from neonxc.plot.images import cluster_colors
from neonxc.report.clusters import kmeans

if TYPE_CHECKING:
    from neonxc.models import FeatureExtractor

SAMPLE = 20_000
"""Points at most that k-means is fitted on; the memory for them is bounded, however many photos there are."""
PHOTOS = 500
"""Photos at most that locations are sampled from."""
SHEET = 25
"""Photos on one contact sheet, which are in memory together."""
PATCHES = 6
"""Typical patches of a cluster."""

Mode = Literal["spatial", "per photo", "image"]


class Explained(NamedTuple):
    """Logits [clusters] of a photo, and relevance [H, W] of its own; or [clusters, h, w] and [clusters, H, W]."""

    logits: Tensor
    relevance: Tensor

    @property
    def own(self) -> Tensor:
        """The cluster of the photo, or of each location."""
        return self.logits.argmax(dim=0)


def heatmaps(
    photos: Named,
    clusters: int,
    out: str | Path,
    features: FeatureExtractor,
    rules: Composite | None = None,
    keep: str | Path | None = None,
    mode: Mode = "spatial",
) -> Result:
    """Cluster photos or their locations and draw heatmaps of the clusters (NEON paper, VI-B).

    The locations of all photos are clustered together ("spatial"), or those of each photo alone ("per photo"), and
    each photo has a heatmap for every cluster; or whole photos are clustered by their pooled features ("image"),
    and each photo has a heatmap for its cluster. The heatmaps [clusters, H, W] or [H, W] and the logits
    [clusters, h, w] or [clusters] of every photo are written to the file `keep`.
    """
    names, whole = names_of(photos), mode == "image"
    together = None if mode == "per photo" else _together(photos, clusters, features, whole)

    def explain(row: int, photo: Tensor) -> Explained:
        x, net = preprocessed(photo, features), together
        if net is None:
            what = f"locations of {names[row]} at this layer"
            net = neuralize(kmeans(features.points(x).cpu().numpy(), clusters, what), x, features)
        logits = net(x)[0].detach().cpu()
        targets = [int(logits.argmax())] if whole else list(range(clusters))
        relevance = NEON(net, rules).heatmaps(x, targets)[0].cpu()
        return Explained(logits, relevance[0] if whole else relevance)

    each = "each of " if mode == "per photo" else ""
    of = f" of {each}{len(photos)} photos" if whole or len(photos) > 1 else ""
    place = f"{features.layer or 'the output'} of {type(features.net).__name__}"
    header = ["photo", "cluster", "logit"] if whole else ["photo", "cluster", "locations", "mean logit", "inside"]
    result = Result(f"{clusters} {'' if whole else 'spatial '}clusters{of} at {place}", header, Path(out))
    with staged_folder(out) as stage, TemporaryDirectory() as numbers:
        drawing = Drawing(photos, names, result, mode, stage, Path(numbers))
        drawing.explain_all(explain)
        drawing.finish(keep, place)
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


@dataclass
class Drawing:
    """Draws the heatmaps of photos into the folder `stage`, and keeps their numbers in the folder `numbers`.

    The result receives the rows of the table and the names of the files.
    """

    photos: Named
    names: list[str]
    result: Result
    mode: Mode
    stage: Path
    numbers: Path

    @property
    def whole(self) -> bool:
        """Whether whole photos are clustered."""
        return self.mode == "image"

    def explain_all(self, explain: Callable[[int, Tensor], Explained]) -> None:
        """Explain and draw the photos."""
        for row, name in enumerate(progress_bar(self.names, desc="photos")):
            photo = self.photos[row][1]
            explained = explain(row, photo)
            colors = cluster_colors(len(explained.logits))
            for k, file in self._files(row, explained).items():
                heatmap = explained.relevance if self.whole else explained.relevance[k]
                region = None if self.whole else explained.own == k
                overlay = plot.overlay(
                    photo, heatmap, title=f"{name}, cluster {k}", region=region, color=colors(k)
                )
                self._save(overlay, file)
            write_tensors(explained._asdict(), self._numbers(row), {})

    def finish(self, keep: str | Path | None, layer: str) -> None:
        """Draw the contact sheets, and write the numbers to the file `keep`."""
        numbers: dict[str, Tensor] = {}
        order = list(range(len(self.photos)))
        if self.whole:
            order.sort(key=lambda row: (int(self._explained(row).own), self.names[row]))
        sheets: list[str] = []
        pictures: list[str] = []
        patches = self._patches() if self.mode == "spatial" else None
        for first in range(0, len(order), SHEET):
            sheet = {row: self._explained(row) for row in order[first : first + SHEET]}
            sheets.append("contact-sheet.png" if not first else f"contact-sheet-{len(sheets) + 1}.png")
            self._save(self._sheet(sheet, patches), sheets[-1])
            for row, explained in sheet.items():
                self.result.rows += self._lines(row, explained)
                pictures += self._files(row, explained).values()
                if keep is not None:
                    numbers |= {f"{self.names[row]}/{what}": x for what, x in explained._asdict().items()}
        if keep is not None:
            write_tensors(numbers, with_folder(Path(keep)), {"layer": layer})
        self.result.files = [*sheets, *pictures]

    def _files(self, row: int, explained: Explained) -> dict[int, str]:
        """Return the file of the heatmap of each cluster that occurs in a photo."""
        name = self.names[row]
        clusters = explained.own.unique().tolist()
        return {k: f"cluster-{k}-{name}.png" if self.whole else f"{name}-cluster-{k}.png" for k in clusters}

    def _patches(self) -> list[list[Tensor]]:
        """Return the most typical patches of every cluster; only the best ones are kept in memory."""
        best = defaultdict[int, list[Place]](list)
        for row in range(len(self.photos)):
            for k, places in enumerate(typical_places(self._explained(row).logits, row, PATCHES)):
                best[k] = sorted(best[k] + places, key=lambda place: -place.logit)[:PATCHES]
        return [[patch(self.photos[place.photo][1], place) for place in places] for places in best.values()]

    def _sheet(self, sheet: dict[int, Explained], patches: list[list[Tensor]] | None) -> Any:
        word = "own cluster" if self.mode == "per photo" else "cluster"
        clusters = len(next(iter(sheet.values())).logits)
        return plot.contact_sheet(
            [self.photos[row][1] for row in sheet],
            [explained.relevance for explained in sheet.values()],
            [explained.own for explained in sheet.values()],
            row_titles=[self.names[row] for row in sheet],
            column_titles=None if self.whole else [f"{word} {k}" for k in range(clusters)],
            patches=patches,
            same_clusters=self.mode == "spatial",
        )

    def _lines(self, row: int, explained: Explained) -> Iterator[list[str]]:
        """Return the rows of the table."""
        name, (logits, relevance), cluster = self.names[row], explained, explained.own
        if self.whole:
            yield [name, str(int(cluster)), text(logits.max().item(), 3)]
            return
        for k, (logit, heatmap) in enumerate(zip(logits, relevance, strict=True)):
            region = cluster == k
            cells = ["none", "", ""]
            if region.any():
                pixels = F.interpolate(region[None, None].to(heatmap), size=heatmap.shape, mode="nearest")[0, 0]
                positive = heatmap.clamp(min=0)
                total = float(positive.sum())
                inside = float((positive * pixels).sum()) / total if total > 0 else 0.0
                share, mean = region.double().mean().item(), logit[region].mean().item()
                cells = [percent(share), text(mean, 3), percent(inside)]
            yield [name, str(k), *cells]

    def _save(self, figure: Any, file: str) -> None:
        figure.savefig(self.stage / file, metadata=mark(file))

    def _explained(self, row: int) -> Explained:
        return Explained(**load_file(self._numbers(row)))

    def _numbers(self, row: int) -> Path:
        return self.numbers / f"{row}.safetensors"


def mark(file: str) -> dict[str, str]:
    """Return the metadata of a picture by which a later run of the command recognises it."""
    return {"Software": "neonxc heatmap", "Title": file}


def remove_earlier(out: Path, kept: list[str]) -> None:
    """Remove pictures that an earlier run has left in a folder; all other files are kept."""
    for path in {*out.glob("*.png")} - {out / name for name in kept}:
        try:
            with Image.open(path) as picture:
                ours = mark(path.name).items() <= picture.info.items()
        except OSError:
            continue
        if ours:
            path.unlink()
