"""Values that a network keeps of a traced forward pass: without the graph that leads to its input.

A network that keeps its features, or a hook that collects them, gets tensors that require gradients, although
those of a prediction do not. They can't be copied, and keep the memory of the whole pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FunctionType, MethodType
from typing import Any

from torch import Tensor, nn

DEPTH = 5  # of containers within containers


def let_go(module: nn.Module, in_place_of: Callable[[Tensor], Tensor]) -> None:
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
        for name, value in list(vars(inner).items()):
            if name not in ("_parameters", "_modules"):
                new = _replaced(value, in_place_of, visited, DEPTH)
                if new is not value:
                    vars(inner)[name] = new


@contextmanager
def without_graph(module: nn.Module) -> Iterator[None]:
    """Context after which a network keeps no value with the graph of a pass through it in the context.

    What it has kept before, such as features of a training of its own, stays as it is.
    """
    before: list[Tensor] = []

    def noted(tensor: Tensor) -> Tensor:
        before.append(tensor)  # the tensors themselves, as the number of one that is gone may be given to another
        return tensor

    let_go(module, noted)
    known = {id(tensor) for tensor in before}

    def detached(tensor: Tensor) -> Tensor:
        return tensor.detach() if tensor.requires_grad and id(tensor) not in known else tensor

    try:
        yield
    finally:
        let_go(module, detached)


def _replaced(value: Any, in_place_of: Callable[[Tensor], Tensor], visited: set[int], depth: int) -> Any:
    """Return a value with other tensors inside of it; containers that can be changed are the same as before."""
    if isinstance(value, Tensor):
        return in_place_of(value)
    if depth == 0 or id(value) in visited:
        return value
    if type(value) is tuple:  # one that holds no tensor of the pass stays as it is
        items = [_replaced(item, in_place_of, visited, depth - 1) for item in value]
        same = all(new is old for new, old in zip(items, value, strict=True))
        return value if same else tuple(items)
    for container, key, item in _items(value):
        visited.add(id(value))
        new = _replaced(item, in_place_of, visited, depth - 1)
        if new is not item:
            container[key] = new
    return value


def _items(value: Any) -> Iterator[tuple[Any, Any, Any]]:
    """What a value holds, as the container, its key, and the item."""
    if isinstance(value, dict):
        yield from ((value, key, item) for key, item in list(value.items()))
    elif isinstance(value, list):
        yield from ((value, key, item) for key, item in enumerate(list(value)))
    elif isinstance(value, (FunctionType, MethodType, partial)):
        yield from _items(_held(value))
    elif hasattr(value, "__dict__") and not isinstance(value, (type, nn.Module)) and not _is_ours(value):
        yield from ((vars(value), key, item) for key, item in list(vars(value).items()))


def _held(hook: FunctionType | MethodType | partial[Any]) -> list[Any]:
    """The objects that a hook writes to."""
    if isinstance(hook, partial):
        return [hook.func, *hook.args, *hook.keywords.values()]
    if isinstance(hook, MethodType):
        return [hook.__self__]
    if _is_ours(hook):  # which look at a layer while it is explained
        return []
    cells = []
    for cell in hook.__closure__ or ():
        try:
            cells.append(cell.cell_contents)
        except ValueError:  # it is empty
            continue
    return cells


def _is_ours(value: Any) -> bool:
    module = getattr(value, "__module__", None) or ""
    return isinstance(module, str) and module.partition(".")[0] in ("neonxc", "torch", "builtins")
