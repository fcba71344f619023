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
from witnesses import contrast_relevance

import neonxc
from neonxc import NEON, neuralize
from neonxc.head import centroid_head as CentroidHead
from neonxc.head.answer import Answer
from neonxc.head.grouping import group_soft_min
from neonxc.models import KernelKMeans


def quadratic_network(x, supports, gamma, c, beta, weights=None):
    """Props. 5 with Eqs. 2, 4 and 10, neuron by neuron: logit, relevance and signed residual of one point."""
    weights = weights or [np.full(len(u), 1 / len(u)) for u in supports]
    h, parts, log_shares = {}, {}, {}
    for k in range(len(supports)):
        if k == c:
            continue
        U, V = supports[c], supports[k]
        w = 2 * (U[:, None] - V[None])  # [i, j, d]
        b = (V**2).sum(1)[None] - (U**2).sum(1)[:, None]
        hijk = w @ x + b
        hjk = np.log(weights[c] @ np.exp(gamma * hijk)) / gamma
        h[k] = -np.log(weights[k] @ np.exp(-gamma * hjk)) / gamma
        over_i = weights[c][:, None] * np.exp(gamma * hijk)
        over_i /= over_i.sum(0)
        over_j = weights[k] * np.exp(-gamma * hjk)
        over_j /= over_j.sum()
        middle = (U[:, None] + V[None]) / 2
        parts[k] = (over_i * over_j, hijk, (x - middle) * w)
        kl = (over_j * np.log(over_j / weights[k])).sum() - (
            over_i[:, 0] * np.log(over_i[:, 0] / weights[c])
        ).sum()
        log_shares[k] = kl / gamma
    order = sorted(h)
    contrasts = np.array([h[k] for k in order])
    relevance, residual = np.zeros_like(x), 0.0
    for k, R_k in zip(order, contrast_relevance(contrasts, beta), strict=True):
        share, hijk, elements = parts[k]
        R_ijk = share * R_k * hijk / h[k]  # Eq. 10
        relevance += (elements / elements.sum(-1, keepdims=True) * R_ijk[..., None]).sum((0, 1))
        residual += R_k / h[k] * log_shares[k]
    return contrasts.min(), relevance, residual


def supports(k=4, p=6, d=5, seed=0):
    rng = np.random.default_rng(seed)
    return [3 * rng.normal(size=(1, d)) + rng.normal(size=(p + i, d)) for i in range(k)]


def head_of(groups, gamma, weights=None, chain=None):
    column = torch.repeat_interleave(torch.arange(len(groups)), torch.tensor([len(g) for g in groups]))
    log_weights = None if weights is None else torch.tensor(np.concatenate(weights)).log()
    return CentroidHead(torch.tensor(np.concatenate(groups)), column, chain, gamma=gamma, log_weights=log_weights)


@pytest.mark.parametrize(("weighted", "beta", "gamma"), in_turns([False, True], [0.0, 0.4, 3.0], [0.02, 0.3, 2.0]))
def test_equals_the_quadratic_network(gamma, beta, weighted):
    groups = supports()
    rng = np.random.default_rng(1)
    weights = [rng.dirichlet(np.ones(len(g))) for g in groups] if weighted else None
    net = neonxc.network.NeuralizedClustering(head_of(groups, gamma, weights))
    net.beta = beta
    X = 3 * rng.normal(size=(12, 5))
    logits = net(torch.tensor(X)).numpy()
    neon = NEON(net)
    for c in range(len(groups)):
        relevance, residual = neon.attribute(X, target=c), neon.residual(X, target=c)
        for n, x in enumerate(X):
            f, R, rest = quadratic_network(x, groups, gamma, c, beta, weights)
            scale = np.abs(R).max() + abs(f)
            assert logits[n, c] == pytest.approx(f, rel=1e-10, abs=1e-10 * scale)
            assert np.abs(relevance[n] - R).max() <= 1e-10 * scale
            assert residual[n] == pytest.approx(rest, rel=1e-8, abs=1e-9 * scale)


