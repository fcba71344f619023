"""NEON against the paper's equations written out, Shapley values by enumeration, and captum."""

import importlib
import itertools
import math
import pickle
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from captum.attr import IntegratedGradients, NoiseTunnel
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal
from refusals import refused
from sklearn.cluster import Birch, BisectingKMeans, KMeans
from sklearn.datasets import load_iris
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler, scale
from torch import nn
from turns import slow
from witnesses import (
    blobs,
    contrast_relevance,
    hierarchy_paths,
    near,
    neon,
    neuron,
    on_the_way,
    shared,
    softmin,
    two_layer_logits,
)

import neonxc
from neonxc import NEON, neuralize
from neonxc.lrp import Composite, Epsilon, Gamma
from neonxc.trees import ExKMC

X = blobs(k=5)
NEW = near(X, 60)
CENTERS = KMeans(5, n_init=1, random_state=0).fit(X).cluster_centers_
BETAS = [0.0, 1e-3, 0.05, math.inf]


def network(centers=CENTERS, beta=1e-3):
    net = neuralize(centers)
    net.beta = beta
    return net


def tensor(data, dtype=torch.float64):
    return torch.tensor(np.asarray(data), dtype=dtype)


def assert_close(got, wanted, rtol=1e-9):
    got = np.asarray(got)
    wanted = np.asarray(wanted)
    assert_allclose(got, wanted, rtol=rtol, atol=rtol * np.abs(wanted).max())


# --- the paper's rules -------------------------------------------------------------------------------------


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("target", [None, *range(5)])
def test_equations_2_and_4_also_where_the_logit_is_negative(target, beta):
    net = network(beta=beta)
    own = net.predict(NEW) if target is None else [target] * len(NEW)
    wanted = [neon(x, CENTERS, c, beta) for x, c in zip(NEW, own, strict=True)]
    relevance = NEON(net).attribute(NEW, target=target)
    assert_close(relevance, wanted)
    assert_close(relevance.sum(axis=1), two_layer_logits(NEW, CENTERS)[range(len(NEW)), own])  # conservation
    single = NEON(net).attribute(NEW.astype(np.float32), target=target)
    assert single.dtype == np.float32
    assert_close(single, wanted, rtol=2e-3)


@pytest.mark.parametrize("beta", [0.0, 0.7, math.inf])
def test_equation_2_at_its_edges(beta):
    """In a network in which the contrasts of cluster 0 are the columns of a point."""
    head = nn.Linear(4, 5, bias=False).double()
    head.weight.data = torch.eye(5, 4).roll(1, 0).double().neg()
    h = np.random.default_rng(0).normal(size=(200, 4))
    h[0] = 1, 1, 2, 2  # ties
    h[1] = 0, 1, 2, 3  # on the border
    h[2] = -1, 0, 1e-300, -1e-300  # around the pole of Eq. 2
    relevance = NEON(neuralize(head), beta=beta).attribute(h, target=0)
    assert_allclose(relevance, [contrast_relevance(row, beta) for row in h], atol=1e-12)
    assert ((relevance * h >= 0) | (relevance == 0)).all()


# --- competitors and targets -------------------------------------------------------------------------------


def test_a_hierarchy_is_explained_along_its_path():
    model = BisectingKMeans(6, random_state=0).fit(X)
    net = neuralize(model, X)
    paths = hierarchy_paths(model._bisecting_tree, model._X_mean)
    for target in (None, *range(6)):
        columns = net.predict(NEW) if target is None else np.full(len(NEW), target)
        for x, c, R in zip(NEW, columns, NEON(net).attribute(NEW, target=target), strict=True):
            nodes, siblings = np.swapaxes(paths[c], 0, 1)
            w = 2 * (nodes - siblings)
            middles = (nodes + siblings) / 2
            assert_close(R, shared(x, w, middles, ((x - middles) * w).sum(axis=1), net.beta), rtol=1e-7)
        for rival in set(range(6)) - {target} if target is not None else ():  # the split where the paths part
            siblings = {tuple(node) for node, _ in paths[rival]}
            ((node, sibling),) = [(a, b) for a, b in paths[target] if tuple(b) in siblings]
            wanted = (NEW - (node + sibling) / 2) * 2 * (node - sibling)
            assert_close(NEON(net).attribute(NEW, target=target, competitor=rival), wanted)


