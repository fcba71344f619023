"""Whole photos grouped by cluster, each beside the heatmap that explains its cluster.

The cells of the sheet, in lines of up to `ACROSS` photos:

    cluster 0    photo    heatmap    photo    heatmap    ...
                 photo    heatmap
    cluster 1    photo    heatmap    photo    heatmap    ...

All cells are one picture in one axes, whose units are inches: axes of its own for each cell take seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.collections import PatchCollection
from matplotlib.colors import Colormap
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle
from matplotlib.transforms import Affine2D
from PIL import Image

from neonxc.common.cluster_names import cluster_text
from neonxc.common.numbers import plural
from neonxc.plot.heat import blended, draw_scale

ACROSS = 4  # photos per row
CELL = 1.6  # inches
GAP = 0.06  # inches between a photo and its heatmap; twice as much between rows
NAME = 0.2  # inches above a photo for its name
LINE = 0.18  # inches of a line of a cluster's title
SCALE = 0.45  # inches below the photos for the colour bar


class Pixels(AxesImage):
    """A picture of bytes [H, W, 4], which is drawn as it is where the figure has the same resolution.

    Matplotlib would interpolate it in floats, which takes most of the time of a sheet.
    """

    def __init__(self, axes: Axes, pixels: np.ndarray, extent: tuple[float, float, float, float]) -> None:
        super().__init__(axes, extent=extent, origin="upper", interpolation="none")
        self.set_data(pixels)
        self.pixels = pixels

    def make_image(
        self, renderer: RendererBase, magnification: float = 1.0, unsampled: bool = False
    ) -> tuple[np.ndarray, float, float, Affine2D]:
        """Return the picture in the resolution of the figure, and its lower left corner in pixels."""
        box = self.get_window_extent(renderer)
        shape = (round(magnification * box.height), round(magnification * box.width))
        if shape == self.pixels.shape[:2] and not unsampled:
            return self.pixels[::-1], box.x0, box.y0, Affine2D()
        return super().make_image(renderer, magnification, unsampled)


class Cell(NamedTuple):
    """A photo in its place, and to its right a heatmap of the same size; in inches from the upper left corner."""

    photo: int
    label: int
    is_first: bool  # of its cluster
    left: float
    top: float
    height: float

    @property
    def lefts(self) -> tuple[float, float]:
        """The left edges of the photo and of the heatmap."""
        return self.left, self.left + CELL + GAP


def grouped_sheet(
    photos: list[np.ndarray],
    heatmaps: list[np.ndarray],
    labels: list[int],
    colors: Colormap,
    photo_names: Sequence[str] | None,
    cluster_titles: Sequence[str] | None,
    dpi: int,
) -> Figure:
    """Draw a block per cluster: its photos [H, W, 3] and their heatmaps [H, W], framed in the cluster's colour."""
    n_photos = {label: labels.count(label) for label in sorted(set(labels))}
    titles = {label: f"{cluster_text(label)}\n{plural(n, 'photo')}" for label, n in n_photos.items()}
    if cluster_titles:
        titles = {label: cluster_titles[label] for label in n_photos}
    n_lines = max(title.count("\n") + 1 for title in titles.values())
    margin = LINE * n_lines + 2 * GAP
    spacing = 2 * GAP if photo_names is None else GAP + NAME
    cells, bottom = _cells(photos, labels, margin, spacing)
    width = max(cell.lefts[1] for cell in cells) + CELL + GAP
    height = bottom + SCALE

    figure = Figure(figsize=(width, height), dpi=dpi)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))
    axes.set_axis_off()
    mosaic = _mosaic(cells, photos, heatmaps, (width, bottom), dpi)
    axes.add_image(Pixels(axes, mosaic, (0, width, bottom, 0)))
    _draw_frames(axes, cells, colors)
    for cell in cells:
        middle = cell.top + cell.height / 2
        if cell.is_first:
            title = titles[cell.label]
            look: dict[str, Any] = {
                "color": colors(cell.label),
                "fontsize": 9,
                "fontweight": "bold",
                "parse_math": False,
            }
            axes.text(margin - GAP, middle, title, rotation=90, ha="right", va="center", ma="center", **look)
        if photo_names is not None:
            name = photo_names[cell.photo]
            center = cell.left + CELL / 2
            axes.text(center, cell.top - GAP, name, ha="center", va="bottom", fontsize=8, parse_math=False)
    draw_scale(figure, figure.add_axes((0.3, 0.28 / height, 0.4, 0.1 / height)))
    return figure


def _cells(photos: list[np.ndarray], labels: list[int], margin: float, spacing: float) -> tuple[list[Cell], float]:
    """Return the cells, cluster by cluster, and their lower end; a row is as high as its highest photo."""
    cells = []
    top = 0.0
    for label in sorted(set(labels)):
        group = np.flatnonzero(np.equal(labels, label)).tolist()
        for start in range(0, len(group), ACROSS):
            top += spacing
            row = group[start : start + ACROSS]
            heights = [CELL * photos[i].shape[0] / photos[i].shape[1] for i in row]
            for column, (i, height) in enumerate(zip(row, heights, strict=True)):
                left = margin + column * (2 * CELL + 3 * GAP)
                lowered = top + (max(heights) - height) / 2
                cells.append(Cell(i, label, i == group[0], left, lowered, height))
            top += max(heights)
    return cells, top + GAP


def _mosaic(
    cells: list[Cell], photos: list[np.ndarray], heatmaps: list[np.ndarray], size: tuple[float, float], dpi: int
) -> np.ndarray:
    """Compute the pixels of all cells on white, of a picture of this width and height in inches."""
    n_columns, n_rows = (round(dpi * length) for length in size)
    mosaic = np.full((n_rows, n_columns, 4), 255, dtype=np.uint8)  # with opacity, which matplotlib would add
    for cell in cells:
        photo = photos[cell.photo]
        shape = (round(dpi * cell.height), round(dpi * CELL))
        top = round(dpi * cell.top)
        for left, picture in zip(cell.lefts, (photo, blended(photo, heatmaps[cell.photo])), strict=True):
            first = round(dpi * left)
            mosaic[top : top + shape[0], first : first + shape[1]] = _resized(picture, shape)
    return mosaic


def _resized(picture: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Return a picture [H, W, 3] in 0..1 as bytes of another shape, with opacity."""
    pixels = np.full((*picture.shape[:2], 4), 255, dtype=np.uint8)
    # whole pixels of four bytes are copied faster than three of the four
    np.rint(255 * picture, out=pixels[..., :3], casting="unsafe")
    if pixels.shape[:2] == shape:
        return pixels
    # as matplotlib does: pixels are squares where they are large, or enlarged by a whole number
    is_multiple = shape[1] % pixels.shape[1] == 0
    are_squares = is_multiple or shape[1] >= 3 * pixels.shape[1]
    resample = Image.Resampling.NEAREST if are_squares else Image.Resampling.HAMMING
    return np.asarray(Image.fromarray(pixels).resize(shape[::-1], resample))


def _draw_frames(axes: Axes, cells: list[Cell], colors: Colormap) -> None:
    """Draw a frame in the colour of the cluster around every photo and every heatmap."""
    frames = [Rectangle((left, cell.top), CELL, cell.height) for cell in cells for left in cell.lefts]
    edges = [colors(cell.label) for cell in cells for _ in cell.lefts]
    axes.add_collection(PatchCollection(frames, facecolors="none", edgecolors=edges, linewidths=1.5))
