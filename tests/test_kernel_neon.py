"""Kernel k-means as a network: the paper's literal four layers against the linear-cost head."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from turns import in_turns
from witnesses import blobs, contrast_relevance, near

import neonxc
from neonxc import NEON, neuralize
from neonxc.head import centroid_head
from neonxc.head.grouping import group_soft_min
from neonxc.models import KernelKMeans


def quadratic_network(x, supports, gamma, c, beta, weights=None, space=None):
    """Props. 5 with Eqs. 2, 4 and 10, neuron by neuron: logit, relevance and signed residual of one point.

    `space` is the matrix from raw columns, of which relevance is, to the space of x and the supports.
    """
    weights = weights or [np.full(len(u), 1 / len(u)) for u in supports]
    space = np.eye(len(x)) if space is None else space
    h = []
    multipliers = []
    log_shares = []
    U = supports[c]
    for k in {*range(len(supports))} - {c}:
        V = supports[k]
        w = 2 * (U[:, None] - V)  # [i, j, d]
        b = (V**2).sum(1) - (U**2).sum(1)[:, None]
        hijk = w @ x + b
        hjk = np.log(weights[c] @ np.exp(gamma * hijk)) / gamma
        h.append(-np.log(weights[k] @ np.exp(-gamma * hjk)) / gamma)
        over_i = weights[c][:, None] * np.exp(gamma * hijk)
        over_i /= over_i.sum(0)
        over_j = weights[k] * np.exp(-gamma * hjk)
        over_j /= over_j.sum()
        shift = np.linalg.solve(space, (x - (U[:, None] + V) / 2)[..., None])[..., 0]
        elements = shift * (w @ space)
        R_ijk = over_i * over_j * hijk / h[-1]  # Eq. 10
        multipliers.append((elements / elements.sum(-1, keepdims=True) * R_ijk[..., None]).sum((0, 1)))
        kl = over_j @ np.log(over_j / weights[k]) - over_i[:, 0] @ np.log(over_i[:, 0] / weights[c])
        log_shares.append(kl / gamma / h[-1])
    R = contrast_relevance(np.array(h), beta)
    return min(h), R @ multipliers, R @ log_shares


def supports(k=4, p=6, d=5, seed=0):
    rng = np.random.default_rng(seed)
    return [3 * rng.normal(size=(1, d)) + rng.normal(size=(p + i, d)) for i in range(k)]


def head_of(groups, gamma, weights=None):
    """Of supports in any order."""
    order = np.random.default_rng(0).permutation(sum(map(len, groups)))
    column = torch.tensor(np.repeat(np.arange(len(groups)), [len(g) for g in groups])[order])
    log_weights = None if weights is None else torch.tensor(np.concatenate(weights)[order]).log()
    points = torch.tensor(np.concatenate(groups)[order])
    return centroid_head(points, column, gamma=gamma, log_weights=log_weights)


@pytest.mark.parametrize(
    ("weighted", "beta", "gamma", "size"), in_turns([False, True], [0.0, 0.4, 3.0], [0.02, 0.3, 2.0], [6, 6, 6, 1])
)
def test_equals_the_quadratic_network(gamma, beta, weighted, size):
    groups = supports(p=size)
    rng = np.random.default_rng(1)
    weights = [rng.dirichlet(np.ones(len(g))) for g in groups] if weighted else None
    net = neonxc.network.NeuralizedClustering(head_of(groups, gamma, weights))
    X = 3 * rng.normal(size=(12, 5))
    neon = NEON(net, beta=beta)
    logits = net(torch.tensor(X)).numpy()
    for c in range(len(groups)):
        relevance = neon.attribute(X, target=c)
        residual = neon.residual(X, target=c)
        for n, x in enumerate(X):
            f, R, rest = quadratic_network(x, groups, gamma, c, beta, weights)
            scale = np.abs(R).max() + abs(f)
            assert logits[n, c] == pytest.approx(f, rel=1e-10, abs=1e-10 * scale)
            assert np.abs(relevance[n] - R).max() <= 1e-10 * scale
            assert residual[n] == pytest.approx(rest, rel=1e-8, abs=1e-9 * scale)


def test_behind_a_pipeline():
    """Relevance behind a folded pipeline is that of the quadratic network of the raw columns."""
    X = blobs(k=3)
    model = make_pipeline(StandardScaler(), PCA(random_state=0), KernelKMeans(3, 4, random_state=0)).fit(X)
    net = neuralize(model, X)
    (scaler, pca, final) = model
    own = net.predict(X)
    relevance = NEON(net).attribute(X)
    z = model[:-1].transform(X)
    assert (own == model.predict(X)).all()
    groups = [final.support_vectors_[final.support_labels_ == k] for k in range(3)]
    space = pca.components_ / scaler.scale_
    for n in (0, 1, 2):
        _, expected, _ = quadratic_network(z[n], groups, final.gamma_, own[n], net.beta, space=space)
        assert np.abs(relevance[n] - expected).max() <= 1e-8 * np.abs(expected).max()


@pytest.mark.parametrize(
    ("dtype", "total", "gamma"), in_turns([torch.float32, torch.float64], [1.0, 0.3], [1e-6, 1e-3, 0.1, 10.0, 1e3])
)
def test_the_soft_minimum_keeps_its_digits(gamma, total, dtype):
    """Also where gamma times the distances is small: the logarithm of a sum near 1 is nearly nothing."""
    rng = np.random.default_rng(0)
    sizes = [5, 1, 8]
    energy = torch.tensor(rng.uniform(0, 10, (40, 14))).to(dtype)
    weights = np.concatenate([total * rng.dirichlet(np.ones(size)) for size in sizes])
    minima, shares = group_soft_min(energy, sizes, gamma, torch.tensor(weights).log())
    rounding = torch.finfo(dtype).eps
    tolerance = rounding * (20 + 2 * abs(math.log(total)) / gamma) + 8 * 2.3e-16 / gamma  # of the weights
    with localcontext(prec=50):
        g = Decimal(gamma)
        w = [*map(Decimal, weights)]
        for row, minimum, share in zip(energy.tolist(), minima, shares, strict=True):
            terms = np.array([a * (-g * Decimal(e)).exp() for a, e in zip(w, row, strict=True)])
            for k, own in enumerate(np.split(terms, [5, 6])):
                assert float(minimum[k]) == pytest.approx(float(-own.sum().ln() / g), rel=0, abs=tolerance)
                wanted = (own / own.sum()).astype(float)
                assert np.allclose(np.split(share, [5, 6])[k], wanted, atol=8 * rounding)


@pytest.mark.parametrize(("dtype", "least"), [(torch.float32, -30.0), (torch.float64, -60.0)])
def test_the_slope_of_a_soft_minimum_at_a_support_of_hardly_any_weight(dtype, least):
    head = centroid_head(
        torch.tensor([[0.0, 0], [20, 0], [0, 90]]).double(),
        torch.tensor([0, 0, 1]),
        gamma=1.0,
        log_weights=torch.tensor([math.log1p(-math.exp(least)), least, 0.0]).double(),
    )
    x = torch.tensor([[20.0, 0]], dtype=dtype, requires_grad=True)  # where the light support is, nearer by 400
    (logit,) = head(x)[:, 0]
    assert logit.item() == pytest.approx(20**2 + 90**2 + least, rel=1e-6)
    (slope,) = torch.autograd.grad(logit, x)
    assert slope.tolist()[0] == pytest.approx([40, -180], rel=1e-5)


@pytest.mark.parametrize("objective", ["lme", "spherical"])
def test_predicts_as_the_estimator(objective):
    """For means of unit length, Prop. 4 is an identity."""
    X = blobs()
    model = KernelKMeans(4, 5, objective=objective, random_state=0).fit(X)
    net = neuralize(model, X)
    assert net.fidelity_ is None
    assert (net.predict(X) == model.labels_).all()
    assert (net.predict(near(X)) == model.predict(near(X))).all()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_agreement_counts_points_and_not_different_points():
    rng = np.random.default_rng(0)
    few = np.concatenate([rng.normal(size=(40, 2)), rng.normal(size=(15, 2)) * 0.3 + 1.5])
    X = np.repeat(few, rng.integers(1, 30, size=len(few)), axis=0)
    model = KernelKMeans(3, objective="feature", gamma=0.7, random_state=0).fit(X)
    net = neuralize(model)
    truth = (net.predict(X) == model.labels_).mean()
    assert truth != pytest.approx((net.predict(few) == model.predict(few)).mean(), abs=1e-3)
    assert net.fidelity_ == pytest.approx(truth)


def test_a_network_that_differs_from_the_clusterer_is_told():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(60, 2)) * 0.05, rng.normal(size=(60, 2)) * 3])
    model = KernelKMeans(2, objective="feature", gamma=1.0, random_state=0).fit(X)
    with pytest.warns(UserWarning, match=r"the network gives \d+% of the points their cluster") as told:
        net = neuralize(model)
    assert net.fidelity_ < 0.95
    assert told[0].filename == __file__


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-3), (torch.float64, 1e-8)])
def test_far_from_the_origin(dtype, tolerance):
    groups = [g + 1e4 for g in supports()]
    far = (torch.randn(30, 5, dtype=torch.float64) + 1e4).to(dtype)
    near = head_of([g - 1e4 for g in groups], 0.3)(far.double() - 1e4)
    assert torch.allclose(head_of(groups, 0.3)(far).double(), near, rtol=0, atol=tolerance)
    for shift in (1e5, 1e6):
        X = (np.random.default_rng(0).normal(size=(500, 3)) + shift).astype(np.float32)
        model = KernelKMeans(4, 5, random_state=0).fit(X)
        assert (neuralize(model).predict(X) == model.labels_).all()


def test_memory_and_time_are_linear_in_the_supports():
    """A hundred times the supports of the paper's limit: no pair of supports is laid out."""
    points = torch.randn(10_000, 16)
    head = centroid_head(points.double(), torch.arange(10).repeat_interleave(1000), gamma=0.1)
    net = neonxc.network.NeuralizedClustering(head)
    assert net.inputs.blocks(points)[0].stop * head.width <= 1 << 23
    assert bool(NEON(net).attribute(points[:64]).isfinite().all())
