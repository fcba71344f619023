"""Kernel trees: Kernel IMM is IMM on the features of the kernel, and every interval is the best of all."""

import pickle
from itertools import combinations
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given
from hypothesis import strategies as st
from sklearn.cluster import AgglomerativeClustering
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from test_tree_explainers import PATHS, limits
from tree_witnesses import KERNEL_TREES, Data, Scorer, above, data, labels_below, passed, shared_nodes

import neonxc
from neonxc.models import KernelKMeans
from neonxc.rules.intervals import contains
from neonxc.trees import KernelExKMC, KernelExpand, KernelIMM
from neonxc.trees.cuts import intervals as kernel_intervals
from neonxc.trees.fit import kernel_features as kernel_features
from neonxc.trees.fit.kernel_features import KernelFeatures

EXPANDED = [KernelExKMC, KernelExpand]
every = pytest.mark.parametrize("model", KERNEL_TREES, ids=lambda model: model.__name__)
seeds = st.integers(0, 2**32 - 1)
FEATURES = [("anchors", "gaussian"), ("anchors", "laplace"), ("taylor", "gaussian")]


@st.composite
def tables(draw, most=24):
    return data(
        draw(seeds),
        draw(st.integers(3, most)),
        draw(st.integers(1, 3)),
        draw(st.integers(2, 4)),
        kind=draw(st.sampled_from(["grid", "fine"])),
        dtype=draw(st.sampled_from([np.float64, np.float32, np.uint8])),
        weighted=draw(st.booleans()),
        random_labels=draw(st.booleans()),
    )


def sides_of(tree, X):
    """For every node: the rows that reach it. Tests are read as intervals."""
    rows = [np.array([], dtype=int)] * tree.n_nodes
    rows[0] = np.arange(len(X))
    for node, test in enumerate(tree.tests):
        if int(tree.feature[node]) >= 0:
            values = torch.from_numpy(X[rows[node], int(tree.feature[node])].astype(np.float64))
            left = contains(test, values).numpy()
            rows[int(tree.left[node])], rows[int(tree.right[node])] = rows[node][left], rows[node][~left]
    return rows


def said_by(tree):
    """What a tree asks, and how it answers."""
    return tree.feature.tolist(), tree.tests, tree.label.tolist(), tree.samples.tolist()


def fitted(model, case, X=None, **extra):
    return model.fit(case.X if X is None else X, labels=case.labels, sample_weight=case.weight, **extra)


# --- Kernel IMM --------------------------------------------------------------------------------------------


def surrogates_of(case, kind, kernel, gamma, size):
    """The features of the kernel, and the means of the clusters."""
    points = torch.from_numpy(case.values)
    if kind == "taylor":
        points = points - torch.from_numpy(np.average(case.values, axis=0, weights=case.mass))
    columns = KernelFeatures(points, kind, kernel, gamma, size).rows(slice(None)).numpy()
    centers = [
        np.average(columns[case.labels == c], axis=0, weights=case.mass[case.labels == c]) for c in range(case.k)
    ]
    return columns, np.stack(centers)


def leaves_below(nested):
    return {nested} if isinstance(nested, int) else leaves_below(nested[3]) | leaves_below(nested[4])


def assert_imm(tree, case, columns, scorer):
    """Who goes where is what IMM does on the surrogate columns: from node to node, the best cut of all."""
    raw, size = sides_of(tree, case.values), columns.shape[1] // case.X.shape[1]
    open_ = [0]
    while open_:
        node = open_.pop()
        own = np.array(sorted(labels_below(tree, node)))
        if len(own) == 1:
            assert int(tree.feature[node]) < 0
            continue
        rows, children = raw[node], (int(tree.left[node]), int(tree.right[node]))
        open_ += children
        if not len(rows):  # any cut will do
            continue
        found = scorer.all(rows, own, frozenset())
        best = min(found)[0]
        sides = {frozenset(raw[child]): frozenset(labels_below(tree, child)) for child in children}
        equal = [cut for score, cut in found if score <= best + 1e-9 * scorer.size(rows, own)]
        given_ = []
        for feature, low, _ in equal:
            left, mine = columns[rows, feature] <= low, scorer.centers[own, feature] <= low
            given_.append(
                (
                    feature // size,
                    {frozenset(rows[left]): frozenset(own[mine]), frozenset(rows[~left]): frozenset(own[~mine])},
                )
            )
        assert (int(tree.feature[node]), sides) in given_
        assert int(tree.feature[node]) == given_[0][0]  # of equal ones the first
        assert sides == given_[0][1]


