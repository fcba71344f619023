"""Counterfactuals against fine grids and a solver of quadratic programs."""

import functools
import gc
import pickle
import re
import weakref
from functools import partial

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from numpy.random import default_rng
from numpy.testing import assert_allclose
from refusals import refused
from scipy.optimize import LinearConstraint, linprog, minimize
from sklearn.cluster import DBSCAN, HDBSCAN, Birch, BisectingKMeans, KMeans
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_wine, make_blobs
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import LocalOutlierFactor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, OneHotEncoder, StandardScaler

import neonxc
from neonxc import counterfactual, neuralize
from neonxc.models import KernelKMeans
from neonxc.trees import CART, IMM, ExShallow, KernelIMM


def blobs(d=2, centers=4, n=200):
    return make_blobs(n, d, centers=centers, random_state=0, cluster_std=2.0)[0]


def kmeans(X, k=4):
    return KMeans(k, n_init=2, random_state=0).fit(X)


MODELS = {
    "kmeans": kmeans,
    "scaled": lambda X: make_pipeline(StandardScaler(), KMeans(4, n_init=2, random_state=0)).fit(X),
    "birch": lambda X: Birch(n_clusters=3, threshold=1.5).fit(X),
    "bisecting": lambda X: BisectingKMeans(5, random_state=0).fit(X),
    "tied": lambda X: GaussianMixture(3, covariance_type="tied", random_state=0).fit(X),
    "tree": lambda X: ExShallow(5, random_state=0).fit(X),
    "turned tree": lambda X: make_pipeline(PCA(2), IMM(4, random_state=0)).fit(X),
    "intervals": lambda X: KernelIMM(3, random_state=0).fit(X),
    "turned intervals": lambda X: make_pipeline(PCA(2), KernelIMM(3, random_state=0)).fit(X),
}
CURVED = {
    "kernel": lambda X: KernelKMeans(4, random_state=0).fit(X),
    "mixture": lambda X: GaussianMixture(4, random_state=0).fit(X),
    "many": lambda X: GaussianMixture(20, covariance_type="spherical", random_state=0).fit(X),
    "noise": lambda X: DBSCAN(1.3, metric="cityblock").fit(X),  # a surrogate
    "normalized": lambda X: make_pipeline(Normalizer(), KMeans(3, n_init=2, random_state=0)).fit(X),
}


NOISE = pytest.param("noise", marks=pytest.mark.slow)


@functools.cache
def fitted(name):
    X = blobs() + 4 * (name in CURVED)
    return X, neuralize((MODELS | CURVED)[name](X), X)


def grid(X, cells=150):
    """Points far beyond those of X, and the width of a cell."""
    low = X.min(0)
    high = X.max(0)
    axes = np.linspace(low - (high - low), high + (high - low), cells).T
    return np.stack(np.meshgrid(*axes), -1).reshape(-1, 2), max((axes[:, 1] - axes[:, 0]) / X.std(0))


def nearest_on_grid(net, X, points, labels, spread):
    """The distance to the nearest point of the grid in the wanted cluster."""
    owner = net.predict(points)
    ways = [
        np.linalg.norm((points[owner == label] - x) / spread, axis=1) for x, label in zip(X, labels, strict=True)
    ]
    return np.array([way.min(initial=np.inf) for way in ways])


@pytest.mark.parametrize("name", [*MODELS, "kernel", "mixture", "many", "normalized", NOISE])
def test_nearest_on_a_grid(name):
    """Nearly so where boundaries are curved."""
    X, net = fitted(name)
    some = X[:20]
    (points, cell) = grid(X)
    cf = counterfactual(net, some, margin=0)
    assert cf.found.all()
    assert cf.exact == (name in MODELS)
    assert (cf.labels == cf.target).all()
    assert (net.predict(cf.points) == cf.target).all()
    assert (cf.target != net.predict(some)).all()
    assert_allclose(cf.distance, np.linalg.norm(cf.changes / X.std(0), axis=1), rtol=1e-9)
    witness = nearest_on_grid(net, some, points, cf.target, X.std(0))
    if name in CURVED:
        assert (cf.distance <= witness * 1.01 + 1e-6).mean() >= 0.9
    else:
        assert (cf.distance <= witness + 1e-6).all()
        # thin pieces may have no point of the grid, so that the witness is only an upper bound there
        assert np.mean(witness - cf.distance <= 2 * cell) > 0.9


def least(normals, limits, start, bounds):
    """The length of the shortest vector with ``normals u <= limits``, by SciPy."""
    limited = {"bounds": bounds, "constraints": [LinearConstraint(normals, ub=limits)]}
    options = {"ftol": 1e-14, "maxiter": 500}
    found = minimize(lambda u: u @ u / 2, start, jac=lambda u: u, method="SLSQP", options=options, **limited)
    return np.sqrt(2 * found.fun)


