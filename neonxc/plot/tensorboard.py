"""Clusters of images in TensorBoard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from neonxc.common.cluster_names import cluster_text
from neonxc.common.numbers import plural
from neonxc.plot.images import sheet_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure
    from torch import Tensor

    from neonxc.attribution.neon import NEON
    from neonxc.common.types import ArrayLike
    from neonxc.network import NeuralizedClustering


DPI = 100  # dots per inch, half of what files have: there is a sheet for every step


class Writer(Protocol):
    """The methods of a `torch.utils.tensorboard.SummaryWriter` that are needed."""

    def add_figure(self, tag: str, figure: Figure, step: int, /) -> object:
        """Write a figure."""

    def add_histogram(self, tag: str, values: Tensor, step: int, /) -> object:
        """Write a histogram of values."""

    def add_scalar(self, tag: str, value: float, step: int, /) -> object:
        """Write a number."""


def to_tensorboard(
    writer: Writer,
    step: int,
    net: NeuralizedClustering | NEON,
    X: Tensor,
    images: Tensor | Sequence[ArrayLike] | None = None,
    *,
    tag: str = "clusters",
) -> None:
    """Write the clusters of images to TensorBoard: a sheet of heatmaps, the sizes of the clusters, and the logits.

    The sheet, ``{tag}/heatmaps``, has four images of each cluster of whole images, with logits from the largest to
    the smallest; of clusters of locations it has the first four images. The number of images (or of locations) of
    each cluster is ``{tag}/size/{label}``; ``{tag}/logits`` is the histogram of the logits for the own cluster.

    Parameters
    ----------
    writer : torch.utils.tensorboard.SummaryWriter
        Or any object with its methods `add_figure`, `add_scalar` and `add_histogram`.
    step : int
        The epoch or the iteration.
    net : NeuralizedClustering or NEON
        A clustering of whole images or of their locations, with a feature network in eval mode; or its explainer,
        if other options than the default are needed.
    X : Tensor [N, C, H, W]
        The images as the feature network takes them, all at once.
    images : tensor or sequence of N images, optional
        The images as they are drawn, in 0..1 (see :func:`contact_sheet`). Default: X as the feature network
        converts it back (:meth:`neonxc.models.FeatureExtractor.deprocess`).
    tag : str
        Name of the group in TensorBoard.

    Raises
    ------
    ValueError
        If the clustering has no feature network, if layers of it are in training mode that differ in it, or if
        images have values outside 0..1.

    Examples
    --------
    >>> import neonxc.plot, torch
    >>> from neonxc.models import FeatureExtractor, vgg_small
    >>> class Writer:  # in place of torch.utils.tensorboard.SummaryWriter(folder)
    ...     def add_figure(self, tag, figure, step):
    ...         print(step, tag)
    ...
    ...     add_scalar = add_histogram = add_figure
    >>> features = FeatureExtractor(vgg_small(width=4).eval(), "features.block2", pool="avg")
    >>> net = neonxc.neuralize(torch.eye(2, 8), features=features)
    >>> neonxc.plot.to_tensorboard(Writer(), 3, net, torch.rand(6, 1, 16, 16))
    3 clusters/heatmaps
    3 clusters/logits
    3 clusters/size/0
    3 clusters/size/1
    """
    import torch  # plots of arrays do without it

    from neonxc.attribution.neon import NEON  # loads captum
    from neonxc.data.inputs import compute_dtype

    neon = net if isinstance(net, NEON) else NEON(net)
    net = neon.net
    features = net.features
    if features is None:
        raise ValueError("to_tensorboard needs a network with a feature network, whose inputs are images")
    if X.ndim != 4:
        raise ValueError(f"X needs images [N, C, H, W], got shape {list(X.shape)}")
    with torch.no_grad():
        logit, cluster = net(X).max(dim=1)
    is_whole_images = cluster.ndim == 1
    counts = cluster.flatten().bincount(minlength=len(net.classes_))
    sizes = dict(zip(net.classes_, counts.tolist(), strict=True))

    if is_whole_images:
        order = logit.argsort(descending=True)
        chosen = []
        for k in cluster.unique():
            ranked = order[cluster[order] == k]
            chosen.append(ranked[torch.linspace(0, len(ranked) - 1, 4).long().unique()])
        rows = torch.cat(chosen)
        heatmaps = neon.attribute(X[rows]).sum(1)
    else:
        rows = torch.arange(len(X), device=X.device)[:4]
        heatmaps = neon.heatmaps(X[rows])

    if images is None:
        deprocess = getattr(features, "deprocess", None)
        images = X if deprocess is None else deprocess(X)
    noun = "image" if is_whole_images else "location"
    titles = [f"{cluster_text(label)}\n{plural(size, noun)}" for label, size in sizes.items()]
    pictures = [images[i] for i in rows.tolist()]
    figure = sheet_of(pictures, heatmaps, cluster[rows], column_titles=titles, dpi=DPI)
    writer.add_figure(f"{tag}/heatmaps", figure, step)
    writer.add_histogram(f"{tag}/logits", logit.to(compute_dtype(logit.dtype)), step)
    for label, size in sizes.items():
        writer.add_scalar(f"{tag}/size/{label}", size, step)
