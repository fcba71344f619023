"""Clusters of photos, or of their locations, as heatmaps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from neonxc import plot
from neonxc.attribution import NEON
from neonxc.files import staged_folder, write_tensors
from neonxc.lrp import Composite, presets
from neonxc.neuralize import neuralize
from neonxc.workflows.clusters import kmeans
from neonxc.workflows.result import Result

if TYPE_CHECKING:
    from neonxc.models import FeatureExtractor

# Layers for whole photos, where the default one, chosen for locations, is too early in the network
WHOLE_IMAGES = {"efficientnet_lite0": "blocks.15"}
Photos = Sequence[tuple[str, Tensor]]
"""Names and images [3, H, W] in 0..1."""


def demo_photo() -> Tensor:
    """The photo of the demo, [3, 320, W] in 0..1."""
    try:
        from skimage import data
    except ImportError:
        raise ImportError('the demo needs its photo: pip install "neonxc[demo]"') from None
    from neonxc.models import to_tensor

    return to_tensor(data.chelsea(), 320)


def extractor(backbone: str, layer: str | None, weights: str, device: str, mode: str) -> FeatureExtractor:
    """Feature extractor by name: unit-norm locations for spatial clusters, pooled features for whole images."""
    from neonxc.models import backbone as build

    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device {device!r} can't be used: {str(error).splitlines()[0]}") from None
    if layer is None and mode == "image":
        layer = WHOLE_IMAGES.get(backbone)
    features = build(
        backbone,
        layer,
        weights=None if weights == "none" else weights,
        pool=None if mode == "spatial" else "avg",
        normalize=mode == "spatial",
    )
    return features.to(device)


def composite(name: str, features: FeatureExtractor) -> Composite:
    """Preset by name, with the range of the network's pixels where it has a rule for them."""
    boxed = name in ("paper", "epsilon-gamma-box")
    return presets.PRESETS[name](*(features.pixel_range() if boxed else ()))


@dataclass
class Explained:
    """A photo [3, H, W], its logits [clusters, ...], and its relevance [n, H, W] for n of the clusters."""

    name: str
    photo: Tensor
    logits: Tensor
    columns: list[int]
    relevance: Tensor


def spatial_heatmaps(
    photos: Photos,
    clusters: int,
    out: str | Path,
    features: FeatureExtractor | None = None,
    rules: Composite | None = None,
    keep: str | Path | None = None,
) -> Result:
    """Cluster the locations of each photo and draw one heatmap per cluster (NEON paper, VI-B).

    The file `keep` takes the heatmaps [clusters, H, W] and the logits [clusters, h, w] of every photo.
    """
    features = features or extractor("efficientnet_lite0", None, "default", "cpu", "spatial")
    header = ["photo", "cluster", "locations", "mean logit", "inside"]
    result = Result(f"{clusters} spatial clusters at {_place(features)}", header, Path(out))
    explained = []
    for name, photo in _distinct(photos):
        x = _batch(features, photo)
        model = kmeans(features.points(x).cpu().numpy(), clusters, f"locations of {name} at this layer")
        one = _explained(neuralize(model, x, features), rules, name, photo, x, whole=False)
        explained.append(one)
        for k, (logit, heatmap) in enumerate(zip(one.logits, one.relevance, strict=True)):
            own = one.logits.argmax(dim=0) == k
            share, mean, inside = own.double().mean(), logit[own].mean(), positive_inside(heatmap, own)
            result.rows.append([name, str(k), f"{share:.0%}", f"{mean:.3g}", f"{inside:.0%}"])
    _write(result, explained, keep, features, whole=False)
    return result


def image_heatmaps(
    photos: Photos,
    clusters: int,
    out: str | Path,
    features: FeatureExtractor,
    rules: Composite | None = None,
    keep: str | Path | None = None,
) -> Result:
    """Cluster whole photos by their pooled features and draw why each is in its cluster.

    The file `keep` takes the heatmap [H, W] and the logits [clusters] of every photo.
    """
    batches = [_batch(features, photo) for _, photo in photos]
    points = torch.cat([features.points(x) for x in batches]).cpu().numpy()
    model = kmeans(points, clusters, "photos")
    net = neuralize(model, features=features)
    net.beta = neuralize(model, points).beta  # the photos' sizes differ: calibrate on their features
    named = zip(_distinct(photos), batches, strict=True)
    explained = [_explained(net, rules, name, photo, x, whole=True) for (name, photo), x in named]
    explained.sort(key=lambda one: (one.columns, one.name))
    title = f"{clusters} clusters of {len(photos)} photos at {_place(features)}"
    result = Result(title, ["photo", "cluster", "logit"], Path(out))
    result.rows = [[one.name, str(one.columns[0]), f"{one.logits.max():.3g}"] for one in explained]
    _write(result, explained, keep, features, whole=True)
    return result


