"""Cluster and explain rows that are distributed over several processes.

    torchrun --nproc-per-node 2 examples/distributed.py --quick
    torchrun --nnodes 4 --nproc-per-node 8 ... examples/distributed.py --rows 2000000

Every process makes rows of its own. Together, the processes fit k-means and a threshold tree; the first process
summarizes the clusters of its own rows. With --quick, it also fits the tree to all rows by itself and checks that
it is the same tree.
"""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Annotated

import numpy as np
import torch
import torch.distributed as dist
import typer

import neonxc
from neonxc.models import KernelKMeans
from neonxc.trees import ExShallow

K = 6
D = 8


def rows_of(rank: int, n: int) -> np.ndarray:
    """Make the rows [n, 8] of one process: the centers are the same in every process, the points are not."""
    centers = np.random.default_rng(0).normal(size=(K, D)) * 4
    own = np.random.default_rng([1, rank])
    return (centers[own.integers(0, K, n)] + own.normal(size=(n, D))).astype(np.float32)


def main(
    rows: Annotated[int, typer.Option(help="Rows of every process.")] = 200_000,
    quick: Annotated[bool, typer.Option(help="Few rows, and a check against one process.")] = False,
) -> None:
    """Run the example in the processes that torchrun has started."""
    nccl = torch.cuda.is_available()
    dist.init_process_group("nccl" if nccl else "gloo", timeout=timedelta(minutes=10))
    group = dist.group.WORLD
    rank = dist.get_rank()
    size = dist.get_world_size()
    n = 2000 if quick else rows
    device = torch.device("cuda", rank % torch.cuda.device_count()) if nccl else torch.device("cpu")
    X = torch.from_numpy(rows_of(rank, n)).to(device)

    def say(text: str) -> None:
        if rank == 0:
            print(text, flush=True)

    start = time.perf_counter()
    model = KernelKMeans(K, n_support=1, n_init=4, random_state=0).fit(X, group=group)
    centers = torch.as_tensor(model.support_vectors_, dtype=torch.float64)
    say(f"k-means of {size} x {n} rows: {time.perf_counter() - start:.1f} s")

    start = time.perf_counter()
    tree = ExShallow(max_bins=256).fit(X, centers=centers, group=group)
    spent = time.perf_counter() - start
    price = tree.tree_.cost_ratio
    say(f"tree: {spent:.1f} s, {price:.3f} times the cost of k-means\n{tree.tree_}")
    say(tree.tree_.rules().to_text())
    if quick and rank == 0:
        alone = ExShallow(max_bins=256).fit(np.concatenate([rows_of(r, n) for r in range(size)]), centers=centers)
        same = torch.equal(alone.tree_.threshold.nan_to_num(), tree.tree_.threshold.nan_to_num())
        say(f"one process with all rows grows the same tree: {same}")

    net = neonxc.neuralize(model).to(device).calibrate(X, group=group)
    if rank == 0:
        say(str(neonxc.NEON(net).summary(X)))
    dist.destroy_process_group()


if __name__ == "__main__":
    typer.run(main)
