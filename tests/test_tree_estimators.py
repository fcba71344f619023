"""Tree explainers as estimators: references, what fitting leaves behind, thresholds in the type of the data."""

from inspect import signature
from typing import ClassVar

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused
from sklearn.base import clone
from sklearn.cluster import AgglomerativeClustering, KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import GridSearchCV, HalvingGridSearchCV, RandomizedSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tree_witnesses import (
    GUIDED,
    KERNEL_TREES,
    WEIGHTLESS,
    assert_same,
    data,
    inner_nodes,
    kmeans_cost,
    rows_of,
    seeds,
    tables,
)
from turns import slow

from neonxc.models import KernelKMeans
from neonxc.trees import CART, IMM, ExKMC, ExShallow, KDTree, trade_off

KMEANS = KMeans(4, n_init=2, random_state=0)
ALL = [*GUIDED, *KERNEL_TREES, *WEIGHTLESS]
every = pytest.mark.parametrize("model", GUIDED, ids=lambda model: model.__name__)
# What all explainers do by the same code: by default, every second one
in_turns_by_default = pytest.mark.parametrize(
    "model",
    [pytest.param(model, marks=[pytest.mark.slow] * (i % 2)) for i, model in enumerate(GUIDED)],
    ids=lambda model: model.__name__,
)


def blobs(n=60, d=3, k=4, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(k, d))[np.arange(n) % k] * 4 + rng.normal(size=(n, d))


def test_noise_is_counted():
    X = blobs(k=3)
    labels = np.arange(60) % 3
    labels[::7] = -1
    with pytest.warns(UserWarning, match=r"labels has 9 points of noise \(-1\)") as caught:
        tree = IMM(3).fit(X, labels=labels).tree_
    assert caught[0].filename == __file__
    assert (tree.n_noise, float(tree.samples[0])) == (9, 51)
    assert "not counted: 9 points of noise (label -1), which" in str(tree.rules())


@pytest.mark.parametrize("model", [IMM(3, refine=True), CART(3), KDTree(3)])
def test_what_is_fitted_can_take_part_in_training(model):
    X = torch.from_numpy(data(0, 40, 3, 3).X)
    model = clone(model).fit(X)
    factor = torch.ones(3, dtype=X.dtype, requires_grad=True)
    (model.cluster_centers_ * factor).sum().backward()  # which saves the centers
    assert torch.equal(factor.grad, model.cluster_centers_.sum(0).to(X.dtype))
    tensors = [value for value in vars(model.tree_).values() if isinstance(value, torch.Tensor)]
    assert not any(tensor.is_inference() for tensor in [*tensors, model.labels_])


@pytest.mark.parametrize(("model", "form"), [(IMM, sp.csr_matrix), (CART, np.asarray)])
def test_weights_are_repeated_rows_for_the_default_reference(model, form):
    X = np.abs(blobs(40, 3, 3)).round(1) * (np.random.default_rng(1).random((40, 3)) < 0.7)
    weight = np.random.default_rng(0).integers(0, 4, 40)
    weighted = model(3, random_state=0).fit(form(X), sample_weight=weight)
    repeated = model(3, random_state=0).fit(form(np.repeat(X, weight, axis=0)))
    assert_same(weighted, repeated, rounding=1e-9)
    assert np.array_equal(weighted.labels_.repeat(weight), repeated.labels_)


@in_turns_by_default
@given(seed=seeds, sparse=st.booleans(), unit=st.sampled_from([1, 0.25]))
def test_weights_are_repeated_rows_for_bins(model, seed, sparse, unit):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, 3))
    labels = np.arange(60) % 2
    weight = rng.integers(0, 30, 60)
    if sparse:  # so few entries that they alone are searched
        X = sp.csr_matrix((X[:, 0], (np.arange(60), rng.integers(0, 2, 60))), shape=(60, 16))
    rows = np.arange(60).repeat(weight)
    weighted = model(2, max_bins=7).fit(X, labels=labels, sample_weight=unit * weight)
    repeated = model(2, max_bins=7).fit(X[rows], labels=labels[rows], sample_weight=np.full(len(rows), unit))
    assert_same(weighted, repeated, rounding=1e-9)


