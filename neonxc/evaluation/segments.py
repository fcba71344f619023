"""Ways to find K segments of an image in the features of a network, which `segmentation_match` compares.

All take a network's features as a map [N, d, h, w] and give maps [N, K, H, W] in the pixels of the inputs. Each
image is taken on its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from sklearn.cluster import KMeans
from torch import Tensor, nn
from tqdm import tqdm

from neonxc.attribution import NEON
from neonxc.carriers import rows
from neonxc.lrp import LRP, Composite
from neonxc.neuralize import neuralize


def cluster_maps(
    features: nn.Module, x: Tensor, K: int = 4, composite: Composite | None = None, *, random_state: Any = 0
) -> Tensor:
    """NEON's heatmaps of each image's own clusters: k-means on its locations, beta by Eq. 3.

    Parameters
    ----------
    features : nn.Module
        From inputs to a map. The paper clusters features of unit norm, which
        :class:`~neonxc.models.FeatureExtractor` gives with ``normalize=True``.
    x : Tensor [N, C, H, W]
        What `features` takes.
    K : int
        Clusters, 2 or more.
    composite : Composite, optional
        Rules for `features`; default: LRP-gamma with gamma 0.25.
    random_state : int, RandomState or None
        Of k-means, the best of 10 runs.

    Returns
    -------
    Tensor [N, K, H, W]
        On the device of `x`.

    Raises
    ------
    ValueError
        Features that are no map, too few (different) locations.

    References
    ----------
    .. [1] J. Kauffmann et al., "From clustering to cluster explanations via neural networks", VI-B and VI-C.
    """
    parts = []
    for image in x.split(1):
        points = rows(_map(features, image))
        _check_count(K, len(points), "locations")
        model = KMeans(K, n_init=10, random_state=random_state).fit(points.cpu().numpy())
        parts.append(NEON(neuralize(model, image, features), composite).heatmaps(image))
    return torch.cat(parts)


def feature_maps(features: nn.Module, x: Tensor, K: int = 4, composite: Composite | None = None) -> Tensor:
    """Relevance of the K channels with the greatest activation anywhere (FM): LRP from all of a channel's map.

    Parameters
    ----------
    features, x, composite
        As of :func:`cluster_maps`; features as they are, not of unit norm.
    K : int
        Channels.

    Returns
    -------
    Tensor [N, K, H, W]

    Notes
    -----
    Greatest in size, and it is the size that is explained: behind a ReLU that is the activation; where features
    have both signs, a negative one starts with its opposite.
    """

    def chosen(a: Tensor) -> Tensor:
        d = a.shape[1]
        _check_count(K, d, "channels")
        top = a.abs().amax((0, 2, 3)).topk(K).indices
        return F.one_hot(top, d)[:, None, :, None, None]

    return _propagated(features, x, composite, chosen)


def locations(features: nn.Module, x: Tensor, K: int = 4, composite: Composite | None = None) -> Tensor:
    """Relevance of the K locations with the greatest activation of any channel (LO): LRP from all channels there.

    Parameters
    ----------
    features, x, composite
        As of :func:`feature_maps`.
    K : int
        Locations; all different, though often neighbours.

    Returns
    -------
    Tensor [N, K, H, W]
    """

    def chosen(a: Tensor) -> Tensor:
        h, w = a.shape[2:]
        _check_count(K, h * w, "locations")
        top = a.abs().amax((0, 1)).flatten().topk(K).indices
        return F.one_hot(top, h * w).view(K, 1, 1, h, w)

    return _propagated(features, x, composite, chosen)


@torch.no_grad()
def unit_thresholds(features: nn.Module, images: Tensor | Iterable[Tensor], top: float = 0.005) -> Tensor:
    """The activation that each unit (channel) exceeds at a given share of the locations of some images.

    Parameters
    ----------
    features : nn.Module
        From inputs to a map.
    images : Tensor [N, C, H, W], or several
        The more images, the better. All activations are kept: N d h w numbers.
    top : float
        Share, between 0 and 1; NetDissect has 0.005.

    Returns
    -------
    Tensor [d]

    References
    ----------
    .. [1] D. Bau et al., "Network dissection: quantifying interpretability of deep visual representations", 2017.
    """
    if not 0 < top < 1:
        raise ValueError(f"top needs a share between 0 and 1, got {top!r}")
    batches = images.split(1) if isinstance(images, Tensor) else images
    parts = [rows(_map(features, batch)) for batch in tqdm(batches, desc="units", delay=2, leave=False)]
    if not parts:
        raise ValueError("images is empty; needed is at least one")
    activations = torch.cat(parts)
    above = min(len(activations) - 1, round(top * len(activations)))
    return activations.kthvalue(len(activations) - above, dim=0).values


@torch.no_grad()
def net_dissect_top(features: nn.Module, x: Tensor, K: int, thresholds: Tensor) -> Tensor:
    """The K segmentation maps of units that are the greatest (the paper's NetDissect1).

    Parameters
    ----------
    features, x
        As of :func:`feature_maps`.
    K : int
        Maps.
    thresholds : Tensor [d]
        From :func:`unit_thresholds`. A unit's map is where its activation, upsampled bilinearly, is above its own.

    Returns
    -------
    Tensor [N, K, H, W]
        0 and 1. Maps are zero where fewer than K units are above their threshold anywhere.
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
    """K centroids of all the segmentation maps of an image's units (the paper's NetDissect2).

    Parameters
    ----------
    features, x, thresholds
        As of :func:`net_dissect_top`. Maps without a pixel are left out.
    K : int
        Centroids.
    random_state : int, RandomState or None
        Of k-means, the best of 10 runs.

    Returns
    -------
    Tensor [N, K, H, W]
        0 ... 1, the share of a cluster's units that are above their threshold. Maps are zero where there are
        fewer than K different ones.
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


def _isometric(maps: Tensor) -> tuple[Tensor, int]:
    """Points [n, n] as far apart as n maps of 0 and 1 are, and how many are different.

    K-means sees distances alone, and there are far fewer units than pixels.
    """
    flat = maps.flatten(1).double()  # numbers of pixels, so that products and distances are exact
    products = flat @ flat.T
    size = products.diagonal()
    same = size[:, None] + size - 2 * products == 0
    values, vectors = torch.linalg.eigh(products)
    return vectors * values.clamp(min=0).sqrt(), int((same.tril(-1).sum(1) == 0).sum())


def _unit_maps(features: nn.Module, image: Tensor, thresholds: Tensor) -> Tensor:
    """Segmentation maps [d, H, W] of all units."""
    a = _map(features, image)
    if thresholds.shape != (a.shape[1],):
        raise ValueError(f"thresholds needs one per channel, [{a.shape[1]}], got {list(thresholds.shape)}")
    fine = F.interpolate(a, size=image.shape[2:], mode="bilinear", align_corners=False)[0]
    return (fine > thresholds.to(fine)[:, None, None]).to(fine)


def _propagated(features: nn.Module, x: Tensor, composite: Composite | None, chosen: Any) -> Tensor:
    """Heatmaps of the size of some features: `chosen` gives K indicators that broadcast to [K, 1, d, h, w]."""
    parts = []
    for image in x.split(1):
        recording = LRP(features, composite).record(image)
        a = _checked(recording.output).detach()
        starts: Sequence[Tensor] = (chosen(a) * a.sign()).split(recording.room)
        parts.append(torch.cat([recording.propagate(some).sum(dim=2) for some in starts])[:, 0])
    return torch.stack(parts)


@torch.no_grad()
def _map(features: nn.Module, x: Tensor) -> Tensor:
    return _checked(features(x))


def _checked(a: Tensor) -> Tensor:
    if a.ndim != 4:
        raise ValueError(f"features need a map [N, d, h, w] to have segments, got shape {list(a.shape)}")
    return a


def _check_count(K: int, n: int, what: str) -> None:
    if not 1 <= K <= n:
        raise ValueError(f"K needs a number from 1 to {n}, which is how many {what} there are; got {K}")
