"""Threshold-tree explainers: each describes a whole clustering by a few readable rules."""

from neonxc.rules import Column, Condition, Rule, Rules, render_rules
from neonxc.trees import reader
from neonxc.trees.baselines.random_thresholds import RandomThresholds
from neonxc.trees.baselines.tradeoff import Candidate, TradeOff, trade_off
from neonxc.trees.baselines.unsupervised import CUBT, CLTree
from neonxc.trees.drawing.drawing import export_graphviz, export_text, plot_tree
from neonxc.trees.estimator import TreeExplainer
from neonxc.trees.explainers.center_based import EMN, IMM, ExGreedy, ExShallow
from neonxc.trees.explainers.expanding import CART, ExKMC, KDTree
from neonxc.trees.explainers.spex import SpExClique, SpExGraph, SpExKNN
from neonxc.trees.fitted.tree import ThresholdTree
from neonxc.trees.kernels.explainers import KernelExKMC, KernelExpand, KernelIMM
from neonxc.trees.saving import register_explainer

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
    "reader",
    "render_rules",
    "trade_off",
]

for _exported in [globals()[name] for name in __all__]:
    if isinstance(_exported, type) and issubclass(_exported, TreeExplainer):
        register_explainer(_exported)
