"""The stiffness of NEON chosen by pixel-flipping, as an alternative to the heuristic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from neonxc.common.numbers import mean_error, text
from neonxc.common.progress import progress_bar
from neonxc.evaluation.flipping import fixed_seed, inputs_of, pixel_flipping, targets_of
from neonxc.evaluation.imputers import Imputer, default_imputer
from neonxc.evaluation.methods import neon_with
from neonxc.network import NeuralizedClustering, check_network

FACTORS = tuple(2.0**i for i in range(-6, 3))


@dataclass(frozen=True, repr=False)
class Calibration:
    """The area under the pixel-flipping curve of NEON, by beta.

    Attributes
    ----------
    beta : float
        The beta with the largest AUC; ties go to the one closest to the heuristic.
    factors, betas : ndarray [F]
        The values that were tried, in units of the heuristic and in absolute units.
    auc_per_input : ndarray [F, N]
        AUC of each input for each beta, 0 to 100.
    """

    beta: float
    factors: np.ndarray
    betas: np.ndarray
    auc_per_input: np.ndarray

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Return a row per beta: the AUC and its difference to the best AUC, both with standard errors."""
        best = self.auc_per_input[self.betas == self.beta][0]
        rows = []
        for factor, beta, area in zip(self.factors, self.betas, self.auc_per_input, strict=True):
            (auc, error), (behind, spread) = mean_error(area), mean_error(best - area)
            rows.append(
                {"factor": float(factor), "beta": float(beta), "AUC": auc, "± AUC": error}
                | {"behind": behind, "± behind": spread, "best": bool(beta == self.beta)}
            )
        return rows

    def __str__(self) -> str:
        lines = ["| beta / heuristic | beta | AUC | behind the best |", "|---|---|---|---|"]
        for row in self.rows:
            auc = f"{row['AUC']:.2f} ± {row['± AUC']:.2f}"
            behind = "" if row["best"] else f"{row['behind']:.2f} ± {row['± behind']:.2f}"
            auc = f"**{auc}**" if row["best"] else auc
            lines.append(f"| {text(row['factor'])} | {text(row['beta'])} | {auc} | {behind} |")
        return "\n".join(lines)

    __repr__ = __str__


def calibrate_by_flipping(
    net: NeuralizedClustering,
    X: Any,
    imputer: Imputer | None = None,
    repeats: int = 10,
    *,
    factors: Sequence[float] = FACTORS,
    groups: Any = None,
    random_state: Any = 0,
) -> Calibration:
    """Find the beta of NEON whose explanations have the largest area under the pixel-flipping curve.

    Parameters
    ----------
    net : NeuralizedClustering
        A network from :func:`neonxc.neuralize`. Its beta is not changed: set ``net.beta`` to the value that was
        found.
    X : array, frame or tensor [N, ...]
        About a hundred points. The AUC on these points is optimistic, because beta is chosen on them; use other
        points to compare with other methods.
    imputer, repeats, groups, random_state
        As for :func:`pixel_flipping`. The random draws are the same for all betas.
    factors : sequence of float
        Values to try, in units of the heuristic of :meth:`NeuralizedClustering.calibrate` on X; by default 1/64 to
        4.

    Returns
    -------
    Calibration

    Raises
    ------
    ValueError
        If a factor is not positive, if all points are on a border of their cluster, or if the network has a
        threshold, so that its relevance does not depend on beta.

    References
    ----------
    .. [1] J. Kauffmann et al., "From clustering to cluster explanations via neural networks", IV-C and VII-C.

    Examples
    --------
    >>> import neonxc
    >>> from neonxc.evaluation import KDEImputer, calibrate_by_flipping
    >>> from sklearn.cluster import KMeans
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.preprocessing import scale
    >>> X = scale(load_wine().data)
    >>> net = neonxc.neuralize(KMeans(6, n_init=10, random_state=0).fit(X), X)
    >>> found = calibrate_by_flipping(net, X[::2], KDEImputer(X), factors=(0.25, 1, 4))
    >>> net.beta = found.beta
    >>> relevance = neonxc.NEON(net).attribute(X)
    """
    check_network(net, "calibrate_by_flipping")
    if getattr(net.head.competition, "threshold", None) is not None:
        raise ValueError("with threshold= the competitors' shares do not depend on beta: there is none to find")
    tried = np.unique(np.asarray(factors, dtype=float))
    if not tried.size or not ((tried > 0) & (tried < math.inf)).all():
        raise ValueError(f"factors needs numbers > 0, got {factors!r}")
    x = inputs_of(net, X)
    imputer = imputer or default_imputer(net, x)
    heuristic = net.heuristic_beta(x)
    if not 0 < heuristic < math.inf:
        raise ValueError(
            "X needs points that are not all on a border of their cluster: there is no beta to start from"
        )
    betas = heuristic * tried
    with torch.no_grad():
        target = targets_of(net, x, None)
    options: dict[str, Any] = {"groups": groups, "target": target, "random_state": fixed_seed(random_state)}
    areas = []
    for beta in progress_bar(betas, desc="betas"):
        relevance = neon_with(beta=float(beta))(net, x, target)
        areas.append(pixel_flipping(net, x, relevance, imputer, repeats, **options).auc_per_input)
    best = max(range(len(betas)), key=lambda i: (areas[i].mean(), -abs(math.log(tried[i]))))
    return Calibration(float(betas[best]), tried, betas, np.stack(areas))
