"""How many operators some code starts, and how often it waits for their results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from torch import Tensor
from torch.profiler import ProfilerActivity, profile

# Operators that only describe memory, or allocate it: on an accelerator they start no kernel.
DESCRIBING = {
    "alias", "as_strided", "chunk", "contiguous", "detach", "detach_", "diagonal", "empty", "empty_like",
    "empty_strided", "expand", "expand_as", "flatten", "lift_fresh", "movedim", "narrow", "new_empty",
    "numpy_T", "permute", "reshape", "resize_", "resolve_conj", "resolve_neg", "result_type", "select", "slice",
    "split", "split_with_sizes", "squeeze", "t", "to", "transpose", "unbind", "unflatten", "unsqueeze", "view",
    "view_as",
}  # fmt: skip
# The host reads a result, or its size: on an accelerator all that was started before has to end first.
WAITING = {"_local_scalar_dense", "bincount", "masked_select", "nonzero", "_unique2", "unique_dim"}
READING = ("tolist", "cpu", "numpy")  # methods of a tensor that the profiler does not show on the CPU


@dataclass
class Launches:
    """What a call started.

    Attributes
    ----------
    operators : Counter
        Operators that compute something, by name; what they call themselves does not count.
    waits : Counter
        Reads of values or of sizes that depend on values, by name.
    """

    operators: Counter[str] = field(default_factory=Counter)
    waits: Counter[str] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        """Operators in all."""
        return sum(self.operators.values())


def launches(run: Callable[[], Any]) -> Launches:
    """Count operators and waits of a call."""
    result = Launches()
    with _reads(result.waits), profile(activities=[ProfilerActivity.CPU]) as found:
        run()
    for event in found.events():
        name = event.name.removeprefix("aten::")
        if name == event.name:
            continue
        if name in WAITING:
            result.waits[name] += 1
        if name not in DESCRIBING and not _inside_an_operator(event):
            result.operators[name] += 1
    return result


def _inside_an_operator(event: Any) -> bool:
    parent = event.cpu_parent
    while parent is not None:
        if parent.name.startswith("aten::") and parent.name.removeprefix("aten::") not in DESCRIBING:
            return True
        parent = parent.cpu_parent
    return False


@contextmanager
def _reads(waits: Counter[str]) -> Iterator[None]:
    """Count calls of the methods that hand values to Python."""

    def counting(name: str, own: Callable[..., Any]) -> Callable[..., Any]:
        def method(tensor: Tensor, *arguments: Any, **options: Any) -> Any:
            waits[name] += 1
            return own(tensor, *arguments, **options)

        return method

    counted = {name: counting(name, getattr(Tensor, name)) for name in READING}
    with mock.patch.multiple(Tensor, **counted):
        yield
