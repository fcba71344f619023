"""Counterfactuals against fine grids and a solver of quadratic programs."""

import functools
import warnings
from functools import partial
from itertools import combinations

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from numpy.testing import assert_allclose
from refusals import refused
from scipy.optimize import LinearConstraint, linprog, minimize
from sklearn.cluster import Birch, BisectingKMeans, KMeans
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_iris, load_wine, make_blobs, make_moons
from sklearn.decomposition import PCA
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, OneHotEncoder, StandardScaler

import neonxc
from neonxc import counterfactual, neuralize
from neonxc.counterfactuals.projection import shortest
from neonxc.models import KernelKMeans
from neonxc.trees import CART, IMM, ExShallow, KernelIMM


def blobs(d=2, centers=4, n=200, seed=0):
    return make_blobs(n, d, centers=centers, random_state=seed, cluster_std=2.0)[0]


def kmeans(X, k=4):
    return KMeans(k, n_init=2, random_state=0).fit(X)


@functools.cache
def fitted(name, d=2):
    """Points, their network, and a fine grid with the width of its cells, far beyond the points."""
    X = blobs(d) + 4 * (name in CURVED)
    net = neuralize((MODELS | CURVED)[name](X), X)
    return X, net, *(grid(X) if d == 2 else ())


def grid(X, cells=150):
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


MODELS = {
    "kmeans": lambda X: kmeans(X),
    "scaled": lambda X: make_pipeline(StandardScaler(), KMeans(4, n_init=2, random_state=0)).fit(X),
    "birch": lambda X: Birch(n_clusters=3, threshold=1.5).fit(X),
    "bisecting": lambda X: BisectingKMeans(5, random_state=0).fit(X),
    "turned": lambda X: make_pipeline(PCA(2), IMM(4, random_state=0)).fit(X),
    "tree": lambda X: ExShallow(5, random_state=0).fit(X),
    "tied": lambda X: GaussianMixture(3, covariance_type="tied", random_state=0).fit(X),
}
CURVED = {
    "kernel": lambda X: KernelKMeans(4, random_state=0).fit(X),
    "mixture": lambda X: GaussianMixture(4, random_state=0).fit(X),
    "many": lambda X: GaussianMixture(20, covariance_type="spherical", random_state=0).fit(X),
    "normalized": lambda X: make_pipeline(Normalizer(), KMeans(3, n_init=2, random_state=0)).fit(X),
}


@pytest.mark.parametrize("name", [*MODELS, *CURVED])
def test_nearest_on_a_grid(name):
    """Nearly so where boundaries are curved."""
    X, net, points, cell = fitted(name)
    some = X[:20]
    cf = counterfactual(net, some)
    assert cf.found.all()
    assert cf.exact == (name in MODELS)
    assert cf.converged.mean() >= (1 if name in MODELS else 0.9)
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


