"""The beta with the greatest area under the pixel-flipping curve, against loops over betas and points."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import witnesses
from numpy.testing import assert_allclose
from sklearn.cluster import KMeans
from sklearn.datasets import load_wine
from sklearn.preprocessing import scale

import neonxc
from neonxc.evaluation import KDEImputer, ZeroImputer, calibrate_by_flipping

X = scale(load_wine().data)
MODEL = KMeans(12, n_init=2, random_state=0).fit(X)
FACTORS = (0.1, 1.0, 10.0)


@pytest.fixture
def net():
    return neonxc.neuralize(MODEL, X)


def areas(points, centers, beta):
    """AUC [n] of NEON's order of the features, added to zeros."""

    def cluster(x):
        return int(((x - centers) ** 2).sum(1).argmin())

    found = []
    for x in points:
        relevance = witnesses.neon(x, centers, cluster(x), beta)
        known, hits = np.zeros_like(x), []
        for i in np.argsort(-relevance, kind="stable"):
            known[i] = x[i]
            hits.append(cluster(known) == cluster(x))
        found.append(100 * np.mean(hits))
    return np.array(found)


def test_the_beta_with_the_greatest_area(net):
    points, centers = X[::4], MODEL.cluster_centers_
    far = np.sort(((points[:, None] - centers) ** 2).sum(2), axis=1)
    contrasts = far[:, 1:] - far[:, :1]
    heuristic = 1 / (contrasts.shape[1] / (1 / contrasts).sum(1)).mean()
    expected = np.array([areas(points, centers, factor * heuristic) for factor in FACTORS])
    found = calibrate_by_flipping(net, points, ZeroImputer(), factors=FACTORS)
    assert_allclose(found.auc_per_input, expected)
    assert_allclose(found.betas, heuristic * np.array(FACTORS))
    best = int(expected.mean(1).argmax())
    assert found.beta == found.betas[best]
    assert best != 1  # the heuristic is not the best here, or this would say little
    row = found.rows[1]
    behind = expected[best] - expected[1]
    assert row["AUC"] == pytest.approx(expected[1].mean())
    assert row["behind"] == pytest.approx(behind.mean())
    assert row["± behind"] == pytest.approx(behind.std(ddof=1) / np.sqrt(len(points)))
    assert [row["best"] for row in found.rows] == [i == best for i in range(3)]
    assert str(found).count("**") == 2
    assert str(found).count("\n") == 4


@pytest.mark.parametrize("draws", [None, np.random.RandomState(0), 0])
def test_the_network_keeps_its_beta(net, draws):
    """And what is found does not depend on it; draws are common to all betas, and a factor twice is one."""
    before, imputer = net.beta, KDEImputer(X)
    found = calibrate_by_flipping(net, X[:20], imputer, 1, factors=(1 + 1e-9, 1, 0.1, 1), random_state=draws)
    assert found.factors.tolist() == [0.1, 1, 1 + 1e-9]
    assert np.array_equal(*found.auc_per_input[1:])
    assert net.beta == before
    if draws == 0:
        net.beta = found.beta
        again = calibrate_by_flipping(net, X[:20], imputer, 1, factors=found.factors, random_state=0)
        assert (again.auc_per_input == found.auc_per_input).all()
        assert net.beta == found.beta


def test_channels_of_images():
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 6, 3), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1))
    network = torch.nn.Sequential(network, torch.nn.Flatten()).eval()
    x = torch.randn(6, 3, 6, 6)
    net = neonxc.neuralize(network(x).detach()[:4], x, features=network)
    found = calibrate_by_flipping(net, x, factors=FACTORS, groups="channels")
    net.beta = found.betas[0]
    relevance = neonxc.NEON(net).attribute(x)
    expected = neonxc.evaluation.pixel_flipping(net, x, relevance, groups="channels").auc_per_input
    assert_allclose(found.auc_per_input[0], expected)
