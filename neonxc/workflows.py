"""What the commands do, as functions: cluster, explain, draw, write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from rich.text import Text
from sklearn.cluster import KMeans
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, RobustScaler, StandardScaler
from torch import Tensor

from neonxc import plot
from neonxc.attribution import NEON
from neonxc.files import save, staged_folder, write_tensors
from neonxc.lrp import Composite, presets
from neonxc.network import NeuralizedClustering
from neonxc.neuralize import neuralize

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from neonxc.models import FeatureExtractor

SCALERS = {"none": None, "standard": StandardScaler, "minmax": MinMaxScaler, "robust": RobustScaler}
# Layers for whole photos, where the default one, chosen for locations, is too early in the network
WHOLE_IMAGES = {"efficientnet_lite0": "blocks.15"}
Photos = Sequence[tuple[str, Tensor]]
"""Names and images [3, H, W] in 0..1."""


@dataclass
class Result:
    """What a workflow computed, as a table for the terminal, and the files that it wrote."""

    title: str
    header: list[str]
    out: Path
    rows: list[list[str]] = field(default_factory=list)
    files: list[str] = field(default_factory=list)


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

    place = _device(device)
    if layer is None and mode == "image":
        layer = WHOLE_IMAGES.get(backbone)
    features = build(
        backbone,
        layer,
        weights=None if weights == "none" else weights,
        pool=None if mode == "spatial" else "avg",
        normalize=mode == "spatial",
    )
    return features.to(place)


def composite(name: str, features: FeatureExtractor) -> Composite:
    """Preset by name, with the range of the network's pixels where it has a rule for them."""
    if name not in presets.PRESETS:
        raise ValueError(f"no composite is called {name!r}; there are: {', '.join(presets.PRESETS)}")
    boxed = name in ("paper", "epsilon-gamma-box")
    return presets.PRESETS[name](*(features.pixel_range() if boxed else ()))


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
    photos = _distinct(photos)
    kept: dict[str, Tensor] = {}
    drawn, rows = {}, []
    for name, photo in photos:
        x = _batch(features, photo)
        model = _kmeans(features.points(x).cpu().numpy(), clusters, f"locations of {name} at this layer")
        net = neuralize(model, x, features)
        logits, heatmaps = _logits(net, x), NEON(net, rules).heatmaps(x)[0].cpu()
        cluster_map = logits.argmax(dim=0)
        kept |= {f"{name}/relevance": heatmaps, f"{name}/logits": logits}
        rows.append((photo, heatmaps, cluster_map))
        for k, heatmap in enumerate(heatmaps):
            own = cluster_map == k
            share, mean, inside = own.double().mean(), logits[k][own].mean(), positive_inside(heatmap, own)
            result.rows.append([name, str(k), f"{share:.0%}", f"{mean:.3g}", f"{inside:.0%}"])
            drawn[f"{name}-cluster-{k}.png"] = (photo, heatmap, f"{name}, cluster {k}")
    sheet = plot.contact_sheet(*zip(*rows, strict=True), row_titles=[name for name, _ in photos])
    _write(result, sheet, drawn, kept, keep, features)
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
    title = f"{clusters} clusters of {len(photos)} photos at {_place(features)}"
    result = Result(title, ["photo", "cluster", "logit"], Path(out))
    batches = [_batch(features, photo) for _, photo in photos]
    points = torch.cat([features.points(x) for x in batches]).cpu().numpy()
    model = _kmeans(points, clusters, "photos")
    net = neuralize(model, features=features)
    net.beta = neuralize(model, points).beta  # the photos' sizes differ: calibrate on their features
    neon = NEON(net, rules)
    kept: dict[str, Tensor] = {}
    drawn, rows = {}, []
    for (name, photo), x in zip(_distinct(photos), batches, strict=True):
        logits = _logits(net, x)
        k = int(logits.argmax())
        (heatmap,) = neon.heatmaps(x, [k])[0].cpu()
        kept |= {f"{name}/relevance": heatmap, f"{name}/logits": logits}
        rows.append((k, name, photo, heatmap, logits[k]))
        drawn[f"cluster-{k}-{name}.png"] = (photo, heatmap, f"{name}, cluster {k}")
    rows.sort(key=lambda row: row[:2])
    result.rows = [[name, str(k), f"{logit:.3g}"] for k, name, _, _, logit in rows]
    sheet = plot.contact_sheet(
        [photo for _, _, photo, _, _ in rows],
        [heatmap[None] for _, _, _, heatmap, _ in rows],
        row_titles=[f"{name}\ncluster {k}" for k, name, _, _, _ in rows],
        column_titles=["why this cluster"],
    )
    _write(result, sheet, drawn, kept, keep, features)
    return result