@given(st.integers(0, 10**6))
def test_half_spaces_of_pipelines_within_bounds(seed):
    g = default_rng(seed)
    d = int(g.integers(2, 7))
    k = int(g.integers(2, 8))
    X = g.normal(size=(80, d)) * g.uniform(0.1, 100, d) + g.normal(size=d) * 100
    steps = StandardScaler(), PCA(int(g.integers(1, d + 1)))
    model = make_pipeline(*steps, KMeans(k, n_init=1, random_state=0)).fit(X)
    some = X[:6]
    spread = X.std(0)
    fixed = np.flatnonzero(g.random(d) < 0.1)
    ends = np.stack([some.min(0) - spread * g.random(d), some.max(0) + spread * g.random(d)])
    ends = np.where(g.random((2, d)) < 0.4, [[-np.inf], [np.inf]], ends)
    cf = counterfactual(neuralize(model, X), some, bounds=dict(enumerate(ends.T)), fixed=fixed)
    centers = model[-1].cluster_centers_
    weight = model[1].components_ / model[0].scale_ * spread
    for x, target, found, distance in zip(some, cf.target, cf.found, cf.distance, strict=True):
        c = centers[target]
        others = np.delete(centers, target, axis=0)
        z = model[:-1].transform([x])[0]
        normal = 2 * (others - c) @ weight
        limit = (others**2).sum(1) - (c**2).sum() - 2 * (others - c) @ z
        box = ((ends - x) / spread).T
        box[fixed] = 0
        feasible = linprog(np.zeros(d), normal, limit, bounds=box)
        assert found == (feasible.status == 0)
        if found:
            best = least(normal, limit, feasible.x, box)
            assert distance <= best * (1 + 1e-6) + 1e-6
            assert distance >= best * (1 - 1e-3) - 1e-6  # SLSQP ends a little outside


@pytest.mark.parametrize("name", ["birch", "tree", "kernel"])
def test_fixed_columns_and_bounds(name):
    X, net = fitted(name)
    some = X[:10]
    spread = X.std(0)
    points = grid(X)[0]
    cf = counterfactual(net, some, target=1, fixed=[1], margin=0)
    assert (cf.changes[:, 1] == 0).all()
    assert (net.predict(cf.points)[cf.found] == 1).all()
    for x, distance in zip(some, cf.distance, strict=True):
        on_line = np.where([True, False], points[:150], x)
        if name == "kernel":  # what is far beyond the rows is not searched
            on_line = on_line[(on_line[:, 0] >= X[:, 0].min()) & (on_line[:, 0] <= X[:, 0].max())]
        assert distance <= nearest_on_grid(net, [x], on_line, [1], spread) * 1.001 + 1e-6
    low = X[:, 0].min()
    high = np.median(X[:, 0])
    cf = counterfactual(net, some, bounds={0: (low, high)}, margin=0)
    inside = some[:, 0] <= high
    assert 0 < inside.sum() < 10
    assert (cf.found == inside).all()
    after = cf.points[inside, 0]
    assert ((after >= low - 1e-12) & (after <= high + 1e-12)).all()
    within = points[(points[:, 0] >= low) & (points[:, 0] <= high)]
    near = cf.distance <= nearest_on_grid(net, some, within, cf.target, spread) * 1.01 + 1e-6
    assert near[inside].mean() >= (0.8 if name == "kernel" else 1)
    if name == "kernel":  # few columns of curved clusters: a heuristic
        cf = counterfactual(net, some[:3], columns=1, integer=[0])
        assert not cf.exact
        assert cf.found.any()
        assert (cf.points[cf.found, 0] == cf.points[cf.found, 0].round()).all()
        assert ((cf.changes != 0).sum(1) <= 1).all()


@pytest.mark.parametrize(
    ("limits", "name"),
    [
        # by default, those of half-spaces of each kind: at centers, and at thresholds
        pytest.param(limits, name, id=f"{of}-{name}", marks=[pytest.mark.slow] * (name in ("birch", "bisecting")))
        for of, limits in {"fixed": {"fixed": [2]}, "few": {"columns": 2}}.items()
        for name in ("kmeans", "birch", "tree", "bisecting")
    ],
)
def test_few_columns_and_whole_numbers(name, limits):
    """All points whose first two columns are whole numbers, against those that the limits allow."""
    g = default_rng(0)
    X = np.column_stack([g.integers(0, 9, (200, 2)), g.normal(size=200) * 3]).astype(float)
    net = neuralize(MODELS[name](X), X)
    some = X[:4]
    axis = np.arange(-40, 50.0)
    cf = counterfactual(net, some, integer=[0, 1], **limits)
    assert cf.exact
    assert (cf.points[:, :2] == cf.points[:, :2].round()).all()
    for x, label, distance in zip(some, cf.target, cf.distance, strict=True):
        values = np.append(np.arange(-12, 12, 0.2), x[2]) if "columns" in limits else x[2:]
        points = np.stack(np.meshgrid(axis, axis, values), -1).reshape(-1, 3)
        few = points[(points != x).sum(1) <= 2]
        (best,) = nearest_on_grid(net, [x], few, [label], X.std(0))
        assert best - (0.1 if "columns" in limits else 1e-9) <= distance <= best + 1e-6


