"""Threshold-tree explainers: each describes a whole clustering by a few readable rules."""

from neonxc.rules import Column, Condition, Rule, Rules, render_rules
from neonxc.trees import to_network as to_network  # registers how `neuralize` reads a tree
from neonxc.trees.drawing.drawing import export_graphviz, export_text, plot_tree
from neonxc.trees.estimator import TreeExplainer
from neonxc.trees.explainers.center_based import EMN, IMM, ExGreedy, ExShallow
from neonxc.trees.explainers.expanding import CART, ExKMC, KDTree
from neonxc.trees.explainers.kernel import KernelExKMC, KernelExpand, KernelIMM
from neonxc.trees.explainers.random_thresholds import RandomThresholds
from neonxc.trees.explainers.spex import SpExClique, SpExGraph, SpExKNN
from neonxc.trees.explainers.unsupervised import CUBT, CLTree
from neonxc.trees.saving import register_explainer
from neonxc.trees.tradeoff import Candidate, TradeOff, trade_off
from neonxc.trees.tree import ThresholdTree

__all__ = [
    "CART",
    "CUBT",
    "EMN",
    "IMM",
    "CLTree",
    "Candidate",
    "Column",
    "Condition",
    "ExGreedy",
    "ExKMC",
    "ExShallow",
    "KDTree",
    "KernelExKMC",
    "KernelExpand",
    "KernelIMM",
    "RandomThresholds",
    "Rule",
    "Rules",
    "SpExClique",
    "SpExGraph",
    "SpExKNN",
    "ThresholdTree",
    "TradeOff",
    "export_graphviz",
    "export_text",
    "plot_tree",
    "render_rules",
    "trade_off",
]

for _exported in [globals()[name] for name in __all__]:
    if isinstance(_exported, type) and issubclass(_exported, TreeExplainer):
        register_explainer(_exported)
