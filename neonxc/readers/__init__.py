"""Readers: convert fitted clusterers to heads. There is one file per family, and :func:`read` dispatches to
them.
"""

from __future__ import annotations

from neonxc.readers import centers, hierarchy, mixtures, modules
from neonxc.readers.model import ClusterModel, SameCenters, read

__all__ = ["ClusterModel", "SameCenters", "centers", "hierarchy", "mixtures", "modules", "read"]
