"""The parts of KernelKMeans: gamma, starts, empty supports, given labels, pruning, mini-batches, weights."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import make_blobs, make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from turns import in_turns

import neonxc
from neonxc.clusterings.supports import Supports, squared_distances, uniform
from neonxc.models import KernelKMeans
from neonxc.models.kernel.em import em, expectation
from neonxc.models.kernel.seeding import Sample, median_gamma, plus_plus, seeded

MOONS, MOON = make_moons(400, noise=0.05, random_state=0)


@pytest.mark.parametrize(("n", "dtype"), in_turns([6, 12, 40, 60, 100, 600], [np.float32, np.float64]))
def test_gamma_follows_the_scale(n, dtype):
    """Also where most points are supports, so that the distances to these are rounding errors."""
    X = make_blobs(n, 3, centers=6, random_state=0)[0]
    scaled = [KernelKMeans(6, random_state=0).fit((X * s).astype(dtype)).gamma_ * s**2 for s in (2**-10, 1, 2**10)]
    assert np.allclose(scaled, scaled[1], rtol=1e-3)
    assert scaled[1] < 100
    close = X[:6].repeat(2, 0) + np.tile([[0.0], [1.0]], (6, 3))
    labels = np.arange(6).repeat(2)
    gamma = KernelKMeans(random_state=0).fit(close, labels=labels).gamma_
    assert gamma == pytest.approx(1 / 0.75)  # distances to the clusters' means, as those to the supports are zero


def test_gamma_of_distances():
    fine, coarse = torch.tensor([0.0, 1e-17, 3e-16, 2.0]), torch.tensor([4.0, 5.0, 6.0, 7.0])
    assert median_gamma(fine.double(), coarse.double()) == 0.2
    assert median_gamma(torch.tensor([0.0, 1.0, 2.0, 3.0])) == 0.5
    assert median_gamma(torch.zeros(3)) == 1.0


def test_given_labels_need_no_other_cluster():
    """EM with fixed assignments, cluster by cluster, is that of every cluster alone."""
    x, labels = torch.tensor(MOONS), torch.tensor(MOON)
    start = seeded(Sample(x, torch.ones_like(x[:, 0]), torch.Generator().manual_seed(0)), labels, 2, 5, 20.0)
    both = em(x, start, labels, weighted=True, max_iter=7, tol=-1.0)
    for k in (0, 1):
        alone = Supports(start.points[k : k + 1], start.log_weights[k : k + 1], 20.0)
        one = em(x[labels == k], alone, weighted=True, max_iter=7, tol=-1.0).model
        assert torch.allclose(both.model.points[k], one.points[0])
        assert torch.allclose(both.model.log_weights[k], one.log_weights[0])
    far = both.model.distances(x).gather(1, labels[:, None]).sum()
    assert both.objective == pytest.approx(float(far))
    assert torch.equal(both.labels, labels)


def test_given_labels_need_few_distances(monkeypatch):
    """Those of points to the supports of their own cluster."""
    counts = []

    def spy(x, points):
        counts.append(len(x) * len(points))
        return squared_distances(x, points)

    monkeypatch.setattr("neonxc.clusterings.supports.squared_distances", spy)
    expectation(
        torch.tensor(MOONS),
        uniform(torch.randn(8, 3, 2).double(), 1.0),
        torch.arange(400) % 8,
        torch.ones(400).double(),
    )
    assert sum(counts) == 400 * 3


@pytest.mark.parametrize("places", [[[[5.0]], [[900.0]]], [[[5.0], [900.0]]]], ids=["cluster", "support"])
def test_what_has_no_points_starts_again(places):
    x = torch.tensor([[0.0], [1.0], [10.0], [11.0]], dtype=torch.float64)
    fit = em(x, uniform(torch.tensor(places, dtype=torch.float64), math.inf))
    assert fit.objective == 1.0
    assert sorted(fit.model.points.flatten().tolist()) == [0.5, 10.5]
    assert len(set(fit.labels.tolist())) == len(places)


def test_plus_plus_is_greedy():
    """The best of some draws covers the points better than one draw does."""
    x = torch.tensor(make_blobs(300, 2, centers=12, random_state=0)[0])
    mass = torch.ones(len(x), dtype=x.dtype)

    def once(generator):
        far = squared_distances(x, x[torch.multinomial(mass, 1, generator=generator)])[:, 0]
        for _ in range(11):
            far = torch.minimum(far, squared_distances(x, x[torch.multinomial(far, 1, generator=generator)])[:, 0])
        return float(far.sum())

    seeds = [torch.Generator().manual_seed(seed) for seed in range(40)]
    greedy = [float(squared_distances(x, plus_plus(Sample(x, mass, seed), 12)).amin(1).sum()) for seed in seeds]
    assert np.mean(greedy) < 0.8 * np.mean([once(seed) for seed in seeds])


@pytest.mark.parametrize("distance", [1e4, 1e6])
def test_far_from_the_origin(distance):
    """float32 has few digits left there: clusters are found near the origin, and looked up there."""
    near = (np.random.default_rng(0).integers(-64, 64, (600, 3)) / 8).astype(np.float32)
    far = (near + distance).astype(np.float32)
    assert np.array_equal((far - distance).astype(np.float32), near)
    one, other = (KernelKMeans(6, random_state=0).fit(X) for X in (near, far))
    assert (one.labels_ == other.labels_).all()
    assert np.abs(one.transform(near) - other.transform(far)).max() < 1e-3
    assert (other.predict(far.astype(np.float64)) == other.labels_).all()
    between = far.astype(np.float64) + np.random.default_rng(1).normal(scale=0.02, size=far.shape)
    assert np.abs(other.transform(between) - one.transform(between - distance)).max() < 1e-3


@pytest.mark.parametrize("gamma", [1e-2, 1e-6, 1e-10])
def test_a_small_gamma_in_float32(gamma):
    X = make_blobs(400, 4, centers=5, cluster_std=2, random_state=0)[0]
    double = KernelKMeans(5, gamma=gamma, random_state=0).fit(X)
    single = KernelKMeans(5, gamma=gamma, random_state=0).fit(X.astype(np.float32))
    assert single.objective_ == pytest.approx(double.objective_, rel=1e-3)
    assert np.abs(single.transform(X.astype(np.float32)) - double.transform(X)).max() < 1e-2


def test_mini_batches_go_on_while_they_gain():
    X = make_blobs(3000, 5, centers=20, cluster_std=3, random_state=0)[0]
    model = KernelKMeans(10, 5, batch_size=200, tol=1e-4, random_state=0).fit(X)
    assert 2 < model.n_iter_ < 300
    gains = -np.diff(model.history_)
    assert (gains[:-1] > 1e-4 * np.abs(model.history_[:-2])).all()
    assert gains[-1] <= 1e-4 * abs(model.history_[-2])
    full = KernelKMeans(10, 5, random_state=0, gamma=model.gamma_).fit(X)
    assert model.objective_ < 1.03 * full.objective_


def test_mini_batches_start_from_a_sample(monkeypatch):
    sizes = []

    def spy(sample, *args):
        sizes.append(len(sample.x))
        return seeded(sample, *args)

    monkeypatch.setattr("neonxc.models.kernel.seeding.seeded", spy)
    X = np.random.default_rng(0).normal(size=(2000, 2))
    KernelKMeans(3, 5, batch_size=100, max_iter=1, random_state=0).fit(X)
    KernelKMeans(3, 5, batch_size=100, max_iter=1, init=np.arange(2000) % 3, random_state=0).fit(X)
    assert sizes == [150, 2000]


@pytest.mark.parametrize(
    ("options", "unit"),
    in_turns([{}, {"weighted": True}, {"objective": "feature"}, {"batch_size": 50}], [1e-200, 1e-14, 1e9]),
)
def test_weights_of_any_size(options, unit):
    X = make_blobs(200, 3, centers=4, random_state=0)[0]
    model = KernelKMeans(4, 3, random_state=0, **options).fit(X, sample_weight=np.ones(200))
    scaled = KernelKMeans(4, 3, random_state=0, **options).fit(X, sample_weight=np.full(200, unit))
    assert adjusted_rand_score(model.labels_, scaled.labels_) == 1.0
    assert scaled.objective_ == pytest.approx(unit * model.objective_)
    assert np.allclose(scaled.transform(X), model.transform(X))


def test_a_class_without_weight_is_none():
    X, y = make_blobs(300, 2, centers=3, random_state=0)
    model = KernelKMeans(random_state=0).fit(X, labels=y, sample_weight=y != 1)
    assert model.classes_.tolist() == [0, 2]
    assert set(model.labels_) == {0, 2}
    with pytest.raises(ValueError, match="init has 2 different labels, n_clusters is 3"):
        KernelKMeans(3, init=y).fit(X, sample_weight=y != 1)


@pytest.mark.parametrize("objective", ["lme", "feature", "spherical"])
@pytest.mark.parametrize("init", ["kmeans", "random", np.arange(10) % 8])
def test_fewer_different_points_than_clusters(objective, init):
    """One cluster for each different point, as scikit-learn's k-means fits them, and a warning."""
    X = np.repeat([[0.0, 1.0], [2.0, 3.0], [9.0, 9.0]], [5, 4, 1], axis=0)
    model = KernelKMeans(8, objective=objective, init=init, random_state=0)
    with pytest.warns(
        ConvergenceWarning, match=r"distinct clusters \(3\) found smaller than n_clusters \(8\)"
    ) as told:
        model.fit(X)
    assert told[0].filename == __file__
    assert model.classes_.tolist() == sorted(set(model.labels_.tolist())) == sorted(set(model.support_labels_))
    assert adjusted_rand_score(model.labels_, np.repeat([0, 1, 2], [5, 4, 1])) == 1.0
    assert model.transform(X).shape == (10, 3)
    assert len(model.get_feature_names_out()) == 3
    assert model.objective_ == pytest.approx(0, abs=1e-12)
    assert (neonxc.neuralize(model).predict(X) == model.labels_).all()
    with pytest.warns(ConvergenceWarning, match=r"\(1\) found smaller"):
        assert not model.fit_predict(np.ones((10, 2))).any()


