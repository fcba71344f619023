"""Clusters of photos, or of the locations in photos, with heatmaps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from neonxc.attribution.neon import NEON
from neonxc.common.numbers import percent, plural
from neonxc.data.inputs import as_array
from neonxc.plot.bands import as_photos, shown_bands
from neonxc.plot.heat import as_image
from neonxc.report.clustered import ClusteredData
from neonxc.report.description import Example
from neonxc.report.relevance import Relevance


@dataclass(frozen=True)
class ClusteredPhotos(ClusteredData):
    """Clusters of photos; the points are their features.

    Attributes
    ----------
    shown : Tensor [N, 3, H, W] or None
        What a reader sees of the inputs, with values from 0 to 1; None for the inputs themselves.
    bands : tuple of three ints or None
        The bands of the inputs that are shown as red, green and blue.
    """

    kind = "images"
    thing = "image"
    has_readable_columns = False

    shown: Tensor | None = None
    bands: tuple[int, ...] | None = None

    def weighted(self, weight: np.ndarray) -> Self:
        """Return the clustering of the inputs with a weight > 0."""
        weighted = super().weighted(weight)
        if self.shown is None:
            return weighted
        return replace(weighted, shown=self.shown[np.flatnonzero(weight)])

    def photos(self, rows: list[int], x: Tensor) -> Tensor:
        """Return photos [m, 3, H, W] of inputs x [m, C, H, W], which have these row numbers."""
        if self.shown is not None:
            return self.shown[rows]
        return as_photos(self.whole.features, x, self.bands)

    def _show(self, examples: list[Example], relevance: Relevance, points: np.ndarray) -> None:
        """Add the photos with the heatmaps of their clusters."""
        rows = [example.row for example in examples]
        x = self.inputs_at(rows)
        heatmaps = NEON(self.whole).attribute(x, target=self.labels[rows]).sum(1)
        self._add_photos(examples, rows, x, heatmaps)

    def inputs_at(self, rows: list[int]) -> Tensor:
        """Select inputs of the network, [m, C, H, W]."""
        return torch.as_tensor(as_array(self.table.take(rows).data))

    def _add_photos(self, examples: list[Example], rows: list[int], x: Tensor, heatmaps: Tensor) -> None:
        """Add photos and heatmaps [m, H, W] to examples of the inputs x."""
        for example, photo, heatmap in zip(examples, self.photos(rows, x), heatmaps, strict=True):
            example.photo = photo
            example.heatmap = heatmap


class ClusteredLocations(ClusteredPhotos):
    """Clusters of the locations in photos; the points are their features."""

    kind = "locations"
    thing = "location"

    @property
    def counted_points(self) -> str:
        """The numbers of locations and photos in words."""
        return f"{super().counted_points} of {plural(len(self.table), 'photo')}"

    @property
    def point_names(self) -> list[str] | None:
        """None: locations share the name of their photo."""
        return None

    @property
    def _input_names(self) -> list[str] | None:
        """Names of all photos, which have the numbers that they have in X."""
        return self.row_names or [*map(str, range(len(self.table)))]

    @cached_property
    def _positions_by_photo(self) -> np.ndarray:
        """Positions of the clusters of the locations of every photo, [photos, locations]."""
        return self.positions.reshape(len(self.table), -1)

    def members_shown(self, relevance: Relevance, cluster: int, n: int) -> tuple[list[Example], list[Example]]:
        """Show whole photos instead of single locations: those with the largest share of the cluster."""
        inside = self._positions_by_photo == cluster
        shares = torch.from_numpy(inside).double().mean(1)
        largest = shares.topk(min(n, len(shares))).indices
        rows = largest[shares[largest] > 0].tolist()
        if not rows:
            return [], []
        examples = []
        for row in rows:
            location = int(inside[row].argmax())  # one of the cluster
            name = row if self.row_names is None else self.row_names[row]
            title = f"{name}: {percent(float(shares[row]))} of its locations"
            examples.append(Example(row * inside.shape[1] + location, title, 0.0, -1))
        x = self.inputs_at(rows)
        heatmaps = NEON(self.whole).heatmaps(x, [self.net.classes_[cluster]])[:, 0]
        self._add_photos(examples, rows, x, heatmaps)
        return examples, []

    def _show(self, examples: list[Example], relevance: Relevance, points: np.ndarray) -> None:
        """Add nothing: a single location is not a photo."""

    def regions(self) -> tuple[Tensor, Tensor]:
        """Return the first photo [3, H, W], and the positions of the clusters of its locations [h, w]."""
        x = self.inputs_at([0])
        shape = np.shape(self.whole.predict(x))[1:]
        positions = torch.from_numpy(self._positions_by_photo[0].reshape(shape))
        return self.photos([0], x)[0], positions


def shown_photos(images: Any, inputs: Tensor) -> tuple[Tensor | None, tuple[int, ...] | None, list[str]]:
    """Read what a reader sees of inputs [N, C, H, W]: pictures of them, or three of their bands; and remarks.

    Raises
    ------
    ValueError
        If `images` are neither three bands of the inputs nor one picture per input.
    """
    n_bands = inputs.shape[1]
    if images is None:
        if n_bands in (1, 3):
            return None, None, []
        red, green, blue = shown_bands(n_bands)
        note = (
            f"Photos show bands {red}, {green} and {blue} of {n_bands} (counted from 0) as red, green and blue; "
            "images= chooses others."
        )
        return None, (red, green, blue), [note]
    if _are_bands(images):
        bands = tuple(int(band) for band in images)
        if len(bands) != 3 or not all(0 <= band < n_bands for band in bands):
            raise ValueError(f"images needs three bands from 0 to {n_bands - 1}, got {list(bands)}")
        return None, bands, []
    if len(images) != len(inputs):
        raise ValueError(f"images needs one picture per input, {len(inputs)}, or three bands; got {len(images)}")
    pictures = np.stack([as_image(image) for image in images])
    return torch.from_numpy(pictures).permute(0, 3, 1, 2).float(), None, []


def _are_bands(images: object) -> bool:
    """Whether these are numbers of bands, and no pictures."""
    return isinstance(images, Sequence | np.ndarray | Tensor) and np.ndim(images[0]) == 0
