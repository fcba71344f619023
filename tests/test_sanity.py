"""Sanity checks of explanations, on networks of which the answer is known."""

import copy

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from refusals import refused
from scipy.stats import spearmanr
from sklearn.cluster import KMeans
from torch import nn
from torch.testing import assert_close

import neonxc
from neonxc.evaluation import methods, sanity

X = np.random.default_rng(0).normal(size=(60, 6)) * [1, 2, 3, 4, 5, 6]


def clustered(k):
    return neonxc.neuralize(KMeans(k, n_init=2, random_state=0).fit(X), X)


@pytest.fixture
def deep():
    """A clustering of features of random images."""
    maps = nn.Conv2d(3, 8, 3), nn.Tanh(), nn.Conv2d(8, 8, 3), nn.Tanh(), nn.Flatten()
    features = nn.Sequential(*maps, nn.Linear(8 * 144, 20), nn.Tanh(), nn.Linear(20, 12)).requires_grad_(False)
    images = torch.randn(9, 3, 16, 16)
    return neonxc.neuralize(features(images)[:4], images, features), images


def seen_by(net, x, **options):
    """The first three networks that a method is given before it fails: the clustering and copies of it."""
    seen = []

    def method(net, x, target):
        seen.append(net)
        return x[: len(x) * (len(seen) < 3)]

    refused("is empty", sanity, net, x, [method], **options)
    return seen


def test_the_runner_up():
    assert_allclose(sanity(clustered(2), X, ["NEON", "x²"]).to_frame()["runner-up"], [-1, 1])
    net = clustered(4)
    found = sanity(net, X, ["NEON"], points=5)
    x = X[found.rows_]
    labels = net(torch.as_tensor(x)).argsort(1, descending=True).numpy()
    own, other = (neonxc.NEON(net).attribute(x, labels[:, i]) for i in (0, 1))
    expected = [spearmanr(a, b)[0] for a, b in zip(own, other, strict=True)]
    assert_allclose(found.per_input["NEON"]["runner-up"], expected)
    assert f"| {np.mean(expected):.2f} ± {np.std(expected, ddof=1) / 5**0.5:.2f} |" in str(found)


def test_random_centers_have_the_coordinates_of_the_centers():
    net = clustered(5)
    other = seen_by(net, X)[1]
    before, after = (one.head.detection.references for one in (net, other))
    assert not torch.equal(before, after)
    assert_close(before.sort(0)[0], after.sort(0)[0])
    x = torch.as_tensor(X)
    assert torch.equal(other(x).argmax(1), torch.cdist(x, after).argmin(1))


def test_explanations_that_ignore_the_network_and_those_of_a_random_one(deep):
    found = sanity(*deep, ["x²", methods.gradient], groups="pixels").to_frame().filter(regex="centers|of")
    assert found.shape == (2, 5)
    assert_allclose(found.loc["x²"], 1)
    assert (found.loc["gradient"][1:] < 0.2).all()  # 256 pixels: 0.05 by chance


@pytest.mark.parametrize(("stages", "layers"), [(6, {"7"}), (2, {"5", "7"}), (["7", "2"], {"7"})])
def test_layers_are_shuffled_from_the_last_to_the_first(deep, stages, layers):
    net = deep[0]
    kept = copy.deepcopy(net.state_dict())
    after = seen_by(*deep, stages=stages)[2].state_dict()
    changed = {name for name in kept if not torch.equal(kept[name], after[name])}
    assert {name.split(".")[-2] for name in changed} == layers
    for name in changed:
        assert_close(after[name].flatten().sort()[0], kept[name].flatten().sort()[0])
    assert_close(net.state_dict(), kept, rtol=0, atol=0)
    assert not any(one.requires_grad for one in net.parameters())
    refused("names of layers", sanity, *deep, stages=["conv"])


def test_the_largest_change():
    tried = {"constant": lambda net, x, target: torch.ones_like(x), "x": lambda net, x, target: x}
    found = sanity(clustered(3), X, tried, radius=0.5, points=None).per_input
    assert (found["constant"]["max-sensitivity"] == 0).all()
    share = found["x"]["max-sensitivity"] / (0.5 * np.linalg.norm(X.std(0)) / np.linalg.norm(X, axis=1))
    assert share.between(0.3, 1).all()