def test_supports_in_any_order_and_of_one_cluster_are_centers():
    groups = supports()
    head = head_of(groups, 0.5)
    order = torch.randperm(len(head.grouping.groups), generator=torch.Generator().manual_seed(0))
    points = torch.tensor(np.concatenate(groups))
    mixed = CentroidHead(points[order], head.grouping.groups[order], gamma=0.5)
    x = torch.randn(20, 5, dtype=torch.float64)
    assert torch.allclose(head(x), mixed(x), rtol=1e-12)
    single = head_of([g[:1] for g in groups], 0.5)
    plain = CentroidHead(torch.tensor(np.concatenate([g[:1] for g in groups])))
    assert torch.allclose(single(x), plain(x), rtol=1e-12)
    assert torch.allclose(
        Answer(single, x, torch.zeros(20, dtype=torch.long)).relevance(),
        Answer(plain, x, torch.zeros(20, dtype=torch.long)).relevance(),
        rtol=1e-10,
    )


def test_becomes_the_hard_minimum():
    groups = supports()
    x = 3 * torch.randn(50, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    soft, hard = head_of(groups, 1e4), head_of(groups, None)
    assert torch.allclose(soft(x), hard(x), atol=1e-3)
    target = hard.assign(x)
    assert torch.allclose(
        Answer(soft, x, target, beta=0.5).relevance(), Answer(hard, x, target, beta=0.5).relevance(), atol=1e-2
    )


@pytest.mark.parametrize("mix", [False, True])
def test_behind_a_pipeline(mix):
    """Relevance behind a folded pipeline is that of the quadratic network of the raw columns."""
    rng = np.random.default_rng(3)
    X = np.concatenate([rng.normal(size=(60, 4)) + 3 * rng.normal(size=4) for _ in range(3)]) * [1, 10, 0.1, 3]
    steps = [StandardScaler(), PCA(random_state=0)] if mix else [StandardScaler()]
    model = make_pipeline(*steps, KernelKMeans(3, 4, random_state=0)).fit(X)
    net = neuralize(model, X)
    assert (net.predict(X) == model.predict(X)).all()
    relevance = NEON(net).attribute(X)
    if not mix:  # scaling columns scales no relevance
        inner = neuralize(model[-1], model[:-1].transform(X))
        expected = NEON(inner).attribute(model[:-1].transform(X))
        assert np.abs(relevance - expected).max() <= 1e-8 * np.abs(expected).max()
    scaler, A = model[0], (model[1].components_ if mix else np.eye(4))
    final = model[-1]
    z = [final.support_vectors_[final.support_labels_ == k] for k in range(3)]
    back = np.linalg.inv(A / scaler.scale_)  # raw columns of a shift in the clustering's space
    for n in (0, 70, 130):
        c = int(net.predict(X[n : n + 1])[0])
        x = model[:-1].transform(X[n : n + 1])[0]
        expected = np.zeros(4)
        h = {}
        for k in range(3):
            if k != c:
                far, near = (np.exp(-final.gamma_ * ((x - u) ** 2).sum(1)).mean() for u in (z[k], z[c]))
                h[k] = np.log(near / far) / final.gamma_
        shares = contrast_relevance(np.array([h[k] for k in sorted(h)]), net.beta) / np.array(
            [h[k] for k in sorted(h)]
        )
        for k, s_k in zip(sorted(h), shares, strict=True):
            p = np.exp(-final.gamma_ * ((x - z[c]) ** 2).sum(1))
            q = np.exp(-final.gamma_ * ((x - z[k]) ** 2).sum(1))
            for i, p_i in enumerate(p / p.sum()):
                for j, q_j in enumerate(q / q.sum()):
                    w = (A / scaler.scale_).T @ (2 * (z[c][i] - z[k][j]))
                    shift = back @ (x - (z[c][i] + z[k][j]) / 2)
                    expected += s_k * p_i * q_j * shift * w
        assert np.abs(relevance[n] - expected).max() <= 1e-8 * np.abs(expected).max()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_far_from_the_origin(dtype):
    groups = [g + 1e4 for g in supports()]
    head = head_of(groups, 0.3)
    near = head_of([g - 1e4 for g in groups], 0.3)
    x = torch.randn(30, 5, dtype=dtype, generator=torch.Generator().manual_seed(0))
    far = (x.double() + 1e4).to(dtype)
    tolerance = 1e-10 if dtype == torch.float64 else 1e-5
    exact = far.double() - 1e4
    assert torch.allclose(head(far).double(), near(exact), rtol=0, atol=tolerance * 1e2)


@pytest.mark.parametrize(
    ("dtype", "total", "gamma"), in_turns([torch.float32, torch.float64], [1.0, 0.3], [1e-6, 1e-3, 0.1, 10.0, 1e3])
)
def test_the_soft_minimum_keeps_its_digits(gamma, total, dtype):
    """Also where gamma times the distances is small: the logarithm of a sum near 1 is nearly nothing."""
    rng = np.random.default_rng(0)
    sizes, energy = [5, 1, 8], torch.tensor(rng.uniform(0, 10, (40, 14))).to(dtype)
    weights = np.concatenate([total * rng.dirichlet(np.ones(size)) for size in sizes])
    minima, shares = group_soft_min(energy, sizes, gamma, torch.tensor(weights).log())
    with localcontext() as context:
        context.prec = 50
        g, w = Decimal(gamma), [Decimal(weight) for weight in weights]
        for n, row in enumerate(energy.tolist()):
            terms = [a * (-g * Decimal(e)).exp() for a, e in zip(w, row, strict=True)]
            first = 0
            for k, size in enumerate(sizes):
                own = terms[first : first + size]
                exact = float(-sum(own).ln() / g)
                tolerance = torch.finfo(dtype).eps * (20 + 2 * abs(math.log(total)) / gamma)
                tolerance += 8 * torch.finfo(torch.float64).eps / gamma  # of the weights
                assert abs(float(minima[n, k]) - exact) <= tolerance
                wanted = [float(term / sum(own)) for term in own]
                assert np.allclose(shares[n, first : first + size], wanted, atol=8 * torch.finfo(dtype).eps)
                first += size


@pytest.mark.parametrize(("dtype", "least"), [(torch.float32, -30.0), (torch.float64, -60.0)])
def test_the_slope_of_a_soft_minimum_at_a_support_of_hardly_any_weight(dtype, least):
    head = CentroidHead(
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


@pytest.mark.parametrize("gamma", [0.01, 1.0])
def test_autocast_rounds_no_soft_minimum(gamma):
    rng = np.random.default_rng(0)
    head = CentroidHead(torch.tensor(rng.normal(size=(12, 4))), torch.arange(12) % 3, gamma=gamma)
    x = torch.tensor(rng.normal(size=(50, 4)), dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        found = head(x)
    assert torch.allclose(found, head(x), rtol=1e-5, atol=1e-5)


def test_a_small_gamma_in_float32():
    """Logits of a clusterer whose soft minimum is nearly a mean."""
    groups, x = supports(), 3 * torch.randn(50, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    head = head_of(groups, 1e-6)
    assert (head(x.float()).double() - head(x.float().double())).abs().max() < 1e-4


@pytest.mark.parametrize("objective", ["lme", "feature", "spherical"])
def test_predicts_as_the_estimator(objective):
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(50, 3)) + 2.5 * rng.normal(size=3) for _ in range(4)])
    model = KernelKMeans(4, 5, objective=objective, random_state=0).fit(X)
    net = neuralize(model, X)
    agree = (net.predict(X) == model.labels_).mean()
    if objective == "feature":
        assert net.fidelity_ == pytest.approx(agree)
        assert agree > 0.9
    else:  # for means of unit length, Prop. 4 is an identity
        assert agree == 1.0
        assert net.fidelity_ is None
    other = 3 * rng.normal(size=(200, 3))
    if objective != "feature":
        assert (net.predict(other) == model.predict(other)).all()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_agreement_counts_points_and_not_different_points():
    rng = np.random.default_rng(0)
    few = np.concatenate([rng.normal(size=(40, 2)), rng.normal(size=(15, 2)) * 0.3 + 1.5])
    X = np.repeat(few, rng.integers(1, 30, size=len(few)), axis=0)
    model = KernelKMeans(3, objective="feature", gamma=0.7, random_state=0).fit(X)
    net = neuralize(model)
    truth = (net.predict(X) == model.labels_).mean()
    plain = (net.predict(few) == model.predict(few)).mean()
    assert truth != pytest.approx(plain, abs=1e-3)
    assert net.fidelity_ == pytest.approx(truth)


def test_a_network_that_differs_from_the_clusterer_is_told():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(60, 2)) * 0.05, rng.normal(size=(60, 2)) * 3])
    model = KernelKMeans(2, objective="feature", gamma=1.0, random_state=0).fit(X)
    with pytest.warns(UserWarning, match=r"the network gives \d+% of the points their cluster") as told:
        net = neuralize(model)
    assert net.fidelity_ < 0.95
    assert told[0].filename == __file__