def test_noise_is_no_target():
    X, y = make_moons(150, noise=0.05, random_state=0)
    far = np.random.default_rng(0).uniform([-3, -3], [4, 4], (40, 2))
    X, y = np.concatenate([X, far]), np.concatenate([y, np.full(40, -1)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net = neuralize(labels=y, X=X)
    noise = X[net.predict(X) == -1][:15]
    assert len(noise)
    cf = counterfactual(net, noise)
    assert cf.found.all()
    assert (net.predict(cf.points) == cf.target).all()
    assert "cluster -1 -> " in str(cf)
    points, _ = grid(X, 200)
    witness = nearest_on_grid(net, noise, points, cf.target, X.std(0))
    assert (cf.distance <= witness * 1.01 + 1e-6).mean() > 0.9


def test_trees_of_intervals():
    X, _ = make_moons(150, noise=0.05, random_state=0)
    points, _ = grid(X)
    alone = neuralize(KernelIMM(3, random_state=0).fit(X))
    # behind a map that mixes columns the same tests are half-spaces
    turned = neuralize(make_pipeline(PCA(2), KernelIMM(3, random_state=0)).fit(X), X)
    for net in (alone, turned):
        cf = counterfactual(net, X[:20], spread=X.std(0))
        assert cf.found.all()
        assert cf.exact
        assert (cf.distance <= nearest_on_grid(net, X[:20], points, cf.target, X.std(0)) + 1e-6).all()


def least(normals, limits, start, bounds=None):
    """The length of the shortest vector with ``normals u <= limits``, by SciPy."""
    limited = {"bounds": bounds, "constraints": [LinearConstraint(normals, ub=limits)]}
    options = {"ftol": 1e-14, "maxiter": 500}
    found = minimize(lambda u: u @ u / 2, start, jac=lambda u: u, method="SLSQP", options=options, **limited)
    return np.sqrt(2 * found.fun)


@given(st.integers(0, 10**6))
def test_quadratic_programs(seed):
    g = np.random.default_rng(seed)
    d, H, n = g.integers(1, 7), g.integers(1, 9), 3
    normals = g.normal(size=(n, H, d))
    normals /= np.linalg.norm(normals, axis=2, keepdims=True)
    limits = g.normal(size=(n, H))
    low = np.where(g.random((n, d)) < 0.4, -np.inf, 0.3 - 2 * g.random((n, d)))
    high = np.where(g.random((n, d)) < 0.4, np.inf, 2 * g.random((n, d)) - 0.1)
    fixed = g.random((n, d)) < 0.1
    low[fixed] = high[fixed] = 0
    u, found, _ = shortest(*map(torch.as_tensor, (normals, limits, low, high)))
    for i in range(n):
        bounds, z = np.column_stack([low[i], high[i]]), u[i].numpy()
        if (low[i] > high[i]).any():
            assert not found[i]
            continue
        feasible = linprog(np.zeros(d), normals[i], limits[i], bounds=bounds)
        assert bool(found[i]) == (feasible.status == 0)
        if found[i]:
            assert (normals[i] @ z <= limits[i] + 1e-9).all()
            assert ((low[i] - 1e-9 <= z) & (z <= high[i] + 1e-9)).all()
            assert np.linalg.norm(z) <= least(normals[i], limits[i], feasible.x, bounds) + 1e-6


@given(st.integers(0, 10**6))
def test_half_spaces_of_pipelines(seed):
    g = np.random.default_rng(seed)
    d, k = int(g.integers(2, 7)), int(g.integers(2, 6))
    X = g.normal(size=(80, d)) * g.uniform(0.1, 100, d) + g.normal(size=d) * 100
    steps = StandardScaler(), PCA(int(g.integers(1, d + 1)))
    model = make_pipeline(*steps, KMeans(k, n_init=1, random_state=0)).fit(X)
    cf = counterfactual(neuralize(model, X), X[:3])
    assert cf.found.all()
    centers, weight = model[-1].cluster_centers_, model[1].components_ / model[0].scale_ * X.std(0)
    for i, z in enumerate(model[:-1].transform(X[:3])):
        c, others = centers[cf.target[i]], np.delete(centers, cf.target[i], axis=0)
        normal = 2 * (others - c) @ weight
        limit = (others**2).sum(1) - (c**2).sum() - 2 * (others - c) @ z
        best = least(normal, limit, linprog(np.zeros(d), normal, limit, bounds=(None, None)).x)
        assert cf.distance[i] <= best * (1 + 1e-6) + 1e-6
        assert cf.distance[i] >= best * (1 - 1e-3) - 1e-6  # SLSQP ends a little outside


@pytest.mark.parametrize("name", ["kmeans", "birch", "tree", "kernel"])
def test_fixed_columns_and_bounds(name):
    X, net, points, _ = fitted(name)
    some, spread = X[:10], X.std(0)
    cf = counterfactual(net, some, target=1, fixed=[1])
    assert (np.asarray(cf.changes)[:, 1] == 0).all()
    assert (net.predict(cf.points)[cf.found] == 1).all()
    line = np.unique(points[:, 0])
    for i, x in enumerate(some):
        witness = nearest_on_grid(net, [x], np.column_stack([line, np.full(len(line), x[1])]), [1], spread)
        assert cf.distance[i] <= witness * 1.001 + 1e-6
        assert np.isfinite(witness) or name == "kernel" or cf.distance[i] > 1
    low, high = float(X[:, 0].min()), float(np.median(X[:, 0]))
    cf = counterfactual(net, some, bounds={0: (low, high)})
    outside = some[:, 0] > high
    assert 0 < outside.sum() < 10
    assert (cf.found == ~outside).all()
    assert (cf.points[outside] == some[outside]).all()
    after = np.asarray(cf.points)[~outside, 0]
    assert ((after >= low - 1e-12) & (after <= high + 1e-12)).all()
    within = points[(points[:, 0] >= low) & (points[:, 0] <= high)]
    near = (cf.distance <= nearest_on_grid(net, some, within, cf.target, spread) * 1.01 + 1e-6)[~outside]
    assert near.mean() >= (0.8 if name == "kernel" else 1)


@pytest.mark.parametrize("name", ["kmeans", "birch", "tree", "bisecting"])
def test_whole_numbers(name):
    X = np.round(blobs(d=2) * 1.5)
    net = neuralize(MODELS[name](X), X)
    axis = np.arange(-40, 41.0)
    points = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    cf = counterfactual(net, X[:20], integer=[0, 1])
    assert cf.exact
    assert cf.found.all()
    assert (cf.points == np.round(cf.points)).all()
    assert_allclose(cf.distance, nearest_on_grid(net, X[:20], points, cf.target, X.std(0)), atol=1e-9)


def test_columns_that_are_whole_numbers_by_enumeration():
    g = np.random.default_rng(0)
    X = np.column_stack([g.integers(0, 6, (200, 3)), g.normal(size=200)]).astype(float)
    net = neuralize(kmeans(X, 3), X)
    some = X[:4]
    cf = counterfactual(net, some, integer=[0, 1, 2], columns=2)
    assert cf.exact
    assert ((np.asarray(cf.changes) != 0).sum(1) <= 2).all()
    axis = np.arange(-3, 9.0)
    whole = np.stack(np.meshgrid(axis, axis, axis), -1).reshape(-1, 3)
    best = []
    for x, label in zip(some, cf.target, strict=True):
        least = np.inf
        for value in np.concatenate([[x[3]], np.linspace(-6, 6, 121)]):
            all_ = np.column_stack([whole, np.full(len(whole), value)])
            few = (all_ != x).sum(1) <= 2
            way = (((all_ - x) / X.std(0)) ** 2).sum(1)
            few &= way < least
            if few.any():
                there = net.predict(all_[few]) == label
                least = min(least, way[few][there].min(initial=np.inf))
        best.append(np.sqrt(least))
    assert (cf.distance <= np.array(best) + 1e-6).all()
    assert (cf.distance >= np.array(best) - 0.1).all()


@pytest.mark.parametrize("name", ["birch", "tree"])
def test_few_columns(name):
    X, net = fitted(name, 5)
    cf = counterfactual(net, X[:10], columns=2)
    assert cf.exact
    assert ((np.asarray(cf.changes) != 0).sum(1) <= 2).all()
    others = [sorted({0, 1, 2, 3, 4} - {*pair}) for pair in combinations(range(5), 2)]
    each = [counterfactual(net, X[:10], cf.target, fixed=some).distance for some in others]
    assert_allclose(cf.distance, np.min(each, axis=0), rtol=1e-6)


def test_few_of_many_columns():
    X = np.round(blobs(d=100, n=60, centers=5))
    model = kmeans(X, 5)
    net = neuralize(model, X)
    some, own = X[:10], model.labels_[:10]
    cf = counterfactual(net, some, columns=3)
    assert cf.exact
    # the nearest point beyond one half-space changes the columns of the greatest differences
    a, b = model.cluster_centers_[own], model.cluster_centers_[cf.target]
    normal = np.abs(b - a) * X.std(0)
    beyond = ((some - b) ** 2 - (some - a) ** 2).sum(1) / 2
    least = beyond / np.sqrt((np.sort(normal, axis=1)[:, -3:] ** 2).sum(1))
    assert_allclose(cf.distance, least, rtol=1e-6)
    bounds = {i: (X[:, i].min(), X[:, i].max()) for i in range(100)}
    none = counterfactual(net, some, columns=3, bounds=bounds)
    assert none.exact
    assert not none.found.any()
    cf = counterfactual(net, some[:3], integer=range(100), bounds=bounds)
    assert cf.found.all()
    assert (cf.points == cf.points.round()).all()


@pytest.mark.slow
def test_few_columns_of_curved_clusters_are_a_heuristic():
    X = blobs(d=4)
    net = neuralize(CURVED["mixture"](X), X)
    cf = counterfactual(net, X[:4], columns=2, integer=[0])
    assert not cf.exact
    points = np.asarray(cf.points)[cf.found]
    assert cf.found.any()
    assert (points[:, 0] == np.round(points[:, 0])).all()
    assert ((np.asarray(cf.changes) != 0).sum(1) <= 2).all()


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (np.asarray, "kernel"),
        (lambda X: torch.as_tensor(X).float(), "tree"),
        (np.float32, "kmeans"),
        (pd.DataFrame, "tree"),
    ],
)
def test_what_goes_in_comes_out(make, name):
    X, net = fitted(name, 3)
    x = make(X[:10])
    cf = counterfactual(net, x)
    for values in (cf.points, cf.changes):
        assert type(values) is type(x)
        assert values.shape == x.shape
        assert isinstance(x, pd.DataFrame) or values.dtype == x.dtype
    assert cf.found.all()
    assert (np.asarray(net.predict(cf.points)) == cf.target).all()
    assert isinstance(cf.labels, torch.Tensor if isinstance(x, torch.Tensor) else np.ndarray)


