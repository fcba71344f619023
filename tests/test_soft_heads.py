"""Soft assignments: linear heads with a softmax, thresholds of probabilities, soft k-means, DEC, mixtures."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from refusals import refused
from scipy.linalg import logm
from scipy.stats import multivariate_normal
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits, load_iris
from sklearn.decomposition import PCA
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn
from witnesses import blobs, contrast_relevance, near

import neonxc
from neonxc import NEON, neuralize
from neonxc.models import KernelKMeans, WordVectors

IRIS = load_iris().data
TYPES = ("full", "tied", "diag", "spherical")


def linear(K=4, d=6, seed=0, bias=True):
    torch.manual_seed(seed)
    return nn.Linear(d, K, bias=bias).double()


def points(n=60, d=6, seed=1):
    return 2 * torch.randn(n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


# --- linear heads (Props. 6 and 7) --------------------------------------------------------------------------


def pairs(layer, x, c):
    """The differences [N, K - 1] of logits to the other clusters, and their parts [N, K - 1, d] by feature.

    A difference is counted from its zero nearest to the origin.
    """
    W, b = layer.weight.detach().numpy(), np.zeros(len(layer.weight))
    b = b if layer.bias is None else layer.bias.detach().numpy()
    w, shift = np.delete(W[c] - W, c, 0), np.delete(b[c] - b, c)
    zero = -shift[:, None] * w / (w**2).sum(1, keepdims=True)
    return x.numpy() @ w.T + shift, (x.numpy()[:, None] - zero) * w


@pytest.mark.parametrize("bias", [True, False])
def test_linear_relevance_pair_by_pair(bias):
    """The logit is the log-likelihood ratio to the best other cluster, which relevance conserves."""
    layer, x = linear(bias=bias), points()
    net, p = neuralize(layer, x), layer(x).softmax(1)
    assert (net.predict(x) == p.argmax(1)).all()
    for c in range(4):
        h, parts = pairs(layer, x, c)
        R = NEON(net).attribute(x, target=c).numpy()
        shares = np.array([contrast_relevance(row, net.beta) for row in h]) / h
        assert np.allclose(R, (shares[:, :, None] * parts).sum(1), rtol=1e-9, atol=1e-10)
        others = p[:, [k for k in range(4) if k != c]].amax(1)
        for logit in (net(x)[:, c].detach(), R.sum(1)):
            assert np.allclose(logit, (p[:, c] / others).log().detach(), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("theta", [0.1, 0.5, 0.99])
def test_prop_7(theta):
    """Log odds of the cluster over those of the threshold; shares are the soft minimum's own."""
    layer, x = linear(), points()
    net = neuralize(layer, threshold=theta)
    p = layer(x).softmax(1)
    expected = (p / (1 - p)).log() + np.log((1 - theta) / theta)
    assert torch.allclose(net(x), expected, rtol=1e-7, atol=1e-7)
    assert ((net(x) > 0) == (p > theta)).all()
    # literal layers: h_k = w_k a + b_k, LME^{-1} over k != c, R_k <- R_k h_k / f
    shift = np.log((1 - theta) / theta) - np.log(3)
    for c in range(4):
        h, parts = pairs(layer, x, c)
        f = -np.log(np.exp(-h - shift).mean(1))
        assert np.allclose(f, net(x)[:, c].detach().numpy())
        share = np.exp(-h) / np.exp(-h).sum(1, keepdims=True)
        assert np.allclose(NEON(net).attribute(x, target=c), (share[:, :, None] * parts).sum(1))
        divergence = (share * np.log(3 * share)).sum(1)
        assert np.allclose(NEON(net).residual(x, target=c).numpy(), shift + divergence)


def test_threshold_where_a_probability_is_nearly_one():
    x = torch.tensor([[60.0, 0.0, 1.0], [800.0, 0.0, 1.0]], dtype=torch.float64)
    layer = nn.Linear(3, 3, bias=False).double()
    nn.init.eye_(layer.weight)
    net = neuralize(layer, threshold=0.5)
    assert net(x)[0, 0].item() == pytest.approx(60 - np.log(1 + np.e), rel=1e-12)
    assert bool(net(x).isfinite().all())


def test_a_network_that_ends_in_a_linear_head():
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 5), nn.ReLU())
    head = nn.Linear(5, 3)
    x = torch.randn(40, 6)
    logits = head(encoder(x)).detach()
    for net in (
        neuralize(nn.Sequential(encoder, head, nn.Softmax(dim=1)), x),
        neuralize(nn.Sequential(*encoder, head, nn.LogSoftmax(dim=1)), x),
        neuralize(head, x, features=encoder),
    ):
        assert (net.predict(x) == logits.argmax(1)).all()
        top = logits.topk(2).values
        assert torch.allclose(net(x).amax(1), top[:, 0] - top[:, 1], atol=1e-5)
        relevance = NEON(net, neonxc.lrp.presets.epsilon()).attribute(x)
        assert relevance.shape == x.shape
        assert bool((relevance != 0).any())


