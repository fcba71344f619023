"""Every cut of a fitted tree is the best one by its criterion, found by trying all of them."""

from contextlib import ExitStack, contextmanager
from unittest import mock

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone
from tree_witnesses import (
    CENTER_TREES,
    Data,
    Scorer,
    above,
    assert_best_first,
    assert_same,
    cuts,
    data,
    distances,
    gini,
    gini_gain,
    grow,
    inner_nodes,
    is_test,
    kmeans_cost,
    nested,
    parts_of,
    routed,
    rows_of,
    same_cuts,
    seeds,
    shared_nodes,
    surrogate_gain,
    tables,
)
from turns import every

from neonxc.trees import (
    CART,
    EMN,
    IMM,
    ExGreedy,
    ExKMC,
    ExShallow,
    KDTree,
    SpExClique,
    SpExGraph,
    SpExKNN,
)
from neonxc.trees.estimator import grown_to

SEPARATING = {model.__name__: model for model in CENTER_TREES}
GROWING = [ExKMC, CART, KDTree]
ALL = [*CENTER_TREES, *GROWING]
# Constants of the code, by their modules, and values of them
SORTED = {"cuts.ranks.INTEGERS": 0}
BINS = {"cuts.codes.FEW": 2, "cuts.codes.COARSE": 2, "cuts.codes.HISTOGRAM": 1}
MORE_BINS = {"cuts.codes.FEW": 5, "cuts.codes.COARSE": 5, "cuts.codes.HISTOGRAM": 1}
FEW_CENTERS = {"criteria.surrogate.FEW": 0}
PATHS = {
    "as_it_is": {},
    "sorted": SORTED,
    "bins": SORTED | BINS,
    "more_bins": SORTED | MORE_BINS,
    "chunks": {
        "cuts.histograms.BUFFER": 3,
        "cuts.histograms.BUDGET": 40,
        "fit.points.CHUNK": 30,
        "cuts.ranks.INDICES": 3,
    },
    "small_cache": SORTED | {"cuts.histograms.CACHED": 20},
    "few_centers": FEW_CENTERS,
    "few_centers_in_chunks": FEW_CENTERS | {"cuts.histograms.CACHED": 20},
}


@contextmanager
def limits(path):
    """Constants so small that a table takes another way through the code; all of them have to be there."""
    with ExitStack() as stack:
        for name, value in PATHS[path].items():
            stack.enter_context(mock.patch(f"neonxc.trees.{name}", value))
        yield


# --- one leaf per center -----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", every(3, PATHS))
@given(
    case=tables(separable=True),
    name=st.sampled_from(list(SEPARATING)),
    depth_factor=st.sampled_from([0.0, 0.03, 0.5]),
)
@settings(max_examples=2 * settings().max_examples)
def test_the_whole_tree_is_that_of_the_paper(path, name, case, depth_factor):
    extra = {"depth_factor": depth_factor} if name == "ExShallow" else {}
    with limits(path):
        model = SEPARATING[name](case.k, **extra).fit(case.X, labels=case.labels, sample_weight=case.weight)
    assert model.tree_.n_leaves == case.k
    expected = Scorer(name, case, case.centers, depth_factor).grow()
    assert same_cuts(nested(model.tree_), expected, case.values)


@st.composite
def tenths(draw):
    """Small tables of whole numbers, which are tenths where they are fitted: their means are exact here alone."""
    n = draw(st.integers(2, 12))
    d = draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(seeds))
    X = rng.integers(-draw(st.integers(0, 4)), draw(st.integers(1, 12)), (n, d)).astype(float)
    X[rng.random(n) < 0.2] = X[0]
    labels = rng.integers(0, draw(st.integers(2, 5)), n)
    if draw(st.booleans()):  # clusters of one point, or of equal points
        _, labels = np.unique(X, axis=0, return_inverse=True)
    return Data(X, labels.reshape(-1), rng.integers(0, 4, n) if draw(st.booleans()) else None)


def counted(case):
    """The points of a case that have a weight, their clusters numbered again."""
    kept = case.mass > 0
    assume(kept.any())
    weight = None if case.weight is None else case.weight[kept]
    found = Data(case.X[kept], np.unique(case.labels[kept], return_inverse=True)[1].reshape(-1), weight)
    assume(found.k > 1)
    assume(len(np.unique(found.centers, axis=0)) == found.k)
    return found


def in_tenths(tree):
    return tree if isinstance(tree, int) else (tree[0], tree[1] * 0.1, tree[2] * 0.1, *map(in_tenths, tree[3:]))


