"""SpEx: every tree is the one that growing on the whole graph gives; graphs, weights, noise, errors."""

from unittest import mock

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from spex_witnesses import clique_adjacency, conductance, grow
from test_tree_explainers import PATHS, limits
from tree_witnesses import data, nested, rows_of, same_cuts
from turns import in_turns

from neonxc.trees import SpExClique, SpExGraph, SpExKNN
from neonxc.trees.cuts import histograms
from neonxc.trees.graph import knn_graph

WAYS = [path for path in PATHS if "few_centers" not in path]  # SpEx has none
seeds = st.integers(0, 2**32 - 1)
DTYPES = [np.float64, np.float32, np.float16, np.uint8, np.int32, np.int64]
kinds = st.sampled_from(["grid", "fine"])


@st.composite
def tables(draw, most=40, weighted=False):
    return data(
        draw(seeds),
        draw(st.integers(1, most)),
        draw(st.integers(1, 4)),
        draw(st.integers(1, 5)),
        kind=draw(kinds),
        dtype=draw(st.sampled_from(DTYPES)),
        weighted=weighted,
        random_labels=draw(st.booleans()),
    )


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


def parts_of(tree, X):
    """A fitted tree as the witness has them: nested (feature, threshold, left, right), rows at its leaves."""
    rows = rows_of(tree, X)

    def part(node):
        if int(tree.feature[node]) < 0:
            return rows[node]
        children = part(int(tree.left[node])), part(int(tree.right[node]))
        return (int(tree.feature[node]), float(tree.threshold[node]), *children)

    return part(0)


def assert_grown(tree, X, A, most):
    """The tree is the witness: the same cuts of the same leaves, ties included."""
    X = np.asarray(X, dtype=np.float64)
    ours, expected = parts_of(tree, X), grow(X, A, most)
    assert same_cuts(ours, expected), (ours, expected)


# --- every tree is that of the paper -----------------------------------------------------------------------


@pytest.mark.parametrize("path", WAYS)
@given(case=tables(), edges=st.sampled_from(["unit", "size"]), most=st.integers(1, 9))
def test_clique_trees_are_those_of_the_whole_graph(path, case, edges, most):
    with limits(path):
        model = SpExClique(case.k, max_leaves=most, clique_weights=edges).fit(case.X, labels=case.labels)
    assert_grown(model.tree_, case.values, clique_adjacency(case.labels, edges), most)


@pytest.mark.parametrize("path", WAYS)
@given(
    case=tables(),
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
@given(case=tables(), neighbors=st.integers(1, 50), most=st.integers(1, 7))
def test_trees_of_neighbours_are_those_of_their_graph(path, case, neighbors, most):
    assume(len(case.X) >= most)
    with limits(path):
        tree = SpExKNN(most, n_neighbors=neighbors).fit(case.X).tree_
    A = adjacency(knn_graph(case.X, neighbors))
    assert_grown(tree, case.values, A, most)


def test_codes_of_long_columns_are_renumbered_in_small_nodes():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(270, 2))
    X[60:] += [5, 1]
    edges, weights = edges_of(0, 270, "random")
    within = (edges[:, 0] < 60) == (edges[:, 1] < 60)
    graph = edges[within], weights[within]
    model = SpExGraph(5)
    with (
        limits("bins"),
        mock.patch.object(histograms, "renumber_codes", wraps=histograms.renumber_codes) as called,
    ):
        tree = model.fit(X, graph=graph).tree_
    assert called.called
    assert nested(tree) == nested(model.fit(X, graph=graph).tree_)
    assert_grown(tree, X, adjacency_of(*graph, 270), 5)


@given(case=tables(), edges=st.sampled_from(["unit", "size"]))
def test_splitting_goes_on_where_conductance_rises(case, edges):
    """As many leaves as are wanted, or as there are different points: a gain may well be negative."""
    tree = SpExClique(case.k, max_leaves=12, clique_weights=edges).fit(case.X, labels=case.labels).tree_
    assert tree.n_leaves == min(12, len(np.unique(case.X, axis=0)))
    assert (tree.samples > 0).all()


# --- weights -----------------------------------------------------------------------------------------------


def test_weights_below_1_are_in_units_of_the_lightest_point():
    case = data(3, 50, 3, 4, kind="fine", weighted=True, random_labels=True)
    model = SpExClique(4, max_leaves=8)
    points = model.fit(case.X, labels=case.labels, sample_weight=case.mass).tree_
    less = model.fit(case.X, labels=case.labels, sample_weight=case.mass / 16).tree_
    assert nested(points) == nested(less)


