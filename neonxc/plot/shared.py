"""The colours of positive and negative relevance, and the conversion of arguments to arrays."""

from __future__ import annotations

import numpy as np

FOR = "#b2182b"
AGAINST = "#2166ac"


def as_array(value: object) -> np.ndarray:
    """Convert an array, a data frame, a tensor of any type on any device, or nested sequences of them to an array.

    It has float64, as half precision and integers are too coarse to be summed and blurred. Bytes, as photos have
    them, stay bytes, and masked entries become NaN.
    """
    if hasattr(value, "detach"):  # a tensor; PyTorch is not imported for arrays
        tensor = value.detach().cpu()
        if tensor.is_floating_point():
            tensor = tensor.double()  # NumPy does not know all types of floats
        value = tensor
    if isinstance(value, list | tuple):
        value = [as_array(entry) for entry in value]
    array = np.asanyarray(value)
    if array.dtype == np.uint8:
        return array
    return np.ma.filled(array.astype(np.float64), np.nan)


def check_finite(values: np.ndarray, name: str) -> None:
    """Raise a ValueError unless every value is finite."""
    if not np.isfinite(values).all():
        raise ValueError(f"{name} has values that are not finite")