def test_few_of_many_columns():
    """The nearest point beyond one half-space changes the columns of the greatest differences."""
    X = np.round(blobs(d=100, n=60, centers=5))
    model = kmeans(X, 5)
    some = X[:10]
    net = neuralize(model, X)
    cf = counterfactual(net, some, columns=3)
    a = model.cluster_centers_[model.labels_[:10]]
    b = model.cluster_centers_[cf.target]
    beyond = ((some - b) ** 2 - (some - a) ** 2).sum(1) / 2
    greatest = np.sort(np.abs(b - a) * X.std(0), axis=1)[:, -3:]
    assert_allclose(cf.distance, beyond / np.linalg.norm(greatest, axis=1), rtol=1e-6)
    none = counterfactual(net, some, columns=3, bounds="data")
    assert cf.exact == none.exact is True
    assert not none.found.any()
    assert counterfactual(net, some[:3], integer=range(100), bounds="data").found.all()


def test_targets_are_labels():
    X = pd.DataFrame(blobs(3, n=45), np.arange(45) + 7, [*"uvw"])
    names = np.array(["a", "b", "c"])
    net = neuralize(CART(3).fit(X, labels=names[kmeans(X, 3).labels_]), X)
    cf = counterfactual(net, X, target="b")
    assert (cf.labels == "b").all()
    assert (cf.distance[net.predict(X) == "b"] == 0).all()
    assert "already in this cluster" in str(cf)
    each = names[np.arange(45) % 3]
    cf = counterfactual(net, X, target=each)
    assert (cf.labels == each).all()
    assert cf.points.columns.equals(X.columns)
    assert cf.points.index.equals(X.index)


def test_lines_of_text():
    X = pd.DataFrame(blobs(), columns=["u", "v"]) * 1000
    lines = str(counterfactual(neuralize(kmeans(X, 3), X), X[:30], columns=1)).split("\n")
    assert len(lines) == 21
    assert lines[-1] == "... and 10 more rows"
    assert re.fullmatch(r"row 0: cluster \d -> \d \([\d.]+ standard deviations\): [uv] [^e]+", lines[0])


def test_what_can_not_be_found():
    X = np.column_stack([blobs(), np.zeros(200)])
    net = neuralize(kmeans(X), X)
    for fixed in ([0, 1, 2], [0, 1]):  # what is left does not tell clusters apart
        cf = counterfactual(net, X[:5], fixed=fixed)
        assert not cf.found.any()
        assert np.isinf(cf.distance).all()
        assert (cf.points == X[:5]).all()
    assert "no point of this cluster was found within the limits" in str(cf)


def test_spread_is_what_distances_are_measured_in(tmp_path):
    X, net = fitted("kmeans")
    neonxc.save(net, tmp_path / "net")
    plain = kmeans(X)
    for some, wanted, spread in (
        (neonxc.load(tmp_path / "net"), None, X.std(0)),
        (net, pd.DataFrame(2 * X), 2 * X.std(0)),
        (net, [1, 1], 1),
        (neuralize(plain), None, plain.cluster_centers_.std(0)),
        (neuralize(ExShallow(4, random_state=0).fit(X)), None, X.std(0)),
    ):
        cf = counterfactual(some, X[:20], spread=wanted)
        assert_allclose(cf.distance, np.linalg.norm(cf.changes / spread, axis=1))


def test_whole_numbers_of_columns_that_a_leaf_does_not_test_stay_within_bounds():
    X = np.array([[0, 0.1], [1, 0.2], [4, 0.3], [5, 2.4]])
    net = neuralize(CART(2).fit(X, labels=[0, 0, 1, 1]), X)
    for high, wanted in ((0.45, 0.1), (2.45, 1)):  # not found, and found
        cf = counterfactual(net, X[:1], target=1, bounds={1: (0.05, high)}, integer=[1])
        assert (cf.found.all(), cf.points[0, 1]) == (wanted == 1, wanted)


@pytest.mark.parametrize("name", ["tree", "bisecting"])
def test_trees_without_a_target_change_to_the_nearest_of_all_other_clusters(name):
    X = blobs(n=80, centers=6)
    net = neuralize(MODELS[name](X), X)
    limits = {"bounds": {0: (X[:, 0].min(), X[:, 0].max())}, "columns": 1}
    for options in ({}, limits):
        cf = counterfactual(net, X, **options)
        each = np.array([counterfactual(net, X, label, **options).distance for label in net.classes_])
        each[net.predict(X), np.arange(len(X))] = np.inf
        assert_allclose(cf.distance, each.min(axis=0), rtol=1e-6)
        assert (cf.target == net.predict(cf.points))[cf.found].all()
    runner_up = net(torch.as_tensor(X)).topk(2, dim=1).indices[:, 1].numpy()
    assert (each[runner_up, np.arange(len(X))] > cf.distance * 1.01).any()  # its logit ties with the others


@pytest.mark.parametrize(
    ("function", "make"),
    [(np.log1p, np.float32), (np.sqrt, np.int64), (np.arcsinh, partial(pd.DataFrame, dtype="float32"))],
)
def test_functions_of_columns_in_other_dtypes(function, make):
    g = default_rng(0)
    X = make(g.exponential(1000, (100, 3)) * g.choice([1, 8], (100, 1)))
    model = make_pipeline(FunctionTransformer(function), StandardScaler(), KMeans(3, n_init=1, random_state=0))
    net = neuralize(model.fit(X), X)
    exact = np.asarray(X, dtype=float)
    bounds = {column: (low, None) for column, low in enumerate(exact.min(axis=0))}
    cf, wide = (counterfactual(net, data, bounds=bounds) for data in (X, exact))
    assert cf.found.all()
    assert (net.predict(cf.points) == cf.target).all()
    assert (np.asarray(cf.points) >= exact.min(axis=0)).all()
    assert make is np.int64 or np.asarray(cf.points).dtype == np.float32
    assert_allclose(cf.distance, wide.distance, rtol=1e-3, atol=1e-4)


