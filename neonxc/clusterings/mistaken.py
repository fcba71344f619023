"""Arrays and collections that describe a clustering otherwise than by its centers: which labels to pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np
from scipy.cluster.hierarchy import is_valid_linkage
from torch import nn

from neonxc.data.inputs import as_array
from neonxc.data.table import Table

FITTED = "labels=, those of the clusterer that was fitted on it"
LEAST = 4
"""Number of rows below which centers may look like a linkage by chance."""
MEMBERS = (
    "labels=[*map({row: k for k, members in enumerate(model) for row in members}.get, range(len(X)))], where rows "
    "in no cluster are noise"
)


def check_is_model(model: Any, X: Table | None) -> None:
    """Refuse linkages, distances, memberships, communities and the like, which have labels and no centers.

    Raises
    ------
    ValueError
        The message names what was passed, and says which labels to pass instead.
    """
    if hasattr(model, "fit") or isinstance(model, nn.Module | str):
        return
    found = _of_collection(model, X)
    if found is None and (array := _numbers(model)) is not None:
        found = _of_array(array, X)
    if found is not None:
        what, labels = found
        raise ValueError(f"model is {what}, and neither a clusterer nor centers [K, d]; pass X=X and {labels}")


def _numbers(model: Any) -> np.ndarray | None:
    """The model as an array of numbers, if it is one."""
    if not (isinstance(model, list | tuple) or hasattr(model, "__array__")):
        return None
    try:
        array = as_array(model)
    except ValueError:  # rows of several lengths
        return None
    return array if array.dtype.kind in "biuf" else None


def _of_collection(model: Any, X: Table | None) -> tuple[str, str] | None:
    """What a partition in another form than an array is, and the labels in it."""
    if hasattr(model, "get_clusters") and not hasattr(model, "predict"):  # of pyclustering
        return f"a {type(model).__name__} with clusters of row numbers", MEMBERS.replace(
            "(model)", "(model.get_clusters())"
        )
    if isinstance(model, Mapping):
        return "a mapping", "labels=[model[row] for row in range(len(X))]"
    if hasattr(model, "membership"):  # of igraph and leidenalg
        return "a partition of a graph", "labels=model.membership"
    if isinstance(model, Iterator):
        return "an iterator, such as that over communities of a graph", MEMBERS.replace("model", "communities")
    if not isinstance(model, list | tuple | set | frozenset) or not len(model):
        return None
    if all(isinstance(members, set | frozenset) for members in model):
        return "a collection of sets", MEMBERS
    if axis := _axis_of_memberships(model):
        labels = f"labels=numpy.asarray(model[1]).argmax(axis={axis - 1})"
        return "a tuple of centers, memberships and other results, as skfuzzy.cmeans returns it", labels
    if not all(isinstance(members, list | tuple | np.ndarray) for members in model):
        return None
    sizes = {np.size(members) for members in model}
    rows = [*chain.from_iterable(model)]
    if not all(isinstance(row, int | np.integer) for row in rows) or len({*rows}) < len(rows):
        return ("a tuple of several results", "labels=model[1]") if _are_results(model) else None
    every = {*range(0 if X is None else len(X))}
    are_rows = {*rows} <= every and (len(sizes) > 1 or len(rows) == len(every))
    return ("a collection of row numbers", MEMBERS) if are_rows else None


def _are_results(model: Any) -> bool:
    """Whether this is a pair of centers and labels, as functions for k-means return it."""
    return isinstance(model, tuple) and [np.ndim(part) for part in model[:2]] == [2, 1]


def _axis_of_memberships(model: Any) -> int:
    """Return 1 if a tuple begins with centers [K, d] and memberships [K, N], 2 with [N, K], and else 0."""
    if not isinstance(model, tuple) or [np.ndim(part) for part in model[:2]] != [2, 2]:
        return 0
    n_clusters = len(model[0])
    memberships = as_array(model[1])
    if memberships.dtype.kind not in "biuf" or not (memberships >= 0).all():
        return 0
    for axis in (0, 1):
        if memberships.shape[axis] == n_clusters and np.allclose(memberships.sum(axis=axis), 1):
            return axis + 1
    return 0


def _is_linkage(model: np.ndarray) -> bool:
    """Whether rows [K, 4] are merges: two numbers of clusters, their distance, and how many points they have."""
    if model.shape[1] != 4 or not len(model) or (model[:, [0, 1, 3]] % 1 != 0).any():
        return False
    return bool(model[-1, 3] == len(model) + 1) and is_valid_linkage(model.astype(np.float64))


def _of_array(model: np.ndarray, X: Table | None) -> tuple[str, str] | None:
    """What an array other than centers is, and the labels in it."""
    n = None if X is None else len(X)
    shape = model.shape
    if len(shape) == 1 and n is not None and shape[0] == n * (n - 1) // 2 > n:
        return "the condensed matrix of the distances of all rows", FITTED
    if len(shape) != 2:
        return None
    surely = n == shape[0] + 1 or shape[0] >= LEAST
    if surely and _is_linkage(model):
        cut = 'labels=scipy.cluster.hierarchy.fcluster(model, 3, criterion="maxclust")'
        return "a linkage matrix, which needs to be cut into clusters", cut
    width = X.shape[1] if X is not None and len(X.shape) == 2 else None
    if n is None or n < 2 or n not in shape:
        return None
    if shape == (n, n) and n >= LEAST and np.allclose(model, model.T):
        return "a matrix of the distances or similarities of all rows", FITTED
    for axis, others in ((1, shape[1]), (0, shape[0])):
        memberships = (model >= 0).all() and np.allclose(model.sum(axis=axis), 1)
        if shape[1 - axis] == n > others > 1 and memberships and (axis == 1 or n != width):
            return "a matrix of memberships", f"labels=numpy.asarray(model).argmax(axis={axis})"
    if shape[0] == n and width not in (None, shape[1]):
        return f"a matrix with a row for each of the {n} rows of X", "labels=, one label for each of them"
    return None
