"""Pixel-flipping of a report: NEON against other methods on a sample of the points.

    insertion    columns become known, the most relevant ones first; a large area under the curve is good
    removal      columns become unknown, the most relevant ones first; a small area is good
    lead         difference of the areas of a method and of NEON, mean over the points, with its standard error

The curve is the fraction of points that stay in their cluster; unknown columns are drawn from other points.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from neonxc.common.locales import localized
from neonxc.common.numbers import mean_error, rounded
from neonxc.common.progress import progress_bar
from neonxc.data.table import Table
from neonxc.data.weights import repeated_rows
from neonxc.evaluation import Imputer, KDEImputer, methods
from neonxc.evaluation.flipping import Flipping, flipped
from neonxc.evaluation.imputers import default_imputer
from neonxc.inputs.groups import groups_of
from neonxc.report.clustered import ClusteredData
from neonxc.report.description import Curve

FLIPPED = 200  # number of points for pixel-flipping
# number of points from which hidden columns are imputed: 1,000 take twice the time, and the leads over other
# methods differ by no more than their standard errors (digits, breast cancer, blobs, uniform points)
BACKGROUND = 500
STEPS = 20  # maximum number of steps of a flipping curve
REPEATS = 3  # draws of unknown columns per point and step
SEED = 0  # of these draws, the same for all methods


@dataclass
class Comparison:
    """NEON against the best of the other methods, by one measure of pixel-flipping.

    Attributes
    ----------
    auc, best : float
        Area under the curve of NEON and of that other method, 0 to 100.
    competitor : str
        Its name.
    lead : float
        By how much it is better than NEON, mean over the points; negative if it is worse.
    error : float
        Standard error of the lead; NaN for a single point.
    """

    auc: float
    best: float
    competitor: str
    lead: float
    error: float


@dataclass
class FlippingCheck:
    """Pixel-flipping of NEON and of other methods.

    Attributes
    ----------
    insertion, removal : Comparison
        If the most relevant columns are inserted first (a large AUC is good) or removed first (a small one is).
    curves : list of Curve
        Curves of insertion of all methods; that of NEON comes first.
    """

    insertion: Comparison
    removal: Comparison
    curves: list[Curve]


def flip(clustering: ClusteredData) -> FlippingCheck:
    """Compare NEON with other fast methods by pixel-flipping on a sample."""
    net = clustering.net
    sample = clustering.clustered_sample(FLIPPED, 1)
    weight = clustering.weights_at(sample)
    background_rows = clustering.clustered_sample(BACKGROUND, 5)
    background_rows = repeated_rows(background_rows, BACKGROUND, clustering.weights_at(background_rows))
    x, background = (
        net.batch(Table.read(clustering.inputs(rows)).dense()).tensor  # imputed columns are not sparse
        for rows in (sample, background_rows)
    )
    compared: dict[str, Any] = {"NEON": methods.neon, "NCA": methods.nca, "random": methods.random()}
    if net.inputs.absent == "word":
        imputer: Imputer = default_imputer(net.inputs, background)
    else:  # words have no gradients
        imputer = KDEImputer(background)
        compared |= {"gradient × input": methods.gradient_x_input, "squared gradient": methods.sensitivity}
    target = torch.from_numpy(clustering.positions[sample]).to(x.device)
    steps = min(STEPS, x.shape[1])
    groups = groups_of(net, None, x)
    inserted = {}
    removed = {}
    for name, method in progress_bar(compared.items(), desc="methods"):
        relevance = method(net, x, target)
        inserted[name], removed[name] = (
            flipped(net, x, relevance, imputer, REPEATS, groups, target, "insert", order, steps, SEED, weight)
            for order in ("most", "least")  # the least relevant columns first, read backwards, is removal
        )
    curves = []
    for name, result in inserted.items():
        known = rounded([0, *result.known])
        fractions = rounded([0, *result.curve])
        areas = localized(f"insertion {result.auc:.1f}, removal {removed[name].auc:.1f}")
        curves.append(Curve(name, known, fractions, areas))
    return FlippingCheck(_compare(inserted, 1, weight), _compare(removed, -1, weight), curves)


def _compare(results: dict[str, Flipping], sign: int, weight: np.ndarray | None) -> Comparison:
    """NEON against the other method of largest (sign 1) or smallest (-1) area."""
    competitor = max(results.keys() - {"NEON"}, key=lambda name: (sign * results[name].auc, name))
    neon = results["NEON"]
    best = results[competitor]
    lead = sign * (best.auc_per_input - neon.auc_per_input)
    return Comparison(neon.auc, best.auc, competitor, *mean_error(lead, weight))