@functools.cache
def people(n=200):
    """A table of numbers and categories, a pipeline that takes logarithms and roots of some, and its network."""
    g = default_rng(0)
    work = g.choice(["State", "Private", "Self"], n)
    columns = {
        "age": g.integers(18, 80, n),
        "work": work,
        "gain": g.exponential(1000, n) * (1 + 5 * (work == "Self")),
        "hours": np.where(g.random(n) < 0.1, np.nan, g.normal(40, 10, n)),
        "root": g.exponential(1, n),
    }
    X = pd.DataFrame(columns, index=np.arange(n) + 7)
    encoded = [
        ("l", make_pipeline(FunctionTransformer(np.log1p), StandardScaler()), ["gain"]),
        ("r", make_pipeline(FunctionTransformer(np.sqrt), StandardScaler()), ["root"]),
        ("n", make_pipeline(SimpleImputer(), StandardScaler()), ["age", "hours"]),
        ("w", OneHotEncoder(), ["work"]),
    ]
    model = make_pipeline(ColumnTransformer(encoded), KMeans(4, n_init=2, random_state=0)).fit(X)
    return X, model, neuralize(model, X)


@pytest.mark.parametrize("make", [pd.DataFrame, partial(pd.DataFrame.to_numpy, dtype=object)])
def test_tables_of_numbers_and_categories(make):
    X, model, net = people()
    x = make(X)
    cf = counterfactual(net, x, fixed=["work", "age"], bounds={"gain": (0, None)})
    assert cf.found.mean() > 0.9
    assert cf.exact
    assert type(cf.points) is type(cf.changes) is type(x)
    after, changes = (pd.DataFrame(some, X.index, X.columns).infer_objects() for some in (cf.points, cf.changes))
    assert (model.predict(after)[cf.found] == cf.target[cf.found]).all()
    assert (after[["work", "age"]] == X[["work", "age"]]).all(axis=None)
    assert (after[["gain", "root"]] >= 0).all(axis=None)
    assert_allclose(changes["gain"], after["gain"] - X["gain"], atol=1e-9)
    assert (changes["work"] == 0).all()
    # the same half-spaces, from the columns behind the transformers
    Z = model[:-1].transform(X)
    twin = neuralize(model[-1].cluster_centers_ * 1.0)
    other = counterfactual(twin, Z, cf.target, fixed=[2, 4, 5, 6], spread=Z.std(0))
    free = cf.found & (after["root"] > 1e-6)
    assert_allclose(cf.distance[free], other.distance[free], rtol=1e-5)


def test_tables_tell_which_columns_can_not_change():
    X, _, net = people()
    refused("numeric columns, column 'work' is encoded", counterfactual, net, X, bounds={"work": (0, 1)})
    refused("column 'gain': the pipeline takes its log", counterfactual, net, X, integer="gain")
    cf = counterfactual(net, X, integer="age", bounds={"age": (0, 50)})
    assert not cf.found[X["age"] > 50].any()
    assert cf.found[X["age"] <= 50].mean() > 0.9
    assert (cf.points["age"] == cf.points["age"].round()).all()
    encoded = net.batch(X).tensor
    cf = counterfactual(net, encoded)
    assert isinstance(cf.labels, torch.Tensor)
    assert cf.changes.dtype == encoded.dtype
    assert (cf.points[:, 4:] == encoded[:, 4:]).all()  # those of categories
    assert cf.found.any()


@pytest.mark.parametrize(
    ("kind", "cast"),
    [("logarithms", np.float32), ("tree", np.float32), ("people", np.float32), ("scaled", np.float64)],
)
def test_bounds_of_the_data(kind, cast, tmp_path):
    X, model, _ = people() if kind == "people" else (load_wine(as_frame=True).data, None, None)
    if kind != "people":
        steps = [FunctionTransformer(np.log1p)] * (kind == "logarithms") + [StandardScaler()]
        pipeline = make_pipeline(*steps, KMeans(3, n_init=2, random_state=0))
        model = (ExShallow(3, random_state=0) if kind == "tree" else pipeline).fit(X)
    neonxc.save(neuralize(model, X), tmp_path / "net")
    net = neonxc.load(tmp_path / "net")
    x = X.astype({c: cast for c in X if X[c].dtype.kind == "f"})
    numbers = X.select_dtypes("number")
    slack = 1e-6 * numbers.abs().max() * (cast is np.float32)

    def leaves(cf):
        after = cf.points[numbers.columns]
        beyond = (after < numbers.min() - slack) | (after > numbers.max() + slack)
        return [sorted(numbers.columns[row]) for row in beyond.to_numpy()]

    free, inside = (counterfactual(net, x, columns=2, bounds=bounds) for bounds in (None, "data"))
    assert [sorted(names) for names in free.outside] == leaves(free)
    assert inside.found.mean() > 0.9
    assert not any(inside.outside + leaves(inside))
    assert (inside.distance[inside.found] >= free.distance[inside.found] * (1 - 1e-6)).all()
    if kind == "scaled":
        assert str(free).splitlines()[0].endswith("; outside the data: proline")
        refused('bounds="data" needs the ranges', counterfactual, neuralize(model), x, bounds="data")