def test_targets_are_labels():
    X = load_iris(as_frame=True).data
    names = np.array(["a", "b", "c"])[KMeans(3, n_init=1, random_state=0).fit_predict(X)]
    net = neuralize(labels=names, X=X)
    cf = counterfactual(net, X[::10], target="b")
    assert cf.found.all()
    assert (cf.labels == "b").all()
    there = net.predict(X[::10]) == "b"
    assert (cf.distance[there] == 0).all()
    assert "already in this cluster" in str(cf)
    each = np.array(["a", "b", "c"] * 5)
    cf = counterfactual(net, X[::10], target=each)
    assert (cf.labels == each).all()
    assert list(cf.points.columns) == list(X.columns)
    assert list(cf.points.index) == list(X.index[::10])


def test_lines_of_text():
    X = pd.DataFrame(load_iris().data, columns=["sl", "sw", "pl", "pw"])
    net = neuralize(kmeans(X, 3), X)
    cf = counterfactual(net, X[:30], columns=1)
    lines = str(cf).split("\n")
    assert len(lines) == 21
    assert lines[-1] == "... and 10 more rows"
    assert lines[0].startswith("row 0: cluster")
    assert " standard deviations): pl 1.4 -> " in lines[0]
    large = 1000 * X
    assert "e+" not in str(counterfactual(neuralize(kmeans(large, 3), large), large[:20]))


