"""Counterfactuals against fine grids and a solver of quadratic programs."""

import functools
import re
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
from sklearn.cluster import DBSCAN, Birch, BisectingKMeans, KMeans
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_wine, make_blobs
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.mixture import GaussianMixture
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
    low, high = X.min(0), X.max(0)
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
    some, (points, cell) = X[:20], grid(X)
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
    d, k = int(g.integers(2, 7)), int(g.integers(2, 8))
    X = g.normal(size=(80, d)) * g.uniform(0.1, 100, d) + g.normal(size=d) * 100
    steps = StandardScaler(), PCA(int(g.integers(1, d + 1)))
    model = make_pipeline(*steps, KMeans(k, n_init=1, random_state=0)).fit(X)
    some, spread, fixed = X[:6], X.std(0), np.flatnonzero(g.random(d) < 0.1)
    ends = np.stack([some.min(0) - spread * g.random(d), some.max(0) + spread * g.random(d)])
    ends = np.where(g.random((2, d)) < 0.4, [[-np.inf], [np.inf]], ends)
    cf = counterfactual(neuralize(model, X), some, bounds=dict(enumerate(ends.T)), fixed=fixed)
    centers, weight = model[-1].cluster_centers_, model[1].components_ / model[0].scale_ * spread
    for x, target, found, distance in zip(some, cf.target, cf.found, cf.distance, strict=True):
        c, others, z = centers[target], np.delete(centers, target, axis=0), model[:-1].transform([x])[0]
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
    some, spread, points = X[:10], X.std(0), grid(X)[0]
    cf = counterfactual(net, some, target=1, fixed=[1], margin=0)
    assert (cf.changes[:, 1] == 0).all()
    assert (net.predict(cf.points)[cf.found] == 1).all()
    for x, distance in zip(some, cf.distance, strict=True):
        on_line = np.where([True, False], points[:150], x)
        if name == "kernel":  # what is far beyond the rows is not searched
            on_line = on_line[(on_line[:, 0] >= X[:, 0].min()) & (on_line[:, 0] <= X[:, 0].max())]
        assert distance <= nearest_on_grid(net, [x], on_line, [1], spread) * 1.001 + 1e-6
    low, high = X[:, 0].min(), np.median(X[:, 0])
    cf, inside = counterfactual(net, some, bounds={0: (low, high)}, margin=0), some[:, 0] <= high
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


@pytest.mark.parametrize("name", ["kmeans", "birch", "tree", "bisecting"])
@pytest.mark.parametrize("limits", [{"fixed": [2]}, {"columns": 2}], ids=["fixed", "few"])
def test_few_columns_and_whole_numbers(name, limits):
    """All points whose first two columns are whole numbers, against those that the limits allow."""
    g = default_rng(0)
    X = np.column_stack([g.integers(0, 9, (200, 2)), g.normal(size=200) * 3]).astype(float)
    net, some, axis = neuralize(MODELS[name](X), X), X[:4], np.arange(-40, 50.0)
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
    model, some = kmeans(X, 5), X[:10]
    net = neuralize(model, X)
    cf = counterfactual(net, some, columns=3)
    a, b = model.cluster_centers_[model.labels_[:10]], model.cluster_centers_[cf.target]
    beyond = ((some - b) ** 2 - (some - a) ** 2).sum(1) / 2
    greatest = np.sort(np.abs(b - a) * X.std(0), axis=1)[:, -3:]
    assert_allclose(cf.distance, beyond / np.linalg.norm(greatest, axis=1), rtol=1e-6)
    none = counterfactual(net, some, columns=3, bounds="data")
    assert cf.exact == none.exact is True
    assert not none.found.any()
    assert counterfactual(net, some[:3], integer=range(100), bounds="data").found.all()


def test_targets_are_labels():
    X, names = pd.DataFrame(blobs(3, n=45), np.arange(45) + 7, [*"uvw"]), np.array(["a", "b", "c"])
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
    net, exact = neuralize(model.fit(X), X), np.asarray(X, dtype=float)
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
    net, x = neonxc.load(tmp_path / "net"), X.astype({c: cast for c in X if X[c].dtype.kind == "f"})
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
