"""NEON against the paper's equations written out, Shapley values by enumeration, and captum."""

import itertools
import math
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
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler, scale
from torch import nn
from witnesses import (
    blobs,
    contrast_relevance,
    hierarchy_paths,
    near,
    neon,
    neuron,
    shapley,
    shared,
    softmin,
    two_layer_logits,
)

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
    got, wanted = np.asarray(got), np.asarray(wanted)
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


def contrasts(K):
    """A network in which the contrasts of cluster 0 are the columns of a point."""
    head = nn.Linear(K, K + 1, bias=False).double()
    head.weight.data = torch.cat([torch.zeros(1, K), -torch.eye(K)]).double()
    return neuralize(head)


@pytest.mark.parametrize("beta", [0.0, 0.7, math.inf])
def test_equation_2_at_its_edges(beta):
    h = np.random.default_rng(0).normal(size=(200, 4))
    h[0] = 1, 1, 2, 2  # ties
    h[1] = 0, 1, 2, 3  # on the border
    h[2] = -1, 0, 1e-300, -1e-300  # around the pole of Eq. 2
    relevance = NEON(contrasts(4), beta=beta).attribute(h, target=0)
    assert_allclose(relevance, [contrast_relevance(row, beta) for row in h], atol=1e-12)
    assert ((relevance * h >= 0) | (relevance == 0)).all()


# --- Shapley values ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 3, 5])
def test_proposition_2_uniform_shares_are_shapley_values(n):
    """For beta = 0 and the reference h = 0, the players being the contrasts."""
    h = np.random.default_rng(n).uniform(0.1, 3, size=n)

    def value(coalition):
        return min(h[k] if k in coalition else 0.0 for k in range(n))

    assert_allclose(NEON(contrasts(n), beta=0.0).attribute(h[None], target=0)[0], shapley(value, n), rtol=1e-12)


def test_proposition_3_two_clusters():
    """The players are the features, absent ones take the mid-point's value."""
    centers = CENTERS[:2]
    net, middle = network(centers), CENTERS[:2].mean(axis=0)
    for x, c, R in zip(NEW, net.predict(NEW), NEON(net).attribute(NEW[:8]), strict=False):

        def value(coalition, x=x, c=c):
            mixed = np.array([x[i] if i in coalition else middle[i] for i in range(4)])
            return two_layer_logits(mixed[None], centers)[0, c]

        assert_close(R, shapley(value, 4))


# --- competitors and targets -------------------------------------------------------------------------------


def test_competitor_asks_for_one_contrast():
    net = network()
    distance = ((NEW[:, None] - CENTERS) ** 2).sum(axis=2)
    for target, rival in ((0, 3), (2, 1)):
        relevance = NEON(net).attribute(NEW, target=target, competitor=rival)
        assert_close(relevance, [neon(x, CENTERS, target, net.beta, competitor=rival) for x in NEW])
        assert_close(relevance.sum(axis=1), distance[:, rival] - distance[:, target])
    own = net.predict(NEW)
    relevance = NEON(net).attribute(NEW, competitor=2)
    assert (relevance[own == 2] == 0).all()
    assert_close(relevance[own != 2].sum(axis=1), (distance[:, 2] - distance.min(axis=1))[own != 2])


def test_a_hierarchy_is_explained_along_its_path():
    model = BisectingKMeans(6, random_state=0).fit(X)
    net = neuralize(model, X)
    paths = hierarchy_paths(model._bisecting_tree, model._X_mean)
    for target in (None, *range(6)):
        columns = net.predict(NEW) if target is None else np.full(len(NEW), target)
        for x, c, R in zip(NEW, columns, NEON(net).attribute(NEW, target=target), strict=True):
            neurons = [neuron(node, sibling) for node, sibling in paths[c]]
            middles = [(node + sibling) / 2 for node, sibling in paths[c]]
            h = np.array([w @ x + b for w, b in neurons])
            assert_close(R, shared(x, [w for w, _ in neurons], middles, h, net.beta), rtol=1e-7)
        for rival in set(range(6)) - {target} if target is not None else ():  # the split where the paths part
            siblings = {tuple(node) for node, _ in paths[rival]}
            ((node, sibling),) = [(a, b) for a, b in paths[target] if tuple(b) in siblings]
            wanted = (NEW - (node + sibling) / 2) * neuron(node, sibling)[0]
            assert_close(NEON(net).attribute(NEW, target=target, competitor=rival), wanted)


