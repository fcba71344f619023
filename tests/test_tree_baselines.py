"""CUBT and CLTree against slow definitions, and on data whose answer is known."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from sklearn.datasets import load_iris, load_wine, make_blobs
from sklearn.metrics import adjusted_rand_score
from turns import in_turns

from neonxc.trees import CUBT, CLTree, KDTree
from neonxc.trees.criteria.unsupervised import Deviance, EmptySpace
from neonxc.trees.cuts.codes import code_columns
from neonxc.trees.cuts.nodes import children, cut_above, root
from neonxc.trees.cuts.search import Search
from neonxc.trees.explainers.unsupervised import join_leaves, mean_of_smallest, nearest_distances
from neonxc.trees.fit import reference
from neonxc.trees.fit.problem import Problem
from neonxc.trees.fit.sparse_points import as_points

EXPLAINERS = [CUBT, CLTree]


def problem_of(X, weight=None):
    table = as_points(torch.as_tensor(X))
    weight = None if weight is None else torch.as_tensor(weight, dtype=torch.float64)
    found = reference.from_labels(table, np.zeros(table.n, dtype=int), "l2", weight)
    columns, _ = code_columns(table, found.centers)
    return Problem(table, columns, found, weight)


def root_of(problem):
    return root(problem).without_centers()


def best_cut(criterion, root):
    """The best cut's gain, column and code."""
    best = Search(criterion.problem, criterion).best(root)
    return criterion.gain(root, best.score), best.feature, best.code


def all_cuts(X):
    """Column, greatest value on the left, least one on the right; every cut there is."""
    for feature, column in enumerate(X.T):
        values = np.unique(column)
        yield from ((feature, low, high) for low, high in pairwise(values))


def points(seed, n=40, d=3, values=12):
    generator = np.random.default_rng(seed)
    X = generator.integers(0, values, (n, d)) + 0.0 if values else generator.normal(size=(n, d))
    return X, generator.integers(1, 4, n) + 0.0


def same(E, F, X):
    for name in ("feature", "threshold", "label", "samples"):
        torch.testing.assert_close(getattr(E.tree_, name), getattr(F.tree_, name), equal_nan=True)
    np.testing.assert_array_equal(E.predict(X), F.predict(X))


# CUBT: growth


def deviance(X, weight):
    """Mass times the trace of the covariance."""
    return float(np.trace(np.atleast_2d(np.cov(X.T, aweights=weight, ddof=0))) * weight.sum()) if len(X) > 1 else 0


@pytest.mark.parametrize(("values", "weighted", "seed"), in_turns([4, 12, None], [False, True], range(6)))
def test_cut_of_least_deviance(seed, weighted, values):
    X, weight = points(seed, values=values)
    problem = problem_of(X, weight if weighted else None)
    weight = weight if weighted else np.ones(len(X))
    gains = {}
    for feature, low, high in all_cuts(X):
        left = X[:, feature] <= low
        after = deviance(X[left], weight[left]) + deviance(X[~left], weight[~left])
        gains[feature, round((low + high) / 2, 9)] = deviance(X, weight) - after
    gain, *place = best_cut(Deviance(problem, 2, 0), root_of(problem))
    cut = cut_above(problem, root_of(problem), *place)
    assert gain == pytest.approx(max(gains.values()), rel=1e-10)
    assert gains[cut.feature, round(cut.threshold, 9)] == pytest.approx(gain, rel=1e-10)


def test_nodes_of_few_points_and_cuts_of_little_gain_are_left():
    X = np.random.default_rng(0).normal(size=(200, 2))
    X[:100] += 8
    assert CUBT(None, min_dist=0, min_dev=0.5).fit(X).tree_.n_leaves == 2
    large = CUBT(None, min_dist=0, min_dev=0, min_size=40).fit(X).tree_
    assert large.samples[large.feature >= 0].min() >= 40
    assert large.n_leaves > 4
    assert CUBT(None, min_dist=0, min_dev=0, min_size=201).fit(X).tree_.n_leaves == 1


# CUBT: pruning and joining


def slow_dissimilarity(A, B, delta):
    def way(A, B):
        near = sorted(min(np.linalg.norm(a - b) for b in B) for a in A)
        return np.mean(near[: round(delta * len(A))])

    return max(way(A, B), way(B, A))


def dissimilarity(A, B, delta):
    A, B = torch.as_tensor(A), torch.as_tensor(B)
    return max(float(mean_of_smallest(nearest_distances(*two)[:, None], None, delta)) for two in ((A, B), (B, A)))


