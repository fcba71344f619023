"""Makes the problem of a tree explainer: finds the reference clustering of the points, and codes their columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import Tensor

from neonxc.common.processes import Ranks
from neonxc.data.labels import class_order
from neonxc.trees.cuts.codes import code_columns
from neonxc.trees.fit.given import Given
from neonxc.trees.fit.mixed import centers_in_columns
from neonxc.trees.fit.points import Dense
from neonxc.trees.fit.problem import Problem
from neonxc.trees.fit.reference import Reference, common_seed, from_centers, from_labels, kmeans

Find = Callable[[Any, Any, Tensor | None, Ranks], Reference]
"""Finds the reference clustering of points, which are those of X, with weights, if `fit` is given none."""


def problem_in_memory(model: Any, given: Given, labels: Any, centers: Any, find: Find, ranks: Ranks) -> Problem:
    """The problem of a table in memory, or of the rows of one process of a group.

    Parameters
    ----------
    model : TreeExplainer
        Its parameters `metric` and `max_bins` are used.
    given : Given
    labels, centers : Any
        As for `fit`; a pandas categorical has an order.
    find : callable
    ranks : Ranks
    """
    made, weight = given.mixed, given.weight
    space = made.space if made else given.table
    if centers is not None:
        with ranks.agreed():
            if made:
                raise ValueError("centers needs an X without categories and missing values; pass labels instead")
            found = from_centers(space, centers, model.metric, given.names)
    elif given.labels is not None:
        found = from_labels(space, given.labels, model.metric, weight, ranks)
    else:
        found = find(space, given.X, weight, ranks)
    found = found if made is None else centers_in_columns(found, made, model.metric, weight)
    if ranks.alone:
        found.reorder(class_order(labels, found.classes))
    columns = code_columns(given.table, found.centers, model.max_bins, weight, ranks)
    return Problem(given.table, columns, found, weight, model.metric, made, ranks)


def problem_in_batches(
    model: Any, given: Given, centers: Any, find: Find | None, measured: bool, ranks: Ranks
) -> Problem:
    """The problem of a table that is read batch by batch: for the means of the labels, and for its codes.

    Parameters
    ----------
    model : TreeExplainer
        Its parameters `n_clusters`, `metric` and `random_state` are used.
    given : Given
    centers : Any
        As for `fit`.
    find : callable or None
        None if k-means is fitted to a sample, unless there are labels or centers.
    measured : bool
        Whether the distances of all points to the centers are kept.
    ranks : Ranks
    """
    table: Any = given.table
    own: Tensor | None = None  # found together with the codes, if there are centers
    if given.labels is not None:
        found = from_labels(table, given.labels, "l2", None, ranks)
        own = found.labels
    elif centers is None and find is not None:
        found = find(table, None, None, ranks)
        own = found.labels
    else:
        points, count = table.sample()
        if centers is None:
            seed = common_seed(model.random_state, ranks)
            found = kmeans(Dense(points), model.n_clusters, count, seed)
        else:
            found = from_centers(Dense(points), centers, model.metric, given.names)
        found.space = table
    space: Any = found.space
    columns, found.labels, far = table.code(found.centers, own, model.metric, measured and space is table)
    if measured and space is not table:
        _, _, far = space.code(found.space_centers, found.labels, model.metric, True)
    return Problem(table, columns, replace(found, distances=far), None, model.metric, ranks=ranks)
