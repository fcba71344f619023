"""Measures of explanations, of clusterings by trees, and of the trees themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neonxc.common.lazy import lazy_names

if TYPE_CHECKING:
    from neonxc.evaluation import methods as methods
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
    from neonxc.evaluation.sanity_checks import Sanity as Sanity
    from neonxc.evaluation.sanity_checks import sanity as sanity
    from neonxc.evaluation.segmentation import SegmentationMatch as SegmentationMatch
    from neonxc.evaluation.segmentation import segmentation_match as segmentation_match
    from neonxc.evaluation.separated import Separation as Separation
    from neonxc.evaluation.separated import separation as separation
    from neonxc.evaluation.without_clusters import NullReference as NullReference
    from neonxc.evaluation.without_clusters import null_reference as null_reference
    from neonxc.naming.blind_test import BlindTest as BlindTest
    from neonxc.naming.statement_judge import StatementJudge as StatementJudge
    from neonxc.naming.text_judge import TextJudge as TextJudge
    from neonxc.naming.text_judge import WordJudge as WordJudge
    from neonxc.naming.validation import validate_names as validate_names
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__)
