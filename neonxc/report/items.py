"""Single inputs as the page shows them: rows of a table, photos with heatmaps, texts with highlighted words."""

from __future__ import annotations

import base64
from io import BytesIO
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from matplotlib import colormaps
from matplotlib.colors import to_rgb
from PIL import Image
from torch import Tensor

from neonxc.attribution.highlighting import highlights
from neonxc.attribution.neon import NEON
from neonxc.common.colours import NOISE
from neonxc.common.numbers import percent, rounded, text
from neonxc.data.inputs import as_array
from neonxc.data.table import Table
from neonxc.plot.documents import least_marked
from neonxc.plot.heat import DIVERGING, heatmap_limit, pale, smoothed
from neonxc.plot.images import as_photos
from neonxc.report.clustering import Clustering
from neonxc.report.contents import Item
from neonxc.report.relevance import Relevance

VALUES = 6  # maximum number of columns shown for a row
SIDE = 224  # longer side of a photo in pixels
CHARACTERS = 600  # maximum number of characters shown of a text


def items(clustering: Clustering, relevance: Relevance, points: np.ndarray) -> list[Item]:
    """Describe points of the sample, given their positions in the sample."""
    names = clustering.point_names
    rows = relevance.index[points].tolist()
    logits = rounded(relevance.logit[points])
    rivals = relevance.rival[points].tolist()
    described = [
        Item(row, str(row) if names is None else names[row], logit, rival)
        for row, logit, rival in zip(rows, logits, rivals, strict=True)
    ]
    if clustering.kind == "table":
        for item, point in zip(described, points, strict=True):
            item.values = _values(relevance, point)
    elif clustering.kind == "images" and described:
        _add_photos(clustering, described)
    elif clustering.kind == "texts" and described:
        _add_texts(clustering, described)
    return described


def _values(relevance: Relevance, point: int) -> list[tuple[int, str, float]]:
    shares = relevance.shares[point]
    order = np.argsort(-np.abs(shares), kind="stable")[:VALUES].tolist()
    return [(column, text(relevance.table.iat[point, column]), rounded([shares[column]])[0]) for column in order]


def _add_photos(clustering: Clustering, described: list[Item]) -> None:
    rows = [item.row for item in described]
    x = _images(clustering, rows)
    maps = NEON(clustering.whole).attribute(x, target=clustering.labels[rows]).sum(1)
    for item, photo, heatmap in zip(described, as_photos(clustering.whole.features, x), maps, strict=True):
        item.picture = webp(photo)
        item.heatmap = webp(under_heatmap(photo, heatmap))


def whole_photos(clustering: Clustering, cluster: int, most: int) -> list[Item]:
    """Return the photos with the largest share of a cluster of locations, with its heatmap."""
    names = clustering.row_names
    inside = clustering.positions.reshape(len(clustering.X), -1) == cluster
    shares = torch.from_numpy(inside).double().mean(1)
    largest = shares.topk(min(most, len(shares))).indices
    rows = largest[shares[largest] > 0].tolist()
    if not rows:
        return []
    x = _images(clustering, rows)
    maps = NEON(clustering.whole).heatmaps(x, [clustering.net.classes_[cluster]])[:, 0]
    return [
        Item(
            row * inside.shape[1] + int(inside[row].argmax()),  # one of its locations
            f"{row if names is None else names[row]}: {percent(float(shares[row]))} of its locations",
            0.0,
            -1,
            picture=webp(photo),
            heatmap=webp(under_heatmap(photo, heatmap)),
        )
        for row, photo, heatmap in zip(rows, as_photos(clustering.whole.features, x), maps, strict=True)
    ]


def regions(clustering: Clustering, colors: list[str]) -> tuple[str, str]:
    """Return the first photo, and the photo overlaid with the colours of its clusters."""
    x = _images(clustering, [0])
    photo = as_photos(clustering.whole.features, x)[0]
    shape = np.shape(clustering.whole.predict(x))[1:]
    positions = torch.from_numpy(clustering.positions.reshape(len(clustering.X), *shape)[0])
    rgb = torch.tensor([to_rgb(color) for color in [*colors, NOISE]])
    painted = F.interpolate(rgb[positions].permute(2, 0, 1)[None], photo.shape[1:], mode="nearest")[0]
    return webp(photo), webp(0.3 * torch.from_numpy(pale(photo)).permute(2, 0, 1).float() + 0.7 * painted)


def _add_texts(clustering: Clustering, described: list[Item]) -> None:
    """Add texts with their highlights, whose relevance is relative to the largest, from -1 to 1."""
    rows = [item.row for item in described]
    net = clustering.net
    texts = [str(given) for given in Table.read(clustering.X).take(rows).data]
    relevance = NEON(net).attribute(texts, target=clustering.labels[rows])
    if net.features is None:
        try:
            highlighted = highlights(net, texts, relevance)
        except ValueError:  # of terms that have no places, such as n-grams of characters, nothing is marked
            highlighted = [[] for _ in texts]
    else:
        words: Any = net.features
        highlighted = [
            [(*span, value) for span, value in zip(spans, values, strict=False)]
            for spans, values in zip(words.spans(texts), relevance.tolist(), strict=True)
        ]
    for item, whole, marks in zip(described, texts, highlighted, strict=True):
        shown = [mark for mark in marks if mark[1] <= CHARACTERS]
        sizes = [abs(value) for *_, value in shown]
        most = max(sizes, default=0)
        least = least_marked(sizes)
        item.text = whole[:CHARACTERS]
        item.marks = [
            (start, end, rounded([value / most])[0]) for start, end, value in shown if abs(value) >= least
        ]


def _images(clustering: Clustering, rows: list[int]) -> Tensor:
    return torch.as_tensor(as_array(Table.read(clustering.X).take(rows).data))


def under_heatmap(photo: Tensor, heatmap: Tensor) -> Tensor:
    """Overlay a pale grey photo [3, H, W] with a heatmap [H, W]."""
    heatmap = torch.from_numpy(smoothed(heatmap.numpy()))
    strength = (heatmap / heatmap_limit(heatmap)).clamp(-1, 1)
    colors = torch.from_numpy(colormaps[DIVERGING](strength.numpy() / 2 + 0.5)[..., :3]).permute(2, 0, 1)
    opacity = strength.abs().sqrt()
    return torch.lerp(torch.from_numpy(pale(photo)).permute(2, 0, 1), colors, opacity.double()).float()


def webp(photo: Tensor) -> str:
    """Encode a photo [3, H, W] with values from 0 to 1 as a data URI."""
    scale = SIDE / max(photo.shape[1:])
    if scale < 1:
        size = [max(1, round(length * scale)) for length in photo.shape[1:]]
        photo = F.interpolate(photo[None], size, mode="bicubic", antialias=True)[0].clamp(0, 1)
    return as_uri(Image.fromarray((photo.permute(1, 2, 0).numpy() * 255).round().astype(np.uint8)))


def as_uri(image: Image.Image) -> str:
    """Encode an image as a data URI."""
    buffer = BytesIO()
    image.save(buffer, "WEBP", quality=72, method=6)
    return "data:image/webp;base64," + base64.b64encode(buffer.getvalue()).decode()
