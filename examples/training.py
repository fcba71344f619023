"""Follow the clusters that a network's features form during training, and explain them by pixels after every
epoch.

    pip install -e ".[train]"
    python examples/training.py --epochs 3
    tensorboard --logdir runs

A small VGG learns the digits of MNIST. `explain` and the two functions below it can be copied into a training
script: they depend on neither the digits nor the optimizer, and leave the network and its training mode unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import torch.nn.functional as F
import typer
from papers.mnist import load_mnist
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from sklearn.metrics.cluster import contingency_matrix
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.tensorboard import SummaryWriter

import neonxc
from neonxc.models import FeatureExtractor, vgg_small


def explain(
    writer: SummaryWriter,
    net: nn.Module,
    images: Tensor,
    epoch: int,
    layer: str = "features.block3",
    clusters: int = 10,
    previous: np.ndarray | None = None,
) -> np.ndarray:
    """Cluster the features of `images`, write an explanation of each cluster, and return the cluster of every
    image."""
    with evaluating(net):  # in training mode, the features of an image would depend on its batch
        features = FeatureExtractor(net, layer, pool="avg", normalize=True)  # unit norm makes epochs comparable
        kmeans = KMeans(clusters, n_init=4, random_state=0).fit(features.points(images).cpu())
        order = renumber(kmeans, previous)
        # there are fewer clusters than requested if the features collapse
        used = np.flatnonzero(np.isin(order, kmeans.labels_))
        if len(used) < 2:  # all features are equal, so that there is nothing to explain
            return np.full(len(images), used[0])
        clustering = neonxc.neuralize(kmeans.cluster_centers_[order[used]], images, features)
        clustering.classes_ = used  # the numbers of the epoch before
        neonxc.plot.to_tensorboard(writer, epoch, clustering, images, 1 - images)  # digits black on white
        return clustering.predict(images).cpu().numpy()


@contextmanager
def evaluating(net: nn.Module) -> Iterator[None]:
    """Switch to evaluation mode; afterwards restore the mode of each module, because frozen ones may differ."""
    modes = {module: module.training for module in net.modules()}
    net.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def renumber(kmeans: KMeans, previous: np.ndarray | None) -> np.ndarray:
    """Return the order of the clusters that agrees most with the previous epoch, because k-means numbers at
    random."""
    clusters = len(kmeans.cluster_centers_)
    if previous is None:
        return np.arange(clusters)
    overlap = np.zeros((clusters, clusters))
    np.add.at(overlap, (previous, kmeans.labels_), 1)
    return linear_sum_assignment(overlap, maximize=True)[1]


def train(
    net: nn.Module,
    loader: DataLoader[tuple[Tensor, ...]],
    optimizer: torch.optim.Optimizer,
    schedule: torch.optim.lr_scheduler.LRScheduler,
    amp: bool,
) -> float:
    """Train for one epoch and return the mean loss."""
    device = next(net.parameters()).device
    losses = []
    for images, digits in loader:
        with torch.autocast(device.type, torch.bfloat16, enabled=amp):
            loss = F.cross_entropy(net(images.to(device)), digits.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.detach())
    return float(torch.stack(losses).mean())


@torch.no_grad()
def accuracy(net: nn.Module, images: Tensor, digits: Tensor) -> float:
    """Return the share of images that the network classifies correctly."""
    with evaluating(net):
        correct = net(images).argmax(dim=1).cpu() == digits
    return float(correct.float().mean())


def purity(labels: np.ndarray, digits: np.ndarray) -> float:
    """Return the share of images that show the most frequent digit of their cluster."""
    return float(contingency_matrix(digits, labels).max(axis=0).sum() / len(digits))


def main(
    epochs: Annotated[int, typer.Option(min=1)] = 3,
    clusters: Annotated[int, typer.Option(min=2)] = 10,
    layer: Annotated[str, typer.Option(help="Whose features are clustered.")] = "features.block3",
    train_images: Annotated[int, typer.Option(min=2, max=50_000, help="How many of MNIST's.")] = 10_000,
    batch_size: Annotated[int, typer.Option(min=2)] = 128,
    device: Annotated[str, typer.Option()] = "cuda" if torch.cuda.is_available() else "cpu",
    amp: Annotated[bool, typer.Option("--amp", help="Train with autocast to bfloat16.")] = False,
    data_parallel: Annotated[bool, typer.Option("--data-parallel", help="Train on all GPUs.")] = False,
    out: Annotated[Path | None, typer.Option(help="For TensorBoard; default: a new folder in runs/.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A few hundred images, to see that it runs.")] = False,
    seed: Annotated[int, typer.Option()] = 0,
) -> None:
    """Train a small VGG on MNIST and explain the clusters of its features after every epoch."""
    torch.manual_seed(seed)
    train_images, held_out, width = (384, 256, 8) if quick else (train_images, 1000, 32)
    loader = DataLoader(
        TensorDataset(*(tensor[:train_images] for tensor in load_mnist("train"))), batch_size, shuffle=True
    )
    images, digits = (tensor[:held_out] for tensor in load_mnist("test"))
    images = images.to(device)
    net: nn.Module = vgg_small(width=width).to(device)
    if data_parallel:
        net = nn.DataParallel(net)
    optimizer = torch.optim.AdamW(net.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=epochs * len(loader))

    labels = None
    with SummaryWriter(out) as writer:
        for epoch in range(epochs + 1):  # epoch 0 is before any training
            if epoch:
                writer.add_scalar("loss", train(net, loader, optimizer, schedule, amp), epoch)
            labels = explain(writer, net, images, epoch, layer, clusters, previous=labels)
            quality = {
                "accuracy": accuracy(net, images, digits),
                "purity": purity(labels, digits.numpy()),
                "adjusted_rand_index": adjusted_rand_score(digits.numpy(), labels),
            }
            for name, value in quality.items():
                writer.add_scalar(f"quality/{name}", value, epoch)
            typer.echo(f"epoch {epoch}: " + ", ".join(f"{name} {value:.3f}" for name, value in quality.items()))
    typer.echo(f"tensorboard --logdir {writer.log_dir}")


if __name__ == "__main__":
    typer.run(main)
