"""Pixel-flipping against Algorithm 1 step by step, and samplers against their definitions."""

from __future__ import annotations

from functools import partial
from unittest.mock import patch

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.datasets import load_wine
from sklearn.model_selection import LeaveOneOut, cross_val_score
from sklearn.neighbors import KernelDensity
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, scale
from torch import nn
from witnesses import neon, two_layer_logits

import neonxc
from neonxc import neuralize
from neonxc.evaluation import (
    BlurImputer,
    KDEImputer,
    MeanImputer,
    WordImputer,
    ZeroImputer,
    calibrate_by_flipping,
    compare,
    methods,
    pixel_flipping,
)
from neonxc.evaluation.both_ways import both_ways
from neonxc.inputs.groups import groups_of
from neonxc.models import WordVectors

X = scale(load_wine().data)
MODEL = KMeans(6, n_init=10, random_state=0).fit(X)
NET = neuralize(MODEL, X)
RELEVANCE = neonxc.NEON(NET).attribute(X)


def algorithm_1(points, relevance, fill, logits, insert, most):
    """Point by point, feature by feature: whether the decision is the point's own, and its logit."""
    found = []
    for z, R in zip(points, relevance, strict=True):
        own = logits(z).argmax()
        known = np.full(len(z), not insert)
        for i in np.argsort(-R if most else R, kind="stable"):
            known[i] = insert
            f = logits(np.where(known, z, fill))
            found.append((f.argmax() == own, f[own]))
    return np.transpose(found).reshape(2, *points.shape)


@pytest.mark.parametrize("mode", ["insert", "remove"])
@pytest.mark.parametrize("order", ["most", "least"])
@pytest.mark.parametrize(("imputer", "fill"), [(ZeroImputer(), np.zeros(13)), (MeanImputer(X + 1), X.mean(0) + 1)])
def test_algorithm_1(mode, order, imputer, fill):
    some = X[::6]
    relevance = RELEVANCE[::6]

    def logits(x):
        return two_layer_logits(x[None], MODEL.cluster_centers_)[0]

    hits, margins = algorithm_1(some, relevance, fill, logits, mode == "insert", order == "most")
    found = pixel_flipping(NET, some, relevance, imputer, mode=mode, order=order)
    assert np.allclose(found.curve, hits.mean(0))
    assert np.allclose(found.auc_per_input, 100 * hits.mean(1))
    assert found.auc == pytest.approx(100 * hits.mean())
    assert found.auc_stderr == pytest.approx(100 * hits.mean(1).std(ddof=1) / np.sqrt(len(some)))
    assert np.allclose(found.logit_per_input, margins)
    assert np.allclose(found.logit_curve, margins.mean(0))
    part = pixel_flipping(NET, some, relevance, imputer, mode=mode, order=order, steps=4)
    assert np.allclose(part.logit_per_input, margins[:, [2, 5, 9, 12]])
    share = np.array([3, 6, 10, 13]) / 13
    assert np.allclose(part.known, share if mode == "insert" else 1 - share)


def test_conditional_draws():
    """Known features stay; the others come from points in proportion to their kernels, with noise of width h."""
    data = np.random.default_rng(0).normal(size=(40, 3)) * [1, 10, 0.1] + 5
    z = data[:1] + 0.1
    s = data.std(0)
    filling = KDEImputer(data, bandwidth=0.6).start(torch.tensor(z))
    for hidden in (0, 2, 1):  # what is known comes and goes
        known = torch.arange(3)[None, None] != hidden
        drawn = filling.fill(known, 200_000, torch.Generator().manual_seed(0))[0, :, 0].numpy()
        others = [i for i in range(3) if i != hidden]
        assert (drawn[:, others] == z[:, others]).all()
        w = np.exp(-(((z - data) / s) ** 2)[:, others].sum(1) / (2 * 0.6**2))
        w /= w.sum()
        mean = w @ data[:, hidden]
        variance = w @ (data[:, hidden] - mean) ** 2 + (0.6 * s[hidden]) ** 2
        assert drawn[:, hidden].mean() == pytest.approx(mean, abs=0.01 * s[hidden])
        assert drawn[:, hidden].std() == pytest.approx(np.sqrt(variance), rel=0.02)


