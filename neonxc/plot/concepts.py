"""What the concepts of a cluster are: a card per concept, with its patches or words, its share and a heatmap."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from neonxc.common.numbers import percent
from neonxc.plot.bars import draw_bars
from neonxc.plot.heat import add_scale, as_image, bare, draw_heatmap, heatmap_limit, smoothed
from neonxc.plot.images import as_photos
from neonxc.plot.shared import FOR, as_array

if TYPE_CHECKING:
    from neonxc.network import NeuralizedClustering
    from neonxc.subspaces.concepts import Concepts
    from neonxc.subspaces.references import ConceptReference

SIDE = 4  # a patch is a quarter of the shorter side
ACROSS = 3  # patches beside each other


def concepts(
    found: Concepts, net: NeuralizedClustering, X: Any, cluster: Any = None, *, images: Any = None
) -> Figure:
    """Draw the concepts of one cluster.

    A card has the patches of the inputs where the concept is most relevant, one per input, and the heatmap of the
    concept on the first of these inputs; or, for texts, the words of the highest relevance. Its bar is the
    concept's share of the cluster's relevance.

    Parameters
    ----------
    found : Concepts
    net : NeuralizedClustering
        The network that they come from.
    X : array, tensor or sequence of str
        The inputs that they were found on.
    cluster : label, optional
        Default: the first one.
    images : array or Tensor [N, 3, H, W] or [N, H, W, 3], optional
        The photos of X, with values in 0..1. Default: X itself, without the preprocessing that the network knows.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ValueError
        A cluster without concepts.
    """
    c = found.position(cluster)
    label = found.classes[c]
    references = found.references[c]
    frame = found.to_frame().loc[label]
    words = net.inputs.in_texts
    height = 1.25 if words else 1.6
    figure = Figure(figsize=(6.6, height * len(frame) + 0.4), layout="constrained", dpi=200)
    widths = [1, 1.2] if words else [1.15, 1.2, 0.9]
    grid = figure.subplots(len(frame), len(widths), squeeze=False, width_ratios=widths)
    for axes, (_, row) in zip(grid[:, 0], frame.iterrows(), strict=True):
        _describe(bare(axes), row)
    if words:
        for axes, own in zip(grid[:, 1], references, strict=True):
            draw_bars(axes, np.array([one.relevance for one in own]), [one.word for one in own], len(own), None)
            axes.locator_params(axis="x", nbins=3)
    else:
        import torch  # the other plots do without

        inputs = torch.as_tensor(X)
        first = [own[0].row for own in references]
        rows = {one.row: None for own in references for one in own}
        shown = as_photos(net.features, inputs[[*rows]].cpu()) if images is None else images
        photos = {row: as_image(shown[i if images is None else row]) for i, row in enumerate(rows)}
        maps = as_array(found.heatmaps(net, inputs[first], label))
        _draw_cards(grid[:, 1:], references, photos, [smoothed(maps[i, i]) for i in range(len(first))])
        add_scale(figure, grid[:, 2:], below=True)
    figure.suptitle(f"cluster {label}", x=0.01, ha="left", fontsize=10, fontweight="bold")
    return figure


def _describe(axes: Axes, row: Any) -> None:
    """Write what a concept does, above its share as a bar."""
    axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.text(0, 0.82, row["name"], fontsize=9, fontweight="bold", parse_math=False)
    axes.barh(0.68, 1, 0.09, color="0.92")
    axes.barh(0.68, np.clip(row["share"], 0, 1), 0.09, color=FOR)
    texts = [f"{percent(row['share'])} of the relevance"]
    if not np.isnan(row["left"]):
        texts.append(f"{percent(row['left'])} of the cluster left without\nit and those above")
    axes.text(0, 0.55, "\n".join(texts), fontsize=7.5, va="top", color="0.3", linespacing=1.4)


def _draw_cards(
    grid: Any, references: list[list[ConceptReference]], photos: dict[int, Any], maps: list[np.ndarray]
) -> None:
    limits = [heatmap_limit(heatmap) for heatmap in maps]
    for (left, right), own, heatmap, limit in zip(grid, references, maps, limits, strict=True):
        patches = [_patch(photos[one.row], one) for one in own]
        patches += [np.ones_like(patches[0])] * (-len(patches) % ACROSS)
        lines = [np.concatenate(patches[i : i + ACROSS], 1) for i in range(0, len(patches), ACROSS)]
        bare(left).imshow(np.concatenate(lines))
        draw_heatmap(right, photos[own[0].row], heatmap, limit)


def _patch(photo: np.ndarray, place: ConceptReference) -> np.ndarray:
    """The square around a place, with a white frame; at an edge, it is shifted inwards."""
    side = max(4, min(photo.shape[:2]) // SIDE)
    starts = [
        int(np.clip(center * length - side / 2, 0, length - side))
        for center, length in zip((place.y, place.x), photo.shape[:2], strict=True)
    ]
    found = photo[starts[0] : starts[0] + side, starts[1] : starts[1] + side]
    edge = max(1, side // 24)
    return np.pad(found, ((edge, edge), (edge, edge), (0, 0)), constant_values=1.0)
