"""Undirected weighted graphs on the points, which the SpEx explainers cut, and functions that read and build them.

Only the ratios of the weights matter: multiplying all weights by 10 does not change the tree.
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

from neonxc.common.arguments import check_whole
from neonxc.data.frames import reads_tables
from neonxc.data.table import Table

ROUNDING = 1e-5  # relative tolerance for the symmetry of a matrix, which may have been computed in float32
LISTS = (2, 3)  # number of columns of an edge list without and with weights


@dataclass(frozen=True, eq=False)
class Graph:
    """An undirected weighted graph on points.

    Attributes
    ----------
    lower, upper : Tensor [edges] of int64
        The two points of every edge, ``lower < upper``, sorted by `lower`, then `upper`. Every edge is listed
        once.
    weight : Tensor [edges] of float64
        Positive weights of the edges, with a finite sum.
    n : int
        Number of points, including isolated ones.
    """

    lower: Tensor
    upper: Tensor
    weight: Tensor
    n: int

    def __repr__(self) -> str:
        return f"Graph({self.n} points, {len(self.weight)} edges)"

    @cached_property
    def degree(self) -> Tensor:
        """Weighted degree of every point, [n] of float64: the sum of the weights of its edges."""
        degree = torch.zeros(self.n, dtype=torch.float64, device=self.weight.device)
        return degree.index_add_(0, self.lower, self.weight).index_add_(0, self.upper, self.weight)

    def take(self, rows: Tensor) -> Graph:
        """Return the subgraph induced by a subset of the points, renumbered in the order of `rows`.

        Parameters
        ----------
        rows : Tensor [points] of int64
            Distinct points.
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
        """Return the graph with its tensors on a device; None leaves them where they are."""
        return Graph(self.lower.to(device), self.upper.to(device), self.weight.to(device), self.n)


def as_graph(graph: Any, n: int, *, name: str = "graph", device: torch.device | str | None = None) -> Graph:
    """Convert a matrix or an edge list to a graph on n points.

    Parameters
    ----------
    graph : sparse matrix, array, tensor, list, tuple or Graph
        Weights are similarities: the greater the weight, the more it costs to cut the edge. The graph is one of

        - a symmetric matrix [n, n] of weights, 0 where there is no edge: a SciPy sparse matrix or array of any
          format, a sparse or dense tensor, or a dense array;
        - an edge list: an array, tensor or list with the indices of two points per row, [edges, 2], or with two
          points and a weight, [edges, 3];
        - a tuple (edges [edges, 2], weights [edges]).

        Edges in a list are undirected, and the weights of an edge that is listed several times are added. Listing
        every edge in both directions therefore gives the same trees as listing it once. Self-loops and edges of
        weight 0 are ignored. The two entries of an edge in a matrix may differ by rounding (relative difference of
        at most 1e-5); the greater one is used.
    n : int
        Number of points.
    name : str
        Name of the argument in error messages.
    device : torch.device, optional
        Device of the result. Default: the device of `graph` if it is a tensor, otherwise the CPU.

    Returns
    -------
    Graph

    Raises
    ------
    TypeError
        If `graph` is none of the above.
    ValueError
        If the graph has another number of points or no edges, if a matrix is not symmetric, if a weight is
        negative or not finite, if a point index is not a whole number from 0 to n - 1, or if an array of shape [n,
        n] may be either a matrix or an edge list (n = 2 or 3).

    Examples
    --------
    >>> from neonxc.trees.graph.graph import as_graph
    >>> as_graph([[0, 1], [1, 2], [2, 1]], 4).degree
    tensor([1., 3., 2., 0.], dtype=torch.float64)
    """
    if isinstance(graph, Graph):
        _check_size(graph.n, n, name)
        found = graph
    elif sparse.issparse(graph) or (isinstance(graph, Tensor) and graph.layout != torch.strided):
        found = _from_matrix(graph, n, name)
    else:
        found = _from_array(graph, n, name)
    if not len(found.weight):
        raise ValueError(f"{name} has no edges of positive weight between two different points")
    if device is None:
        device = graph.device if isinstance(graph, Tensor) else found.weight.device
    return found.to(device)


@reads_tables
def knn_graph(X: Any, n_neighbors: int = 20) -> Graph:
    """Build the graph of nearest neighbors by Euclidean distance (SpEx paper, section 2.3).

    An edge has weight 1 if one of its two points is among the nearest neighbors of the other, and weight 2 if both
    are. A point is not its own neighbor. Ties between equally distant points are broken arbitrarily.

    Parameters
    ----------
    X : array-like, data frame, sparse matrix or tensor [n, d]
        Finite numbers. The search for neighbors runs on the CPU.
    n_neighbors : int
        Number of neighbors, at least 1. Values above n - 1 are reduced to n - 1.

    Returns
    -------
    Graph
        On the device of X. The graph of a single point has no edges.

    Examples
    --------
    >>> from neonxc.trees.graph.graph import knn_graph
    >>> knn_graph([[0.0], [1.0], [3.0]], n_neighbors=1).weight
    tensor([2., 1.], dtype=torch.float64)
    """
    check_whole("n_neighbors", n_neighbors)
    table = Table.read(X)
    points = table.data if table.is_sparse else table.tensor.cpu().numpy()
    device, n = table.device, len(table)
    n_neighbors = min(n_neighbors, n - 1)
    if n_neighbors == 0:
        none = torch.zeros(0, dtype=torch.int64)
        return Graph(none, none, none.to(torch.float64), n).to(device)
    return _undirected(kneighbors_graph(points, n_neighbors, include_self=False), "X", both=False).to(device)


