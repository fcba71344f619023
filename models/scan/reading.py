"""Images come as arrays, tensors, datasets or loaders; all are read as batches of one shape."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from neonxc.inputs import as_batch


def is_loaded(X: Any) -> bool:
    """Whether images come in batches from elsewhere, not as one array."""
    array_like = isinstance(X, (Tensor, np.ndarray, list, tuple, str)) or hasattr(X, "__array__")
    return isinstance(X, Dataset) or (not array_like and hasattr(X, "__iter__"))


def read_batches(X: Any, batch_size: int, shape: tuple[int, ...] | None = None) -> Iterator[Tensor]:
    """Read images batch by batch; an array is one batch.

    Parameters
    ----------
    X : array or Tensor [N, C, H, W], Dataset of images, DataLoader or other iterable of batches
        Images of a dataset and batches of a loader may be the first entries of tuples.
    batch_size : int
        Of datasets; a loader has its own.
    shape : tuple (C, H, W), optional
        That images must have; default: that of the first batch.

    Yields
    ------
    Tensor [B, C, H, W]
        Floating, finite, B >= 1, on the device where it was.

    Raises
    ------
    ValueError
        No images, or of other shapes, or values that are not finite.
    TypeError
        A loader whose batches are no tensors.
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


def read_all(X: Any, batch_size: int, dtype: torch.dtype) -> Tensor:
    """Read all images [n, C, H, W] at once, in `dtype`; parameters and errors of `read_batches`."""
    batches = [batch.to(dtype) for batch in read_batches(X, batch_size)]
    return batches[0] if len(batches) == 1 else torch.cat(batches)  # one array need not be copied


def like_input(X: Any) -> Callable[[Tensor], Any]:
    """How a result goes back: an array for arrays, a tensor on the device of tensors, on the CPU for loaders."""
    if isinstance(X, Tensor):
        return lambda result: result.to(X.device)
    if is_loaded(X):
        return lambda result: result.cpu()
    return lambda result: result.cpu().numpy()