def test_subclusters_are_explained_by_the_nearest_of_each_cluster():
    model = Birch(n_clusters=3, threshold=6).fit(X)
    net = neuralize(model, X)
    u, labels = model.subcluster_centers_, model.subcluster_labels_
    assert len(u) > 3
    plain = NEON(net).attribute(NEW)
    for x, c, R in zip(NEW, net.predict(NEW), plain, strict=True):
        nearest = np.array([min(u[labels == k], key=lambda v, x=x: ((x - v) ** 2).sum()) for k in range(3)])
        assert_close(R, neon(x, nearest, c, net.beta), rtol=1e-8)
    model.subcluster_centers_, model.subcluster_labels_ = np.concatenate([u] * 2), np.concatenate([labels] * 2)
    assert_close(NEON(neuralize(model, X)).attribute(NEW), plain)


SHUFFLED = np.random.default_rng(0).permutation(len(NEW)) + 7
FORMS = {
    "tuple": tuple,
    "tensor": torch.tensor,
    "array": partial(np.array, dtype=np.uint32),
    "unsigned tensor": partial(torch.tensor, dtype=torch.uint32),
    "series": lambda targets: pd.Series(targets, index=SHUFFLED[: len(targets)]),
}


@pytest.mark.parametrize("form", FORMS)
def test_one_target_per_point_is_read_by_position_however_many_parts(form, monkeypatch):
    make = FORMS[form]
    monkeypatch.setattr("neonxc.common.memory.CPU", 16 * 5 * 8 * 4)
    targets = [i % 5 for i in range(len(NEW))]
    rivals = (np.array(targets) + 1) % 5
    relevance = NEON(network()).attribute(NEW, target=make(targets), competitor=rivals)
    assert_close(relevance, [neon(x, CENTERS, i % 5, 0, competitor=(i + 1) % 5) for i, x in enumerate(NEW)])
    one = make([2])
    assert_array_equal(NEON(network()).attribute(NEW, target=one), NEON(network()).attribute(NEW, target=2))


# --- properties --------------------------------------------------------------------------------------------

numbers = st.floats(-100, 100, allow_nan=False, width=32)


@given(st.data(), st.integers(2, 6), st.integers(1, 5), st.sampled_from([0.0, 1e-4, 1.0, 50.0, math.inf]))
def test_conserves_is_finite_and_agrees_with_predict(data, k, d, beta):
    rows = arrays(np.float64, d, elements=numbers)
    centers = np.array(data.draw(st.lists(rows, min_size=k, max_size=k, unique_by=lambda c: (c + 0.0).tobytes())))
    x = data.draw(arrays(np.float64, (3, d), elements=numbers))
    net = network(centers, beta)
    logits = net(tensor(x)).numpy()
    distance = ((x[:, None] - centers) ** 2).sum(axis=2)
    size = 1e-12 * (1 + distance.max())
    first, second = np.sort(distance, axis=1)[:, :2].T
    clear = second - first > 10 * size
    assert_array_equal(net.predict(x)[clear], distance.argmin(axis=1)[clear])
    assert_allclose(logits, two_layer_logits(x, centers), atol=10 * size)
    for target in range(k):
        relevance = NEON(net).attribute(x, target=target)
        assert np.isfinite(relevance).all()
        assert_allclose(relevance.sum(axis=1), logits[:, target], atol=100 * size)


# --- summary -----------------------------------------------------------------------------------------------


def test_summary_by_brute_force():
    iris = load_iris(as_frame=True).data
    model = make_pipeline(StandardScaler(), KMeans(3, n_init=1, random_state=0)).fit(iris)
    net = neuralize(model, iris)
    found = NEON(net).summary(iris, n_prototypes=4)
    own, relevance = net.predict(iris), NEON(net).attribute(iris).to_numpy()
    logits = net(tensor(iris)).numpy()
    assert found.feature_names == list(iris.columns)
    assert_array_equal(found.classes, [0, 1, 2])
    for k in range(3):
        members = np.flatnonzero(own == k)
        assert found.sizes[k] == len(members)
        assert_close(found.relevance[k], relevance[members].mean(axis=0))
        wanted = members[np.argsort(-logits[members, k])][:4]
        assert_allclose(logits[found.prototypes[k], k], logits[wanted, k])
        assert set(found.prototypes[k]) <= set(members)
        names = iris.columns[np.argsort(-found.relevance[k])]
        assert [name for name, _ in found.top(k, 2)] == list(names[:2])
        assert f"cluster {k} ({len(members)} points)\n    {names[0]} " in str(found)


