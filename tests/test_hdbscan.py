"""HDBSCAN as a network, against its rule computed from all distances."""

import copy
import pickle

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from refusals import refused
from scipy.spatial.distance import cdist
from sklearn.cluster import HDBSCAN
from sklearn.datasets import load_wine, make_blobs
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

import neonxc
from neonxc import neuralize

WINE = load_wine().data
BLOBS, _ = make_blobs(300, 3, centers=4, cluster_std=1.2, random_state=1)
BLOBS = np.random.default_rng(0).permutation(np.r_[BLOBS, np.random.default_rng(1).uniform(-12, 12, (100, 3))])
FIT = BLOBS[:300]
NEW = BLOBS[300:]


def sklearn(**options):
    return HDBSCAN(**{"min_cluster_size": 8, "copy": True, **options})


def package(**options):
    return pytest.importorskip("hdbscan").HDBSCAN(**{"min_cluster_size": 8, **options})


class Rule:
    """The rule of a pipeline that ends in HDBSCAN, from its definition."""

    def __init__(self, model, X):
        self.final = model[-1]
        self.steps = model[:-1]
        self.z, self.labels = self.steps.transform(X), self.final.labels_
        self.q = (self.final.min_samples or self.final.min_cluster_size) + (not isinstance(self.final, HDBSCAN))
        self.members = [np.flatnonzero(self.labels == k) for k in range(self.labels.max() + 1)]
        self.core = np.sort(cdist(self.z, self.z))[:, self.q - 1]
        reached = self.reached(self.z, self.core)
        # members are within the radius, also where another row is as far
        least = [reached[self.labels != k, k].min() for k in range(len(self.members))]
        self.eps = np.maximum(least, [self.core[own].max() * (1 + 1e-9) for own in self.members])

    def reached(self, z, core):
        every = np.maximum(np.maximum(cdist(z, self.z), self.core), core[:, None])
        return np.stack([every[:, own].min(1) for own in self.members], 1)

    def values(self, X, new=False):
        """What the clusters and noise compete by, each row by itself."""
        z = self.steps.transform(X)
        far = cdist(z, self.z)
        core = np.sort(far)[:, self.q - 1 - new] if self.q - new else np.zeros(len(z))
        near = np.stack([far[:, own].min(1) for own in self.members], 1) ** 2
        excess = self.reached(z, core) ** 2 - self.eps**2
        found = np.c_[excess, np.zeros(len(z))]
        for row, (t, d) in enumerate(zip(excess, near, strict=True)):
            within = t < -1e-9 * self.eps**2
            if within.any():
                a = np.where(within, d, np.inf).argmin()
                found[row] = [*np.maximum(d - d[a], t), -t[a]]
        return found


def blobs(make, **options):
    """A fitted pipeline of HDBSCAN alone, and its data."""
    return make_pipeline(StandardScaler(with_mean=False, with_std=False), make(**options)).fit(FIT), FIT, NEW


def wine(*steps, **options):
    return make_pipeline(*steps, sklearn(**{"min_samples": 3, **options})).fit(WINE[::2]), WINE[::2], WINE[1::2]


CASES = {
    "one": lambda: blobs(sklearn, min_samples=1),
    "leaf": lambda: blobs(sklearn, min_samples=4, cluster_selection_method="leaf", cluster_selection_epsilon=0.9),
    "ten": lambda: blobs(sklearn, min_samples=10, allow_single_cluster=True),
    "single": lambda: blobs(sklearn, min_cluster_size=100, min_samples=4, allow_single_cluster=True),
    "default": lambda: blobs(sklearn),
    "package, one": lambda: blobs(package, min_samples=1),
    "package": lambda: blobs(package, min_samples=5, cluster_selection_method="leaf"),
    "package, epsilon": lambda: blobs(package, cluster_selection_epsilon=0.8, allow_single_cluster=True),
    "scaled": lambda: wine(StandardScaler()),
    "rotated": lambda: wine(StandardScaler(), PCA(4)),
    "of unit length": lambda: wine(StandardScaler(), Normalizer()),
}


@pytest.mark.parametrize(
    ("case", "dense"),
    [
        # by default, by search and by all distances in turns
        pytest.param(case, dense, marks=[pytest.mark.slow] * ((i + j) % 2))
        for i, case in enumerate(CASES)
        for j, dense in enumerate([0, 1 << 30])
    ],
)
def test_network_is_the_rule_of_hdbscan(case, dense, monkeypatch):
    monkeypatch.setattr("neonxc.head.members.DENSE", dense)
    model, X, new = CASES[case]()
    net = neuralize(model, X)
    rule = Rule(model, X)
    labels = model[-1].labels_
    assert net.fidelity_ is None
    assert (net.classes_ == [*range(labels.max() + 1), -1]).all()
    assert labels.min() == -1 < labels.max()
    tied = (np.abs(rule.reached(rule.z, rule.core) - rule.eps) < 1e-8 * rule.eps).any(1)  # others at the radius
    assert (net.predict(X) == labels)[~tied].all()
    assert tied.mean() < 0.1
    assert_allclose(net.head.detection.radii, rule.eps**2, rtol=1e-7)
    for points, values in ((X[~tied], rule.values(X)[~tied]), (new, rule.values(new, new=True))):
        others = np.stack([np.delete(values, k, 1).min(1) for k in range(values.shape[1])], 1)
        assert_allclose(net(torch.tensor(points)), others - values, rtol=1e-6, atol=1e-5)
        neon = neonxc.NEON(net)
        assert_allclose(neon.attribute(points).sum(1), (others - values).max(1), rtol=1e-6, atol=1e-5)
        for target, competitor in ((0, -1), (-1, 0), (-1, 1), (1, 0))[: None if labels.max() else 2]:
            found = neon.attribute(points, target=target, competitor=competitor).sum(1)
            wanted = values[:, competitor] - values[:, target]
            assert_allclose(found, wanted, rtol=1e-6, atol=1e-5)
    if "of unit" not in case:
        assert (net.predict(X.astype(np.float32)) == labels)[~tied].all()  # copies of the rows