# --- how deep inside answers are ----------------------------------------------------------------------------


@pytest.mark.parametrize("margin", [0.25, 1.0])
def test_margins_are_distances_from_the_half_spaces(margin):
    X, net = fitted("kmeans")
    model = kmeans(X)
    spread = X.std(0)
    cf = counterfactual(net, X[:20], margin=margin, bounds={0: (-20, 20)})
    assert cf.exact
    for x, y, target, distance in zip(X, cf.points, cf.target, cf.distance, strict=False):
        c = model.cluster_centers_[target]
        others = np.delete(model.cluster_centers_, target, axis=0)
        normal = 2 * (others - c) * spread
        length = np.linalg.norm(normal, axis=1)
        limit = (others**2).sum(1) - (c**2).sum() - 2 * (others - c) @ x
        depth = (limit - normal @ ((y - x) / spread)) / length
        assert margin <= depth.min() <= margin + 1e-6
        box = ((np.array([[-20, -np.inf], [20, np.inf]]) - x) / spread).T
        start = linprog(np.zeros(2), normal, limit - margin * length, bounds=box).x
        assert distance == pytest.approx(least(normal, limit - margin * length, start, box), abs=1e-4)


@pytest.mark.parametrize("name", ["birch", "tree", "turned tree", "intervals", "turned intervals", "bisecting"])
def test_points_inside_by_a_margin_stay_if_they_move_by_less(name):
    X, net = fitted(name)
    cf = counterfactual(net, X[:20], margin=0.2)
    assert cf.exact
    assert cf.found.mean() > 0.7
    angles = np.linspace(0, 2 * np.pi, 32)
    around = 0.199 * X.std(0) * np.column_stack([np.cos(angles), np.sin(angles)])
    for y, target in zip(cf.points[cf.found], cf.target[cf.found], strict=True):
        assert (net.predict(y + around) == target).all()
    assert str(cf).endswith("a changed row stays in its cluster if the border moves by 0.2 standard deviations")


@pytest.mark.parametrize("name", ["kernel", "mixture", "normalized", NOISE])
def test_margins_of_curved_clusters_are_shares_of_the_median_logit(name):
    X, net = fitted(name)
    logits = net(torch.as_tensor(X)).numpy()
    own = net.predict(X)
    median = {k: np.median(logits[own == k, net.positions(k)]) for k in net.classes_}
    distances = []
    for margin in (None, 0.5):
        cf = counterfactual(net, X[:20], margin=margin)
        share = margin or 0.1
        reached = net(torch.as_tensor(cf.points)).numpy()[range(20), net.positions(cf.target)]
        needed = np.array([0 if k == -1 else share * median[k] for k in cf.target])
        changed = cf.distance > 0
        assert (reached >= needed * 0.99)[changed & cf.found].all()
        assert f"logits are at least {share:.0%} of the median" in str(cf)
        distances.append(cf.distance)
    assert (distances[1] >= distances[0] * 0.99).all()


def test_answers_with_a_margin_hold_if_the_row_is_added():
    """HDBSCAN is fitted again, with the changed row among the others."""
    X = blobs(d=4, centers=3)
    model = HDBSCAN(min_cluster_size=8, min_samples=4, copy=True)
    net = neuralize(model.fit(X), X)
    own = net.predict(X)
    some = X[own == -1][:12]
    kept = []
    for margin in (0, 0.5):
        cf = counterfactual(net, some, target=0, margin=margin)
        again = [HDBSCAN(min_cluster_size=8, min_samples=4, copy=True).fit(np.vstack([X, y])) for y in cf.points]
        kept.append(
            np.mean([one.labels_[-1] == np.bincount(one.labels_[:-1][own == 0] + 1).argmax() - 1 for one in again])
        )
    assert kept[1] >= max(kept[0], 0.9)


@pytest.mark.parametrize(
    "covariance_type", ["full", *(pytest.param(name, marks=pytest.mark.slow) for name in ("diag", "spherical"))]
)
def test_the_border_of_two_gaussians_is_reached_nearly_where_it_is_nearest(covariance_type):
    """The border is a quadric: SciPy finds its nearest point, from the answer and from many others."""
    X = make_blobs([120, 80], 5, cluster_std=[1.0, 2.5], random_state=3)[0]
    model = GaussianMixture(2, covariance_type=covariance_type, random_state=0).fit(X)
    net = neuralize(model, X)
    spread = X.std(0)
    cf = counterfactual(net, X[:8], margin=0)
    assert cf.found.all()

    def depth(u, x, target):
        joint = model._estimate_log_prob((x + u * spread)[None]) + np.log(model.weights_)
        return (joint[0, target] - joint[0, 1 - target]).item()

    nearest = []
    for x, y, target in zip(X, cf.points, cf.target, strict=False):
        rows = X[model.predict(X) == target][:10]
        inside = {"type": "ineq", "fun": depth, "args": (x, int(target))}
        starts = (np.vstack([y, rows]) - x) / spread
        found = [minimize(lambda u: u @ u, u, method="SLSQP", constraints=[inside]) for u in starts]
        nearest.append(min(np.sqrt(one.fun) for one in found if depth(one.x, x, int(target)) > -1e-4))
    assert (cf.distance >= np.array(nearest) * 0.999 - 1e-3).all()
    assert cf.distance.mean() <= 1.03 * np.mean(nearest)


