"""KernelKMeans: EM, the classical objectives, starts, weights, pruning, mini-batches, the estimator contract."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused
from scipy.special import logsumexp
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits, make_blobs, make_circles, make_moons
from sklearn.metrics import adjusted_rand_score
from turns import in_turns

import neonxc
from neonxc.clusterings.supports import squared_distances, uniform
from neonxc.common.registry import pack, unpack
from neonxc.models import KernelKMeans
from neonxc.models.kernel.em import em

MOONS, MOON = make_moons(400, noise=0.05, random_state=0)


def lme(d, w, gamma):
    return -logsumexp(-gamma * d, b=w) / gamma


def objective(X, model):
    """Sum over the points of the least soft minimum, from the published attributes alone."""
    total = 0.0
    for x in X:
        far = []
        for k in model.classes_:
            own = model.support_labels_ == k
            d = ((x - model.support_vectors_[own]) ** 2).sum(1)
            far.append(lme(d, model.support_weights_[own], model.gamma_))
        total += min(far)
    return total


def naive_em(X, U, w, gamma, weighted, steps):
    """EM loop by loop: point by point, support by support."""
    U, w = U.copy(), w.copy()
    k, p, d = U.shape
    for _ in range(steps):
        mass, total = np.zeros((k, p)), np.zeros((k, p, d))
        for x in X:
            far = [((x - U[c]) ** 2).sum(1) for c in range(k)]
            c = int(np.argmin([lme(far[c], w[c], gamma) for c in range(k)]))
            r = w[c] * np.exp(-gamma * far[c])
            mass[c] += r / r.sum()
            total[c] += (r / r.sum())[:, None] * x
        U = total / mass[..., None]
        if weighted:
            w = mass / mass.sum(1, keepdims=True)
    return U, w


@pytest.mark.parametrize("weighted", [False, True])
def test_em_step_by_step(weighted):
    X = make_blobs(60, 3, centers=4, random_state=0)[0]
    start = X[:6].reshape(2, 3, 3)
    gamma = 0.05
    U, w = naive_em(X, start, np.full((2, 3), 1 / 3), gamma, weighted, 5)
    fit = em(torch.tensor(X), uniform(torch.tensor(start), gamma), weighted=weighted, max_iter=5, tol=-1.0)
    assert np.allclose(fit.model.points, U)
    assert np.allclose(fit.model.log_weights.exp(), w)


@given(
    st.integers(0, 10_000),
    st.integers(1, 5),
    st.integers(1, 6),
    st.sampled_from([1e-3, 0.1, 3.0, 100.0]),
    st.booleans(),
)
def test_the_objective_never_rises(seed, k, p, gamma, weighted):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(40, 2)).round(1)  # with equal points
    model = KernelKMeans(k, p, gamma, init="random", weighted=weighted, tol=0, max_iter=40, random_state=seed).fit(
        X
    )
    history = np.array(model.history_)
    assert (np.diff(history) <= 1e-9 * np.abs(history).max()).all()
    assert model.objective_ <= history[-1] + 1e-9 * abs(history[-1])
    assert model.objective_ == pytest.approx(objective(X, model), rel=1e-9, abs=1e-9)
    assert model.score(X) == pytest.approx(-model.objective_, rel=1e-9, abs=1e-9)


def test_one_support_is_kmeans():
    X = load_digits().data
    model = KernelKMeans(10, 1, n_init=8, random_state=0).fit(X)
    reference = KMeans(10, n_init=8, random_state=0).fit(X)
    assert model.objective_ == pytest.approx(((X - model.support_vectors_[model.labels_]) ** 2).sum())
    assert model.objective_ <= 1.01 * reference.inertia_
    again = KMeans(10, init=model.support_vectors_, n_init=1, max_iter=300, tol=0).fit(X)
    assert again.inertia_ == pytest.approx(model.objective_, rel=1e-3)  # it has all but converged


@pytest.mark.parametrize(("X", "y"), [(MOONS, MOON), make_circles(400, factor=0.5, random_state=0)])
def test_fixed_assignments(X, y):
    model = KernelKMeans(random_state=0).fit(X, labels=y)
    assert (model.labels_ == y).mean() >= 0.99
    assert (KMeans(2, n_init=1, random_state=0).fit_predict(X) == y).mean() < 0.99


@pytest.mark.parametrize(
    ("kinds", "nothing"),
    [([0, 1], -1), (["lower", "upper"], None), (["lower", "upper"], -1), (["lower", "upper"], np.nan)],
)
def test_labels_of_any_kind_and_noise(kinds, nothing):
    labels = np.array(kinds, dtype=object)[MOON]
    labels[::7] = nothing
    there = np.arange(400) % 7 != 0
    model = KernelKMeans(random_state=0).fit(MOONS, labels=labels)
    alone = KernelKMeans(random_state=0).fit(MOONS[there], labels=labels[there])
    assert np.allclose(model.support_vectors_, alone.support_vectors_)
    assert model.classes_.tolist() == kinds
    assert (model.predict(MOONS) == np.array(kinds)[MOON]).all()


def test_start_from_labels():
    X, y = load_digits(return_X_y=True)
    fixed = KernelKMeans(10, random_state=0).fit(X, labels=y)
    started = KernelKMeans(10, init=y, random_state=0).fit(X)
    assert started.objective_ < fixed.objective_
    assert adjusted_rand_score(started.labels_, y) > adjusted_rand_score(
        KernelKMeans(10, random_state=0).fit(X).labels_, y
    )


@pytest.mark.parametrize("spherical", [False, True])
def test_feature_objective_on_a_gram_matrix(spherical):
    """Distances to the means in feature space, from the matrix of all kernels."""
    X = make_blobs(80, 3, centers=5, random_state=1)[0]
    model = KernelKMeans(4, gamma=0.02, objective="spherical" if spherical else "feature", random_state=0).fit(X)
    K = np.exp(-0.02 * ((X[:, None] - X) ** 2).sum(-1))
    far = np.empty((len(X), 4))
    for k in range(4):
        own = model.labels_ == k
        Z = np.sqrt(K[np.ix_(own, own)].sum()) if spherical else own.sum()
        far[:, k] = 1 - 2 * K[:, own].sum(1) / Z + K[np.ix_(own, own)].sum() / Z**2
    assert (far.argmin(1) == model.labels_).all()
    assert np.allclose(model.transform(X), far)
    assert model.objective_ == pytest.approx(far.min(1).sum())
    assert (np.diff(model.history_) <= 1e-9).all()
    assert np.allclose(np.sort(model.support_vectors_, 0), np.sort(X, 0))


@pytest.mark.parametrize("objective", ["lme", "feature"])
def test_in_blocks(monkeypatch, objective):
    """A small memory budget changes no result, and is kept to."""
    model = KernelKMeans(2, 10, objective=objective, random_state=0)
    whole = model.fit(MOONS).transform(MOONS)
    counts = []
    for module in ("clusterings.supports", "models.kernel.em"):
        monkeypatch.setattr(
            f"neonxc.{module}.squared_distances",
            lambda x, u: counts.append(len(x) * len(u)) or squared_distances(x, u),
        )
    monkeypatch.setattr("neonxc.common.memory.CPU", 6400)
    model.fit(MOONS)
    counts.clear()
    assert np.allclose(model.transform(MOONS), whole)
    assert 8 * max(counts) <= 6400


def test_mini_batches_and_restarts():
    X = load_digits().data
    full = KernelKMeans(10, random_state=0).fit(X)
    batches = KernelKMeans(10, batch_size=256, random_state=0).fit(X)
    assert batches.objective_ <= 1.03 * full.objective_
    assert batches.objective_ < KernelKMeans(10, batch_size=256, max_iter=1, random_state=0).fit(X).objective_
    several = KernelKMeans(10, n_init=4, random_state=0).fit(X)
    assert several.objective_ <= full.objective_


def test_weights_are_repetition():
    X = make_blobs(50, 2, centers=3, random_state=0)[0]
    weight = np.random.default_rng(0).integers(0, 4, 50)
    for options in ({}, {"objective": "feature"}, {"weighted": True}):
        one = KernelKMeans(3, 4, random_state=0, **options).fit(X, sample_weight=weight)
        two = KernelKMeans(3, 4, random_state=0, **options).fit(np.repeat(X, weight, axis=0))
        assert np.allclose(one.transform(X), two.transform(X))


def test_fewer_points_than_supports():
    X = np.array([[0.0, 0], [1, 0], [10, 10], [11, 10]])
    model = KernelKMeans(2, 10, random_state=0).fit(X)
    assert len(set(model.labels_[:2])) == len(set(model.labels_[2:])) == 1
    assert model.labels_[0] != model.labels_[2]
    assert np.isfinite(model.support_vectors_).all()


def test_what_goes_in_comes_out():
    frame = pd.DataFrame(MOONS, columns=["left", "right"])
    model = KernelKMeans(2, random_state=0).fit(frame)
    assert model.get_feature_names_out().tolist() == ["kernelkmeans0", "kernelkmeans1"]
    refused("feature names", model.predict, frame.rename(columns={"left": "other"}))
    single = torch.tensor(MOONS, dtype=torch.float32)
    tensors = KernelKMeans(2, random_state=0).fit(single)
    assert isinstance(tensors.labels_, torch.Tensor)
    assert tensors.support_vectors_.dtype == torch.float32
    assert tensors.transform(single).dtype == torch.float32
    assert adjusted_rand_score(tensors.labels_.numpy(), model.labels_) == 1.0


@pytest.mark.parametrize(
    ("objective", "kind"), in_turns(["lme", "feature", "spherical"], ["array", "tensor", "frame", "names"])
)
def test_save_and_load(objective, kind, tmp_path):
    X = {"tensor": torch.tensor(MOONS), "frame": pd.DataFrame(MOONS, columns=["a", "b"])}.get(kind, MOONS)
    labels = np.where(MOON == 1, "upper", "lower") if kind == "names" else None
    model = KernelKMeans(2, objective=objective, random_state=np.int64(0)).fit(X, labels=labels)
    neonxc.save(model, tmp_path / "model.safetensors")
    back = neonxc.load(tmp_path / "model.safetensors")
    assert back.get_params() == model.get_params()
    for name in ("labels_", "support_vectors_", "support_labels_", "support_weights_", "classes_"):
        assert type(getattr(back, name)) is type(getattr(model, name)), name
        assert (np.asarray(getattr(back, name)) == np.asarray(getattr(model, name))).all(), name
    assert (np.asarray(back.predict(X)) == np.asarray(model.predict(X))).all()
    assert (back.gamma_, back.objective_, back.n_iter_) == (model.gamma_, model.objective_, model.n_iter_)
    assert (neonxc.neuralize(back).predict(MOONS) == neonxc.neuralize(model).predict(MOONS)).all()


def test_files_of_version_0_2_0_have_one_parameter_more():
    model = KernelKMeans(2, random_state=0).fit(MOONS)
    described, tensors = pack(model)
    described["values"]["params"]["prune"] = None
    assert (unpack(described, tensors).predict(MOONS) == model.labels_).all()


@pytest.mark.cuda
@pytest.mark.parametrize("objective", ["lme", "feature"])
def test_on_cuda(objective):
    X = torch.tensor(make_blobs(300, 4, centers=4, random_state=0)[0])
    model = KernelKMeans(4, objective=objective, random_state=0).fit(X.cuda())
    assert model.labels_.is_cuda
    on_cpu = KernelKMeans(4, objective=objective, random_state=0).fit(X)
    assert adjusted_rand_score(model.labels_.cpu().numpy(), on_cpu.labels_.numpy()) > 0.99
