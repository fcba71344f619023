"""What the watch has seen of the autograd graph, so that nothing slips past it."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_leaves


class Seen:
    """The nodes between the network's input and its output that calls of the watch have left.

    TorchScript, an ``autograd.Function`` and C++ compute without the watch being called, and the plain gradient
    would pass them silently. A value that depends on the input has to come from nodes that are known here; one
    that only has a history of its own, such as a weight computed in ``__init__``, is a constant.
    """

    def __init__(self, leaf: Tensor) -> None:
        self._leaf = leaf

    def note(self, result: Any, sources: list[Tensor]) -> None:
        """Note the nodes between what a call was given and what it gave."""
        known = {source.grad_fn for source in sources}
        stack = [value.grad_fn for value in tree_leaves(result) if isinstance(value, Tensor)]
        while stack:
            node: Any = stack.pop()
            if node is not None and node not in known and self not in node.metadata:
                node.metadata[self] = True
                stack += [parent for parent, _ in node.next_functions]

    def knows(self, value: Tensor) -> bool:
        """Whether the watch gave this value."""
        node: Any = value.grad_fn
        return value is self._leaf or (node is not None and self in node.metadata)

    def reaches_input(self, value: Tensor) -> bool:
        """Whether a value was computed from the network's input."""
        visited: set[Any] = set()
        stack: list[Any] = [value.grad_fn]
        while stack:
            node = stack.pop()
            if node is None or node in visited:
                continue
            if self in node.metadata or getattr(node, "variable", None) is self._leaf:
                return True
            visited.add(node)
            stack += [parent for parent, _ in node.next_functions]
        return False

    @staticmethod
    def maker(value: Tensor) -> str:
        """Name what a value came of that the watch did not give."""
        function = getattr(value.grad_fn, "_forward_cls", None)
        return "TorchScript or C++" if function is None else f"the autograd.Function {function.__name__!r}"