@pytest.mark.parametrize("name", ["mixture", "kernel", "normalized"])
def test_answers_with_a_large_margin_are_on_segments_to_rows(name):
    X, net = fitted(name)
    own = net.predict(X)
    cf = counterfactual(net, X[:20], margin=0.5)
    assert cf.found.all()
    for x, y, target in zip(X, cf.points, cf.target, strict=False):
        path = (y - x) / X.std(0)
        paths = (X[own == target] - x) / X.std(0)
        cosines = paths @ path / np.linalg.norm(paths, axis=1) / np.linalg.norm(path)
        assert cosines.max() == pytest.approx(1, abs=1e-9)


def test_noise_is_reached_without_a_margin():
    X = blobs()
    net = neuralize(HDBSCAN(min_cluster_size=8, copy=True).fit(X), X)
    cf = counterfactual(net, X[net.predict(X) == 0][:6], target=-1, margin=0.5)
    assert cf.found.all()
    assert (net.predict(cf.points) == -1).all()
    assert cf.margin == 0
    nearest = np.linalg.norm((X[net.predict(X) == -1] - X[net.predict(X) == 0][:6, None]) / X.std(0), axis=2).min(
        1
    )
    assert (cf.distance <= nearest * (1 + 1e-9)).all()


# --- several answers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "apart"),
    [
        pytest.param(name, apart, marks=[pytest.mark.slow] * (apart != 0.5 and name != "kmeans"))
        for name in ("kmeans", "tree", "bisecting", "mixture", "kernel", "normalized")
        for apart in (0.25, 0.5, 1.0)
    ],
)
def test_several_answers_differ_as_promised(name, apart):
    X, net = fitted(name)
    spread = X.std(0)
    first = counterfactual(net, X[:15])
    cf = counterfactual(net, X[:15], k=3, apart=apart)
    assert cf.rows.tolist() == np.repeat(range(15), 3).tolist()
    assert len(cf.points) == len(cf.changes) == len(cf.plausibility) == len(cf.reasons) == len(cf.outside) == 45
    if name in MODELS:  # more segments are followed for several answers
        assert_allclose(cf.distance[::3], first.distance)
    assert (cf.distance[::3] <= first.distance * (1 + 1e-9)).all()
    assert (net.predict(cf.points)[cf.found] == cf.target[cf.found]).all()
    assert_allclose(cf.changes, cf.points - X[cf.rows])
    for row in range(15):
        found = np.flatnonzero(cf.found & (cf.rows == row))
        assert found.tolist() == list(range(3 * row, 3 * row + len(found)))
        for i, j in zip(*np.triu_indices(len(found), 1), strict=True):
            a = found[i]
            b = found[j]
            gap = np.linalg.norm((cf.points[a] - cf.points[b]) / spread)
            changed = np.abs(cf.changes[[a, b]]) > 1e-9 * spread
            others = (changed[0] & ~changed[1]).any() and (changed[1] & ~changed[0]).any()
            assert others or gap >= apart * cf.distance[3 * row] * (1 - 1e-9)
            assert cf.distance[a] <= cf.distance[b]
        missing = ~cf.found & (cf.rows == row)
        assert all("no other answer that differs enough" in cf.reasons[i] for i in np.flatnonzero(missing))
    if apart <= 0.5:
        assert cf.found.reshape(15, 3)[:, 1].mean() > 0.7


@pytest.mark.parametrize("make", [np.asarray, torch.as_tensor, pd.DataFrame])
def test_several_answers_have_the_type_of_the_rows(make):
    X, net = fitted("mixture")
    x = make(X[:4])
    cf = counterfactual(net, x, k=2)
    assert type(cf.points) is type(cf.changes) is type(x)
    assert cf.points.shape == (8, 2)
    assert cf.to_frame().index.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert str(cf).splitlines()[1].startswith("row 0: ")
    if isinstance(x, pd.DataFrame):
        assert cf.points.index.tolist() == cf.to_frame().index.tolist()


