"""Undirected weighted graphs on the points, which the SpEx explainers cut, and functions that read and build them.

Only the ratios of the weights matter: multiplying all weights by 10 does not change the tree.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import sparse
from sklearn.neighbors import kneighbors_graph
from torch import Tensor

from neonxc.common.arguments import check_whole
from neonxc.common.types import TableLike
from neonxc.data.frames import reads_tables
from neonxc.data.table import Table

Sparse = Any
"""A SciPy sparse matrix or array of any format, for which SciPy has no common type."""
ROUNDING = 1e-5  # relative tolerance for the symmetry of a matrix, which may have been computed in float32


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
        degree.index_add_(0, self.lower, self.weight)
        degree.index_add_(0, self.upper, self.weight)
        return degree

    def take(self, rows: Tensor) -> Graph:
        """Return the subgraph induced by a subset of the points, renumbered in the order of `rows`.

        Parameters
        ----------
        rows : Tensor [points] of int64
            Distinct points.
        """
        new = torch.full((self.n,), -1, dtype=torch.int64, device=self.weight.device)  # -1: not in the subset
        new[rows] = torch.arange(len(rows), device=new.device)
        ends = torch.stack([new[self.lower], new[self.upper]])
        is_kept = (ends >= 0).all(0)
        ends = ends[:, is_kept]
        weight = self.weight[is_kept]
        lower = ends.amin(0)
        upper = ends.amax(0)
        order = (lower * len(rows) + upper).argsort()
        return Graph(lower[order], upper[order], weight[order], len(rows))

    def to(self, device: torch.device | str | None) -> Graph:
        """Return the graph with its tensors on a device; None leaves them where they are."""
        return Graph(self.lower.to(device), self.upper.to(device), self.weight.to(device), self.n)


def as_graph(graph: object, n: int, *, name: str = "graph", device: torch.device | str | None = None) -> Graph:
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
    >>> from neonxc.trees.graph import as_graph
    >>> as_graph([[0, 1], [1, 2], [2, 1]], 4).degree
    tensor([1., 3., 2., 0.], dtype=torch.float64)
    """
    if isinstance(graph, Graph):
        result = graph
    else:
        result = _undirected(_weights_of(graph, n, name), name)
    if result.n != n:
        raise ValueError(
            f"{name} has {result.n} points, but X has {n}; both need the same points in the same order"
        )
    if not len(result.weight):
        raise ValueError(f"{name} has no edges of positive weight between two different points")
    if device is None:
        device = graph.device if isinstance(graph, Tensor) else result.weight.device
    return result.to(device)