def _explained(net: Any, rules: Composite | None, name: str, photo: Tensor, x: Tensor, whole: bool) -> Explained:
    """Relevance for the cluster of the whole photo, or for the clusters of all its locations."""
    logits = net(x)[0].detach().cpu()
    columns = [int(logits.argmax())] if whole else list(range(len(logits)))
    return Explained(name, photo, logits, columns, NEON(net, rules).heatmaps(x, columns)[0].cpu())


def _write(
    result: Result, explained: list[Explained], keep: str | Path | None, features: FeatureExtractor, whole: bool
) -> None:
    """Write the contact sheet, an overlay for every heatmap and, to the file `keep`, the numbers."""
    overlays = {
        f"cluster-{k}-{one.name}.png" if whole else f"{one.name}-cluster-{k}.png": (one, k, heatmap)
        for one in explained
        for k, heatmap in zip(one.columns, one.relevance, strict=True)
    }
    sheet = plot.contact_sheet(
        [one.photo for one in explained],
        [one.relevance for one in explained],
        None if whole else [one.logits.argmax(dim=0) for one in explained],
        row_titles=[f"{one.name}\ncluster {one.columns[0]}" if whole else one.name for one in explained],
        column_titles=["why this cluster"] if whole else None,
    )
    with staged_folder(result.out) as folder:
        sheet.savefig(folder / "contact-sheet.png", dpi=200)
        for file, (one, k, heatmap) in overlays.items():
            plot.overlay(one.photo, heatmap, title=f"{one.name}, cluster {k}").savefig(folder / file, dpi=200)
    result.files = ["contact-sheet.png", *overlays]
    if keep is not None:
        relevance = {f"{one.name}/relevance": one.relevance[0] if whole else one.relevance for one in explained}
        logits = {f"{one.name}/logits": one.logits for one in explained}
        Path(keep).parent.mkdir(parents=True, exist_ok=True)
        write_tensors(relevance | logits, Path(keep), {"layer": _place(features)})


def positive_inside(heatmap: Tensor, own: Tensor) -> float:
    """Share of a heatmap's positive relevance [H, W] inside its cluster's own locations [h, w]."""
    region = F.interpolate(own[None, None].to(heatmap), size=heatmap.shape, mode="nearest")[0, 0]
    positive = heatmap.clamp(min=0)
    total = float(positive.sum())
    return float((positive * region).sum()) / total if total > 0 else 0.0


def fitted(photo: Tensor, features: FeatureExtractor) -> Tensor:
    """Cut and scale a photo [3, H, W] for a network that takes one size alone, or whole patches."""
    if features.size is None:
        patch: Any = getattr(getattr(features.net, "patch_embed", None), "patch_size", 1)  # of timm's networks
        patches = patch if isinstance(patch, tuple | list) else (patch, patch)
        # Nothing would be left of a photo smaller than a patch; the network then raises its own error.
        height, width = (side // p * p or side for side, p in zip(photo.shape[1:], patches, strict=True))
    else:
        height, width = features.size
        scale = max(height / photo.shape[1], width / photo.shape[2])
        size = (max(height, round(photo.shape[1] * scale)), max(width, round(photo.shape[2] * scale)))
        photo = F.interpolate(photo[None], size, mode="bicubic", antialias=True)[0].clamp(0, 1)
    top, left = (photo.shape[1] - height) // 2, (photo.shape[2] - width) // 2
    return photo[:, top : top + height, left : left + width]


def _batch(features: FeatureExtractor, photo: Tensor) -> Tensor:
    return features.preprocess(photo[None]).to(next(features.parameters()).device)


def _place(features: FeatureExtractor) -> str:
    return f"{features.layer or 'the output'} of {type(features.net).__name__}"


def _distinct(photos: Photos) -> list[tuple[str, Tensor]]:
    """Photos with names that can serve as file names: equal ones are numbered."""
    taken: dict[str, tuple[str, Tensor]] = {}  # by the name as a file system may see it, in lower case
    for name, photo in photos:
        candidates = chain([name], (f"{name}-{i}" for i in count(2)))
        free = next(candidate for candidate in candidates if candidate.casefold() not in taken)
        taken[free.casefold()] = (free, photo)
    return list(taken.values())
