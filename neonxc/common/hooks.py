"""Hooks on the modules of users' networks, which other threads may run at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn


@contextmanager
def hooked(module: nn.Module, hook: Callable[..., Any]) -> Iterator[None]:
    """Register a forward hook of a module in a context; it acts on the calls of this thread alone.

    The module is the user's: in other threads it returns the same as without the hook.
    """
    thread = threading.get_ident()

    def in_this_thread(*call: Any) -> Any:
        if threading.get_ident() != thread:
            return None  # the output stays as it is
        return hook(*call)

    handle = module.register_forward_hook(in_this_thread)
    try:
        yield
    finally:
        handle.remove()