def test_summary_tells_the_direction():
    """Means by pandas, and the arrow by hand; relevance is positive in either direction."""
    iris = load_iris(as_frame=True).data.set_axis(list("abcd"), axis=1)
    net = neuralize(KMeans(3, n_init=1, random_state=0).fit(iris), iris)
    means, overall = iris.groupby(net.predict(iris)).mean(), iris.mean()
    for X in (iris, tensor(iris).float()):
        found = NEON(net).summary(X)
        assert found.values.means.dtype == np.float64
        assert_allclose(found.values.means, means, rtol=1e-6)
        assert_allclose(found.values.overall, overall, rtol=1e-6)
    frame = NEON(net).summary(iris).to_frame()
    assert list(frame) == ["relevance", "direction", "mean", "overall", "effect", "points"]
    assert len(frame) == 12
    for (cluster, feature), row in frame.iterrows():
        mean = means.loc[cluster, feature]
        assert row["relevance"] == pytest.approx(found.relevance[cluster, "abcd".index(feature)], rel=1e-4)
        assert row["direction"] == ("↑" if mean > overall[feature] else "↓")
        assert (row["mean"], row["overall"]) == pytest.approx((mean, overall[feature]))
    assert (frame["relevance"].groupby(level=0).diff().dropna() <= 0).all()
    small = int(means["c"].idxmin())
    told = f"c {frame.loc[(small, 'c'), 'relevance']:+.3g} (↓ {means.loc[small, 'c']:.3f} vs 3.758, d = "
    assert told in str(NEON(net).summary(iris))
    flat = iris.assign(d=2.0)
    same = NEON(neuralize(means.assign(d=2.0).to_numpy(), flat)).summary(flat)
    assert same.values.comparison(0, 3) == "= 2 vs 2"


def test_summary_of_an_empty_cluster_and_unnamed_columns():
    centers = np.concatenate([CENTERS, [[1e4] * 4]])
    found = NEON(network(centers)).summary(X, n_prototypes=1000)
    assert found.sizes[-1] == 0
    assert (found.relevance[-1] == 0).all()
    assert len(found.prototypes[-1]) == 0
    assert [len(p) for p in found.prototypes] == list(found.sizes)
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


def conv_map():
    return nn.Sequential(
        nn.Conv2d(2, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 4, 3, stride=2), nn.ReLU()
    ).double()


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
        rivals = [k for k in range(3) if k != c]
        h = distance[rivals] - distance[c]
        s = softmin(h, net.beta) * h.min() / h
        w, m = 2 * (centers[c] - centers[rivals]), (centers[c] + centers[rivals]) / 2
        at_features = s @ w if rule == "linear" else (s[:, None] * w * (a - m)).sum(axis=0) / a
        assert_close(R, x * (V.T @ at_features), rtol=1e-8)
    net, centers = deep(net.features, tensor(X), steps=[Normalizer()])  # the norm is held constant
    relevance = NEON(net, Composite(Epsilon(0.0))).attribute(NEW, target=0, competitor=1)
    w, _ = neuron(centers[0], centers[1])
    assert_close(relevance, [x * (V.T @ w) / np.linalg.norm(V @ x) for x in NEW], rtol=1e-8)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("pooled", [False, True])