@pytest.mark.parametrize("model", [IMM, ExShallow, ExKMC, KDTree, *KERNEL_TREES])
def test_a_pipeline_as_reference(model):
    """Rules in raw units, costs and kernels behind the scaler."""
    X = blobs(n=90) * [1, 100, 0.01] + [5, -300, 2]
    reference = KernelKMeans(4, objective="feature", random_state=0) if model in KERNEL_TREES else KMEANS
    fitted = model(4, reference=make_pipeline(StandardScaler(), reference)).fit(X)
    Z = StandardScaler().fit_transform(X)
    behind = model(4, reference=reference).fit(Z)
    if model is not KDTree:
        assert torch.equal(fitted.tree_.feature, behind.tree_.feature)
        assert np.array_equal(fitted.labels_, behind.labels_)
        for node in inner_nodes(fitted.tree_):
            column = X[:, int(fitted.tree_.feature[node])]
            raw = np.array(behind.tree_.tests[node]) * column.std() + column.mean()
            np.testing.assert_allclose(fitted.tree_.tests[node], raw, rtol=1e-6)
    assert np.array_equal(fitted.predict(X), fitted.labels_)
    assert fitted.inertia_ == pytest.approx(kmeans_cost(Z, fitted.labels_))
    assert fitted.score(X) == pytest.approx(-fitted.inertia_)
    assert vars(fitted).get("gamma_") == pytest.approx(vars(behind).get("gamma_"))
    means = [X[fitted.labels_ == c].mean(0) for c in np.unique(fitted.labels_)]
    np.testing.assert_allclose(fitted.cluster_centers_[np.unique(fitted.labels_)], means)


def test_a_fitted_reference_is_not_fitted_again():
    X = blobs()
    unfitted = clone(KMEANS)
    fitted = clone(KMEANS).fit(X)
    centers = fitted.cluster_centers_.copy()
    assert IMM(reference=fitted).fit(X[:30]).tree_.n_leaves == 4
    assert np.array_equal(fitted.cluster_centers_, centers)
    IMM(reference=unfitted).fit(X)
    assert not hasattr(unfitted, "cluster_centers_")
    fitted = AgglomerativeClustering(3).fit(X)
    assert IMM(reference=fitted).fit(X).tree_.n_leaves == 3
    message = "reference is a fitted AgglomerativeClustering that can't predict"
    refused(message, IMM(reference=fitted).fit, X[:10])
    assert ExShallow(4, reference="spectral", random_state=0).fit(X).tree_.n_leaves == 4


@pytest.mark.parametrize(
    "model",
    [pytest.param(model, marks=[pytest.mark.slow] * (i % 2)) for i, model in enumerate([*GUIDED, *KERNEL_TREES])],
    ids=lambda model: model.__name__,
)
@given(case=tables(clusters=2, separable=True))
def test_what_fitting_leaves_behind(model, case):
    fitted = model(case.k).fit(case.X, labels=case.labels, sample_weight=case.weight)
    tree = fitted.tree_
    rows = rows_of(fitted.tree_, case.values)
    size = kmeans_cost(case.values, np.zeros(len(case.X)), case.mass)
    cost = pytest.approx(kmeans_cost(case.values, fitted.labels_, case.mass), rel=1e-9, abs=1e-9 * size)
    assert fitted.inertia_ == cost
    assert case.weight is not None or -fitted.score(case.X) == cost
    for cluster in np.unique(fitted.labels_):
        own = fitted.labels_ == cluster
        mean = np.average(case.values[own], axis=0, weights=case.mass[own])
        np.testing.assert_allclose(fitted.cluster_centers_[cluster], mean, atol=1e-9)
    assert tree.samples.tolist() == [case.mass[own].sum() for own in rows]
    leaf = tree.apply(case.X)
    assert all((leaf[rows[node]] == node).all() for node in tree.leaves.tolist())
    assert np.array_equal(fitted.labels_, tree.classes[tree.label[leaf].numpy()])
    assert np.array_equal(fitted.labels_, fitted.predict(case.X))