@pytest.mark.parametrize("delta", [0.1, 0.4, 1.0])
def test_dissimilarity_is_the_mean_of_the_least_distances(delta):
    generator = np.random.default_rng(0)
    A, B = generator.normal(size=(20, 3)), generator.normal(size=(30, 3)) + 1
    assert dissimilarity(A, B, delta) == pytest.approx(slow_dissimilarity(A, B, delta))


def test_a_share_of_a_point_counts_as_such():
    values = torch.tensor([[3.0], [1.0], [2.0]], dtype=torch.float64)
    assert mean_of_smallest(values, None, 0.5).item() == pytest.approx((1 + 0.5 * 2) / 1.5)
    weight = torch.tensor([1.0, 2.0, 1.0], dtype=torch.float64)
    assert mean_of_smallest(values, weight, 0.75).item() == pytest.approx((1 + 1 + 2) / 3)


@pytest.mark.parametrize(("gap", "leaves"), [(0.2, 1), (0.4, 2)])
def test_leaves_that_are_close_are_pruned(gap, leaves):
    line = np.arange(0, 10, 0.1)
    X = np.concatenate([line, line + line[-1] + gap])[:, None]
    model = CUBT(None, min_dev=0.5, delta=0.01, min_dist=0.3).fit(X)  # one cut, in the middle
    assert model.tree_.n_leaves == leaves


def test_joined_leaves_need_no_common_parent():
    """Two far ends of a U, cut apart first, are one cluster by way of its bottom."""
    line = np.linspace(0, 10, 101)
    left, right = (np.stack([np.full_like(line, at), line], 1) for at in (0.0, 10.0))
    bottom, island = np.stack([line, np.zeros_like(line)], 1), np.stack([line / 20 + 4.75, line / 20 + 5], 1)
    X = np.concatenate([left, right, bottom, island])
    truth = np.repeat([0, 0, 0, 1], 101)
    model = CUBT(2, min_dist=0).fit(X)
    assert adjusted_rand_score(truth, model.labels_) == 1
    assert model.tree_.n_leaves > 2
    assert sorted(np.unique(model.labels_)) == [0, 1]
    assert adjusted_rand_score(truth, KDTree(2).fit(X).labels_) < 0.5


@pytest.mark.parametrize("n_clusters", [1, 2, 4])
def test_joining_step_by_step(n_clusters):
    generator = np.random.default_rng(1)
    X = generator.normal(size=(60, 2)) + generator.integers(0, 5, (60, 1)) * 2
    groups = [list(rows) for rows in np.array_split(np.arange(60), 6)]
    clusters = [[leaf] for leaf in range(6)]
    while len(clusters) > n_clusters:
        pairs = [(i, j) for i in range(len(clusters)) for j in range(i + 1, len(clusters))]

        def between(pair):
            A, B = ([row for leaf in clusters[side] for row in groups[leaf]] for side in pair)
            return dissimilarity(X[A], X[B], 0.3)

        i, j = min(pairs, key=between)
        clusters[i] += clusters.pop(j)
    expected = [next(k for k, members in enumerate(clusters) if leaf in members) for leaf in range(6)]
    found = join_leaves(problem_of(X), [torch.tensor(rows) for rows in groups], n_clusters, 0.3)
    assert adjusted_rand_score(expected, found) == 1
    assert sorted(set(found)) == list(range(n_clusters))


def test_a_cut_between_leaves_of_one_cluster_is_no_cut():
    X = load_iris().data
    assert CUBT(1).fit(X).tree_.n_leaves == 1
    tree = CUBT(3).fit(X).tree_
    for node in (tree.feature >= 0).nonzero()[:, 0].tolist():
        sides = tree.label[tree.left[node]], tree.label[tree.right[node]]
        assert -1 in sides or sides[0] != sides[1]


def test_cubt_finds_well_separated_clusters():
    X, y = make_blobs(300, centers=[[0, 0], [10, 0], [0, 10], [10, 10]], random_state=0)
    model = CUBT(4).fit(X)
    assert adjusted_rand_score(y, model.labels_) == 1
    np.testing.assert_allclose(model.cluster_centers_[model.labels_[0]], X[y == y[0]].mean(0))
    assert model.inertia_ == pytest.approx(sum(((X[y == c] - X[y == c].mean(0)) ** 2).sum() for c in range(4)))
    assert model.score(X) == pytest.approx(-model.inertia_)