def test_subclusters_are_explained_by_the_nearest_of_each_cluster():
    model = Birch(n_clusters=3, threshold=6).fit(X)
    net = neuralize(model, X)
    u = model.subcluster_centers_
    labels = model.subcluster_labels_
    assert len(u) > 3
    plain = NEON(net).attribute(NEW)
    for x, c, R in zip(NEW, net.predict(NEW), plain, strict=True):
        nearest = np.array([min(u[labels == k], key=lambda v, x=x: ((x - v) ** 2).sum()) for k in range(3)])
        assert_close(R, neon(x, nearest, c, net.beta), rtol=1e-8)
    model.subcluster_centers_ = np.concatenate([u] * 2)
    model.subcluster_labels_ = np.concatenate([labels] * 2)
    model._subcluster_norms = np.concatenate([model._subcluster_norms] * 2)  # by which it predicts
    assert_close(NEON(neuralize(model, X)).attribute(NEW), plain)


@pytest.mark.parametrize(
    "make",
    [
        tuple,
        torch.tensor,
        partial(np.array, dtype=np.uint32),
        partial(torch.tensor, dtype=torch.uint32),
        lambda targets: pd.Series(targets, index=range(len(targets), 0, -1)),
    ],
)
def test_one_target_per_point_is_read_by_position_however_many_parts(make, monkeypatch):
    neon_ = NEON(network())
    monkeypatch.setattr("neonxc.common.memory.CPU", 16 * 5 * 8 * 4)
    targets = np.arange(len(NEW)) % 5
    relevance = neon_.attribute(NEW, target=make(targets.tolist()), competitor=(targets + 1) % 5)
    assert_close(relevance, [neon(x, CENTERS, i % 5, 0, competitor=(i + 1) % 5) for i, x in enumerate(NEW)])
    assert_array_equal(neon_.attribute(NEW, target=make([2])), neon_.attribute(NEW, target=2))
    own = neon_.net.predict(NEW)
    relevance = neon_.attribute(NEW, competitor=2)
    wanted = [neon(x, CENTERS, c, 0, competitor=2) if c != 2 else 0 * x for x, c in zip(NEW, own, strict=True)]
    assert_close(relevance, wanted)


# --- properties --------------------------------------------------------------------------------------------

numbers = st.floats(-100, 100, allow_nan=False, width=32)


@given(st.data(), st.integers(2, 6), st.integers(1, 5), st.sampled_from([0.0, 1e-4, 1.0, 50.0, math.inf]))
def test_conserves_is_finite_and_agrees_with_predict(data, k, d, beta):
    rows = st.lists(numbers, min_size=d, max_size=d).map(tuple)
    centers = np.array(data.draw(st.lists(rows, min_size=k, max_size=k, unique=True)))
    x = data.draw(arrays(np.float64, (3, d), elements=numbers))
    net = network(centers, beta)
    logits = net(tensor(x)).numpy()
    wanted = two_layer_logits(x, centers)
    size = 1e-10 * (1 + np.abs(wanted).max())
    clear = wanted.max(axis=1) > size
    assert_array_equal(net.predict(x)[clear], wanted.argmax(axis=1)[clear])
    assert_allclose(logits, wanted, atol=size)
    for target in range(k):
        relevance = NEON(net).attribute(x, target=target)
        assert np.isfinite(relevance).all()
        assert_allclose(relevance.sum(axis=1), logits[:, target], atol=size)


# --- summary -----------------------------------------------------------------------------------------------


