"""Sanity checks of explanations, on networks of which the answer is known."""

import copy

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from sklearn.cluster import KMeans
from torch import nn

import neonxc
from neonxc.evaluation import methods, sanity

X = np.random.default_rng(0).normal(size=(60, 6)) * [1, 2, 3, 4, 5, 6]


def clustered(k):
    return neonxc.neuralize(KMeans(k, n_init=2, random_state=0).fit(X), X)


@pytest.fixture(scope="module")
def deep():
    """A clustering of pooled features of random images."""
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 8, 3), nn.Tanh(), nn.Conv2d(8, 8, 3), nn.Tanh(), nn.Flatten(), nn.Linear(8 * 144, 20)
    features, images = (
        nn.Sequential(*layers, nn.Tanh(), nn.Linear(20, 12)).requires_grad_(False),
        torch.randn(9, 3, 16, 16),
    )
    return neonxc.neuralize(features(images)[:4], images, features), images


def test_one_of_two_clusters_is_explained_against_the_other():
    frame = sanity(clustered(2), X, ["NEON", methods.gradient_x_input, "x²"]).frame
    np.testing.assert_allclose(frame["runner-up"], [-1, -1, 1])


def test_the_runner_up():
    net = clustered(4)
    found = sanity(net, X, ["NEON"], points=5)
    x = X[found.rows_]
    labels = net(torch.as_tensor(x)).argsort(1, descending=True)[:, :2].numpy()
    own, other = (neonxc.NEON(net).attribute(x, labels[:, i]) for i in (0, 1))
    expected = [spearmanr(a, b)[0] for a, b in zip(own, other, strict=True)]
    np.testing.assert_allclose(found.per_input["NEON"]["runner-up"], expected)


def test_random_centers_are_made_of_the_coordinates_of_the_centers():
    net, seen = clustered(5), []
    centers = lambda net: net.head.detection.references.sort(0).values  # noqa: E731

    def method(net, x, target):
        seen.append(net)
        return x

    sanity(net, X, [method])
    other = seen[1]
    torch.testing.assert_close(centers(other), centers(net))
    distances = torch.cdist(torch.as_tensor(X), other.head.detection.references)
    assert torch.equal(other(torch.as_tensor(X)).argmax(1), distances.argmin(1))
    assert not torch.equal(other.head.detection.references, net.head.detection.references)


def test_explanations_that_ignore_the_network_and_those_of_a_random_one(deep):
    found = sanity(*deep, ["x²", methods.gradient, "occlusion"], groups="pixels", repeats=1).frame
    stages = [f"{n} of 4 layers" for n in (1, 2, 3, 4)]
    np.testing.assert_allclose(found.loc["x²", ["centers", *stages]], 1)
    assert (found.loc["gradient", stages] < 0.2).all()  # 256 pixels: 0.05 by chance
    assert found.loc["occlusion", stages[-1]] < 0.15


def test_layers_are_shuffled_from_the_last_to_the_first(deep):
    net, images = deep
    for stages, names in ((2, ("5", "7")), (["7", "2"], ("7",))):
        seen = []
        sanity(net, images, [lambda net, x, target: seen.append(net) or x], stages=stages)  # noqa: B023
        before, after = net.features.state_dict(), seen[2].features.state_dict()
        changed = {name.partition(".")[0] for name in before if not torch.equal(before[name], after[name])}
        assert changed == set(names)
        for name, values in before.items():
            torch.testing.assert_close(after[name].flatten().sort().values, values.flatten().sort().values)


def test_the_network_is_never_changed(deep):
    net, images = deep
    before, calls = copy.deepcopy(net.state_dict()), []

    def fails(net, x, target):
        calls.append(net)
        if len(calls) > 4:
            raise RuntimeError("stop")
        return x

    sanity(net, images, ["NEON"])
    with pytest.raises(RuntimeError, match="stop"):
        sanity(net, images, [fails])
    assert len(calls) == 5
    assert all(torch.equal(values, before[name]) for name, values in net.state_dict().items())


def test_the_largest_change():
    net, radius = clustered(3), 0.5
    constant = lambda net, x, target: torch.ones_like(x)  # noqa: E731
    found = sanity(
        net, X, {"constant": constant, "x": lambda net, x, target: x}, radius=radius, points=None, repeats=3
    )
    assert (found.per_input["constant"]["max-sensitivity"] == 0).all()
    change, bound = (
        found.per_input["x"]["max-sensitivity"],
        radius * np.linalg.norm(X.std(0)) / np.linalg.norm(X, axis=1),
    )
    assert (change < bound).all()
    assert (change > 0.4 * bound).all()


def test_the_table():
    found = sanity(clustered(3), X, points=10)
    head, _, neon, occlusion, _, note = str(found).split("\n")
    assert head == "| method | centers | runner-up | max-sensitivity |"
    values = found.per_input["NEON"]["centers"]
    assert neon.startswith(f"| NEON | {values.mean():.2f} ± {values.std(ddof=1) / 10**0.5:.2f} |")
    assert "occlusion" in occlusion
    assert note.startswith("10 of 60 points.")
    assert note.endswith("6 features have about 0.36.")


def test_what_cannot_be_checked(deep):
    for options, message in (
        ({"stages": ["conv"]}, "names of layers"),
        ({"methods": ["NEAN"]}, "no method 'NEAN'.*NEON"),
        ({"groups": torch.zeros(9, 3, 16, 16, dtype=torch.long)}, "superpixels"),
    ):
        with pytest.raises(ValueError, match=message):
            sanity(*deep, **options)
