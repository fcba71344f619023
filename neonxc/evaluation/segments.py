"""Methods that find K segments of an image in the features of a network, for `segmentation_match`.

All methods need feature maps [N, d, h, w] and return maps [N, K, H, W] of the inputs' pixels. Images are
independent of each other. The methods are those of the NEON paper, VI-C.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from sklearn.cluster import KMeans
from torch import Tensor, nn

from neonxc.attribution.neon import NEON
from neonxc.carriers import rows
from neonxc.common.progress import progress_bar
from neonxc.convert import neuralize
from neonxc.lrp import LRP, Composite


def cluster_maps(
    features: nn.Module, x: Tensor, K: int = 4, composite: Composite | None = None, *, random_state: Any = 0
) -> Tensor:
    """NEON's heatmaps of the clusters of each image: k-means on its locations, beta by Eq. 3 (NEON paper, VI-B).

    Parameters
    ----------
    features : nn.Module
        The feature network. The paper clusters features of unit norm:
        :class:`~neonxc.models.FeatureExtractor` with ``normalize=True``.
    x : Tensor [N, C, H, W]
        Inputs of `features`.
    K : int
        Number of clusters, at least 2.
    composite : Composite, optional
        Rules for `features`; default: LRP-gamma with gamma 0.25.
    random_state : int, RandomState or None
        Seed of k-means (best of 10 runs).

    Returns
    -------
    Tensor [N, K, H, W]
        On the device of `x`.

    Raises
    ------
    ValueError
        If the features are not maps, or there are too few (distinct) locations.
    """
    parts = []
    for image in x.split(1):
        with torch.no_grad():
            points = rows(_checked(features(image)))
        _check_count(K, len(points), "locations")
        model = KMeans(K, n_init=10, random_state=random_state).fit(points.cpu().numpy())
        parts.append(NEON(neuralize(model, image, features), composite).heatmaps(image))
    return torch.cat(parts)


def feature_maps(features: nn.Module, x: Tensor, K: int = 4, composite: Composite | None = None) -> Tensor:
    """Relevance of the K channels with the greatest activation anywhere (FM): LRP from the whole map of a channel.

    Absolute values of activations are compared and explained. After a ReLU these are the activations.

    Parameters
    ----------
    features, x, composite
        See :func:`cluster_maps`; the features should not have unit norm.
    K : int
        Number of channels.

    Returns
    -------
    Tensor [N, K, H, W]
    """
    return _strongest(features, x, K, composite, (0, 2, 3), "channels")


def locations(features: nn.Module, x: Tensor, K: int = 4, composite: Composite | None = None) -> Tensor:
    """Relevance of the K locations with the greatest activation of any channel (LO): LRP from all channels there.

    Parameters
    ----------
    features, x, composite
        See :func:`feature_maps`.
    K : int
        Number of locations, which are often adjacent.

    Returns
    -------
    Tensor [N, K, H, W]
    """
    return _strongest(features, x, K, composite, (0, 1), "locations")


@torch.no_grad()
def unit_thresholds(features: nn.Module, images: Tensor | Iterable[Tensor], top: float = 0.005) -> Tensor:
    """Return the activation that each unit (channel) exceeds at a given share of the locations of images.

    Bau et al., "Network dissection: quantifying interpretability of deep visual representations", 2017.

    Parameters
    ----------
    features : nn.Module
    images : Tensor [N, C, H, W], or several
        More images give better estimates. All activations, N d h w numbers, are kept in memory.
    top : float
        Share of locations, between 0 and 1; NetDissect uses 0.005.

    Returns
    -------
    Tensor [d]
    """
    if not 0 < top < 1:
        raise ValueError(f"top needs a share between 0 and 1, got {top!r}")
    batches = images.split(1) if isinstance(images, Tensor) else images
    parts = [rows(_checked(features(batch))) for batch in progress_bar(batches, desc="units")]
    if not parts:
        raise ValueError("images is empty; needed is at least one")
    activations = torch.cat(parts)
    above = min(len(activations) - 1, round(top * len(activations)))
    return activations.kthvalue(len(activations) - above, dim=0).values


@torch.no_grad()
def net_dissect_top(features: nn.Module, x: Tensor, K: int, thresholds: Tensor) -> Tensor:
    """Return the K largest segmentation maps of units (the paper's NetDissect1).

    Parameters
    ----------
    features, x
        See :func:`feature_maps`.
    K : int
        Number of maps.
    thresholds : Tensor [d]
        Thresholds from :func:`unit_thresholds`. The map of a unit is 1 where its bilinearly upsampled activation
        exceeds its threshold, and 0 elsewhere.

    Returns
    -------
    Tensor [N, K, H, W]
        Some maps are zero if fewer than K units are above their threshold anywhere.
    """
    parts = []
    for image in x.split(1):
        maps = _unit_maps(features, image, thresholds)
        _check_count(K, len(maps), "channels")
        parts.append(maps[maps.sum((1, 2)).argsort(descending=True, stable=True)[:K]])
    return torch.stack(parts)


@torch.no_grad()
def net_dissect_centroids(
    features: nn.Module, x: Tensor, K: int, thresholds: Tensor, *, random_state: Any = 0
) -> Tensor:
    """Return K centroids of the segmentation maps of an image's units (the paper's NetDissect2).

    Parameters
    ----------
    features, x, thresholds
        See :func:`net_dissect_top`. Empty maps are left out.
    K : int
        Number of centroids.
    random_state : int, RandomState or None
        Seed of k-means (best of 10 runs).

    Returns
    -------
    Tensor [N, K, H, W]
        Share of the cluster's units that exceed their threshold, 0 to 1. Maps are zero if there are fewer than K
        distinct ones.
    """
    parts = []
    for image in x.split(1):
        maps = _unit_maps(features, image, thresholds)
        maps = maps[maps.amax((1, 2)) > 0]
        points, different = _isometric(maps)
        k = min(K, different)
        centroids = maps.new_zeros(K, *maps.shape[1:])
        if k:
            labels = KMeans(k, n_init=10, random_state=random_state).fit_predict(points.cpu().numpy())
            for cluster in range(k):
                centroids[cluster] = maps[torch.from_numpy(labels == cluster).to(maps.device)].mean(0)
        parts.append(centroids)
    return torch.stack(parts)


def _strongest(
    features: nn.Module, x: Tensor, K: int, composite: Composite | None, dims: tuple[int, ...], what: str
) -> Tensor:
    """Propagate the K parts of each map whose greatest activations over some dimensions are the greatest."""
    parts = []
    for image in x.split(1):
        recording = LRP(features, composite).record(image)
        a = _checked(recording.output).detach()
        greatest = a.abs().amax(dims, keepdim=True)
        _check_count(K, greatest.numel(), what)
        chosen = F.one_hot(greatest.flatten().topk(K).indices, greatest.numel()).view(K, *greatest.shape)
        starts: Sequence[Tensor] = (chosen * a.sign()).split(recording.room)
        parts.append(torch.cat([recording.propagate(some).sum(dim=2) for some in starts])[:, 0])
    return torch.stack(parts)


def _isometric(maps: Tensor) -> tuple[Tensor, int]:
    """Return points [n, n] with the distances of n binary maps, and the number of distinct maps.

    K-means depends only on distances, and there are far fewer units than pixels.
    """
    flat = maps.flatten(1).double()  # counts of pixels, so that products and distances are exact
    products = flat @ flat.T
    size = products.diagonal()
    same = size[:, None] + size - 2 * products == 0
    values, vectors = torch.linalg.eigh(products)
    return vectors * values.clamp(min=0).sqrt(), int((same.tril(-1).sum(1) == 0).sum())


def _unit_maps(features: nn.Module, image: Tensor, thresholds: Tensor) -> Tensor:
    """Return the segmentation maps [d, H, W] of all units."""
    a = _checked(features(image))
    if thresholds.shape != (a.shape[1],):
        raise ValueError(f"thresholds needs one per channel, [{a.shape[1]}], got {list(thresholds.shape)}")
    fine = F.interpolate(a, size=image.shape[2:], mode="bilinear", align_corners=False)[0]
    return (fine > thresholds.to(fine)[:, None, None]).to(fine)


def _checked(a: Tensor) -> Tensor:
    if a.ndim != 4:
        raise ValueError(f"features need a map [N, d, h, w] to have segments, got shape {list(a.shape)}")
    return a


def _check_count(K: int, n: int, what: str) -> None:
    if not 1 <= K <= n:
        raise ValueError(f"K needs a number from 1 to {n}, which is how many {what} there are; got {K}")