def _from_array(graph: Any, n: int, name: str) -> Graph:
    """Read a pair (edges, weights), an edge list if an array has two or three columns, or a square matrix."""
    if isinstance(graph, tuple):
        if len(graph) != 2:
            raise ValueError(
                f"{name} as a tuple needs (edges, weights), got {len(graph)} items; an edge list is a list or an "
                "array"
            )
        edges, weight = _numbers(graph[0], name), _numbers(graph[1], name)
        if edges.ndim != 2 or edges.shape[1] != 2 or weight.shape != edges.shape[:1]:
            raise ValueError(
                f"{name} as a tuple needs edges of shape [edges, 2] and weights of shape [edges], got "
                f"{list(edges.shape)} and {list(weight.shape)}; an edge list alone is a list or an array"
            )
        return _from_edges(edges, weight, n, name)
    values = _numbers(graph, name)
    rows, columns = values.shape if values.ndim == 2 else (-1, -1)
    if rows == columns == n and n in LISTS:
        raise ValueError(
            f"{name} of shape {list(values.shape)} for {n} points may be either a matrix or an edge list; "
            "pass scipy.sparse.csr_array(matrix), or a tuple (edges, weights)"
        )
    if columns in LISTS:
        return _from_edges(values[:, :2], values[:, 2] if columns == 3 else np.ones(rows), n, name)
    if rows == columns and values.ndim == 2:
        return _from_matrix(sparse.coo_array(values), n, name)
    raise ValueError(
        f"{name} needs a matrix [{n}, {n}] or an edge list [edges, 2] or [edges, 3], got shape "
        f"{list(values.shape)}{f'; pass {name}.T' if rows in LISTS else ''}"
    )


def _from_matrix(graph: Any, n: int, name: str) -> Graph:
    """Read a matrix; duplicate entries of a sparse one are added."""
    if len(graph.shape) != 2 or graph.shape[0] != graph.shape[1]:
        raise ValueError(f"{name} needs a square matrix [{n}, {n}], got shape {list(graph.shape)}")
    _check_size(graph.shape[0], n, name)
    if isinstance(graph, Tensor):
        entries = graph.detach().to_sparse_coo()
        places, weight = entries._indices().cpu().numpy(), _numbers(entries._values(), name)
    else:
        entries = graph.tocoo()
        places, weight = np.stack([entries.row, entries.col]), _numbers(entries.data, name)
    return _undirected(sparse.coo_array((weight.astype(np.float64), places), (n, n)), name, both=True)


def _from_edges(edges: np.ndarray, weight: np.ndarray, n: int, name: str) -> Graph:
    """Read pairs of point indices, which are floats if they come from an array that also holds the weights."""
    if edges.dtype.kind == "b":
        raise ValueError(f"{name} needs two point indices per edge, got booleans")
    if edges.dtype.kind == "f" and n > 2 ** (np.finfo(edges.dtype).nmant + 1):
        raise ValueError(f"{name} of {edges.dtype} can't hold the indices of {n} points; pass (edges, weights)")
    broken = edges[edges != np.floor(edges)]
    if len(broken):
        raise ValueError(f"{name} needs integer point indices in its first two columns, got {broken[0]:g}")
    outside = edges[(edges < 0) | (edges >= n)]
    if len(outside):
        raise ValueError(f"{name} has an edge with point {outside[0]:g}, but the points are 0 to {n - 1}")
    return _undirected(
        sparse.coo_array((weight.astype(np.float64), edges.T.astype(np.int64)), (n, n)), name, both=False
    )


def _undirected(directed: Any, name: str, both: bool) -> Graph:
    """Combine the two directions of every edge, of which a matrix lists `both`; drop self-loops."""
    directed = directed.tocoo().astype(np.float64)
    bad = directed.data[~((directed.data >= 0) & (directed.data < np.inf))]
    if len(bad):
        raise ValueError(f"{name} needs finite weights >= 0, got {bad[0]:g}")
    above, below = (sparse.triu(matrix, 1).tocsr() for matrix in (directed, directed.T))
    with np.errstate(over="ignore"):
        volume = 2 * (above.sum() + below.sum())
    if not np.isfinite(volume):
        raise ValueError(f"{name} has weights whose sum is not finite; scale them down, as only ratios matter")
    greater = above.maximum(below)
    apart = sparse.coo_array(abs(above - below) > ROUNDING * greater)
    if both and apart.nnz:
        lower, upper = int(apart.row[0]), int(apart.col[0])
        raise ValueError(
            f"{name} needs a symmetric matrix, but entry [{lower}, {upper}] is {above[lower, upper]:g} and "
            f"[{upper}, {lower}] is {below[lower, upper]:g}; pass {name} + {name}.T or {name}.maximum({name}.T)"
        )
    total = sparse.csr_array(greater if both else above + below)
    total.eliminate_zeros()
    total.sort_indices()
    edges = total.tocoo()
    lower_, upper_, weight = (torch.from_numpy(own) for own in (edges.row, edges.col, edges.data))
    return Graph(lower_.to(torch.int64), upper_.to(torch.int64), weight, directed.shape[0])


def _check_size(got: int, n: int, name: str) -> None:
    if got != n:
        raise ValueError(f"{name} has {got} points, but X has {n}; both need the same points in the same order")


def _numbers(values: Any, name: str) -> np.ndarray:
    """Convert values to an array of real numbers; anything else is a TypeError."""
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        values = values.float() if values.dtype == torch.bfloat16 else values  # NumPy has no bfloat16
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
