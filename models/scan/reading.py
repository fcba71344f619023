"""Images come as arrays, tensors, datasets or loaders; all are read as batches of one shape."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from neonxc.inputs import as_batch

__all__ = ["is_loaded", "like_input", "read_all", "read_batches"]


def is_loaded(X: Any) -> bool:
    """Whether images come in batches from elsewhere, not as one array."""
    array_like = isinstance(X, (Tensor, np.ndarray, list, tuple, str)) or hasattr(X, "__array__")
    return isinstance(X, (Dataset, DataLoader)) or (not array_like and hasattr(X, "__iter__"))


def read_batches(X: Any, batch_size: int, shape: tuple[int, ...] | None = None) -> Iterator[Tensor]:
    """Read images batch by batch.

    Parameters
    ----------
    X : array or Tensor [N, C, H, W], Dataset of images, DataLoader or other iterable of batches
        Images of a dataset and batches of a loader may be the first entries of tuples.
    batch_size : int
        Of arrays, tensors and datasets; a loader has its own.
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
    if not is_loaded(X):
        images = as_batch(X).tensor
        _check_shape(images, shape)
        yield from images.split(batch_size)
        return
    empty = True
    for batch in DataLoader(X, batch_size) if isinstance(X, Dataset) else X:
        images = batch[0] if isinstance(batch, (tuple, list)) else batch
        if not isinstance(images, (Tensor, np.ndarray)):
            raise TypeError(
                f"X needs a loader of images as tensors, or of tuples of them; got {type(images).__name__}"
            )
        images = as_batch(images).tensor
        _check_shape(images, shape)
        shape, empty = tuple(images.shape[1:]), False
        yield images
    if empty:
        raise ValueError("X is empty: the loader has no batches")


def read_all(X: Any, batch_size: int, dtype: torch.dtype) -> Tensor:
    """All images [n, C, H, W] at once, in `dtype`; parameters and errors of `read_batches`."""
    if not is_loaded(X):
        batch_size = sys.maxsize  # all in one, which need not be copied
    batches = [batch.to(dtype) for batch in read_batches(X, batch_size)]
    return batches[0] if len(batches) == 1 else torch.cat(batches)


def like_input(X: Any) -> Callable[[Tensor], Any]:
    """How a result goes back: an array for arrays, a tensor on the device of tensors, on the CPU for loaders."""
    if isinstance(X, Tensor):
        return lambda result: result.to(X.device)
    if is_loaded(X):
        return lambda result: result.cpu()
    return lambda result: result.cpu().numpy()


def _check_shape(images: Tensor, shape: tuple[int, ...] | None) -> None:
    if images.ndim != 4:
        raise ValueError(f"X needs images [N, C, H, W], got shape {list(images.shape)}")
    if shape is not None and tuple(images.shape[1:]) != tuple(shape):
        raise ValueError(f"X has images of shape {list(images.shape[1:])}, needed is {list(shape)}")
