"""How clusters and noise are called in texts; imports nothing that takes long."""

from __future__ import annotations

import numpy as np

NOISE = -1
"""The label of noise points in density-based clusterings."""


def is_noise(label: object) -> bool:
    """Whether a label is that of noise, -1 as a number."""
    return isinstance(label, int | np.integer) and not isinstance(label, bool) and int(label) == NOISE


def label_text(label: object) -> str:
    """Write a label in a text: that of noise is "noise"."""
    return "noise" if is_noise(label) else str(label)


def cluster_text(label: object) -> str:
    """Write a cluster in a text: ``"cluster 2"``, ``"noise"``."""
    return "noise" if is_noise(label) else f"cluster {label}"
