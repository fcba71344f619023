"""The effect size of categories: how far the shares of a cluster differ from those of all points, 0 to 1.

That of numbers, Cohen's d, is computed from :class:`neonxc.attribution.moments.Moments`.
"""

from __future__ import annotations

import numpy as np


def cramers_v(own: np.ndarray, every: np.ndarray, size: float, total: float) -> np.ndarray:
    """Compute Cramér's V of a cluster and the categories of columns, 0 to 1; NaN without points on both sides.

    Parameters
    ----------
    own, every : ndarray [categories, ...]
        Shares of the categories in the cluster and in all points.
    size, total : float
        Numbers of these points.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        apart = np.where(every > 0, (own - every) ** 2 / every, 0.0).sum(0)
        return np.sqrt(np.float64(size) / (total - size) * apart) if size < total else np.full_like(apart, np.nan)
