"""The most typical places of a cluster in photos: those with its largest logits."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from neonxc.cli.workflows.photos import crop

SHARE = 4
"""The side of a patch is this part of the photo's shorter side."""


@dataclass(frozen=True)
class Place:
    """A place in a photo: the photo's number, and the centre of the place as shares of the sides."""

    logit: float
    photo: int
    y: float
    x: float


def typical_places(logits: Tensor, photo: int, most: int) -> list[list[Place]]:
    """Return the separate places of a photo with the largest logits [K, h, w], for each cluster."""
    height, width = logits.shape[1:]
    apart = max(1, min(height, width) // SHARE)
    own = logits.argmax(dim=0)
    found: list[list[Place]] = []
    for k, logit in enumerate(logits):
        left = logit.where(own == k, -float("inf"))
        places: list[Place] = []
        while len(places) < most and left.max() > -float("inf"):
            i, j = divmod(int(left.argmax()), width)
            places.append(Place(float(logit[i, j]), photo, (i + 0.5) / height, (j + 0.5) / width))
            left[max(0, i - apart + 1) : i + apart, max(0, j - apart + 1) : j + apart] = -float("inf")
        found.append(places)
    return found


def patch(photo: Tensor, place: Place) -> Tensor:
    """Crop the square around a place of a photo [3, H, W]; at an edge, the square is shifted inwards."""
    side = max(1, min(photo.shape[1:]) // SHARE)
    return crop(photo, side, side, place.y, place.x)