@pytest.mark.parametrize("hidden", [0, 1, 2])
def test_draws_of_both_ways(hidden):
    """What is filled in both ways has the moments of the draws of each way, though noise is from a pool."""
    data = np.random.default_rng(0).normal(size=(40, 3)) * [1, 10, 0.1] + 5
    z = torch.tensor(data[:1] + 0.1)
    s = data.std(0)
    known = torch.arange(3)[None, None] != hidden
    imputer = KDEImputer(data, bandwidth=0.6)
    both = imputer.start(z).fill_both(known, 100_000, torch.Generator().manual_seed(0))[:, 0, :, 0].numpy()
    for mask, drawn in zip((known, ~known), both, strict=True):
        each = imputer.start(z).fill(mask, 100_000, torch.Generator().manual_seed(1))[0, :, 0].numpy()
        assert (np.abs(drawn.mean(0) - each.mean(0)) <= 0.02 * s).all()
        assert np.allclose(drawn.std(0), each.std(0), rtol=0.02)


@pytest.mark.parametrize("share", [0.02, 0.5])  # of numbers other than 0: sparse and dense products
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_distances_to_counts(share, dtype):
    """Distances in the known features are those of the definition, in counts that are mostly zeros as well."""
    rng = np.random.default_rng(0)
    counts = rng.poisson(3, (50, 80)) * (rng.random((50, 80)) < share) * 1.0
    z = rng.poisson(3, (6, 80)) * 1.0
    known = rng.random((4, 6, 80)) < 0.5
    filling = KDEImputer(counts, bandwidth=0.6).start(torch.tensor(z, dtype=dtype))
    distances = filling.sums_over(torch.tensor(known, dtype=dtype))

    deviations = counts.std(0)
    scaled = (z[:, None] - counts) / np.where(deviations > 0, deviations, 1)  # [6, 50, 80]
    expected = np.einsum("bnd,sbd->sbn", scaled**2, known)
    assert np.allclose(distances, expected, rtol=1e-4 if dtype == torch.float32 else 1e-12)


def test_the_bandwidth_can_be_changed():
    imputer = KDEImputer(X[:40])
    x = torch.tensor(X[:1])
    nothing = torch.zeros(1, 1, 13, dtype=torch.bool)
    imputer.start(x).fill_both(nothing, 5, torch.Generator().manual_seed(0))
    imputer.bandwidth = 1e-9
    drawn = imputer.start(x).fill_both(nothing, 5, torch.Generator().manual_seed(0))[0, 0, :, 0]
    assert torch.cdist(drawn, torch.tensor(X[:40])).amin(1).max() < 1e-6  # points of the data


@pytest.mark.parametrize("steps", [4, 13])
@pytest.mark.parametrize(("imputer", "tolerance"), [(MeanImputer(X + 1), 0), (KDEImputer(X), 8)])
def test_both_ways_are_insertion_and_removal(imputer, tolerance, steps):
    x = torch.tensor(X)
    target = NET(torch.tensor(X)).argmax(1)
    groups = groups_of(NET, None, x)
    relevances = {"NEON": torch.tensor(RELEVANCE), "other": -torch.tensor(RELEVANCE)}
    found = both_ways(NET, x, relevances, imputer, 3, groups, target, steps, 0)
    for name, relevance in relevances.items():
        removed = found[name].removed.flip(1)[:, 1:]  # what is first is the input itself
        for mode, hits in (("insert", found[name].inserted), ("remove", removed)):
            flipping = pixel_flipping(NET, X, relevance, imputer, repeats=3, mode=mode, steps=steps)
            curve = flipping.curve[: hits.shape[1]]
            assert np.allclose(100 * hits.mean(0).numpy(), 100 * curve, rtol=0, atol=tolerance)
    curve = pixel_flipping(NET, X, RELEVANCE, imputer, repeats=3, steps=steps)
    assert np.allclose(found["NEON"].fraction, curve.known)