def test_given_labels_need_different_points():
    with pytest.raises(
        ValueError, match="X has 1 distinct points that count, fewer than the 2 clusters of labels"
    ):
        KernelKMeans().fit(np.ones((4, 2)), labels=[0, 1, 0, 1])
    assert neonxc.neuralize(KernelKMeans(2).fit([[0.0], [0.0], [1.0]])).predict([[0.0], [1.0]]).tolist() != [0, 0]


@pytest.mark.parametrize(
    ("unit", "dtype", "flows"),
    [
        (1e19, np.float32, "over"),
        (1e155, np.float64, "over"),
        (1e-23, np.float32, "under"),
        (1e-160, np.float64, "under"),
    ],
)
@pytest.mark.parametrize("objective", ["lme", "feature"])
def test_distances_beyond_the_range_of_their_type(unit, dtype, flows, objective):
    """Silently wrong labels otherwise: infinite or zero distances are all alike."""
    X = pd.DataFrame((MOONS * [1, 0.1] * unit).astype(dtype), columns=["left", "right"])
    wanted = rf"squared distances {flows}flow in {np.dtype(dtype)}.* in column 'left'; rescale X"
    with pytest.raises(ValueError, match=wanted):
        KernelKMeans(2, objective=objective, random_state=0).fit(X)
    with pytest.raises(ValueError, match=rf"{flows}flow in float64.* in column 0; rescale X"):
        neonxc.neuralize(labels=MOON, X=MOONS * (1e155 if flows == "over" else 1e-160))
    model = KernelKMeans(2, objective=objective, random_state=0).fit(MOONS.astype(dtype))
    if flows == "over":
        with pytest.raises(ValueError, match=r"overflow in .* in column 0; rescale X"):
            model.predict(X.to_numpy())
    else:
        assert len(set(model.predict(X.to_numpy()))) == 1


@pytest.mark.parametrize(
    ("unit", "dtype"), [(2.0**50, np.float32), (2.0**-45, np.float32), (2.0**480, np.float64)]
)
def test_large_and_small_units_within_the_range(unit, dtype):
    X = MOONS.astype(dtype)
    model, scaled = (KernelKMeans(2, random_state=0).fit(data) for data in (X, X * dtype(unit)))
    assert (model.labels_ == scaled.labels_).all()
    assert scaled.objective_ / unit**2 == pytest.approx(model.objective_)