def test_summary_by_brute_force():
    """Means by pandas, and the arrow by hand; relevance is positive in either direction."""
    iris = load_iris(as_frame=True).data.set_axis(list("abcd"), axis=1)
    net = neuralize(make_pipeline(StandardScaler(), KMeans(3, n_init=1, random_state=0)).fit(iris), iris)
    own = net.predict(iris)
    relevance = NEON(net).attribute(iris)
    logits = net(tensor(iris)).numpy()
    means = iris.groupby(own).mean()
    overall = iris.mean()
    for X in (tensor(iris).float(), iris):
        found = NEON(net).summary(X, n_prototypes=4)
        assert found.values.means.dtype == np.float64
        assert_allclose(found.values.means, means, rtol=1e-6)
    assert_close(found.relevance, relevance.groupby(own).mean())
    frame = found.to_frame()
    text = str(found)
    for k in range(3):
        members = np.flatnonzero(own == k)
        assert found.sizes[k] == len(members)
        inside = members[logits[members, k] >= np.median(logits[members, k])]
        scaled = (iris - means.loc[k]) / iris.std(ddof=0)
        prototypes = inside[np.argsort((scaled.loc[inside] ** 2).sum(axis=1))][:4]
        assert_array_equal(found.prototypes[k], prototypes)
        names = iris.columns[np.argsort(-found.relevance[k])]
        assert [name for name, _ in found.top(k, 2)] == [*names[:2]] == [*frame.loc[k].index[:2]]
        assert f"cluster {k} ({len(members)} points)\n    {names[0]} " in text
    assert list(frame) == ["relevance", "direction", "mean", "overall", "effect", "points"]
    assert len(frame) == 12
    for (cluster, feature), row in frame.iterrows():
        numbers = found.relevance[cluster, "abcd".index(feature)], means.loc[cluster, feature], overall[feature]
        assert row[["relevance", "mean", "overall"]].tolist() == pytest.approx(numbers, rel=1e-4)
        clear = "↑" if row["mean"] > row["overall"] else "↓"
        assert row["direction"] == (clear if abs(row["effect"]) >= 0.36 else "≈")
    flat = iris.assign(d=2.0)
    same = NEON(neuralize(means.assign(d=2.0).to_numpy(), flat)).summary(flat)
    assert same.values.comparison(0, 3) == "= 2 vs 2"


def test_summary_of_an_empty_cluster_and_unnamed_columns():
    centers = np.concatenate([CENTERS, [[1e4] * 4]])
    found = NEON(network(centers)).summary(X, n_prototypes=1000)
    assert found.sizes[-1] == abs(found.relevance[-1]).max() == 0
    assert [*map(len, found.prototypes)] == found.sizes.tolist()
    assert found.feature_names == ["x0", "x1", "x2", "x3"]
    assert found.values.direction(len(centers) - 1, 0)[0] == ""
    assert found.reasons(len(centers) - 1, 1) == ["x0 +0"]


# --- feature networks --------------------------------------------------------------------------------------

RULES = ("linear", "midpoint")


def deep(features, images, k=3, steps=()):
    with torch.no_grad():
        a = features(images)
    points = a.movedim(1, -1).reshape(-1, a.shape[1]).numpy()
    model = make_pipeline(*steps, KMeans(k, n_init=1, random_state=0)).fit(points)
    return neuralize(model, images, features=features), model[-1].cluster_centers_


@pytest.mark.parametrize("rule", RULES)
def test_linear_features_in_closed_form(rule):
    """Behind ``a = V x`` both head rules can be written down: one contrast weight, gradient x input below."""
    net, centers = deep(nn.Linear(4, 3, bias=False).double(), tensor(X))
    V = net.features.weight.detach().numpy()
    relevance = NEON(net, Composite(Epsilon(0.0)), head_rule=rule).attribute(NEW)
    for x, R in zip(NEW, relevance, strict=True):
        a = V @ x
        distance = ((a - centers) ** 2).sum(axis=1)
        c = distance.argmin()
        h = np.delete(distance - distance[c], c)
        rivals = np.delete(centers, c, 0)
        s = softmin(h, net.beta) * h.min() / h
        w = 2 * (centers[c] - rivals)
        m = (centers[c] + rivals) / 2
        at_features = s @ w if rule == "linear" else (s[:, None] * w * (a - m)).sum(axis=0) / a
        assert_close(R, x * (V.T @ at_features), rtol=1e-8)
    net, centers = deep(net.features, tensor(X), steps=[Normalizer()])  # the norm is held constant
    relevance = NEON(net, Composite(Epsilon(0.0))).attribute(NEW, target=0, competitor=1)
    w, _ = neuron(centers[0], centers[1])
    assert_close(relevance, [x * (V.T @ w) / np.linalg.norm(V @ x) for x in NEW], rtol=1e-8)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("pooled", [False, True])
