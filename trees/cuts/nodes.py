"""The place, before version 0.4, of names that are now in :mod:`neonxc.trees.cuts.growth`."""

from neonxc.common.warnings import moved
from neonxc.trees.cuts import growth

__getattr__ = moved(__name__, growth)
