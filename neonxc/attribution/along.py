"""The place, before version 0.4, of names that are now in :mod:`neonxc.attribution.paths`."""

from neonxc.attribution import paths
from neonxc.common.warnings import moved

__getattr__ = moved(__name__, paths)
