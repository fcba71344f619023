"""Compiled and checkpointed parts of a network are called as they were written while a pass is traced."""

from __future__ import annotations

import sys
import threading
from contextlib import ExitStack, nullcontext
from typing import Any

import torch


class PlainCalls:
    """Context in which ``torch.compile`` and ``torch.utils.checkpoint`` call the functions that they wrap.

    A traced pass keeps its activations, and the tracer sees neither compiled code nor a recomputation. Compiled
    functions run uncompiled in all threads meanwhile, since PyTorch has a single setting for them, whereas
    checkpoints are plain calls in the threads that trace.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads: list[int] = []  # one entry for every traced pass
        self._changed: set[str] = set()
        self._changes = ExitStack()  # undone after the last of the passes

    def __enter__(self) -> None:
        with self._lock:
            for name, change in (("torch._dynamo", self._compile), ("torch.utils.checkpoint", self._checkpoint)):
                if name in sys.modules and name not in self._changed:  # otherwise nothing was wrapped so far
                    change()
                    self._changed.add(name)
            self._threads.append(threading.get_ident())

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._threads.remove(threading.get_ident())
            if not self._threads:
                self._changed.clear()
                self._changes.close()

    def _compile(self) -> None:
        self._changes.enter_context(torch.compiler.set_stance("force_eager"))

    def _checkpoint(self) -> None:
        module: Any = sys.modules["torch.utils.checkpoint"]
        reentrant, apply, hook = (
            module.CheckpointFunction,
            module.CheckpointFunction.apply,
            module._checkpoint_hook,
        )

        def applied(function: Any, preserve_rng_state: bool, *args: Any) -> Any:
            return function(*args) if self._traces() else apply(function, preserve_rng_state, *args)

        reentrant.apply = staticmethod(applied)
        self._changes.callback(delattr, reentrant, "apply")  # which it inherits
        module._checkpoint_hook = lambda frame: nullcontext() if self._traces() else hook(frame)
        self._changes.callback(setattr, module, "_checkpoint_hook", hook)

    def _traces(self) -> bool:
        return threading.get_ident() in self._threads


plain_calls = PlainCalls()
