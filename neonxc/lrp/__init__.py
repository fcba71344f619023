"""Layer-wise relevance propagation (LRP) through any PyTorch network, as a modified backward pass."""

from neonxc.lrp import presets
from neonxc.lrp.composites import Composite, Constant, FunctionRule, Pass, Place
from neonxc.lrp.engine import LRP, Recording
from neonxc.lrp.layer import LinearLayer, PropagationRule
from neonxc.lrp.layer_names import UnsupportedOperation
from neonxc.lrp.rules import AlphaBeta, Epsilon, Flat, Gamma, WSquare, ZBox, ZPlus

Rule = PropagationRule
"""The interface of propagation rules for linear layers: callables ``rule(layer, x, y, m)``.

A rule gets a :class:`LinearLayer`, its input x, its output y with the bias, and the multiplier at the output,
relevance / y. It returns the multiplier at the input, relevance / x, with the shape of x.

A rule that assigns relevance to inputs that are zero needs an attribute ``reaches_zeros = True``: rules then get
tiny values in place of zeros, so that the multiplier exists. The network itself goes on with the zeros.
"""

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
