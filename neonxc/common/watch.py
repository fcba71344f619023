"""A watch over the operators of a network, which finds the layers that are random or change themselves.

Before an operator runs, :class:`Watch` raises an error if

    it draws random numbers       it has PyTorch's tag for it, and no switch such as p or training is 0 or False
    it changes the network        its schema writes to an argument that shares memory with a parameter or buffer,
                                  or it is a normalization that updates running_mean
    it normalizes by the batch    it is a batch_norm of several inputs in training mode

After the run, parameters and buffers that were changed without an operator are restored, and the error is raised.
It is also raised if the states of the random generators of Python or NumPy have changed.
"""

from __future__ import annotations

import pickle
import random
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple, NoReturn, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

SWITCHES = ("p", "dropout_p", "dropout", "train", "training")
"""Arguments of operators that draw random numbers; if one of these is 0 or False, an operator draws none."""

Operator: TypeAlias = torch._ops.OpOverload
Keywords: TypeAlias = dict[str, Any] | None


class StoredTensor(NamedTuple):
    """A parameter, buffer or other tensor that a module of the network holds."""

    module: nn.Module
    name: str
    tensor: Tensor
    data: Tensor  # its values before the run
    storage: int  # the number of its memory


class Watch(TorchDispatchMode):
    """A mode that raises a ValueError before an operator runs that draws random numbers or changes a network."""

    supports_higher_order_operators = True

    def __init__(self, module: nn.Module, name: str) -> None:
        super().__init__()
        self.root = module
        if not name:
            kinds = [type(inner).__name__ for inner in module.modules()]
            public = [kind for kind in kinds if kind[0] != "_"]
            kind = public[0] if public else kinds[0]
            name = f"the network ({kind})"
        self.name = name
        self.paths = {inner: path for path, inner in module.named_modules()}
        for inner in self.paths:
            if isinstance(inner, LazyModuleMixin):
                raise ValueError(
                    f"{self._named(inner)} of {self.name} has no weights yet: run the network on a batch first"
                )
        self.stored = []
        for inner in self.paths:
            for attributes in (vars(inner), inner._parameters, inner._buffers):
                for key, value in attributes.items():
                    if isinstance(value, Tensor):
                        self.stored.append(StoredTensor(inner, key, value, value.detach(), _storage(value)))
        self.names = {stored.storage: stored.name for stored in self.stored}
        self.used: set[int] = set()  # the memory that operators have used
        self.generators = _generators()
        self.error: ValueError | None = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, traceback)
        self._undo()
        if self.error is not None and error is not self.error:  # TorchScript has an error of its own for it
            raise self.error from None

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: Keywords = None
    ) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, Operator):  # not an operator that calls others
            self._check(func, _by_name(func, args, kwargs))
        self.used |= {_storage(value) for value in tree_leaves((args, kwargs)) if isinstance(value, Tensor)}
        return func(*args, **kwargs)

    def _check(self, func: Operator, arguments: dict[str, Any]) -> None:
        """Raise an error before an operator runs, from its arguments by name."""
        if _draws(func, arguments):
            self._refuse("draw random numbers")
        for parameter in func._schema.arguments:
            if parameter.alias_info is None or not parameter.alias_info.is_write:
                continue
            for value in tree_leaves(arguments[parameter.name]):
                name = self.names.get(_storage(value)) if isinstance(value, Tensor) else None
                if name:
                    self._refuse(f"change its {name}")
        if "running_mean" in arguments and arguments.get("training", arguments.get("use_input_stats")):
            if arguments["running_mean"] is not None:  # the schema does not say that it is changed
                self._refuse("change its running_mean")
            # instance_norm runs as a batch_norm of one input, whose channels are those of all instances
            if "batch_norm" in func.__name__ and len(arguments["input"]) > 1:
                self._refuse()

    def _running_module(self) -> nn.Module:
        """Return the innermost module of the network that is running."""
        frame: Any = sys._getframe(1)  # not this one, whose locals would hold it
        while frame is not None:
            owner = frame.f_locals.get("self")
            if isinstance(owner, nn.Module) and owner in self.paths:
                return owner
            frame = frame.f_back
        return self.root

    def _refuse(self, harm: str = "") -> NoReturn:
        """Raise the error about the module that is running; without a `harm`, it normalizes by the batch."""
        self.error = self._about(self._running_module(), harm)
        raise self.error

    def _about(self, module: nn.Module, harm: str) -> ValueError:
        """Return the error about a module that would do harm; without a `harm`, it normalizes by the batch."""
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
        """Return the class of a module, and its path in the network."""
        kind = type(module).__name__
        path = self.paths[module]
        return f"{kind} ({path!r})" if path else kind

    def _undo(self) -> None:
        """Undo what was done without an operator, and note the error about it."""
        for stored in self.stored:
            module = stored.module
            now = getattr(module, stored.name, None)
            is_same = isinstance(now, Tensor) and _storage(now) == stored.storage
            # a plain attribute that no operator has used may be replaced: it is for others to read
            is_cached = stored.name in vars(module) and stored.storage not in self.used
            if not is_same and not is_cached:
                self.error = self.error or self._about(module, f"change its {stored.name}")
                stored.tensor.data = stored.data
                setattr(module, stored.name, stored.tensor)
        if _generators() != self.generators:
            in_training = [inner for inner in self.paths if inner.training]
            module = in_training[0] if in_training else self.root
            self.error = self.error or self._about(module, "draw random numbers of Python or NumPy")


class SameDraws(TorchDispatchMode):
    """A mode that replaces every random number that an operator of PyTorch draws by the same number."""

    supports_higher_order_operators = True

    def __init__(self, number: float) -> None:
        super().__init__()
        self.number = number

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: Keywords = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if isinstance(func, Operator) and _draws(func, _by_name(func, args, kwargs)):
            for drawn in tree_leaves(result):
                if isinstance(drawn, Tensor):
                    drawn.fill_(self.number)
        return result


def _by_name(func: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of an operator by name, with its defaults."""
    names = [parameter.name for parameter in func._schema.arguments]
    defaults = {parameter.name: parameter.default_value for parameter in func._schema.arguments}
    by_position = dict(zip(names, args, strict=False))  # the others are keywords or have defaults
    return defaults | by_position | kwargs


def _draws(func: Operator, arguments: dict[str, Any]) -> bool:
    """Whether an operator draws random numbers, from its arguments by name."""
    is_off = any(isinstance(arguments.get(key), (int, float)) and not arguments[key] for key in SWITCHES)
    return torch.Tag.nondeterministic_seeded in func.tags and not is_off


def _generators() -> bytes:
    """Return the states of the random generators of Python and NumPy."""
    return pickle.dumps((random.getstate(), np.random.get_state()))  # noqa: NPY002


def _storage(tensor: Tensor) -> int:
    """Return a number that identifies the memory that a tensor shares with its views."""
    try:
        return tensor.untyped_storage()._cdata
    except NotImplementedError:  # sparse tensors and those of function transforms have none
        return id(tensor)