def test_members_are_compared_in_chunks(monkeypatch):
    X = np.random.default_rng(0).normal(size=(700, 2))
    model = KernelKMeans(3, objective="feature", random_state=0).fit(X)
    expected = neuralize(model).fidelity_
    monkeypatch.setattr(neonxc.head.head, "CACHE", 20_000 * 4 * 8)
    seen = []
    located = neonxc.head.detection.LinearDetection.located
    monkeypatch.setattr(
        neonxc.head.detection.LinearDetection, "located", lambda self, x: seen.append(len(x)) or located(self, x)
    )
    assert neuralize(model).fidelity_ == expected
    assert max(seen) <= 20_000 // 700


@pytest.mark.parametrize("far", [1e5, 1e6])
def test_a_clusterer_in_float32_far_from_the_origin(far):
    X = (np.random.default_rng(0).normal(size=(2000, 3)) + far).astype(np.float32)
    model = KernelKMeans(4, 5, random_state=0).fit(X)
    assert (neuralize(model).predict(X) == model.labels_).all()


def test_prop_4():
    """The soft minimum is a monotonous function of the distance in feature space (Eqs. 8 and 9)."""
    rng = np.random.default_rng(0)
    U, x, gamma = rng.normal(size=(6, 3)), rng.normal(size=(40, 3)), 0.4
    kernel = np.exp(-gamma * ((x[:, None] - U) ** 2).sum(-1))
    gram = np.exp(-gamma * ((U[:, None] - U) ** 2).sum(-1))
    for Z in (6.0, np.sqrt(gram.sum())):
        length = gram.sum() / Z**2
        xi = 1 - 2 * kernel.sum(1) / Z + length
        delta, H = (1 - length) / 2, np.log(6 / Z)
        right = -np.log(1 - (xi / 2 + delta)) / gamma + H / gamma
        assert np.allclose(-np.log(kernel.mean(1)) / gamma, right)


def test_memory_and_time_are_linear_in_the_supports():
    """A hundred times the supports of the paper's limit: no pair of supports is laid out."""
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(10_000, 16, generator=generator)
    head = CentroidHead(points.double(), torch.arange(10).repeat_interleave(1000), gamma=0.1)
    net = neonxc.network.NeuralizedClustering(head)
    assert net.inputs.blocks(torch.empty(10_000, 16))[0].stop * head.width <= 1 << 23
    x = torch.randn(64, 16, generator=generator)
    relevance = NEON(net).attribute(x)
    assert relevance.shape == (64, 16)
    assert bool(relevance.isfinite().all())


@pytest.mark.cuda
def test_on_cuda():
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    groups = supports()
    net = neonxc.network.NeuralizedClustering(head_of(groups, 0.3))
    x = torch.randn(30, 5, dtype=torch.float64)
    expected = NEON(net).attribute(x)
    found = NEON(net.cuda()).attribute(x.cuda())
    assert torch.allclose(found.cpu(), expected, rtol=1e-8, atol=1e-10)
