"""What fitted clusterers decide by: one file per family, each registered with :func:`read`."""

from __future__ import annotations

from neonxc.readers import centers, hierarchy, mixtures, modules
from neonxc.readers.model import ClusterModel, read

__all__ = ["ClusterModel", "centers", "hierarchy", "mixtures", "modules", "read"]
