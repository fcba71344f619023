"""Clusterings that are known by their labels alone, through a kernel k-means."""

from __future__ import annotations

import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.cluster import DBSCAN, HDBSCAN, OPTICS, AgglomerativeClustering, SpectralClustering
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_digits, make_blobs, make_circles, make_moons
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

import neonxc
from neonxc.surrogate import ENOUGH, _warn_of_labels, agreement, fitted, refined

SHAPES = {
    "moons": make_moons(500, noise=0.05, random_state=0),
    "circles": make_circles(500, factor=0.5, noise=0.04, random_state=0),
}
MODELS = {
    "dbscan": lambda: DBSCAN(eps=0.2),
    "hdbscan": lambda: HDBSCAN(min_cluster_size=20, copy=True),
    "optics": lambda: OPTICS(min_samples=5, cluster_method="dbscan", eps=0.2),
    "single linkage": lambda: AgglomerativeClustering(2, linkage="single"),
    "spectral": lambda: SpectralClustering(2, gamma=40.0, random_state=0),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", MODELS)
def test_clusters_of_any_shape(name, shape):
    X, _ = SHAPES[shape]
    model = MODELS[name]().fit(X)
    clustered = model.labels_ != -1
    net = neonxc.neuralize(model, X)
    assert net.classes_.tolist() == [0, 1]
    assert net.fidelity_ >= 0.99
    assert net.fidelity_held_out_ >= 0.99
    columns = net(torch.tensor(X)).argmax(1).numpy()
    assert (columns == model.labels_)[clustered].mean() == pytest.approx(net.fidelity_)
    assert (net(torch.tensor(X)) > 0).sum(1).tolist() == [1] * len(X)


def test_noise_is_left_out_and_told_apart():
    X, _ = SHAPES["moons"]
    far = np.random.default_rng(0).uniform(-3, 4, (60, 2))
    X = np.concatenate([X, far[np.abs(far[:, 1]) > 1.6]])
    model = DBSCAN(eps=0.2).fit(X)
    noise = model.labels_ == -1
    assert noise.sum() > 10
    net = neonxc.neuralize(model, X)
    assert -1 not in net.classes_
    labels = net.predict(X)
    assert (labels == model.labels_).mean() >= 0.99
    assert ((labels == -1) == noise).mean() >= 0.99
    assert neonxc.NEON(net).attribute(X).shape == X.shape  # noise, too, is nearer to one cluster than to others
    tensor = net.predict(torch.tensor(X))
    assert (tensor.numpy() == labels).all()


def test_noise_behind_a_pipeline_that_mixes_columns():
    from sklearn.decomposition import PCA

    X, _ = SHAPES["moons"]
    X = np.concatenate([X, [[5.0, 5.0], [-4.0, 3.0], [4.0, -4.0]]]) @ [[2.0, 1.0], [0.3, -1.0]] + 7
    model = make_pipeline(StandardScaler(), PCA(whiten=True), DBSCAN(eps=0.25)).fit(X)
    net = neonxc.neuralize(model, X)
    assert (net.predict(X) == model[-1].labels_).mean() >= 0.99
    assert net.predict(X)[-3:].tolist() == [-1, -1, -1]


def test_given_labels():
    X, moon = SHAPES["moons"]
    names = np.where(moon == 1, "upper", "lower")
    frame = pd.DataFrame(X, columns=["left", "right"])
    net = neonxc.neuralize(labels=names, X=frame)
    assert net.fidelity_ >= 0.99
    assert (net.predict(frame) == names).mean() == net.fidelity_
    assert list(neonxc.NEON(net).attribute(frame).columns) == ["left", "right"]
    tensors = neonxc.neuralize(labels=torch.tensor(moon), X=torch.tensor(X, dtype=torch.float32))
    assert tensors.fidelity_ >= 0.99


def test_refinement_follows_the_labels():
    """Labels that no mixture of the points has: the decision moves to the boundary between them."""
    rng = np.random.default_rng(0)
    x = torch.tensor(rng.uniform(-1, 1, (600, 2)))
    y = (x[:, 0] + 0.4 * x[:, 1] > 0.5).long()  # a line through even points
    start = fitted(x, y, 2)
    assert agreement(start, x, y) >= ENOUGH
    from neonxc.models.kernel.supports import uniform

    poor = uniform(torch.tensor([[[-0.5, 0.0]], [[0.9, 0.3]]], dtype=torch.float64), 2.0)
    better = refined(poor, x, y)
    assert agreement(better, x, y) > agreement(poor, x, y) + 0.05


def test_real_clusters():
    X = load_digits().data[:800]
    model = AgglomerativeClustering(10).fit(X)
    net = neonxc.neuralize(model, X)
    assert net.fidelity_ >= 0.99
    assert 0.9 <= net.fidelity_held_out_ <= 1


def test_labels_without_structure_warn():
    X = np.random.default_rng(0).normal(size=(300, 2))
    y = np.random.default_rng(1).integers(0, 2, 300)
    with pytest.warns(UserWarning, match=r"the surrogate gives \d\d\.\d% of the points held out from a") as caught:
        net = neonxc.neuralize(labels=y, X=X)
    assert caught[0].filename == __file__
    assert net.fidelity_ < 0.95
    assert net.fidelity_held_out_ < 0.7


def test_labels_that_are_learned_by_heart_warn():
    """There are enough supports for every point of many columns, and held-out ones tell."""
    rng = np.random.default_rng(0)
    with pytest.warns(UserWarning, match=r"gives \d\d\.\d% of the points held out from a fit to the others their"):
        net = neonxc.neuralize(labels=rng.integers(0, 3, 300), X=rng.normal(size=(300, 10)))
    assert net.fidelity_ > 0.99
    assert net.fidelity_held_out_ < 0.5


def test_a_lost_cluster_warns():
    """Most points get their label, and few of those of a small cluster among the others."""
    rng = np.random.default_rng(0)
    X, y = np.concatenate([rng.normal(size=(970, 4)), rng.normal(0.5, size=(30, 4))]), np.repeat([0, 1], [970, 30])
    with pytest.warns(UserWarning, match=r"their label, \d+% in cluster small: it"):
        neonxc.neuralize(labels=np.where(y, "small", "large"), X=X)


def test_a_lost_cluster_warns_whatever_the_others_do():
    right, labels = torch.arange(200) > 3, (torch.arange(200) < 6).long()
    with pytest.warns(UserWarning, match=r"gives 98.0% of the points their label, 33% in cluster b: it"):
        _warn_of_labels(right, labels, np.array(["a", "b"]), "the points")


def test_clusters_of_their_own_do_not_warn(recwarn):
    X, y = make_blobs(300, 3, centers=5, cluster_std=0.5, random_state=0)
    away = np.arange(300) % 50 == 0
    neonxc.neuralize(labels=np.where(away, -1, y), X=X + 30 * away[:, None])
    assert not recwarn.list


def test_supports_weigh_as_much_as_their_points():
    """Fixed points of EM: a support's weight is the share of its cluster's points it is responsible for."""
    X, y = SHAPES["moons"]
    x, labels = torch.tensor(X), torch.tensor(y)
    supports = fitted(x, labels, 2)
    for k in (0, 1):
        own = supports.shares(supports.logits(x[labels == k])[:, k]).mean(0)
        weights = supports.log_weights[k].exp()
        assert float(weights.std()) > 0.005
        assert torch.allclose(own, weights, atol=2e-3)


def test_more_supports_where_ten_do_not_do():
    x = torch.tensor(np.random.default_rng(0).uniform(0, 6, (900, 2)))
    y = (x.floor().sum(1) % 2).long()  # 18 fields of a board for each label
    few, more = fitted(x, y, 2, (10,)), fitted(x, y, 2)
    assert more.log_weights.shape[1] > 10
    assert agreement(more, x, y) > agreement(few, x, y) + 0.03


def test_noise_just_outside():
    """What divides noise from clusters lies between the outermost points and the nearest noise."""
    rng = np.random.default_rng(0)
    angle, size = rng.uniform(0, 2 * np.pi, 400), np.sqrt(rng.uniform(0, 1, 400))
    size[:120] = rng.uniform(1.12, 1.2, 120)
    center = np.where(np.arange(400)[:, None] % 2 == 0, [0.0, 0.0], [10.0, 0.0])
    X = center + (size * np.array([np.cos(angle), np.sin(angle)])).T
    labels = np.where(np.arange(400) < 120, -1, np.arange(400) % 2)
    net = neonxc.neuralize(labels=labels, X=X)
    assert (net.predict(X) == labels).mean() > 0.97


def test_noise_that_distances_do_not_tell_warns(recwarn):
    X, y = SHAPES["moons"]
    labels = np.where(np.arange(500) % 7 == 0, -1, y)
    net = neonxc.neuralize(labels=labels, X=X)
    told = [str(warning.message) for warning in recwarn if warning.filename == __file__]
    assert len(told) == 1
    assert "tells noise (label -1) apart as the labels do for " in told[0]
    agree = ((net.predict(X) == -1) == (labels == -1)).mean()
    assert (labels != -1).mean() <= agree < 0.95  # no worse than if nothing were noise
    assert f"{agree:.1%} of the points" in told[0]


def test_columns_by_name():
    X, _ = SHAPES["moons"]
    frame = pd.DataFrame(X, columns=["left", "right"])
    columns = ColumnTransformer([("scaled", StandardScaler(), ["right", "left"])])
    net = neonxc.neuralize(make_pipeline(columns, DBSCAN(eps=0.3)).fit(frame), frame)
    assert net.fidelity_ == 1.0
    assert list(neonxc.NEON(net).attribute(frame).columns) == ["left", "right"]


@pytest.mark.parametrize("output", ["default", "pandas"])
def test_frames_through_a_pipeline(output):
    X, _ = SHAPES["moons"]
    frame = pd.DataFrame(X, columns=["left", "right"])
    model = make_pipeline(StandardScaler(), DBSCAN(eps=0.3)).set_output(transform=output).fit(frame)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert neonxc.neuralize(model, frame).fidelity_ == 1.0


@pytest.mark.filterwarnings("ignore:the surrogate gives")
def test_columns_that_are_repeated():
    """Gradient descent leaves the part of the space that points are mapped to; no logit minds."""
    X = np.random.default_rng(0).uniform(-1, 1, (400, 2))
    y = (np.sin(4 * X[:, 0]) + X[:, 1] > 0).astype(int)
    twice = ColumnTransformer([("scaled", StandardScaler(), [0, 1]), ("range", MinMaxScaler(), [0, 1])])
    model = make_pipeline(twice, AgglomerativeClustering(2)).fit(X)
    model[-1].labels_ = y
    net = neonxc.neuralize(model, X)
    assert (net.predict(X) == y).mean() == pytest.approx(net.fidelity_)
    assert net.fidelity_ > 0.97
    behind = neonxc.neuralize(labels=y, X=twice.transform(X))
    assert torch.allclose(net(torch.tensor(X)), behind(torch.tensor(twice.transform(X))))


def test_gamma_follows_the_scale():
    X, y = make_blobs(120, 3, centers=12, cluster_std=0.3, random_state=1)
    gammas = [neonxc.neuralize(labels=y, X=X * s).head.gamma * s**2 for s in (2**-10, 1, 2**10)]
    assert np.allclose(gammas, gammas[1])
    assert gammas[1] < 100


def test_on_features():
    torch.manual_seed(0)
    X, y = SHAPES["moons"]
    encoder = torch.nn.Linear(2, 2).double()
    net = neonxc.neuralize(labels=y, X=X, features=encoder)
    assert net.fidelity_ >= 0.99
    assert (net.predict(X) == y).mean() >= 0.99
    assert neonxc.NEON(net).attribute(X).shape == X.shape


def test_clusters_too_small_to_hold_any_out():
    X = np.array([[0.0, 0], [5, 5], [9, 0]])
    net = neonxc.neuralize(labels=[0, 1, 2], X=X)
    assert net.fidelity_ == 1.0
    assert net.fidelity_held_out_ is None


def test_save_and_load(tmp_path):
    X, _ = SHAPES["moons"]
    X = np.concatenate([X, [[9.0, 9.0]]])
    net = neonxc.neuralize(DBSCAN(eps=0.2).fit(X), X)
    neonxc.save(net, tmp_path / "net.safetensors")
    back = neonxc.load(tmp_path / "net.safetensors")
    assert (back.fidelity_, back.fidelity_held_out_) == (net.fidelity_, net.fidelity_held_out_)
    assert (back.predict(X) == net.predict(X)).all()
    assert back.predict(X)[-1] == -1
    assert (neonxc.NEON(back).attribute(X) == neonxc.NEON(net).attribute(X)).all()


def test_another_run_gives_the_same():
    X, y = make_blobs(200, 3, centers=4, random_state=0)
    first, second = (neonxc.neuralize(labels=y, X=X) for _ in range(2))
    assert torch.equal(first(torch.tensor(X)), second(torch.tensor(X)))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda X: neonxc.neuralize(DBSCAN().fit(X)), ValueError, "a DBSCAN, which remembers its labels alone"),
        (lambda X: neonxc.neuralize(DBSCAN(), X), NotFittedError, "DBSCAN"),
        (lambda X: neonxc.neuralize(labels=[0, 1]), ValueError, "needs the X it was fitted on"),
        (lambda X: neonxc.neuralize(labels=[0, 1], X=X), ValueError, r"one label per point, shape \(500,\)"),
        (lambda X: neonxc.neuralize(labels=np.zeros(500), X=X), ValueError, "at least 2 clusters"),
        (lambda X: neonxc.neuralize(labels=np.full(500, -1), X=X), ValueError, "noise"),
        (lambda X: neonxc.neuralize(), TypeError, "takes a model, or labels= and X="),
        (lambda X: neonxc.neuralize(DBSCAN().fit(X), X, labels=np.zeros(500)), TypeError, "takes a model, or"),
    ],
)
def test_refused(make, error, message):
    with pytest.raises(error, match=message):
        make(SHAPES["moons"][0])


def test_neonxc_alone_is_enough():
    """The core imports the models only when it needs them."""
    script = """
import sys, neonxc
assert not any(name.startswith("neonxc.models") for name in sys.modules)
from sklearn.cluster import DBSCAN
from sklearn.datasets import make_moons
X, _ = make_moons(200, noise=0.05, random_state=0)
assert neonxc.neuralize(DBSCAN(eps=0.25).fit(X), X).fidelity_ > 0.99
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
