"""SCAN, a network that learns to cluster images so that nearest neighbors are in the same cluster."""

from __future__ import annotations

from . import reader, stored
from .augment import RandomWarp
from .estimator import SCAN

__all__ = ["SCAN", "RandomWarp", "reader", "stored"]
