"""Soft assignments: linear heads with a softmax, thresholds of probabilities, soft k-means, DEC, mixtures."""

from __future__ import annotations

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


def linear(bias=True):
    torch.manual_seed(0)
    return nn.Linear(6, 4, bias=bias).double()


def points(n=60):
    return 2 * torch.randn(n, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


# --- linear heads (Props. 6 and 7) --------------------------------------------------------------------------


def pairs(layer, x, c):
    """The differences [N, K - 1] of logits to the other clusters, and their parts [N, K - 1, d] by feature.

    A difference is counted from its zero nearest to the origin.
    """
    W = layer.weight.detach().numpy()
    b = np.zeros(4) if layer.bias is None else layer.bias.detach().numpy()
    w = np.delete(W[c] - W, c, 0)
    shift = np.delete(b[c] - b, c)
    zero = -shift[:, None] * w / (w**2).sum(1, keepdims=True)
    return x.numpy() @ w.T + shift, (x.numpy()[:, None] - zero) * w


@pytest.mark.parametrize("bias", [True, False])
def test_linear_relevance_pair_by_pair(bias):
    """The logit is the log-likelihood ratio to the best other cluster, which relevance conserves."""
    layer = linear(bias=bias)
    x = points()
    net = neuralize(layer, x)
    p = layer(x).softmax(1)
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
    layer = linear()
    x = points()
    net = neuralize(layer, threshold=theta)
    p = layer(x).softmax(1)
    shift = np.log((1 - theta) / theta)
    assert torch.allclose(net(x), (p / (1 - p)).log() + shift, rtol=1e-7, atol=1e-7)
    assert torch.equal(net(x) > 0, p > theta)
    # literal layers: h_k = w_k a + b_k, LME^{-1} over k != c, R_k <- R_k h_k / f
    shift -= np.log(3)
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
    encoder = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 5), nn.ReLU())
    head = nn.Linear(5, 3)
    x = torch.randn(40, 6)
    relevance = []
    top = head(encoder(x)).topk(2)
    for net in (
        neuralize(head, x, features=encoder),
        neuralize(nn.Sequential(encoder, head, nn.Softmax(dim=1)), x),
        neuralize(nn.Sequential(*encoder, head, nn.LogSoftmax(dim=1)), x),
    ):
        assert torch.equal(net.predict(x), top.indices[:, 0])
        assert torch.allclose(net(x).amax(1), top.values[:, 0] - top.values[:, 1], atol=1e-5)
        relevance.append(NEON(net, neonxc.lrp.presets.epsilon()).attribute(x))
        assert torch.allclose(relevance[-1], relevance[0], atol=1e-5)
    assert bool((relevance[0] != 0).any())


# --- DEC, soft k-means --------------------------------------------------------------------------------------


def test_a_model_is_copied():
    """Training it, or loading into the network, leaves the other as it is."""
    layer = linear()
    x = torch.tensor(IRIS)
    mixtures = [GaussianMixture(3, covariance_type=kind, random_state=0).fit(IRIS) for kind in TYPES]
    given = [(model, x, [model.means_, model.precisions_cholesky_]) for model in mixtures]
    given.append((layer, points(), [layer.weight.data, layer.bias.data]))
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


def test_what_is_before_the_head_stays():
    for layer in (nn.Softmax(dim=1), nn.LogSoftmax(dim=1)):
        model = nn.Sequential(linear(), layer, nn.Identity(), nn.Linear(4, 3), nn.Softmax(dim=1)).double()
        model[3].weight.data *= 20
        net = neuralize(model)
        assert (net.predict(points(200)) == model(points(200)).argmax(1)).all()
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
    encoder = nn.Linear(6, 3).to(dtype)
    layer = StudentT(torch.randn(4, 3, dtype=dtype))
    x = points().to(dtype)
    net = neuralize(nn.Sequential(encoder, layer), x)
    assert (net.predict(x) == layer(encoder(x)).argmax(1)).all()
    alone = neuralize(layer, features=encoder)
    assert torch.allclose(alone(x), net(x))
    assert len(neuralize(StudentT(torch.randn(300, 20, dtype=dtype) + 1e3)).classes_) == 300


class Prototypes(StudentT):
    """Centers that something else than distance goes by."""

    def forward(self, z):
        return (z @ self.cluster_centers.T).softmax(1)


