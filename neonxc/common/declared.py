"""Sizes that a saved file declares: they are compared with the bytes that it holds before memory is taken.

A file of n bytes may ask for 64 MiB + 64 n bytes. What :func:`neonxc.save` writes needs less: names that are
repeated are stored once, with 8 bytes per row, and a network is as large as its weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor, nn

ALLOWANCE = 1 << 26
"""Bytes that every file may ask for."""
RATIO = 64
"""Further bytes that a file may ask for per byte that it holds."""
NUMBER = 8
"""Bytes of a number."""
SIZES = frozenset({"columns", "k", "n_groups", "n_features", "n_features_in_"})
"""Names of plain values that are sizes of tensors."""


def check_bytes(needed: int, held: int, name: str) -> None:
    """Raise a ValueError if an object needs far more bytes than the file holds for it; the message names it."""
    if needed > ALLOWANCE + RATIO * held:
        raise ValueError(f"{name} would take {needed:,} bytes of memory, and the file holds {held:,} for it")


def bytes_of(values: Mapping[str, Any]) -> int:
    """Return the number of bytes of those values that are tensors."""
    tensors = [value for value in values.values() if isinstance(value, Tensor)]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def check_sizes(values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Raise a ValueError if a plain value of a file, or a dimension of a tensor, is too large for the file.

    The dimensions are checked on their own, as a tensor of shape [0, 1000000000] has no bytes.
    """
    held = bytes_of(tensors)
    for name, size in values.items():
        if name in SIZES and isinstance(size, int):
            check_bytes(size * NUMBER, held, f"{name}={size}")
    for name, tensor in tensors.items():
        largest = max(tensor.shape, default=0)
        check_bytes(largest * NUMBER, held, f"{name} of shape {[*tensor.shape]}")


def check_weights(network: nn.Module, saved: Mapping[str, Any]) -> None:
    """Raise a ValueError unless a network on the device "meta" has the saved weights, by names and shapes.

    Buffers that are not saved, such as masks, count as memory that the file asks for.
    """
    declared = _shapes(network.state_dict())
    held = _shapes(saved)
    different = [name for name in sorted({*declared, *held}) if declared.get(name) != held.get(name)]
    if different:
        name = different[0]
        raise ValueError(
            f"its network has weights {name!r} of shape {declared.get(name)}, and the file those of shape "
            f"{held.get(name)}"
        )
    buffers = dict(network.named_buffers())
    check_bytes(bytes_of(buffers), bytes_of(saved), type(network).__name__)


def _shapes(values: Mapping[str, Any]) -> dict[str, list[int]]:
    """Return the shapes of those values that are tensors, by name."""
    return {name: [*value.shape] for name, value in values.items() if isinstance(value, Tensor)}


def check_kind(dtype: np.dtype[Any], shape: tuple[int, ...], levels: list[Any] | None, held: int) -> None:
    """Raise a ValueError unless an array has a type of numbers or, if it has `levels`, of names."""
    kinds = "biuf" if levels is None else "OU"
    if dtype.kind not in kinds:
        raise ValueError(f"an array of type {dtype} holds neither numbers nor names")
    n_items = int(np.prod(shape, dtype=object)) + len(levels or [])
    check_bytes(n_items * dtype.itemsize, held, f"an array of type {dtype}")
