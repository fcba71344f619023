"""SpEx: every tree is the one that growing on the whole graph gives; graphs, weights, noise."""

from unittest import mock

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from test_tree_explainers import PATHS, limits
from tree_witnesses import clique_adjacency, data, nested, parts_of, rows_of, same_cuts, seeds, spex, tables
from turns import every

from neonxc.trees import SpExClique, SpExGraph, SpExKNN
from neonxc.trees.cuts import codes
from neonxc.trees.graph import knn_graph

WAYS = [path for path in PATHS if "few_centers" not in path]  # SpEx has none
CASES = tables(40, 4, 1, weighted=False)


def edges_of(seed, n, kind):
    """Edges [edges, 2] and weights: "random", "few" with isolated points, or "parts" that no edge joins."""
    rng = np.random.default_rng(seed)
    count = {"random": 3 * n, "few": max(1, n // 4), "parts": 2 * n}[kind]
    edges = rng.integers(0, n, (count, 2))
    if kind == "parts":
        edges = edges // 2 * 2 + rng.integers(0, 2, (count, 1))  # even numbers, and odd ones
        edges = edges[edges.max(1) < n]
    edges = np.concatenate([edges[edges[:, 0] != edges[:, 1]], [[0, min(2, n - 1)]]])
    weights = rng.integers(1, 9, len(edges)) / 4 if rng.random() < 0.5 else rng.random(len(edges)) + 0.01
    return edges, weights


def adjacency_of(edges, weights, n):
    A = np.zeros((n, n))
    np.add.at(A, (edges[:, 0], edges[:, 1]), weights)
    return A + A.T


def adjacency(graph):
    return adjacency_of(torch.stack([graph.lower, graph.upper], 1).numpy(), graph.weight.numpy(), graph.n)


def assert_grown(tree, X, A, most):
    """The tree is the witness: the same cuts of the same leaves, ties included."""
    X = np.asarray(X, dtype=np.float64)
    ours = parts_of(tree, X)
    expected = spex(X, A, most)
    assert same_cuts(ours, expected), (ours, expected)


# --- every tree is that of the paper -----------------------------------------------------------------------


@pytest.mark.parametrize("path", every(2, WAYS))
@given(case=CASES, edges=st.sampled_from(["unit", "size"]), most=st.integers(1, 9))
def test_clique_trees_are_those_of_the_whole_graph(path, case, edges, most):
    with limits(path):
        model = SpExClique(case.k, max_leaves=most, clique_weights=edges).fit(case.X, labels=case.labels)
    assert_grown(model.tree_, case.values, clique_adjacency(case.labels, edges), most)


@pytest.mark.parametrize("path", every(2, WAYS, first=1))
@given(
    case=CASES,
    kind=st.sampled_from(["random", "few", "parts"]),
    graph=seeds,
    most=st.integers(1, 9),
)
def test_graph_trees_are_those_of_the_whole_graph(path, case, kind, graph, most):
    n = len(case.X)
    assume(n >= max(most, 2))
    edges, weights = edges_of(graph, n, kind)
    with limits(path):
        tree = SpExGraph(most).fit(case.X, graph=(edges, weights)).tree_
    assert_grown(tree, case.values, adjacency_of(edges, weights, n), most)


@pytest.mark.parametrize("path", ["as_it_is", "more_bins"])
@given(case=CASES, neighbors=st.integers(1, 50), most=st.integers(1, 7))
def test_trees_of_neighbours_are_those_of_their_graph(path, case, neighbors, most):
    assume(len(case.X) >= most)
    with limits(path):
        tree = SpExKNN(most, n_neighbors=neighbors).fit(case.X).tree_
    A = adjacency(knn_graph(case.X, neighbors))
    assert_grown(tree, case.values, A, most)


def test_codes_of_long_columns_are_renumbered_in_small_nodes():
    X = np.random.default_rng(4).normal(size=(270, 2))
    X[60:] += [5, 1]
    edges, weights = edges_of(0, 270, "random")
    within = (edges[:, 0] < 60) == (edges[:, 1] < 60)
    graph = edges[within], weights[within]
    with (
        limits("bins"),
        mock.patch.object(codes, "renumber_codes", wraps=codes.renumber_codes) as called,
    ):
        tree = SpExGraph(5).fit(X, graph=graph).tree_
    assert called.called
    assert_grown(tree, X, adjacency_of(*graph, 270), 5)


# --- weights -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weight", [[3, 9, 9, 1, 0.5], [6, 8, 4, 7, 0.5], [4, 4, 6, 8, 9, 3]])
def test_a_side_of_the_lightest_point_has_no_edges_whatever_the_rounding(weight):
    # a cluster for every point
    labels = np.arange(len(weight))
    weight = np.array(weight) / 10
    tree = SpExClique(len(weight), max_leaves=2).fit(labels[:, None], labels=labels, sample_weight=weight).tree_
    assert float(tree.threshold[0]) == 0.5  # all sides have conductance 0, but for that of the last point alone


def test_parts_that_no_edge_joins_have_no_conductance_whatever_the_rounding():
    rng = np.random.default_rng(0)
    X = np.r_[np.full(40, -100.0), np.arange(24)][:, None]
    heavy = np.array([(i, (i + 1) % 40) for i in range(40)])
    light = np.array([(40 + i, 40 + j) for i in range(24) for j in range(i // 4 * 4, i)])  # of four points each
    graph = np.r_[heavy, light], np.r_[rng.random(40) * 1e6, rng.random(36)]
    tree = SpExGraph(7).fit(X, graph=graph).tree_
    cuts = tree.threshold[tree.feature >= 0].tolist()
    assert cuts == [-50.0, 3.5, 7.5, 11.5, 15.5, 19.5]  # of equal cuts the lowest, of equal leaves the first


# --- labels, centers, noise --------------------------------------------------------------------------------


def fitted(model, X, graph, **extra):
    return model.fit(X, **({"graph": graph} if isinstance(model, SpExGraph) else {}), **extra)


@pytest.mark.parametrize("model", [SpExKNN, SpExGraph])
@given(case=CASES, most=st.integers(1, 6), graph=seeds)
def test_labels_only_name_the_leaves(model, case, most, graph):
    n = len(case.X)
    assume(n >= max(most, 2))
    edges = edges_of(graph, n, "random")
    plain = fitted(model(most), case.X, edges)
    others = [fitted(model(most), case.X, edges, labels=case.labels)]
    if len(np.unique(case.centers, axis=0)) == case.k:
        others.append(fitted(model(most), case.X, edges, centers=case.centers))
    for other in (plain, *others):
        assert torch.equal(other.tree_.feature, plain.tree_.feature)
        assert torch.equal(other.tree_.threshold.nan_to_num(), plain.tree_.threshold.nan_to_num())
        assert np.array_equal(other.predict(case.X), other.labels_)
    rows = rows_of(plain.tree_, case.values)
    tree = others[0].tree_
    for leaf in tree.leaves.tolist():
        assert int(tree.label[leaf]) == np.bincount(case.labels[rows[leaf]]).argmax()
    # without labels leaves are clusters
    assert np.array_equal(np.unique(plain.labels_), np.arange(plain.tree_.n_leaves))


@pytest.mark.parametrize("model", [SpExClique, SpExKNN, SpExGraph])
def test_noise_is_left_out_of_the_graph(model):
    case = data(2, 50, 3, 3, kind="grid")
    labels = np.where(np.arange(50) % 6, case.labels, -1)
    stay = np.flatnonzero(labels >= 0)
    edges, weights = edges_of(5, 50, "random")
    A = adjacency_of(edges, weights, 50)
    own = {SpExClique: clique_adjacency(labels), SpExKNN: 0 * A, SpExGraph: A}[model][np.ix_(stay, stay)]
    if model is SpExKNN:
        own = adjacency(knn_graph(case.X[stay], 20))
    for graph in ((edges, weights), sp.csr_matrix(A)):
        noisy = fitted(model(3, max_leaves=4), case.X, graph, labels=labels)
        assert_grown(noisy.tree_, case.values[stay], own, 4)
        assert float(noisy.tree_.samples[0]) == len(stay)
        assert len(noisy.labels_) == 50
        assert -1 not in noisy.labels_


# --- what a graph may look like ----------------------------------------------------------------------------


def test_the_default_graph_is_that_of_20_neighbours():
    X = data(7, 60, 3, 3, kind="fine").X
    fits = SpExGraph(5).fit(X), SpExGraph(5).fit(X, graph=knn_graph(X, 20)), SpExKNN(5, n_neighbors=20).fit(X)
    assert all(nested(model.tree_) == nested(SpExKNN(5).fit(X).tree_) for model in fits)
    assert SpExKNN(3).fit(X[:6]).tree_.n_leaves == 3  # fewer points than neighbours


def test_a_graph_without_edges_where_noise_is_left_out():
    X = np.arange(6.0)[:, None]
    labels = np.array([0, 0, 0, 1, 1, -1])
    tree = SpExGraph(2).fit(X, graph=[[0, 5], [3, 5]], labels=labels).tree_
    assert tree.n_leaves == 2
    assert float(tree.threshold[0]) == 0.5  # all conductances are 1: the first cut
