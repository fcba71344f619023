"""Measures of explanations, of clusterings by trees, and of the trees themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neonxc.common.lazy import lazy_names

if TYPE_CHECKING:
<<<<<<< HEAD
    from neonxc.evaluation import methods as methods
    from neonxc.evaluation import segments as segments
    from neonxc.evaluation.choice import Choice as Choice
    from neonxc.evaluation.choice import choose_k as choose_k
    from neonxc.evaluation.clustering import Agreement as Agreement
    from neonxc.evaluation.clustering import agreement as agreement
    from neonxc.evaluation.clustering import clustering_accuracy as clustering_accuracy
    from neonxc.evaluation.clustering import cost_ratio as cost_ratio
    from neonxc.evaluation.clustering import interpretabilities as interpretabilities
    from neonxc.evaluation.clustering import interpretability as interpretability
    from neonxc.evaluation.clustering import kcenter_cost as kcenter_cost
    from neonxc.evaluation.clustering import kmeans_cost as kmeans_cost
    from neonxc.evaluation.clustering import label_agreement as label_agreement
    from neonxc.evaluation.clustering import surrogate_cost as surrogate_cost
    from neonxc.evaluation.clustering import wad as wad
    from neonxc.evaluation.clustering import waes as waes
    from neonxc.evaluation.comparison import Calibration as Calibration
    from neonxc.evaluation.comparison import Comparison as Comparison
    from neonxc.evaluation.comparison import calibrate_by_flipping as calibrate_by_flipping
    from neonxc.evaluation.comparison import compare as compare
    from neonxc.evaluation.flipping import Flipping as Flipping
    from neonxc.evaluation.flipping import pixel_flipping as pixel_flipping
    from neonxc.evaluation.imputers import BlurImputer as BlurImputer
    from neonxc.evaluation.imputers import Imputer as Imputer
    from neonxc.evaluation.imputers import KDEImputer as KDEImputer
    from neonxc.evaluation.imputers import MaskImputer as MaskImputer
    from neonxc.evaluation.imputers import MeanImputer as MeanImputer
    from neonxc.evaluation.imputers import WordImputer as WordImputer
    from neonxc.evaluation.imputers import ZeroImputer as ZeroImputer
    from neonxc.evaluation.segmentation import SegmentationMatch as SegmentationMatch
    from neonxc.evaluation.segmentation import segmentation_match as segmentation_match
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__)
=======
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
>>>>>>> helper-c