def test_targets_on_a_map(rule, pooled):
    images = torch.randn(10, 2, 7, 5, dtype=torch.float64)  # more than one batch
    pool = [nn.AdaptiveAvgPool2d(1), nn.Flatten()] if pooled else []
    net, _ = deep(nn.Sequential(conv_map(), *pool).eval(), images)
    neon_ = NEON(net, head_rule=rule)
    own = net.assign(images).reshape(10, *([1, 1] if pooled else [3, 2]))
    everything, maps = torch.zeros_like(images), neon_.heatmaps(images)
    assert maps.shape == (10, 3, 7, 5)
    for c in range(3):
        # a cluster's relevance is that of the places assigned to it, an image's own relevance that of them all
        of_cluster, wanted = neon_.attribute(images, target=c), torch.zeros_like(images)
        for i, j in itertools.product(*map(range, own.shape[1:])):
            single = of_cluster if pooled else neon_.attribute(images, target=(c, i, j))
            wanted += single * (own[:, i, j] == c)[:, None, None, None]
        if not pooled:
            torch.testing.assert_close(of_cluster, wanted)
        torch.testing.assert_close(maps[:, c], of_cluster.sum(dim=1))
        everything += wanted
    torch.testing.assert_close(neon_.attribute(images), everything)
    torch.testing.assert_close(neon_.heatmaps(images, clusters=[2, 0]), maps[:, [2, 0]])
    target = torch.arange(10) % 3
    torch.testing.assert_close(maps[range(10), target], neon_.attribute(images, target=target).sum(dim=1))
    each = neon_.attribute(images, target=target, competitor=(target + 1) % 3)
    for i in range(3):
        torch.testing.assert_close(each[i : i + 1], neon_.attribute(images[i : i + 1], i, (i + 1) % 3))
    assert isinstance(neon_.heatmaps(images.numpy()), np.ndarray)


# --- captum ------------------------------------------------------------------------------------------------


def test_integrated_gradients_from_the_mid_point():
    net, x = network(CENTERS[:2]), tensor(NEW)
    baseline = tensor(CENTERS[:2].mean(axis=0))[None]
    for target in (0, 1):
        found = IntegratedGradients(net).attribute(x, baseline, target=target, n_steps=5)
        assert_close(found, NEON(net).attribute(x, target=target))


def test_noise_tunnel():
    net, x = network(), tensor(NEW)
    plain = NEON(net).attribute(x, target=1)
    tunnel, kwargs = NoiseTunnel(NEON(net)), {"nt_type": "smoothgrad", "nt_samples": 4}
    assert_close(tunnel.attribute((x,), stdevs=0.0, target=1, **kwargs)[0], plain)
    noisy = tunnel.attribute(x, stdevs=5.0, target=torch.arange(len(x)) % 5, **kwargs)
    assert noisy.shape == x.shape
    assert not torch.allclose(noisy, plain)


def test_attribution_contract():
    neon_ = NEON(network())
    x = tensor(NEW)
    assert neon_.multiplies_by_inputs is True
    assert not neon_.has_convergence_delta()
    assert neon_.forward_func is neon_.net
    (inside,) = neon_.attribute((x,))
    assert torch.equal(inside, neon_.attribute(x))
    assert not neon_.attribute(x.requires_grad_()).requires_grad


# --- targets, modes and devices -----------------------------------------------------------------------------

IRIS = load_iris().data


@pytest.fixture
def iris_net():
    return neuralize(IRIS[[0, 60, 120]], IRIS)


def test_another_beta_leaves_the_network_as_it_is(iris_net):
    own = iris_net.beta
    hard = NEON(iris_net, beta=np.inf).attribute(IRIS)
    assert iris_net.beta == own
    iris_net.beta = np.inf
    assert np.array_equal(NEON(iris_net).attribute(IRIS), hard)
    refused("beta needs a number from 0 to inf, got -1", NEON, iris_net, beta=-1)


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
    relevance = NEON(net).attribute(data) / scale / scale
    assert np.allclose(relevance, NEON(iris_net).attribute(IRIS), rtol=1e-3, atol=1e-4)


# --- along the way from a baseline --------------------------------------------------------------------------


def contrasts_of(x, c, others, centers):
    far = ((x - centers) ** 2).sum(1)
    return far[others] - far[c]


@pytest.mark.parametrize("steps", [1, 3])
def test_competitors_on_the_straight_line_by_loops(steps):
    rng = np.random.default_rng(0)
    centers, X, b = rng.normal(size=(5, 4)), rng.normal(size=(20, 4)), rng.normal(size=4)
    net = neuralize(centers, X)
    found = NEON(net, along=b, steps=steps, head_rule="midpoint").attribute(X)
    for n, x in enumerate(X):
        c = int(((x - centers) ** 2).sum(1).argmin())
        others = [k for k in range(5) if k != c]
        way = [b + (i + 0.5) / steps * (x - b) for i in range(steps)]
        weights = np.mean([softmin(contrasts_of(point, c, others, centers), net.beta) for point in way], axis=0)
        h = contrasts_of(x, c, others, centers)
        middle = (centers[c] + centers[others]) / 2
        expected = (weights * h.min() / h) @ (2 * (centers[c] - centers[others]) * (x - middle))
        assert np.allclose(found[n], expected, rtol=1e-8, atol=1e-10)
        assert found[n].sum() == pytest.approx(h.min(), rel=1e-9)