class WholeDEC(StudentT):
    def __init__(self, centers, width):
        super().__init__(centers)
        self.encoder = nn.Linear(width, centers.shape[1]).to(centers)

    def forward(self, x):
        return super().forward(self.encoder(x))


class NoForward(nn.Module):
    centers = torch.eye(3)


def test_modules_that_are_no_heads():
    for module in (Prototypes(torch.eye(4, 3)), *(WholeDEC(torch.eye(4, 3), d) for d in (3, 7)), NoForward()):
        refused("its largest output is not that of the nearest of its", neuralize, module, error=TypeError)
    refused("can't neuralize a ReLU: the model needs to be", neuralize, nn.ReLU(), error=TypeError)
    refused("empty nn.Sequential", neuralize, nn.Sequential(), error=TypeError)


def test_soft_kmeans():
    X = blobs()
    model = KMeans(4, n_init=1, random_state=0).fit(X)
    x = torch.tensor(near(X))
    p = (-0.01 * torch.cdist(x, torch.tensor(model.cluster_centers_)).square()).softmax(1)
    net = neuralize(model, stiffness=0.01)
    hard = neuralize(model)
    beyond = neuralize(model, stiffness=0.01, threshold=0.8)
    assert beyond.beta == pytest.approx(net.beta) == pytest.approx(100 * hard.beta)
    assert torch.allclose(net(x), 0.01 * hard(x))
    slower = 0.01 * NEON(hard, beta=0.03).attribute(x)
    assert torch.allclose(NEON(net, beta=3.0).attribute(x), slower, rtol=1e-8, atol=1e-10)
    odds = p.logit() + np.log(0.25)
    assert torch.allclose(beyond(x)[odds < 12], odds[odds < 12], rtol=1e-6, atol=1e-6)


def test_kernel_threshold_is_a_mixture_of_kernels():
    X = blobs() / 3.0 ** np.arange(4)
    model = KernelKMeans(4, 5, random_state=0).fit(X)
    supports = [model.support_vectors_[model.support_labels_ == k] for k in range(4)]
    kernels = [np.exp(-model.gamma_ * ((X[:, None] - u) ** 2).sum(-1)).mean(1) for u in supports]
    p = np.stack(kernels, axis=1) / np.sum(kernels, axis=0)[:, None]
    net = neuralize(model, threshold=0.7)
    assert ((net(torch.tensor(X)) > 0).numpy() == (p > 0.7)).all()


# --- Gaussian mixtures --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TYPES)
def test_mixtures(kind):
    """Log-likelihood ratios by SciPy; relevance by terms of the quadratic forms and of tr log P; tied: the
    mid-point rule of a linear contrast.
    """
    model = GaussianMixture(3, covariance_type=kind, random_state=0).fit(IRIS)
    net = neuralize(model, IRIS)
    X = near(IRIS, 300)
    means = model.means_
    covariances = model.covariances_
    if kind in ("diag", "spherical"):
        covariances = covariances.reshape(3, -1, 1) * np.eye(4)
    covariances = np.broadcast_to(covariances, (3, 4, 4))
    density = [multivariate_normal(*moments).logpdf(X) for moments in zip(means, covariances, strict=True)]
    prior = np.log(model.weights_)
    log_p = prior + np.transpose(density)
    logits = net(torch.tensor(X)).numpy()
    assert (net.predict(X) == model.predict(X)).all()
    neon = NEON(net)
    P = np.linalg.inv(covariances)
    for c in range(3):
        assert np.allclose(logits[:, c], log_p[:, c] - np.delete(log_p, c, 1).max(1), rtol=1e-7, atol=1e-7)
        R = neon.attribute(X, target=c)
        rest = neon.residual(X, target=c)
        rivals = np.delete(np.arange(3), c)
        for n, x in enumerate(X[:10]):
            if kind == "tied":
                terms = (x - (means[c] + means[rivals]) / 2) * ((means[c] - means[rivals]) @ P[c])
            else:
                half = [d * (p @ d) - np.diag(logm(p)).real for d, p in zip(x - means, P, strict=True)]
                terms = (np.array(half)[rivals] - half[c]) / 2
            h = terms.sum(1) + prior[c] - prior[rivals]
            s = contrast_relevance(h, net.beta) / h
            scale = np.abs(s @ terms).max()
            assert np.abs(R[n] - s @ terms).max() <= 1e-6 * scale
            assert rest[n] == pytest.approx(s @ (prior[c] - prior[rivals]), abs=1e-6 * scale)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("steps", [["passthrough"], [StandardScaler()], [StandardScaler(), PCA(3)]])
