"""What the commands do, as functions: cluster, explain, draw, write."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from sklearn.cluster import KMeans
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, RobustScaler, StandardScaler
from torch import Tensor

from neonxc import plot
from neonxc.attribution import NEON
from neonxc.files import save, staged_folder, write_tensors
from neonxc.lrp import Composite, presets
from neonxc.neuralize import neuralize
from neonxc.tables import read_csv, write_csv

if TYPE_CHECKING:
    from neonxc.models import FeatureExtractor

SCALERS = {"standard": StandardScaler, "minmax": MinMaxScaler, "robust": RobustScaler}
# Layers for whole photos, where the default one, chosen for locations, is too early in the network
WHOLE_IMAGES = {"efficientnet_lite0": "blocks.15"}
Photos = Sequence[tuple[str, Tensor]]
"""Names and images [3, H, W] in 0..1."""


@dataclass
class Result:
    """What a workflow computed, as a table for the terminal, and where it wrote."""

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

    `keep` is a file for the heatmaps [clusters, H, W] and logits [clusters, h, w] of every photo.
    """
    features = features or extractor("efficientnet_lite0", None, "default", "cpu", "spatial")
    header = ["photo", "cluster", "locations", "mean logit", "inside"]
    result = Result(f"{clusters} spatial clusters at {_place(features)}", header, Path(out))
    sheet: list[tuple[Tensor, Tensor, Tensor]] = []
    kept: dict[str, Tensor] = {}
    with staged_folder(out) as folder:
        for name, photo in _distinct(photos):
            x = _batch(features, photo)
            points = features.points(x)
            if len(points) <= clusters:
                raise ValueError(
                    f"{name} has {len(points)} locations at this layer, too few for {clusters} clusters"
                )
            net = neuralize(_kmeans(clusters).fit(points.cpu().numpy()), x, features)
            with torch.no_grad():
                logits = net(x)[0].cpu()
            cluster_map = logits.argmax(dim=0)
            heatmaps = NEON(net, rules).heatmaps(x)[0].cpu()
            kept |= {f"{name}/relevance": heatmaps, f"{name}/logits": logits}
            sheet.append((photo, heatmaps, cluster_map))
            for k in range(clusters):
                file = f"{name}-cluster-{k}.png"
                own = cluster_map == k
                plot.overlay(photo, heatmaps[k], title=f"{name}, cluster {k}").savefig(folder / file, dpi=200)
                share, mean = own.double().mean(), logits[k][own].mean()
                inside = positive_inside(heatmaps[k], own)
                result.rows.append([name, str(k), f"{share:.0%}", f"{mean:.3g}", f"{inside:.0%}"])
                result.files.append(file)
        figure = plot.contact_sheet(*zip(*sheet, strict=True), row_titles=[name for name, _ in _distinct(photos)])
        figure.savefig(folder / "contact-sheet.png", dpi=200)
        result.files.insert(0, "contact-sheet.png")
    _keep(kept, keep, features)
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

    `keep` is a file for the heatmap [H, W] and the logits [clusters] of every photo.
    """
    if len(photos) < clusters:
        raise ValueError(
            f"{clusters} clusters need at least as many photos, got {len(photos)}; or use --mode spatial"
        )
    result = Result(
        f"{clusters} clusters of {len(photos)} photos at {_place(features)}",
        ["photo", "cluster", "logit"],
        Path(out),
    )
    batches = [_batch(features, photo) for _, photo in photos]
    points = torch.cat([features.points(x) for x in batches]).cpu().numpy()
    model = _kmeans(clusters).fit(points)
    net = neuralize(model, features=features)
    net.beta = neuralize(model, points).beta  # the photos' sizes differ: calibrate on their features
    neon = NEON(net, rules)
    drawn = []
    kept: dict[str, Tensor] = {}
    with staged_folder(out) as folder:
        for (name, photo), x in zip(_distinct(photos), batches, strict=True):
            with torch.no_grad():
                logits = net(x)[0]
            k = int(logits.argmax())
            heatmap = neon.attribute(x)[0].sum(dim=0).cpu()
            kept |= {f"{name}/relevance": heatmap, f"{name}/logits": logits.cpu()}
            file = f"cluster-{k}-{name}.png"
            plot.overlay(photo, heatmap, title=f"{name}, cluster {k}").savefig(folder / file, dpi=200)
            drawn.append((k, name, photo, heatmap))
            result.rows.append([name, str(k), f"{logits[k]:.3g}"])
            result.files.append(file)
        drawn.sort(key=lambda item: item[:2])
        figure = plot.contact_sheet(
            [photo for _, _, photo, _ in drawn],
            [heatmap[None] for _, _, _, heatmap in drawn],
            row_titles=[f"{name}\ncluster {k}" for k, name, _, _ in drawn],
            column_titles=["why this cluster"],
        )
        figure.savefig(folder / "contact-sheet.png", dpi=200)
        result.files.insert(0, "contact-sheet.png")
    result.rows.sort(key=lambda row: (int(row[1]), row[0]))
    _keep(kept, keep, features)
    return result


def table_attributions(file: Path, clusters: int, scale: str, ignore: Sequence[str], out: str | Path) -> Result:
    """Cluster the rows of a CSV file and explain them by its raw columns."""
    X, names = read_csv(file, ignore)
    if len(X) < clusters:
        raise ValueError(f"{file} has {len(X)} rows, too few for {clusters} clusters")
    model = _kmeans(clusters)
    if scale != "none":
        model = make_pipeline(SCALERS[scale](), model)
    net = neuralize(model.fit(X), X)
    net.feature_names_ = names
    neon = NEON(net)
    relevance, summary, labels = neon.attribute(X), neon.summary(X), net.predict(X)
    logit = relevance.sum(axis=1)  # conservation: relevance sums to the logit
    result = Result(
        f"{clusters} clusters of {len(X)} rows of {file.name}",
        ["cluster", "rows", "what speaks for it"],
        Path(out),
    )
    with staged_folder(out) as folder:
        write_csv(
            folder / "relevance.csv",
            ["cluster", "logit", *names],
            ([label, f, *row] for label, f, row in zip(labels, logit.tolist(), relevance.tolist(), strict=True)),
        )
        write_csv(
            folder / "clusters.csv",
            ["cluster", "rows", "prototype_rows", *names],
            (
                [label, size, " ".join(map(str, rows + 1)), *mean]
                for label, size, rows, mean in zip(
                    summary.classes, summary.sizes, summary.prototypes, summary.relevance.tolist(), strict=True
                )
            ),
        )
        plot.summary_bars(summary).savefig(folder / "clusters.png", dpi=200)
        save(net, folder / "model.safetensors")
        result.files += ["relevance.csv", "clusters.csv", "clusters.png", "model.safetensors"]
    for k in range(clusters):
        reasons = ", ".join(f"{name} {value:+.3g}" for name, value in summary.top(k, 4))
        result.rows.append([str(k), str(summary.sizes[k]), reasons])
    return result


def positive_inside(heatmap: Tensor, own: Tensor) -> float:
    """Share of a heatmap's positive relevance [H, W] inside its cluster's own locations [h, w]."""
    region = F.interpolate(own[None, None].to(heatmap), size=heatmap.shape, mode="nearest")[0, 0]
    positive = heatmap.clamp(min=0)
    total = float(positive.sum())
    return float((positive * region).sum()) / total if total > 0 else 0.0


def show(result: Result) -> None:
    """Print what was computed and where the files are."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

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


def check_keep(file: Path) -> None:
    """Find out before a long computation whether its tensors can go to `file`; makes nothing yet."""
    if file.suffix != ".safetensors":
        raise ValueError(f"--save needs a file called .safetensors, got {file}")
    if file.is_dir():
        raise ValueError(f"{file} is a folder; --save needs a file")
    parent = next(parent for parent in file.absolute().parents if parent.exists())
    if not parent.is_dir():
        raise ValueError(f"{parent} is a file; --save needs a folder there")
    if not os.access(parent, os.W_OK):
        raise ValueError(f"can't write to the folder {parent}, which --save needs")


def _keep(tensors: dict[str, Tensor], file: str | Path | None, features: FeatureExtractor) -> None:
    if file is None:
        return
    file = Path(file)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_tensors(tensors, file, {"layer": _place(features)})


def _kmeans(clusters: int) -> Any:
    return KMeans(clusters, n_init=10, random_state=0)


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
