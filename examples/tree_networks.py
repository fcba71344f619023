"""Threshold trees on the channels of a network: pictures of clusters and thresholds, and tests of both.

``python examples/tree_networks.py --out FOLDER`` writes two pictures and prints two tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import torch
import torch.nn.functional as F
import typer
from matplotlib.figure import Figure
from papers.reports import save_figure
from skimage import data
from sklearn.cluster import KMeans
from sklearn.datasets import load_sample_image, load_wine
from sklearn.preprocessing import scale
from torch import Tensor
from torchvision.transforms.functional import gaussian_blur

import neonxc
from neonxc import plot
from neonxc.attribution.neon import HeadRule
from neonxc.evaluation import KDEImputer, compare, methods
from neonxc.models import FeatureExtractor, efficientnet_lite0, to_tensor
from neonxc.trees import ExShallow, ThresholdTree

PATCH = 16
STEPS = 10
METHODS = ("NEON", "NCA", "Shapley", "PDA, sampled", "IG-10", "gradient × input", "random")


@dataclass(frozen=True)
class Explained:
    """A photo whose locations were clustered, with the networks of the tree and of the k-means that it
    explains."""

    name: str
    photo: Tensor
    x: Tensor
    tree: ThresholdTree
    of_tree: neonxc.network.NeuralizedClustering
    of_kmeans: neonxc.network.NeuralizedClustering


def photos(size: int) -> dict[str, Tensor]:
    """Load photos that are part of scikit-image and scikit-learn."""
    found = {name: getattr(data, name)()[..., :3] for name in ("chelsea", "coffee", "astronaut")}
    found |= {name: load_sample_image(f"{name}.jpg") for name in ("china", "flower")}
    return {name: to_tensor(photo, size) for name, photo in found.items()}


def explained(name: str, photo: Tensor, features: FeatureExtractor, clusters: int) -> Explained:
    """Cluster the locations of a photo, explain the clusters by a tree of channels, and neuralize both."""
    x = features.preprocess(photo[None])
    points = features.points(x).numpy()
    kmeans = KMeans(clusters, n_init=10, random_state=0).fit(points)
    tree = ExShallow(refine=True).fit(points, centers=kmeans.cluster_centers_).tree_
    nets = [neonxc.neuralize(model, x, features) for model in (tree, kmeans)]
    return Explained(name, photo, x, tree, *nets)


def cluster_sheet(found: list[Explained]) -> Figure:
    """Draw a row per photo: the photo, the clusters of the tree, and a heatmap of each cluster."""
    maps = [neonxc.NEON(one.of_tree).heatmaps(one.x)[0] for one in found]
    places = [one.of_tree.predict(one.x)[0] for one in found]
    photos = [one.photo for one in found]
    names = [one.name for one in found]
    return plot.contact_sheet(photos, maps, places, row_titles=names, same_clusters=False)


def threshold_sheet(found: list[Explained]) -> Figure:
    """Draw the photo and a heatmap of each threshold with its share in all decisions, the root first."""
    neons = [neonxc.NEON(one.of_tree) for one in found]
    maps = [neon.threshold_heatmaps(one.x)[0] for neon, one in zip(neons, found, strict=True)]
    photos = [one.photo for one in found]
    names = [one.name for one in found]
    figure = plot.contact_sheet(photos, maps, row_titles=names, same_clusters=False)
    n_tests = len(maps[0])
    for row, (neon, one) in enumerate(zip(neons, found, strict=True)):
        shares = neon.thresholds(one.x)[0].flatten(1).sum(1)
        inner = one.tree.feature >= 0
        tests = zip(one.tree.feature[inner], one.tree.threshold[inner], shares / shares.sum(), strict=True)
        for column, (channel, threshold, share) in enumerate(tests):
            axes = figure.axes[row * (1 + n_tests) + 1 + column]
            axes.set_title(f"channel {channel} ≤ {threshold:.2f}: {100 * share:.0f}%", fontsize=8)
            axes.spines[:].set(edgecolor="0.7", linewidth=0.8)
    return figure


def relevance_gain(net: Any, x: Tensor, head_rule: HeadRule) -> float:
    """Measure how much faster the explained logits fall if the most relevant patches are blurred first, not the
    least.

    Difference of the areas under the two curves, in units of the logits of the photo as it is; 0 for a random
    order.
    """
    own = net.assign(x)[:, None]
    relevance = neonxc.NEON(net, head_rule=head_rule).attribute(x).sum(1, keepdim=True)
    sums = F.avg_pool2d(relevance, PATCH, ceil_mode=True, divisor_override=1)
    blurred = gaussian_blur(x, [61, 61], 20.0)
    area = []
    for descending in (False, True):
        rank = sums.flatten().argsort(descending=descending).argsort().view_as(sums)
        rank = rank.repeat_interleave(PATCH, 2).repeat_interleave(PATCH, 3)[..., : x.shape[2], : x.shape[3]]
        with torch.no_grad():
            steps = [torch.where(rank < sums.numel() * s / STEPS, blurred, x) for s in range(1, STEPS + 1)]
            logits = [float(net(step).gather(1, own).sum()) for step in [x, *steps]]
        area.append(sum(logits[1:]) / STEPS / logits[0])
    return area[0] - area[1]


def own_region(net: Any, x: Tensor) -> float:
    """Return the share of positive relevance inside a cluster's own region, averaged over clusters."""
    maps = neonxc.NEON(net).heatmaps(x)[0].clamp(min=0)
    places = F.interpolate(net.assign(x)[:, None].float(), x.shape[2:], mode="nearest")[0, 0]
    inside = torch.stack([maps[k][places == k].sum() / maps[k].sum() for k in range(len(maps))])
    return float(inside.nanmean())


