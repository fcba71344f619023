"""The clusterer at the end of a pipeline, and the steps before it."""

from __future__ import annotations

from typing import Any, TypeAlias

from sklearn.pipeline import Pipeline

Step: TypeAlias = tuple[str, Any]
"""A step of a pipeline with its name."""


def opened(model: object) -> tuple[list[Step], Any]:
    """Return the steps before a clusterer and the clusterer, of a pipeline that may end in another pipeline.

    Parameters
    ----------
    model : estimator
        A clusterer, or a pipeline that ends in one. Pipelines among its other steps stay single steps.

    Returns
    -------
    steps : list of (name, step)
        Empty for a model that is not a pipeline.
    final : estimator
        The last step, or the model itself.
    """
    steps: list[Step] = []
    while isinstance(model, Pipeline):
        steps += model.steps[:-1]
        model = model.steps[-1][1]
    return steps, model
