"""Clusters of images in TensorBoard."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from neonxc.attribution import NEON
from neonxc.carriers import Backbone
from neonxc.network import NeuralizedClustering
from neonxc.parameters import check_whole
from neonxc.plot.images import contact_sheet

DPI = 100  # half of what figures in files have: a sheet per step is large


@torch.no_grad()
def to_tensorboard(
    writer: Any,
    step: int,
    net: NeuralizedClustering | NEON,
    X: Tensor,
    images: Any = None,
    *,
    most: int = 4,
    tag: str = "clusters",
) -> None:
    """Write the clusters of images to TensorBoard: a sheet of heatmaps, the sizes of the clusters, and the logits.

    The sheet is ``{tag}/heatmaps``. The number of images (or of locations) of each cluster is
    ``{tag}/size/{label}``, and ``{tag}/logits`` is the histogram of all logits for the own cluster.

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
    most : int
        Number of images that are drawn: of each cluster of whole images, with logits from the largest to the
        smallest; of clusters of locations, the first ones in X.
    tag : str
        Name of the group in TensorBoard.

    Raises
    ------
    ValueError
        If the clustering has no feature network, if layers of it are in training mode that differ in it, if `most`
        is below 1, or if images have values outside 0..1.

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
    neon = net if isinstance(net, NEON) else NEON(net)
    net = neon.net
    if not isinstance(net.carrier, Backbone):
        raise ValueError("to_tensorboard needs a network with a feature network, whose inputs are images")
    check_whole("most", most)
    logit, column = net(X).max(dim=1)
    sizes = column.flatten().bincount(minlength=len(net.classes_)).tolist()
    of = "images" if column.ndim == 1 else "locations"
    titles = [f"cluster {label}\n{size} {of}" for label, size in zip(net.classes_, sizes, strict=True)]
    if images is None:
        images = getattr(net.features, "deprocess", lambda inputs: inputs)(X)
    shown = _evenly(logit, column, most) if column.ndim == 1 else torch.arange(min(most, len(X)))
    x = X[shown.to(X.device)]
    heatmaps = neon.attribute(x).sum(1) if column.ndim == 1 else neon.heatmaps(x)
    places = column[shown.to(column.device)]
    figure = contact_sheet([images[i] for i in shown.tolist()], heatmaps, places, column_titles=titles)
    figure.set_dpi(DPI)
    writer.add_figure(f"{tag}/heatmaps", figure, step)
    writer.add_histogram(f"{tag}/logits", logit, step)
    for label, size in zip(net.classes_, sizes, strict=True):
        writer.add_scalar(f"{tag}/size/{label}", size, step)


def _evenly(logit: Tensor, column: Tensor, most: int) -> Tensor:
    """Return some images of each cluster, in equal steps from the largest logit to the smallest."""
    order = logit.argsort(descending=True)
    clusters = [order[column[order] == k] for k in column.unique().tolist()]
    return torch.cat([rows[torch.linspace(0, len(rows) - 1, min(most, len(rows))).long()] for rows in clusters])