def test_targets_on_a_map(rule, pooled):
    same = torch.testing.assert_close
    images = torch.randn(10, 2, 7, 5, dtype=torch.float64)
    layers = [nn.Conv2d(2, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 4, 3, stride=2), nn.ReLU()]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten()] if pooled else []
    net, _ = deep(nn.Sequential(*layers).double(), images)
    neon_ = NEON(net, head_rule=rule)
    own = net.assign(images).reshape(10, *([1, 1] if pooled else [3, 2]))
    everything = torch.zeros_like(images)
    maps = neon_.heatmaps(images)
    assert maps.shape == (10, 3, 7, 5)
    for c in range(3):
        # a cluster's relevance is that of the places assigned to it, an image's own relevance that of them all
        of_cluster = neon_.attribute(images, target=c)
        wanted = torch.zeros_like(images)
        for i, j in itertools.product(*map(range, own.shape[1:])):
            single = of_cluster if pooled else neon_.attribute(images, target=(c, i, j))
            wanted += single * (own[:, i, j] == c)[:, None, None, None]
        if not pooled:
            same(of_cluster, wanted)
        same(maps[:, c], of_cluster.sum(dim=1))
        everything += wanted
    same(neon_.attribute(images), everything)
    same(neon_.heatmaps(images.numpy(), clusters=[2, 0]), maps[:, [2, 0]].numpy())
    target = torch.arange(10) % 3
    same(maps[range(10), target], neon_.attribute(images, target=target).sum(dim=1))
    each = neon_.attribute(images, target=target, competitor=(target + 1) % 3)
    for i in range(3):
        same(each[i::3], neon_.attribute(images[i::3], i, (i + 1) % 3))


# --- captum ------------------------------------------------------------------------------------------------


def test_captum():
    net = network()
    x = tensor(NEW)
    neon_ = NEON(net)
    plain = NEON(net).attribute(x, target=1)
    assert neon_.multiplies_by_inputs is True
    assert not neon_.has_convergence_delta()
    assert neon_.forward_func is net
    assert not neon_.attribute(x.clone().requires_grad_()).requires_grad
    tunnel = partial(NoiseTunnel(neon_).attribute, nt_type="smoothgrad", nt_samples=4)
    assert_close(tunnel((x,), stdevs=0.0, target=1)[0], plain)
    assert not torch.allclose(tunnel(x, stdevs=5.0, target=torch.arange(len(x)) % 5), plain)
    two = network(CENTERS[:2])
    middle = tensor(CENTERS[:2].mean(axis=0))[None]
    for target in (0, 1):
        found = IntegratedGradients(two).attribute(x, middle, target=target, n_steps=5)
        assert_close(found, NEON(two).attribute(x, target=target))


# --- targets, modes and devices -----------------------------------------------------------------------------

IRIS = load_iris().data


@pytest.fixture
def iris_net():
    return neuralize(IRIS[[0, 60, 120]], IRIS)


@pytest.mark.parametrize(
    ("kind", "scale", "beyond"),
    [("float32", 1e17, 1e19), ("float32", 1e-12, 1e-20), ("float64", 1e150, 1e155), ("float64", 1e-140, 1e-160)],
)
def test_columns_of_any_size_whose_squares_are_numbers(kind, scale, beyond, iris_net):
    far = (IRIS * beyond).astype(kind)
    refused("rescale the column", neuralize, far[[0, 60, 120]], far)
    data = (IRIS * scale).astype(kind)
    net = neuralize(data[[0, 60, 120]], data)
    assert (net.predict(data) == iris_net.predict(IRIS)).all()
    beta = net.beta
    NEON(net, beta=1.0).attribute(data)
    assert net.beta == beta  # another beta leaves the network as it is
    relevance = NEON(net).attribute(data) / scale / scale
    assert np.allclose(relevance, NEON(iris_net).attribute(IRIS), rtol=1e-3, atol=1e-4)


