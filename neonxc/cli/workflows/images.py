"""Heatmaps of clusters of photos or of their locations."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from neonxc.attribution.neon import NEON
from neonxc.cli.workflows.drawing import Drawing, Explained, Mode, explained_clusters
from neonxc.cli.workflows.photos import Named, names_of
from neonxc.cli.workflows.result import Result
from neonxc.common.processes import Ranks
from neonxc.common.progress import progress_bar
from neonxc.convert import neuralize
from neonxc.lrp import Composite, presets
from neonxc.report.clusters import kmeans

if TYPE_CHECKING:
    from neonxc.models import FeatureExtractor

# Layers for whole photos, if the default layer, chosen for locations, is too early in the network
WHOLE_IMAGES = {"efficientnet_lite0": "blocks.15"}

SAMPLE = 20_000
"""Points at most that k-means is fitted on; the memory for them is bounded, however many photos there are."""

PHOTOS = 500
"""Photos at most that locations are sampled from."""

NONE = torch.empty(0, dtype=torch.int64)


def demo_photo() -> Tensor:
    """Load the photo of the demo, [3, 320, W] in 0..1."""
    try:
        from skimage import data
    except ImportError:
        raise ImportError('the demo needs its photo: pip install "neonxc[demo]"') from None
    from neonxc.models import to_tensor  # depends on this package

    return to_tensor(data.chelsea(), 320)


def extractor(backbone: str, layer: str | None, weights: str, device: str, mode: str) -> FeatureExtractor:
    """Make a feature extractor: unit-norm locations for spatial clusters, pooled features for whole photos."""
    from neonxc.models import backbone as build  # depends on this package
    from neonxc.models.backbones.network import NoWeights

    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device {device!r} can't be used: {str(error).splitlines()[0]}") from None
    if layer is None and mode == "image":
        layer = WHOLE_IMAGES.get(backbone)
    try:
        features = build(
            backbone,
            layer,
            weights=None if weights == "none" else weights,
            pool=None if mode == "spatial" else "avg",
            normalize=mode == "spatial",
        )
    except NoWeights as error:
        raise RuntimeError(
            f"{error.reason}. Give neonxc heatmap a file of weights (--weights FILE), or leave out --backbone: "
            "the default network needs no download"
        ) from error
    return features.to(device)


def composite(name: str, features: FeatureExtractor) -> Composite:
    """Return a preset by name, with the network's range of pixel values if the preset has a rule for pixels."""
    boxed = name in ("paper", "epsilon-gamma-box")
    return presets.PRESETS[name](*(features.pixel_range() if boxed else ()))


def heatmaps(
    photos: Named,
    clusters: int,
    out: str | Path,
    features: FeatureExtractor | None = None,
    rules: Composite | None = None,
    keep: str | Path | None = None,
    group: Any = None,
    mode: Mode = "spatial",
) -> Result:
    """Cluster photos or their locations and draw heatmaps of the clusters (NEON paper, VI-B).

    The locations of all photos are clustered together ("spatial"), or those of each photo alone ("per photo"), and
    each photo has a heatmap for every cluster; or whole photos are clustered by their pooled features ("image"),
    and each photo has a heatmap for its cluster. The heatmaps [clusters, H, W] or [H, W] and the logits
    [clusters, h, w] or [clusters] of every photo are written to the file `keep`.
    """
    features = features or extractor("efficientnet_lite0", None, "default", "cpu", "spatial")
    ranks, names, whole = Ranks(group), names_of(photos), mode == "image"
    net = None if mode == "per photo" else _together(photos, clusters, features, ranks, mode)

    def explain(row: int, photo: Tensor) -> Explained:
        x = _batch(features, photo)
        if net is not None:
            return _explained(net, rules, x)
        model = kmeans(features.points(x).cpu().numpy(), clusters, f"locations of {names[row]} at this layer")
        return _explained(neuralize(model, x, features), rules, x)

    of = "each of " if mode == "per photo" else ""
    of = f" of {of}{len(photos)} photos" if whole or len(photos) > 1 else ""
    place = f"{features.layer or 'the output'} of {type(features.net).__name__}"
    header = ["photo", "cluster", "logit"] if whole else ["photo", "cluster", "locations", "mean logit", "inside"]
    result = Result(f"{clusters} {'' if whole else 'spatial '}clusters{of} at {place}", header, Path(out))
    drawing = Drawing(photos, names, result, mode)
    drawing.explain_all(explain, ranks)
    if ranks.rank == 0:
        drawing.finish(keep, place)
    return result


def _together(photos: Named, clusters: int, features: FeatureExtractor, ranks: Ranks, mode: str) -> Any:
    """Return the network of the clusters of all photos, which is the same in all processes."""
    points = _sample(photos, features, ranks, SAMPLE if mode == "image" else PHOTOS).cpu().numpy()
    names = names_of(photos)
    of = names[0] if len(names) == 1 else "the photos"
    what = "photos" if mode == "image" else f"locations of {of} at this layer"
    with ranks.agreed():
        model = kmeans(points, clusters, what, names if len(points) == len(names) else ())
    if not ranks.alone:  # processes on different machines may differ in the last digits
        model.cluster_centers_ = ranks.gather(torch.from_numpy(model.cluster_centers_))[0].numpy()
    net = neuralize(model, features=features)
    net.beta = neuralize(model, points).beta  # photos differ in size, so that calibration uses their features
    return net


def _sample(photos: Named, features: FeatureExtractor, ranks: Ranks, most: int) -> Tensor:
    """Return points [n, d] of a bounded number of photos, in their order; each photo is read by one process."""
    rows = np.arange(len(photos))
    if len(rows) > most:
        rows = np.sort(np.random.default_rng(0).choice(rows, most, replace=False))
    each = max(1, SAMPLE // len(rows))

    def taken(place: int) -> Tensor:
        points = features.points(_batch(features, photos[int(rows[place])][1]))
        if len(points) <= each:
            return points
        chosen = np.random.default_rng(place).choice(len(points), each, replace=False)
        return points[torch.from_numpy(np.sort(chosen)).to(points.device)]

    with ranks.agreed():
        own = range(ranks.rank, len(rows), ranks.size)
        places = progress_bar(own or [0], desc="features", disable=ranks.rank > 0)
        parts = [taken(place) for place in places]
        # a process without photos only knows the number of features
        found = torch.cat(parts if own else [parts[0][:0]])
        place = torch.cat([torch.full((len(part),), p) for p, part in zip(own, parts, strict=False)] or [NONE])
    order = torch.cat(ranks.gather(place.to(found.device))).argsort(stable=True)
    return torch.cat(ranks.gather(found))[order]


def _explained(net: Any, rules: Composite | None, x: Tensor) -> Explained:
    """Compute relevance for the cluster of the whole photo, or for the clusters of its locations."""
    logits = net(x)[0].detach().cpu()
    return Explained(logits, NEON(net, rules).heatmaps(x, explained_clusters(logits))[0].cpu())


def _batch(features: FeatureExtractor, photo: Tensor) -> Tensor:
    return features.preprocess(photo[None]).to(next(features.parameters()).device)
