"""Heads: a cluster decision as detection and a (soft) minimum over competitors."""

from __future__ import annotations

from neonxc.heads.base import DetectionHead, Head
from neonxc.heads.centroids import CentroidHead
from neonxc.heads.hierarchy import HierarchyHead
from neonxc.heads.linear import LinearHead
from neonxc.heads.mixture import MixtureHead

__all__ = ["CentroidHead", "DetectionHead", "Head", "HierarchyHead", "LinearHead", "MixtureHead"]
