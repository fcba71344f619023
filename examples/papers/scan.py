"""Cluster images without labels by SCAN, measure the accuracy of the clusters, and explain them by pixels.

    pip install -e ".[train]"
    python examples/papers/scan.py
    python examples/papers/scan.py --data fashion --data-dir FOLDER

A small VGG learns the clusters of MNIST, or of Fashion-MNIST, whose four files `*-ubyte.gz` are in FOLDER, as in
Debian's package dataset-fashion-mnist. Labels are only used to count errors on the test split.
"""

from __future__ import annotations

import gzip
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
import typer
from matplotlib.figure import Figure
from mnist import load_mnist
from reports import save
from sklearn.cluster import KMeans
from sklearn.preprocessing import normalize
from torch import Tensor
from torchvision.utils import make_grid

import neonxc
from neonxc.evaluation import clustering_accuracy
from neonxc.models import SCAN, vgg_small
from neonxc.models.scan import RandomWarp

NAMES = {"mnist": "MNIST", "fashion": "Fashion-MNIST"}
PER_ROW = 8  # images of each cluster in the figure
VIEWS = {
    "mnist": RandomWarp(),
    "fashion": RandomWarp(
        rotation=10, shear=10, scale=0.4, translation=0.1, elastic=0.02, flip=True, contrast=0.3, padding="zeros"
    ),
}
SETTINGS = {"n_neighbors": 10, "pretext_epochs": 16, "epochs": 1, "self_label_epochs": 1}
PRETEXT_RATE = 3e-3  # the embedding is trained from scratch
QUICK = {"pretext_epochs": 1, "epochs": 1, "self_label_epochs": 1, "head_epochs": 2, "n_heads": 2}


