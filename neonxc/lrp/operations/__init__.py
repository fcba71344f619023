"""The LRP backward passes of PyTorch's operations, by kind; importing this package fills the table."""

from neonxc.lrp.operations import affine, composed, linear, passing

__all__ = ["affine", "composed", "linear", "passing"]