@pytest.mark.parametrize(("min_samples", "n_members"), [(1, 4), (2, 4), (4, 4), (6, 6)])
def test_columns_share_reachability_by_the_nearest_members(min_samples, n_members):
    model, X, new = blobs(sklearn, min_samples=min_samples)
    net = neuralize(model, X)
    rule = Rule(model, X)
    values = rule.values(new, new=True)
    noise = values[:, :-1].min(1) > 0
    found = neonxc.NEON(net).attribute(new[noise], target=-1, competitor=1)
    squares = (new[noise][:, None] - X[rule.members[1]]) ** 2
    nearest = np.argsort(squares.sum(2))[:, :n_members, None]
    shares = np.take_along_axis(squares, nearest, 1).sum(1)
    reached = values[noise, 1] + rule.eps[1] ** 2
    wanted = reached[:, None] * shares / shares.sum(1, keepdims=True) - rule.eps[1] ** 2 / 3
    assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("case", ["package", "one", "scaled"])
def test_multipliers_are_gradients(case):
    model, X, new = CASES[case]()
    net = neuralize(model, X)
    x = torch.tensor(new, requires_grad=True)
    detection = net.head.detection
    weights = torch.randn(len(x), len(net.classes_)).double()
    neurons = detection.neurons(detection.located(x))
    (slope,) = torch.autograd.grad((neurons * weights).sum(), x)
    assert_allclose(detection.multiplier(detection.located(x.detach()), weights), slope, atol=1e-9)


def test_counterfactuals():
    model, X, new = blobs(sklearn, min_samples=4)
    net = neuralize(model, X)
    noise = new[net.predict(new) == -1]
    found = neonxc.counterfactual(net, noise[:3], target=0, spread=np.ones(3))
    assert found.found.all()
    assert (net.predict(found.points) == 0).all()


@pytest.mark.parametrize("min_samples", [1, 4])
def test_networks_that_have_searched_are_pickled_copied_and_saved(min_samples, monkeypatch, tmp_path):
    monkeypatch.setattr("neonxc.head.members.DENSE", 0)
    net = neuralize(sklearn(min_samples=min_samples).fit(FIT), FIT)
    wanted = net.predict(NEW)
    neonxc.save(net, tmp_path / "net")
    for other in (pickle.loads(pickle.dumps(net)), copy.deepcopy(net), neonxc.load(tmp_path / "net")):
        np.testing.assert_array_equal(other.predict(NEW), wanted)


@pytest.mark.filterwarnings("ignore:the surrogate")
@pytest.mark.parametrize(
    ("options", "round_to", "why"),
    [
        ({"metric": "manhattan"}, 9, "metric='manhattan'"),
        ({"alpha": 0.5}, 9, "alpha"),
        ({}, 0, "distances are equal"),
    ],
)
def test_others_keep_a_surrogate_and_say_why(options, round_to, why):
    X = np.round(FIT / 3, round_to)
    with pytest.warns(UserWarning, match=why):
        net = neuralize(sklearn(min_samples=4, **options).fit(X), X)
    assert net.fidelity_ > 0.9


def test_all_noise():
    refused("noise", neuralize, sklearn(min_cluster_size=200).fit(FIT), FIT)


REPEATED = [(0.1, 20), (1.0, 3), (3.0, 3), (3.0, 20)]


@pytest.mark.parametrize(
    ("spread", "n_columns"),
    [(0.1, 3), (1.0, 20), *(pytest.param(*case, marks=pytest.mark.slow) for case in REPEATED)],
)
def test_core_distances_and_radii_are_those_of_all_pairs(n_columns, spread):
    X, _ = make_blobs(1700, n_columns, centers=6, cluster_std=spread, random_state=0)
    X[:3] += 1000.0  # rows far from their cluster, which is noise
    model = make_pipeline(StandardScaler(), sklearn(min_cluster_size=30, min_samples=5)).fit(X)
    rule = Rule(model, X)
    detection = neuralize(model, X).head.detection
    assert_allclose(detection.core.sort().values, np.sort(rule.core), rtol=1e-8)
    assert_allclose(detection.radii, rule.eps**2, rtol=1e-7)
