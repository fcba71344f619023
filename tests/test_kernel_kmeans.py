"""KernelKMeans: EM, the classical objectives, gamma, starts, given labels, weights, mini-batches."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import default_rng
from refusals import refused
from scipy.special import logsumexp
from sklearn.datasets import load_iris, make_blobs, make_circles, make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from turns import in_turns

import neonxc
from neonxc.clusterings.supports import squared_distances, uniform
from neonxc.common.registry import pack, unpack
from neonxc.models import KernelKMeans
from neonxc.models.kernel.em import em
from neonxc.models.kernel.seeding import Sample, plus_plus

MOONS, MOON = make_moons(400, noise=0.05, random_state=0)
IRIS, SPECIES = load_iris(return_X_y=True)
SIDES = np.arange(6) // 3


seeded = partial(KernelKMeans, random_state=0)


def lme(d, w, gamma):
    return -logsumexp(-gamma * d, b=w) / gamma


def supports_of(model):
    """Places [k, p, d] and weights [k, p]."""
    k = len(model.classes_)
    return model.support_vectors_.reshape(k, -1, model.n_features_in_), model.support_weights_.reshape(k, -1)


def objective(X, model):
    """Sum over the points of the least soft minimum, from the published attributes alone."""
    places, weights = supports_of(model)
    return sum(
        min(lme(((x - u) ** 2).sum(1), w, model.gamma_) for u, w in zip(places, weights, strict=True)) for x in X
    )


def naive_em(X, U, w, gamma, weighted, labels):
    """One iteration, point by point; to given labels, or to the nearest cluster."""
    mass = np.zeros(w.shape)
    total = np.zeros(U.shape)
    for n, x in enumerate(X):
        far = ((x - U) ** 2).sum(2)
        c = int(np.argmin([lme(*of, gamma) for of in zip(far, w, strict=True)])) if labels is None else labels[n]
        r = w[c] * np.exp(-gamma * far[c])
        mass[c] += r / r.sum()
        total[c] += (r / r.sum())[:, None] * x
    return total / mass[..., None], mass / mass.sum(1, keepdims=True) if weighted else w


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("fixed", [False, True])
def test_em_step_by_step(weighted, fixed):
    X = make_blobs(60, 3, centers=4, random_state=0)[0]
    labels = np.arange(60) % 2 if fixed else None

    def after(steps):
        model = seeded(2, 3, 0.05, weighted=weighted, max_iter=steps, tol=0)
        return supports_of(model.fit(X, labels=labels))

    found = after(1)
    for steps in range(2, 6):
        found = naive_em(X, *found, 0.05, weighted, labels)
        for one, wanted in zip(found, after(steps), strict=True):
            np.testing.assert_allclose(one, wanted)


@given(
    st.integers(0, 10_000),
    st.integers(1, 5),
    st.integers(1, 6),
    st.sampled_from([1e-3, 0.1, 3.0, 100.0]),
    st.booleans(),
)
def test_the_objective_never_rises(seed, k, p, gamma, weighted):
    rng = default_rng(seed)
    X = rng.normal(size=(40, 2)).round(1)  # with equal points
    model = KernelKMeans(k, p, gamma, init="random", weighted=weighted, tol=0, max_iter=40, random_state=seed).fit(
        X
    )
    history = np.array(model.history_)
    assert (np.diff(history) <= 1e-9 * np.abs(history).max()).all()
    assert model.objective_ <= history[-1] + 1e-9 * abs(history[-1])
    assert model.objective_ == pytest.approx(objective(X, model), rel=1e-9, abs=1e-9)
    assert model.score(X) == pytest.approx(-model.objective_, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(("X", "y"), [(MOONS, MOON), make_circles(400, factor=0.5), (IRIS, SPECIES)])
def test_fixed_assignments(X, y):
    model = seeded().fit(X, labels=y)
    assert (model.labels_ == y).mean() >= 0.95
    started = seeded(y.max() + 1, init=y).fit(X)
    assert started.objective_ < model.objective_ * 1.001
    assert (started.labels_ == y).mean() > 0.8


@pytest.mark.parametrize(("kinds", "nothing"), [([0, 1], -1), (["lower", "upper"], None), (["a", "b"], np.nan)])
def test_labels_of_any_kind_and_noise(kinds, nothing):
    labels = np.array(kinds, dtype=object)[MOON]
    labels[::7] = nothing
    there = np.arange(400) % 7 != 0
    model = seeded().fit(MOONS, labels=labels)
    alone = seeded().fit(MOONS[there], labels=labels[there])
    assert np.allclose(model.support_vectors_, alone.support_vectors_)
    assert model.classes_.tolist() == kinds
    assert (model.predict(MOONS) == np.array(kinds)[MOON]).all()


@pytest.mark.parametrize("name", ["feature", "spherical"])
def test_feature_objective_on_a_gram_matrix(name):
    """Distances to the means in feature space, from the matrix of all kernels."""
    X = make_blobs(80, 3, centers=5, random_state=1)[0]
    model = seeded(4, gamma=0.02, objective=name).fit(X)
    K = np.exp(-0.02 * ((X[:, None] - X) ** 2).sum(-1))
    member = np.eye(4)[model.labels_]
    within = ((K @ member) * member).sum(0)
    Z = np.sqrt(within) if name == "spherical" else member.sum(0)
    far = 1 - 2 * K @ member / Z + within / Z**2
    assert (far.argmin(1) == model.labels_).all()
    assert np.allclose(model.transform(X), far)
    assert model.objective_ == pytest.approx(far.min(1).sum())
    assert (np.diff(model.history_) <= 1e-9).all()
    assert np.allclose(np.sort(model.support_vectors_, 0), np.sort(X, 0))


# --- gamma -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "dtype", "unit"),
    in_turns([6, 12, 40, 400], [np.float32, np.float64], [2.0**50, 2.0**480, 2.0**-45, 2.0**-480]),
)
def test_units_change_nothing(n, dtype, unit):
    """Also where most points are supports, so that the distances to these are rounding errors."""
    X = make_blobs(n, 3, centers=6, random_state=0)[0].astype(dtype)
    model, scaled = (seeded(6).fit(data) for data in (X, X * X.dtype.type(unit)))
    assert (model.labels_ == scaled.labels_).all()
    assert scaled.gamma_ * unit**2 == pytest.approx(model.gamma_, rel=1e-3)
    assert scaled.objective_ / unit**2 == pytest.approx(model.objective_, rel=1e-5)
    assert model.gamma_ < 100


def test_gamma_is_one_over_a_median():
    """Of squared distances to supports, to the means of clusters or to that of all, or 1: the first not zero."""

    def gamma(places, labels, n_support=10):
        return seeded(n_support=n_support).fit(np.c_[places], labels=labels).gamma_

    X = np.array([0.0, 1, 3, 10, 12, 16])
    sides = np.arange(6) // 3
    means = np.array([4, 38]) / 3
    assert gamma(X, sides, 1) == pytest.approx(1 / np.sort((X - means[sides]) ** 2)[2])
    assert gamma([0.0, 1, 5, 10, 12, 30], sides, 2) == pytest.approx(4)  # two of which are supports
    close = X.repeat(2) + np.tile([0.0, 1 / 8], 6)
    assert gamma(close, np.arange(6).repeat(2)) == pytest.approx(256)
    assert gamma(X, np.arange(6)) == pytest.approx(1 / np.sort((X - 7) ** 2)[2])
    assert KernelKMeans(1).fit(np.ones((3, 1))).gamma_ == 1


@pytest.mark.parametrize("gamma", [1e-2, 1e-10])
def test_a_small_gamma_in_float32(gamma):
    X = make_blobs(400, 4, centers=5, cluster_std=2, random_state=0)[0]
    double, single = (seeded(5, gamma=gamma).fit(X.astype(dtype)) for dtype in (np.float64, np.float32))
    assert single.objective_ == pytest.approx(double.objective_, rel=1e-3)
    assert np.abs(single.transform(X.astype(np.float32)) - double.transform(X)).max() < 1e-2


# --- starts and mini-batches -------------------------------------------------------------------------------


def test_plus_plus_is_greedy():
    """The best of some draws covers the points better than one draw does."""
    x = torch.tensor(make_blobs(300, 2, centers=12, random_state=0)[0])
    mass = torch.ones(len(x), dtype=x.dtype)

    def once(generator):
        weights = mass
        drawn = []
        for _ in range(12):
            drawn.append(int(torch.multinomial(weights, 1, generator=generator)))
            weights = squared_distances(x, x[drawn]).amin(1)
        return float(weights.sum())

    seeds = [torch.Generator().manual_seed(seed) for seed in range(40)]
    greedy = [float(squared_distances(x, plus_plus(Sample(x, mass, seed), 12)).amin(1).sum()) for seed in seeds]
    assert np.mean(greedy) < 0.8 * np.mean([once(seed) for seed in seeds])


def test_mini_batches_go_on_while_they_gain():
    X = make_blobs(1500, 5, centers=20, cluster_std=3, random_state=0)[0]
    model = seeded(10, 5, batch_size=200, tol=1e-4).fit(X)
    assert 2 < model.n_iter_ < 300
    gains = -np.diff(model.history_)
    assert (gains[:-1] > 1e-4 * np.abs(model.history_[:-2])).all()
    assert gains[-1] <= 1e-4 * abs(model.history_[-2])
    full, once = (
        seeded(10, 5, gamma=model.gamma_, **options).fit(X) for options in ({}, {"batch_size": 200, "max_iter": 1})
    )
    assert model.objective_ < 1.03 * full.objective_
    assert model.objective_ < once.objective_


@pytest.fixture
def counted(monkeypatch):
    """How many squared distances are asked for, call by call."""
    counts = []
    for module in ("clusterings.supports", "models.kernel.em", "models.kernel.seeding"):
        monkeypatch.setattr(
            f"neonxc.{module}.squared_distances",
            lambda x, u: counts.append(len(x) * len(u)) or squared_distances(x, u),
        )
    return counts


@pytest.mark.parametrize("objective", ["lme", "feature"])
def test_in_blocks(monkeypatch, counted, objective):
    """A small memory budget changes no result, and is kept to."""
    model = seeded(2, 10, objective=objective)
    whole = model.fit(MOONS).transform(MOONS)
    monkeypatch.setattr("neonxc.common.memory.CPU", 6400)
    model.fit(MOONS)
    counted.clear()
    assert np.allclose(model.transform(MOONS), whole)
    assert 8 * max(counted) <= 6400


def test_how_many_distances_are_needed(counted):
    """For given labels those of points to the supports of their cluster; a start for mini-batches is a sample."""
    steps = []
    for max_iter in (1, 2):
        counted.clear()
        seeded(n_support=3, tol=0, max_iter=max_iter).fit(MOONS, labels=np.arange(400) % 8)
        steps.append(sum(counted))
    assert steps[1] - steps[0] == 400 * 3
    counted.clear()
    X = default_rng(0).normal(size=(2000, 2))
    seeded(3, 5, batch_size=100, max_iter=1).fit(X)
    assert sum(counted) < 4 * 2000 * 15


# --- weights -----------------------------------------------------------------------------------------------


def test_weights_are_repetition():
    X = make_blobs(50, 2, centers=3, random_state=0)[0]
    weight = default_rng(0).integers(0, 4, 50)
    for options in ({}, {"objective": "feature"}, {"weighted": True}):
        one = seeded(3, 4, **options).fit(X, sample_weight=weight)
        two = seeded(3, 4, **options).fit(np.repeat(X, weight, axis=0))
        assert np.allclose(one.transform(X), two.transform(X))


@pytest.mark.parametrize(
    ("options", "unit"),
    in_turns([{}, {"weighted": True}, {"objective": "feature"}, {"batch_size": 50}], [1e-200, 1e-14, 1e9]),
)
def test_weights_of_any_size(options, unit):
    X = make_blobs(200, 3, centers=4, random_state=0)[0]
    model, scaled = (seeded(4, 3, **options).fit(X, sample_weight=np.full(200, one)) for one in (1, unit))
    assert adjusted_rand_score(model.labels_, scaled.labels_) == 1.0
    assert scaled.objective_ == pytest.approx(unit * model.objective_)
    assert np.allclose(scaled.transform(X), model.transform(X))


def test_a_class_without_weight_is_none():
    model = seeded().fit(IRIS, labels=SPECIES, sample_weight=SPECIES != 1)
    assert model.classes_.tolist() == [0, 2]
    assert set(model.labels_) == {0, 2}
    message = "init has 2 different labels, n_clusters is 3"
    without = SPECIES != 1
    refused(message, KernelKMeans(3, init=SPECIES).fit, IRIS, sample_weight=without)


# --- few points, far points --------------------------------------------------------------------------------


@pytest.mark.parametrize("places", [[[[5.0]], [[900.0]]], [[[5.0], [900.0]]]], ids=["cluster", "support"])
def test_what_has_no_points_starts_again(places):
    x = torch.tensor([[0.0], [1.0], [10.0], [11.0]], dtype=torch.float64)
    fit = em(x, uniform(torch.tensor(places, dtype=torch.float64), np.inf))
    assert fit.objective == 1.0
    assert sorted(fit.model.points.flatten().tolist()) == [0.5, 10.5]
    assert len(set(fit.labels.tolist())) == len(places)


@pytest.mark.parametrize(
    ("objective", "init"), in_turns(["lme", "feature", "spherical"], ["kmeans", "random", np.arange(10) % 8])
)
def test_fewer_different_points_than_clusters(objective, init):
    """One cluster for each different point, as scikit-learn's k-means fits them, and a warning."""
    X = np.repeat([[0.0, 1.0], [2.0, 3.0], [9.0, 9.0]], [5, 4, 1], axis=0)
    model = seeded(8, objective=objective, init=init)
    with pytest.warns(ConvergenceWarning, match=r"clusters \(3\) found smaller than n_clusters \(8\)") as told:
        model.fit(X)
    assert told[0].filename == __file__
    assert model.classes_.tolist() == sorted(set(model.labels_.tolist())) == sorted(set(model.support_labels_))
    assert adjusted_rand_score(model.labels_, np.repeat([0, 1, 2], [5, 4, 1])) == 1.0
    assert model.transform(X).shape == (10, 3)
    assert model.get_feature_names_out().tolist() == ["kernelkmeans0", "kernelkmeans1", "kernelkmeans2"]
    assert model.objective_ == pytest.approx(0, abs=1e-12)
    assert (neonxc.neuralize(model).predict(X) == model.labels_).all()


