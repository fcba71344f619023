"""Layer-wise relevance propagation (LRP) through any PyTorch network, as a modified backward pass."""

from neonxc.lrp import presets
from neonxc.lrp.composites import Composite, Constant, FunctionRule, Pass, Place
from neonxc.lrp.engine import LRP, Recording
from neonxc.lrp.layer import LinearLayer, Rule
from neonxc.lrp.layer_names import UnsupportedOperation
from neonxc.lrp.rules import AlphaBeta, Epsilon, Flat, Gamma, WSquare, ZBox, ZPlus

__all__ = [
    "LRP",
    "AlphaBeta",
    "Composite",
    "Constant",
    "Epsilon",
    "Flat",
    "FunctionRule",
    "Gamma",
    "LinearLayer",
    "Pass",
    "Place",
    "Recording",
    "Rule",
    "UnsupportedOperation",
    "WSquare",
    "ZBox",
    "ZPlus",
    "presets",
]
