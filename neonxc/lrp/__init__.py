"""Layer-wise relevance propagation through any PyTorch network, as a modified backward pass."""

from neonxc.lrp.composites import Composite
from neonxc.lrp.engine import LRP, Recording
from neonxc.lrp.rules import Epsilon, Gamma, LinearLayer, Rule
from neonxc.lrp.watch import UnsupportedOperation

__all__ = ["LRP", "Composite", "Epsilon", "Gamma", "LinearLayer", "Recording", "Rule", "UnsupportedOperation"]
