"""Clusters of photos, or of the locations in photos, with heatmaps."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from neonxc.attribution.neon import NEON
from neonxc.common.numbers import percent, plural
from neonxc.data.inputs import as_array
from neonxc.plot.images import as_photos
from neonxc.report.clustered import ClusteredData
from neonxc.report.description import Example
from neonxc.report.relevance import Relevance


class ClusteredPhotos(ClusteredData):
    """Clusters of photos; the points are their features."""

    kind = "images"
    thing = "image"
    has_readable_columns = False

    def _show(self, examples: list[Example], relevance: Relevance, points: np.ndarray) -> None:
        """Add the photos with the heatmaps of their clusters."""
        rows = [example.row for example in examples]
        x = self.images(rows)
        heatmaps = NEON(self.whole).attribute(x, target=self.labels[rows]).sum(1)
        self._add_photos(examples, x, heatmaps)

    def images(self, rows: list[int]) -> Tensor:
        """Select inputs of the network, [m, C, H, W]."""
        return torch.as_tensor(as_array(self.table.take(rows).data))

    def _add_photos(self, examples: list[Example], x: Tensor, heatmaps: Tensor) -> None:
        """Add photos and heatmaps [m, H, W] to examples of the inputs x."""
        photos = as_photos(self.whole.features, x)
        for example, photo, heatmap in zip(examples, photos, heatmaps, strict=True):
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
        x = self.images(rows)
        heatmaps = NEON(self.whole).heatmaps(x, [self.net.classes_[cluster]])[:, 0]
        self._add_photos(examples, x, heatmaps)
        return examples, []

    def _show(self, examples: list[Example], relevance: Relevance, points: np.ndarray) -> None:
        """Add nothing: a single location is not a photo."""

    def regions(self) -> tuple[Tensor, Tensor]:
        """Return the first photo [3, H, W], and the positions of the clusters of its locations [h, w]."""
        x = self.images([0])
        shape = np.shape(self.whole.predict(x))[1:]
        positions = torch.from_numpy(self._positions_by_photo[0].reshape(shape))
        return as_photos(self.whole.features, x)[0], positions
