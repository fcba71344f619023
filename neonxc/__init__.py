"""Explain clusterings: why a point is in its cluster, and what a cluster is at all.

Start at :func:`neuralize`.
"""

from __future__ import annotations

from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from neonxc import stored  # noqa: F401  # registers how networks are stored
from neonxc.attribution import NEON
from neonxc.files import load, save
from neonxc.network import NeuralizedClustering
from neonxc.neuralize import neuralize
from neonxc.summary import ClusterSummary

__all__ = ["NEON", "ClusterSummary", "NeuralizedClustering", "load", "neuralize", "save"]

try:
    __version__ = metadata.version("neonxc")
except metadata.PackageNotFoundError:  # a bare clone that was never installed
    __version__ = "0+unknown"

# In a source checkout the sibling packages stand beside this folder, not inside it.
_root = Path(__file__).resolve().parent.parent
if (_root / "pyproject.toml").is_file() and (_root / "trees" / "__init__.py").is_file():
    __path__.append(str(_root))

_LAZY = {"lrp", "models", "plot", "trees"}


def __getattr__(name: str) -> Any:
    """Import a sub-package on first use, so that `import neonxc` alone stays light."""
    if name in _LAZY:
        return import_module(f"neonxc.{name}")
    raise AttributeError(f"module 'neonxc' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_LAZY, "__version__"])
