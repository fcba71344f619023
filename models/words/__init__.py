"""Word vectors: texts are represented by the mean of their word vectors."""

from __future__ import annotations

from . import carrier
from .sentences import SentenceEncoder
from .vectors import WordVectors

__all__ = ["SentenceEncoder", "WordVectors", "carrier"]
