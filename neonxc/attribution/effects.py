"""The effect size of categories: Cramér's V of a cluster against all other points, 0 to 1.

Of the n points of a cluster, the fraction p_c is in category c, and of all N points the fraction q_c:

    V = sqrt(chi^2 / N) = sqrt(n / (N - n) sum_c (p_c - q_c)^2 / q_c),

with chi^2 of the table whose two rows are the cluster and all other points, and whose columns are the categories.
The effect size of numbers, Cohen's d, is computed from :class:`neonxc.attribution.moments.Moments`.
"""

from __future__ import annotations

import numpy as np


def cramers_v(in_cluster: np.ndarray, overall: np.ndarray, size: float, total: float) -> np.ndarray:
    """Compute Cramér's V of a cluster and the categories of columns, 0 to 1; NaN without points on both sides.

    Parameters
    ----------
    in_cluster, overall : ndarray [categories, ...]
        Fractions of the categories in the cluster and in all points, p and q.
    size, total : float
        Numbers of these points, n and N.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(overall > 0, (in_cluster - overall) ** 2 / overall, 0.0)
        squared_difference = terms.sum(0)
        if size >= total:  # there are no other points
            return np.full_like(squared_difference, np.nan)
        return np.sqrt(np.float64(size) / (total - size) * squared_difference)
