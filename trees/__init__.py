"""Threshold-tree explainers: a whole clustering as a few readable rules."""

from neonxc.trees.expanding import CART, ExKMC, KDTree
from neonxc.trees.explainers import EMN, IMM, ExGreedy, ExShallow
from neonxc.trees.tree import ThresholdTree

__all__ = ["CART", "EMN", "IMM", "ExGreedy", "ExKMC", "ExShallow", "KDTree", "ThresholdTree"]
