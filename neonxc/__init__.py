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
    from neonxc.attribution.along import Estimate
    from neonxc.attribution.batches import BatchFunction, batch_function
    from neonxc.attribution.contrasts import Contrast, contrast
    from neonxc.attribution.highlighting import highlights
    from neonxc.attribution.moves import Move, Moves, moves
    from neonxc.attribution.neon import NEON
    from neonxc.attribution.shap_explanation import to_shap
    from neonxc.attribution.similarity import Similarity, similarity
    from neonxc.attribution.summary import ClusterSummary
    from neonxc.common.progress import progress
    from neonxc.common.storage import load, save
    from neonxc.convert import neuralize
    from neonxc.counterfactuals import Counterfactual, counterfactual
    from neonxc.evaluation.transitions import ClusteringComparison, compare_clusterings
    from neonxc.network import NeuralizedClustering
    from neonxc.report.explain import explain
    from neonxc.report.report import Report
    from neonxc.trees.marker_rules import Markers, markers

    __version__: str

__all__ = [
    "NEON",
    "BatchFunction",
    "ClusterSummary",
    "ClusteringComparison",
    "Contrast",
    "Counterfactual",
    "Estimate",
    "Markers",
    "Move",
    "Moves",
    "NeuralizedClustering",
    "Report",
    "Similarity",
    "batch_function",
    "compare_clusterings",
    "contrast",
    "counterfactual",
    "explain",
    "highlights",
    "load",
    "markers",
    "moves",
    "neuralize",
    "progress",
    "save",
    "similarity",
    "to_shap",
]

# No module is called as what it defines: importing it would put it in place of the function.
_HOMES = {
    "NEON": "attribution.neon",
    "BatchFunction": "attribution.batches",
    "ClusterSummary": "attribution.summary",
    "ClusteringComparison": "evaluation.transitions",
    "Contrast": "attribution.contrasts",
    "Counterfactual": "counterfactuals",
    "Estimate": "attribution.along",
    "Markers": "trees.marker_rules",
    "Move": "attribution.moves",
    "Moves": "attribution.moves",
    "NeuralizedClustering": "network",
    "Report": "report.report",
    "Similarity": "attribution.similarity",
    "batch_function": "attribution.batches",
    "compare_clusterings": "evaluation.transitions",
    "contrast": "attribution.contrasts",
    "counterfactual": "counterfactuals",
    "explain": "report.explain",
    "highlights": "attribution.highlighting",
    "load": "common.storage",
    "markers": "trees.marker_rules",
    "moves": "attribution.moves",
    "neuralize": "convert",
    "progress": "common.progress",
    "save": "common.storage",
    "similarity": "attribution.similarity",
    "to_shap": "attribution.shap_explanation",
}
_PACKAGES = ["evaluation", "lrp", "models", "plot", "trees"]

# In a source checkout, the folders of neonxc.trees and neonxc.models are next to this one and not inside it.
_root = Path(__file__).resolve().parent.parent
if (_root / "pyproject.toml").is_file() and (_root / "trees" / "__init__.py").is_file():
    __path__.append(str(_root))


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"neonxc.{name}")
    if name in _HOMES:
        globals()[name] = found = getattr(import_module(f"neonxc.{_HOMES[name]}"), name)
        return found
    if name != "__version__":
        raise AttributeError(f"module 'neonxc' has no attribute {name!r}")
    from importlib import metadata  # takes a while

    try:
        return metadata.version("neonxc")
    except metadata.PackageNotFoundError:  # a bare clone that was never installed
        return "0+unknown"


def __dir__() -> list[str]:
    return sorted([*__all__, *_PACKAGES, "__version__"])