def test_plausibility_is_the_local_outlier_factor_among_the_rows_of_the_cluster():
    X, net = fitted("mixture")
    own = net.predict(X)
    cf = counterfactual(net, X[:10], margin=0)
    for y, target, factor in zip(cf.points, cf.target, cf.plausibility, strict=True):
        rows = X[own == target] / X.std(0)
        model = LocalOutlierFactor(min(20, len(rows) // 2), novelty=True).fit(rows)
        assert factor == pytest.approx(-model.score_samples([y / X.std(0)])[0])
    far = counterfactual(net, X[:10] + np.array([500, 0]), target=int(own[0]), bounds={1: (X.min(), X.max())})
    assert np.isfinite(far.plausibility[far.found]).all()


# --- limits of segments -------------------------------------------------------------------------------------


@functools.cache
def wine(name):
    """Curved clusters of wine with a column of whole numbers."""
    X = load_wine(as_frame=True).data.iloc[:, :6].round({"magnesium": 0})
    scaled = lambda model: make_pipeline(StandardScaler(), model).fit(X)  # noqa: E731
    models = {
        "mixture": lambda: scaled(GaussianMixture(3, reg_covar=1e-2, random_state=0)),
        "kernel": lambda: scaled(KernelKMeans(3, random_state=0)),
        "HDBSCAN": lambda: scaled(HDBSCAN(min_cluster_size=8, min_samples=2, copy=True)),
        "DBSCAN": lambda: scaled(DBSCAN(0.9)),
    }
    return X, neuralize(models[name](), X)


LIMITS = {
    "integer": {"integer": ["magnesium"]},
    "data": {"integer": ["magnesium", "ash"], "bounds": "data"},
    "fixed": {"fixed": ["alcohol", "ash"]},
    "columns": {"columns": 2},
    "few": {"columns": 2, "integer": ["ash"], "bounds": {"alcohol": (11, 15)}},
    "all": {"fixed": "alcohol", "columns": 3, "bounds": "data", "integer": "magnesium", "k": 2},
}


BY_SEGMENTS = "mixture", "kernel", "HDBSCAN", "DBSCAN"


@pytest.mark.parametrize(
    ("name", "limits", "dtype"),
    [
        # by default, both types have all limits at once, and one network each single limit
        pytest.param(name, LIMITS[of], dtype, id=f"{of}-{dtype}-{name}", marks=[pytest.mark.slow] * is_slow)
        for i, of in enumerate(LIMITS)
        for j, name in enumerate(BY_SEGMENTS)
        for dtype, is_slow in (("float64", of != "all" and i % 4 != j), ("float32", of != "all" or j % 2 > 0))
    ],
)
def test_limits_hold_on_segments(name, limits, dtype):
    X, net = wine(name)
    x = X[:8].astype(dtype)
    cf = counterfactual(net, x, target=int(net.predict(X)[-1] if net.predict(X)[-1] >= 0 else 0), **limits)
    assert cf.found.any()
    assert not cf.exact
    after = cf.points[cf.found]
    before = x.iloc[cf.rows].reset_index(drop=True)[cf.found]
    integer, fixed = (np.atleast_1d(limits.get(key, [])).tolist() for key in ("integer", "fixed"))
    assert (net.predict(after) == cf.target[cf.found]).all()
    assert (after[integer] == after[integer].round()).all(axis=None)
    assert (after[fixed].to_numpy() == before[fixed].to_numpy()).all()
    changed = (after.to_numpy() != before.to_numpy()).sum(1)
    assert changed.max() <= limits.get("columns", 6)
    if "bounds" in limits:
        low, high = (X.min(), X.max()) if limits["bounds"] == "data" else (11, 15)
        column = X.columns if limits["bounds"] == "data" else ["alcohol"]
        slack = 1e-5 * X[column].abs().max()
        inside = (after[column] >= low - slack) & (after[column] <= high + slack)
        assert inside[column].all(axis=None)


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("kmeans", {"fixed": [0, 1]}, "it needs a change of the fixed columns x0 and x1"),
        ("mixture", {"fixed": [0, 1]}, "it needs a change of the fixed columns x0 and x1"),
        ("kmeans", {"bounds": {0: (100, None)}}, "the row is outside the bounds of x0"),
        ("mixture", {"bounds": {1: (None, -100)}}, "the row is outside the bounds of x1"),
        ("kmeans", {"integer": [1], "bounds": {1: (0.2, 0.8)}}, "no whole number is within the bounds of x1"),
        ("kernel", {"margin": 50}, "it needs a smaller margin"),
    ],
)
def test_reasons(name, options, reason):
    X, net = fitted(name)
    x = np.array([[2.65, 0.5]]) if "integer" in options else X[:1]
    cf = counterfactual(net, x, **options)
    assert not cf.found.any()
    assert cf.reasons == [reason]
    assert str(cf).splitlines()[0].endswith(f"no point of this cluster was found within the limits: {reason}")
    assert cf.to_frame()["reason"].tolist() == [reason]
    assert pickle.loads(pickle.dumps(cf)).reasons == [reason]


def test_reasons_name_the_bound():
    """One cluster is at 0, the other one at 10: the border is at 5."""
    X = pd.DataFrame({"u": np.r_[np.zeros(20), np.full(20, 10.0)], "v": np.tile([0.0, 1.0], 20)})
    net = neuralize(kmeans(X, 2), X)
    cf = counterfactual(net, X[:2], bounds={"u": (-1, 4), "v": (-5, 5)})
    assert cf.reasons == ["it needs u > 4"] * 2
    cf = counterfactual(net, X[-2:], bounds={"u": (6, None)})
    assert cf.reasons == ["it needs u < 6"] * 2


