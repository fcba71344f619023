"""Parts of a network that wait for other processes are called as if there were only this one."""

from __future__ import annotations

import threading
from typing import Any

from torch import nn


class LocalCalls:
    """Context in which ``DistributedDataParallel`` just calls the network that it wraps.

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

    def _called(self, forward: Any) -> Any:
        """The forward pass of a wrapper, for this thread and others."""

        def called(wrapper: Any, *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() in self._threads:
                return wrapper.module(*args, **kwargs)
            return forward(wrapper, *args, **kwargs)

        return called


local_calls = LocalCalls()
