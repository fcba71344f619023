"""Full precision inside autocast, which computes matrix products of float32 in half precision.

A user's network may run in it. What is computed from its features, such as distances, needs all digits.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

DEVICES = ("cpu", "cuda", "mps", "xpu")
Arguments = ParamSpec("Arguments")
Value = TypeVar("Value")


def in_full_precision(function: Callable[Arguments, Value]) -> Callable[Arguments, Value]:
    """Decorate a function that runs no network of users such that autocast is off in it."""

    @wraps(function)
    def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Value:
        with ExitStack() as stack:
            for device in DEVICES:
                if torch.is_autocast_enabled(device):
                    stack.enter_context(torch.autocast(device, enabled=False))
            return function(*args, **kwargs)

    return run
