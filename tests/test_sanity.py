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
from neonxc.evaluation.sanity_checks import patch_size

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
    assert (found.loc["gradient"][1:] < 0.3).all()  # 256 pixels: 0.05 by chance


def positive_noise(net, x, target):
    """Relevance that depends on nothing, whose sum grows with the size of a group."""
    return torch.rand(x.shape)


@pytest.fixture
def flat():
    """A clustering of images of 28 pixels by a linear network."""
    features = nn.Sequential(nn.Flatten(), nn.Linear(784, 6)).requires_grad_(False)
    images = torch.randn(12, 1, 28, 28)
    return neonxc.neuralize(features(images)[:4], images, features), images


# groups, number of those that are compared, correlation of independent noise
EQUAL = {"pixels": 784, None: 49, 3: 81, 4: 49, 5: 25, 28: 1}


@pytest.mark.parametrize(("groups", "count"), EQUAL.items())
def test_noise_of_equal_patches_is_at_the_level_of_chance(flat, groups, count):
    found = sanity(*flat, [positive_noise], groups=groups, points=None, stages=2)
    means = found.to_frame().iloc[0]
    by_definition = (2 / np.pi / max(count - 1, 1)) ** 0.5 if count > 1 else 0
    for check in ("centers", "2/2 of parameters", "chance"):
        assert means[check] == pytest.approx(by_definition, abs=0.04)
    assert f"{count} feature" in str(found)


def test_the_level_of_chance_is_that_of_the_groups(flat):
    rows = torch.arange(28).div(3, rounding_mode="floor")
    slivers = rows[:, None] * 10 + rows  # the last row and the last column have 3 features, and not 9
    far = slivers + 50 * (slivers > 60)  # numbers that no feature has
    for groups in (slivers, far):
        found = sanity(*flat, [positive_noise], groups=groups[None], points=None, stages=1)
        means = found.to_frame().iloc[0]
        assert means["centers"] > 0.3
        assert means["chance"] == pytest.approx(means["centers"], abs=0.05)
        assert found.of == (12, 100)


@pytest.mark.parametrize(
    ("sides", "size"), [((28, 28), 4), ((224, 224), 28), ((32, 32), 4), ((29, 31), 3), ((60, 90), 10), ((4, 9), 1)]
)
def test_default_patches_divide_the_sides_if_they_can(sides, size):
    assert patch_size(*sides) == size


def test_means_and_errors_are_over_draws_and_inputs():
    net = clustered(4)
    every = [sanity(net, X, ["NEON"], draws=draws, points=5) for draws in (1, 2, 3)]
    found = every[-1]
    per_draw = found.per_draw["NEON"]["centers"]
    per_input = found.per_input["NEON"]["centers"]
    firsts = [len(one.per_draw["NEON"]) for one in every]
    assert firsts == [1, 2, 3]
    assert_allclose(every[0].per_draw["NEON"]["centers"], per_draw[:1])  # more draws begin with the same ones
    assert per_draw.mean() == pytest.approx(per_input.mean())
    error = (per_input.var() / 5 + per_draw.var() / 3) ** 0.5
    assert f"| {per_input.mean():.2f} ± {error:.2f} |" in str(found)
    alone = every[0].per_input["NEON"]["centers"]
    assert f"| {alone.mean():.2f} ± {alone.std() / 5**0.5:.2f} |" in str(every[0])
    refused("draws", sanity, net, X, draws=0)


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