# CLTree: growth


def information(points, uniform):
    total = points + uniform
    return -sum(number * np.log(number / total) for number in (points, uniform) if number)


@pytest.mark.parametrize(("values", "weighted", "seed"), in_turns([4, 12, None], [False, True], range(6)))
def test_cut_of_most_information(seed, weighted, values):
    X, weight = points(seed, values=values)
    problem = problem_of(X, weight if weighted else None)
    weight = weight if weighted else np.ones(len(X))
    gains, total = {}, weight.sum()
    for feature, low, high in all_cuts(X):
        column, left = X[:, feature], X[:, feature] <= low
        width = np.ptp(column)
        gap = 0, total * (high - low) / width  # as a part of its own
        parts = [
            (weight[left].sum(), total * (low - column.min()) / width),
            gap,
            (weight[~left].sum(), total * (column.max() - high) / width),
        ]
        assert sum(uniform for _, uniform in parts) == pytest.approx(total)
        gains[feature, round((low + high) / 2, 9)] = information(total, total) - sum(
            information(*part) for part in parts
        )
    criterion, root = EmptySpace(problem, 0), root_of(problem)
    gain, *place = best_cut(criterion, root)
    cut = cut_above(problem, root, *place)
    assert gain == pytest.approx(max(gains.values()), rel=1e-10)
    assert gains[cut.feature, round(cut.threshold, 9)] == pytest.approx(gain, rel=1e-10)
    assert gain <= criterion.bound(root) == pytest.approx(2 * total * np.log(2))


def test_uniform_points_follow_the_box():
    X = np.array([[0.0, 0], [1, 1], [2, 0], [8, 1], [9, 0], [10, 1]])
    problem = problem_of(X)
    criterion, root = EmptySpace(problem, 0), root_of(problem)
    Search(problem, criterion).open(root)
    cut = cut_above(problem, root, 0, int(problem.columns.column(0)[2]))
    left, right = children(problem, root, cut, (1, 2))
    criterion.split(root, cut, (left, right))
    assert cut.threshold == 5
    # Of 6 uniform points, 2/10 of the side each, and 6/10 in the gap; raised to their 3 points
    assert criterion.around == {1: pytest.approx(6 * 0.8), 2: pytest.approx(6 * 0.8)}
    assert [child.state.uniform for child in (left, right)] == [3, 3]
    assert [(child.state.low[0], child.state.high[0]) for child in (left, right)] == [(0, 2), (8, 10)]


# CLTree: pruning


def two_groups(gap):
    """Evenly spaced, so that the only space there is lies between the groups."""
    line = np.linspace(0, 1, 50)
    return np.concatenate([line, line + 1 + gap])[:, None]


@pytest.mark.parametrize(("gap", "min_rd", "leaves"), [(0.1, 0.6, 1), (8, 0.6, 2), (0.1, 1.0, 2), (8, 0.5, 1)])
def test_a_small_gap_is_no_gap(gap, min_rd, leaves):
    # With both groups of 1/2 the points and (1 - g) / 2 of the side, a group and the gap have 1 / (1 + g)
    share = gap / (2 + gap)
    assert (1 / (1 + share) > min_rd) == (leaves == 1)
    assert CLTree(min_y=0.6, min_rd=min_rd).fit(two_groups(gap)).tree_.n_leaves == leaves


def test_nodes_with_a_small_share_of_the_points_are_not_cut():
    X = np.random.default_rng(0).normal(size=(300, 2))
    tree = CLTree(min_y=0.2, min_rd=9).fit(X).tree_
    assert tree.samples[tree.feature >= 0].min() >= 60
    assert CLTree(min_y=0.02, min_rd=9).fit(X).tree_.n_leaves > tree.n_leaves


def test_cltree_finds_clusters_and_how_many():
    X, y = make_blobs(300, centers=[[0, 0], [40, 0], [0, 40], [40, 40]], random_state=0)
    model = CLTree(min_y=0.3).fit(X)
    assert adjusted_rand_score(y, model.labels_) == 1
    assert sorted(np.unique(model.labels_)) == [0, 1, 2, 3]


def test_n_clusters_takes_the_first_cuts():
    X = load_iris().data
    every = CLTree().fit(X).tree_
    assert every.n_leaves > 5
    small, smaller = (CLTree(k).fit(X) for k in (5, 3))
    assert [model.tree_.n_leaves for model in (small, smaller)] == [5, 3]
    cuts = [set(zip(t.feature.tolist(), t.threshold.tolist(), strict=True)) for t in (smaller.tree_, small.tree_)]
    assert {cut for cut in cuts[0] if cut[0] >= 0} <= cuts[1]
    assert (np.asarray(small.tree_.feature) >= 0).sum() == 4


