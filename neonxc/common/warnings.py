"""Warnings that point to the caller's own line of code."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

INSIDE = {"neonxc", "sklearn", "functools"}
"""Packages whose lines of code are not the caller's; scikit-learn's fit_predict, for instance, calls our fit."""


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning for the innermost line outside of this package and scikit-learn."""
    level = 2
    frame = sys._getframe(1)
    while frame.f_back is not None:
        package, _, _ = frame.f_globals.get("__name__", "").partition(".")
        if package not in INSIDE:
            break
        level = level + 1
        frame = frame.f_back
    warnings.warn(message, category, stacklevel=level)


def deprecated(old: str, new: str) -> None:
    """Warn that a public name has a successor, and that the next minor version removes it."""
    warn(f"{old} is deprecated and will be removed in the next minor version; use {new}", DeprecationWarning)


def moved(former: str, module: ModuleType) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a module whose names are now in another one."""

    def __getattr__(name: str) -> Any:
        if name.startswith("__") or not hasattr(module, name):  # the import system asks for some
            raise AttributeError(f"module {former!r} has no attribute {name!r}")
        deprecated(f"{former}.{name}", f"{module.__name__}.{name}")
        return getattr(module, name)

    return __getattr__
