"""Reads images from arrays, tensors, datasets and loaders as batches of the same shape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from neonxc.data.table import Table


def is_loaded(X: Any) -> bool:
    """Whether X is a dataset or a loader, and not an array of images."""
    array_like = isinstance(X, (list, tuple, str)) or hasattr(X, "__array__")
    return isinstance(X, Dataset) or (not array_like and hasattr(X, "__iter__"))


def read_batches(X: Any, batch_size: int, shape: tuple[int, ...] | None = None) -> Iterator[Tensor]:
    """Yield batches of finite floating-point images [B, C, H, W] on their device; an array is a single batch.

    The items of a dataset and the batches of a loader may be tuples that begin with images. `batch_size` is used
    for datasets. `shape` (C, H, W) is the required shape of the images; by default, that of the first batch.
    """
    loaded, images = is_loaded(X), None
    for batch in DataLoader(X, batch_size) if isinstance(X, Dataset) else X if loaded else [X]:
        images = batch[0] if loaded and isinstance(batch, (tuple, list)) else batch
        if loaded and not isinstance(images, (Tensor, np.ndarray)):
            got = type(images).__name__
            raise TypeError(
                f"X as a loader needs to return images as tensors, or tuples that begin with them; got {got}"
            )
        images = Table.read(images).tensor
        if images.ndim != 4:
            raise ValueError(f"X needs images [N, C, H, W], got shape {list(images.shape)}")
        shape = tuple(images.shape[1:]) if shape is None else shape
        if tuple(images.shape[1:]) != shape:
            raise ValueError(f"X needs images of shape {list(shape)}, got {list(images.shape[1:])}")
        yield images
    if images is None:
        raise ValueError("X is empty: the loader has no batches")
