"""Threshold-tree explainers: a whole clustering as a few readable rules."""

from neonxc.trees.explainers import EMN, IMM, ExGreedy, ExShallow
from neonxc.trees.tree import ThresholdTree

__all__ = ["EMN", "IMM", "ExGreedy", "ExShallow", "ThresholdTree"]