@pytest.mark.parametrize("model", ALL, ids=lambda model: model.__name__)
@pytest.mark.parametrize("extra", [{}, {"labels": np.full(20, 7)}, {"centers": np.zeros((1, 3))}])
def test_one_cluster_is_one_leaf(model, extra):
    X = blobs(20)
    most = {"max_leaves": 1, "refine": True}
    most = {name: most[name] for name in most if name in signature(model).parameters}
    fitted = model(n_clusters=1, **most).fit(X, **extra)
    assert (fitted.tree_.n_leaves, fitted.tree_.depth, fitted.tree_.n_nodes) == (1, 0, 1)
    assert (fitted.labels_ == (7 if "labels" in extra else 0)).all()
    assert fitted.inertia_ == pytest.approx(((X - X.mean(0)) ** 2).sum())
    assert model(1).fit(np.ones((1, 2))).predict([[3.0, 4]]).tolist() == [0]


@given(
    model=st.sampled_from([*GUIDED, *KERNEL_TREES]),
    seed=seeds,
    n=st.integers(6, 40),
    k=st.integers(2, 4),
    kind=st.sampled_from([np.float16, np.float32, np.float64]),
    start=st.sampled_from([1.0, -1.0, 0.0, 1e-3, 3e4, -2.0]),
)
@settings(max_examples=4 * settings().max_examples)
def test_neighbouring_floats_are_told_apart(model, seed, n, k, kind, start):
    """Columns of a few floats next to each other: means lie between neighbours, and bounds are of their type."""
    rng = np.random.default_rng(seed)
    values = [kind(start)]
    for _ in range(5):
        values.append(np.nextafter(values[-1], kind(np.inf)))
    X = np.array(values)[rng.integers(0, 6, (n, 2))]
    labels = rng.integers(0, k, n)
    labels[:k] = range(k)
    try:
        fitted = model(k).fit(X, labels=labels)
    except ValueError as error:
        assert "the same in every column" in str(error)  # noqa: PT017 - means may well coincide
        return
    tree = fitted.tree_
    rows = rows_of(tree, X)
    for node in inner_nodes(tree):
        own = X[rows[node], int(tree.feature[node])]
        left = np.any([(low < own) & (own <= high) for low, high in np.array(tree.tests[node], dtype=kind)], 0)
        assert np.array_equal(rows[node][left], rows[int(tree.left[node])])
    assert np.array_equal(fitted.predict(X), fitted.labels_)
    assert tree.samples.tolist() == [len(own) for own in rows]


@every
@pytest.mark.parametrize(
    ("dtype", "scale", "offset"),
    [(np.float32, 1e-20, 0), (np.float64, 2.0**-66, 0), (np.float64, 1e30, 0), (np.float64, 1, 2.0**30)],
)
def test_numbers_of_any_size(model, dtype, scale, offset):
    X = np.round(blobs(60) * 2**8) / 2**8
    labels = np.arange(60) % 4
    plain, other = (model(4).fit(x, labels=labels) for x in (X, (X * scale + offset).astype(dtype)))
    assert torch.equal(plain.tree_.feature, other.tree_.feature)
    threshold = plain.tree_.threshold.numpy() * scale
    np.testing.assert_allclose(other.tree_.threshold - offset, threshold, rtol=1e-5, atol=1e-5 if offset else 0)
    assert np.array_equal(plain.labels_, other.labels_)
    assert other.inertia_ == pytest.approx(plain.inertia_ * scale**2, rel=1e-5)


