"""Why rows have other labels than those of a fit: what is tried on them, and what is said of the result.

Tried are, in this order, the usual scalers of scikit-learn, of which the best one counts, and another order of the
columns: the one in which the means of the clusters are nearest to the centers. A change is the reason if the rows
have the labels of the fit after it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, Normalizer, RobustScaler, StandardScaler

EXPLAINED = 0.95
"""Fraction of the rows that need to have their labels after a change; a refitted scaler differs a little."""


class Reason(NamedTuple):
    """Why rows have other labels than those of a fit."""

    text: str
    is_found: bool = False  # whether rows have the labels of the fit after what the text says


NOT_FOUND = Reason(
    "neither a scaler nor another order of the columns gives them this label, so that X may have other rows or "
    "columns, or the model decides otherwise"
)
NOT_TRIED = Reason("X may have other rows or columns, or the model decides otherwise")
OF_FEATURES = Reason(
    "the features may not be those that it was fitted on, but of a network in training mode, of other weights, or "
    "without a normalization"
)
OF_MODEL = Reason("the model was changed after its fit, or decides otherwise than its class does")


def reason(
    predict: Callable[[np.ndarray], np.ndarray],
    points: np.ndarray,
    centers: np.ndarray | None,
    checked: np.ndarray,
    labels: np.ndarray,
) -> Reason:
    """Find the change of points after which they have the labels of a fit.

    Parameters
    ----------
    predict : callable
        Returns the labels [n] of points [n, d].
    points : ndarray [N, d]
    centers : array [K, d] or None
        Centers of the clusterer, if it has any.
    checked : ndarray [n] of int64
        Positions of the points that are predicted.
    labels : ndarray [n]
        Their labels in the fit.
    """

    def fraction(changed: np.ndarray) -> float:
        return float(np.mean(predict(changed[checked]) == labels))

    scalers = (StandardScaler(), MinMaxScaler(), RobustScaler(), MaxAbsScaler(), Normalizer())
    fractions = [fraction(scaler.fit_transform(points)) for scaler in scalers]
    if max(fractions) >= EXPLAINED:
        name = type(scalers[int(np.argmax(fractions))]).__name__
        return Reason(
            f"after {name}() they have it: X is not on the scale of the clusterer; pass "
            f"X={name}().fit_transform(X), or make_pipeline({name}().fit(X), model) as the model",
            is_found=True,
        )
    order = _order(centers, points[checked], labels)
    if order is not None and fraction(points[:, order]) >= EXPLAINED:
        text = f"with the columns in the order {order.tolist()} they have it: X has them in another order"
        return Reason(text, is_found=True)
    return NOT_FOUND


def _order(centers: np.ndarray | None, points: np.ndarray, labels: np.ndarray) -> np.ndarray | None:
    """Return the order [d] of columns in which the means of clusters are nearest to centers [K, d]."""
    names = np.unique(labels)
    if centers is None or np.shape(centers) != (len(names), points.shape[1]):
        return None
    means = np.stack([points[labels == name].mean(0) for name in names])
    # [d, d], of a column of the centers from one of the means, over all clusters
    distances = np.abs(np.asarray(centers).T[:, None] - means.T).sum(2)
    _, order = linear_sum_assignment(distances)
    columns: np.ndarray = order
    return columns
