"""Effect sizes: how far clusters differ from all other points in a column, in units that can be compared."""

from __future__ import annotations

import numpy as np

ROUNDING = 1e-14  # relative size of what rounding makes of differences and deviations in a constant column
LEAST = 1e-12  # a smaller share of the squared deviations within the two groups is rounding error


def cohens_d(counts: np.ndarray, means: np.ndarray, squares: np.ndarray) -> np.ndarray:
    """Compute Cohen's d of every group against all other points: the difference of means in pooled deviations.

    Parameters
    ----------
    counts, means, squares : ndarray [G, d]
        Numbers of values of G groups, their means, and the sums of their squared deviations from these.

    Returns
    -------
    ndarray [G, d]
        Infinite if both sides are constant, and NaN if one of them has no values.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        filled = np.where(counts > 0, means, 0.0)
        n, grand = counts.sum(0), (counts * filled).sum(0) / counts.sum(0)
        others = n - counts
        difference = (filled - grand) * n / others  # to the mean of the others
        whole = (squares + counts * (filled - grand) ** 2).sum(0)
        within = whole - counts * others / n * difference**2
        pooled = np.sqrt(np.where(within > LEAST * whole, within, 0.0) / np.maximum(n - 2, 1))
        constant = np.maximum(np.abs(difference), pooled) <= ROUNDING * np.abs(grand)
        d = np.where(constant | (difference == 0), 0.0, difference / pooled)
    return np.where((counts > 0) & (others > 0), d, np.nan)


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