def test_bandwidth_by_likelihood():
    some = scale(X[::4])
    h = KDEImputer(some).bandwidth

    def left_out(h):
        return cross_val_score(KernelDensity(bandwidth=h), some, cv=LeaveOneOut()).sum()

    assert left_out(h) >= max(left_out(h * 1.1), left_out(h / 1.1))
    assert KDEImputer(some * 1000 + 7).bandwidth == pytest.approx(h)


def test_the_default_imputer_draws_from_few_rows(monkeypatch):
    monkeypatch.setattr("neonxc.evaluation.imputers.BANDWIDTH_ROWS", 12)
    with patch.object(KDEImputer, "start", autospec=True, side_effect=KDEImputer.start) as start:
        pixel_flipping(NET, X, RELEVANCE)
    assert {len(call.args[0].points) for call in start.call_args_list} == {12}


def test_seeds_reproduce_and_draws_are_common():
    imputer = KDEImputer(X)
    state = torch.random.get_rng_state()
    half = RELEVANCE.copy()
    half[:50] *= -1  # the other points' draws stay
    runs = [(RELEVANCE, 3), (RELEVANCE, 3), (RELEVANCE, 4), (half, 3)]
    first, second, other, changed = (pixel_flipping(NET, X, R, imputer, random_state=s) for R, s in runs)
    assert (first.logit_per_input == second.logit_per_input).all()
    assert 0 < abs(first.auc - other.auc) < 2
    assert (changed.logit_per_input[50:] == first.logit_per_input[50:]).mean() > 0.99
    assert torch.equal(state, torch.random.get_rng_state())


def test_memory_is_bounded(monkeypatch):
    whole = pixel_flipping(NET, X, RELEVANCE, ZeroImputer())
    monkeypatch.setattr("neonxc.common.memory.CPU", 15 * 4 * 8 * NET.head.width)
    with patch.object(NET, "forward", wraps=NET.forward) as forward:
        parts = pixel_flipping(NET, X, RELEVANCE, ZeroImputer(), target=MODEL.labels_)
    assert max(len(call.args[0]) for call in forward.call_args_list) <= 15
    assert np.allclose(parts.logit_per_input, whole.logit_per_input)


@pytest.fixture(scope="module")
def images():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
    network = network.eval().requires_grad_(False)
    x = torch.randn(5, 3, 6, 6)
    features = network(x).detach()
    return neuralize(features[:3], x, features=network), x