def test_mixtures_behind_a_pipeline(kind, steps):
    mixture = BayesianGaussianMixture(n_components=4, covariance_type=kind, random_state=0, max_iter=500)
    model = make_pipeline(*steps, mixture).fit(IRIS)
    X = near(IRIS, 300)
    net = neuralize(model, IRIS)
    z = model[:-1].transform(X)
    assert (net.predict(X) == model.predict(X)).all()
    first, second = np.sort(model.predict_proba(X), 1)[:, :-3:-1].T
    found = net(torch.tensor(X)).amax(1).numpy()
    sure = second > 1e-12
    assert np.allclose(found[sure], np.log(first / second)[sure], rtol=1e-5, atol=1e-8)
    if len(steps) == 1:  # columns one by one
        inner = neuralize(model[-1], model[:-1].transform(IRIS))
        assert np.allclose(NEON(net).attribute(X), NEON(inner).attribute(z), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("make", [linear, lambda: GaussianMixture(4, random_state=0).fit(points(300).numpy())])
def test_a_single_competitor_counts_alone_beyond_a_threshold_too(make):
    model = make()
    x = points()
    plain = NEON(neuralize(model))
    sure = NEON(neuralize(model, threshold=0.9))
    p = model(x).softmax(1) if isinstance(model, nn.Linear) else torch.tensor(model.predict_proba(x))
    assert torch.equal(sure.net(x) > 0, p > 0.9)
    for c, k in ((0, 1), (2, 0)):
        contrast = sure.attribute(x, target=c, competitor=k)
        assert torch.allclose(contrast, plain.attribute(x, target=c, competitor=k), rtol=1e-10, atol=1e-12)
        assert not torch.allclose(contrast, sure.attribute(x, target=c), rtol=1e-2)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("kind", "scale"), [("digits", 1), ("digits", 100), ("collinear", 10)])
def test_mixtures_with_hardly_invertible_covariances(kind, scale):
    X = np.c_[IRIS, IRIS[:, 0] + IRIS[:, 1]]
    if kind == "digits":
        X = PCA(60, random_state=0).fit_transform(load_digits().data[:600])
    X = (X * scale).astype(np.float32)
    exact = X.astype(np.float64)
    model = GaussianMixture(5, max_iter=10, random_state=0).fit(exact)
    log_p = np.sort(model._estimate_weighted_log_prob(exact), 1)
    found = neuralize(model)(torch.tensor(exact)).amax(1).numpy()
    assert np.allclose(found, log_p[:, -1] - log_p[:, -2], rtol=1e-6, atol=1e-4)
    for stored in (torch.float32, torch.float64):
        net = neuralize(model).to(stored)
        for x in (X, exact):
            assert (net.predict(x) == model.predict(exact)).mean() > 0.999
            assert bool(net(torch.tensor(x)).isfinite().all())


# --- feature networks: which rule carries relevance to the features ------------------------------------------


@pytest.mark.parametrize("model", [GaussianMixture(3, random_state=0), KernelKMeans(3, random_state=0)])
def test_head_rules_of_contrasts_that_are_not_linear(model):
    """The mid-point rule keeps to the logit, many times which the slopes attribute."""
    alone = neuralize(model.fit(IRIS), IRIS)
    net = neuralize(model, IRIS, features=nn.Identity())
    by_slope, midpoint = (NEON(net, head_rule=rule).attribute(IRIS) for rule in ("linear", "midpoint"))
    assert np.allclose(midpoint, NEON(alone).attribute(IRIS), rtol=1e-6, atol=1e-9)
    assert np.median(np.abs(by_slope).sum(1) / np.abs(midpoint).sum(1)) > 2
    assert (NEON(net).attribute(IRIS) == by_slope).all()
    x = torch.tensor(IRIS, requires_grad=True)
    (slope,) = torch.autograd.grad(net(x).amax(1).sum(), x)
    hard = NEON(net, beta=torch.inf, head_rule="linear").attribute(x)
    assert torch.allclose(hard, (slope * x).detach(), rtol=1e-8, atol=1e-8)