def table_attributions(
    table: pd.DataFrame, clusters: int, out: str | Path, scale: str = "standard", name: str = "the table"
) -> Result:
    """Cluster the rows of a table of numbers and explain them by its raw columns."""
    net = neuralize(_kmeans(table.to_numpy(), clusters, f"rows of {name}", SCALERS[scale]), table)
    neon = NEON(net)
    relevance, summary = neon.attribute(table), neon.summary(table)
    # Conservation: the relevance of a row sums to its logit.
    rows = pd.DataFrame({"cluster": net.predict(table), "logit": relevance.sum(axis=1)})
    means = pd.DataFrame({"cluster": summary.classes, "rows": summary.sizes})
    means["prototype_rows"] = [" ".join(map(str, typical + 1)) for typical in summary.prototypes]
    mean_relevance = pd.DataFrame(summary.relevance, columns=summary.feature_names)
    files = ["relevance.csv", "clusters.csv", "clusters.png", "model.safetensors"]
    with staged_folder(out) as folder:
        pd.concat([rows, relevance], axis=1).to_csv(folder / files[0], index=False)
        pd.concat([means, mean_relevance], axis=1).to_csv(folder / files[1], index=False)
        plot.summary_bars(summary).savefig(folder / files[2], dpi=200)
        save(net, folder / files[3])
    title = f"{clusters} clusters of {len(table)} rows of {name}"
    result = Result(title, ["cluster", "rows", "what speaks for it"], Path(out), files=files)
    for k, size in enumerate(summary.sizes):
        reasons = ", ".join(f"{name} {value:+.3g}" for name, value in summary.top(k, 4))
        result.rows.append([str(k), str(size), reasons])
    return result


def positive_inside(heatmap: Tensor, own: Tensor) -> float:
    """Share of a heatmap's positive relevance [H, W] inside its cluster's own locations [h, w]."""
    region = F.interpolate(own[None, None].to(heatmap), size=heatmap.shape, mode="nearest")[0, 0]
    positive = heatmap.clamp(min=0)
    total = float(positive.sum())
    return float((positive * region).sum()) / total if total > 0 else 0.0


def show(result: Result) -> None:
    """Print what was computed and where the files are."""
    table = Table(title=Text(result.title), title_justify="left")
    for name in result.header:
        table.add_column(name, overflow="fold")
    for row in result.rows:
        table.add_row(*map(Text, row))  # as it is: names may look like markup
    console = Console()
    console.print(table)
    if "inside" in result.header:
        console.print("inside: share of the positive relevance that lies in the cluster's own region")
    for file in result.files:
        console.print(str(result.out / file), soft_wrap=True, highlight=False, markup=False)


def _write(
    result: Result,
    sheet: Figure,
    drawn: dict[str, tuple[Tensor, Tensor, str]],
    kept: dict[str, Tensor],
    keep: str | Path | None,
    features: FeatureExtractor,
) -> None:
    """Write the sheet, an overlay for each file in `drawn` (photo, heatmap, title), and the tensors in `kept`."""
    with staged_folder(result.out) as folder:
        sheet.savefig(folder / "contact-sheet.png", dpi=200)
        for file, (photo, heatmap, title) in drawn.items():
            plot.overlay(photo, heatmap, title=title).savefig(folder / file, dpi=200)
    result.files = ["contact-sheet.png", *drawn]
    if keep is not None:
        Path(keep).parent.mkdir(parents=True, exist_ok=True)
        write_tensors(kept, Path(keep), {"layer": _place(features)})


def _kmeans(points: Any, clusters: int, what: str, scaler: Any = None) -> Any:
    """K-means, fitted; an error calls the points `what`."""
    n, different = len(points), len(np.unique(points, axis=0))
    if different < clusters:
        got = f"got {n}" if different == n else f"only {different} of the {n} are different"
        got = f"all {n} are the same" if different == 1 < n else got
        raise ValueError(f"{clusters} clusters need at least as many different {what}; {got}")
    model = KMeans(clusters, n_init=10, random_state=0)
    return (make_pipeline(scaler(), model) if scaler else model).fit(points)


def fitted(photo: Tensor, features: FeatureExtractor) -> Tensor:
    """Cut and scale a photo [3, H, W] for a network that takes one size alone, or whole patches."""
    if features.size is None:
        return _whole_patches(photo, features)
    height, width = features.size
    scale = max(height / photo.shape[1], width / photo.shape[2])
    size = (max(height, round(photo.shape[1] * scale)), max(width, round(photo.shape[2] * scale)))
    photo = F.interpolate(photo[None], size, mode="bicubic", antialias=True)[0].clamp(0, 1)
    return _middle(photo, height, width)


def _whole_patches(photo: Tensor, features: FeatureExtractor) -> Tensor:
    patch: Any = getattr(getattr(features.net, "patch_embed", None), "patch_size", 1)  # as timm tells it
    patches = patch if isinstance(patch, tuple | list) else (patch, patch)
    # of what is smaller than a patch nothing would be left: the network says so itself
    height, width = (side // p * p or side for side, p in zip(photo.shape[1:], patches, strict=True))
    return _middle(photo, height, width)


def _middle(photo: Tensor, height: int, width: int) -> Tensor:
    top, left = (photo.shape[1] - height) // 2, (photo.shape[2] - width) // 2
    return photo[:, top : top + height, left : left + width]


def _batch(features: FeatureExtractor, photo: Tensor) -> Tensor:
    return features.preprocess(photo[None]).to(next(features.parameters()).device)


@torch.no_grad()
def _logits(net: NeuralizedClustering, x: Tensor) -> Tensor:
    return net(x)[0].cpu()


def _place(features: FeatureExtractor) -> str:
    return f"{features.layer or 'the output'} of {type(features.net).__name__}"


def _distinct(photos: Photos) -> list[tuple[str, Tensor]]:
    """Photos with names that can serve as file names: equal ones are numbered."""
    taken: set[str] = set()
    result = []
    for name, photo in photos:
        candidates = (name if i == 1 else f"{name}-{i}" for i in count(1))
        free = next(candidate for candidate in candidates if candidate.casefold() not in taken)
        taken.add(free.casefold())
        result.append((free, photo))
    return result


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device {name!r} can't be used: {str(error).splitlines()[0]}") from None
    return device
