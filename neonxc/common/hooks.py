"""Hooks on the modules of users' networks, which other threads may run at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn


@contextmanager
def hooked(module: nn.Module, hook: Callable[..., Any]) -> Iterator[None]:
    """Context in which a forward hook of a module acts on the calls of this thread alone.

    The module is the user's: what it returns in other threads stays as it is.
    """
    thread = threading.get_ident()

    def in_this_thread(*call: Any) -> Any:
        return hook(*call) if threading.get_ident() == thread else None

    handle = module.register_forward_hook(in_this_thread)
    try:
        yield
    finally:
        handle.remove()
