"""Measures: of explanations, of clusterings by trees, and of the trees themselves."""

from neonxc.evaluation import methods
from neonxc.evaluation.calibration import Calibration, calibrate_by_flipping
from neonxc.evaluation.clustering import (
    agreement,
    clustering_accuracy,
    cost_ratio,
    kmeans_cost,
    surrogate_cost,
    wad,
    waes,
)
from neonxc.evaluation.comparison import Comparison, compare
from neonxc.evaluation.flipping import Flipping, pixel_flipping
from neonxc.evaluation.imputers import BlurImputer, Imputer, KDEImputer, MeanImputer, WordImputer, ZeroImputer
from neonxc.evaluation.segmentation import SegmentationMatch, segmentation_match

__all__ = [
    "BlurImputer",
    "Calibration",
    "Comparison",
    "Flipping",
    "Imputer",
    "KDEImputer",
    "MeanImputer",
    "SegmentationMatch",
    "WordImputer",
    "ZeroImputer",
    "agreement",
    "calibrate_by_flipping",
    "clustering_accuracy",
    "compare",
    "cost_ratio",
    "kmeans_cost",
    "methods",
    "pixel_flipping",
    "segmentation_match",
    "surrogate_cost",
    "wad",
    "waes",
]
