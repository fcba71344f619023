"""Texts as means of word vectors."""

from __future__ import annotations

from .summary import word_summary
from .vectors import WordVectors

__all__ = ["WordVectors", "word_summary"]
