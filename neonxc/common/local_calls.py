"""Calls of networks that would wait for other processes, as if there were only this process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from torch import nn


class LocalCalls:
    """A context in which ``DistributedDataParallel`` calls the network that it wraps, and nothing else.

    Its forward pass sends the buffers of rank 0 to all ranks, which would wait forever for one that explains while
    the others do something else. Calls are local only in the threads that explain.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads: list[int] = []  # one entry for every context that a thread is in
        self._forward: Any = None

    def __enter__(self) -> None:
        parallel: Any = nn.parallel.DistributedDataParallel
        with self._lock:
            if not self._threads:
                self._forward = parallel.forward
                parallel.forward = self._called(self._forward)
            self._threads.append(threading.get_ident())

    def __exit__(self, *_: object) -> None:
        parallel: Any = nn.parallel.DistributedDataParallel
        with self._lock:
            self._threads.remove(threading.get_ident())
            if not self._threads:
                parallel.forward = self._forward

    def _called(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """Return a forward pass of wrappers that is local in threads that explain, and `forward` in others."""

        def called(wrapper: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() in self._threads:
                network: Any = wrapper.module
                return network(*args, **kwargs)
            return forward(wrapper, *args, **kwargs)

        return called


local_calls = LocalCalls()
