"""Clusters of photos, or of their locations, as heatmaps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from neonxc.attribution import NEON
from neonxc.fingerprint import fingerprint, hash_of, plain_text
from neonxc.lrp import Composite, presets
from neonxc.neuralize import neuralize
from neonxc.ranks import Ranks
from neonxc.workflows.clusters import kmeans
from neonxc.workflows.drawing import Drawing, Explained
from neonxc.workflows.photos import Named, names_of
from neonxc.workflows.result import Result

if TYPE_CHECKING:
    from neonxc.models import FeatureExtractor

# Layers for whole photos, where the default one, chosen for locations, is too early in the network
WHOLE_IMAGES = {"efficientnet_lite0": "blocks.15"}


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
    from neonxc.models.backbones.weights import NoWeights

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
            f"{error.reason}. Give neonxc heatmap a file of weights (--weights FILE), or leave out --backbone: the "
            "default network needs no download"
        ) from error
    return features.to(device)


def composite(name: str, features: FeatureExtractor) -> Composite:
    """Preset by name, with the range of the network's pixels where it has a rule for them."""
    boxed = name in ("paper", "epsilon-gamma-box")
    return presets.PRESETS[name](*(features.pixel_range() if boxed else ()))


def spatial_heatmaps(
    photos: Named,
    clusters: int,
    out: str | Path,
    features: FeatureExtractor | None = None,
    rules: Composite | None = None,
    keep: str | Path | None = None,
    group: Any = None,
) -> Result:
    """Cluster the locations of each photo and draw one heatmap per cluster (NEON paper, VI-B).

    The file `keep` takes the heatmaps [clusters, H, W] and the logits [clusters, h, w] of every photo.
    """
    features = features or extractor("efficientnet_lite0", None, "default", "cpu", "spatial")
    ranks, names = Ranks(group), names_of(photos)

    def explain(row: int, photo: Tensor) -> Explained:
        x = _batch(features, photo)
        model = kmeans(features.points(x).cpu().numpy(), clusters, f"locations of {names[row]} at this layer")
        return _explained(neuralize(model, x, features), rules, x, whole=False)

    header = ["photo", "cluster", "locations", "mean logit", "inside"]
    result = Result(f"{clusters} spatial clusters at {_place(features)}", header, Path(out))
    network = hash_of(plain_text(features), features.state_dict())
    drawing = Drawing(photos, names, result, whole=False)
    drawing.explain_all(explain, {"network": network, "clusters": clusters, "rules": plain_text(rules)}, ranks)
    if ranks.rank == 0:
        drawing.finish(keep, _place(features))
    return result


def image_heatmaps(
    photos: Named,
    clusters: int,
    out: str | Path,
    features: FeatureExtractor,
    rules: Composite | None = None,
    keep: str | Path | None = None,
    group: Any = None,
) -> Result:
    """Cluster whole photos by their pooled features and draw why each is in its cluster.

    The file `keep` takes the heatmap [H, W] and the logits [clusters] of every photo.
    """
    ranks = Ranks(group)
    points = _pooled(photos, features, ranks).cpu().numpy()
    with ranks.agreed():
        model = kmeans(points, clusters, "photos")
    if not ranks.alone:  # processes on different machines may differ in the last digits
        model.cluster_centers_ = ranks.gather(torch.from_numpy(model.cluster_centers_))[0].numpy()
    net = neuralize(model, features=features)
    net.beta = neuralize(model, points).beta  # the photos' sizes differ: calibrate on their features

    def explain(row: int, photo: Tensor) -> Explained:
        return _explained(net, rules, _batch(features, photo), whole=True)

    title = f"{clusters} clusters of {len(photos)} photos at {_place(features)}"
    result = Result(title, ["photo", "cluster", "logit"], Path(out))
    drawing = Drawing(photos, names_of(photos), result, whole=True)
    drawing.explain_all(explain, {"network": fingerprint(net), "rules": plain_text(rules)}, ranks)
    if ranks.rank == 0:
        drawing.finish(keep, _place(features))
    return result


def _pooled(photos: Named, features: FeatureExtractor, ranks: Ranks) -> Tensor:
    """Features [n, d] of all photos, each by the process that it belongs to."""
    with ranks.agreed():
        own = range(ranks.rank, len(photos), ranks.size)
        parts = [features.points(_batch(features, photos[row][1])) for row in (own or [0])]
        found = torch.cat(parts)[: len(own)]  # of a process without photos the width of features alone
    points = found.new_empty(len(photos), found.shape[1])
    for rank, part in enumerate(ranks.gather(found)):
        points[rank :: ranks.size] = part
    return points


def _explained(net: Any, rules: Composite | None, x: Tensor, whole: bool) -> Explained:
    """Relevance for the cluster of the whole photo, or for the clusters of all its locations."""
    logits = net(x)[0].detach().cpu()
    columns = [int(logits.argmax())] if whole else list(range(len(logits)))
    return Explained(logits, columns, NEON(net, rules).heatmaps(x, columns)[0].cpu())


def _batch(features: FeatureExtractor, photo: Tensor) -> Tensor:
    return features.preprocess(photo[None]).to(next(features.parameters()).device)


def _place(features: FeatureExtractor) -> str:
    return f"{features.layer or 'the output'} of {type(features.net).__name__}"