def test_reasons_name_the_margin():
    """The middle cluster is from 5 to 15, the others at 0 and 20, with a standard deviation of 8.2."""
    X = np.repeat([0.0, 10.0, 20.0], 10)[:, None] + np.tile([-0.1, 0.1], 15)[:, None]
    net = neuralize(kmeans(X, 3), X)
    target = int(net.predict([[10.0]])[0])
    for margin, reasons in ((0.5, [""]), (0.7, ["it needs a smaller margin"])):
        cf = counterfactual(net, X[:1], target=target, margin=margin)
        assert cf.reasons == reasons
        assert cf.found.all() == (margin == 0.5)


# --- rows and categories ------------------------------------------------------------------------------------


def test_networks_without_rows_say_so_and_can_be_given_some(tmp_path):
    for name in ("mixture", "normalized", "kernel"):
        X, net = fitted(name)
        neonxc.save(net, tmp_path / "net")
        loaded = neonxc.load(tmp_path / "net")
        assert loaded.rows_ is None
        if name == "kernel":  # whose supports are rows
            assert counterfactual(loaded, X[:5]).found.all()
        else:
            refused(r"needs rows .*net\.keep_rows\(X\)", counterfactual, loaded, X[:5])
        again = counterfactual(loaded.keep_rows(X), X[:5])
        wanted = counterfactual(net, X[:5])
        assert_allclose(again.points, wanted.points)
    plain = neuralize(kmeans(X))
    assert counterfactual(plain, X[:5]).found.all()
    assert np.isnan(counterfactual(plain, X[:5]).plausibility).all()
    refused("needs rows", counterfactual, plain, X[:5], k=2)


def test_rows_that_are_kept(monkeypatch):
    X, net = fitted("kmeans")
    own = net.predict(X)
    assert np.array_equal(np.sort(net.rows_.numpy(), axis=0), np.sort(X, axis=0))
    monkeypatch.setattr("neonxc.network.KEPT_ROWS", 5)
    net = neuralize(kmeans(X), X)
    for k in range(4):
        rows = X[own == k]
        even = rows[np.linspace(0, len(rows) - 1, 5).round().astype(int)]
        assert_allclose(net.rows_[5 * k : 5 * k + 5], even)
    weight = (np.arange(len(X)) % 2).astype(float)
    net = neuralize(kmeans(X), X, sample_weight=weight)
    kept = {tuple(row) for row in net.rows_.tolist()}
    assert not kept & {tuple(row) for row in X[weight == 0].tolist()}


@functools.cache
def coloured(kind):
    """A table whose clusters depend on categories of several types."""
    X, _, _ = people()
    X = X.assign(colour=pd.Categorical(np.where(np.arange(len(X)) % 2, "red", "blue")), code=np.arange(len(X)) % 3)
    encoded = [
        ("n", StandardScaler(), ["age", "gain"]),
        ("c", OneHotEncoder(drop="first"), ["colour", "code", "work"]),
    ]
    model = {
        "kmeans": KMeans(4, n_init=3, random_state=0),
        "mixture": GaussianMixture(4, reg_covar=0.05, random_state=0),
    }[kind]
    pipeline = make_pipeline(ColumnTransformer(encoded), model).fit(X)
    return X, pipeline, neuralize(pipeline, X)


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        ("kmeans", pd.DataFrame),
        ("mixture", partial(pd.DataFrame.to_numpy, dtype=object)),
        pytest.param("kmeans", partial(pd.DataFrame.to_numpy, dtype=object), marks=pytest.mark.slow),
        pytest.param("mixture", pd.DataFrame, marks=pytest.mark.slow),
    ],
)
def test_categories_may_change(kind, make):
    X, pipeline, net = coloured(kind)
    categories = ["colour", "code", "work"]
    x = make(X[:20])
    options = {"fixed": ["age", "gain"], "columns": 1}
    assert not counterfactual(net, x, **options).found.any()
    cf = counterfactual(net, x, **options, categories="change")
    assert cf.found.mean() > 0.3
    assert not cf.exact
    after = pd.DataFrame(cf.points, columns=X.columns, index=X.index[:20]).infer_objects()
    assert (pipeline.predict(after)[cf.found] == cf.target[cf.found]).all()
    changed = after[categories].astype(object).to_numpy() != X[categories][:20].astype(object).to_numpy()
    assert (changed.sum(1) == cf.found).all()
    assert all(set(after[name]) <= set(X[name]) for name in categories)
    row = int(np.flatnonzero(cf.found)[0])
    (name,) = [name for name, is_changed in zip(categories, changed[row], strict=True) if is_changed]
    assert f"{name} {X[name].iloc[row]} -> {after[name].iloc[row]}" in str(cf).splitlines()[row]
    if make is pd.DataFrame:
        assert cf.points.dtypes.tolist() == X.dtypes.tolist()
        assert (cf.changes[["code"]] == 0).all(axis=None)


def test_categories_do_not_make_changes_larger():
    X, _, net = coloured("kmeans")
    keep, change = (counterfactual(net, X[:30], categories=kind).distance for kind in ("keep", "change"))
    assert (change <= keep).all()


def test_no_weak_references_are_left_behind():
    X, net = fitted("kernel")

    def references():
        gc.collect()
        return sum(isinstance(one, weakref.ReferenceType) for one in gc.get_objects())

    counterfactual(net, X[:5])
    before = references()
    for _ in range(5):
        counterfactual(net, X[:5])
    assert references() <= before  # those of earlier tests may go
