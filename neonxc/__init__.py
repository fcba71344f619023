"""Explanations of clusterings: why a point is in its cluster, and what characterizes a cluster.

:func:`neuralize` is the starting point. The names of this module are imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from neonxc import evaluation as evaluation
    from neonxc import lrp as lrp
    from neonxc import models as models
    from neonxc import plot as plot
    from neonxc import trees as trees
    from neonxc.attribution import NEON
    from neonxc.contrasts import Contrast, contrast
    from neonxc.conversion import neuralize
    from neonxc.counterfactuals import Counterfactual, counterfactual
    from neonxc.dataset import Attributions, attribute_dataset, read_attributions
    from neonxc.files import load, save
    from neonxc.highlighting import highlights
    from neonxc.network import NeuralizedClustering
    from neonxc.progress_bars import progress
    from neonxc.report.explain import explain
    from neonxc.report.report import Report
    from neonxc.shap_explanation import to_shap
    from neonxc.summary import ClusterSummary

    __version__: str

__all__ = [
    "NEON",
    "Attributions",
    "ClusterSummary",
    "Contrast",
    "Counterfactual",
    "NeuralizedClustering",
    "Report",
    "attribute_dataset",
    "contrast",
    "counterfactual",
    "explain",
    "highlights",
    "load",
    "neuralize",
    "progress",
    "read_attributions",
    "save",
    "to_shap",
]

# No module is called as what it defines: importing it would put it in place of the function.
_HOMES = {
    "NEON": "attribution",
    "Attributions": "dataset",
    "ClusterSummary": "summary",
    "Contrast": "contrasts",
    "NeuralizedClustering": "network",
    "Report": "report.report",
    "attribute_dataset": "dataset",
    "contrast": "contrasts",
    "explain": "report.explain",
    "highlights": "highlighting",
    "Counterfactual": "counterfactuals",
    "counterfactual": "counterfactuals",
    "load": "files",
    "neuralize": "conversion",
    "progress": "progress_bars",
    "read_attributions": "dataset",
    "save": "files",
    "to_shap": "shap_explanation",
}
_PACKAGES = ["evaluation", "lrp", "models", "plot", "trees"]

# In a source checkout, the folders of neonxc.trees and neonxc.models are next to this one and not inside it.
_root = Path(__file__).resolve().parent.parent
if (_root / "pyproject.toml").is_file() and (_root / "trees" / "__init__.py").is_file():
    __path__.append(str(_root))


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name in _PACKAGES:
        return import_module(f"neonxc.{name}")
    if name in _HOMES:
        return getattr(import_module(f"neonxc.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'neonxc' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_PACKAGES, "__version__"])


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("neonxc")
    except metadata.PackageNotFoundError:  # a bare clone that was never installed
        return "0+unknown"