@pytest.mark.parametrize("name", every(2, SEPARATING))
@given(case=tenths())
@example(case=Data(np.array([[3.0], [3], [3], [4]]), np.array([0, 0, 0, 1]), np.array([3, 1, 3, 1])))
def test_no_cut_parts_a_center_from_a_value_that_it_equals_but_for_rounding(name, case):
    exact = counted(case)
    extra = {"depth_factor": 0.03} if name == "ExShallow" else {}
    model = SEPARATING[name](exact.k, **extra)
    X = exact.X * 0.1
    expected = in_tenths(Scorer(name, exact, exact.centers, 0.03).grow())
    for form in (np.asarray, sparse.csc_array):
        model.fit(form(case.X * 0.1), labels=case.labels, sample_weight=case.weight)
        assert same_cuts(nested(model.tree_), expected, X)
    if all((exact.X[exact.labels == c] == center).all(1).any() for c, center in enumerate(exact.centers)):
        assert (model.tree_.samples[model.tree_.leaves] > 0).all()
    if case.weight is None:
        model.fit(lambda: iter(np.array_split(X, 2)), labels=case.labels)
        assert same_cuts(nested(model.tree_), expected, X)


@pytest.mark.parametrize("given_", ["labels", "centers", "kmeans"])
@pytest.mark.parametrize(
    ("model", "n", "dtype"),
    [(IMM(5), 1, "float64"), (CART(5, max_leaves=2), 3000, "float64"), (IMM(5), 3000, "float32")],
    ids=str,
)
def test_the_cost_of_clusters_of_equal_points_is_zero(model, n, dtype, given_):
    """Means of many points are off by many units of the last place, and k-means is of the table's precision."""
    values = [[0.11, 0.33], [0.33, 0.11], [0.66, 0.77], [0.77, 0.22], [0.22, 0.22]]
    centers = np.array(values, dtype=dtype)
    labels = np.arange(5).repeat([n, 1, 1, 1, 1])
    given_ = {"labels": {"labels": labels}, "centers": {"centers": centers * (1 + 1e-16)}, "kmeans": {}}[given_]
    model = clone(model).fit(centers[labels], sample_weight=(labels + 1) / 10, **given_)
    assert model.tree_.cost_ratio is None


@pytest.mark.parametrize("name", ["ExGreedy", "ExShallow"])
@given(seed=seeds, n=st.integers(2, 40), d=st.integers(1, 4), k=st.integers(2, 6), spread=st.integers(0, 12))
@example(seed=0, n=30, d=2, k=3, spread=0)
def test_centers_far_from_all_points(name, seed, n, d, k, spread):
    case = data(seed, n, d, 1, kind="fine")
    rng = np.random.default_rng(seed)
    centers = np.unique(np.round(rng.normal(size=(k, d)) * (1 + spread) * 8) / 8, axis=0)
    assume(len(centers) > 1)
    tree = SEPARATING[name](k).fit(case.X, centers=centers).tree_
    assert tree.n_leaves == len(centers)
    assert same_cuts(nested(tree), Scorer(name, case, centers, 0.03).grow(), case.values)


@pytest.mark.parametrize("path", ["as_it_is", "bins"])
def test_a_side_without_points_is_not_overlooked(path):
    # the cut before the far center has no point on its left: its estimate is 2 - 1/n, less than 2
    X = np.random.default_rng(0).random((30, 2)).round(3)
    centers = np.array([[-10.0, -10.0], [0, 0], [1, 1]])
    with limits(path):
        plain, fine = (ExShallow(3, refine=refine).fit(X, centers=centers) for refine in (False, True))
    expected = Scorer("ExShallow", Data(X, np.zeros(30, dtype=int)), centers, 0.03).grow()
    assert same_cuts(nested(plain.tree_), expected, X)
    assert fine.tree_.n_leaves == 3
    assert fine.inertia_ <= plain.inertia_ * (1 + 1e-9)