def test_what_can_not_be_found():
    X = blobs(d=3)
    net = neuralize(kmeans(X), X)
    cf = counterfactual(net, X[:5], fixed=[0, 1, 2])
    assert not cf.found.any()
    assert np.isinf(cf.distance).all()
    assert (cf.points == X[:5]).all()
    assert "no point of this cluster was found within the limits" in str(cf)
    constant = np.column_stack([X, np.zeros(len(X))])
    net = neuralize(kmeans(constant), constant)
    cf = counterfactual(net, constant[:5], fixed=[0, 1, 2])  # what is left does not tell clusters apart
    assert not cf.found.any()


def test_spread_is_what_distances_are_measured_in(tmp_path):
    X, net, *_ = fitted("kmeans")
    neonxc.save(net, tmp_path / "net")
    tree, plain = ExShallow(4, random_state=0).fit(X), kmeans(X)
    for some, options, spread in (
        (net, {}, X.std(0)),
        (neonxc.load(tmp_path / "net"), {}, X.std(0)),
        (net, {"spread": pd.DataFrame(2 * X)}, 2 * X.std(0)),
        (net, {"spread": [1, 1]}, 1),
        (neuralize(plain), {}, plain.cluster_centers_.std(0)),
        (neuralize(tree), {}, X.std(0)),
    ):
        cf = counterfactual(some, X[:20], **options)
        assert_allclose(cf.distance, np.linalg.norm(cf.changes / spread, axis=1))


