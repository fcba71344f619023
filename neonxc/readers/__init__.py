"""Readers convert fitted clusterers to heads: one file per family, registered with :func:`read`."""

from __future__ import annotations

from neonxc.readers import centers, hierarchy, mixtures, modules
from neonxc.readers.model import ClusterModel, SameCenters, read

__all__ = ["ClusterModel", "SameCenters", "centers", "hierarchy", "mixtures", "modules", "read"]