@pytest.mark.parametrize("weight", [[3, 9, 9, 1, 0.5], [6, 8, 4, 7, 0.5], [4, 4, 6, 8, 9, 3]])
def test_a_side_of_the_lightest_point_has_no_edges_whatever_the_rounding(weight):
    weight = np.array(weight) / 10
    X, labels = np.arange(len(weight))[:, None], np.arange(len(weight))  # a cluster for every point
    tree = SpExClique(len(weight), max_leaves=2).fit(X, labels=labels, sample_weight=weight).tree_
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


def test_a_cluster_of_one_point_has_conductance_1():
    X, labels = np.array([[0.0], [1], [2], [3], [9]]), np.array([0, 0, 0, 0, 1])
    tree = SpExClique(2, max_leaves=2).fit(X, labels=labels).tree_
    # 0 + 1 for the cut before the lone point; 3/3 + 3/9 or 4/6 + 4/6 for others, of which the first one is best
    scores = [
        conductance(clique_adjacency(labels), left) + conductance(clique_adjacency(labels), ~left)
        for left in (X[:, 0] <= threshold for threshold in range(4))
    ]
    assert scores == pytest.approx([4 / 3, 4 / 3, 4 / 3, 1])
    assert float(tree.threshold[0]) == 6.0


# --- labels, centers, noise --------------------------------------------------------------------------------


def fitted(model, X, graph, **extra):
    return model.fit(X, **({"graph": graph} if isinstance(model, SpExGraph) else {}), **extra)


@pytest.mark.parametrize("model", [SpExKNN, SpExGraph])
@given(case=tables(), most=st.integers(1, 6), graph=seeds)
def test_labels_only_name_the_leaves(model, case, most, graph):
    n = len(case.X)
    assume(n >= max(most, 2))
    edges = edges_of(graph, n, "random")
    plain = fitted(model(most), case.X, edges)
    labelled = fitted(model(most), case.X, edges, labels=case.labels)
    assert torch.equal(labelled.tree_.feature, plain.tree_.feature)
    assert torch.equal(labelled.tree_.threshold.nan_to_num(), plain.tree_.threshold.nan_to_num())
    counts = [np.bincount(case.labels[rows], minlength=case.k) for rows in rows_of(plain.tree_, case.values)]
    for leaf in labelled.tree_.leaves.tolist():
        assert int(labelled.tree_.label[leaf]) == counts[leaf].argmax()
    numbers = np.unique(plain.labels_)
    assert np.array_equal(numbers, np.arange(plain.tree_.n_leaves))  # without labels leaves are clusters
    assert np.array_equal(plain.predict(case.X), plain.labels_)
    assert np.array_equal(labelled.predict(case.X), labelled.labels_)
    if len(np.unique(case.centers, axis=0)) == case.k:
        by_centers = fitted(model(most), case.X, edges, centers=case.centers)
        assert torch.equal(by_centers.tree_.feature, plain.tree_.feature)


def test_leaves_are_clusters_of_their_own_means_and_cost():
    case = data(1, 60, 3, 4, kind="fine")
    model = SpExKNN(5, n_neighbors=8).fit(case.X)
    for cluster, center in enumerate(model.cluster_centers_):
        np.testing.assert_allclose(center, case.values[model.labels_ == cluster].mean(0))
    far = ((case.values - model.cluster_centers_[model.labels_]) ** 2).sum()
    assert model.inertia_ == pytest.approx(far)
    assert model.score(case.X) == pytest.approx(-far)
    assert (model.tree_.mistakes == 0).all()  # of the tree's own clusters


@pytest.mark.parametrize(
    ("kind", "model"),
    in_turns([np.asarray, sp.csr_matrix, torch.from_numpy, pd.DataFrame], [SpExClique, SpExKNN, SpExGraph]),
)
def test_noise_is_left_out_of_the_graph(model, kind):
    case = data(2, 50, 3, 3, kind="grid")
    labels, noise = case.labels.copy(), np.arange(0, 50, 6)
    labels[noise] = -1
    stay = np.flatnonzero(labels >= 0)
    edges, weights = edges_of(5, 50, "random")
    A = adjacency_of(edges, weights, 50)[np.ix_(stay, stay)]
    graph = (edges, weights) if kind is np.asarray else sp.csr_matrix(adjacency_of(edges, weights, 50))
    extra = {"max_leaves": 4}
    noisy = fitted(model(3, **extra), kind(case.X), graph, labels=labels)
    without = fitted(model(3, **extra), kind(case.X[stay]), sp.csr_matrix(A), labels=labels[stay])
    assert nested(noisy.tree_) == nested(without.tree_)
    assert float(noisy.tree_.samples[0]) == len(stay)
    assert len(noisy.labels_) == 50
    assert -1 not in np.asarray(noisy.labels_)
    A = {SpExClique: clique_adjacency(labels[stay]), SpExKNN: adjacency(knn_graph(case.X[stay], 20)), SpExGraph: A}
    assert_grown(noisy.tree_, case.values[stay], A[model], 4)


