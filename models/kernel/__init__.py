"""Kernel k-means: clusters of any shape, each represented by support vectors."""

from __future__ import annotations

from . import reader
from .estimator import KernelKMeans

__all__ = ["KernelKMeans", "reader"]