@pytest.mark.parametrize(
    ("given", "numbers"),
    [
        ("pixels", torch.arange(36).view(6, 6)),
        ("channels", torch.arange(3)[:, None, None]),
        (4, torch.tensor([0] * 4 + [1] * 2) + torch.tensor([0] * 4 + [2] * 2)[:, None]),  # patches
        (None, torch.arange(4).repeat_interleave(27).view(3, 6, 6)),
        (None, torch.arange(5 * 108).view(5, 3, 6, 6) * 7 // 3 % 5),
    ],
)
def test_groups(images, given, numbers):
    net, x = images
    relevance = torch.randn(x.shape)
    given = numbers if given is None else given
    found = pixel_flipping(net, x, relevance, ZeroImputer(), groups=given)
    totals = []
    curve = []
    for image, number, R, c in zip(x, numbers.expand(5, 3, 6, 6), relevance, net.assign(x), strict=True):
        totals.append(torch.bincount(number.flatten(), R.flatten()))
        order = totals[-1].argsort(descending=True)
        known = [torch.isin(number, order[: t + 1]) for t in range(len(order))]
        curve.append([float(net((image * some)[None])[0, c]) for some in known])
    assert np.allclose(found.logit_per_input, curve, atol=1e-5)
    again = pixel_flipping(net, x, torch.stack(totals), ZeroImputer(), groups=given)
    assert np.allclose(again.logit_per_input, found.logit_per_input)


def test_images_default_to_pixels_and_zeros(images):
    net, x = images
    given = torch.randn(x.shape)
    found = pixel_flipping(net, x, given)
    explicit = pixel_flipping(net, x, given, ZeroImputer(), groups="pixels")
    assert np.allclose(found.curve, explicit.curve)
    blurred = BlurImputer(1.5).start(x).fill(torch.zeros(1, 5, 108, dtype=torch.bool), 1, torch.Generator())
    assert float(blurred.var()) < 0.3 * float(x.var())


# --- methods ------------------------------------------------------------------------------------------------


def test_pda_one_feature_at_a_time():
    x = torch.tensor(X[:20])
    own = torch.tensor(MODEL.labels_[:20]).long()
    found = methods.pda()(NET, x, own)
    sure = methods.pda(measure="indicator")(NET, x, own)
    for i in range(13):
        g = NET(x * (torch.arange(13) != i))
        assert torch.allclose(found[:, i], (NET(x) - g).gather(1, own[:, None])[:, 0])
        assert torch.allclose(sure[:, i], 1.0 - (g.argmax(1) == own).double())


def test_gradients():
    x = torch.tensor(X[:10], requires_grad=True)
    own = NET.assign(x)
    logit = NET(x).gather(1, own[:, None])[:, 0]
    (slope,) = torch.autograd.grad(logit.sum(), x)
    assert torch.allclose(methods.sensitivity(NET, x, own), slope.square())
    assert torch.allclose(methods.gradient_x_input(NET, x, own), slope * x)
    attributions = methods.integrated_gradients(200)(NET, x.detach(), own)
    zero = NET(torch.zeros_like(x)).gather(1, own[:, None])[:, 0]
    assert torch.allclose(attributions.sum(1), logit - zero, atol=0.3)
    squares = (x[:, None] - torch.tensor(MODEL.cluster_centers_)).square()
    two = squares[torch.arange(10)[:, None], squares.sum(2).argsort()[:, :2]]
    assert torch.allclose(methods.nca(NET, x.detach(), own), two[:, 1] - two[:, 0])
    assert NET.beta < np.inf


def test_methods_take_expanded_groups():
    maps = torch.randn(2, 3, 2, 2)
    net = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
    own = torch.tensor([0, 2])
    channels = torch.arange(3)[:, None, None].expand(3, 2, 2)
    for method in (methods.shapley_sampling, methods.pda):
        assert torch.equal(*(method(groups=one)(net, maps, own) for one in (channels, channels.contiguous())))


def test_compare():
    found = compare(NET, X, repeats=20)
    assert set(found.results) == set(methods.default_methods(KDEImputer(X), known="mean"))
    rows = found.to_frame().to_dict("index")
    neon = rows["NEON"]
    chance = rows["random"]
    assert neon["tied"]
    assert neon["SRG"] > 10 > abs(chance["SRG"])
    assert found.to_frame().loc["NEON", "AUC"] == neon["AUC"] > chance["AUC"] + 5
    assert found.to_frame()[["best", "best removal"]].sum().tolist() == [1, 1]
    removed = pixel_flipping(NET, X, RELEVANCE, KDEImputer(X), repeats=20, mode="remove")
    nothing = 100 * (removed.curve[-1] - 1) / 13  # the reversed curve ends with all features, this one with none
    assert neon["removal"] == pytest.approx(removed.auc - nothing, abs=1)  # other draws
    assert neon["best removal"] or neon["removal"] < chance["removal"] - 5
    assert found.to_markdown().count("\n") == len(rows) + 3
    assert found.to_markdown().endswith("Missing features of PDA, IG and Shapley: mean.")
    starred = compare(NET, X, {"a": methods.neon, "b": methods.neon}, repeats=1).to_markdown()
    assert starred.endswith("*: within one standard error of the best.")
    assert found.plot().axes


def test_the_zero_of_raw_columns_is_not_their_missing_value():
    """Behind a scaler the baselines are those of the scaled columns, which the clusterer sees."""
    raw = load_wine().data
    model = make_pipeline(StandardScaler(), KMeans(6, n_init=1, random_state=0)).fit(raw)
    scaled = model[0].transform(raw)
    nets = neuralize(model, raw), neuralize(model[-1], scaled)
    for name in ("IG-10", "Shapley", "PDA, mean"):
        ours, others = (
            methods.default_methods(baseline=x.mean(0), known="mean")[name](net, x, net(x).argmax(1))
            for net, x in zip(nets, map(torch.as_tensor, (raw, scaled)), strict=True)
        )
        assert torch.allclose(ours, others, rtol=1e-6, atol=1e-8)
    found = compare(nets[0], raw[:5], None, ZeroImputer(), baseline="zero")
    assert found.baseline == "zero"
    assert "PDA, zero" in found.results


def test_methods_by_name_and_functions():
    def mine(net, x, target):
        return x * 2.0

    found = compare(NET, X, ["neon", "x²", mine], ZeroImputer())
    assert list(found.results) == ["NEON", "x²", "mine"]
    assert "Missing features" not in str(found)
    found = compare(NET, X, {"mine": mine, "given": RELEVANCE}, ZeroImputer())
    assert found.results["given"].auc == pixel_flipping(NET, X, RELEVANCE, ZeroImputer()).auc
    assert set(found.seconds) == {"mine", "given"}
    assert found.baseline is None
    assert "IG-10" in compare(nn.Linear(13, 3).double(), X[:5], ["IG-10"], ZeroImputer(), 1).results


def test_points_and_steps_are_sampled():
    """The result says so, and is that of the sampled rows alone."""
    target = np.arange(len(X)) % 2
    found = compare(NET, X, {"a": RELEVANCE}, ZeroImputer(), target=target, points=10, steps=3)
    rows = found.rows_
    assert len(set(rows)) == 10
    alone = pixel_flipping(NET, X[rows], RELEVANCE[rows], ZeroImputer(), target=target[rows], steps=3)
    assert found.results["a"].auc_per_input.tolist() == alone.auc_per_input.tolist()
    said = str(found)
    assert f"A random sample of 10 of {len(X)} points (points=None: all). 3 steps of about " in said
    everything = compare(NET, X, {"a": RELEVANCE}, ZeroImputer(), points=None, steps=None)
    assert everything.rows_.tolist() == [*range(len(X))]
    assert "sample" not in str(everything)


# --- words and patches -------------------------------------------------------------------------------------


TEXTS = ["apple pear plum apple", "pear plum cherry", "bolt nut screw bolt", "nut screw washer", "plum nut"]


@pytest.fixture
def of_texts():
    words = WordVectors.from_texts(TEXTS, n_dimensions=2, min_count=1, random_state=0)
    kmeans = KMeans(2, n_init=5, random_state=0).fit(words.points(TEXTS))
    return neuralize(kmeans, TEXTS, words), np.asarray(words.encode(TEXTS))


@pytest.mark.parametrize("mode", ["insert", "remove"])
def test_words_take_the_place_of_words(of_texts, mode):
    """Of a corpus of one word every draw is that word: loops over texts and steps."""
    net, ids = of_texts
    other = int(ids[2, 0])
    relevance = np.random.default_rng(0).normal(size=ids.shape)
    found = pixel_flipping(net, ids, relevance, WordImputer([[other, -1]]), repeats=3, mode=mode)
    own = net.predict(ids)
    hits = np.zeros(ids.shape)
    for i, text in enumerate(ids):
        empty = np.where(text < 0, -1, other)
        now, new = (empty.copy(), text) if mode == "insert" else (text.copy(), empty)
        for step, place in enumerate(np.argsort(-relevance[i], kind="stable")):
            now[place] = new[place]
            hits[i, step] = net.predict(now[None])[0] == own[i]
    assert np.allclose(found.curve, hits.mean(0))
    assert found.auc == pytest.approx(100 * hits.mean())
    texts, numbers = (pixel_flipping(net, x, relevance, WordImputer(x), mode=mode).auc for x in (TEXTS, ids))
    assert texts == numbers


def test_words_are_drawn_from_the_texts(of_texts):
    net, ids = of_texts
    x = net.batch(ids).tensor
    filling = WordImputer(ids).start(x)
    nothing = torch.zeros(2, *x.shape, dtype=torch.bool)
    drawn = filling.fill(nothing, 200, torch.Generator())
    assert torch.equal(drawn[0], drawn[1])  # the same in all steps
    assert (drawn[:, :, x < 0] == -1).all()
    shares = np.bincount(drawn[drawn >= 0].long()) / int((drawn >= 0).sum())
    assert np.allclose(shares, np.bincount(ids[ids >= 0]) / (ids >= 0).sum(), atol=0.03)
    assert torch.equal(filling.fill(~nothing, 1, torch.Generator())[0, 0], x)


# --- the beta with the greatest area under the curve --------------------------------------------------------

FACTORS = (0.1, 1.0, 10.0)


def test_the_beta_with_the_greatest_area():
    """NEON's order of the features, added to zeros."""
    points = X[::4]
    centers = KMeans(12, n_init=2, random_state=0).fit(X).cluster_centers_
    net = neuralize(centers, X)
    far = ((points[:, None] - centers) ** 2).sum(2)

    def area(beta):
        own = zip(points, far.argmin(1), strict=True)
        relevance = np.array([neon(x, centers, c, beta) for x, c in own])
        hits, _ = algorithm_1(points, relevance, 0.0, lambda x: -((x - centers) ** 2).sum(1), True, True)
        return 100 * hits.mean(1)

    found = calibrate_by_flipping(net, points, ZeroImputer(), factors=FACTORS)
    assert np.allclose(found.betas, net.calibrate(points).beta * np.array(FACTORS))
    expected = np.array([*map(area, found.betas)])
    assert np.allclose(found.auc_per_input, expected)
    best = int(expected.mean(1).argmax())
    assert found.beta == found.betas[best]
    assert best != 1  # the heuristic is not the best here, or this would say little
    row = found.to_frame().iloc[1]
    behind = expected[best] - expected[1]
    assert row["AUC"] == pytest.approx(expected[1].mean())
    assert row["behind"] == pytest.approx(behind.mean())
    assert row["± behind"] == pytest.approx(behind.std(ddof=1) / np.sqrt(len(points)))
    assert found.to_frame()["best"].tolist() == [i == best for i in range(3)]
    assert (str(found).count("**"), str(found).count("\n")) == (2, 4)


@pytest.mark.parametrize("draws", [None, np.random.RandomState(0), 0])
def test_the_network_keeps_its_beta(draws):
    """And what is found does not depend on it; draws are common to all betas, and a factor twice is one."""
    net = neuralize(MODEL, X)
    calibrate = partial(calibrate_by_flipping, net, X[:20], KDEImputer(X), 1, random_state=draws)
    before = net.beta
    found = calibrate(factors=(1 + 1e-9, 1, 0.1, 1))
    assert found.factors.tolist() == [0.1, 1, 1 + 1e-9]
    assert np.array_equal(*found.auc_per_input[1:])
    assert net.beta == before
    if draws == 0:
        net.beta = found.beta
        assert (calibrate(factors=found.factors).auc_per_input == found.auc_per_input).all()
        assert net.beta == found.beta


def test_the_beta_of_channels_of_images(images):
    net, x = images
    found = calibrate_by_flipping(net, x, factors=FACTORS, groups="channels")
    relevance = neonxc.NEON(net, beta=found.betas[0]).attribute(x)
    expected = pixel_flipping(net, x, relevance, groups="channels").auc_per_input
    assert np.allclose(found.auc_per_input[0], expected)
