"""Density clusterings as networks: the nearest core point of every cluster, and noise as a competitor."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_matrix
from scipy.spatial.distance import cdist
from sklearn.cluster import DBSCAN, OPTICS
from sklearn.datasets import load_digits, load_wine, make_blobs, make_moons
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, Normalizer, StandardScaler

from neonxc import NEON, counterfactual, neuralize

WINE = load_wine(as_frame=True).data


def fitted(*steps, eps=2.2):
    return make_pipeline(*steps, DBSCAN(eps=eps)).fit(WINE)


def distances(model, X):
    """Squared distances to the nearest core point of every cluster, and the squared radius, by brute force."""
    dbscan = model[-1]
    z = model[:-1].transform(X)
    owner = dbscan.labels_[dbscan.core_sample_indices_]
    every = cdist(z, dbscan.components_, "sqeuclidean")
    nearest = np.stack([np.where(owner == k, every, np.inf).argmin(1) for k in range(owner.max() + 1)], 1)
    far = np.take_along_axis(every, nearest, 1)
    return np.c_[far, np.full(len(z), dbscan.eps**2)], z, dbscan.components_[nearest]


def shared_by_nearest(model, z, cluster, n_members):
    """The squared distance to a cluster, in proportion to the squared differences to its nearest core points."""
    dbscan = model[-1]
    core = dbscan.components_[dbscan.labels_[dbscan.core_sample_indices_] == cluster]
    squared = cdist(z, core, "sqeuclidean")
    nearest = core[squared.argsort(axis=1)[:, :n_members]]
    squares = ((z[:, None] - nearest) ** 2).sum(axis=1)
    return squared.min(axis=1, keepdims=True) * squares / squares.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("dense", [0, 1 << 30])
@pytest.mark.parametrize(
    ("steps", "eps"),
    [
        ([StandardScaler()], 2.2),
        ([StandardScaler()], 3.5),
        ([StandardScaler(), PCA(5)], 1.2),
        ([Normalizer()], 0.02),
    ],
)
def test_network_is_the_rule_of_dbscan(steps, eps, dense, monkeypatch):
    monkeypatch.setattr("neonxc.head.members.DENSE", dense)  # by search and by all distances
    model = fitted(*steps, eps=eps)
    net = neuralize(model, WINE)
    (values, _, _) = distances(model, WINE)
    assert net.fidelity_ is None
    assert net.classes_.tolist() == [*range(values.shape[1] - 1), -1]
    x = torch.tensor(WINE.to_numpy())
    assert_allclose(net.head.values(x), values - values.min(1, keepdims=True), rtol=1e-9, atol=1e-12)
    others = np.stack([np.delete(values, k, 1).min(1) for k in range(values.shape[1])], 1)
    assert_allclose(net(x), others - values, rtol=1e-9, atol=1e-12)
    labels = model[-1].labels_
    core = model[-1].core_sample_indices_
    assert (net.predict(WINE)[core] == labels[core]).all()
    border = (values[:, :-1] <= values[:, -1:]).sum(1) > 1  # within reach of two clusters
    assert (net.predict(WINE) == labels)[~border].all()
    relevance = NEON(net).attribute(WINE)
    assert_allclose(relevance.sum(axis=1), net(x).amax(1), rtol=1e-9, atol=1e-12)


def test_relevance_compares_core_points():
    model = fitted(StandardScaler())
    net = neuralize(model, WINE)
    (squared, z, core) = distances(model, WINE)
    neon = NEON(net)
    terms = (z[:, None] - core) ** 2
    reach = np.stack([shared_by_nearest(model, z, k, 4) for k in range(core.shape[1])], 1)
    excess = reach - model[-1].eps ** 2 / z.shape[1]
    # the columns' shares in the values of clusters and noise, by the cases of the definition
    values = np.concatenate([excess, np.zeros((len(z), 1, z.shape[1]))], 1)
    for row in np.flatnonzero((squared[:, :-1] <= squared[:, -1:]).any(1)):
        a = squared[row, :-1].argmin()
        values[row] = [*(terms[row] - terms[row, a]), -excess[row, a]]
    for target, competitor in ((0, 1), (-1, 1), (1, -1), (-1, 0)):
        found = neon.attribute(WINE, target=target, competitor=competitor)
        assert_allclose(found, values[:, competitor] - values[:, target], rtol=1e-9, atol=1e-12)
    noise = model[-1].labels_ == -1
    summary = neon.summary(WINE)
    assert_allclose(summary.relevance[-1], neon.attribute(WINE)[noise].mean())
    assert f"noise ({noise.sum()} points)" in str(summary)
    assert neuralize(model, WINE[~noise]).beta == pytest.approx(net.beta)


def test_noise_shares_its_distance_among_all_members_of_a_small_cluster():
    X = np.array([[0.0, 0], [1, 0], [0, 1], [10, 10], [11, 10], [10, 11], [3, 1]])
    net = neuralize(DBSCAN(1.5, min_samples=3).fit(X), X)
    found = NEON(net).attribute(X[-1:], target=-1, competitor=0)
    # the nearest member (1, 0) is at 5; the differences to the three are (3, 1), (2, 1) and (3, 0)
    assert_allclose(found, [[5 * 22 / 24 - 1.5**2 / 2, 5 * 2 / 24 - 1.5**2 / 2]])


def test_a_column_that_made_rows_noise_is_found():
    X, _ = make_blobs(500, 4, centers=3, random_state=0)
    model = DBSCAN(1.5).fit(X)
    rng = np.random.default_rng(0)
    moved = X[model.core_sample_indices_][:80].copy()
    columns = rng.integers(0, 4, len(moved))
    moved[np.arange(len(moved)), columns] += 5.0
    net = neuralize(model, X)
    is_noise = net.predict(moved) == -1
    found = NEON(net).attribute(moved, target=-1).argmax(axis=1)
    assert (found == columns)[is_noise].mean() > 0.95


def test_float32_and_sparse():
    X = load_digits().data[:600] + np.random.default_rng(0).normal(size=(600, 64))  # no ties
    model = DBSCAN(eps=20).fit(X)
    net = neuralize(model, X)
    assert (net.predict(X) == model.labels_).mean() > 0.99
    exact = NEON(net).attribute(X[:50])
    assert_allclose(NEON(net).attribute(X[:50].astype(np.float32)), exact, atol=1e-3)
    counts = neuralize(DBSCAN(eps=20).fit(csr_matrix(X)))
    assert_allclose(NEON(counts).attribute(csr_matrix(X[:50])).sum(1), exact.sum(1))


def test_threads_do_not_mix_their_searches(monkeypatch):
    monkeypatch.setattr("neonxc.head.members.DENSE", 0)
    X, _ = make_moons(600, noise=0.08, random_state=0)
    net = neuralize(DBSCAN(0.1).fit(X), X)
    parts = np.array_split(X, 30)
    wanted = [net.predict(part) for part in parts]
    with ThreadPoolExecutor(8) as pool:
        for found, labels in zip(pool.map(net.predict, parts * 5), wanted * 5, strict=True):
            assert_array_equal(found, labels)


def test_optics_cut_at_a_radius():
    X = StandardScaler().fit_transform(WINE)
    optics = OPTICS(min_samples=5, cluster_method="dbscan", eps=2.2)
    net = neuralize(make_pipeline(StandardScaler(), optics).fit(WINE), WINE)
    dbscan = neuralize(DBSCAN(eps=2.2).fit(X), X)
    assert_array_equal(np.sort(net.predict(WINE)), np.sort(dbscan.predict(X)))
    moons, _ = make_moons(200, noise=0.02, random_state=0)
    assert neuralize(OPTICS().fit(moons), moons).fidelity_ > 0.5


def test_features_of_images():
    images = torch.rand(60, 3, 8, 8)
    images[30:, 0] += 2
    layers = torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    backbone = torch.nn.Sequential(*layers).eval()
    points = backbone(images).detach().double()
    model = DBSCAN(float(torch.cdist(points, points).kthvalue(8, dim=1).values.max())).fit(points)
    net = neuralize(model, images, backbone)
    assert (net.predict(images).numpy() == model.labels_).mean() > 0.9
    assert NEON(net).heatmaps(images[:2]).shape == (2, len(net.classes_), 8, 8)
    found = NEON(net).attribute(images[:2]), NEON(net, head_rule="midpoint").attribute(images[:2])
    assert [one.any() for one in found] == [False, True]  # the slope of the distance to a core point, at itself


@pytest.mark.parametrize("target", [None, -1, 0])
def test_counterfactuals(target):
    X, _ = make_moons(1500, noise=0.08, random_state=0)
    model = DBSCAN(eps=0.08, min_samples=8).fit(X)
    net = neuralize(model, X)
    some = X[np.r_[0:6, np.flatnonzero(net.predict(X) == -1)[:6]]]
    found = counterfactual(net, some, target=target, spread=np.ones(2))
    assert found.found.all()
    assert not found.exact
    assert (net.predict(found.points) == found.target).all()
    if target == 0:  # the nearest point of the ball around the nearest core point
        cores = model.components_[model.labels_[model.core_sample_indices_] == 0]
        least = (cdist(some, cores).min(1) - model.eps).clip(0)
        assert (np.linalg.norm(found.points - some, axis=1) <= least + 0.01).all()


def grid(kind, seed):
    """Points of a grid, a radius that is the distance of some of them, and steps."""
    draw = np.random.default_rng(seed)
    X = draw.integers(0, 4, (draw.integers(24, 80), draw.integers(1, 6))).astype(float)
    factor = 0.1 if "tenths" in kind else 1
    squared = draw.integers(1, 5)
    X = (X + draw.integers(0, 9)) * factor
    eps = squared**0.5 * factor
    return (X.astype(np.float32) if "float32" in kind else X), eps * (0.7 if "scaled" in kind else 1)


@pytest.mark.parametrize("kind", ["whole", "whole float32", "tenths", "tenths float32", "scaled"])
def test_points_at_the_radius_are_in_their_cluster_as_for_dbscan(kind):
    for seed in range(20):
        X, eps = grid(kind, seed)
        scaler = StandardScaler() if kind == "scaled" else FunctionTransformer()
        model = make_pipeline(scaler, DBSCAN(eps, min_samples=4)).fit(X)
        if (core := model[-1].core_sample_indices_).size:
            net = neuralize(model, X)
            z = model[0].transform(X).astype(np.float64)
            near = cdist(z, z[core]) <= eps * (1 + 1e-6)
            alone = [len({*model[-1].labels_[core][row]}) < 2 for row in near]  # not within reach of two clusters
            labels = model[-1].labels_[alone]
            assert (net.predict(X)[alone] == labels).all()
            logits = net(torch.tensor(X))[alone]
            assert (logits.argmax(1) == net.positions(labels)).all()
            assert (logits.amax(1) > 0).all()


def test_rows_at_the_radius_of_a_core_point():
    X = np.array([[3.0], [1], [2], [0], [3], [0], [1]])
    net = neuralize(DBSCAN(1, min_samples=4).fit(X), X)
    assert net.predict([[-1.0 + 2**-52], [-1.0], [np.nextafter(-1, -2)]]).tolist() == [0, 0, -1]
    behind = neuralize(make_pipeline(MinMaxScaler(), DBSCAN(1 / 3, min_samples=4)).fit(X), X)
    assert behind.predict([[-1.0], [4.0], [4.001]]).tolist() == [0, -1, -1]
    X /= 10  # 0.3 - 0.2 is below 0.1, and 0.4 - 0.3 is above it
    optics = OPTICS(min_samples=4, cluster_method="dbscan", eps=0.1).fit(X)
    assert (neuralize(optics, X).predict(np.r_[X, X + 0.1]) != -1).sum() == 12
