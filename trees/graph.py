"""The graphs that SpEx explains: undirected weighted graphs on the points, and how they are read.

Edges are kept once each, by their two points. Only ratios of weights count: a graph and ten times that graph give
the same trees.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from scipy import sparse
from sklearn.neighbors import kneighbors_graph
from torch import Tensor

from neonxc.inputs import as_batch
from neonxc.parameters import check_whole

ROUNDING = 1e-5  # how far, relatively, the two entries of an edge may differ in a matrix computed in float32
LISTS = (2, 3)  # columns of an edge list, without and with weights


@dataclass(frozen=True, eq=False)
class Graph:
    """An undirected weighted graph on points.

    Attributes
    ----------
    lower, upper : Tensor [edges] of int64
        The two points of every edge, ``lower < upper``. No pair appears twice; sorted by `lower`, then `upper`.
    weight : Tensor [edges] of float64
        Greater than 0, with a finite sum.
    n : int
        Points, with or without edges.
    """

    lower: Tensor
    upper: Tensor
    weight: Tensor
    n: int

    def __repr__(self) -> str:
        return f"Graph({self.n} points, {len(self.weight)} edges)"

    @cached_property
    def degree(self) -> Tensor:
        """Weighted degrees, [n] of float64: the sum of the weights of a point's edges, 0 for an isolated point."""
        degree = torch.zeros(self.n, dtype=torch.float64, device=self.weight.device)
        return degree.index_add_(0, self.lower, self.weight).index_add_(0, self.upper, self.weight)

    def take(self, rows: Tensor) -> Graph:
        """Return the graph induced on some points, renumbered in the order in which they are given.

        Parameters
        ----------
        rows : Tensor [points] of int64
            Different points.
        """
        place = torch.full((self.n,), -1, dtype=torch.int64, device=self.weight.device)
        place[rows] = torch.arange(len(rows), device=place.device)
        ends = torch.stack([place[self.lower], place[self.upper]])
        kept = (ends >= 0).all(0)
        ends, weight = ends[:, kept], self.weight[kept]
        lower, upper = ends.amin(0), ends.amax(0)
        order = (lower * len(rows) + upper).argsort()
        return Graph(lower[order], upper[order], weight[order], len(rows))

    def to(self, device: torch.device | str | None) -> Graph:
        """Return the graph with its tensors on a device; where they are, for None."""
        return Graph(self.lower.to(device), self.upper.to(device), self.weight.to(device), self.n)


def as_graph(graph: Any, n: int, *, name: str = "graph", device: torch.device | str | None = None) -> Graph:
    """Read a graph on n points.

    Parameters
    ----------
    graph : sparse matrix, array, tensor, list, tuple or Graph
        Weights are similarities: the greater the weight, the more it costs to cut the edge. One of

        - a symmetric matrix [n, n] of weights, 0 where there is no edge: a scipy sparse matrix or array of any
          format, a sparse or dense tensor, a dense array;
        - an edge list: array, tensor or list of the numbers of two points, [edges, 2], or of two points and a
          weight, [edges, 3];
        - a tuple (edges [edges, 2], weights [edges]).

        Edges in a list have no direction, and the weights of a pair that is listed repeatedly are added up. A list
        with every edge in both directions thus gives the same trees as one that has it once. Loops (edges from a
        point to itself) are never cut, and are left out, and so are edges of weight 0. The two entries of an edge
        in a matrix may differ by rounding (1e-5 relatively); the greater one is taken.
    n : int
        Number of points.
    name : str
        What the errors call the argument.
    device : torch.device, optional
        Where the result shall be; by default where the given tensor is, the CPU for anything else.

    Returns
    -------
    Graph

    Raises
    ------
    TypeError
        None of the above.
    ValueError
        Another number of points; a matrix that is not symmetric; negative weights, or weights that are not finite;
        point numbers that are not whole or not among 0 to n - 1; no edge at all; an array of shape [n, n] that
        can be a matrix as well as an edge list (n = 2 or 3).

    Examples
    --------
    >>> from neonxc.trees.graph import as_graph
    >>> as_graph([[0, 1], [1, 2], [2, 1]], 4).degree
    tensor([1., 3., 2., 0.], dtype=torch.float64)
    """
    if isinstance(graph, Graph):
        _check_size(graph.n, n, name)
        found = graph
    elif isinstance(graph, tuple):
        found = _from_pair(graph, n, name)
    elif sparse.issparse(graph) or (isinstance(graph, Tensor) and graph.layout != torch.strided):
        found = _from_matrix(graph, n, name)
    else:
        found = _from_array(graph, n, name)
    if not len(found.weight):
        raise ValueError(f"{name} has no edges: every weight between two different points is 0, or none is given")
    if device is None:
        device = graph.device if isinstance(graph, Tensor) else found.weight.device
    return found.to(device)


