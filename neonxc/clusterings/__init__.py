"""Readers of fitted clusterers: each makes the head of a family of models, and is registered with :func:`read`."""

from neonxc.clusterings.model import ClusterModel, SameCenters, read

__all__ = ["ClusterModel", "SameCenters", "read"]
