"""A watch over the operators of a network, which finds the layers that are random or change themselves."""

from __future__ import annotations

import pickle
import random
import sys
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

SWITCHES = ("p", "dropout_p", "dropout", "train", "training")
"""Arguments of operators that draw random numbers; with one of these 0 or False, an operator draws none."""


class Watch(TorchDispatchMode):
    """Raises a ValueError before an operator runs that draws random numbers or changes a network."""

    supports_higher_order_operators = True

    def __init__(self, module: nn.Module, name: str) -> None:
        super().__init__()
        self.root = module
        kinds = [type(inner).__name__ for inner in module.modules()]
        self.name = name or f"the network ({next((kind for kind in kinds if kind[0] != '_'), kinds[0])})"
        self.paths = {inner: path for path, inner in module.named_modules()}
        for inner in self.paths:
            if isinstance(inner, LazyModuleMixin):
                raise ValueError(
                    f"{self._named(inner)} of {self.name} has no weights yet: run the network on a batch first"
                )
        self.kept = [
            (inner, key, value, value.detach(), _storage(value))
            for inner in self.paths
            for held in (vars(inner), inner._parameters, inner._buffers)
            for key, value in held.items()
            if isinstance(value, Tensor)
        ]
        self.own = {storage: key for _, key, _, _, storage in self.kept}
        self.used: set[int] = set()
        self.generators = _generators()
        self.error: ValueError | None = None

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        super().__exit__(kind, error, traceback)
        self._undo()
        if self.error is not None and error is not self.error:  # TorchScript has an error of its own for it
            raise self.error from None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, torch._ops.OpOverload):  # not an operator that calls others
            self._check(func, _by_name(func, args, kwargs))
        self.used |= {_storage(value) for value in tree_leaves((args, kwargs)) if isinstance(value, Tensor)}
        return func(*args, **kwargs)

    def _check(self, func: Any, given: dict[str, Any]) -> None:
        """Raise an error before an operator runs, from its arguments by name."""
        if _draws(func, given):
            self._refuse("draw random numbers")
        for argument in func._schema.arguments:
            if argument.alias_info is not None and argument.alias_info.is_write:
                for value in tree_leaves(given[argument.name]):
                    if isinstance(value, Tensor) and (key := self.own.get(_storage(value))):
                        self._refuse(f"change its {key}")
        if "running_mean" in given and given.get("training", given.get("use_input_stats")):
            if given["running_mean"] is not None:  # the schema does not say that it is changed
                self._refuse("change its running_mean")
            if "batch_norm" in func.__name__ and len(given["input"]) > 1:  # instances are channels of a batch of 1
                self._refuse()

    def _at_work(self) -> nn.Module:
        """The innermost module of the network that is running."""
        frame: Any = sys._getframe(1)  # not this one, whose locals would hold it
        while frame is not None:
            found = frame.f_locals.get("self")
            if isinstance(found, nn.Module) and found in self.paths:
                return found
            frame = frame.f_back
        return self.root

    def _refuse(self, harm: str = "") -> NoReturn:
        """Raise the error about the module at work; without a `harm`, it normalizes by the batch."""
        self.error = self._about(self._at_work(), harm)
        raise self.error

    def _about(self, module: nn.Module, harm: str) -> ValueError:
        layer = self._named(module)
        if not harm:
            text = (
                f"{layer} of {self.name} normalizes by the batch, in eval mode as well: the features of an input "
                "would depend on the inputs beside it; train the network with track_running_stats=True, or with "
                "GroupNorm"
            )
        elif module.training:
            text = f"{self.name} is in training mode: its {layer} would {harm}; call .eval() on it first"
        else:
            text = f"{layer} of {self.name} would {harm} in eval mode as well; make that depend on self.training"
        return ValueError(text)

    def _named(self, module: Any) -> str:
        kind = type(module).__name__
        path = self.paths[module]
        return f"{kind} ({path!r})" if path else kind

    def _undo(self) -> None:
        """Undo what was done without an operator, and note the error about it."""
        for inner, key, value, data, storage in self.kept:
            now = getattr(inner, key, None)
            cached = key in vars(inner) and storage not in self.used  # for others to read
            if not cached and not (isinstance(now, Tensor) and _storage(now) == storage):
                self.error = self.error or self._about(inner, f"change its {key}")
                value.data = data
                setattr(inner, key, value)
        if _generators() != self.generators:
            trained = next((inner for inner in self.paths if inner.training), self.root)
            self.error = self.error or self._about(trained, "draw random numbers of Python or NumPy")


class SameDraws(TorchDispatchMode):
    """Replaces every random number that an operator of PyTorch draws by the same number."""

    supports_higher_order_operators = True

    def __init__(self, number: float) -> None:
        super().__init__()
        self.number = number

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if isinstance(func, torch._ops.OpOverload) and _draws(func, _by_name(func, args, kwargs)):
            for drawn in tree_leaves(result):
                if isinstance(drawn, Tensor):
                    drawn.fill_(self.number)
        return result


def _by_name(func: torch._ops.OpOverload, args: Any, kwargs: Any) -> dict[str, Any]:
    """The arguments of an operator by name, with its defaults."""
    names = [argument.name for argument in func._schema.arguments]
    defaults = {argument.name: argument.default_value for argument in func._schema.arguments}
    return defaults | dict(zip(names, args, strict=False)) | kwargs


def _draws(func: torch._ops.OpOverload, given: dict[str, Any]) -> bool:
    """Whether an operator draws random numbers, from its arguments by name."""
    off = any(isinstance(given.get(key), (int, float)) and not given[key] for key in SWITCHES)
    return torch.Tag.nondeterministic_seeded in func.tags and not off


def _generators() -> bytes:
    """The state of the random generators that PyTorch has no part in."""
    return pickle.dumps((random.getstate(), np.random.get_state()))  # noqa: NPY002


def _storage(tensor: Tensor) -> int:
    """A number of the memory that a tensor shares with its views."""
    try:
        return tensor.untyped_storage()._cdata
    except NotImplementedError:  # sparse tensors and those of function transforms have none
        return id(tensor)