def test_whole_numbers_of_columns_that_a_leaf_does_not_test_stay_within_bounds():
    X = np.array([[0, 0.1], [1, 0.2], [4, 0.3], [5, 2.4]])
    net = neuralize(CART(2).fit(X, labels=[0, 0, 1, 1]), X)
    cf = counterfactual(net, X[:1], target=1, bounds={1: (0.05, 0.45)}, integer=[1])
    assert not cf.found.any()
    cf = counterfactual(net, X[:1], target=1, bounds={1: (0.05, 2.45)}, integer=[1])
    assert cf.found.all()
    assert cf.points[0, 1] == 1
    assert_allclose(cf.distance, np.linalg.norm(cf.changes / X.std(0), axis=1))


@pytest.mark.parametrize("make", [lambda X: ExShallow(6, random_state=0).fit(X), MODELS["bisecting"]])
def test_trees_without_a_target_change_to_the_nearest_of_all_other_clusters(make):
    X = blobs(n=80, centers=6)
    net = neuralize(make(X), X)
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
    g = np.random.default_rng(0)
    X = make(g.exponential(1000, (100, 3)) * g.choice([1, 8], (100, 1)))
    model = make_pipeline(FunctionTransformer(function), StandardScaler(), KMeans(3, n_init=1, random_state=0))
    net, exact = neuralize(model.fit(X), X), np.asarray(X, dtype=float)
    bounds = {column: (low, None) for column, low in enumerate(exact.min(axis=0))}
    cf = counterfactual(net, X, bounds=bounds)
    assert cf.found.all()
    assert (net.predict(cf.points) == cf.target).all()
    assert (np.asarray(cf.points) >= exact.min(axis=0)).all()
    assert make is np.int64 or np.asarray(cf.points).dtype == np.float32
    wide = counterfactual(net, exact, cf.target, bounds=bounds)
    assert_allclose(cf.distance, wide.distance, rtol=1e-3, atol=1e-4)


def people(n=200, seed=0):
    g = np.random.default_rng(seed)
    work = g.choice(["State", "Private", "Self"], n)
    return pd.DataFrame(
        {
            "age": g.integers(18, 80, n),
            "work": work,
            "gain": g.exponential(1000, n) * (1 + 5 * (work == "Self")),
            "hours": np.where(g.random(n) < 0.1, np.nan, g.normal(40, 10, n)),
            "root": g.exponential(1, n),
        },
        index=np.arange(n) + 7,
    )


def of_people(X):
    logs = make_pipeline(FunctionTransformer(np.log1p), StandardScaler())
    roots = make_pipeline(FunctionTransformer(np.sqrt), StandardScaler())
    filled = make_pipeline(SimpleImputer(), StandardScaler())
    encoded = [
        ("l", logs, ["gain"]),
        ("r", roots, ["root"]),
        ("n", filled, ["age", "hours"]),
        ("w", OneHotEncoder(), ["work"]),
    ]
    return make_pipeline(ColumnTransformer(encoded), KMeans(4, n_init=2, random_state=0)).fit(X)


@pytest.mark.parametrize("make", [lambda X: X, lambda X: X.to_numpy(dtype=object)])
def test_tables_of_numbers_and_categories(make):
    X = people()
    model = of_people(X)
    net = neuralize(model, X)
    x = make(X)
    cf = counterfactual(net, x, fixed=["work", "age"], bounds={"gain": (0, None)})
    assert cf.found.mean() > 0.9
    assert cf.exact
    after = pd.DataFrame(cf.points, columns=X.columns, index=X.index).infer_objects()
    assert type(cf.points) is type(x)
    assert (model.predict(after)[cf.found] == cf.target[cf.found]).all()
    assert (after["work"] == X["work"]).all()
    assert (after["age"] == X["age"]).all()
    assert (after[["gain", "root"]].astype(float) >= 0).all(axis=None)
    changes = pd.DataFrame(cf.changes, columns=X.columns, index=X.index).astype(float)
    assert_allclose(changes["gain"], after["gain"].astype(float) - X["gain"], atol=1e-9)
    assert (changes["work"] == 0).all()
    assert "gain" in str(cf)
    spread = net.spread_
    before, moved = net.batch(x).tensor.numpy(), net.batch(cf.points).tensor.numpy()
    length = np.linalg.norm((moved - before) / spread, axis=1)
    assert_allclose(cf.distance[cf.found], length[cf.found], rtol=1e-6)
    # the same half-spaces, from the columns behind the transformers
    twin = neuralize(model[-1].cluster_centers_ * 1.0)
    Z = model[:-1].transform(X)
    other = counterfactual(twin, Z[:50], cf.target[:50], fixed=[2, 4, 5, 6], spread=Z.std(0), bounds=None)
    free = np.isfinite(cf.distance[:50]) & (after["root"].astype(float)[:50] > 1e-6)
    assert_allclose(cf.distance[:50][free], other.distance[free], rtol=1e-5)