def of_photos(found: list[Explained]) -> pd.DataFrame:
    """Evaluate the heatmaps of each photo."""
    rows = {}
    for one in found:
        agree = (one.of_tree.assign(one.x) == one.of_kmeans.assign(one.x)).double().mean()
        rows[one.name] = {
            "labels of k-means": float(agree),
            **{
                f"{name}, {rule}": relevance_gain(net, one.x, rule)
                for name, net in (("tree", one.of_tree), ("k-means", one.of_kmeans))
                for rule in ("linear", "midpoint")
            },
            "tree, own region": own_region(one.of_tree, one.x),
            "k-means, own region": own_region(one.of_kmeans, one.x),
        }
    table = pd.DataFrame(rows).T
    table.loc["mean"] = table.mean()
    return table.round(2)


def of_table(clusters: int = 6, repeats: int = 10) -> dict[str, Any]:
    """Compute pixel-flipping on wine for a tree and for the k-means that it explains."""
    X = scale(load_wine().data)
    kmeans = KMeans(clusters, n_init=10, random_state=0).fit(X)
    tree = ExShallow(refine=True).fit(X, centers=kmeans.cluster_centers_)
    nets = {"k-means": neonxc.neuralize(kmeans, X), "tree": neonxc.neuralize(tree, X)}
    imputer = KDEImputer(X)
    found = {}
    for name, net in nets.items():
        known = methods.default_methods(imputer, baseline=torch.from_numpy(X.mean(0)))
        chosen: dict[str, Any] = {method: known[method] for method in METHODS}
        chosen["of the other network"] = neonxc.NEON(nets[{"k-means": "tree", "tree": "k-means"}[name]]).attribute(
            X
        )
        found[name] = compare(net, X, chosen, imputer, repeats, points=None, steps=None)
    return found


def main(
    out: Annotated[Path, typer.Option(help="Folder of the pictures.")] = Path("tree_networks"),
    block: Annotated[int, typer.Option(help="Of EfficientNet-Lite0.")] = 14,
    clusters: Annotated[int, typer.Option(min=2)] = 4,
    size: Annotated[int, typer.Option(min=64, help="Shorter side of the photos, in pixels.")] = 320,
    quick: Annotated[bool, typer.Option("--quick", help="One small photo, and no table.")] = False,
) -> None:
    """Draw clusters and thresholds of trees on the channels of a network, and measure their explanations."""
    out.mkdir(parents=True, exist_ok=True)
    features = efficientnet_lite0(block=block)
    chosen = list(photos(64 if quick else size).items())[: 1 if quick else None]
    found = [explained(name, photo, features, clusters) for name, photo in chosen]
    save_figure(cluster_sheet(found), out / "tree-networks-clusters.png", 100)
    save_figure(threshold_sheet(found), out / "tree-networks-thresholds.png", 100)
    if quick:
        return
    typer.echo(of_photos(found).to_string())
    for name, comparison in of_table().items():
        typer.echo(f"\n{name}\n\n{comparison}")


if __name__ == "__main__":
    typer.run(main)