# --- with a baseline -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [5, 60])
@pytest.mark.parametrize("beta", [None, 0.7])
@pytest.mark.parametrize("groups", [None, [0, 0, 1, 2, 2, 3]])
def test_the_way_in_order_of_relevance_by_loops(groups, beta, k):
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(k, 6))
    X = rng.normal(size=(20, 6))
    b = rng.normal(size=6)
    X[:, 3] = np.where(np.arange(20) < 10, b[3], X[:, 3])  # no effect: not in the order
    net = neuralize(centers, X)
    own = np.arange(6) if groups is None else np.array(groups)
    explainer = NEON(net, baseline=b, steps=9, groups=groups, beta=beta)
    found = explainer.estimate(X)
    assert np.array_equal(found.relevance, explainer.attribute(X))
    middle = NEON(net, baseline=b, steps=3, head_rule="midpoint").attribute(X)

    def contrasts(x, c, share=1.0):
        far = ((b + share * (x - b) - centers) ** 2).sum(1)
        return np.delete(far - far[c], c)

    n_late = 0
    for n, (x, c) in enumerate(zip(X, net.predict(X), strict=True)):
        h = contrasts(x, c)
        rivals = np.delete(centers, c, 0)
        w = 2 * (centers[c] - rivals)

        def values(share, x=x, c=c, h=h, w=w):
            at = contrasts(x, c, share[own])
            weights = softmin(at, 1 / h.min() if beta is None else beta) * h.min() / (h.min() + abs(at.min()))
            return (x - b) * (weights @ w)

        late = contrasts(x, c, 0.75).min() < 0
        n_late += late
        relevance, errors = on_the_way(values, own, 9, late)
        assert np.allclose(found.relevance[n], relevance, rtol=1e-8, atol=1e-10)
        assert np.allclose(found.stderr[n], errors, atol=1e-9)
        start = contrasts(x, c, 0).min()
        assert float(found.residual[n]) == pytest.approx(h.min() - start - found.relevance[n].sum())
        weights = np.mean([softmin(contrasts(x, c, (i + 0.5) / 3), net.beta) for i in range(3)], axis=0)
        expected = (weights * h.min() / h) @ (w * (x - (centers[c] + rivals) / 2))
        assert np.allclose(middle[n], expected, rtol=1e-8, atol=1e-10)
    assert (n_late >= 3) == (k == 60)


def contrasts_by_hand(name):
    """A model, the options of its network, and the contrasts of a point z with the competitors of cluster c."""
    subclusters = Birch(n_clusters=3, threshold=6).fit(X)
    mixture = GaussianMixture(4, random_state=0).fit(X)
    bisecting = BisectingKMeans(6, random_state=0).fit(X)
    paths = hierarchy_paths(bisecting._bisecting_tree, bisecting._X_mean)

    def energies(z):
        if "mixture" in name:
            return -mixture._estimate_weighted_log_prob(z[None])[0]
        centers = subclusters.subcluster_centers_
        labels = subclusters.subcluster_labels_
        return np.array([((z - centers[labels == k]) ** 2).sum(1).min() for k in range(3)])

    def margins(z, c):
        return np.array([((z - other) ** 2).sum() - ((z - node) ** 2).sum() for node, other in paths[c]])

    def differences(z, c):
        return np.delete(energies(z) - energies(z)[c], c)

    if name == "hierarchy":
        return bisecting, {}, margins
    if name == "subclusters":
        return subclusters, {}, differences
    return mixture, {"threshold": 0.7} if "threshold" in name else {}, differences