@pytest.mark.parametrize("features", FEATURES, ids="-".join)
@given(
    case=tables(),
    size=st.integers(1, 9),
    gamma=st.sampled_from([0.1, 1.0, 4.0]),
    path=st.sampled_from(list(PATHS)),
)
def test_kernel_imm_is_imm_on_the_features_of_the_kernel(features, case, size, gamma, path):
    columns, centers = surrogates_of(case, *features, gamma, size)
    assume(len(np.unique(np.round(centers, 9), axis=0)) == case.k)
    model = KernelIMM(case.k, features=features[0], kernel=features[1], gamma=gamma, n_features=size)
    with limits(path):
        tree = fitted(model, case).tree_
    assert tree.n_leaves == case.k
    assert sorted(tree.label[tree.leaves].tolist()) == list(range(case.k))
    assert all(len(test) <= (2 if features[0] == "taylor" else 1) for test in tree.tests)
    scorer = Scorer("IMM", Data(columns, case.labels, case.weight), centers)
    assert_imm(tree, case, columns, scorer)


@given(case=tables())
def test_with_all_values_as_anchors_more_of_them_change_nothing(case):
    _columns, centers = surrogates_of(case, "anchors", "gaussian", 1.0, 40)
    assume(len(np.unique(np.round(centers, 9), axis=0)) == case.k)
    trees = [fitted(KernelIMM(case.k, gamma=1.0, n_features=size), case).tree_ for size in (24, 1000)]
    assert said_by(trees[0]) == said_by(trees[1])


def test_one_interval_parts_an_inner_ring():
    angle = np.linspace(0, 6, 60)
    ring = np.stack([np.cos(angle), np.sin(angle)], 1)
    X, labels = np.concatenate([ring, ring / 5]), np.arange(120) // 60
    tree = KernelIMM(2, gamma=2.0).fit(X, labels=labels).tree_
    assert tree.n_leaves == 2
    ((low, high),) = tree.tests[0]
    assert -0.9 < low < -0.2
    assert 0.2 < high < 0.9


# --- intervals ---------------------------------------------------------------------------------------------


def costs_of(model, case, gamma, kernel):
    """What a point costs under each label, by the definition, [n, k]."""
    other = (case.labels[:, None] != np.arange(case.k)) * 1.0
    if model is KernelExpand:
        return other * case.mass[:, None]
    apart = case.values[:, None] - case.values
    K = np.exp(-gamma * ((apart**2).sum(2) if kernel == "gaussian" else np.abs(apart).sum(2)))
    member = (1 - other) * case.mass[:, None]
    member /= member.sum(0)
    return (1 - 2 * K @ member + np.diag(member.T @ K @ member)) * case.mass[:, None]


def best_of_all(X, costs):
    """The least cost of an interval, trying all pairs of thresholds and of labels; infinite if there is none."""
    total, least = costs.sum(0), np.inf
    for column in X.T:
        values = np.unique(column)
        up_to = np.stack([np.zeros(len(total)), *(costs[column <= value].sum(0) for value in values)])
        for a, b in combinations(range(len(values) + 1), 2):
            if (a, b) != (0, len(values)):
                inside = up_to[b] - up_to[a]
                pairs = inside[:, None] + total - inside
                least = min(least, pairs[~np.eye(len(total), dtype=bool)].min(initial=np.inf))
    return least