# --- DEC, soft k-means --------------------------------------------------------------------------------------


def test_a_model_is_copied():
    """Training it, or loading into the network, leaves the other as it is."""
    layer, x = linear(), torch.tensor(IRIS)
    given = [(layer, points(), [layer.weight.data, layer.bias.data])]
    for kind in TYPES:
        model = GaussianMixture(3, covariance_type=kind, random_state=0).fit(IRIS)
        given.append((model, x, [model.means_, model.precisions_cholesky_]))
    for model, x, parts in given:
        net = neuralize(model)
        before = net(x).detach().clone()
        for part in parts:
            part += 1.0
        assert torch.equal(net(x).detach(), before)
        own = [part + 0 for part in parts]
        for buffer in net.head.buffers():
            buffer.zero_()
        assert all((part == kept).all() for part, kept in zip(parts, own, strict=True))


@pytest.mark.parametrize("layer", [nn.Softmax(dim=1), nn.LogSoftmax(dim=1)])
def test_a_softmax_in_the_middle_stays(layer):
    model = nn.Sequential(linear(), layer, nn.Identity(), nn.Linear(4, 3), nn.Softmax(dim=1)).double()
    model[3].weight.data *= 20
    net = neuralize(model)
    assert (net.predict(points(200)) == model(points(200)).argmax(1)).all()


def test_a_single_module_before_the_head_is_used_as_it_is():
    words = WordVectors(["cat", "dog", "sun"], np.random.default_rng(0).normal(size=(3, 6)))
    ids = words.encode(["cat dog", "sun", "dog dog sun"])
    net = neuralize(nn.Sequential(words, linear(), nn.Softmax(dim=1)), ids)
    assert net.features is words
    assert NEON(net).attribute(ids).shape == ids.shape


