"""Readers of fitted clusterers: each makes the head of a family of models, and is registered with :func:`read`."""

from __future__ import annotations

from neonxc.clusterings import centers, mixtures, modules
from neonxc.clusterings.model import ClusterModel, SameCenters, read

__all__ = ["ClusterModel", "SameCenters", "centers", "mixtures", "modules", "read"]
