"""The LRP backward passes of PyTorch's operations, by kind; importing this package fills the table."""

from neonxc.lrp.operations import activations, attention, linear, norms, plain, products

__all__ = ["activations", "attention", "linear", "norms", "plain", "products"]
