"""Pixel-flipping of a report: NEON against other methods on a sample of the points.

    insertion    columns become known, the most relevant ones first; a large area under the curve is good
    removal      columns become unknown, the most relevant ones first; a small area is good
    lead         difference of the areas of a method and of NEON, mean over the points, with its standard error

The curve is the fraction of points that stay in their cluster; unknown columns are drawn from other points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from neonxc.common.locales import localized
from neonxc.common.numbers import mean_error, rounded
from neonxc.common.progress import progress_bar
from neonxc.data.table import Table
from neonxc.data.weights import repeated_rows
from neonxc.evaluation import Imputer, KDEImputer, methods
from neonxc.evaluation.both_ways import BothWays, both_ways
from neonxc.evaluation.imputers import default_imputer
from neonxc.inputs.groups import groups_of
from neonxc.report.clustered import ClusteredData
from neonxc.report.description import Curve

# maximum number of points for pixel-flipping: of 2,000 texts, the leads have standard errors of 0.73 and 0.80 with
# as many in 4 s, and would need 520 points and 10 s for 0.5 (a fourth of their variance is that of the draws)
FLIPPED = 200
AT_ONCE = 50  # number of points after which the standard error of the leads is looked at
ENOUGH = 0.5  # standard error of the leads, below which no further points are flipped
# number of points from which hidden columns are imputed: 1,000 take twice the time, and the leads over other
# methods differ by no more than their standard errors (digits, breast cancer, blobs, uniform points)
BACKGROUND = 500
# maximum number of steps of a flipping curve: with 20, leads differ by less than their standard errors (wine,
# breast cancer, digits, blobs)
STEPS = 10
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
    background_rows = clustering.clustered_sample(BACKGROUND, 5)
    background_rows = repeated_rows(background_rows, BACKGROUND, clustering.weights_at(background_rows))
    x, background = (
        net.batch(Table.read(clustering.inputs(rows)).dense()).tensor  # imputed columns are not sparse
        for rows in (sample, background_rows)
    )
    compared: dict[str, methods.Method] = {"NEON": methods.neon, "NCA": methods.nca, "random": methods.random()}
    if net.inputs.absent == "word":
        imputer: Imputer = default_imputer(net.inputs, background)
    else:  # words have no gradients
        imputer = KDEImputer(background)
        compared |= {"gradient × input": methods.gradient_x_input, "squared gradient": methods.sensitivity}
    target = torch.from_numpy(clustering.positions[sample]).to(x.device)
    n_steps = min(STEPS, x.shape[1])
    groups = groups_of(net, None, x).expand(len(x), -1)
    relevances = {name: method(net, x, target) for name, method in compared.items()}

    order = np.random.default_rng(SEED).permutation(len(x))
    blocks = np.array_split(order, -(-len(x) // AT_ONCE))
    parts: dict[str, list[BothWays]] = {name: [] for name in compared}
    flipped = np.array([], int)
    for seed, block in enumerate(progress_bar(blocks, desc="points"), SEED):
        rows = torch.from_numpy(block).to(x.device)
        of_block = {name: relevance[rows] for name, relevance in relevances.items()}
        both = both_ways(net, x[rows], of_block, imputer, REPEATS, groups[rows], target[rows], n_steps, seed)
        for name, part in both.items():
            parts[name].append(part)
        flipped = np.append(flipped, block)
        check = _check(parts, clustering.weights_at(sample[flipped]))
        if max(check.insertion.error, check.removal.error) <= ENOUGH:
            break
    return check


def _check(parts: Mapping[str, Sequence[BothWays]], weight: np.ndarray | None) -> FlippingCheck:
    """Compare the methods on the points [m] of all `parts`, which may have weights."""
    curves = []
    inserted = {}
    removed = {}
    for name, of_method in parts.items():
        hits = np.concatenate([part.inserted for part in of_method])  # [m, S]
        inserted[name] = 100 * hits.mean(1)  # the area of each point
        removed[name] = 100 * np.concatenate([part.removed for part in of_method]).mean(1)
        insertion, _ = mean_error(inserted[name], weight)
        removal, _ = mean_error(removed[name], weight)
        known = rounded([0, *of_method[0].fraction])
        fractions = rounded([0, *np.average(hits, axis=0, weights=weight)])
        both_areas = localized(f"insertion {insertion:.1f}, removal {removal:.1f}")
        curves.append(Curve(name, known, fractions, both_areas))
    return FlippingCheck(_compare(inserted, 1, weight), _compare(removed, -1, weight), curves)


def _compare(areas: Mapping[str, np.ndarray], sign: int, weight: np.ndarray | None) -> Comparison:
    """NEON against the other method of the largest (sign 1) or smallest (-1) mean of areas [m]."""
    means = {name: mean_error(of_points, weight)[0] for name, of_points in areas.items()}
    competitor = max(means.keys() - {"NEON"}, key=lambda name: (sign * means[name], name))
    lead = sign * (areas[competitor] - areas["NEON"])
    return Comparison(means["NEON"], means[competitor], competitor, *mean_error(lead, weight))
