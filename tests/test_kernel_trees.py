"""Kernel trees: Kernel IMM is IMM on the features of the kernel, and every interval is the best of all."""

import math
from itertools import combinations
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from test_tree_explainers import PATHS, limits
from tree_witnesses import (
    Data,
    Scorer,
    above,
    assert_best_first,
    data,
    inner_nodes,
    labels_below,
    rows_of,
    seeds,
    shared_nodes,
    tables,
)

from neonxc.models import KernelKMeans
from neonxc.trees import KernelExKMC, KernelExpand, KernelIMM
from neonxc.trees.fit.kernel_features import KernelFeatures

EXPANDED = [KernelExKMC, KernelExpand]
TYPES = [np.float64, np.float32, np.uint8]
POWER = {"gaussian": 2, "laplace": 1}  # of the distance
FEATURES = [("anchors", "gaussian"), ("anchors", "laplace"), ("taylor", "gaussian")]


def fitted(model, case, X=None, **extra):
    return model.fit(case.X if X is None else X, labels=case.labels, sample_weight=case.weight, **extra)


# --- Kernel IMM --------------------------------------------------------------------------------------------


def features_of(case, kind, kernel, gamma, size):
    """The features of the kernel, [n, d * size], equal for equal distances, and their means by cluster."""
    points = torch.from_numpy(case.values)
    mass = torch.from_numpy(case.mass)
    if kind == "taylor":
        points = points - (mass / mass.sum()) @ points
    most = min(size, max(len(column.unique()) for column in points.T))
    found = []
    for column in points.T:
        if kind == "taylor":  # at^m exp(-at^2 / 2) / sqrt(m!)
            (at, place) = column.abs().unique(return_inverse=True)
            m = torch.arange(size).double()[:, None]
            at = at * (2 * gamma) ** 0.5
            own = (torch.xlogy(m, at) - torch.lgamma(m + 1) / 2 - at**2 / 2).exp()[:, place]
            found.append(torch.where(m % 2 == 1, column.sign() * own, own))
            continue
        anchors = column.unique()
        places = [min(j, len(anchors) - 1) for j in range(most)]
        if len(anchors) > size:  # quantiles
            places = [int((j + 0.5) * len(anchors) / size) for j in range(size)]
        far, place = (anchors[places][:, None] - column).abs().unique(return_inverse=True)
        found.append((-gamma * far ** POWER[kernel]).exp()[place])
    member = torch.nn.functional.one_hot(torch.from_numpy(case.labels)) * mass[:, None]
    means = torch.cat([own @ member for own in found]) / member.sum(0)
    return torch.cat(found).T.numpy(), means.T.numpy()


def assume_distinct(centers):
    assume(len(np.unique(np.round(centers, 9), axis=0)) == len(centers))


def assert_bounds(tree, X):
    """Intervals begin and end midway between values of a node, one on the left and one on the right."""
    rows = rows_of(tree, X)
    for node in inner_nodes(tree):
        values, first = np.unique(X[rows[node], int(tree.feature[node])].astype(np.float64), return_index=True)
        left = np.isin(rows[node][first], rows[int(tree.left[node])])
        ends = np.flatnonzero(left[1:] != left[:-1])
        bounds = [bound for pair in tree.tests[node] for bound in pair if np.isfinite(bound)]
        if len(ends):
            rounding = float(np.finfo(X.dtype).eps) if X.dtype.kind == "f" else 0
            assert bounds == pytest.approx(((values[ends] + values[ends + 1]) / 2).tolist(), rel=rounding, abs=0)


def assert_imm(tree, case, columns, scorer):
    """Who goes where is what IMM does on the features: from node to node, the first of the best cuts."""
    raw = rows_of(tree, case.values)
    size = columns.shape[1] // case.X.shape[1]
    open_ = [0]
    while open_:
        node = open_.pop()
        own = np.array(sorted(labels_below(tree, node)))
        rows = raw[node]
        if len(own) == 1:
            assert int(tree.feature[node]) < 0
            continue
        children = (int(tree.left[node]), int(tree.right[node]))
        open_ += children
        if not len(rows):  # any cut will do
            continue
        _, (feature, low, _) = scorer.best(rows, own, ())
        left = columns[rows, feature] <= low
        mine = scorer.centers[own, feature] <= low
        assert int(tree.feature[node]) == feature // size
        assert {frozenset(raw[child]): set(labels_below(tree, child)) for child in children} == {
            frozenset(rows[left]): set(own[mine].tolist()),
            frozenset(rows[~left]): set(own[~mine].tolist()),
        }