@reads_tables
def knn_graph(X: TableLike, n_neighbors: int = 20) -> Graph:
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
    >>> from neonxc.trees.graph import knn_graph
    >>> knn_graph([[0.0], [1.0], [3.0]], n_neighbors=1).weight
    tensor([2., 1.], dtype=torch.float64)
    """
    check_whole("n_neighbors", n_neighbors)
    table = Table.read(X)
    points = table.data if table.is_sparse else table.tensor.cpu().numpy()
    n = len(table)
    neighbors: Sparse = sparse.coo_array((n, n))
    if n > 1:
        neighbors = kneighbors_graph(points, min(n_neighbors, n - 1), include_self=False)
    graph = _undirected(Weights(neighbors, lists_both=False), "X")
    return graph.to(table.device)


class Weights(NamedTuple):
    """The weights of a graph as a sparse matrix."""

    matrix: Sparse  # [n, n]
    lists_both: bool  # whether entries [i, j] and [j, i] are both the weight of the edge; else it is their sum


def _weights_of(graph: object, n: int, name: str) -> Weights:
    """Read a graph of any kind but `Graph` as a sparse matrix of weights."""
    if isinstance(graph, Tensor) and graph.layout != torch.strided:
        graph = _scipy_of(graph, name)
    arrays = _arrays_of(graph, n, name)
    shapes = [array.shape for array in arrays]
    n_rows = 0
    if shapes and shapes[0]:  # neither an empty tuple nor a single number
        n_rows = shapes[0][0]
    if shapes == [(n_rows, n_rows)]:
        entries = sparse.coo_array(arrays[0])
        weights = _numbers(entries.data, name)
        matrix = sparse.coo_array((weights, (entries.row, entries.col)), shapes[0])
        return Weights(matrix, lists_both=True)
    if shapes == [(n_rows, 2), (n_rows,)]:
        edges, weights = arrays
        _check_edges(edges, n, name)
        ends = edges.astype(np.int64).T
        matrix = sparse.coo_array((weights.astype(np.float64), ends), (n, n))
        return Weights(matrix, lists_both=False)
    got = " and ".join(str(list(shape)) for shape in shapes) or "an empty tuple"
    raise ValueError(
        f"{name} needs a square matrix [{n}, {n}], an edge list [edges, 2] or [edges, 3], or a tuple of edges "
        f"[edges, 2] and weights [edges], got {got}; an edge list alone is a list or an array, and one of shape "
        "[2, edges] or [3, edges] has to be transposed"
    )


def _scipy_of(graph: Tensor, name: str) -> Sparse:
    """Convert a sparse tensor to SciPy."""
    entries = graph.detach().cpu().to_sparse_coo()
    weight = _numbers(entries._values(), name)
    positions = entries._indices().numpy()
    return sparse.coo_array((weight.astype(np.float64), positions), tuple(graph.shape))  # SciPy has no float16


def _arrays_of(graph: object, n: int, name: str) -> list[Any]:
    """Read a graph as [matrix], or as [edges, weights] if it is an edge list of any form."""
    if isinstance(graph, tuple):
        return [_numbers(array, name) for array in graph]
    if sparse.issparse(graph):
        return [graph]
    values = _numbers(graph, name)
    if values.shape[1:] not in ((2,), (3,)):
        return [values]
    if values.shape == (n, n):
        raise ValueError(
            f"{name} of shape {list(values.shape)} for {n} points may be either a matrix or an edge list; "
            "pass scipy.sparse.csr_array(matrix), or a tuple (edges, weights)"
        )
    weights = values[:, 2] if values.shape[1] == 3 else np.ones(len(values))
    return [values[:, :2], weights]


def _check_edges(edges: np.ndarray, n: int, name: str) -> None:
    """Raise a ValueError unless edges [edges, 2] are pairs of indices of points."""
    if edges.dtype.kind == "b":
        raise ValueError(f"{name} needs two point indices per edge, got booleans")
    if edges.dtype.kind == "f" and n > 2 ** (np.finfo(edges.dtype).nmant + 1):
        raise ValueError(f"{name} of {edges.dtype} can't hold the indices of {n} points; pass (edges, weights)")
    is_index = (edges == np.floor(edges)) & (edges >= 0) & (edges < n)
    invalid = edges[~is_index]
    if len(invalid):
        raise ValueError(f"{name} needs integer point indices from 0 to {n - 1}, got {invalid[0]:g}")


def _undirected(weights: Weights, name: str) -> Graph:
    """Combine the two directions of every edge; drop self-loops and edges of weight 0."""
    directed = weights.matrix.tocoo().astype(np.float64)
    is_valid = (directed.data >= 0) & (directed.data < np.inf)
    if not is_valid.all():
        raise ValueError(f"{name} needs finite weights >= 0, got {directed.data[~is_valid][0]:g}")
    # entries [i, j] and [j, i] with i < j, both at [i, j]
    above = sparse.triu(directed, 1).tocsr()
    below = sparse.triu(directed.T, 1).tocsr()
    with np.errstate(over="ignore"):
        volume = 2 * (above.sum() + below.sum())
    if not np.isfinite(volume):
        raise ValueError(f"{name} has weights whose sum is not finite; scale them down, as only ratios matter")
    if weights.lists_both:
        _check_symmetry(above, below, name)
        combined = above.maximum(below)
    else:
        combined = above + below

    combined = sparse.csr_array(combined)
    combined.eliminate_zeros()
    combined.sort_indices()
    edges = combined.tocoo()
    lower = torch.from_numpy(edges.row.astype(np.int64))
    upper = torch.from_numpy(edges.col.astype(np.int64))
    return Graph(lower, upper, torch.from_numpy(edges.data), directed.shape[0])


def _check_symmetry(above: Sparse, below: Sparse, name: str) -> None:
    """Raise a ValueError unless entries [i, j] and [j, i] of a matrix, both passed at [i, j], are equal."""
    greater = above.maximum(below)
    differs = sparse.coo_array(abs(above - below) > ROUNDING * greater)
    if differs.nnz:
        i = int(differs.row[0])
        j = int(differs.col[0])
        raise ValueError(
            f"{name} needs a symmetric matrix, but entry [{i}, {j}] is {above[i, j]:g} and "
            f"[{j}, {i}] is {below[i, j]:g}; pass {name} + {name}.T or {name}.maximum({name}.T)"
        )


def _numbers(values: object, name: str) -> np.ndarray:
    """Convert values to an array of real numbers; anything else is a TypeError."""
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        if values.dtype == torch.bfloat16:  # which NumPy lacks
            values = values.float()
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
