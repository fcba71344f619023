"""Single inputs as the page shows them: rows of a table, photos with heatmaps, texts with highlighted words."""

from __future__ import annotations

import base64
from dataclasses import replace
from io import BytesIO
from typing import Any

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from matplotlib import colormaps
from PIL import Image
from torch import Tensor

from neonxc.attribution.highlighting import highlights
from neonxc.attribution.neon import NEON
from neonxc.common.colours import NOISE
from neonxc.common.numbers import percent, rounded, text
from neonxc.data.table import Table
from neonxc.plot.documents import least_marked
from neonxc.plot.heat import DIVERGING, heatmap_limit, pale, smoothed
from neonxc.report.clustering import Clustering
from neonxc.report.contents import Item
from neonxc.report.relevance import Relevance

VALUES = 6  # maximum number of columns shown for a row
SIDE = 224  # longer side of a photo in pixels
CHARACTERS = 600  # maximum number of characters shown of a text


def items(
    clustering: Clustering, relevance: Relevance, table: pd.DataFrame, names: list[str] | None, places: np.ndarray
) -> list[Item]:
    """Describe points of the sample, given their positions in the sample."""
    found = []
    for place in places.tolist():
        row, logit = int(relevance.index[place]), float(relevance.logit[place])
        name = str(row) if names is None else names[row]
        found.append(Item(row, name, rounded([logit])[0], int(relevance.rival[place])))
    if clustering.kind == "table":
        return [replace(item, values=_values(relevance, table, p)) for item, p in zip(found, places, strict=True)]
    if clustering.kind == "images":
        return _photos(clustering, found)
    return _texts(clustering, found) if clustering.kind == "texts" else found


def _values(relevance: Relevance, table: pd.DataFrame, place: int) -> list[tuple[int, str, float]]:
    share = relevance.values[place] / max(abs(relevance.logit[place]), 1e-300)
    order = np.argsort(-np.abs(share), kind="stable")[:VALUES]
    return [(int(i), text(table.iat[place, i]), rounded([share[i]])[0]) for i in order]


def _photos(clustering: Clustering, found: list[Item]) -> list[Item]:
    if not found:
        return found
    index = np.array([item.row for item in found])
    x = Table.read(clustering.X).take(index).data
    maps = NEON(clustering.whole).attribute(x, target=clustering.labels[index])
    return [
        replace(item, picture=webp(photo), heatmap=webp(under_heatmap(photo, heatmap)))
        for item, photo, heatmap in zip(found, photos(clustering, x), _tensor(maps).sum(1), strict=True)
    ]


def whole_photos(clustering: Clustering, names: list[str] | None, most: int) -> list[list[Item]]:
    """Return, for each cluster of locations, the photos with the largest share of it, with its heatmap."""
    own = torch.from_numpy(clustering.own.reshape(len(clustering.X), -1))
    share = torch.stack([(own == cluster).double().mean(1) for cluster in range(clustering.k)])
    found: list[list[Item]] = []
    for cluster, row in enumerate(share):
        index = row.topk(min(most, len(row))).indices
        index = index[row[index] > 0].numpy()
        x = Table.read(clustering.X).take(index).data
        pictures: Any = []
        if len(index):
            maps = _tensor(NEON(clustering.whole).heatmaps(x, [clustering.net.classes_[cluster]]))[:, 0]
            pictures = zip(index.tolist(), photos(clustering, x), maps, strict=True)
        found.append(
            [
                Item(
                    place * own.shape[1] + int((own[place] == cluster).byte().argmax()),  # one of its locations
                    f"{place if names is None else names[place]}: {percent(float(row[place]))} of its locations",
                    0.0,
                    -1,
                    picture=webp(photo),
                    heatmap=webp(under_heatmap(photo, heatmap)),
                )
                for place, photo, heatmap in pictures
            ]
        )
    return found


def regions(clustering: Clustering, colors: list[str]) -> tuple[str, str]:
    """Return the first photo, and the photo overlaid with the colours of its clusters."""
    first = Table.read(clustering.X).take([0]).data
    photo = photos(clustering, first)[0]
    shape = np.shape(clustering.whole.predict(first))[1:]
    own = torch.from_numpy(clustering.own[: int(np.prod(shape))].reshape(shape))
    rgb = torch.tensor([[int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)] for color in [*colors, NOISE]])
    painted = F.interpolate(rgb[own].permute(2, 0, 1)[None], photo.shape[1:], mode="nearest")[0]
    return webp(photo), webp(0.3 * torch.from_numpy(pale(photo)).permute(2, 0, 1).float() + 0.7 * painted)


