"""Interpretable clustering: k-center, and clusters in which most or all points share a value of interest."""

from __future__ import annotations

from . import reader
from .beta import BetaInterpretable
from .kcenter import KCenter
from .patterns import patterns
from .strong import StronglyInterpretable

__all__ = ["BetaInterpretable", "KCenter", "StronglyInterpretable", "patterns", "reader"]
