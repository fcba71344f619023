"""The colours of positive and negative relevance, and the conversion of arguments to arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

FOR, AGAINST = "#b2182b", "#2166ac"


def as_array(value: Any) -> np.ndarray:
    """Convert an array, a data frame, a tensor on any device, or nested sequences to an array."""
    return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)


def check_finite(values: np.ndarray, name: str) -> None:
    """Raise a ValueError unless every value is finite."""
    if not np.isfinite(values).all():
        raise ValueError(f"{name} has values that are not finite")
