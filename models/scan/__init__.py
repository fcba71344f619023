"""SCAN: a network learns to cluster images, from what their neighbours have in common."""

from __future__ import annotations

from . import reader, stored
from .augment import RandomWarp
from .estimator import SCAN

__all__ = ["SCAN", "RandomWarp", "reader", "stored"]
