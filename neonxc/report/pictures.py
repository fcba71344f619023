"""Pictures of a report: photos under heatmaps, photos painted by clusters, and their encoding as data URIs."""

from __future__ import annotations

import base64
from io import BytesIO

import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

from neonxc.common import colours
from neonxc.plot.heat import DIVERGING, heatmap_limit, pale, smoothed

SIDE = 224
"""Longer side of a picture in pixels."""
PAINT = 0.7
"""Opacity of the colours of clusters over a photo."""


def overlaid(photo: Tensor, heatmap: Tensor) -> Tensor:
    """Overlay a pale grey photo [3, H, W] with a heatmap [H, W]."""
    from matplotlib import colormaps  # loads slowly

    heatmap = torch.from_numpy(smoothed(heatmap.numpy()))
    strength = (heatmap / heatmap_limit(heatmap)).clamp(-1, 1)
    position = strength.numpy() / 2 + 0.5  # in the colour map
    colors = torch.from_numpy(colormaps[DIVERGING](position)[..., :3]).permute(2, 0, 1)
    opacity = strength.abs().sqrt()
    grey = torch.from_numpy(pale(photo)).permute(2, 0, 1)
    return torch.lerp(grey, colors, opacity.double()).float()


def painted(photo: Tensor, regions: Tensor, k: int) -> Tensor:
    """Overlay a photo [3, H, W] with the colours of the clusters [h, w] of its locations, of which -1 is noise."""
    rgb = torch.tensor([_rgb(color) for color in [*colours.colors(k), colours.NOISE]])
    paint = rgb[regions].permute(2, 0, 1)[None]
    enlarged = F.interpolate(paint, photo.shape[1:], mode="nearest")[0]
    grey = torch.from_numpy(pale(photo)).permute(2, 0, 1).float()
    return (1 - PAINT) * grey + PAINT * enlarged


def _rgb(color: str) -> list[float]:
    """Return the red, green and blue of ``#rrggbb``, 0 to 1."""
    return [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]


def webp(photo: Tensor) -> str:
    """Encode a photo [3, H, W] with values from 0 to 1 as a data URI."""
    scale = SIDE / max(photo.shape[1:])
    if scale < 1:
        size = [max(1, round(length * scale)) for length in photo.shape[1:]]
        photo = F.interpolate(photo[None], size, mode="bicubic", antialias=True)[0].clamp(0, 1)
    pixels = (photo.permute(1, 2, 0).numpy() * 255).round().astype(np.uint8)
    return as_uri(Image.fromarray(pixels))


def drawn(figure: Figure) -> Image.Image:
    """Return a figure as a picture."""
    png = BytesIO()
    figure.savefig(png, format="png", dpi=130)
    return Image.open(png).convert("RGB")


def as_uri(image: Image.Image) -> str:
    """Encode an image as a data URI."""
    buffer = BytesIO()
    image.save(buffer, "WEBP", quality=72, method=6)
    return "data:image/webp;base64," + base64.b64encode(buffer.getvalue()).decode()
