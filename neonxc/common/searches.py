"""Fitted searches over parameters, and other wrappers of an estimator, are replaced by the estimator in them.

wrapper                                                              attribute
GridSearchCV, RandomizedSearchCV, and searches of other libraries    best_estimator_
FrozenEstimator                                                      estimator
"""

from __future__ import annotations

from copy import copy
from typing import Any

from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline


def is_search(model: object) -> bool:
    """Whether a model searches for the best parameters of an estimator, or has done so."""
    if isinstance(model, type):
        return False
    has_base = any(base.__name__.endswith("BaseSearchCV") for base in type(model).__mro__)  # of any library
    return has_base or hasattr(model, "best_estimator_")


def awaits_search(model: object) -> bool:
    """Whether a model is a search that is not fitted, or a pipeline with such a step."""
    if isinstance(model, Pipeline):
        return any(awaits_search(step) for _, step in model.steps)
    return is_search(model) and not hasattr(model, "best_estimator_") and not hasattr(model, "cv_results_")


def unwrapped(model: Any) -> Any:
    """Return the estimator in a fitted search, also for steps of pipelines; other models stay as they are.

    Raises
    ------
    NotFittedError
        If a search is not fitted.
    ValueError
        If a search has fitted no best estimator (``refit=False``).
    """
    while is_search(model) or isinstance(model, FrozenEstimator):
        if isinstance(model, FrozenEstimator):
            model = model.estimator
        else:
            model = best_estimator(model)
    if not isinstance(model, Pipeline):
        return model
    # not opened(): a search may be any step, and the pipeline that contains it is built again
    steps = [(name, unwrapped(step)) for name, step in model.steps]
    is_same = all(new is old for (_, new), (_, old) in zip(steps, model.steps, strict=True))
    if is_same:
        return model
    model = copy(model)  # the user's pipeline keeps its search
    model.steps = steps
    return model


def best_estimator(search: object) -> Any:
    """Return the best estimator of a search, or raise one of the errors of :func:`unwrapped`."""
    best = getattr(search, "best_estimator_", None)
    if best is not None:
        return best
    name = type(search).__name__
    if not hasattr(search, "cv_results_"):
        raise NotFittedError(f"the {name} is not fitted: call fit first")
    raise ValueError(f"the {name} has no best_estimator_, as its refit is False: fit it with refit=True")