# --- what a graph may look like ----------------------------------------------------------------------------


def test_all_ways_to_give_a_graph_give_one_tree():
    case = data(6, 30, 3, 3, kind="fine")
    edges, weights = edges_of(6, 30, "random")
    A = adjacency_of(edges, weights, 30)
    ways = [
        (edges, weights),
        np.column_stack([edges, weights]),
        np.concatenate([np.column_stack([edges, weights]), np.column_stack([edges[:, ::-1], weights])]),
        torch.from_numpy(np.column_stack([edges, weights])),
        A,
        sp.csr_array(A),
        torch.from_numpy(A).to_sparse_coo(),
        1000 * A,
        A + np.diag(np.arange(30)),  # loops
    ]
    trees = [nested(SpExGraph(5).fit(case.X, graph=way).tree_) for way in ways]
    assert all(tree == trees[0] for tree in trees)
    assert trees[0] != nested(SpExGraph(5).fit(case.X).tree_)  # which is that of neighbours


def test_the_default_graph_is_that_of_20_neighbours():
    case = data(7, 60, 3, 3, kind="fine")
    assert nested(SpExGraph(5).fit(case.X).tree_) == nested(SpExKNN(5).fit(case.X).tree_)
    assert nested(SpExGraph(5).fit(case.X, graph=knn_graph(case.X, 20)).tree_) == nested(
        SpExKNN(5, n_neighbors=20).fit(case.X).tree_
    )
    few = data(7, 6, 3, 2, kind="fine")  # fewer points than neighbours
    assert SpExKNN(3).fit(few.X).tree_.n_leaves == 3


def test_a_graph_without_edges_where_noise_is_left_out():
    X, labels = np.arange(6.0)[:, None], np.array([0, 0, 0, 1, 1, -1])
    tree = SpExGraph(2).fit(X, graph=[[0, 5], [3, 5]], labels=labels).tree_
    assert tree.n_leaves == 2
    assert float(tree.threshold[0]) == 0.5  # all conductances are 1: the first cut


# --- hardly anything to cut --------------------------------------------------------------------------------

EVERY = pytest.mark.parametrize("model", [SpExClique, SpExKNN, SpExGraph])


@EVERY
def test_equal_points_and_constant_columns(model):
    X = np.full((8, 3), 0.1)
    labels = np.arange(8) % 2
    graph = edges_of(0, 8, "random")
    tree = fitted(model(2), X, graph, labels=labels).tree_
    assert tree.n_leaves == 1
    X[:, 1] = np.arange(8) // 4
    tree = fitted(model(2, max_leaves=5), X, graph, labels=labels).tree_
    assert tree.n_leaves == 2
    assert (int(tree.feature[0]), float(tree.threshold[0])) == (1, 0.5)


@EVERY
def test_repeated_columns_are_cut_in_the_first(model):
    case = data(9, 40, 2, 3, kind="fine")
    X = case.X[:, [1, 0, 1, 0]]
    tree = fitted(model(3, max_leaves=6), X, edges_of(0, 40, "random"), labels=case.labels).tree_
    assert int(tree.feature.max()) <= 1


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_spex_explains_what_has_no_centers(kind):
    """Two rings: no center tells them apart; the tree has few points of the other ring in its leaves."""
    angle = torch.linspace(0, 6, 120)
    rings = torch.cat([torch.stack([angle.cos(), angle.sin()], 1) * r for r in (1, 3)]).to(kind)
    labels = torch.arange(240) // 120
    model = SpExClique(2, max_leaves=6).fit(rings, labels=labels)
    assert model.tree_.mistakes[model.tree_.leaves].sum() <= 24
    assert isinstance(model.labels_, torch.Tensor)
    assert torch.equal(model.predict(rings), model.labels_)


def test_the_reference_of_cliques_is_k_means_unless_told_otherwise():
    case = data(4, 60, 3, 3, kind="fine")
    own = SpExClique(3, random_state=0).fit(case.X)
    labels = KMeans(3, n_init=10, random_state=0).fit_predict(case.X)
    again = SpExClique(3).fit(case.X, labels=labels)
    assert torch.equal(own.tree_.feature, again.tree_.feature)
    np.testing.assert_allclose(own.tree_.threshold, again.tree_.threshold)