def test_tables_tell_which_columns_can_not_change():
    X = people()
    net = neuralize(of_people(X), X)
    refused(
        "needs numeric columns, column 'work' is encoded otherwise",
        counterfactual,
        net,
        X,
        bounds={"work": (0, 1)},
    )
    refused("column 'gain': the pipeline takes its log", counterfactual, net, X, integer="gain")
    cf = counterfactual(net, X, bounds={"age": (0, 50)})
    assert not cf.found[X["age"] > 50].any()
    assert cf.found[X["age"] <= 50].mean() > 0.9
    cf = counterfactual(net, X[:20], integer="age", bounds={"age": (18, 90)})
    assert (cf.points["age"] == cf.points["age"].round()).all()
    encoded = net.batch(X).tensor
    cf = counterfactual(net, encoded)
    categories = [i for i, name in enumerate(net.inputs.encoding.names) if name.startswith("work_")]
    assert (cf.points[:, categories] == encoded[:, categories]).all()
    assert cf.found.any()


def test_other_networks_are_refused():
    texts = ["a cat and a dog", "dogs bark at cats", "the stock market", "market crash"]
    net = neuralize(make_pipeline(TfidfVectorizer(), KMeans(2, n_init=1, random_state=0)).fit(texts), texts)
    refused("needs a network on tables", counterfactual, net, texts)
    features = torch.nn.Linear(4, 3).eval()
    refused("feature network", counterfactual, neuralize(np.eye(3), features=features), torch.randn(5, 4))
    refused("neuralize", counterfactual, features, torch.randn(5, 4), error=TypeError)


@pytest.mark.parametrize("cast", [np.float64, np.float32])
@pytest.mark.parametrize("kind", ["scaled", "logarithms", "tree", "people"])
def test_bounds_of_the_data(kind, cast, tmp_path):
    X = load_wine(as_frame=True).data if kind != "people" else people()
    steps = [FunctionTransformer(np.log1p)] * (kind == "logarithms") + [StandardScaler()]
    makers = {"tree": lambda X: ExShallow(3, random_state=0).fit(X), "people": of_people}
    model = makers.get(kind, make_pipeline(*steps, KMeans(3, n_init=2, random_state=0)).fit)(X)
    neonxc.save(neuralize(model, X), tmp_path / "net")
    net, x = neonxc.load(tmp_path / "net"), X.astype({c: cast for c in X if X[c].dtype.kind == "f"})
    numbers = X.select_dtypes("number")
    low, high = numbers.min(), numbers.max()
    free = counterfactual(net, x, columns=2)
    inside = counterfactual(net, x, columns=2, bounds="data")
    slack = 1e-6 * numbers.abs().max() * (cast is np.float32)

    def leaves(cf):
        after = cf.points[numbers.columns]
        beyond = (after < low - slack) | (after > high + slack)
        return [[*numbers.columns[row]] for row in beyond.to_numpy()]

    assert [sorted(names) for names in free.outside] == [sorted(names) for names in leaves(free)]
    assert inside.found.mean() > 0.9
    assert not any(inside.outside + leaves(inside))
    assert (inside.distance[inside.found] >= free.distance[inside.found] * (1 - 1e-6)).all()
    if kind == "scaled":
        assert any(free.outside)
        assert str(free).splitlines()[0].endswith("; outside the data: proline")
        refused(
            'bounds="data" needs the ranges of the columns',
            counterfactual,
            neuralize(model),
            x,
            bounds="data",
        )
