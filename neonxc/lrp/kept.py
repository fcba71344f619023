"""Values that a network keeps of a traced forward pass: without the graph that leads to its input.

A network that keeps its features, or a hook that collects them, gets tensors that require gradients, although
those of a prediction do not. They can't be copied, and keep the memory of the whole pass. The search follows the
attributes of all modules: through containers, objects, and what hooks hold, but not into other modules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FunctionType, MethodType
from typing import Any

from torch import Tensor, nn

DEPTH = 5  # of containers within containers
ATOMS = (type(None), bool, int, float, str)  # most attributes of modules


def release_graph(module: nn.Module, in_place_of: Callable[[Tensor], Tensor]) -> None:
    """Replace the tensors of a pass that a network or its hooks keep.

    Parameters
    ----------
    module : nn.Module
    in_place_of : callable
        Returns what is kept in place of a tensor; the tensor itself if it is none of the pass.
    """
    visited: set[int] = set()
    for inner in module.modules():
        visited.add(id(inner))
        attributes = vars(inner)
        for name, value in list(attributes.items()):
            if name in ("_parameters", "_modules"):
                continue
            new = _replaced(value, in_place_of, visited, DEPTH)
            if new is not value:
                attributes[name] = new


@contextmanager
def without_graph(module: nn.Module) -> Iterator[None]:
    """Context after which a network keeps no value with the graph of a pass through it in the context.

    What it has kept before, such as features of a training of its own, stays as it is.
    """
    before: list[Tensor] = []

    def remembered(tensor: Tensor) -> Tensor:
        before.append(tensor)  # the tensors themselves, as the number of one that is gone may be given to another
        return tensor

    release_graph(module, remembered)
    known = {id(tensor) for tensor in before}

    def detached(tensor: Tensor) -> Tensor:
        return tensor.detach() if tensor.requires_grad and id(tensor) not in known else tensor

    try:
        yield
    finally:
        release_graph(module, detached)


def _replaced(value: object, in_place_of: Callable[[Tensor], Tensor], visited: set[int], depth: int) -> object:
    """Return a value with other tensors inside of it; containers that can be changed are changed in place."""
    is_empty = isinstance(value, (dict, list, tuple)) and not value
    if is_empty or isinstance(value, ATOMS):
        return value
    if isinstance(value, Tensor):
        return in_place_of(value)
    if depth == 0 or id(value) in visited:
        return value
    if type(value) is tuple:  # one that holds no tensor of the pass stays as it is
        items = [_replaced(item, in_place_of, visited, depth - 1) for item in value]
        is_same = all(new is old for new, old in zip(items, value, strict=True))
        return value if is_same else tuple(items)
    container = _container(value)
    for key, item in _items(container):
        visited.add(id(value))
        new = _replaced(item, in_place_of, visited, depth - 1)
        if new is not item:
            container[key] = new
    return value


def _container(value: object) -> Any:
    """Return the dict or list of what a value holds: itself, its attributes, or what a hook refers to."""
    if isinstance(value, (dict, list)):
        return value
    if isinstance(value, partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, MethodType):
        return [value.__self__]
    if _is_ours(value):  # such hooks look at a layer while it is explained
        return None
    if isinstance(value, FunctionType):
        return _closure(value)
    if hasattr(value, "__dict__") and not isinstance(value, (type, nn.Module)):
        return vars(value)
    return None


def _items(container: dict[Any, object] | list[object] | None) -> list[tuple[Any, object]]:
    """Return the keys or positions of a container with its items, in a list, as the container may change."""
    if isinstance(container, dict):
        return list(container.items())
    return list(enumerate(container or []))


def _closure(hook: FunctionType) -> list[object]:
    """Return the objects of a function's closure, which it may write to."""
    contents = []
    for cell in hook.__closure__ or ():
        try:
            contents.append(cell.cell_contents)
        except ValueError:  # it is empty
            continue
    return contents


def _is_ours(value: object) -> bool:
    """Whether the class or function of a value is of this package, PyTorch or Python itself."""
    module = getattr(value, "__module__", None) or ""
    return isinstance(module, str) and module.partition(".")[0] in ("neonxc", "torch", "builtins")