@pytest.mark.parametrize("model", every(2, [*ALL, SpExClique], first=1))
@given(seed=seeds, n=st.integers(4, 40), k=st.integers(2, 4))
def test_fractional_weights_leave_no_ghosts(model, seed, n, k):
    """Sums that are taken apart again leave 1e-17 where there is no point: no cut may take that for one."""
    case = data(seed, n, 2, k, random_labels=True)
    weight = np.random.default_rng(seed).integers(1, 10, len(case.X)) / 10
    case.weight = weight
    centers = case.centers.round(12)
    assume(all(np.abs(a - b).max() > 1e-9 for i, a in enumerate(centers) for b in centers[:i]))
    leaves = {} if model in CENTER_TREES else {"max_leaves": 10}
    tree = model(k, **leaves).fit(case.X, labels=case.labels, sample_weight=weight).tree_
    mass = [weight[rows].sum() for rows in rows_of(tree, case.values)]
    np.testing.assert_allclose(tree.samples, mass, atol=1e-9)
    if model in (CART, KDTree, SpExClique):
        assert min(mass) > 0.05
    if model in (IMM, EMN, ExGreedy):
        assert same_cuts(nested(tree), Scorer(model.__name__, case, centers).grow(), case.values)


@pytest.mark.parametrize("model", every(2, [*ALL, SpExClique, SpExKNN, SpExGraph]))
@given(seed=seeds, n=st.integers(8, 60), d=st.integers(1, 2), bins=st.integers(2, 9))
def test_fewer_bins_have_fewer_cuts(model, seed, n, d, bins):
    """Thresholds part points as codes do that stand for several values."""
    case = data(seed, n, d, 2, kind="fine")
    exact = model(2).fit(case.X, labels=case.labels)
    assert nested(model(2, max_bins=n).fit(case.X, labels=case.labels).tree_) == nested(exact.tree_)
    tree = model(2, max_bins=bins, max_leaves=20).fit(case.X, labels=case.labels).tree_
    assert tree.n_leaves <= max(bins, 3) or d > 1  # both centers are ends of bins
    assert [len(rows) for rows in rows_of(tree, case.values)] == tree.samples.tolist()


# --- best first --------------------------------------------------------------------------------------------


def gains_of(tree, case, gain):
    """For every node (gain, cut) of all cuts between its points; `gain` of rows, and which of them go left."""
    X = case.values
    return [
        [(gain(rows, X[rows, cut[0]] <= cut[1]), cut) for cut in cuts(X[rows], X[:0])] for rows in rows_of(tree, X)
    ]


def best_of(gains):
    return [max(found, default=(-np.inf,))[0] for found in gains]


@pytest.mark.parametrize("path", every(3, PATHS, first=1))
@given(case=tables(separable=True), extra=st.integers(0, 6), base=st.sampled_from(["imm", "none", "fitted"]))
def test_exkmc_splits_the_leaf_that_gains_most(path, case, extra, base):
    imm = IMM(case.k).fit(case.X, labels=case.labels, sample_weight=case.weight)
    leaves = case.k + extra
    with limits(path):
        model = ExKMC(case.k, max_leaves=leaves, base=imm if base == "fitted" else base)
        tree = model.fit(case.X, labels=case.labels, sample_weight=case.weight).tree_
    far = distances(case.values, case.centers)
    mass = case.mass
    gains = gains_of(tree, case, lambda rows, left: surrogate_gain(far[rows], left, mass[rows]))
    start = [0] if base == "none" else shared_nodes(tree, imm.tree_)
    rounding = 1e-12 * (far.max(1) * mass).sum()
    best = best_of(gains)
    assert_best_first(tree, start, best, rounding)
    for node in {*inner_nodes(tree)} - above(tree, start):
        assert best[node] - rounding <= next(value for value, cut in gains[node] if is_test(tree, node, cut))
    assert tree.n_leaves <= leaves
    if tree.n_leaves < leaves:  # it stopped where nothing is to be gained
        assert max(best[leaf] for leaf in tree.leaves.tolist()) <= rounding


@pytest.mark.parametrize("path", every(3, PATHS, first=2))
@given(case=tables(), leaves=st.integers(1, 9))
def test_cart_splits_the_leaf_that_gains_most(path, case, leaves):
    """At the lowest column of the best cuts, and there at the lowest threshold."""
    with limits(path):
        model = CART(case.k, max_leaves=leaves).fit(case.X, labels=case.labels, sample_weight=case.weight)
    tree = model.tree_
    labels = case.labels
    mass = case.mass
    gains = gains_of(tree, case, lambda rows, left: gini_gain(labels[rows], left, mass[rows]))
    assert_best_first(tree, [0], best_of(gains), 1e-9 * mass.sum())
    for node in inner_nodes(tree):
        found = gains[node]
        most = max(gains[node])[0] - 1e-13 * mass.sum()
        assert is_test(tree, node, next(cut for value, cut in found if value >= most))
    if tree.n_leaves < leaves:  # all leaves are pure, or their points are equal
        rows = rows_of(tree, case.values)
        assert all(gini(labels[rows[leaf]], mass[rows[leaf]]) < 1e-9 or not gains[leaf] for leaf in tree.leaves)


