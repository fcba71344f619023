"""Layer-wise relevance propagation through any PyTorch network, as a modified backward pass."""

from neonxc.lrp.composites import Composite
from neonxc.lrp.engine import LRP, Recording, UnsupportedOperation
from neonxc.lrp.rules import Epsilon, Gamma, LinearLayer, Rule

__all__ = ["LRP", "Composite", "Epsilon", "Gamma", "LinearLayer", "Recording", "Rule", "UnsupportedOperation"]