def load_idx(path: Path) -> np.ndarray:
    """Read an array of bytes from a file in the format of MNIST."""
    data = gzip.decompress(path.read_bytes())
    shape = np.frombuffer(data, ">i4", data[3], offset=4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(shape)


def load(data: str, folder: Path | None, split: Literal["train", "test"]) -> tuple[Tensor, np.ndarray]:
    """Load images [N, 1, 28, 28] in 0..1, and their classes [N]."""
    if data == "mnist":
        images, digits = load_mnist(split)
        return images, digits.numpy()
    if folder is None:
        raise typer.BadParameter("Fashion-MNIST needs the folder of its files", param_hint="--data-dir")
    prefix = "train" if split == "train" else "t10k"
    pixels = load_idx(folder / f"{prefix}-images-idx3-ubyte.gz")
    return torch.from_numpy(pixels / np.float32(255))[:, None], load_idx(folder / f"{prefix}-labels-idx1-ubyte.gz")


def run(
    train: Tensor, test: Tensor, truth: np.ndarray, seed: int, options: dict[str, Any], width: int
) -> tuple[dict[str, Any], SCAN]:
    """Train with one seed; return accuracies, seconds, and the clusterer after self-labelling."""
    torch.manual_seed(seed)
    options = {**options, "random_state": seed, "verbose": True}
    accuracy = {}
    seconds = {}
    start = time.perf_counter()

    def measured(name: str, clusterer: Any, images: Any, unseen: Any) -> None:
        clusterer.fit(images)
        seconds[name] = time.perf_counter() - start
        accuracy[name] = clustering_accuracy(clusterer.predict(unseen), truth)

    alone = {"epochs": 0, "head_epochs": 0, "self_label_epochs": 0, "learning_rate": PRETEXT_RATE}
    simclr = SCAN(10, vgg_small(width=width)[:-1], **{**options, **alone}).fit(train)
    options |= {"backbone": simclr.embedding_, "pretext": None}
    with tempfile.TemporaryDirectory() as folder:  # the second continues where the first ended
        measured("SCAN", SCAN(10, **{**options, "self_label_epochs": 0}, checkpoint=folder), train, test)
        scan = SCAN(10, **options, checkpoint=folder)
        measured("SCAN, self-labelled", scan, train, test)

    start = time.perf_counter()
    features, held_out = (simclr.transform(images) for images in (train, test))
    kmeans = KMeans(10, n_init=10, random_state=seed)
    measured("k-means on its SimCLR features", kmeans, features, held_out)
    measured("k-means on these at unit norm", kmeans, normalize(features), normalize(held_out))
    measured("k-means on pixels", kmeans, train.flatten(1), test.flatten(1))
    return {"seed": seed, "accuracy": accuracy, "seconds": seconds, "losses": scan.losses_.tolist()}, scan


def figure(scan: SCAN, images: Tensor) -> Figure:
    """Draw the images with the largest logits of each cluster; red is positive relevance, blue is negative."""
    found = scan.predict(images)
    confidence = scan.predict_proba(images).amax(1)
    order = confidence.argsort(descending=True, stable=True)
    rows = {int(k): order[found[order] == k] for k in found.unique()}
    rows = {k: row for k, row in rows.items() if len(row) >= PER_ROW}
    shown = torch.cat([row[:PER_ROW] for row in rows.values()])
    clustering = neonxc.neuralize(scan, images)
    heat = neonxc.NEON(clustering).attribute(images[shown]).sum(1, keepdim=True)
    heat = heat / heat.abs().amax((1, 2, 3), keepdim=True).clamp(min=1e-12)  # each heatmap has a scale of its own
    # black on white, so that only the heatmap is coloured
    paper = make_grid(1 - images[shown], PER_ROW, pad_value=1)
    drawn = neonxc.plot.overlay(paper, make_grid(heat, PER_ROW)[0], smooth=0)
    height, width = paper.shape[1:]
    drawn.set_size_inches(6, 5 * height / width)
    names = [f"cluster {k}\n{len(row)} images" for k, row in rows.items()]
    drawn.axes[0].set_yticks((np.arange(len(rows)) + 0.5) * height / len(rows), names, fontsize=7)
    drawn.axes[0].tick_params(length=0)
    return drawn


def table(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of medians over the seeds; seconds are the training time from the images to each clustering."""
    rows = []
    for name in runs[0]["accuracy"]:
        values = [100 * one["accuracy"][name] for one in runs]
        row = {"clustering": name, "median accuracy %": statistics.median(values), "least": min(values)}
        row |= {"greatest": max(values), "seconds": statistics.median(one["seconds"].get(name, 0) for one in runs)}
        rows.append({key: round(value, 2) if isinstance(value, float) else value for key, value in row.items()})
    return rows


def main(
    data: Annotated[Literal["mnist", "fashion"], typer.Option()] = "mnist",
    data_dir: Annotated[Path | None, typer.Option(help="Files of Fashion-MNIST.")] = None,
    seeds: Annotated[str, typer.Option(help="Separated by commas.")] = "0,1,2",
    train_images: Annotated[int, typer.Option(min=100, max=50_000)] = 30_000,
    width: Annotated[int, typer.Option(min=1, help="Channels of the first block.")] = 16,
    device: Annotated[str, typer.Option()] = "cuda" if torch.cuda.is_available() else "cpu",
    amp: Annotated[bool, typer.Option(help="Train with autocast to bfloat16.")] = True,
    out: Annotated[Path, typer.Option(help="Folder of scan.json and the figure.")] = Path("scan"),
    quick: Annotated[bool, typer.Option("--quick", help="A few hundred images, to see that it runs.")] = False,
) -> None:
    """Train, count errors on the test split, and explain; results of other data sets in OUT/scan.json are kept."""
    options: dict[str, Any] = {**SETTINGS, "augment": VIEWS[data], "device": device, "amp": amp}
    if quick:
        train_images = 400
        width = 4
        options = {**options, **QUICK}
    train, _ = load(data, data_dir, "train")
    test, truth = load(data, data_dir, "test")
    train = train[:train_images]
    test = test[: 400 if quick else None]
    truth = truth[: 400 if quick else None]
    runs = []
    for seed in map(int, seeds.split(",")):
        result, scan = run(train, test, truth, seed, options, width)
        runs.append(result)
        typer.echo(json.dumps(result))
    out.mkdir(parents=True, exist_ok=True)
    figure(scan, test).savefig(out / f"scan-{data}.png", dpi=110)
    note = f"{len(train)} images to train on, {len(test)} to test on; vgg_small of width {width}, {device}"
    note += f"{', bfloat16' if amp else ''}; seeds {seeds}."
    save(out / "scan.json", "SCAN", {NAMES[data]: {"note": note, "rows": table(runs)}}, runs={data: runs})
    for row in table(runs):
        typer.echo(", ".join(f"{key} {value}" for key, value in row.items()))


if __name__ == "__main__":
    typer.run(main)