class StudentT(nn.Module):
    """The similarity of deep embedded clustering."""

    def __init__(self, centers):
        super().__init__()
        self.cluster_centers = nn.Parameter(centers)

    def forward(self, z):
        q = 1 / (1 + torch.cdist(z, self.cluster_centers).square())
        return q / q.sum(1, keepdim=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dec(dtype):
    encoder, layer = nn.Linear(6, 3).to(dtype), StudentT(torch.randn(4, 3, dtype=dtype))
    x = points().to(dtype)
    net = neuralize(nn.Sequential(encoder, layer), x)
    assert (net.predict(x) == layer(encoder(x)).argmax(1)).all()
    alone = neuralize(layer, features=encoder)
    assert torch.allclose(alone(x), net(x))
    for K, d, far in ((2, 1, 0), (300, 20, 1e3)):
        assert len(neuralize(StudentT(torch.randn(K, d, dtype=dtype) + far)).classes_) == K


class Prototypes(StudentT):
    """Centers that something else than distance goes by."""

    def forward(self, z):
        return (z @ self.cluster_centers.T).softmax(1)


class WholeDEC(StudentT):
    def __init__(self, centers, width=3):
        super().__init__(centers)
        self.encoder = nn.Linear(width, centers.shape[1]).to(centers)

    def forward(self, x):
        return super().forward(self.encoder(x))


class NoForward(nn.Module):
    centers = torch.eye(3)


@pytest.mark.parametrize("module", [Prototypes, WholeDEC, partial(WholeDEC, width=7), lambda _: NoForward()])
def test_modules_that_are_no_heads(module):
    for message, given in (
        ("its largest output is not that of the nearest of its", module(torch.eye(4, 3))),
        (r"can't neuralize a ReLU: the model needs to be an nn\.Linear, or", nn.ReLU()),
        (r"empty nn\.Sequential", nn.Sequential()),
    ):
        refused(message, neuralize, given, error=TypeError)


def test_soft_kmeans():
    X = blobs()
    model = KMeans(4, n_init=1, random_state=0).fit(X)
    x = torch.tensor(near(X))
    p = (-0.01 * torch.cdist(x, torch.tensor(model.cluster_centers_)).square()).softmax(1)
    net, hard = neuralize(model, stiffness=0.01), neuralize(model)
    beyond = neuralize(model, stiffness=0.01, threshold=0.8)
    assert beyond.beta == pytest.approx(net.beta) == pytest.approx(100 * hard.beta)
    assert torch.allclose(net(x), 0.01 * hard(x))
    net.beta, hard.beta = 3.0, 0.03
    slower = 0.01 * NEON(hard).attribute(x)
    assert torch.allclose(NEON(net).attribute(x), slower, rtol=1e-8, atol=1e-10)
    sure = p < 1 - 1e-6
    assert bool(sure.any())
    expected = (p / (1 - p)).log() + np.log(0.25)
    assert torch.allclose(beyond(x)[sure], expected[sure], rtol=1e-6, atol=1e-6)


def test_kernel_threshold_is_a_mixture_of_kernels():
    X = blobs() / 3.0 ** np.arange(4)
    model = KernelKMeans(4, 5, random_state=0).fit(X)
    supports = [model.support_vectors_[model.support_labels_ == k] for k in range(4)]
    kernels = [np.exp(-model.gamma_ * ((X[:, None] - u) ** 2).sum(-1)).mean(1) for u in supports]
    p = np.stack(kernels, axis=1) / np.sum(kernels, axis=0)[:, None]
    net = neuralize(model, threshold=0.7)
    assert ((net(torch.tensor(X)) > 0).numpy() == (p > 0.7)).all()


# --- Gaussian mixtures --------------------------------------------------------------------------------------


def covariance(model, k):
    found = model.covariances_
    return {
        "full": lambda: found[k],
        "tied": lambda: found,
        "diag": lambda: np.diag(found[k]),
        "spherical": lambda: found[k] * np.eye(model.means_.shape[1]),
    }[model.covariance_type]()


@pytest.mark.parametrize("kind", TYPES)
def test_mixtures(kind):
    """Log-likelihood ratios by SciPy; relevance by terms of the quadratic forms and of tr log P; tied: the
    mid-point rule of a linear contrast.
    """
    model = GaussianMixture(3, covariance_type=kind, random_state=0).fit(IRIS)
    net = neuralize(model, IRIS)
    X = near(IRIS, 300)
    density = [multivariate_normal(model.means_[k], covariance(model, k)).logpdf(X) for k in range(3)]
    log_p, logits = np.log(model.weights_) + np.transpose(density), net(torch.tensor(X)).numpy()
    assert (net.predict(X) == model.predict(X)).all()
    neon, inverse = NEON(net), [np.linalg.inv(covariance(model, k)) for k in range(3)]
    for c in range(3):
        assert np.allclose(logits[:, c], log_p[:, c] - np.delete(log_p, c, 1).max(1), rtol=1e-7, atol=1e-7)
        R, rest = neon.attribute(X, target=c), neon.residual(X, target=c)
        for n, x in enumerate(X[:10]):
            terms, prior = [], []
            for k in (k for k in range(3) if k != c):
                if kind == "tied":
                    middle = (model.means_[c] + model.means_[k]) / 2
                    terms.append((x - middle) * (inverse[c] @ (model.means_[c] - model.means_[k])))
                else:
                    terms.append(_part(x, model.means_[k], inverse[k]) - _part(x, model.means_[c], inverse[c]))
                prior.append(np.log(model.weights_[c] / model.weights_[k]))
            h = np.sum(terms, axis=1) + prior
            s = contrast_relevance(h, net.beta) / h
            expected = s @ np.array(terms)
            assert np.abs(R[n] - expected).max() <= 1e-6 * np.abs(expected).max()
            assert rest[n] == pytest.approx(s @ np.array(prior), abs=1e-6 * np.abs(expected).max())


def _part(x, mean, P):
    delta = x - mean
    return delta * (P @ delta) / 2 - np.diag(logm(P)).real / 2


@pytest.mark.parametrize("kind", TYPES)
def test_bayesian_mixture(kind):
    model = BayesianGaussianMixture(n_components=4, covariance_type=kind, random_state=0, max_iter=500).fit(IRIS)
    net, X = neuralize(model, IRIS), near(IRIS, 300)
    assert (net.predict(X) == model.predict(X)).all()
    first, second = np.sort(model.predict_proba(X), 1)[:, :-3:-1].T
    found, sure = net(torch.tensor(X)).amax(1).numpy(), second > 1e-12
    assert np.allclose(found[sure], np.log(first / second)[sure], rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("mix", [False, True])
def test_mixture_behind_a_pipeline(kind, mix):
    steps = [StandardScaler(), PCA(3)] if mix else [StandardScaler()]
    model = make_pipeline(*steps, GaussianMixture(3, covariance_type=kind, random_state=0)).fit(IRIS)
    net = neuralize(model, IRIS)
    X = near(IRIS, 100)
    assert (net.predict(X) == model.predict(X)).all()
    inner = neuralize(model[-1], model[:-1].transform(IRIS))
    assert torch.allclose(net(torch.tensor(X)), inner(torch.tensor(model[:-1].transform(X))), rtol=1e-6, atol=1e-6)
    if not mix:
        relevance = NEON(inner).attribute(model[:-1].transform(X))
        assert np.allclose(NEON(net).attribute(X), relevance, rtol=1e-6, atol=1e-6)


def test_mixture_with_threshold_and_competitor():
    model = GaussianMixture(3, random_state=0).fit(IRIS)
    X = near(IRIS, 100)
    p = model.predict_proba(X)
    net = neuralize(model, threshold=0.9)
    assert ((net(torch.tensor(X)) > 0).numpy() == (p > 0.9)).all()
    relevance = NEON(neuralize(model, IRIS)).attribute(X, target=1, competitor=2)
    log_p, prior = model._estimate_weighted_log_prob(X), np.log(model.weights_[1] / model.weights_[2])
    assert np.allclose(relevance.sum(1), log_p[:, 1] - log_p[:, 2] - prior, rtol=1e-8)


@pytest.mark.parametrize("make", [linear, lambda: GaussianMixture(4, random_state=0).fit(points(300).numpy())])
def test_a_single_competitor_counts_alone_beyond_a_threshold_too(make):
    model, x = make(), points()
    plain, sure = NEON(neuralize(model)), NEON(neuralize(model, threshold=0.9))
    for c, k in ((0, 1), (2, 0)):
        contrast = sure.attribute(x, target=c, competitor=k)
        assert torch.allclose(contrast, plain.attribute(x, target=c, competitor=k), rtol=1e-10, atol=1e-12)
        assert not torch.allclose(contrast, sure.attribute(x, target=c), rtol=1e-2)


def _digits(scale):
    X = PCA(60, random_state=0).fit_transform(load_digits().data[:600]).astype(np.float32) * np.float32(scale)
    return X, GaussianMixture(5, max_iter=10, random_state=0)


def _collinear(scale):
    X = np.random.default_rng(0).normal(size=(400, 3)) * scale
    return np.c_[X, X[:, 0] + X[:, 1]].astype(np.float32), GaussianMixture(4, random_state=0)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("data", [lambda: _digits(1), lambda: _digits(100), lambda: _collinear(10)])
def test_mixtures_with_hardly_invertible_covariances(data):
    X, model = data()
    exact = X.astype(np.float64)
    log_p = np.sort(model.fit(exact)._estimate_weighted_log_prob(exact), 1)
    found = neuralize(model)(torch.tensor(exact)).amax(1).numpy()
    assert np.allclose(found, log_p[:, -1] - log_p[:, -2], rtol=1e-6, atol=1e-4)
    for stored in (torch.float32, torch.float64):
        net = neuralize(model).to(stored)
        for x in (X, exact):
            assert (net.predict(x) == model.predict(exact)).mean() > 0.999
            assert bool(net(torch.tensor(x)).isfinite().all())


def test_mixture_on_features():
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(4, 8), nn.ReLU()).double()
    x = torch.tensor(IRIS)
    a = encoder(x).detach().requires_grad_()
    model = GaussianMixture(3, covariance_type="diag", random_state=0, reg_covar=1e-3).fit(a.detach().numpy())
    net = neuralize(model, IRIS, features=encoder)
    own = net.assign(x)
    assert (own.numpy() == model.predict(a.detach().numpy())).all()
    # the linear rule: relevance at the features is the slope of the logit times the feature
    alone = neuralize(model, a.detach(), features=nn.Identity())
    (slope,) = torch.autograd.grad(alone(a).gather(1, own[:, None]).sum(), a)
    found = NEON(alone, beta=torch.inf, head_rule="linear").attribute(a.detach())
    assert torch.allclose(found, (slope * a).detach(), rtol=1e-8, atol=1e-8)


# --- feature networks: which rule carries relevance to the features ------------------------------------------


@pytest.mark.parametrize("model", [GaussianMixture(3, random_state=0), KernelKMeans(3, random_state=0)])
def test_head_rules_of_contrasts_that_are_not_linear(model):
    """The mid-point rule keeps to the logit, many times which the slopes attribute."""
    alone, net = neuralize(model.fit(IRIS), IRIS), neuralize(model, IRIS, features=nn.Identity())
    by_slope, midpoint = (NEON(net, head_rule=rule).attribute(IRIS) for rule in ("linear", "midpoint"))
    assert np.allclose(midpoint, NEON(alone).attribute(IRIS), rtol=1e-6, atol=1e-9)
    assert np.median(np.abs(by_slope).sum(1) / np.abs(midpoint).sum(1)) > 2
    assert (NEON(net).attribute(IRIS) == by_slope).all()
