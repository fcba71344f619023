"""The place, before version 0.4, of names that are now in :mod:`neonxc.trees.cuts.histograms`."""

from neonxc.common.warnings import moved
from neonxc.trees.cuts import histograms

__getattr__ = moved(__name__, histograms)