def assert_best_intervals(tree, X, costs, start, most):
    """From the nodes `start` on the leaf that gains most is split, by its best interval, as any gains."""
    rows, size = sides_of(tree, X), max(costs.max(1).sum(), 1e-300)
    gains = [costs[own].sum(0).min() - best_of_all(X[own], costs[own]) if len(own) else -np.inf for own in rows]
    base = above(tree, start)
    for node in (tree.feature >= 0).nonzero()[:, 0].tolist():
        if node in base:
            continue
        assert len(tree.tests[node]) == 1
        left, right = (costs[rows[int(side[node])]].sum(0) for side in (tree.left, tree.right))
        pairs = (left[:, None] + right)[~np.eye(len(left), dtype=bool)]
        assert costs[rows[node]].sum(0).min() - pairs.min() >= gains[node] - 1e-9 * size
        assert gains[node] > 0
    seen = set()

    def in_some_order(open_):
        """Leaves that gain alike may be split in any order."""
        inner = [node for node in open_ if int(tree.feature[node]) >= 0]
        if open_ in seen or not inner:
            return open_ not in seen
        seen.add(open_)
        limit = max(gains[node] for node in open_) - 1e-9 * size
        ready = [node for node in inner if gains[node] >= limit]
        return any(in_some_order(open_ - {node} | {int(tree.left[node]), int(tree.right[node])}) for node in ready)

    assert in_some_order(frozenset(start)), "another leaf gains more"
    assert tree.n_leaves <= most
    if tree.n_leaves < most:
        assert max(gains[leaf] for leaf in tree.leaves.tolist()) <= 1e-9 * size
    for leaf in tree.leaves.tolist():
        of_label = costs[rows[leaf]].sum(0)
        assert of_label[int(tree.label[leaf])] <= of_label.min() + 1e-9 * size


@pytest.mark.parametrize("model", EXPANDED, ids=lambda model: model.__name__)
@pytest.mark.parametrize("base", ["none", "imm"])
@given(
    case=tables(most=16),
    extra=st.integers(0, 6),
    kernel=st.sampled_from(["gaussian", "laplace"]),
    path=st.sampled_from(["as_it_is", "sorted", "bins", "chunks", "small_cache", "more_bins"]),
    cached=st.sampled_from([1, 1 << 17]),
)
def test_every_interval_is_the_best_of_all(model, base, case, extra, kernel, path, cached):
    _, centers = surrogates_of(case, "anchors", kernel, 0.5, 32)
    assume(base == "none" or len(np.unique(np.round(centers, 9), axis=0)) == case.k)
    options = {"kernel": kernel, "gamma": 0.5}
    with limits(path), mock.patch.object(kernel_intervals, "CACHED", cached):
        tree = fitted(model(case.k, base=base, max_leaves=case.k + extra, **options), case).tree_
    start = [0] if base == "none" else shared_nodes(tree, fitted(KernelIMM(case.k, **options), case).tree_)
    costs = costs_of(model, case, 0.5, kernel)
    assert_best_intervals(tree, case.values, costs, start, case.k + extra)


def test_of_equal_intervals_the_first():
    """The lowest column, there the lowest beginning."""
    X = np.array([[5.0, 0, 0], [5, 1, 1], [5, 2, 2], [5, 3, 3]])
    tree = KernelExpand(2, base="none", max_leaves=2).fit(X, labels=[0, 1, 0, 0]).tree_
    assert int(tree.feature[0]) == 1
    assert tree.tests[0] == ((0.5, 1.5),)
    tree = KernelExpand(2, base="none", max_leaves=2).fit(X, labels=[1, 0, 1, 0]).tree_
    assert tree.tests[0][0] == (-np.inf, 0.5)  # one mistake, as for the other three intervals
    assert float(tree.threshold[0]) == 0.5


@pytest.mark.parametrize("model", EXPANDED, ids=lambda model: model.__name__)
def test_defaults_of_expanded_trees(model):
    case = data(5, 80, 3, 3, kind="fine", random_labels=True)
    tree = fitted(model(3), case).tree_
    assert tree.n_leaves == 6
    assert shared_nodes(tree, fitted(KernelIMM(3), case).tree_)


@pytest.mark.parametrize("model", EXPANDED, ids=lambda model: model.__name__)
def test_growth_ends_where_nothing_is_to_be_gained(model):
    case = data(0, 40, 2, 3, kind="fine")
    expanded = fitted(model(3, base="none", max_leaves=1000), case)
    rows = sides_of(expanded.tree_, case.values)
    for leaf in expanded.tree_.leaves.tolist():
        assert len(np.unique(case.labels[rows[leaf]])) == 1 or model is KernelExKMC
    assert expanded.tree_.n_leaves < 40
    if model is KernelExpand:
        assert np.array_equal(expanded.labels_, case.labels)


# --- gamma -------------------------------------------------------------------------------------------------


