"""Texts as means of word vectors."""

from __future__ import annotations

from . import carrier
from .vectors import WordVectors

__all__ = ["WordVectors", "carrier"]
