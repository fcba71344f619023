"""Arrays and collections that describe a clustering otherwise than by its centers: which labels to pass.

Passed as the model, and the labels to pass instead, are:

    collection of sets, or of the numbers of the rows of each cluster     by the members of each cluster
    mapping from rows to labels, partition of a graph                     its values, its membership
    tuple of centers, and labels or memberships                           the second, or its argmax
    linkage matrix [n - 1, 4]                                             those of a cut
    distances [n (n - 1) / 2] or [n, n] of all rows                       those of the fitted clusterer
    memberships >= 0, [n, K] or [K, n], that add up to 1 for each row     the argmax
    another matrix [n, ...] with other columns than X                     one for each row
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from torch import nn

from neonxc.data.inputs import as_array
from neonxc.data.table import Table

FITTED = "labels=, those of the clusterer that was fitted on it"
MIN_ROWS = 4
"""Number of rows below which centers may look like a linkage by chance."""
MEMBERS = (
    "labels=[*map({row: k for k, members in enumerate(model) for row in members}.get, range(len(X)))], where rows "
    "in no cluster are noise"
)


def check_is_model(model: object, X: Table | None) -> None:
    """Refuse linkages, distances, memberships, communities and the like, which have labels and no centers.

    Raises
    ------
    ValueError
        The message names what was passed, and says which labels to pass instead.
    """
    if hasattr(model, "fit") or isinstance(model, nn.Module | str):
        return
    mistake = _of_collection(model, X)
    if mistake is None:
        array = _numbers(model)
        if array is not None:
            mistake = _of_array(array, X)
    if mistake is not None:
        raise ValueError(
            f"model is {mistake.what}, and neither a clusterer nor centers [K, d]; pass X=X and {mistake.labels}"
        )


class Mistake(NamedTuple):
    """A clustering in another form than the centers or the clusterer that were needed."""

    what: str  # what was passed
    labels: str  # the argument to pass instead


def _numbers(model: object) -> np.ndarray | None:
    """Return the model as an array of numbers, if it is one."""
    if not (isinstance(model, list | tuple) or hasattr(model, "__array__")):
        return None
    try:
        array = as_array(model)
    except ValueError:  # rows of several lengths
        return None
    return array if array.dtype.kind in "biuf" else None


def _of_collection(model: object, X: Table | None) -> Mistake | None:
    """Describe a partition in another form than an array."""
    if hasattr(model, "get_clusters") and not hasattr(model, "predict"):  # of pyclustering
        labels = MEMBERS.replace("(model)", "(model.get_clusters())")
        return Mistake(f"a {type(model).__name__} with clusters of row numbers", labels)
    if isinstance(model, Mapping):
        return Mistake("a mapping", "labels=[model[row] for row in range(len(X))]")
    if hasattr(model, "membership"):  # of igraph and leidenalg
        return Mistake("a partition of a graph", "labels=model.membership")
    if isinstance(model, Iterator):
        labels = MEMBERS.replace("model", "communities")
        return Mistake("an iterator, such as that over communities of a graph", labels)
    if not isinstance(model, list | tuple | set | frozenset) or not len(model):
        return None

    if all(isinstance(members, set | frozenset) for members in model):
        return Mistake("a collection of sets", MEMBERS)
    axis = _axis_of_memberships(model)
    if axis is not None:
        labels = f"labels=numpy.asarray(model[1]).argmax(axis={axis})"
        return Mistake("a tuple of centers, memberships and other results, as skfuzzy.cmeans returns it", labels)
    if not all(isinstance(members, list | tuple | np.ndarray) for members in model):
        return None

    sizes = {np.size(members) for members in model}
    rows = [*chain.from_iterable(model)]
    if not all(isinstance(row, int | np.integer) for row in rows) or len({*rows}) < len(rows):
        # a pair of centers and labels, as functions for k-means return it
        if isinstance(model, tuple) and [np.ndim(result) for result in model[:2]] == [2, 1]:
            return Mistake("a tuple of several results", "labels=model[1]")
        return None
    rows_of_X = {*range(0 if X is None else len(X))}
    if {*rows} <= rows_of_X and (len(sizes) > 1 or len(rows) == len(rows_of_X)):
        return Mistake("a collection of row numbers", MEMBERS)
    return None


def _axis_of_memberships(model: Collection[Any]) -> int | None:
    """Return the axis of clusters in memberships that follow centers [K, d] in a tuple; None if none do."""
    if not isinstance(model, tuple) or [np.ndim(result) for result in model[:2]] != [2, 2]:
        return None
    n_clusters = len(model[0])
    memberships = as_array(model[1])
    if memberships.dtype.kind not in "biuf" or not (memberships >= 0).all():
        return None
    for axis in (0, 1):
        if memberships.shape[axis] == n_clusters and np.allclose(memberships.sum(axis=axis), 1):
            return axis
    return None


def _is_linkage(model: np.ndarray) -> bool:
    """Whether rows [K, 4] are merges: two numbers of clusters, their distance, and how many points they have."""
    if model.shape[1] != 4 or not len(model) or (model[:, [0, 1, 3]] % 1 != 0).any():
        return False
    from scipy.cluster.hierarchy import is_valid_linkage  # which takes long to load

    return bool(model[-1, 3] == len(model) + 1) and is_valid_linkage(model.astype(np.float64))


def _of_array(model: np.ndarray, X: Table | None) -> Mistake | None:
    """Describe an array other than centers."""
    n = None if X is None else len(X)
    shape = model.shape
    if len(shape) == 1 and n is not None and shape[0] == n * (n - 1) // 2 > n:
        return Mistake("the condensed matrix of the distances of all rows", FITTED)
    if len(shape) != 2:
        return None
    is_no_chance = n == shape[0] + 1 or shape[0] >= MIN_ROWS
    if is_no_chance and _is_linkage(model):
        cut = 'labels=scipy.cluster.hierarchy.fcluster(model, 3, criterion="maxclust")'
        return Mistake("a linkage matrix, which needs to be cut into clusters", cut)
    if n is None or n < 2 or n not in shape:
        return None

    width = None
    if X is not None and len(X.shape) == 2:
        width = X.shape[1]
    if shape == (n, n) and n >= MIN_ROWS and np.allclose(model, model.T):
        return Mistake("a matrix of the distances or similarities of all rows", FITTED)
    for axis in (1, 0):
        n_rows = shape[1 - axis]
        n_clusters = shape[axis]
        may_be_centers = axis == 0 and n == width
        if n_rows != n or not 1 < n_clusters < n or may_be_centers:
            continue
        if (model >= 0).all() and np.allclose(model.sum(axis=axis), 1):
            return Mistake("a matrix of memberships", f"labels=numpy.asarray(model).argmax(axis={axis})")
    if shape[0] == n and width not in (None, shape[1]):
        what = f"a matrix with a row for each of the {n} rows of X"
        return Mistake(what, "labels=, one label for each of them")
    return None
