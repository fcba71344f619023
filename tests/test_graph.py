"""Graphs on points, however they are given: one graph, or an error that says what is wrong."""

import numpy as np
import pandas as pd
import pytest
import torch
from refusals import refused
from scipy import sparse

from neonxc.trees.graph import Graph, as_graph, knn_graph

FORMATS = ["csr", "csc", "coo", "lil", "dok", "bsr", "dia"]
N = 5  # neither 2 nor 3: a dense matrix of these sizes could be an edge list
EDGES = np.array([[0, 1], [3, 1], [2, 3]])  # point 4 is isolated
WEIGHTS = np.array([0.5, 2.0, 3.0])


def dense(graph):
    """The symmetric matrix of a graph."""
    matrix = np.zeros((graph.n, graph.n))
    for u, v, w in zip(graph.lower.tolist(), graph.upper.tolist(), graph.weight.tolist(), strict=True):
        assert u < v
        assert w > 0
        assert matrix[u, v] == 0
        matrix[u, v] = matrix[v, u] = w
    return matrix


def matrix_of(n, edges, weights):
    matrix = np.zeros((n, n))
    for (u, v), w in zip(edges, weights, strict=True):
        if u != v:
            matrix[[u, v], [v, u]] += w
    return matrix


MATRIX = matrix_of(N, EDGES, WEIGHTS)
LIST = np.column_stack([EDGES, WEIGHTS])


# --- one graph, in many ways -------------------------------------------------------------------------------


TWICE = np.concatenate([EDGES, EDGES[:, ::-1]])
TENSOR = torch.from_numpy(MATRIX)
HALVES = torch.sparse_coo_tensor(np.tile(TWICE.T, 2), torch.from_numpy(np.tile(WEIGHTS / 2, 4)), (N, N))
WAYS = [
    *(sparse.coo_matrix(MATRIX).asformat(name) for name in FORMATS),
    *(sparse.coo_array(MATRIX).asformat(name) for name in ("csr", "coo")),
    sparse.csr_array(MATRIX.astype(np.float32)),
    *(TENSOR.to_sparse_coo(), TENSOR.to_sparse_csr(), TENSOR.half().to_sparse_csc()),
    *(TENSOR.bfloat16().to_sparse_coo(), TENSOR.to_sparse_coo().requires_grad_(), HALVES),
    *(MATRIX, TENSOR, MATRIX.tolist()),
    *(LIST, LIST[::-1, [1, 0, 2]], torch.from_numpy(LIST), LIST.tolist()),
    pd.DataFrame({"from": EDGES[:, 0], "to": EDGES[:, 1], "weight": WEIGHTS}),
    *((EDGES, WEIGHTS), (torch.from_numpy(EDGES), torch.from_numpy(WEIGHTS)), (EDGES.tolist(), WEIGHTS.tolist())),
    (EDGES.astype(np.uint8), WEIGHTS.astype(np.float32)),
    (TWICE, np.tile(WEIGHTS / 2, 2)),
    as_graph(LIST, N),
]


@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_giving_a_graph_gives_the_same(way):
    graph = as_graph(way, N)
    assert np.array_equal(dense(graph), MATRIX)
    assert graph.n == N
    assert (graph.lower.dtype, graph.upper.dtype, graph.weight.dtype) == (torch.int64, torch.int64, torch.float64)


@pytest.mark.parametrize("integers", [np.int64, np.float64, np.float32, np.int8, np.uint64])
def test_edges_without_weights_weigh_one(integers):
    edges = EDGES.astype(integers)
    for form in (edges, edges.tolist()):
        assert np.array_equal(dense(as_graph(form, N)), MATRIX > 0)


@pytest.mark.parametrize("seed", range(60))
def test_lists_are_undirected_sums(seed):
    """Pairs in both directions, repeated ones, loops, weights of 0."""
    rng = np.random.default_rng(seed)
    n = 4 + seed % 6
    edges = rng.integers(n, size=(1 + seed % 25, 2))
    weights = rng.integers(5, size=len(edges)) / 4
    edges[0] = (0, n - 1)
    weights[0] = 1
    matrix = matrix_of(n, edges, weights)
    graph = as_graph((edges, weights), n)
    rows = rng.permutation(n)[seed % 5 :]
    part = graph.take(torch.from_numpy(rows))  # the induced graph
    for one, expected in ((graph, matrix), (part, matrix[np.ix_(rows, rows)])):
        assert np.array_equal(dense(one), expected)
        assert np.array_equal(one.degree.numpy(), expected.sum(1))
        pairs = list(zip(one.lower.tolist(), one.upper.tolist(), strict=True))
        assert pairs == sorted(pairs)
    assert np.array_equal(dense(as_graph(sparse.coo_matrix(matrix), n)), matrix)


def test_loops_and_weights_of_zero_are_left_out():
    matrix = MATRIX + np.diag(np.arange(N))
    entries = sparse.coo_matrix(matrix)
    places = np.append(entries.row, [0, 4]), np.append(entries.col, [4, 0])
    stored = sparse.coo_matrix((np.append(entries.data, [0, 0]), places), (N, N))
    assert 0 in stored.tocsr().data
    for graph in (stored, stored.tocsr(), matrix, np.vstack([LIST, [[1, 1, 7], [0, 4, 0]]])):
        assert np.array_equal(dense(as_graph(graph, N)), MATRIX)
    uneven = MATRIX.copy()
    uneven[0, 1] *= 1 - 1e-6  # rounding does not make it directed
    for graph in (uneven, uneven.T):
        assert np.array_equal(dense(as_graph(sparse.csr_array(graph), N)), MATRIX)