@pytest.mark.parametrize("name", ["subclusters", "hierarchy", "mixture with a threshold", *slow("mixture")])
def test_the_formula_of_the_notes_for_all_kinds_of_decisions(name):
    model, options, contrasts = contrasts_by_hand(name)
    net = neuralize(model, X, **options)
    b = X.mean(0) + 0.1 * X.std(0)
    own = np.arange(4)
    eps = 1e-4 * X.std(0)
    found = NEON(net, baseline=b).estimate(NEW[:12])

    def logit(z, c):
        h = contrasts(z, c)
        return np.log(0.3 / 0.7) - np.log(np.exp(-h).sum()) if "threshold" in name else h.min()

    for n, (x, c) in enumerate(zip(NEW[:12], net.predict(NEW[:12]), strict=True)):
        f = contrasts(x, c).min()

        def relevance(t, x=x, c=c, f=f):
            z = b + t * (x - b)
            slopes = [(contrasts(z + e, c) - contrasts(z - e, c)) / (2 * e.sum()) for e in np.diag(eps)]
            h = contrasts(z, c)
            weights = softmin(h, 1) if "threshold" in name else softmin(h, 1 / abs(f)) * f / (f + abs(h.min()))
            return (x - b) * (slopes @ weights)

        late = logit(x, c) > 0 > logit(b + 0.75 * (x - b), c)
        expected, stderr = on_the_way(relevance, own, 20, late)
        assert_allclose(found.relevance[n], expected, rtol=1e-5, atol=1e-6 * np.abs(expected).max())
        assert_allclose(found.stderr[n], stderr, rtol=1e-4, atol=1e-6 * np.abs(expected).max())
        change = logit(x, c) - logit(b, c)
        assert float(found.residual[n]) == pytest.approx(change - expected.sum(), rel=1e-4, abs=1e-4)


def test_the_way_through_a_network():
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Conv2d(2, 5, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()).double()
    net = neuralize(torch.rand(2, 5, dtype=torch.float64), features=encoder)  # one rival: no shares
    x = torch.rand(3, 2, 6, 6, dtype=torch.float64)
    groups = torch.arange(36).view(6, 6).expand(2, 6, 6)
    channels = torch.arange(2)[:, None, None].expand(2, 6, 6)
    of_each = groups.expand(3, 2, 6, 6)  # for every input, as of superpixels
    for option, own in ((None, groups), (groups, groups), (of_each, groups), ("channels", channels)):
        found = NEON(net, baseline=0.2, steps=5, groups=option).attribute(x)
        for n, one in enumerate(x):

            def values(share, one=one, own=own):
                at = (0.2 + (one - 0.2) * torch.tensor(share)[own]).requires_grad_()
                (logit,) = net(one[None]).max(1).values
                now = net(at[None])[0, net.predict(one[None])[0]]
                (slope,) = torch.autograd.grad(now * (logit / (logit + now.abs())).detach(), at)
                return ((one - 0.2) * slope).flatten().numpy()

            relevance, _ = on_the_way(values, own.flatten().numpy(), 5)
            assert np.allclose(found[n].flatten(), relevance, rtol=1e-5, atol=1e-9)
    some = torch.zeros(3, 2, 6, 6, dtype=torch.int64)
    some[1:] = groups  # in blocks of one input, the first has one group, and the others have 36
    explainer = NEON(net, baseline=0.0, groups=some)
    whole = explainer.estimate(x)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("neonxc.common.memory.CPU", 1)
        parts = explainer.estimate(x)
    assert torch.allclose(parts.stderr, whole.stderr)
    assert torch.allclose(parts.relevance, whole.relevance)
    by_rules = NEON(net, Composite(Gamma(0.25)), baseline=0.0).attribute(x)
    assert not torch.allclose(NEON(net, baseline=0.0).attribute(x), by_rules)


def test_baselines(iris_net):
    for baseline in ("mean", np.nan, True, 1j):
        refused("baseline needs .*(a number or a baseline|finite)", NEON, iris_net, baseline=baseline)
    for call in ("thresholds", "summary", "residual", "heatmaps"):
        refused(
            "baseline is supported by attribute and estimate only",
            getattr(NEON(iris_net, baseline=0.0), call),
            IRIS,
        )
    refused(r"baseline has 3 features, the clustering was fitted on 4", NEON, iris_net, baseline=np.zeros(3))
    refused("steps needs a whole number >= 1", NEON, iris_net, baseline=0.0, steps=0)
    refused("beta needs a number from 0 to inf, got -1", NEON, iris_net, beta=-1)
    refused("groups needs a baseline", NEON, iris_net, groups="pixels")
    refused("groups needs whole numbers", NEON(iris_net, baseline=0.0, groups=[0, 1]).attribute, IRIS)
    for explainer in (NEON(iris_net), NEON(iris_net, baseline=0.0, head_rule="midpoint")):
        refused("estimate needs a baseline", explainer.estimate, IRIS)