def _texts(clustering: Clustering, found: list[Item]) -> list[Item]:
    index = np.array([item.row for item in found])
    if not len(index):
        return found
    marked = text_marks(clustering, index)
    return [replace(item, text=words, marks=marks) for item, (words, marks) in zip(found, marked, strict=True)]


def text_marks(clustering: Clustering, index: np.ndarray) -> list[tuple[str, list[tuple[int, int, float]]]]:
    """Return texts with their highlights: start, end and relevance, relative to the largest, from -1 to 1."""
    texts, net = [str(one) for one in Table.read(clustering.X).take(index).data], clustering.net
    target = clustering.labels[index]
    found = []
    if net.features is None:
        relevance = NEON(net).attribute(texts, target=target)
        try:
            marked = highlights(net, texts, relevance)
        except ValueError:  # of terms that have no places, such as n-grams of characters, nothing is marked
            marked = [[] for _ in texts]
    else:
        words: Any = net.features
        relevance = NEON(net).attribute(words.encode(texts), target=target).tolist()
        spans = words.spans(texts)
        marked = [
            [(*span, value) for span, value in zip(*pair, strict=False)]
            for pair in zip(spans, relevance, strict=True)
        ]
    for one, marks in zip(texts, marked, strict=True):
        shown = [mark for mark in marks if mark[1] <= CHARACTERS]
        sizes = [abs(value) for *_, value in shown]
        most, least = max(sizes, default=0) or 1.0, least_marked(sizes)
        kept = [(start, end, rounded([value / most])[0]) for start, end, value in shown if abs(value) >= least]
        found.append((one[:CHARACTERS], kept))
    return found


def photos(clustering: Clustering, x: Any) -> Tensor:
    """Convert the inputs of a feature network to photos [N, 3, H, W] with values from 0 to 1."""
    images = _tensor(x).float()
    features: Any = clustering.whole.features
    if hasattr(features, "deprocess"):
        images = features.deprocess(images)
    if images.shape[1] == 1:
        images = images.expand(-1, 3, -1, -1)
    if not (images.amin() >= 0 and images.amax() <= 1):
        low, high = images.amin(), images.amax()
        images = (images - low) / (high - low).clamp(min=1e-12)
    return images


def under_heatmap(photo: Tensor, heatmap: Tensor) -> Tensor:
    """Overlay a pale grey photo [3, H, W] with a heatmap [H, W]."""
    heatmap = torch.from_numpy(smoothed(heatmap.numpy()))
    strength = (heatmap / heatmap_limit(heatmap)).clamp(-1, 1)
    colors = torch.from_numpy(colormaps[DIVERGING](strength.numpy() / 2 + 0.5)[..., :3]).permute(2, 0, 1)
    opacity = strength.abs().sqrt()
    return torch.lerp(torch.from_numpy(pale(photo)).permute(2, 0, 1), colors, opacity.double()).float()


def webp(photo: Tensor, side: int = SIDE, quality: int = 72) -> str:
    """Encode a photo [3, H, W] with values from 0 to 1 as a data URI."""
    scale = side / max(photo.shape[1:])
    if scale < 1:
        size = [max(1, round(length * scale)) for length in photo.shape[1:]]
        photo = F.interpolate(photo[None], size, mode="bicubic", antialias=True)[0].clamp(0, 1)
    pixels = (photo.permute(1, 2, 0).numpy() * 255).round().astype(np.uint8)
    return data_uri(Image.fromarray(pixels), quality)


def data_uri(picture: Image.Image, quality: int = 72) -> str:
    """Encode a picture as WebP in a data URI."""
    buffer = BytesIO()
    picture.save(buffer, "WEBP", quality=quality, method=6)
    return "data:image/webp;base64," + base64.b64encode(buffer.getvalue()).decode()


def _tensor(values: Any) -> Tensor:
    return values.detach().cpu() if isinstance(values, Tensor) else torch.as_tensor(np.asarray(values))
