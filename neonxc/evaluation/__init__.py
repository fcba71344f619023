"""Measures of explanations, of clusterings by trees, and of the trees themselves."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from neonxc.evaluation import methods
    from neonxc.evaluation.choice import Choice, choose_k
    from neonxc.evaluation.clustering import (
        Agreement,
        agreement,
        clustering_accuracy,
        cost_ratio,
        interpretabilities,
        interpretability,
        kcenter_cost,
        kmeans_cost,
        label_agreement,
        surrogate_cost,
        wad,
        waes,
    )
    from neonxc.evaluation.comparison import Calibration, Comparison, calibrate_by_flipping, compare
    from neonxc.evaluation.flipping import Flipping, pixel_flipping
    from neonxc.evaluation.imputers import (
        BlurImputer,
        Imputer,
        KDEImputer,
        MaskImputer,
        MeanImputer,
        WordImputer,
        ZeroImputer,
    )
    from neonxc.evaluation.segmentation import SegmentationMatch, segmentation_match

__all__ = [
    "Agreement",
    "BlurImputer",
    "Calibration",
    "Choice",
    "Comparison",
    "Flipping",
    "Imputer",
    "KDEImputer",
    "MaskImputer",
    "MeanImputer",
    "SegmentationMatch",
    "WordImputer",
    "ZeroImputer",
    "agreement",
    "calibrate_by_flipping",
    "choose_k",
    "clustering_accuracy",
    "compare",
    "cost_ratio",
    "interpretabilities",
    "interpretability",
    "kcenter_cost",
    "kmeans_cost",
    "label_agreement",
    "methods",
    "pixel_flipping",
    "segmentation_match",
    "surrogate_cost",
    "wad",
    "waes",
]

# Where the names are defined. The modules are searched in this order, so those that load least come first.
_MODULES = [
    "clustering",
    "segmentation",
    "imputers",
    "flipping",
    "methods",
    "comparison",
    "choice",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    for module in _MODULES if name in __all__ else []:
        found = import_module(f"{__name__}.{module}")
        if hasattr(found, name):
            return getattr(found, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODULES})
