"""Kernel IMM, Kernel ExKMC and Kernel Expand side by side, on small tables and on 10,000 points."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from sklearn.datasets import make_blobs
from spex_references import kernel_reference

from neonxc.evaluation import label_agreement
from neonxc.models import KernelKMeans
from neonxc.trees import KernelExKMC, KernelExpand, KernelIMM
from neonxc.trees.fit.kernel_features import feature_space_distances

TREES = {"Kernel IMM": KernelIMM, "Kernel ExKMC": KernelExKMC, "Kernel Expand": KernelExpand}


def blobs(n: int = 10_000) -> Dataset:
    """Draw ten overlapping Gaussian clusters in 16 columns."""
    X, y = make_blobs(n, n_features=16, centers=10, cluster_std=5, random_state=0)
    return Dataset(f"{n:,} points", X, 10, y)


def kernel_cost(X: np.ndarray, labels: np.ndarray, kernel: str, gamma: float) -> float:
    """Return the sum of the squared distances of points to the mean of their cluster in feature space."""
    own = torch.from_numpy(np.unique(labels, return_inverse=True)[1])
    far = feature_space_distances(torch.from_numpy(X), own, int(own.max()) + 1, kernel, gamma)
    return float(far.gather(1, own[:, None]).sum())


def compared(data: Dataset, kernel: str, gamma: float, labels: np.ndarray) -> list[dict[str, Any]]:
    """Compute a record of each tree for one kernel clustering."""
    least = kernel_cost(data.X, labels, kernel, gamma)
    records = []
    for name, explainer in TREES.items():
        start = time.perf_counter()
        model = explainer(data.k, kernel=kernel, gamma=gamma).fit(data.X, labels=labels)
        seconds = time.perf_counter() - start
        records.append(
            {
                "dataset": data.name,
                "kernel": kernel,
                "gamma": gamma,
                "tree": name,
                "leaves": model.tree_.n_leaves,
                "cost": kernel_cost(data.X, model.labels_, kernel, gamma) / least,
                "ref": label_agreement(model.labels_, labels)["ari"],
                "reference ari": label_agreement(labels, data.y)["ari"],
                "ari": label_agreement(model.labels_, data.y)["ari"],
                "seconds": seconds,
            }
        )
    return records


def kernel_trees(datasets: list[Dataset], n: int) -> list[dict[str, Any]]:
    """Compute records of small tables, with the paper's clusterings, and of n points."""
    records = [record for data in datasets for record in compared(data, *kernel_reference(data))]
    many = blobs(n)
    model = KernelKMeans(many.k, objective="feature", n_init=4, random_state=0)
    model.fit(many.X[:2000])  # the matrix of all kernels would have n² entries
    return records + compared(many, "gaussian", model.gamma_, model.predict(many.X))
