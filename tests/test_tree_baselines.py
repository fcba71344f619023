"""CUBT and CLTree against slow definitions, and on data whose answer is known."""

from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_iris, load_wine
from tree_witnesses import TIE, cuts, distances, grow, inner_nodes, kmeans_cost, parts_of, same_cuts, tables

from neonxc.trees import CUBT, CLTree

EXPLAINERS = pytest.mark.parametrize("Explainer", [CUBT, CLTree])
CASES = tables(40, 3, 1)


def assert_grown(model, case, score, least=0.0):
    """The whole tree is that of the cuts that gain most, as far as they gain more than `least`.

    `score` of (rows, path): the gain of a cut by the mask of the points on its left, or None for a leaf.
    """
    X = case.values

    def best(rows, _, path):
        gain = score(rows, path)
        found = [(gain(X[rows, cut[0]] <= cut[1], cut), cut) for cut in cuts(X[rows], X[:0])] if gain else []
        most = max((value for value, _ in found), default=0.0)
        rounding = 1e-9 * kmeans_cost(X, np.zeros(len(X)), case.mass) if isinstance(model, CUBT) else 1e-9
        if most <= max(least, rounding):
            return None
        return -most, next(cut for value, cut in found if value >= most - TIE * max(most, 1))

    tree = model.fit(case.X, sample_weight=case.weight).tree_
    ours = parts_of(tree, X)
    expected = grow(X, best)
    assert same_cuts(ours, expected), (ours, expected)


# --- CUBT --------------------------------------------------------------------------------------------------


@given(case=CASES, min_size=st.sampled_from([0, 12]), min_dev=st.sampled_from([0, 0.037]))
def test_cubt_makes_the_cuts_of_least_deviance(case, min_size, min_dev):
    """Deviance: mass times the trace of the covariance."""
    X = case.values
    mass = case.mass

    def deviance(rows):
        return kmeans_cost(X[rows], np.zeros(len(rows)), mass[rows])

    least = min_dev * deviance(np.arange(len(X)))

    def score(rows, path):
        if mass[rows].sum() >= min_size and deviance(rows) >= least:
            return lambda left, cut: deviance(rows) - deviance(rows[left]) - deviance(rows[~left])

    assert_grown(CUBT(None, min_size=min_size, min_dev=min_dev, min_dist=0), case, score, least)


@pytest.mark.parametrize(("gap", "leaves"), [(0.2, 1), (0.4, 2)])
def test_leaves_that_are_close_are_pruned(gap, leaves):
    line = np.arange(0, 10, 0.1)
    X = np.concatenate([line, line + line[-1] + gap])[:, None]
    model = CUBT(None, min_dev=0.5, delta=0.01, min_dist=0.3).fit(X)  # one cut, in the middle
    assert model.tree_.n_leaves == leaves


def dissimilarity(X, mass, A, B, delta):
    """The greater of two means of the least distances from one group to the other, which are a share of it."""

    def way(A, B):
        near = np.sqrt(distances(X[A], X[B]).min(1))
        order = near.argsort()
        own = mass[A][order]
        taken = np.clip(delta * own.sum() - own.cumsum() + own, 0, own)
        return (taken * near[order]).sum() / taken.sum()

    return max(way(A, B), way(B, A))


@pytest.mark.parametrize("n_clusters", [1, 2, 4])
@pytest.mark.parametrize(("delta", "weighted"), [(0.3, False), (0.07, True), (1.0, True)])
def test_the_most_similar_clusters_are_joined(n_clusters, delta, weighted):
    generator = np.random.default_rng(1)
    X = generator.normal(size=(60, 2)) + generator.integers(0, 5, (60, 1)) * 2
    mass = generator.integers(1, 4, 60) if weighted else np.ones(60)
    options = {"min_dist": 0, "min_dev": 0.02, "delta": delta}
    leaves = CUBT(None, **options).fit(X, sample_weight=mass).labels_
    clusters = [np.flatnonzero(leaves == leaf) for leaf in np.unique(leaves)]
    assert len(clusters) > 5
    while len(clusters) > n_clusters:
        pairs = combinations(range(len(clusters)), 2)
        i, j = min(pairs, key=lambda pair: dissimilarity(X, mass, *(clusters[side] for side in pair), delta))
        clusters[i] = np.concatenate([clusters[i], clusters.pop(j)])
    found = CUBT(n_clusters, **options).fit(X, sample_weight=mass).labels_
    assert np.unique(found).tolist() == [*range(n_clusters)]
    assert {frozenset(rows.tolist()) for rows in clusters} == {
        frozenset(np.flatnonzero(found == cluster).tolist()) for cluster in range(n_clusters)
    }


