"""Threshold-tree explainers: each describes a whole clustering by a few readable rules.

The names of this module are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neonxc.common.lazy import lazy_names
from neonxc.trees import to_network as to_network  # registers how `neuralize` reads a tree
from neonxc.trees.estimator import TreeExplainer as TreeExplainer

if TYPE_CHECKING:
    from neonxc.rules import Column as Column
    from neonxc.rules import Condition as Condition
    from neonxc.rules import Rule as Rule
    from neonxc.rules import Rules as Rules
    from neonxc.rules import render_rules as render_rules
    from neonxc.trees.drawing.drawing import export_graphviz as export_graphviz
    from neonxc.trees.drawing.drawing import export_text as export_text
    from neonxc.trees.drawing.drawing import plot_tree as plot_tree
    from neonxc.trees.explainers.center_based import EMN as EMN
    from neonxc.trees.explainers.center_based import IMM as IMM
    from neonxc.trees.explainers.center_based import ExGreedy as ExGreedy
    from neonxc.trees.explainers.center_based import ExShallow as ExShallow
    from neonxc.trees.explainers.expanding import CART as CART
    from neonxc.trees.explainers.expanding import ExKMC as ExKMC
    from neonxc.trees.explainers.expanding import KDTree as KDTree
    from neonxc.trees.explainers.kernel import KernelExKMC as KernelExKMC
    from neonxc.trees.explainers.kernel import KernelExpand as KernelExpand
    from neonxc.trees.explainers.kernel import KernelIMM as KernelIMM
    from neonxc.trees.explainers.random_thresholds import RandomThresholds as RandomThresholds
    from neonxc.trees.explainers.spex import SpExClique as SpExClique
    from neonxc.trees.explainers.spex import SpExGraph as SpExGraph
    from neonxc.trees.explainers.spex import SpExKNN as SpExKNN
    from neonxc.trees.explainers.unsupervised import CUBT as CUBT
    from neonxc.trees.explainers.unsupervised import CLTree as CLTree
    from neonxc.trees.tradeoff import Candidate as Candidate
    from neonxc.trees.tradeoff import TradeOff as TradeOff
    from neonxc.trees.tradeoff import trade_off as trade_off
    from neonxc.trees.tree import ThresholdTree as ThresholdTree
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__)
