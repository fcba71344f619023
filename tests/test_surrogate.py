"""Clusterings that are known by their labels alone, through a kernel k-means."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
import sklearn.datasets
import torch
from numpy.random import default_rng
from refusals import refused
from scipy.spatial.distance import cdist
from sklearn.cluster import DBSCAN, HDBSCAN, OPTICS, AgglomerativeClustering, SpectralClustering
from sklearn.compose import ColumnTransformer
from sklearn.datasets import make_blobs, make_circles, make_moons
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

import neonxc
from neonxc import NEON, neuralize
from neonxc.clusterings.supports import labelled
from neonxc.clusterings.surrogate import radii

SHAPES = {
    "moons": make_moons(300, noise=0.05, random_state=0),
    "circles": make_circles(300, factor=0.5, noise=0.04, random_state=0),
}
MODELS = {
    "dbscan": lambda: DBSCAN(eps=0.25, metric="cityblock"),
    "hdbscan": lambda: HDBSCAN(min_cluster_size=20, metric="manhattan", copy=True),
    "optics": lambda: OPTICS(min_samples=5, cluster_method="dbscan", eps=0.25, metric="cityblock"),
    "single linkage": lambda: AgglomerativeClustering(2, linkage="single"),
    "spectral": lambda: SpectralClustering(2, gamma=40.0, random_state=0),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name == "optics")) for name in MODELS]
)
def test_clusters_of_any_shape(name):
    X, _ = SHAPES["circles" if name in ("optics", "spectral") else "moons"]
    model = MODELS[name]().fit(X)
    clustered = model.labels_ != -1
    net = neuralize(model, X)
    assert net.classes_.tolist() == [0, 1] + [-1] * (not clustered.all())
    assert net.fidelity_ >= 0.99
    assert net.fidelity_held_out_ >= 0.98
    columns = net(torch.tensor(X)).argmax(1).numpy()
    assert (columns == model.labels_)[clustered].mean() == pytest.approx(net.fidelity_)
    assert (net(torch.tensor(X)) > 0).sum(1).tolist() == [1] * len(X)


@pytest.mark.parametrize("steps", [[], [StandardScaler(), PCA(whiten=True)]])
def test_noise_is_left_out_and_told_apart(steps, tmp_path):
    far = default_rng(0).uniform(-3, 4, (60, 2))
    X = np.append(SHAPES["moons"][0], far[np.abs(far[:, 1]) > 1.6], axis=0)
    X = X @ [[2.0, 1.0], [0.3, -1.0]] + 7 if steps else X
    model = make_pipeline(*steps, DBSCAN(eps=0.25, metric="cityblock")).fit(X)
    given = model[-1].labels_
    net = neuralize(model, X)
    assert net.classes_.tolist() == [0, 1, -1]
    labels = net.predict(X)
    assert (labels == given).mean() >= 0.98
    assert ((labels == -1) == (given == -1)).mean() >= 0.98 > (given != -1).mean()
    neonxc.save(net, tmp_path / "net")
    back = neonxc.load(tmp_path / "net")
    for name in ("fidelity_", "fidelity_held_out_", "stability_", "noise_held_out_"):
        assert getattr(back, name) == getattr(net, name) > 0.9
    assert (NEON(back).attribute(X) == NEON(net).attribute(X)).all()  # of noise, too


def test_labels_without_structure_warn():
    """They are not learned by heart either, as gamma is chosen by points that are left out."""
    rng = default_rng(0)
    told = r"the surrogate gives \d\d% of the points (held out from a fit to the others )?their label"
    with pytest.warns(UserWarning, match=told) as caught:
        net = neuralize(labels=rng.integers(0, 3, 300), X=rng.normal(size=(300, 10)))
    assert caught[0].filename == __file__
    assert max(net.fidelity_, net.fidelity_held_out_) < 0.6


def left_out(x, y, gamma):
    """Cross entropy of each point by the kernel sums of all other points."""
    kernel = np.exp(-gamma * cdist(x, x, "sqeuclidean"))
    own = np.eye(y.max() + 1)[y]
    np.fill_diagonal(kernel, 0)
    means = kernel @ own / (own.sum(0) - own)
    return -np.log((means * own).sum(1) / means.sum(1))


def test_gamma_is_the_least_within_a_standard_error_of_the_best():
    X, y = make_blobs(90, 3, centers=3, cluster_std=3.0, random_state=0)
    grid = neuralize(labels=y, X=X).head.grouping.gamma * 2.0 ** np.arange(-4, 6)
    losses = [left_out(X, y, gamma) for gamma in grid]
    best = min(losses, key=np.mean)
    bound = best.mean() + best.std() / np.sqrt(90)
    assert losses[4].mean() == pytest.approx(bound, rel=0.03)
    assert losses[3].mean() > bound


def test_many_points_are_condensed(monkeypatch):
    """Into means of a k-means within the clusters, whose weights are their shares of the points."""
    monkeypatch.setattr("neonxc.clusterings.supports.MAX_SUPPORTS", 60)
    X, y = make_blobs(200, 2, centers=4, random_state=0)
    x = torch.tensor(X - X.mean(0))
    labels = torch.tensor(y)
    found = labelled(x, labels, 4)
    assert len(found.flat()[0]) <= 60
    weights = found.log_weights.exp()
    assert torch.allclose(weights.sum(1), torch.ones(4).double())
    means = (weights[..., None] * found.points).sum(1)
    assert torch.allclose(means, torch.stack([x[labels == k].mean(0) for k in range(4)]), atol=1e-2)
    near = torch.cdist(x, found.points.flatten(0, 1)).amin(1)
    assert near.mean() < 0.5 * torch.cdist(x, means).amin(1).mean()


def test_neither_order_nor_scale_matter():
    X, y = make_moons(200, noise=0.15, random_state=0)
    order = default_rng(0).permutation(len(X))
    net = neuralize(labels=y, X=X)
    other = neuralize(labels=y[order], X=X[order])
    one = NEON(net).attribute(X)
    two = NEON(other).attribute(X)
    assert np.linalg.norm(one - two) <= 1e-9 * np.linalg.norm(one)
    assert net.stability_ == other.stability_
    for unit in (2**-10, 2**10):
        gamma = neuralize(labels=y, X=X * unit).head.grouping.gamma * unit**2
        assert gamma == pytest.approx(net.head.grouping.gamma)


def test_explanations_hardly_change_when_some_rows_are_left_out():
    X = StandardScaler().fit_transform(sklearn.datasets.load_iris().data)
    y = AgglomerativeClustering(3).fit(X).labels_
    net = neuralize(labels=y, X=X)
    before = NEON(net).attribute(X)
    changes = []
    for seed in range(3):
        kept = default_rng(seed).random(len(X)) > 0.05
        after = NEON(neuralize(labels=y[kept], X=X[kept])).attribute(X, target=net.predict(X))
        changes.append(np.linalg.norm(after - before) / np.linalg.norm(before))
    assert np.mean(changes) < 0.1
    assert net.stability_ == pytest.approx(1 - np.mean(changes), abs=0.1)


def test_a_lost_cluster_warns():
    """Most points get their label, and few of those of a small cluster among the others."""
    rng = default_rng(0)
    X = np.concatenate([rng.normal(size=(970, 4)), rng.normal(0.5, size=(30, 4))])
    y = np.repeat([0, 1], [970, 30])
    with pytest.warns(UserWarning, match=r"their label, \d+% in cluster small: it"):
        neuralize(labels=np.where(y, "small", "large"), X=X)


def test_clusters_of_their_own_do_not_warn(recwarn):
    X, y = make_blobs(300, 3, centers=5, cluster_std=0.5, random_state=0)
    away = np.arange(300) % 50 == 0
    neuralize(labels=np.where(away, -1, y), X=X + 30 * away[:, None])
    assert not recwarn.list


def best_cut(far, clustered):
    """By trial of every cut: how many points it tells apart as the labels do."""
    return max(int(((far <= cut) == clustered).sum()) for cut in [-np.inf, *far])


@pytest.mark.parametrize("seed", range(4))
def test_radii_are_the_best_of_all_cuts(seed):
    rng = default_rng(seed)
    far = rng.uniform(0, 3, 120).round(1 if seed % 2 else 9)  # some are equal
    nearest = rng.integers(0, 4, 120)
    clustered = rng.random(120) < 0.7 - 0.5 * (far > 2)
    clustered[nearest == 1] = True
    clustered[nearest == 2] = False

    def cuts(nearest, clustered, k):
        return radii(*map(torch.tensor, (far, nearest, clustered)), k).numpy()

    found = cuts(nearest, clustered, 4)
    for k in (0, 3):
        own = nearest == k
        assert ((far[own] <= found[k]) == clustered[own]).sum() == best_cut(far[own], clustered[own])
        values = np.unique(far[own])  # midway between two of the points
        assert np.abs((values[1:] + values[:-1]) / 2 - found[k]).min() < 1e-12
    assert found[2] == -np.inf
    (common,) = cuts(0 * nearest, clustered, 1)
    assert ((far <= common) == clustered).sum() == best_cut(far, clustered)
    assert max(common, far[nearest == 1].max()) <= found[1] <= 1.0011 * max(common, far[nearest == 1].max())
    all_clustered = cuts(nearest, clustered | True, 5)
    assert np.isfinite(all_clustered).all()
    assert (far <= all_clustered[nearest]).all()


@pytest.mark.filterwarnings("ignore:the surrogate tells noise")
def test_outside_is_beyond_the_nearest_clusters_radius():
    """By every distance in turn, behind a chain that scales columns; the clusters have three sizes."""
    rng = default_rng(0)
    centers = np.array([[0.0, 0], [10, 0], [0, 14]])
    sizes = np.array([0.2, 1.0, 3.0])
    own = rng.integers(0, 3, 225)
    blobs = centers[own] + sizes[own, None] * rng.normal(size=(225, 2))
    X = np.concatenate([blobs, rng.uniform(-9, 22, (75, 2))])
    model = make_pipeline(StandardScaler(), DBSCAN(eps=0.15, min_samples=4, metric="cityblock"))
    net = neuralize(model.fit(X), X)
    z = model[0].transform(X)
    back = z[rng.integers(0, len(z), 60)] + rng.normal(scale=0.1, size=(60, 2))
    plain = neuralize(labels=model[-1].labels_, X=z)  # the same supports, where the chain ends
    detection = plain.head.detection.clusters
    members = plain.head.grouping.clusters
    anchors = (2 * detection.anchors + detection.origin + detection.root).numpy()
    kernel = members.log_weights.exp().numpy() * np.exp(-members.gamma * cdist(back, anchors, "sqeuclidean"))
    sums = kernel @ np.eye(members.n_groups)[members.groups] + 1e-300
    far = -np.log(sums.max(1)) / members.gamma
    expected = far > plain.head.detection.radius.numpy()[sums.argmax(1)]
    assert 0 < sum(expected) < 60
    assert (plain.predict(back) == -1).tolist() == expected.tolist()
    assert (net.predict(model[0].inverse_transform(back)) == -1).tolist() == expected.tolist()


def test_noise_that_distances_do_not_tell_warns(recwarn):
    X, y = SHAPES["moons"]
    labels = np.where(np.arange(300) % 7 == 0, -1, y)
    net = neuralize(labels=labels, X=X)
    told = [str(warning.message) for warning in recwarn if warning.filename == __file__]
    assert len(told) == 1
    assert "tells noise (label -1) apart as the labels do for " in told[0]
    agree = ((net.predict(X) == -1) == (labels == -1)).mean()
    assert (labels != -1).mean() <= agree < 0.95  # no worse than if nothing were noise
    assert float(re.search(r"([\d.]+)% of the points", told[0])[1]) == pytest.approx(100 * agree, abs=1)


@pytest.mark.parametrize("most", [3000, 60])
def test_points_left_out_of_their_supports(most, monkeypatch):
    monkeypatch.setattr("neonxc.clusterings.supports.MAX_SUPPORTS", most)
    X, y = (torch.tensor(part) for part in make_blobs(90, centers=3, random_state=0))
    # a cluster of one point
    y[y == 2] = 1
    y[0] = 2
    members = labelled(X, y, 3)
    found = members.left_out(X, y)
    assert found[0, 2] == torch.inf
    for i in range(1, 90):
        mass = members.log_weights.exp() * y.bincount()[:, None]
        far = (members.points - X[i]).square().sum(2)
        own = torch.where(mass[y[i]] > 0, far[y[i]], torch.inf).argmin()
        mass[y[i], own] -= 1
        sums = (mass.clamp(min=0) * (-members.gamma * far).exp()).sum(1)
        wanted = -(sums / y.bincount()).log() / members.gamma
        torch.testing.assert_close(found[i], wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.filterwarnings("ignore:the surrogate tells noise")
def test_noise_of_new_points():
    """Radii that suit the points of the fit, which lie near themselves, took many new points for noise."""
    X, y = make_moons(800, noise=0.07, random_state=0)
    rng = default_rng(0)
    X = np.append(X, rng.uniform(X.min(0) - 0.5, X.max(0) + 0.5, (200, 2)), axis=0)
    y = np.append(y, [-1] * 200)
    order = rng.permutation(1000)
    fit = order[:500]
    new = order[500:]
    net = neuralize(labels=y[fit], X=X[fit])
    agree = ((net.predict(X[new]) == -1) == (y[new] == -1)).mean()
    assert agree > 0.88
    assert net.noise_held_out_ == pytest.approx(agree, abs=0.05)
    assert neuralize(labels=y[y >= 0][:50], X=X[y >= 0][:50]).noise_held_out_ is None


def test_noise_that_new_points_would_differ_in_warns():
    X = sklearn.datasets.load_digits().data[:600]
    model = HDBSCAN(min_cluster_size=10, copy=True).fit(X)
    with pytest.warns(UserWarning, match=r"noise \(label -1\) .* for 8[89]% of points held out from a fit"):
        net = neuralize(labels=model.labels_, X=X)
    assert ((net.predict(X) == -1) == (model.labels_ == -1)).mean() > 0.95 > net.noise_held_out_


def test_a_few_points_amid_noise():
    """The best cut calls all of them noise: few points err, and that is told all the same."""
    rng = default_rng(0)
    X = rng.uniform(-1, 1, (300, 2))
    y = np.full(300, -1)
    y[:12] = np.arange(12) % 2
    with pytest.warns(UserWarning, match="of the clustered points for noise"), pytest.warns(match="their label"):
        net = neuralize(labels=y, X=X)
    assert (net.predict(X) == -1).mean() > 0.95
    assert net.fidelity_ == (net.predict(X) == y)[:12].mean() < 0.5
    assert 0 < net.beta < np.inf


def test_frames_through_a_pipeline():
    frame = pd.DataFrame(SHAPES["moons"][0], columns=["left", "right"])
    step = ColumnTransformer([("scaled", StandardScaler(), ["right", "left"])])
    model = make_pipeline(step, DBSCAN(eps=0.4, metric="cityblock")).set_output(transform="pandas").fit(frame)
    net = neuralize(model, frame)
    assert net.fidelity_ == 1.0
    assert list(NEON(net).attribute(frame).columns) == ["left", "right"]


@pytest.mark.filterwarnings("ignore:the surrogate gives")
def test_columns_that_are_repeated():
    """The supports lie in the part of the space that points are mapped to."""
    X = default_rng(0).uniform(-1, 1, (200, 2))
    y = (np.sin(4 * X[:, 0]) + X[:, 1] > 0).astype(int)
    twice = ColumnTransformer([("scaled", StandardScaler(), [0, 1]), ("range", MinMaxScaler(), [0, 1])])
    model = make_pipeline(twice, AgglomerativeClustering(2)).fit(X)
    model[-1].labels_ = y
    net = neuralize(model, X)
    behind = neuralize(labels=y, X=twice.transform(X))
    assert (net.predict(X) == y).mean() == pytest.approx(net.fidelity_)
    assert torch.allclose(net(torch.tensor(X)), behind(torch.tensor(twice.transform(X))))


def test_on_features():
    X, y = SHAPES["moons"]
    encoder = torch.nn.Linear(2, 2).double()
    names = np.where(y == 1, "upper", "lower")
    net = neuralize(labels=names, X=X, features=encoder)
    assert (net.predict(X) == names).mean() == net.fidelity_ >= 0.99
    assert NEON(net).attribute(X).shape == X.shape
    noisy = torch.nn.Sequential(encoder, torch.nn.Dropout())
    refused("is in training mode: its Dropout", neuralize, labels=y, X=X, features=noisy)


def test_clusters_too_small_to_hold_any_out():
    X = np.array([[0.0, 0], [5, 5], [9, 0]])
    net = neuralize(labels=[0, 1, 2], X=X)
    assert net.fidelity_ == 1.0
    assert net.fidelity_held_out_ is None
