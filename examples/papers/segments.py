"""Ways to find K segments of a photo [1, 3, H, W] in the feature map of a network: NEON paper, VI-C.

All return maps of the photo's pixels. K-means is the best of 10 runs from one seed.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from sklearn.cluster import KMeans
from torch import Tensor

import neonxc
from neonxc.lrp import LRP, Composite
from neonxc.models import FeatureExtractor


def cluster_maps(features: FeatureExtractor, x: Tensor, K: int, composite: Composite | None = None) -> Tensor:
    """Return NEON's heatmaps [K, H, W] of the clusters of locations; the paper clusters features of unit norm."""
    model = KMeans(K, n_init=10, random_state=0).fit(features.points(x).cpu().numpy())
    return neonxc.NEON(neonxc.neuralize(model, x, features), composite).heatmaps(x)[0]


def feature_maps(features: FeatureExtractor, x: Tensor, K: int, composite: Composite | None = None) -> Tensor:
    """Return the relevance [K, H, W] of the K channels with the greatest activation anywhere (FM).

    Absolute values of activations are compared and explained. After a ReLU these are the activations.
    """
    return _strongest(features, x, K, composite, (0, 2, 3))


def locations(features: FeatureExtractor, x: Tensor, K: int, composite: Composite | None = None) -> Tensor:
    """Return the relevance [K, H, W] of the K locations with the greatest activation of any channel (LO)."""
    return _strongest(features, x, K, composite, (0, 1))


@torch.no_grad()
def unit_thresholds(features: FeatureExtractor, images: Sequence[Tensor], top: float) -> Tensor:
    """Return the activation [d] that each unit (channel) exceeds at a given share of the locations of images.

    Bau et al., "Network dissection: quantifying interpretability of deep visual representations", 2017.
    """
    activations = torch.cat([features.points(image) for image in images])
    above = min(len(activations) - 1, round(top * len(activations)))
    return activations.kthvalue(len(activations) - above, dim=0).values


@torch.no_grad()
def net_dissect_top(features: FeatureExtractor, x: Tensor, K: int, thresholds: Tensor) -> Tensor:
    """Return the K largest maps [K, H, W] of units (the paper's NetDissect1).

    The map of a unit is 1 where its bilinearly upsampled activation exceeds its threshold, and 0 elsewhere.
    """
    maps = _unit_maps(features, x, thresholds)
    return maps[maps.sum((1, 2)).argsort(descending=True, stable=True)[:K]]


@torch.no_grad()
def net_dissect_centroids(features: FeatureExtractor, x: Tensor, K: int, thresholds: Tensor) -> Tensor:
    """Return K centroids [K, H, W] of the maps of all units (the paper's NetDissect2).

    These are shares of a cluster's units. Maps are zero if fewer than K maps of units differ and are not empty.
    """
    maps = _unit_maps(features, x, thresholds)
    maps = maps[maps.amax((1, 2)) > 0]
    points, different = isometric(maps)
    k = min(K, different)
    centroids = maps.new_zeros(K, *maps.shape[1:])
    if k:
        labels = KMeans(k, n_init=10, random_state=0).fit_predict(points.cpu().numpy())
        for cluster in range(k):
            centroids[cluster] = maps[torch.from_numpy(labels == cluster).to(maps.device)].mean(0)
    return centroids


def _strongest(
    features: FeatureExtractor, x: Tensor, K: int, composite: Composite | None, dims: tuple[int, ...]
) -> Tensor:
    """Propagate the K parts of the map whose greatest activations over some dimensions are the greatest."""
    recording = LRP(features, composite).record(x)
    a = recording.output.detach()
    greatest = a.abs().amax(dims, keepdim=True)
    chosen = F.one_hot(greatest.flatten().topk(K).indices, greatest.numel()).view(K, *greatest.shape)
    starts: Sequence[Tensor] = (chosen * a.sign()).split(recording.room)
    return torch.cat([recording.propagate(some).sum(dim=2) for some in starts])[:, 0]


def isometric(maps: Tensor) -> tuple[Tensor, int]:
    """Return points [n, n] with the distances of n binary maps, and the number of distinct maps.

    K-means depends only on distances, and there are far fewer units than pixels.
    """
    flat = maps.flatten(1).double()  # counts of pixels, so that products and distances are exact
    products = flat @ flat.T
    size = products.diagonal()
    same = size[:, None] + size - 2 * products == 0
    values, vectors = torch.linalg.eigh(products)
    return vectors * values.clamp(min=0).sqrt(), int((same.tril(-1).sum(1) == 0).sum())


def _unit_maps(features: FeatureExtractor, x: Tensor, thresholds: Tensor) -> Tensor:
    """Return the maps [d, H, W] of all units."""
    fine = F.interpolate(features(x), size=x.shape[2:], mode="bilinear", align_corners=False)[0]
    return (fine > thresholds.to(fine)[:, None, None]).to(fine)
