"""Heatmaps of photos as pictures in a folder, by one process or several.

Pictures and numbers are in a temporary folder beside the target folder until all of them are done.
"""

from __future__ import annotations

import operator
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from neonxc import plot
from neonxc.cli.workflows.photos import Named, Place, patch, typical_places
from neonxc.cli.workflows.result import Result, mark, remove_earlier
from neonxc.common.numbers import percent, text
from neonxc.common.processes import Ranks
from neonxc.common.progress import progress_bar
from neonxc.common.storage import write_tensors
from neonxc.plot.images import cluster_colors

SHEET = 25
"""Photos on one contact sheet, which are in memory together."""

PATCHES = 6
"""Typical patches of a cluster."""

Mode = Literal["spatial", "per photo", "image"]


@dataclass
class Explained:
    """Logits [clusters] of a photo or [clusters, h, w] of its locations, and relevance [n, H, W]."""

    logits: Tensor
    relevance: Tensor

    @property
    def columns(self) -> list[int]:
        """The clusters that the relevance is of: the one of a whole photo, or all."""
        return explained_clusters(self.logits)


def explained_clusters(logits: Tensor) -> list[int]:
    """Return the clusters that a photo is explained for: its own one, or all clusters of its locations."""
    return [int(logits.argmax())] if logits.ndim == 1 else list(range(len(logits)))


