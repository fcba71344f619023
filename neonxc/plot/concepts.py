"""Pictures of the concepts of a cluster: a card per concept, with patches or words, its share and a heatmap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from neonxc.common.cluster_names import cluster_text
from neonxc.common.numbers import percent
from neonxc.plot.bands import as_photos
from neonxc.plot.bars import draw_bars
from neonxc.plot.heat import add_scale, as_image, bare, draw_heatmap, smoothed
from neonxc.plot.shared import FOR, as_array

if TYPE_CHECKING:
    from pandas import Series
    from torch import Tensor

    from neonxc.common.types import Label
    from neonxc.network import NeuralizedClustering
    from neonxc.subspaces.concepts import Concepts
    from neonxc.subspaces.references import ConceptReference

PATCHES_PER_SIDE = 4  # a patch is a quarter of the shorter side
ACROSS = 3  # patches beside each other


def concepts(
    found: Concepts,
    net: NeuralizedClustering,
    X: np.ndarray | Tensor | Sequence[str],
    cluster: Label | None = None,
    *,
    images: np.ndarray | Tensor | None = None,
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
    if net.inputs.in_texts:
        card_height = 1.25
        widths = [1, 1.2]
    else:
        card_height = 1.6
        widths = [1.15, 1.2, 0.9]
    figure = Figure(figsize=(6.6, card_height * len(frame) + 0.4), layout="constrained", dpi=200)
    grid = figure.subplots(len(frame), len(widths), squeeze=False, width_ratios=widths)
    for axes, (_, row) in zip(grid[:, 0], frame.iterrows(), strict=True):
        _describe(bare(axes), row)

    if net.inputs.in_texts:
        for axes, best in zip(grid[:, 1], references, strict=True):
            relevance = np.array([reference.relevance for reference in best])
            words = [reference.word for reference in best]
            draw_bars(axes, relevance, words, len(words), None)
            axes.locator_params(axis="x", nbins=3)
    else:
        import torch  # the other plots do without

        inputs = torch.as_tensor(X)
        rows = [*dict.fromkeys(reference.row for best in references for reference in best)]
        if images is None:
            shown = as_photos(net.features, inputs[rows].cpu())
            photos = {row: as_image(photo) for row, photo in zip(rows, shown, strict=True)}
        else:
            photos = {row: as_image(images[row]) for row in rows}

        # the heatmap of concept i on the input where it is most relevant
        first = [best[0].row for best in references]
        maps = as_array(found.heatmaps(net, inputs[first], label))
        heatmaps = [smoothed(maps[i, i]) for i in range(len(first))]
        _draw_cards(grid[:, 1:], references, photos, heatmaps)
        add_scale(figure, grid[:, 2:], below=True)
    figure.suptitle(cluster_text(label), x=0.01, ha="left", fontsize=10, fontweight="bold")
    return figure


def _describe(axes: Axes, row: Series) -> None:
    """Write the name of a concept, draw its share as a bar, and write below it what the concept does."""
    axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.text(0, 0.82, row["name"], fontsize=9, fontweight="bold", parse_math=False)
    axes.barh(0.68, 1, 0.09, color="0.92")
    axes.barh(0.68, np.clip(row["share"], 0, 1), 0.09, color=FOR)
    texts = [f"{percent(row['share'])} of the relevance"]
    if not np.isnan(row["left"]):
        texts.append(f"{percent(row['left'])} of the cluster left without\nit and those above")
        if not np.isnan(row["unchanged"]):
            texts.append(f"{percent(row['unchanged'])} of the others unchanged")
    axes.text(0, 0.55, "\n".join(texts), fontsize=7.5, va="top", color="0.3", linespacing=1.4)


def _draw_cards(
    grid: np.ndarray,
    references: list[list[ConceptReference]],
    photos: dict[int, np.ndarray],
    heatmaps: list[np.ndarray],
) -> None:
    """Draw for every concept its patches, and its heatmap on the first photo."""
    for (left, right), best, heatmap in zip(grid, references, heatmaps, strict=True):
        patches = [_patch(photos[reference.row], reference) for reference in best]
        n_missing = -len(patches) % ACROSS  # white patches that fill the last line
        patches += [np.ones_like(patches[0])] * n_missing
        lines = [np.concatenate(patches[i : i + ACROSS], 1) for i in range(0, len(patches), ACROSS)]
        bare(left).imshow(np.concatenate(lines))
        draw_heatmap(right, photos[best[0].row], heatmap)


def _patch(photo: np.ndarray, reference: ConceptReference) -> np.ndarray:
    """Cut out the square around a location, with a white frame; at an edge of the photo it is shifted inwards."""
    height, width = photo.shape[:2]
    side = max(4, min(height, width) // PATCHES_PER_SIDE)
    top = _start(reference.y * height, side, height)
    left = _start(reference.x * width, side, width)
    patch = photo[top : top + side, left : left + side]
    edge = max(1, side // 24)
    return np.pad(patch, ((edge, edge), (edge, edge), (0, 0)), constant_values=1.0)


def _start(center: float, side: int, length: int) -> int:
    """Return the first pixel of a patch around a center, inside of 0..length."""
    return int(np.clip(center - side / 2, 0, length - side))
