"""What the engine does at every operation of a forward pass, by kind: importing this fills the table."""

from neonxc.lrp.operations import activations, attention, linear, norms, plain, products

__all__ = ["activations", "attention", "linear", "norms", "plain", "products"]