@pytest.mark.parametrize("beta", [None, 0.7])
@pytest.mark.parametrize("groups", [None, [0, 0, 1, 2, 2, 3]])
def test_the_way_in_order_of_relevance_by_loops(groups, beta):
    rng, steps = np.random.default_rng(0), 9
    centers, X, b = rng.normal(size=(5, 6)), rng.normal(size=(20, 6)), rng.normal(size=6)
    X[:, 3] = np.where(np.arange(20) < 10, b[3], X[:, 3])  # no effect: not in the order
    net = neuralize(centers, X)
    explainer = NEON(net, along=b, steps=steps, groups=groups, beta=beta)
    found = explainer.estimate(X)
    assert np.array_equal(found.relevance, explainer.attribute(X))
    own = np.arange(6) if groups is None else np.array(groups)
    for n, x in enumerate(X):
        c = int(((x - centers) ** 2).sum(1).argmin())
        others = [k for k in range(5) if k != c]
        logit = contrasts_of(x, c, others, centers).min()
        ways = [], []  # relevance of the passes on which groups come in, and of those on which they go out
        for step in range(steps):
            if step < 2:
                point = b + (step + 0.5) / 2 * (x - b)
            else:
                totals = [np.bincount(own, np.sum(way, axis=0)) for way in ways]
                sums = sum(total / np.abs(total).sum() for total in totals)
                order = [group for group in np.argsort(-sums, kind="stable") if sums[group] != 0]
                share = (((step - 2) // 2 + 0.5) * (5**0.5 - 1) / 2) % 1
                faded = np.zeros(own.max() + 1)
                for place, group in enumerate(order):
                    faded[group] = 1 / (1 + np.exp(-10 * (share - (place + 0.5) / len(order))))
                faded = 1 - faded if step % 2 else faded
                point = b + faded[own] * (x - b)
            h = contrasts_of(point, c, others, centers)
            weights = softmin(h, 1 / logit if beta is None else beta) * logit / (logit + abs(h.min()))
            for way in ways if step < 2 else [ways[step % 2]]:
                way.append((x - b) * (weights @ (2 * (centers[c] - centers[others]))))
        passes = [np.stack([np.bincount(own, one) for one in way]) for way in ways]
        sizes = [np.abs(way.mean(0)).sum() for way in passes]
        factors = np.mean(sizes) / sizes
        means = [factor * np.mean(way, axis=0) for factor, way in zip(factors, ways, strict=True)]
        assert np.allclose(found.relevance[n], np.mean(means, axis=0), rtol=1e-8, atol=1e-10)
        errors = [way.std(0, ddof=1) / len(way) ** 0.5 for way in passes]
        assert np.allclose(found.stderr[n], factors @ errors / 2, atol=1e-9)
        start = contrasts_of(b, c, others, centers).min()
        assert float(found.residual[n]) == pytest.approx(logit - start - found.relevance[n].sum())


def test_the_way_through_a_network():
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Conv2d(2, 5, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()).double()
    net = neuralize(torch.rand(2, 5, dtype=torch.float64), features=encoder)  # one rival: no shares
    x = torch.rand(3, 2, 6, 6, dtype=torch.float64)
    logit, target = net(x).max(1)

    def gradient(at):
        at = at.detach().requires_grad_()
        own = net(at).gather(1, target[:, None])[:, 0]
        weight = (logit / (logit + own.abs()))[:, None, None, None]
        return (weight * x * torch.autograd.grad(own.sum(), at)[0]).detach()

    expected = (gradient(x / 4) + gradient(x * 3 / 4)) / 2
    groups = torch.arange(36).view(6, 6).expand(2, 6, 6)  # pixels
    for option, sums in ((None, expected.sum(1, keepdim=True)), ("channels", expected.sum((2, 3), keepdim=True))):
        two, three = (NEON(net, along=0.0, steps=steps, groups=option).attribute(x) for steps in (2, 3))
        assert torch.allclose(two, expected, rtol=1e-6, atol=1e-12)
        place = sums.flatten(1).argsort(descending=True).argsort() + 0.5
        share = torch.sigmoid(10 * (0.309017 - place / sums[0].numel()))  # of the third point
        comes_in = (2 * expected + gradient(share.view_as(sums) * x)) / 3

        def size(relevance, own=1 if option is None else (2, 3)):
            return relevance.sum(own, keepdim=True).abs().sum((1, 2, 3), keepdim=True)

        both = (size(comes_in) + size(expected)) / 2
        mean = both * (comes_in / size(comes_in) + expected / size(expected)) / 2
        assert torch.allclose(three, mean, rtol=1e-5, atol=1e-9)
    pixels = NEON(net, along=0.0).attribute(x)
    for numbers in (groups, groups.expand(3, 2, 6, 6)):  # for every input, as of superpixels
        assert torch.equal(NEON(net, along=0.0, groups=numbers).attribute(x), pixels)
    some = torch.zeros(3, 2, 6, 6, dtype=torch.int64)
    some[1:] = groups  # in blocks of one input, the first has one group, and the others have 36
    whole = NEON(net, along=0.0, groups=some).estimate(x)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("neonxc.common.memory.CPU", 1)
        parts = NEON(net, along=0.0, groups=some).estimate(x)
    assert torch.allclose(parts.stderr, whole.stderr)
    assert torch.allclose(parts.relevance, whole.relevance)
    assert not torch.allclose(NEON(net, Composite(Gamma(0.25)), along=0.0).attribute(x), pixels)


def test_baselines(iris_net):
    series = load_iris(as_frame=True).data.mean()
    found = NEON(iris_net, along=series).attribute(IRIS)
    assert np.allclose(found, NEON(iris_net, along=IRIS.mean(0)).attribute(IRIS))
    for along, message in (
        ("mean", "a number or a baseline"),
        (np.nan, "finite"),
        (True, "finite"),
        (1j, "finite"),
    ):
        refused(f"along needs {message}", NEON, iris_net, along=along)
    for call in ("thresholds", "summary", "residual", "heatmaps"):
        refused(
            "along is supported by attribute and estimate only", getattr(NEON(iris_net, along=0.0), call), IRIS
        )
    refused(r"along has 3 features, the clustering was fitted on 4", NEON, iris_net, along=np.zeros(3))
    refused("steps needs a whole number >= 1", NEON, iris_net, along=0.0, steps=0)
    refused("groups needs along", NEON, iris_net, groups="pixels")
    refused("groups needs whole numbers", NEON(iris_net, along=0.0, groups=[0, 1]).attribute, IRIS)
    for explainer in (NEON(iris_net), NEON(iris_net, along=0.0, head_rule="midpoint")):
        refused("estimate needs a baseline", explainer.estimate, IRIS)


@pytest.mark.parametrize("beta", [0.0, None, np.inf])
def test_weights_from_the_way_are_finite_and_conserve(beta):
    X = scale(IRIS)
    tree = ExKMC(n_clusters=3, max_leaves=7, random_state=0).fit(X)
    for model, along, target in itertools.product((tree, tree.cluster_centers_), (0.0, X[100] * 2), (None, 0, 2)):
        net = neuralize(model, X)
        relevance = NEON(net, beta=beta, along=along, head_rule="midpoint").attribute(X, target=target)
        logits = net(torch.as_tensor(X))
        expected = logits.amax(1) if target is None else logits[:, target]
        assert np.isfinite(relevance).all()
        assert np.allclose(relevance.sum(1), expected, atol=1e-8)


def test_trees_take_numbers_that_can_not_be_squared():
    tree = ExKMC(n_clusters=3, random_state=0).fit(IRIS)
    data = IRIS.copy()
    data[0, 2] = 1e200
    net = neuralize(tree, IRIS)
    assert (net.predict(data) == tree.predict(data)).all()
    soft = neuralize(IRIS[[0, 60, 120]], IRIS.astype(np.float32), stiffness=1e-18)
    assert np.isfinite(NEON(soft).attribute(IRIS.astype(np.float32))).all()