def test_the_former_name_of_the_baseline_is_read_with_a_warning(iris_net):
    expected = NEON(iris_net, baseline=0.0).attribute(IRIS)
    with pytest.warns(
        DeprecationWarning, match=r"NEON\(along=...\) is deprecated .* use NEON\(baseline=...\)"
    ) as warned:
        explainer = NEON(iris_net, along=0.0)
    assert warned[0].filename == __file__
    assert_array_equal(explainer.attribute(IRIS), expected)
    with pytest.warns(DeprecationWarning, match="use NEON.baseline"):
        assert explainer.along == 0.0
    refused("former name of baseline", NEON, iris_net, baseline=0.0, along=0.0)

    # an explainer and an estimate that an earlier version has pickled
    state = explainer.__dict__.copy()
    state["along"] = state.pop("baseline")
    restored = NEON.__new__(NEON)
    restored.__setstate__(state)
    assert_array_equal(pickle.loads(pickle.dumps(restored)).attribute(IRIS), expected)
    former = importlib.import_module("neonxc.attribution.along")
    with pytest.warns(DeprecationWarning, match="use neonxc.attribution.paths.Estimate"):
        assert former.Estimate is neonxc.Estimate


@pytest.mark.parametrize("baseline", [0.2, "image"])
def test_heatmaps_with_a_baseline_are_sums_over_the_channels(baseline):
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Conv2d(2, 5, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()).double()
    net = neuralize(torch.rand(3, 5, dtype=torch.float64), features=encoder)
    x = torch.rand(4, 2, 6, 6, dtype=torch.float64)
    base = x.mean(0) if baseline == "image" else baseline
    maps = NEON(net).heatmaps(x, [2, 0], baseline=base, passes=4)
    for i, cluster in enumerate([2, 0]):
        expected = NEON(net, baseline=base, steps=4).attribute(x, target=cluster).sum(1)
        assert torch.equal(maps[:, i], expected)
    assert_array_equal(NEON(net).heatmaps(x.numpy(), [2, 0], baseline=base, passes=4), maps)
    refused("passes needs a whole number >= 1", NEON(net).heatmaps, x, baseline=0.0, passes=0)
    other = np.zeros((3, 6, 6))
    refused("baseline needs .* one input, .2, 6, 6., got .3, 6, 6.", NEON(net).heatmaps, x, baseline=other)


@pytest.mark.parametrize("beta", [0.0, None, np.inf])
def test_weights_from_the_path_are_finite_and_conserve(beta):
    X = scale(IRIS)
    tree = ExKMC(n_clusters=3, max_leaves=7, random_state=0).fit(X)
    for model, baseline, target in itertools.product(
        (tree, tree.cluster_centers_), (0.0, X[100] * 2), (None, 0, 2)
    ):
        net = neuralize(model, X)
        relevance = NEON(net, beta=beta, baseline=baseline, head_rule="midpoint").attribute(X, target=target)
        logits = net(torch.as_tensor(X))
        expected = logits.amax(1) if target is None else logits[:, target]
        assert np.isfinite(relevance).all()
        assert np.allclose(relevance.sum(1), expected, atol=1e-8)


def test_trees_take_numbers_that_can_not_be_squared():
    tree = ExKMC(n_clusters=3, random_state=0).fit(IRIS)
    data = IRIS.copy()
    data[0, 2] = 1e200
    assert (neuralize(tree, IRIS).predict(data) == tree.predict(data)).all()
    soft = neuralize(IRIS[[0, 60, 120]], IRIS.astype(np.float32), stiffness=1e-18)
    assert np.isfinite(NEON(soft).attribute(IRIS.astype(np.float32))).all()
