"""The place, before version 0.4, of names that are now in :mod:`neonxc.trees.cuts.search`."""

from neonxc.common.warnings import moved
from neonxc.trees.cuts import search

__getattr__ = moved(__name__, search)