def test_given_labels_need_different_points():
    message = "X has 1 distinct point that counts, fewer than the 2 clusters of labels"
    refused(message, KernelKMeans().fit, np.ones((4, 2)), labels=[0, 1, 0, 1])
    assert KernelKMeans(2).fit_predict([[0.0], [0.0], [1.0]]).tolist() in ([0, 0, 1], [1, 1, 0])


def test_far_from_the_origin():
    """float32 has few digits left there: clusters are found near the origin, and looked up there."""
    near = (default_rng(0).integers(-64, 64, (600, 3)) / 8).astype(np.float32)
    far = near + np.float32(1e6)
    assert np.array_equal(far - np.float32(1e6), near)
    one, other = (seeded(6).fit(X) for X in (near, far))
    assert (one.labels_ == other.labels_).all()
    assert np.abs(one.transform(near) - other.transform(far)).max() < 1e-3
    assert (other.predict(far.astype(np.float64)) == other.labels_).all()
    between = far.astype(np.float64) + default_rng(1).normal(scale=0.02, size=far.shape)
    assert np.abs(other.transform(between) - one.transform(between - 1e6)).max() < 1e-3


@pytest.mark.parametrize(
    ("unit", "dtype", "objective"),
    in_turns([1e19, 1e155, 1e-23, 1e-160], [np.float32, np.float64], ["lme", "lme", "lme", "feature", "feature"]),
)
def test_distances_beyond_the_range_of_their_type(unit, dtype, objective):
    """Silently wrong labels otherwise: infinite or zero distances are all alike."""
    flows = "over" if unit > 1 else "under"
    X = pd.DataFrame((MOONS * [1, 0.1] * unit).astype(dtype), columns=["left", "right"])
    wanted = rf"squared distances {flows}flow in {np.dtype(dtype)}.* in column 'left'; rescale X"
    refused(wanted, seeded(2, objective=objective).fit, X)
    far = MOONS * (1e155 if flows == "over" else 1e-160)
    refused(rf"{flows}flow in float64.* in column 0; rescale X", neonxc.neuralize, labels=MOON, X=far)
    model = seeded(2, objective=objective).fit(MOONS.astype(dtype))
    if flows == "over":
        refused(r"overflow in .* in column 0; rescale X", model.predict, X.to_numpy())
    else:
        assert len(set(model.predict(X.to_numpy()))) == 1


# --- files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("objective", "kind"), in_turns(["lme", "feature", "spherical"], ["tensor", "frame", "names"])
)
def test_save_and_load(objective, kind):
    X = {"tensor": torch.tensor(MOONS), "frame": pd.DataFrame(MOONS, columns=["a", "b"])}.get(kind, MOONS)
    labels = np.where(MOON == 1, "upper", "lower") if kind == "names" else None
    model = KernelKMeans(2, objective=objective, random_state=np.int64(0)).fit(X, labels=labels)
    described, tensors = pack(model)
    described["values"]["params"]["prune"] = None  # version 0.2.0 had one parameter more
    back = unpack(json.loads(json.dumps(described)), tensors)
    assert back.get_params() == model.get_params()
    for name in [name for name in vars(model) if name.endswith("_")]:
        one = getattr(back, name)
        other = getattr(model, name)
        assert type(one) is type(other), name
        assert (np.asarray(one) == np.asarray(other)).all(), name
    assert (np.asarray(back.predict(X)) == np.asarray(model.predict(X))).all()