def knn_graph(X: Any, n_neighbors: int = 20) -> Graph:
    """Graph of the nearest neighbours by Euclidean distance: SpEx-kNN's (SpEx paper, Section 2.3).

    A pair weighs 1 if one of the two is among the other's nearest neighbours, and 2 if both are: the matrix of
    neighbours plus its transpose. A point is not its own neighbour. Of equally near points any may be taken.

    Parameters
    ----------
    X : array-like, data frame, sparse matrix or tensor [n, d]
        Finite numbers. Neighbours are found on the CPU.
    n_neighbors : int
        At least 1; n - 1 at most are taken.

    Returns
    -------
    Graph
        On the device of X. A single point has no edges.

    Examples
    --------
    >>> from neonxc.trees.graph import knn_graph
    >>> knn_graph([[0.0], [1.0], [3.0]], n_neighbors=1).weight
    tensor([2., 1.], dtype=torch.float64)
    """
    check_whole("n_neighbors", n_neighbors)
    points: Any
    if sparse.issparse(X):
        points, device = X.tocsr(), torch.device("cpu")
    else:
        tensor = as_batch(X).tensor
        points, device = tensor.cpu().numpy(), tensor.device
    n = points.shape[0]
    n_neighbors = min(n_neighbors, n - 1)
    if n_neighbors == 0:
        none = torch.zeros(0, dtype=torch.int64)
        return Graph(none, none, none.to(torch.float64), n).to(device)
    directed = kneighbors_graph(points, n_neighbors, include_self=False).tocoo()
    return _undirected(directed.row, directed.col, directed.data, n, "X").to(device)


def _from_pair(graph: tuple[Any, ...], n: int, name: str) -> Graph:
    if len(graph) != 2:
        raise ValueError(
            f"{name} as a tuple needs (edges, weights), got {len(graph)} items; an edge list is a list or an array"
        )
    edges, weight = _numbers(graph[0], name), _numbers(graph[1], name)
    if edges.ndim != 2 or edges.shape[1] != 2 or weight.shape != edges.shape[:1]:
        raise ValueError(
            f"{name} as a tuple needs edges of shape [edges, 2] and weights of shape [edges], got "
            f"{list(edges.shape)} and {list(weight.shape)}; an edge list alone is a list or an array"
        )
    return _from_list(edges, weight, n, name)


def _from_array(graph: Any, n: int, name: str) -> Graph:
    """A dense array: an edge list if it has two or three columns, a matrix if it is square."""
    values = _numbers(graph, name)
    rows, columns = values.shape if values.ndim == 2 else (-1, -1)
    if rows == columns == n and n in LISTS:
        raise ValueError(
            f"{name} of shape {list(values.shape)} for {n} points may be a matrix or an edge list; "
            "pass scipy.sparse.csr_array(matrix), or a tuple (edges, weights)"
        )
    if columns in LISTS:
        return _from_list(values[:, :2], values[:, 2] if columns == 3 else np.ones(rows), n, name)
    if rows == columns and values.ndim == 2:
        return _from_matrix(sparse.coo_matrix(values), n, name)
    raise ValueError(
        f"{name} needs a matrix [{n}, {n}] or an edge list [edges, 2] or [edges, 3], got shape "
        f"{list(values.shape)}{f'; pass {name}.T' if rows in LISTS else ''}"
    )