def slow_gamma(X, kernel):
    apart = [((x - y) ** 2).sum() if kernel == "gaussian" else np.abs(x - y).sum() for x, y in combinations(X, 2)]
    apart = np.sort([far for far in apart if far > 0])
    return 1 / apart[(len(apart) - 1) // 2]


@pytest.mark.parametrize("kernel", ["gaussian", "laplace"])
@given(case=tables())
def test_the_default_gamma_is_one_over_the_median_distance(kernel, case):
    assume(len(np.unique(case.values, axis=0)) > 1)
    rows = np.repeat(np.arange(len(case.X)), case.mass.astype(int))
    model = KernelExpand(case.k, kernel=kernel, base="none")
    assert fitted(model, case).gamma_ == pytest.approx(slow_gamma(case.values[rows], kernel), rel=1e-12)


def test_gamma_of_other_points():
    assert KernelExpand(2, base="none").fit(np.ones((4, 2)), labels=[0, 0, 1, 1]).gamma_ == 1.0
    X = data(0, 50, 2, 3, kind="fine").X
    reference = KernelKMeans(3, objective="feature", gamma=0.3, random_state=0)
    assert KernelIMM(3, reference=reference).fit(X).gamma_ == 0.3
    assert KernelIMM(3, reference=reference, gamma=2).fit(X).gamma_ == 2.0
    laplace = KernelIMM(3, reference=reference, kernel="laplace").fit(X)
    assert laplace.gamma_ == pytest.approx(slow_gamma(X, "laplace"))
    many = data(1, 2500, 2, 3, kind="fine").X  # some of the points will do
    sampled = KernelExpand(3, base="none", max_leaves=1).fit(many, labels=np.arange(2500) % 3).gamma_
    assert sampled == pytest.approx(slow_gamma(many[:400], "gaussian"), rel=0.2)


# --- weights, kinds of data, references --------------------------------------------------------------------


@every
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@given(seed=seeds, start=st.sampled_from([1.0, -1.0, 1e-3, 3e4]))
def test_intervals_part_neighbouring_floats_of_the_data_s_type(model, dtype, seed, start):
    rng = np.random.default_rng(seed)
    values = [dtype(start)]
    for _ in range(5):
        values.append(np.nextafter(values[-1], dtype(np.inf)))
    X, labels = np.array(values)[rng.integers(0, 6, (30, 2))], rng.permutation(np.arange(30) % 3)
    try:
        estimator = model(3).fit(X, labels=labels)
    except ValueError as error:
        assert "the same in every column" in str(error)  # noqa: PT017 - means may well coincide
        return
    assert np.array_equal(estimator.predict(X), estimator.labels_)
    tree = estimator.tree_
    assert [len(rows) for rows in sides_of(tree, X)] == tree.samples.tolist()
    for node in (tree.feature >= 0).nonzero()[:, 0].tolist():
        if min(float(tree.samples[side[node]]) for side in (tree.left, tree.right)):
            bounds = np.array(tree.tests[node])
            assert (bounds[np.isfinite(bounds)].astype(dtype) == bounds[np.isfinite(bounds)]).all()


@every
def test_a_pipeline_as_reference(model):
    """Rules in raw units, the kernel behind the scaler."""
    case = data(8, 60, 3, 3, kind="fine")
    X = case.values * [1, 100, 0.01] + [5, -300, 2]
    kmeans = KernelKMeans(3, objective="feature", random_state=0)
    estimator = model(3, reference=make_pipeline(StandardScaler(), kmeans)).fit(X)
    Z = StandardScaler().fit_transform(X)
    behind = model(3, reference=kmeans).fit(Z)
    assert estimator.gamma_ == pytest.approx(behind.gamma_)
    assert estimator.tree_.feature.tolist() == behind.tree_.feature.tolist()
    assert np.array_equal(estimator.labels_, behind.labels_)
    assert np.array_equal(estimator.predict(X), estimator.labels_)
    assert estimator.score(X) == pytest.approx(behind.score(Z))
    for node, test in enumerate(estimator.tree_.tests):
        feature = int(estimator.tree_.feature[node])
        if feature >= 0:
            raw = np.array(behind.tree_.tests[node]) * X[:, feature].std() + X[:, feature].mean()
            np.testing.assert_allclose(np.array(test), raw, rtol=1e-6)


@every
def test_other_references(model):
    case = data(9, 60, 3, 3, kind="fine")
    for reference in ("kmeans", AgglomerativeClustering(3)):
        estimator = model(3, reference=reference, random_state=0).fit(case.X)
        assert estimator.tree_.n_leaves >= 3
        assert np.array_equal(estimator.predict(case.X), estimator.labels_)
    by_centers = model(3, gamma=1.0).fit(case.X, centers=case.centers)
    nearest = ((case.values[:, None] - case.centers) ** 2).sum(2).argmin(1)
    by_labels = model(3, gamma=1.0).fit(case.X, labels=nearest)
    assert said_by(by_centers.tree_) == said_by(by_labels.tree_)


@every
def test_fewer_different_points_than_clusters(model):
    X = np.repeat(np.arange(3.0), 4)[:, None]
    with pytest.warns(ConvergenceWarning, match=r"\(3\) found smaller than n_clusters \(5\)"):
        estimator = model(5, random_state=0).fit(X)
    assert len(np.unique(estimator.labels_)) == 3


@every
def test_clusters_of_one_mean_in_every_column(model):
    corners, labels = np.array([[0.0, 0], [1, 1], [0, 1], [1, 0]]), [0, 0, 1, 1]
    if model is KernelExpand:  # no interval makes fewer mistakes, either
        assert model(2, base="none").fit(corners, labels=labels).tree_.n_leaves == 1


# --- what is left behind -----------------------------------------------------------------------------------


@every
@given(case=tables(most=40))
def test_rules_predictions_and_paths_say_the_same(model, case):
    _, centers = surrogates_of(case, "anchors", "gaussian", 1.0, 32)
    assume(len(np.unique(np.round(centers, 9), axis=0)) == case.k)
    estimator = fitted(model(case.k, gamma=1.0), case)
    tree, X = estimator.tree_, case.X
    assert np.array_equal(estimator.predict(X), estimator.labels_)
    new = np.random.default_rng(0).normal(size=(50, X.shape[1])) * 3
    for points in (case.values, new):
        rows, leaf, label = sides_of(tree, points), tree.apply(points), estimator.predict(points)
        path, matched = passed(tree, points), np.zeros(len(points), dtype=int)
        for node in range(tree.n_nodes):
            assert np.array_equal(np.flatnonzero(path[:, node]), rows[node])
        for rule in tree.rules():
            inside = rule.matches(points)
            assert np.array_equal(inside, leaf == rule.leaves[0])
            assert (label[inside] == rule.label).all()
            matched += inside
        assert (matched == 1).all()
    mass = [case.mass[rows].sum() for rows in sides_of(tree, case.values)]
    assert mass == tree.samples.tolist()


@every
def test_saving_and_loading(model, tmp_path):
    case = data(2, 60, 3, 3, kind="fine")
    estimator = fitted(model(3, n_features=20, random_state=1), case)
    neonxc.save(estimator, tmp_path / "tree.safetensors")
    loaded = neonxc.load(tmp_path / "tree.safetensors")
    assert type(loaded) is model
    assert loaded.get_params() == estimator.get_params()
    for other in (loaded, pickle.loads(pickle.dumps(estimator))):
        assert said_by(other.tree_) == said_by(estimator.tree_)
        assert other.gamma_ == estimator.gamma_
        assert np.array_equal(other.labels_, estimator.labels_)
        assert np.array_equal(other.predict(case.X), estimator.labels_)
        assert other.score(case.X) == pytest.approx(estimator.score(case.X))


@given(case=tables(), block=st.sampled_from([1, 50]))
@example(case=data(0, 24, 2, 3), block=1)
def test_blocks_of_kernels_change_no_tree(case, block):
    estimator = KernelExKMC(case.k, base="none", gamma=0.5)
    plain = said_by(fitted(estimator, case).tree_)
    with mock.patch.object(kernel_features, "BLOCK", block):
        assert said_by(fitted(estimator, case).tree_) == plain


@every
def test_ten_thousand_points(model):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 6, 10_000)
    X = rng.normal(size=(6, 8))[labels] * 3 + rng.normal(size=(10_000, 8))
    estimator = model(6).fit(X, labels=labels)
    assert (estimator.labels_ == labels).mean() > 0.7
    assert np.array_equal(estimator.predict(X), estimator.labels_)