@pytest.mark.parametrize("features", FEATURES, ids="-".join)
@given(
    case=tables(24, 3, dtypes=TYPES),
    size=st.integers(1, 9),
    gamma=st.sampled_from([0.1, 1.0, 4.0]),
    path=st.sampled_from(list(PATHS)),
)
def test_kernel_imm_is_imm_on_the_features_of_the_kernel(features, case, size, gamma, path):
    columns, centers = features_of(case, *features, gamma, size)
    assume_distinct(centers)
    model = KernelIMM(case.k, features=features[0], kernel=features[1], gamma=gamma, n_features=size)
    with limits(path):
        tree = fitted(model, case).tree_
    assert tree.n_leaves == case.k
    assert sorted(tree.label[tree.leaves].tolist()) == list(range(case.k))
    assert all(len(test) <= (2 if features[0] == "taylor" else 1) for test in tree.tests)
    assert_bounds(tree, case.X)
    assert_imm(tree, case, columns, Scorer("IMM", Data(columns, case.labels, case.weight), centers))


def test_neighbouring_numbers_at_a_summit_are_in_order():
    """As computed, features of numbers that hardly differ are a random walk there, if not mended."""
    x = math.sqrt(3 / 2) * (1 + torch.finfo(torch.float64).eps * torch.arange(-300, 301).double())
    feature = KernelFeatures(x[:, None], "taylor", "gaussian", 1.0, 4).column(3)
    torch.testing.assert_close(feature, (8 / 6) ** 0.5 * x**3 * (-(x**2)).exp(), rtol=1e-14, atol=0)
    turns = feature.diff().sign()
    assert (turns[turns != 0].diff() != 0).sum() <= 1


@pytest.mark.parametrize("kind", ["taylor", "anchors"])
@given(seed=seeds)
def test_trees_do_not_depend_on_exact_exponentials(kind, seed):
    """Libraries may round the exponential of one number differently from place to place."""
    rng = np.random.default_rng(seed)
    plain = torch.Tensor.exp_

    def exp_(values):
        return plain(values).mul_(1 + torch.from_numpy(rng.integers(-3, 4, values.shape)) * 1e-14)

    X = rng.integers(-20, 21, (80, 1)) / 8
    labels = rng.permutation(80) % 2
    model = KernelIMM(2, features=kind, gamma=1.0, n_features=6)
    with mock.patch.object(torch.Tensor, "exp_", exp_):
        model.fit(X, labels=labels)
    assert len(model.tree_.tests[0]) <= (2 if kind == "taylor" else 1)
    assert np.array_equal(model.predict(X), model.labels_)