@dataclass
class Drawing:
    """Draws the heatmaps of photos.

    Attributes
    ----------
    photos : sequence
    names : list of str
        Distinct names for the files.
    result : Result
        Receives the rows of the table and the names of the files.
    mode : {"spatial", "per photo", "image"}
        Whether the locations of all photos are clustered together, those of each photo alone, or whole photos.
    """

    photos: Named
    names: list[str]
    result: Result
    mode: Mode

    @property
    def whole(self) -> bool:
        """Whether whole photos are clustered, instead of their locations."""
        return self.mode == "image"

    @property
    def stage(self) -> Path:
        """Temporary folder of pictures and numbers."""
        return self.result.out.parent / f".{self.result.out.name}.unfinished"

    def explain_all(self, explain: Callable[[int, Tensor], Explained], ranks: Ranks) -> None:
        """Explain and draw the photos of this process; their numbers are kept in the temporary folder."""
        with ranks.agreed():
            if ranks.rank == 0:
                shutil.rmtree(self.stage, ignore_errors=True)
                self.stage.mkdir(parents=True)
        try:
            with ranks.agreed():
                own = range(ranks.rank, len(self.photos), ranks.size)
                for row in progress_bar(own, desc="photos", disable=ranks.rank > 0):
                    photo = self.photos[row][1]
                    one = explain(row, photo)
                    colors = cluster_colors(len(one.logits))
                    for file, k, heatmap in self._pictures(row, one):
                        title = f"{self.names[row]}, cluster {k}"
                        region = None if self.whole else one.logits.argmax(dim=0) == k
                        figure = plot.overlay(photo, heatmap, title=title, region=region, color=colors(k))
                        figure.savefig(self.stage / file, metadata=mark(file))
                    write_tensors(vars(one), self._numbers(row), {})
        except Exception:
            if ranks.rank == 0:
                shutil.rmtree(self.stage)
            raise

    def finish(self, keep: str | Path | None, layer: str) -> None:
        """Write the contact sheets, write the numbers to the file `keep`, and move all pictures to the folder."""
        numbers: dict[str, Tensor] = {}
        order = list(range(len(self.photos)))
        if self.whole:
            own = [int(self._again(row).logits.argmax()) for row in order]
            order.sort(key=lambda row: (own[row], self.names[row]))
        sheets: list[str] = []
        pictures: list[str] = []
        patches = self._patches() if self.mode == "spatial" else None
        for first in range(0, len(order), SHEET):
            some = [(row, self._again(row)) for row in order[first : first + SHEET]]
            sheets.append("contact-sheet.png" if not first else f"contact-sheet-{len(sheets) + 1}.png")
            self._sheet(some, patches).savefig(self.stage / sheets[-1], metadata=mark(sheets[-1]))
            for row, one in some:
                self.result.rows += self._lines(row, one)
                pictures += [file for file, _, _ in self._pictures(row, one)]
                if keep is not None:
                    numbers[f"{self.names[row]}/relevance"] = one.relevance[0] if self.whole else one.relevance
                    numbers[f"{self.names[row]}/logits"] = one.logits
        if keep is not None:
            Path(keep).parent.mkdir(parents=True, exist_ok=True)
            write_tensors(numbers, Path(keep), {"layer": layer})
        self.result.files = [*sheets, *pictures]
        self.result.out.mkdir(parents=True, exist_ok=True)
        for file in self.stage.glob("*.png"):
            os.replace(file, self.result.out / file.name)
        remove_earlier(self.result.out, self.result.files)
        shutil.rmtree(self.stage)

    def _pictures(self, row: int, one: Explained) -> Iterator[tuple[str, int, Tensor]]:
        """Yield files, clusters and heatmaps of a photo, for the clusters that occur in it."""
        name, own = self.names[row], one.logits.argmax(dim=0)
        for k, heatmap in zip(one.columns, one.relevance, strict=True):
            if not (own == k).any():
                continue
            yield f"cluster-{k}-{name}.png" if self.whole else f"{name}-cluster-{k}.png", k, heatmap

    def _patches(self) -> list[list[Tensor]]:
        """Return the most typical patches of every cluster; only the best ones are kept in memory."""
        best: list[list[Place]] = []
        for row in range(len(self.photos)):
            found = typical_places(self._again(row).logits, row, PATCHES)
            together = map(operator.add, best, found) if best else found
            best = [sorted(places, key=lambda place: -place.logit)[:PATCHES] for places in together]
        return [[patch(self.photos[place.photo][1], place) for place in places] for places in best]

    def _sheet(self, some: list[tuple[int, Explained]], patches: list[list[Tensor]] | None) -> Any:
        photos = [self.photos[row][1] for row, _ in some]
        names = [self.names[row] for row, _ in some]
        if self.whole:
            maps, own = [one.relevance[0] for _, one in some], [one.columns[0] for _, one in some]
            return plot.contact_sheet(photos, maps, own, row_titles=names)
        titles = [f"own cluster {k}" if self.mode == "per photo" else f"cluster {k}" for k in some[0][1].columns]
        return plot.contact_sheet(
            photos,
            [one.relevance for _, one in some],
            [one.logits.argmax(dim=0) for _, one in some],
            row_titles=names,
            column_titles=titles,
            patches=patches,
            same_clusters=self.mode == "spatial",
        )

    def _lines(self, row: int, one: Explained) -> Iterator[list[str]]:
        """Return the rows of the table."""
        if self.whole:
            yield [self.names[row], str(one.columns[0]), text(one.logits.max().item(), 3)]
            return
        for k, (logit, heatmap) in enumerate(zip(one.logits, one.relevance, strict=True)):
            own = one.logits.argmax(dim=0) == k
            if not own.any():
                yield [self.names[row], str(k), "none", "", ""]
                continue
            share, mean, inside = own.double().mean(), logit[own].mean(), positive_inside(heatmap, own)
            yield [self.names[row], str(k), percent(share.item()), text(mean.item(), 3), percent(inside)]

    def _again(self, row: int) -> Explained:
        return Explained(**load_file(self._numbers(row)))

    def _numbers(self, row: int) -> Path:
        return self.stage / f"{row}.safetensors"


def positive_inside(heatmap: Tensor, own: Tensor) -> float:
    """Return the share of positive relevance [H, W] inside the locations [h, w] of the cluster."""
    region = F.interpolate(own[None, None].to(heatmap), size=heatmap.shape, mode="nearest")[0, 0]
    positive = heatmap.clamp(min=0)
    total = float(positive.sum())
    return float((positive * region).sum()) / total if total > 0 else 0.0