@pytest.mark.parametrize("n", [2, 3])
def test_small_matrices_are_taken_where_they_are_no_edge_list(n):
    matrix = 1 - np.eye(n)
    for graph in (sparse.csr_array(matrix), torch.from_numpy(matrix).to_sparse()):
        assert np.array_equal(dense(as_graph(graph, n)), matrix)
    refused(r"may be either a matrix or an edge list; pass scipy.sparse.csr_array", as_graph, matrix, n)


# --- what is refused ---------------------------------------------------------------------------------------


def spoilt(row, column, value):
    matrix = MATRIX.copy()
    matrix[row, column] = matrix[column, row] = value
    return matrix


REFUSED = [
    (sparse.eye(4), "graph has 4 points, but X has 5"),
    (as_graph(LIST, 6), "graph has 6 points, but X has 5"),
    (sparse.csr_array(MATRIX[:4]), r"needs a square matrix \[5, 5\].*got \[4, 5\]"),
    (MATRIX[:4], r"needs a square matrix \[5, 5\], an edge list.*got \[4, 5\]"),
    (LIST.T[:, [0, 1, 2, 0]], r"got \[3, 4\].*has to be transposed"),
    ((), "got an empty tuple"),
    ([], r"got \[0\]"),
    (sparse.csr_array(spoilt(0, 1, -1)), "finite weights >= 0, got -1"),
    (spoilt(2, 2, -0.5), "finite weights >= 0, got -0.5"),
    (np.vstack([LIST, [[0, 2, -3]]]), "finite weights >= 0, got -3"),
    ((EDGES, [1, 2, np.inf]), "finite weights >= 0, got inf"),
    ((EDGES, [1e308, 1e308, 1]), "sum is not finite"),
    (sparse.csr_array(spoilt(0, 1, 1.7e308)), "sum is not finite"),
    (sparse.triu(MATRIX), r"\[0, 1\] is 0.5 and \[1, 0\] is 0; pass graph \+ graph.T or graph.max"),
    (np.triu(MATRIX) + np.tril(MATRIX) * 1.001, r"entry \[0, 1\] is 0.5 and \[1, 0\] is 0.5005"),
    ([[0, 1], [2, 5]], "point indices from 0 to 4, got 5"),
    ([[0, 1], [-1, 2]], "point indices from 0 to 4, got -1"),
    ([[0, 1], [0.5, 2]], "integer point indices.*got 0.5"),
    ([[0, 1], [np.nan, 2]], "integer point indices.*got nan"),
    (np.ones((4, 2), dtype=bool), "got booleans"),
    (sparse.csr_array((5, 5)), "graph has no edges"),
    (np.eye(5), "graph has no edges"),
    (((0, 1), (1, 2)), "an edge list alone is a list or an array"),
    ((EDGES, WEIGHTS, WEIGHTS), r"a tuple of edges.*got \[3, 2\] and \[3\] and \[3\]"),
    ((EDGES, WEIGHTS[:2]), r"got \[3, 2\] and \[2\]"),
    ([[0, 1], [1, 2, 3]], "graph can't be read as an array of numbers"),
]


@pytest.mark.parametrize(("graph", "message"), REFUSED)
def test_what_is_no_graph_on_the_points_is_refused(graph, message):
    refused(message, as_graph, graph, N)


def test_what_is_no_graph_at_all_is_refused_by_its_type():
    message = "affinity needs a sparse matrix, an edge list"
    for it in (None, "kneighbors", object(), [["a", "b"]], MATRIX + 1j, sparse.csr_array(MATRIX + 1j), {0: [1]}):
        refused(message, as_graph, it, N, name="affinity", error=TypeError)
    refused("float16 can't hold the indices of 3000 points", as_graph, EDGES.astype(np.float16), 3000)


def test_device():
    graph = as_graph(LIST, N)
    for moved in (as_graph(LIST, N, device="meta"), graph.to("meta")):
        assert moved.degree.device.type == moved.lower.device.type == "meta"
    assert graph.weight.device.type == "cpu"
    assert repr(graph) == "Graph(5 points, 3 edges)"


# --- nearest neighbours ------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 20])
@pytest.mark.parametrize("k", [1, 4, 29, 100])
def test_nearest_neighbours(d, k):
    """The matrix of nearest neighbours plus its transpose; no pairs are equally far."""
    X = np.random.default_rng(d).normal(size=(30, d))
    far = ((X[:, None] - X) ** 2).sum(2) + np.diag([np.inf] * 30)
    directed = far <= np.sort(far)[:, [min(k, 29) - 1]]
    for points in (X, torch.from_numpy(X), pd.DataFrame(X), sparse.csc_matrix(X), sparse.csr_array(X)):
        assert np.array_equal(dense(knn_graph(points, k)), directed.astype(int) + directed.T)


@pytest.mark.parametrize("dtype", [np.int8, np.float16, np.float32, float, bool])
def test_equal_points_are_neighbours_and_none_is_its_own(dtype):
    graph = knn_graph(np.repeat(np.eye(2, 3, dtype=dtype), 6, axis=0), 3)
    assert ((graph.lower < 6) == (graph.upper < 6)).all()
    assert int(graph.weight.sum()) == 3 * 12  # every point has three neighbours that are not itself
    assert (graph.degree >= 3).all()
    assert dense(knn_graph(np.ones((4, 1)), 20)).tolist() == (2 * (1 - np.eye(4))).tolist()


def test_what_has_no_neighbours():
    graph = knn_graph(np.ones((1, 2)))
    assert isinstance(graph, Graph)
    assert (graph.n, len(graph.weight), graph.degree.tolist()) == (1, 0, [0.0])
    for k in (0, -1, 2.5, None, True):
        refused("n_neighbors needs a whole number >= 1", knn_graph, np.ones((3, 1)), k)
    refused("not finite", knn_graph, [[0.0], [np.nan]])