def test_a_cut_between_leaves_of_one_cluster_is_no_cut():
    X = load_iris().data
    assert CUBT(1).fit(X).tree_.n_leaves == 1
    tree = CUBT(3).fit(X).tree_
    for node in inner_nodes(tree):
        sides = tree.label[tree.left[node]], tree.label[tree.right[node]]
        assert -1 in sides or sides[0] != sides[1]


# --- CLTree ------------------------------------------------------------------------------------------------


def information(points, uniform):
    total = points + uniform
    return -sum(number * np.log(number / total) for number in (points, uniform) if number)


def box(X, mass, path):
    """Bounds of a node in every column, without the gaps beside it, and its uniform points."""
    low = X.min(0)
    high = X.max(0)
    rows = np.ones(len(X), dtype=bool)
    uniform = mass.sum()
    for feature, is_left, below, above in path:
        width = high[feature] - low[feature]
        (high if is_left else low)[feature] = below if is_left else above
        rows &= (X[:, feature] <= below) == is_left
        uniform = max(uniform * (high[feature] - low[feature]) / width, mass[rows].sum())
    return low, high, uniform


@given(case=CASES, min_y=st.sampled_from([0, 0.17]))
def test_cltree_makes_the_cuts_of_most_information(case, min_y):
    """About which points are data and which are uniform; those in the gap are a part of their own."""
    X = case.values
    mass = case.mass

    def score(rows, path):
        low, high, uniform = box(X, mass, path)

        def gain(left, cut):
            feature, below, above = cut
            per_length = uniform / (high[feature] - low[feature])
            rest = information(mass[rows][left].sum(), per_length * (below - low[feature]))
            rest += information(mass[rows][~left].sum(), per_length * (high[feature] - above))
            return information(mass[rows].sum(), uniform) - rest

        return gain if mass[rows].sum() >= min_y * mass.sum() else None

    assert_grown(CLTree(min_y=min_y, min_rd=1e9), case, score)


@pytest.mark.parametrize(("gap", "min_rd", "leaves"), [(0.1, 0.6, 1), (8, 0.6, 2), (0.1, 1.0, 2), (8, 0.5, 1)])
def test_a_small_gap_is_no_gap(gap, min_rd, leaves):
    """With both groups of 1/2 the points and (1 - g) / 2 of the side, a group and the gap have 1 / (1 + g)."""
    assert (1 / (1 + gap / (2 + gap)) > min_rd) == (leaves == 1)
    line = np.linspace(0, 1, 50)  # evenly spaced, so that the only space there is lies between the groups
    X = np.concatenate([line, line + 1 + gap])[:, None]
    assert CLTree(min_y=0.6, min_rd=min_rd).fit(X).tree_.n_leaves == leaves


def test_n_clusters_takes_the_first_cuts():
    trees = [CLTree(k).fit(load_iris().data).tree_ for k in (3, 5, None)]
    assert [tree.n_leaves for tree in trees[:2]] == [3, 5]
    tests = [{*zip(tree.feature.tolist(), tree.tests, strict=True)} for tree in trees]
    assert tests[0] < tests[1] < tests[2]


# --- both --------------------------------------------------------------------------------------------------


@EXPLAINERS
def test_a_reference_only_labels_the_leaves(Explainer):
    X, y = load_wine(return_X_y=True)
    own = Explainer(None, max_leaves=9).fit(X)
    assert own.tree_.n_leaves <= 9
    names = np.array(["a", "b", "c"])
    means = np.stack([X[y == c].mean(0) for c in range(3)])
    for given_, called in (({"labels": names[y]}, names), ({"centers": means + 1}, np.arange(3))):
        model = Explainer(max_leaves=9).fit(X, **given_)
        assert torch.equal(model.tree_.feature, own.tree_.feature)
        far = distances(X, given_.get("centers", means))
        leaves = np.asarray(model.tree_.apply(X))
        for leaf in np.unique(leaves):
            assert {*model.labels_[leaves == leaf]} == {called[far[leaves == leaf].sum(0).argmin()]}


@EXPLAINERS
def test_equal_points_are_one_leaf(Explainer):
    model = Explainer(2).fit(np.ones((30, 3)))
    assert model.tree_.n_leaves == 1
    assert set(model.labels_) == {0}
