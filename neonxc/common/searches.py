"""Fitted searches over parameters, and other wrappers of an estimator: what they have fitted takes their place.

GridSearchCV, RandomizedSearchCV, and searches of other libraries    best_estimator_
FrozenEstimator                                                      estimator
"""

from __future__ import annotations

from copy import copy
from typing import Any

from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.pipeline import Pipeline


def is_search(model: Any) -> bool:
    """Whether a model searches for the best parameters of an estimator, or has done so."""
    if isinstance(model, type):
        return False
    return isinstance(model, GridSearchCV | RandomizedSearchCV) or hasattr(model, "best_estimator_")


def unwrapped(model: Any) -> Any:
    """Return the estimator that a fitted search has chosen, also as a step of pipelines; other models as they are.

    Raises
    ------
    NotFittedError
        A search that is not fitted.
    ValueError
        A search that has fitted no best estimator (``refit=False``).
    """
    while is_search(model) or isinstance(model, FrozenEstimator):
        model = model.estimator if isinstance(model, FrozenEstimator) else _best(model)
    if not isinstance(model, Pipeline):
        return model
    # not opened(): a search may be any step, and the pipeline that contains it is built again
    steps = [(name, unwrapped(step)) for name, step in model.steps]
    if all(new is old for (_, new), (_, old) in zip(steps, model.steps, strict=True)):
        return model
    model = copy(model)  # the user's pipeline keeps its search
    model.steps = steps
    return model


def _best(search: Any) -> Any:
    """Return the best estimator of a search."""
    best = getattr(search, "best_estimator_", None)
    if best is not None:
        return best
    name = type(search).__name__
    if not hasattr(search, "cv_results_"):
        raise NotFittedError(f"the {name} is not fitted: call fit first")
    raise ValueError(f"the {name} has no best_estimator_, as its refit is False: fit it with refit=True")