def test_taylor_features_of_far_columns():
    """They would be zero, or overflow, if columns were not centred; and powers of hundreds of terms overflow."""
    X = np.concatenate([np.linspace(-9, -8, 10), np.linspace(8, 9, 10)])[:, None]
    for shift in (0.0, 2.0**30):
        tree = KernelIMM(2, features="taylor", gamma=1.0, n_features=250).fit(
            X + shift, labels=np.arange(20) // 10
        )
        assert tree.tree_.tests[0] == ((-np.inf, shift),)
        assert np.array_equal(tree.labels_, np.arange(20) // 10)


# --- intervals ---------------------------------------------------------------------------------------------


def costs_of(model, case, gamma, kernel):
    """What a point costs under each label, by the definition, [n, k]."""
    other = (case.labels[:, None] != np.arange(case.k)) * 1.0
    if model is KernelExpand:
        return other * case.mass[:, None]
    K = np.exp(-gamma * (np.abs(case.values[:, None] - case.values) ** POWER[kernel]).sum(2))
    member = (1 - other) * case.mass[:, None]
    member /= member.sum(0)
    return (1 - 2 * K @ member + np.diag(member.T @ K @ member)) * case.mass[:, None]


def best_of_all(X, costs):
    """The least cost of an interval, and the first that has it, of all intervals and pairs of labels."""
    total = costs.sum(0)
    best = (np.inf, -1, ())
    for feature, column in enumerate(X.T):
        values = np.unique(column)
        for a, b in combinations(range(-1, len(values)), 2):
            inside = (column <= values[b]) & ((a < 0) | (column > values[a]))
            if not inside.all():
                own = costs[inside].sum(0)
                pairs = (own[:, None] + total - own)[~np.eye(len(total), dtype=bool)]
                best = min(best, (pairs.min(initial=np.inf), feature, (a, b), inside.tolist()))
    return best


def assert_best_intervals(tree, X, costs, start, most):
    """From the nodes `start` on the leaf that gains most is split, by its best interval, as any gains."""
    rows = rows_of(tree, X)
    rounding = 1e-9 * max(costs.max(1).sum(), 1e-300)
    best = [best_of_all(X[own], costs[own]) if len(own) else (np.inf,) for own in rows]
    gains = [costs[own].sum(0).min() - cost for own, (cost, *_) in zip(rows, best, strict=True)]
    for node in {*inner_nodes(tree)} - above(tree, start):
        assert len(tree.tests[node]) == 1
        left, right = (costs[rows[int(side[node])]].sum(0) for side in (tree.left, tree.right))
        pairs = (left[:, None] + right)[~np.eye(len(left), dtype=bool)]
        assert costs[rows[node]].sum(0).min() - pairs.min() >= gains[node] - rounding
        assert gains[node] > 0
        if not (costs % 1).any():  # sums are exact
            _, feature, _, inside = best[node]
            assert int(tree.feature[node]) == feature
            on_left = np.isin(rows[node], rows[int(tree.left[node])])
            assert len(set(on_left == inside)) == 1  # one side is inside
    assert_best_first(tree, start, gains, rounding)
    assert tree.n_leaves <= most
    for leaf in tree.leaves.tolist():
        assert tree.n_leaves == most or gains[leaf] <= rounding
        of_label = costs[rows[leaf]].sum(0)
        assert of_label[int(tree.label[leaf])] <= of_label.min() + rounding


@pytest.mark.parametrize(
    ("base", "model"),
    [
        pytest.param(base, model, marks=[pytest.mark.slow] * (i != j))
        for i, base in enumerate(["none", "imm"])
        for j, model in enumerate(EXPANDED)
    ],
)
@given(
    case=tables(16, 3, dtypes=TYPES),
    extra=st.integers(0, 6),
    kernel=st.sampled_from(["gaussian", "laplace"]),
    path=st.sampled_from(["as_it_is", "sorted", "bins", "chunks", "small_cache", "more_bins"]),
    cached=st.sampled_from([1, 1 << 17]),
    block=st.sampled_from([1, 50, 1 << 18]),
)
def test_every_interval_is_the_best_of_all(model, base, case, extra, kernel, path, cached, block):
    if base == "imm":
        assume_distinct(features_of(case, "anchors", kernel, 0.5, 32)[1])
    options = {"kernel": kernel, "gamma": 0.5}
    with (
        limits(path),
        mock.patch("neonxc.trees.cuts.intervals.CACHED", cached),
        mock.patch("neonxc.trees.fit.kernel_features.BLOCK", block),
    ):
        tree = fitted(model(case.k, base=base, max_leaves=case.k + extra, **options), case).tree_
    start = [0] if base == "none" else shared_nodes(tree, fitted(KernelIMM(case.k, **options), case).tree_)
    assert_bounds(tree, case.X)
    assert_best_intervals(tree, case.values, costs_of(model, case, 0.5, kernel), start, case.k + extra)


@pytest.mark.parametrize("model", EXPANDED, ids=lambda model: model.__name__)
def test_by_default_twice_as_many_leaves_as_clusters_far_from_the_origin_as_well(model):
    case = data(5, 80, 3, 3, kind="fine", random_labels=True)
    X = (case.X * 2**20).round() / 2**20  # what the shift leaves exact
    near, far = (fitted(model(3, gamma=1.0), case, X + shift).tree_ for shift in (0.0, 2.0**30))
    assert near.n_leaves == 6
    assert shared_nodes(near, fitted(KernelIMM(3, gamma=1.0), case, X).tree_)
    assert near.feature.tolist() == far.feature.tolist()
    assert near.samples.tolist() == far.samples.tolist()


# --- gamma -------------------------------------------------------------------------------------------------


def slow_gamma(X, kernel):
    apart = [(np.abs(x - y) ** POWER[kernel]).sum() for x, y in combinations(X, 2)]
    apart = np.sort([far for far in apart if far > 0])
    return 1 / apart[(len(apart) - 1) // 2]


@pytest.mark.parametrize("kernel", ["gaussian", "laplace"])
@given(case=tables(24, 3, dtypes=TYPES))
def test_the_default_gamma_is_one_over_the_median_distance(kernel, case):
    assume(len(np.unique(case.values, axis=0)) > 1)
    rows = np.repeat(np.arange(len(case.X)), case.mass.astype(int))
    model = KernelExpand(case.k, kernel=kernel, base="none")
    assert fitted(model, case).gamma_ == pytest.approx(slow_gamma(case.values[rows], kernel), rel=1e-12)


def test_gamma_of_other_points():
    assert KernelExpand(2, base="none").fit(np.ones((4, 2)), labels=[0, 0, 1, 1]).gamma_ == 1.0
    X = data(0, 50, 2, 3, kind="fine").X
    reference = KernelKMeans(3, objective="feature", gamma=0.3, random_state=0)
    for own, gamma in (({}, 0.3), ({"gamma": 2}, 2), ({"kernel": "laplace"}, slow_gamma(X, "laplace"))):
        assert KernelIMM(3, reference=reference, **own).fit(X).gamma_ == pytest.approx(gamma)
    many = data(1, 2500, 2, 3, kind="fine").X  # some of the points will do
    sampled = KernelExpand(3, base="none", max_leaves=1).fit(many, labels=np.arange(2500) % 3).gamma_
    assert sampled == pytest.approx(slow_gamma(many[:400], "gaussian"), rel=0.2)