# Both


@pytest.mark.parametrize("Explainer", EXPLAINERS)
@given(seed=st.integers(0, 1000), values=st.sampled_from([3, 20, None]))
def test_a_weight_is_so_many_points(Explainer, seed, values):
    X, weight = points(seed, values=values)
    weighted = Explainer(3).fit(X, sample_weight=weight)
    repeated = Explainer(3).fit(X.repeat(weight.astype(int), axis=0))
    same(weighted, repeated, X)


@pytest.mark.parametrize("Explainer", EXPLAINERS)
def test_a_reference_only_labels_the_leaves(Explainer):
    X, y = load_wine(return_X_y=True)
    names = np.array(["a", "b", "c"])[y]
    model = Explainer(max_leaves=9).fit(X, labels=names)
    own = Explainer(None, max_leaves=9).fit(X)
    assert torch.equal(model.tree_.feature, own.tree_.feature)
    assert set(model.labels_) <= {"a", "b", "c"}
    assert model.tree_.n_leaves <= 9
    centers = KMeans(3, n_init=1, random_state=0).fit(X).cluster_centers_
    model.fit(X, centers=centers)
    distances = ((X[:, None] - centers) ** 2).sum(2)
    for leaf in np.unique(model.tree_.apply(X)):
        member = model.tree_.apply(X) == leaf
        assert set(model.labels_[member]) == {distances[member].sum(0).argmin()}


@pytest.mark.parametrize("Explainer", EXPLAINERS)
def test_a_tree_that_explains_itself_makes_no_mistakes(Explainer):
    model = Explainer(4).fit(load_wine().data)
    assert not model.tree_.mistakes.any()
    assert model.tree_.samples[0] == 178
    assert sorted(np.unique(model.labels_)) == list(range(len(model.cluster_centers_)))


@pytest.mark.parametrize("Explainer", EXPLAINERS)
def test_equal_points_are_one_leaf(Explainer):
    model = Explainer(2).fit(np.ones((30, 3)))
    assert model.tree_.n_leaves == 1
    assert set(model.labels_) == {0}


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (CUBT(0), "n_clusters needs a whole number >= 1"),
        (CUBT(31), "n_samples=30, fewer than n_clusters=31"),
        (CUBT(2, max_leaves=0), "max_leaves needs a whole number >= 1"),
        (CUBT(2, min_dist=-1), "min_dist needs a finite number >= 0"),
        (CUBT(2, delta=0), r"delta needs a number > 0"),
        (CLTree(0), "n_clusters needs a whole number >= 1"),
        (CLTree(max_leaves=0), "max_leaves needs a whole number >= 1"),
        (CLTree(min_y=2), r"min_y needs a number in \[0, 1\]"),
        (CLTree(min_rd=-1), "min_rd needs a finite number >= 0"),
        *(
            (Tree(max_leaves=value), "max_leaves needs a whole number")
            for Tree in EXPLAINERS
            for value in ("8", 2.5)
        ),
        *(
            (Tree(n_clusters=value), "n_clusters needs a whole number")
            for Tree in EXPLAINERS
            for value in ("3", 2.5)
        ),
        (CUBT(None, max_leaves=[3]), "max_leaves needs a whole number"),
        *(
            (CUBT(min_size=value), "min_size needs a finite number >= 0")
            for value in ("10", None, [5], np.nan, True)
        ),
        *((CUBT(min_dev=value), r"min_dev needs a number in \[0, 1\]") for value in ("0.1", None, 1.5, np.nan)),
        *((CUBT(min_dist=value), "min_dist needs a finite number >= 0") for value in ("0.3", None, np.inf)),
        *((CUBT(delta=value), r"delta needs a number (in|> 0)") for value in ("0.2", None, 2, np.nan)),
        *((CLTree(min_y=value), r"min_y needs a number in \[0, 1\]") for value in ("0.05", None, np.nan)),
        *((CLTree(min_rd=value), "min_rd needs a finite number >= 0") for value in ("0.6", None, np.inf)),
    ],
)
def test_parameters_that_mean_nothing(model, message):
    with pytest.raises(ValueError, match=message):
        model.fit(np.random.default_rng(0).normal(size=(30, 2)))
