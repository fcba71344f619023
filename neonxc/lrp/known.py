"""What one forward pass knows of tensors, in a table beside them: nothing is attached to a tensor."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from neonxc.lrp.layer import Recorded

Owner = tuple[str, nn.Module]


@dataclass(frozen=True)
class Held:
    """Where a nonlinear function without a rule was called: its value may serve as a gate, and as nothing else."""

    name: str
    place: str


@dataclass
class Fact:
    """What is known of one tensor."""

    tensor: weakref.ref[Tensor] | None = None
    version: int = -1  # of a value that the watch gave; another one has been written by what it can't see
    layer: Recorded | None = None  # the linear layer that gave it
    held: Held | None = None
    pixels: bool = False  # the network's input, possibly normalised
    owner: Owner | None = None  # the module whose parameter or buffer it is, or was computed from
    now: Tensor | None = None  # its new value, if the network has modified it in place


class Known:
    """The facts of one forward pass by tensor, each as long as its tensor lives.

    It is asked many times at every operation, for which PyTorch's ``WeakTensorKeyDictionary`` is too slow.
    """

    def __init__(self, leaf: Tensor) -> None:
        self.written = False  # whether any tensor was modified in place
        self._leaf = leaf
        self._facts: dict[int, Fact] = {}
        self._nothing = Fact()
        self.note(leaf, version=leaf._version, pixels=True)

    def __getitem__(self, tensor: Tensor) -> Fact:
        return self._facts.get(id(tensor), self._nothing)

    def note(self, tensor: Tensor, **facts: Any) -> None:
        """Add to what is known of a tensor."""
        key = id(tensor)
        if key not in self._facts:
            known = weakref.ref(self)  # or the table would keep itself alive
            self._facts[key] = Fact(
                weakref.ref(tensor, lambda _: (table := known()) and table._facts.pop(key, None))
            )
        for name, value in facts.items():
            setattr(self._facts[key], name, value)

    def derive(self, value: Any, sources: Iterable[Tensor]) -> Any:
        """Let a constant that was computed from a module's parameters count as that module's."""
        owner = next((owner for source in sources if (owner := self[source].owner)), None)
        if owner is not None and isinstance(value, Tensor) and self[value].owner is None:
            self.note(value, owner=owner)
        return value

    def varies(self, value: Any) -> bool:
        """Whether a value is another one for another input of the network, be it as a gate."""
        return isinstance(value, Tensor) and (value.requires_grad or self[value].held is not None)

    def came_by(self, value: Tensor) -> bool:
        """Whether the watch gave this value.

        TorchScript, an ``autograd.Function`` and C++ compute without the watch being called.
        """
        version = self[value].version
        return version >= 0 and version == value._version

    def comes_from_input(self, value: Tensor) -> bool:
        """Whether autograd's graph leads from a value to the network's input."""
        visited: set[Any] = {None}
        stack: list[Any] = [value.grad_fn]
        while stack:
            node = stack.pop()
            if getattr(node, "variable", None) is self._leaf:
                return True
            if node not in visited:
                visited.add(node)
                stack += [parent for parent, _ in node.next_functions]
        return False


def tensors(values: Any) -> list[Tensor]:
    """All tensors in nested arguments or results."""
    return [value for value in tree_leaves(values) if isinstance(value, Tensor)]


def dependent(values: Any) -> list[Tensor]:
    """Those of them that relevance can reach: constants require no gradients while a network is watched."""
    return [value for value in tensors(values) if value.requires_grad]
