"""SCAN, a network that learns to cluster images so that nearest neighbors are in the same cluster."""

from .augment import RandomWarp
from .estimator import SCAN

__all__ = ["SCAN", "RandomWarp"]
