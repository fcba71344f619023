"""Images come as arrays, tensors, datasets or loaders; all are read as batches of one shape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from neonxc.inputs import as_batch


def is_loaded(X: Any) -> bool:
    """Whether images come in batches from elsewhere, not as one array."""
    array_like = isinstance(X, (Tensor, np.ndarray, list, tuple, str)) or hasattr(X, "__array__")
    return isinstance(X, Dataset) or (not array_like and hasattr(X, "__iter__"))


def read_batches(X: Any, batch_size: int, shape: tuple[int, ...] | None = None) -> Iterator[Tensor]:
    """Finite floating batches [B, C, H, W] of images, on the device where they were; an array is one batch.

    Entries of a dataset and batches of a loader may be tuples that begin with images. `batch_size` is that of
    datasets; `shape` (C, H, W) is what images must have, by default that of the first batch.
    """
    loaded, images = is_loaded(X), None
    for batch in DataLoader(X, batch_size) if isinstance(X, Dataset) else X if loaded else [X]:
        images = batch[0] if loaded and isinstance(batch, (tuple, list)) else batch
        if loaded and not isinstance(images, (Tensor, np.ndarray)):
            got = type(images).__name__
            raise TypeError(f"X needs a loader of images as tensors, or of tuples of them; got {got}")
        images = as_batch(images).tensor
        if images.ndim != 4:
            raise ValueError(f"X needs images [N, C, H, W], got shape {list(images.shape)}")
        shape = tuple(images.shape[1:]) if shape is None else shape
        if tuple(images.shape[1:]) != shape:
            raise ValueError(f"X has images of shape {list(images.shape[1:])}, needed is {list(shape)}")
        yield images
    if images is None:
        raise ValueError("X is empty: the loader has no batches")
