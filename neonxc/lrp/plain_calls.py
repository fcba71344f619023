"""Compiled, checkpointed and parallel parts of a network are called as written while a pass is traced."""

from __future__ import annotations

import sys
import threading
from contextlib import ExitStack, nullcontext
from typing import Any

import torch


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

    def _compile(self, module: Any) -> None:
        self._changes.enter_context(torch.compiler.set_stance("force_eager"))

    def _checkpoint(self, module: Any) -> None:
        apply = module.CheckpointFunction.apply
        hook: Any = getattr(module, "_checkpoint_hook", None)  # private: a later PyTorch may be without it

        def applied(function: Any, preserve_rng_state: bool, *args: Any) -> Any:
            return function(*args) if self._traces() else apply(function, preserve_rng_state, *args)

        self._replace(module.CheckpointFunction, "apply", staticmethod(applied))
        self._replace(module, "_checkpoint_hook", lambda frame: nullcontext() if self._traces() else hook(frame))

    def _parallel(self, module: Any) -> None:
        forward = module.DataParallel.forward

        def called(wrapper: Any, *args: Any, **kwargs: Any) -> Any:
            return wrapper.module(*args, **kwargs) if self._traces() else forward(wrapper, *args, **kwargs)

        self._replace(module.DataParallel, "forward", called)

    def _replace(self, owner: Any, name: str, value: Any) -> None:
        if name in vars(owner):
            self._changes.callback(setattr, owner, name, vars(owner)[name])
        else:  # it is inherited
            self._changes.callback(delattr, owner, name)
        setattr(owner, name, value)

    def _traces(self) -> bool:
        return threading.get_ident() in self._threads


plain_calls = PlainCalls()
