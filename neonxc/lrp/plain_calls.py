"""Compiled, checkpointed and parallel parts of a network are called as written while a pass is traced."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from types import ModuleType
from typing import Any

import torch
from torch import nn


class PlainCalls:
    """Context in which ``torch.compile``, checkpoints and ``DataParallel`` just call the functions that they wrap.

    A traced pass keeps its activations, and the tracer sees neither compiled code nor a recomputation. Compiled
    functions run uncompiled in all threads meanwhile, since PyTorch has a single setting for them; the other two
    are plain calls only in the threads that trace.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads: list[int] = []  # one entry for every traced pass
        self._changed: set[str] = set()
        self._changes = ExitStack()  # undone after the last of the passes

    def __enter__(self) -> None:
        changes = {
            "torch._dynamo": self._compile,
            "torch.utils.checkpoint": self._checkpoint,
            "torch.nn.parallel": self._parallel,
        }
        with self._lock:
            for name, change in changes.items():
                if name in sys.modules and name not in self._changed:  # otherwise nothing was wrapped so far
                    change(sys.modules[name])
                    self._changed.add(name)
            self._threads.append(threading.get_ident())

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._threads.remove(threading.get_ident())
            if not self._threads:
                self._changed.clear()
                self._changes.close()

    def _compile(self, module: ModuleType) -> None:
        """Let compiled functions run uncompiled."""
        self._changes.enter_context(torch.compiler.set_stance("force_eager"))

    def _checkpoint(self, module: ModuleType) -> None:
        """Let both kinds of checkpoints call their functions and keep what these compute."""
        apply = module.CheckpointFunction.apply
        hook: Any = getattr(module, "_checkpoint_hook", None)  # private: a later PyTorch may be without it

        def applied(function: Callable[..., Any], preserve_rng_state: bool, *args: Any) -> Any:
            if self._traces():
                return function(*args)
            return apply(function, preserve_rng_state, *args)

        def hooked(frame: object) -> Any:
            return nullcontext() if self._traces() else hook(frame)

        self._replace(module.CheckpointFunction, "apply", staticmethod(applied))
        self._replace(module, "_checkpoint_hook", hooked)

    def _parallel(self, module: ModuleType) -> None:
        """Let ``DataParallel`` call the module that it wraps."""
        forward = module.DataParallel.forward

        def called(wrapper: nn.DataParallel[nn.Module], *args: Any, **kwargs: Any) -> Any:
            if self._traces():
                return wrapper.module(*args, **kwargs)
            return forward(wrapper, *args, **kwargs)

        self._replace(module.DataParallel, "forward", called)

    def _replace(self, owner: type | ModuleType, name: str, value: object) -> None:
        """Replace an attribute of a class or module, and register how to undo that."""
        if name in vars(owner):
            self._changes.callback(setattr, owner, name, vars(owner)[name])
        else:  # it is inherited
            self._changes.callback(delattr, owner, name)
        setattr(owner, name, value)

    def _traces(self) -> bool:
        """Whether this thread traces a pass."""
        return threading.get_ident() in self._threads


plain_calls = PlainCalls()