@pytest.mark.parametrize("path", ["as_it_is", "more_bins", "chunks"])
@given(case=tables(), leaves=st.integers(1, 12))
def test_kd_tree_halves_the_largest_leaf(path, case, leaves):
    with limits(path):
        tree = KDTree(case.k, max_leaves=leaves).fit(case.X, labels=case.labels, sample_weight=case.weight).tree_
    X = case.values
    mass = case.mass

    def best(rows, *_):
        own = X[rows]
        weight = mass[rows]
        if (own == own[0]).all():
            return None
        variance = ((own - np.average(own, axis=0, weights=weight)) ** 2 * weight[:, None]).sum(0)
        feature = int(np.argmax(variance >= variance.max() * (1 - 1e-12)))
        steps = np.unique(own[:, feature])
        off = [abs(2 * weight[own[:, feature] <= low].sum() - weight.sum()) for low in steps[:-1]]
        low = int(np.argmin(off))
        return -weight.sum(), (feature, steps[low], steps[low + 1])

    assert same_cuts(parts_of(tree, X), grow(X, best, leaves))


# --- refinement --------------------------------------------------------------------------------------------


def assert_no_test_can_be_improved(tree, case, clusters):
    """With the means of the leaves fixed, no other cut of one node costs less and leaves points in every leaf."""
    X = case.values
    mass = case.mass
    nodes = rows_of(tree, case.values)
    means = {leaf: np.average(X[nodes[leaf]], axis=0, weights=mass[nodes[leaf]]) for leaf in clusters}
    for node in inner_nodes(tree):
        rows = nodes[node]

        def cost(leaves, rows=rows):
            return mass[rows] @ ((X[rows] - [means[leaf] for leaf in leaves]) ** 2).sum(1)

        reached = [routed(tree, X[i]) for i in rows]
        least = cost(reached) - 1e-9 * max(cost(reached), 1e-9)
        for feature, low, high in cuts(X[rows], X[:0]):
            leaves = [routed(tree, X[i], (node, feature, (low + high) / 2)) for i in rows]
            assert len(set(leaves)) < len(set(reached)) or cost(leaves) >= least


@given(case=tables(24, separable=True), model=st.sampled_from(CENTER_TREES))
@example(case=data(8, 12, 2, 3, kind="fine"), model=ExGreedy)
@example(case=data(49, 12, 2, 4, kind="fine"), model=IMM)  # a cut that would empty a leaf does not hide the next
@settings(max_examples=3 * settings().max_examples)
def test_refined_trees_are_locally_optimal(model, case):
    """A cut moves within its gap, and others below it may notice."""
    given_ = {"labels": case.labels, "sample_weight": case.weight}
    plain, fine = (model(case.k, refine=refine).fit(case.X, **given_) for refine in (False, True))
    size = kmeans_cost(case.values, np.zeros(len(case.X)), case.mass)
    cost = kmeans_cost(case.values, fine.labels_, case.mass)
    assert fine.inertia_ == pytest.approx(cost, rel=1e-9, abs=1e-9 * size)
    assert cost <= plain.inertia_ + 1e-9 * size
    tree = fine.tree_
    assert sorted(tree.label[tree.leaves].tolist()) == list(range(case.k))
    assert (tree.samples > 0).all() or not (plain.tree_.samples > 0).all()
    if (tree.samples > 0).all():
        assert_no_test_can_be_improved(tree, case, tree.leaves.tolist())


@pytest.mark.parametrize("explainer", [CART(4), ExShallow(4)])
def test_a_tree_grown_to_several_sizes_is_that_of_each_size(explainer):
    draw = np.random.default_rng(0)
    y = np.repeat(np.arange(4), 40)
    X = draw.normal(size=(160, 3)) + draw.normal(size=(4, 3))[y]
    for size, one in zip((4, 6, 9), grown_to(explainer, (4, 6, 9), X, y), strict=True):
        alone = clone(explainer).set_params(max_leaves=size).fit(X, labels=y)
        assert_same(one, alone, costs=0)
        assert one.get_params() == alone.get_params()
        assert one.tree_.n_leaves == size
        np.testing.assert_array_equal(one.labels_, alone.labels_)
