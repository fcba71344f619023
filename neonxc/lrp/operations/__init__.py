"""What the engine does at every operation of a forward pass, by kind."""

from neonxc.lrp.operations import activations, attention, linear, norms, products
from neonxc.lrp.operations.registry import HANDLERS, Handler

__all__ = ["HANDLERS", "Handler", "activations", "attention", "linear", "norms", "products"]
