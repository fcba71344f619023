"""Word vectors: texts are represented by the mean of their word vectors."""

from __future__ import annotations

from . import carrier
from .vectors import WordVectors

__all__ = ["WordVectors", "carrier"]