def test_clusters_without_points():
    with pytest.warns(ConvergenceWarning, match=r"3 distinct points.*n_clusters=4"):
        fitted = IMM(4).fit(np.repeat(np.arange(3.0), 5)[:, None])
    assert len(np.unique(fitted.labels_)) == fitted.tree_.n_leaves == 3
    for extra in ({}, {"max_leaves": 5}):
        with pytest.warns(UserWarning, match=r"no points in clusters \[2\]"):
            fitted = IMM(3, **extra).fit([[0.0], [1], [10], [11]], centers=[[0.5], [10.5], [100]])
        assert fitted.labels_.tolist() == [0, 0, 1, 1]


# --- searches that are not fitted ---------------------------------------------------------------------------


class Weighed(KMeans):
    """k-means that keeps the weights of all of its fits."""

    seen: ClassVar = []

    def fit(self, X, y=None, sample_weight=None):
        self.seen.append(sample_weight)
        return super().fit(X, y, sample_weight)

    def fit_predict(self, X, y=None, sample_weight=None):
        return self.fit(X, y, sample_weight).labels_


FEW = {"n_init": 1, "random_state": 0}
SCALED = make_pipeline(StandardScaler(), Weighed(**FEW))
NUMBERS = {"weighed__n_clusters": [2, 3]}
SEARCHES = {
    "grid": GridSearchCV(SCALED, NUMBERS, cv=3),
    "random": RandomizedSearchCV(SCALED, NUMBERS, n_iter=2, cv=3, random_state=0),
    "halving": HalvingGridSearchCV(SCALED, NUMBERS, cv=3, min_resources=30, random_state=0),
    "last step": make_pipeline(StandardScaler(), GridSearchCV(Weighed(**FEW), {"n_clusters": [2, 3]}, cv=3)),
    "nested": GridSearchCV(make_pipeline(SCALED), {"pipeline__weighed__n_clusters": [2, 3]}, cv=3),
}


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("with_weights", [True, *slow(False)])
def test_searches_are_fitted_as_clusterers_are(name, with_weights, monkeypatch):
    X = blobs(60, 2, 3, seed=1) * [1, 100]
    search = SEARCHES[name]
    weight = 1.0 + np.arange(60) % 3 if with_weights else None
    best = make_pipeline(StandardScaler(), KMeans(3, **FEW))  # of [2, 3]: inertia is the score
    monkeypatch.setattr(Weighed, "seen", [])
    fitted = CART(reference=search).fit(X, sample_weight=weight)
    assert all((seen is not None) == with_weights for seen in Weighed.seen)
    assert len(Weighed.seen) > 4
    wanted = CART(reference=best).fit(X, sample_weight=weight)
    np.testing.assert_array_equal(fitted.tree_.threshold, wanted.tree_.threshold)
    assert fitted.inertia_ == wanted.inertia_
    inner = search[-1] if name == "last step" else search
    assert not hasattr(inner, "best_estimator_")  # it was a copy
    few = {"CART": CART(max_leaves=4)}
    compared = [
        trade_off(X, reference=one, candidates=few, sample_weight=weight).to_markdown() for one in (search, best)
    ]
    assert compared[0] == compared[1]


def test_searches_of_clusterers_without_labels_weights_or_a_refit():
    X = blobs(60, 2, 3, seed=1)
    mixture = GridSearchCV(GaussianMixture(random_state=0), {"n_components": [3]})
    wanted = GaussianMixture(3, random_state=0).fit_predict(X)
    fitted = CART(reference=mixture).fit(X)
    np.testing.assert_array_equal(fitted.tree_.threshold, CART().fit(X, labels=wanted).tree_.threshold)
    with pytest.warns(UserWarning, match="GaussianMixture takes no sample_weight"):
        CART(reference=mixture).fit(X, sample_weight=np.ones(60))
    without = GridSearchCV(KMEANS, {"n_clusters": [3]}, refit=False)
    for weight in (None, np.ones(60)):
        refused("no best_estimator_, as its refit is False", CART(reference=without).fit, X, sample_weight=weight)
    scaler = GridSearchCV(StandardScaler(), {"with_mean": [True]})
    refused("or a clusterer, got GridSearchCV", CART(reference=scaler).fit, X)
