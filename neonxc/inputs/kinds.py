"""Which inputs a network has, by its feature network or encoding."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from typing import Any

from neonxc.data.table import Table
from neonxc.head.head import Head
from neonxc.inputs.backbone import Backbone
from neonxc.inputs.base import Inputs
from neonxc.inputs.columns import Columns
from neonxc.inputs.encoded import Encoded
from neonxc.pipelines.encoding import Encoding


@singledispatch
def make_inputs(features: Any, head: Head | None = None, names: Sequence[str] | None = None) -> Inputs:
    """Return the inputs of a network with these features; register a class for features of another kind.

    Parameters
    ----------
    features : nn.Module, Encoding, Terms or None
        What stands before the head.
    head : Head, optional
        The head; inputs without one can only be read and run.
    names : sequence of str, optional
        Names of the head's columns.
    """
    return Backbone(head, names, features)


make_inputs.register(type(None), lambda _, head=None, names=None: Columns(head, names))
make_inputs.register(Encoding, lambda encoding, head=None, names=None: Encoded(head, names, encoding))


class Tensors(Inputs):
    """Inputs of a network that is no clustering: arrays, frames and tensors, as they are."""

    absent = "zero"

    def read(self, X: Any) -> Table:
        """Check inputs."""
        return Table.read(X)


def inputs_of(net: Any) -> Inputs:
    """Return the inputs of any network: its own, or tensors."""
    inputs = getattr(net, "inputs", None)
    return inputs if isinstance(inputs, Inputs) else Tensors()
