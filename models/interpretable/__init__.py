"""Clusters that people can name: k-center, and clusterings by values of interest."""

from __future__ import annotations

from . import reader, stored
from .beta import BetaInterpretable
from .kcenter import KCenter
from .patterns import patterns
from .strong import StronglyInterpretable

__all__ = ["BetaInterpretable", "KCenter", "StronglyInterpretable", "patterns", "reader", "stored"]
