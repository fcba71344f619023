"""Names of a package that are imported on first use, and seen by type checkers all the same."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def lazy_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package that is being imported.

    The names are those that its code imports from absolute modules under ``if TYPE_CHECKING``; there, ``as`` tells
    type checkers that they are public. Modules of the package itself are not in `__all__`.

    Parameters
    ----------
    package : str
        The package's ``__name__``.
    """
    module = sys.modules[package]
    code = ast.parse(module.__spec__.loader.get_source(package))  # type: ignore[union-attr]
    blocks = [node for node in code.body if isinstance(node, ast.If)]
    homes = {}  # the module of each name
    for block in blocks:
        if getattr(block.test, "id", "") != "TYPE_CHECKING":
            continue
        for node in block.body:
            if isinstance(node, ast.ImportFrom) and node.module:
                homes.update({alias.name: node.module for alias in node.names})
    public = [name for name, home in homes.items() if home != package]

    def __getattr__(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if homes[name] == package:
            return import_module(f"{package}.{name}")
        value = getattr(import_module(homes[name]), name)
        setattr(module, name, value)  # so that the next access does not come here
        return value

    def __dir__() -> list[str]:
        return sorted(homes)

    return __getattr__, __dir__, sorted(public)
