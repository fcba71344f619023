"""Explanations of clusterings: why a point is in its cluster, and what characterizes a cluster.

:func:`neuralize` is the starting point. The names of this module are imported on first use.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from neonxc.common.lazy import lazy_names

# In a source checkout, the folders of neonxc.trees and neonxc.models are next to this one and not inside it.
_root = Path(__file__).resolve().parent.parent
if (_root / "pyproject.toml").is_file() and (_root / "trees" / "__init__.py").is_file():
    __path__.append(str(_root))

# No module is called as what it defines: importing it would put it in place of the function.
if TYPE_CHECKING:
    from neonxc import evaluation as evaluation
    from neonxc import lrp as lrp
    from neonxc import models as models
    from neonxc import plot as plot
    from neonxc import trees as trees
    from neonxc.attribution.batch_function import BatchFunction as BatchFunction
    from neonxc.attribution.batch_function import batch_function as batch_function
    from neonxc.attribution.contrasts import Contrast as Contrast
    from neonxc.attribution.contrasts import contrast as contrast
    from neonxc.attribution.highlighting import highlights as highlights
    from neonxc.attribution.moved_rows import Move as Move
    from neonxc.attribution.moved_rows import Moves as Moves
    from neonxc.attribution.moves import moves as moves
    from neonxc.attribution.neon import NEON as NEON
    from neonxc.attribution.paths import Estimate as Estimate
    from neonxc.attribution.shap_explanation import to_shap as to_shap
    from neonxc.attribution.similarity import Similarity as Similarity
    from neonxc.attribution.similarity import similarity as similarity
    from neonxc.attribution.summary import ClusterSummary as ClusterSummary
    from neonxc.common.progress import progress as progress
    from neonxc.common.storage import load as load
    from neonxc.common.storage import save as save
    from neonxc.convert import neuralize as neuralize
    from neonxc.counterfactuals import Counterfactual as Counterfactual
    from neonxc.counterfactuals import counterfactual as counterfactual
    from neonxc.evaluation.clusterings_compared import ClusteringComparison as ClusteringComparison
    from neonxc.evaluation.transitions import compare_clusterings as compare_clusterings
    from neonxc.hierarchy.layered import layers as layers
    from neonxc.hierarchy.result import Layers as Layers
    from neonxc.hierarchy.result import Split as Split
    from neonxc.naming.cluster_names import ClusterNames as ClusterNames
    from neonxc.naming.evidence import Evidence as Evidence
    from neonxc.naming.evidence import NameContrast as NameContrast
    from neonxc.naming.naming import name_clusters as name_clusters
    from neonxc.network import NeuralizedClustering as NeuralizedClustering
    from neonxc.report.describe import describe as describe
    from neonxc.report.description import Description as Description
    from neonxc.report.report import Report as Report
    from neonxc.report.report import explain as explain
    from neonxc.subspaces.concepts import Concepts as Concepts
    from neonxc.subspaces.concepts import concepts as concepts
    from neonxc.trees.marker_rules import Markers as Markers
    from neonxc.trees.marker_rules import markers as markers

    __version__: str
else:
    _find, _names, __all__ = lazy_names(__name__)

    def __getattr__(name: str) -> Any:
        if name != "__version__":
            return _find(name)
        from importlib import metadata  # takes a while

        try:
            return metadata.version("neonxc")
        except metadata.PackageNotFoundError:  # a bare clone that was never installed
            return "0+unknown"

    def __dir__() -> list[str]:
        return sorted([*_names(), "__version__"])