def _from_matrix(graph: Any, n: int, name: str) -> Graph:
    """A sparse matrix, in which entries that are given repeatedly are added up."""
    if len(graph.shape) != 2 or graph.shape[0] != graph.shape[1]:
        raise ValueError(f"{name} needs a square matrix [{n}, {n}], got shape {list(graph.shape)}")
    _check_size(graph.shape[0], n, name)
    if isinstance(graph, Tensor):
        entries = graph.detach().to_sparse_coo()
        row, column = entries._indices().cpu().numpy()  # not coalesced: repeated entries are added up below
        weight = _numbers(entries._values(), name)
    else:
        entries = graph.tocoo()
        row, column, weight = entries.row, entries.col, _numbers(entries.data, name)
    return _undirected(row, column, weight, n, name, matrix=True)


def _from_list(edges: np.ndarray, weight: np.ndarray, n: int, name: str) -> Graph:
    """Pairs of point numbers, which may be floating ones, as a table that holds the weights too has them."""
    if edges.dtype.kind == "b":
        raise ValueError(f"{name} needs the numbers of two points per edge, got booleans")
    if edges.dtype.kind == "f" and n > 2 ** (np.finfo(edges.dtype).nmant + 1):
        raise ValueError(f"{name} of {edges.dtype} can't hold the numbers of {n} points; pass (edges, weights)")
    broken = edges[edges != np.floor(edges)]
    if len(broken):
        raise ValueError(f"{name} needs whole numbers of points in its first two columns, got {broken[0]:g}")
    outside = edges[(edges < 0) | (edges >= n)]
    if len(outside):
        raise ValueError(f"{name} has an edge of point {outside[0]:g}; there are {n} points, 0 to {n - 1}")
    return _undirected(edges[:, 0], edges[:, 1], weight, n, name)


def _undirected(
    row: np.ndarray, column: np.ndarray, weight: np.ndarray, n: int, name: str, matrix: bool = False
) -> Graph:
    """Edges as pairs of points; a matrix has each of them twice, in both directions. Loops count in neither."""
    row, column, weight = row.astype(np.int64), column.astype(np.int64), weight.astype(np.float64)
    _check_weights(weight, name)
    pairs, pair = np.unique(np.minimum(row, column) * n + np.maximum(row, column), return_inverse=True)
    above = np.bincount(pair, weight * (row < column), minlength=len(pairs))
    below = np.bincount(pair, weight * (row > column), minlength=len(pairs))
    with np.errstate(over="ignore"):
        volume = 2 * (above.sum() + below.sum())
    if not np.isfinite(volume):
        raise ValueError(f"{name} has weights whose sum is not finite; scale them: only their ratios count")
    if matrix:
        _check_symmetry(pairs, above, below, n, name)
    total = np.maximum(above, below) if matrix else above + below
    pairs, total = pairs[total > 0], total[total > 0]
    lower, upper = np.divmod(pairs, n)
    return Graph(torch.from_numpy(lower), torch.from_numpy(upper), torch.from_numpy(total), n)


def _check_size(got: int, n: int, name: str) -> None:
    if got != n:
        raise ValueError(f"{name} has {got} points, X has {n}; both need the same points in the same order")


def _check_weights(weight: np.ndarray, name: str) -> None:
    bad = weight[~((weight >= 0) & (weight < np.inf))]
    if len(bad):
        raise ValueError(f"{name} needs weights that are finite and not negative, got {bad[0]:g}")


def _check_symmetry(pairs: np.ndarray, above: np.ndarray, below: np.ndarray, n: int, name: str) -> None:
    apart = np.abs(above - below) > ROUNDING * np.maximum(above, below)
    if apart.any():
        first = int(apart.argmax())
        lower, upper = divmod(int(pairs[first]), n)
        raise ValueError(
            f"{name} needs a symmetric matrix, but entry [{lower}, {upper}] is {above[first]:g} and "
            f"[{upper}, {lower}] is {below[first]:g}; pass {name} + {name}.T or {name}.maximum({name}.T)"
        )


def _numbers(values: Any, name: str) -> np.ndarray:
    """Values as an array of real numbers; a TypeError for anything else."""
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        values = values.float() if values.dtype == torch.bfloat16 else values  # NumPy has no such type
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{name} can't be read as an array of numbers: {error}") from None
    if array.dtype.kind not in "biuf":
        raise TypeError(
            f"{name} needs a sparse matrix, an edge list [edges, 2] or [edges, 3], or a tuple (edges, weights) of "
            f"numbers, got {type(values).__name__} of {array.dtype}"
        )
    return array
