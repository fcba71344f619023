"""Summaries, calibration and measures over the rows of several processes, against one process with all of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
import torch.distributed as dist
from sklearn.cluster import DBSCAN, KMeans
from sklearn.datasets import load_iris, load_wine
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import scale
from torch import nn

import neonxc
from neonxc.common.processes import ALONE, Ranks
from neonxc.data.distributed import common_classes, greatest, sample
from neonxc.data.preparation import prepare
from neonxc.evaluation import (
    KDEImputer,
    MeanImputer,
    ZeroImputer,
    cost_ratio,
    kmeans_cost,
    pixel_flipping,
    wad,
    waes,
)
from neonxc.evaluation.imputers import default_imputer
from neonxc.trees import IMM

WINE = scale(load_wine().data)
IRIS = load_iris(as_frame=True).data
PARTS = {"an empty rank": [0, 31, 31], "one rank": [0, 0, 0], "all ranks": [0, 40, 45]}


def own_rows(X, starts):
    """The rows of this rank, in the order of the ranks."""
    rank = dist.get_rank()
    ends = [*starts[1:], len(X)]
    rows = slice(min(starts[rank], len(X)), min(ends[rank], len(X)))
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


@pytest.fixture(params=PARTS)
def starts(request):
    return PARTS[request.param]


@pytest.fixture(scope="module")
def net():
    return wine()[0]


def every(found):
    """What all ranks return, which is the same."""
    for one in found:
        if isinstance(one, Exception):
            raise one
        assert repr(one) == repr(found[0])
    return found[0]


def raised(found, message):
    assert len({str(error) for error in found}) == 1
    for error in found:
        with pytest.raises(ValueError, match=message):
            raise error


def summarize(group, net, X, starts):
    return neonxc.NEON(net).summary(own_rows(X, starts), 4, group=group)


def assert_same_summary(one, other):
    assert one.classes.tolist() == other.classes.tolist()
    assert one.sizes.tolist() == other.sizes.tolist()
    assert np.allclose(one.relevance, other.relevance)
    assert [rows.tolist() for rows in one.prototypes] == [rows.tolist() for rows in other.prototypes]
    assert (one.feature_names, one.n_noise) == (other.feature_names, other.n_noise)
    assert np.allclose(one.values.means, other.values.means, equal_nan=True, rtol=1e-12)
    assert np.allclose(one.values.overall, other.values.overall, equal_nan=True, rtol=1e-12)
    for feature, shares in other.values.shares.items():
        pd.testing.assert_frame_equal(one.values.shares[feature], shares)


def wine():
    return neonxc.neuralize(KMeans(4, n_init=3, random_state=0).fit(WINE), WINE), WINE.astype(np.float32)


def noise_and_names():
    return neonxc.neuralize(labels=DBSCAN(0.5).fit_predict(IRIS), X=IRIS), IRIS


def equal_prototypes():
    return wine()[0], np.repeat(WINE[:3], 20, axis=0)


def texts():
    X = ["red wine", "white wine", "red grape", "a dog barks", "dogs bark", "the dog"] * 3
    model = make_pipeline(TfidfVectorizer(), KMeans(2, n_init=1, random_state=0)).fit(X)
    return neonxc.neuralize(model, X), X


def gaps_and_categories():
    X = pd.DataFrame({"a": np.random.default_rng(0).normal(size=40), "b": ["x", None, "y", "x"] * 10})
    X.loc[::3, "a"] = np.nan
    X.loc[39, "b"] = "on one rank alone"
    model = make_pipeline(prepare(X).pipeline, KMeans(2, n_init=1, random_state=0)).fit(X)
    return neonxc.neuralize(model, X), X


def images():
    torch.manual_seed(0)
    features = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
    x = torch.randn(12, 1, 6, 6)
    return neonxc.neuralize(features(x).detach()[:2], features=features), x


@pytest.mark.parametrize(
    ("make", "starts"),
    [
        *((wine, starts) for starts in PARTS.values()),
        *((noise_and_names, starts) for starts in PARTS.values()),
        *((gaps_and_categories, starts) for starts in PARTS.values()),
        (equal_prototypes, [0, 25, 25]),
        (texts, [0, 5, 5]),
        (images, [0, 5, 5]),
    ],
)
def test_summary(ranks, make, starts):
    net, X = make()
    alone = neonxc.NEON(net).summary(X, 4)
    assert (alone.n_noise > 0) == (make is noise_and_names)
    assert_same_summary(every(ranks(summarize, net, X, starts)), alone)


def calibrate(group, net, X, starts, contrast):
    return net.calibrate(own_rows(X, starts), contrast, group=group).beta


@pytest.mark.parametrize(
    ("contrast", "rows"), [("harmonic", "an empty rank"), ("least", "all ranks"), ("median", "one rank")]
)
def test_calibrate(ranks, net, contrast, rows):
    found = every(ranks(calibrate, net, WINE, PARTS[rows], contrast))
    assert found == pytest.approx(net.heuristic_beta(WINE, contrast))
    noisy, _ = noise_and_names()
    for X in (IRIS, IRIS[noisy.predict(IRIS) == -1]):  # noise counts if there is nothing else
        assert every(ranks(calibrate, noisy, X, [0, 3, 3], contrast)) == pytest.approx(
            noisy.heuristic_beta(X, contrast)
        )


def costs(group, X, labels, reference, weight, starts):
    own = [None if values is None else own_rows(values, starts) for values in (X, labels, weight)]
    reference = own_rows(reference, starts) if len(reference) == len(X) else reference
    ratio = cost_ratio(own[0], own[1], reference, own[2], group=group)
    return ratio, kmeans_cost(own[0], own[1], own[2], group=group)


@pytest.mark.parametrize(("given", "weighted"), [("labels", True), ("names", False), ("centers", True)])
def test_costs(ranks, starts, weighted, given):
    model = KMeans(3, n_init=1, random_state=0).fit(WINE)
    reference = {"labels": model.labels_, "centers": model.cluster_centers_}.get(given)
    reference = np.array(["a", "bb", "ccc"])[model.labels_] if reference is None else reference
    labels = (WINE[:, 0] > 0) + 2 * (WINE[:, 1] > 1)
    weight = np.random.default_rng(0).integers(0, 3, len(WINE)) if weighted else None
    alone = cost_ratio(WINE, labels, reference, weight), kmeans_cost(WINE, labels, weight)
    assert every(ranks(costs, WINE, labels, reference, weight, starts)) == pytest.approx(alone)
    member = pd.get_dummies(labels).to_numpy(float) * (1.0 if weight is None else weight[:, None])
    means = (member.T @ WINE) / member.sum(0)[:, None]
    assert alone[1] == pytest.approx((member * ((WINE[:, None] - means) ** 2).sum(-1)).sum())


def depths(group, tree, X, starts):
    own = own_rows(X, starts)
    counts = np.bincount(np.asarray(tree.apply(own)), minlength=tree.n_nodes) if len(own) else 0
    counted = replace(tree, samples=torch.zeros(tree.n_nodes, dtype=torch.float64) + counts)
    return [measure(each, group=group) for each in (tree, counted) for measure in (wad, waes)]


def test_sizes_of_explanations(ranks, starts):
    """Of a tree that has the points of all ranks, and of one that has those of its own rank."""
    tree = IMM(4, random_state=0).fit(WINE).tree_
    assert every(ranks(depths, tree, WINE, starts)) == pytest.approx([wad(tree), waes(tree)] * 2)
    other = IMM(3, random_state=0).fit(WINE).tree_
    raised(ranks(other_trees, [tree, tree, other]), "leaves differs between processes")


def other_trees(group, trees):
    return waes(trees[dist.get_rank()], group=group)


def flip(group, net, X, relevance, imputer, starts, options):
    options = {
        name: own_rows(values, starts) if np.ndim(values) and len(values) == len(X) else values
        for name, values in options.items()
    }
    found = pixel_flipping(net, own_rows(X, starts), own_rows(relevance, starts), imputer, group=group, **options)
    return found.auc, found.auc_stderr, found.curve, found.logit_curve, found.known, len(found.auc_per_input)


@pytest.mark.parametrize(
    ("options", "dtype", "rows"),
    [
        ({}, np.float64, "an empty rank"),
        ({"mode": "remove", "order": "least", "steps": 4}, np.float32, "all ranks"),
        ({"target": np.arange(178) % 4}, np.float64, "one rank"),
    ],
)
def test_flipping_without_draws(ranks, net, options, dtype, rows):
    starts = PARTS[rows]
    X = WINE.astype(dtype)
    relevance = neonxc.NEON(net).attribute(X)
    imputer = MeanImputer(X)
    alone = pixel_flipping(net, X, relevance, imputer, **options)
    found = ranks(flip, net, X, relevance, imputer, starts, options)
    assert sum(one[-1] for one in found) == len(X)
    auc, error, curve, logits, known = every([one[:-1] for one in found])
    assert auc == pytest.approx(alone.auc)
    assert error == pytest.approx(alone.auc_stderr)
    assert np.allclose(curve, alone.curve)
    assert np.allclose(logits, alone.logit_curve, rtol=1e-5)
    assert np.allclose(known, alone.known)


@pytest.mark.parametrize("given", [False, True])
def test_flipping_with_draws(ranks, net, given):
    """Of many repeats the mean is that of one process; no two ranks share their draws."""
    X, imputer = WINE[:60], KDEImputer(WINE) if given else None
    relevance = neonxc.NEON(net).attribute(X)
    alone = pixel_flipping(net, X, relevance, imputer, 40)
    found = every([one[:-1] for one in ranks(flip, net, X, relevance, imputer, [0, 20, 20], {"repeats": 40})])
    assert found[0] == pytest.approx(alone.auc, abs=0.5)
    assert np.abs(found[2] - alone.curve).max() < 0.03
    assert found[1] == pytest.approx(alone.auc_stderr, rel=0.05)
    twice, rows = np.concatenate([X[:5]] * 3), [0, 5, 10]
    both = ranks(flip_per_input, net, twice, neonxc.NEON(net).attribute(twice), KDEImputer(WINE), rows)
    assert not np.allclose(both[0], both[1])
    again = ranks(flip_per_input, net, twice, neonxc.NEON(net).attribute(twice), KDEImputer(WINE), rows)
    assert all(np.array_equal(one, other) for one, other in zip(both, again, strict=True))


def flip_per_input(group, net, X, relevance, imputer, starts):
    found = pixel_flipping(net, own_rows(X, starts), own_rows(relevance, starts), imputer, group=group)
    return found.logit_per_input


def test_superpixels_of_which_no_rank_has_all(ranks):
    net, x = images()
    sizes = torch.tensor([12, 6, 6, 4, 9, 18] * 2)[:, None, None, None]
    groups = torch.arange(36).reshape(6, 6).repeat(12, 1, 1, 1) // sizes
    relevance = neonxc.NEON(net).attribute(x)
    alone = pixel_flipping(net, x, relevance, ZeroImputer(), groups=groups)
    found = ranks(flip, net, x, relevance, ZeroImputer(), [0, 2, 2], {"groups": groups})
    assert every([one[0] for one in found]) == pytest.approx(alone.auc)


BAD = {
    "NaN": (
        lambda X: np.where(np.arange(X.size).reshape(X.shape) == 7, np.nan, X),
        "not finite.* .on rank 1 of 3",
    ),
    "columns": (lambda X: X[:, :3], "X has 3 features|relevance needs|columns differs between processes"),
    "dtype": (lambda X: X.astype(np.float32), "dtype .*of X differs between processes: torch.float64 .*on rank 0"),
    "empty": (None, "X is empty: no rank of the group has rows"),
}


def bad(group, call, net, kind):
    X = WINE[:20] if kind != "empty" else WINE[:0]
    if dist.get_rank() == 1 and kind != "empty":
        X = BAD[kind][0](X)
    labels = np.arange(len(X)) % 2
    return {
        "summary": lambda: neonxc.NEON(net).summary(X, group=group),
        "calibrate": lambda: net.calibrate(X, group=group),
        "cost": lambda: cost_ratio(X, labels, labels, group=group),
        "flipping": lambda: pixel_flipping(net, X, X, ZeroImputer(), group=group),
    }[call]()


@pytest.mark.parametrize("call", ["summary", "calibrate", "cost", "flipping"])
@pytest.mark.parametrize("kind", BAD)
def test_one_error_on_all_ranks(ranks, net, call, kind):
    raised(ranks(bad, call, net, kind), BAD[kind][1])


def differing(group, net, kind):
    rank, X = dist.get_rank(), WINE[:20]
    labels = np.arange(20) % 2
    return {
        "networks": lambda: neonxc.NEON(net if rank else other_net()).summary(X, group=group),
        "prototypes": lambda: neonxc.NEON(net).summary(X, rank, group=group),
        "number": lambda: neonxc.NEON(net).summary(X, -rank, group=group),
        "contrast": lambda: net.calibrate(X, ["least", "median", "median"][rank], group=group),
        "reference": lambda: cost_ratio(X, labels, labels if rank else X[:2], group=group),
        "centers": lambda: cost_ratio(X, labels, X[rank : rank + 2], group=group),
        "labels": lambda: cost_ratio(X, labels.astype(str) if rank else labels, labels, group=group),
        "weights": lambda: cost_ratio(X, labels, labels, np.zeros(20), group=group),
        "length": lambda: cost_ratio(X, labels[rank // 2 :], labels, group=group),
        "steps": lambda: pixel_flipping(net, X, X, ZeroImputer(), steps=rank + 1, group=group),
        "relevance": lambda: pixel_flipping(net, X, X[: 20 - rank // 2], ZeroImputer(), group=group),
        "imputer": lambda: pixel_flipping(net, X, X, ZeroImputer() if rank else None, group=group),
        "group": lambda: neonxc.NEON(net).summary(X, group="world"),
    }[kind]()


def other_net():
    return neonxc.neuralize(KMeans(3, n_init=1, random_state=0).fit(WINE), WINE)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("networks", "classes differs between processes"),
        ("prototypes", "n_prototypes differs between processes: 0 on rank 0, 1 on rank 1"),
        ("number", "n_prototypes needs a whole number >= 0, got -1 .on rank 1 of 3"),
        ("contrast", "contrast differs between processes: least on rank 0, median on rank 1"),
        ("reference", "reference differs between processes: centers on rank 0, labels on rank 1"),
        ("centers", "centers in reference differ between processes"),
        ("labels", "labels needs whole numbers or names, got both"),
        ("weights", "sample_weight needs weights >= 0, and not all of them 0"),
        ("length", r"labels needs one label per point, shape \(20,\), got \(19,\) .on rank 2 of 3"),
        ("steps", "steps differs between processes: 1 on rank 0, 2 on rank 1"),
        ("relevance", "relevance needs the shape of X.* .on rank 2 of 3"),
        ("imputer", "imputer differs between processes: None on rank 0, ZeroImputer on rank 1"),
        ("group", "group needs a process group"),
    ],
)
def test_what_differs_between_ranks(ranks, net, kind, message):
    raised(ranks(differing, net, kind), message)


def chosen(group, x, scores):
    ranks = Ranks(group)
    own = [slice(0, 4), slice(4, 4), slice(4, None)][ranks.rank]
    return greatest(x[own], scores[own], 5, ranks), sample(x[own], 7, ranks), sample(x[own], len(x), ranks)


def test_rows_of_all_ranks(ranks):
    x, scores = torch.arange(20.0)[:, None], torch.randperm(20, generator=torch.Generator().manual_seed(0)) / 20
    best, some, whole = every(ranks(chosen, x, scores))
    assert torch.equal(best, x[scores.argsort(descending=True)[:5]])
    assert len(set(some[:, 0].tolist())) == 7
    assert torch.equal(some, sample(x, 7, ALONE))
    assert torch.equal(whole, x)
    for kinds, expected in (([[3, 1], [], [2, 3]], [1, 2, 3]), ([["b"], ["long"], ["a"]], ["a", "b", "long"])):
        assert every(ranks(classes, kinds)).tolist() == expected


def classes(group, kinds):
    return common_classes(np.array(kinds[dist.get_rank()]), Ranks(group))


def test_the_default_imputer_draws_from_few_rows_with_and_without_a_group(net, monkeypatch):
    monkeypatch.setattr("neonxc.evaluation.imputers.LARGEST", 12)
    assert len(default_imputer(net, torch.randn(40, 3, dtype=torch.float64)).points) == 12
