"""Measures of trees, the search for a depth factor, random thresholds, trade-offs, files."""

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib import pyplot
from refusals import refused
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tree_witnesses import kmeans_cost as by_hand

import neonxc
from neonxc.evaluation import cost_ratio, kmeans_cost, label_agreement, surrogate_cost, wad, waes
from neonxc.trees import CART, IMM, ExKMC, ExShallow, RandomThresholds, trade_off
from neonxc.trees.explainers.random_thresholds import draw


@pytest.fixture(scope="module")
def iris():
    X = load_iris().data
    return X, KMeans(3, n_init=10, random_state=0).fit(X)


# --- measures --------------------------------------------------------------------------------------------------


def test_costs(iris):
    X, model = iris
    centers = model.cluster_centers_
    weight = np.random.default_rng(0).random(len(X)) + 0.1
    labels = IMM(3).fit(X, centers=centers).labels_
    others = X[::-1], labels[::-1], pd.Series(weight[::-1], index=np.arange(150) + 50)
    for given in ((X, labels, weight), others):
        assert kmeans_cost(*given) == pytest.approx(by_hand(X, labels, weight))
    assert kmeans_cost(pd.DataFrame(X), torch.as_tensor(model.labels_)) == pytest.approx(model.inertia_)
    for reference in (model.labels_, centers, torch.as_tensor(centers)):
        assert cost_ratio(X, labels, reference) == pytest.approx(by_hand(X, labels) / model.inertia_)
    assert cost_ratio([[0.0], [0], [1], [1]], [0, 0, 1, 1], [0, 0, 1, 1]) == 1  # of a reference without cost
    assert cost_ratio([[0.0], [0], [1], [1]], [0, 0, 0, 1], [0, 0, 1, 1]) == float("inf")
    leaves = ExKMC(3, max_leaves=5).fit(X, centers=centers).tree_.apply(X)
    distances = ((X[:, None] - centers) ** 2).sum(2)
    wanted = sum(distances[leaves == leaf].sum(0).min() for leaf in np.unique(leaves))
    assert surrogate_cost(X, leaves, centers) == pytest.approx(wanted)
    renamed = np.array(["b", "c", "a"])[model.labels_]
    assert label_agreement(torch.as_tensor(model.labels_), renamed) == {"ari": 1.0, "ami": 1.0, "nmi": 1.0}
    assert 0.5 < label_agreement(labels, model.labels_)["ari"] < 1
    for message, call, *arguments in (
        ("labels needs one label per point", cost_ratio, X, [0, 1], [0] * 150),
        ("centers have 2 columns, X has 4", cost_ratio, X, [0] * 150, np.zeros((3, 2))),
        ("sample_weight needs one weight per point", kmeans_cost, X, [0] * 150, [1, 2]),
        ("weights >= 0", kmeans_cost, X, labels, -weight),
        ("centers has a value that is not finite", surrogate_cost, X, [0] * 150, [[np.nan] * 4]),
    ):
        refused(message, call, *arguments)


@pytest.mark.parametrize(("scaled", "weighted"), [(False, False), (True, True)])
def test_one_cost_ratio_of_a_reference_that_has_not_converged(scaled, weighted):
    X = load_wine().data
    weight = np.random.default_rng(0).integers(1, 4, len(X)) if weighted else None
    space = StandardScaler().fit_transform(X) if scaled else X
    model = KMeans(3, init=space[:3], n_init=1, max_iter=1).fit(space)
    reference = make_pipeline(StandardScaler().fit(X), model) if scaled else model
    assert model.inertia_ > 1.01 * by_hand(space, model.labels_)
    fits = [IMM(reference=reference).fit(X, sample_weight=weight)]
    ratio = by_hand(space, fits[0].labels_, weight) / by_hand(space, model.labels_, weight)
    fits += [] if scaled else [IMM().fit(X, centers=model.cluster_centers_, sample_weight=weight)]
    assert [fitted.tree_.cost_ratio for fitted in fits] == pytest.approx([ratio] * len(fits))
    for own in (model.labels_, model.cluster_centers_):
        assert cost_ratio(space, fits[0].labels_, own, weight) == pytest.approx(ratio)


def test_depths_are_averages_over_points():
    X = np.array([[0.0], [1], [2], [3], [4], [5], [6], [7]])
    labels = np.array([0, 0, 0, 0, 1, 1, 2, 2])
    tree = CART(3).fit(X, labels=labels).tree_
    assert wad(tree) == pytest.approx((4 * 1 + 4 * 2) / 8)
    assert waes(tree) == pytest.approx((4 * 1 + 2 * 2 + 2 * 1) / 8)  # x > 5.5 makes x > 3.5 redundant
    weighted = CART(3).fit(X, labels=labels, sample_weight=[4, 4, 4, 4, 1, 1, 1, 1]).tree_
    assert wad(weighted) == pytest.approx((16 * 1 + 4 * 2) / 20)


# --- ExShallow* ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def digits():
    X = load_digits().data[:200]
    return X, KMeans(10, n_init=1, random_state=0).fit(X).cluster_centers_


def test_the_search_reaches_its_goals_where_it_can(digits):
    X, centers = digits
    plain = ExShallow(10).fit(X, centers=centers)
    size = waes(plain.tree_)
    cost = cost_ratio(X, plain.labels_, centers)
    same = ExShallow(10).tune_depth_factor(X, goal_cost=cost + 0.01, goal_waes=size + 0.01, centers=centers)
    assert same.goals_met_
    assert same.depth_factor_ == 0.03
    shorter = ExShallow(10).tune_depth_factor(X, goal_cost=cost + 0.3, goal_waes=size - 0.3, centers=centers)
    assert shorter.goals_met_
    assert shorter.depth_factor_ > 0.03
    assert waes(shorter.tree_) <= size - 0.3
    assert cost_ratio(X, shorter.labels_, centers) <= cost + 0.3
    assert shorter.depth_factor == 0.03  # a parameter stays what it was set to
    again = ExShallow(10, depth_factor=shorter.depth_factor_).fit(X, centers=centers)
    assert np.array_equal(again.labels_, shorter.labels_)
    with pytest.warns(UserWarning, match="out of reach together: the tree .* lowest values") as caught:
        cheap = ExShallow(10).tune_depth_factor(X, goal_cost=1.0, goal_waes=9, centers=centers)
    assert caught[0].filename == __file__
    assert not cheap.goals_met_
    assert cheap.inertia_ <= plain.inertia_  # the least cost that was found
    assert f"cost ratio {cost_ratio(X, cheap.labels_, centers):.4g} and" in str(caught[0].message)
    with pytest.warns(UserWarning, match="out of reach"):
        short = ExShallow(10).tune_depth_factor(X, goal_cost=cost + 0.1, goal_waes=1, centers=centers)
    assert cost_ratio(X, short.labels_, centers) <= cost + 0.1
    assert waes(short.tree_) <= size


# --- random thresholds -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["l1", "l2"])
def test_random_cuts_fall_between_centers_as_often_as_they_should(metric):
    centers = np.array([[0.0, 0.0], [1.0, 3.0]])
    trials = draw(centers, 4000, metric, np.random.default_rng(0))
    assert all(list(tests) == [1] for tests in trials)
    feature, threshold = (np.array(values) for values in zip(*(tests[1] for tests in trials), strict=True))
    share = 3 / 4 if metric == "l1" else 9 / 10
    assert (feature == 1).mean() == pytest.approx(share, abs=0.02)
    place = threshold[feature == 1] / 3
    assert 0 <= place.min() < place.max() < 1
    assert place.std() == pytest.approx(1 / 12**0.5 if metric == "l1" else 1 / 24**0.5, abs=0.01)


def test_thresholds_separate_adjacent_centers_whatever_the_scale():
    low = 2.0**54 - 2 * np.arange(1, 40)[:, None]
    for centers in np.stack([low - 2, low], axis=1):
        for scale in (1.9999999, 0.3, 7.0):
            (tests,) = draw(centers, 1, "l2", np.random.default_rng(0), np.array([scale]))
            feature, threshold = tests[1]
            assert feature == 0
            assert centers[0] <= threshold < centers[1]


def test_files_of_random_thresholds_of_version_0_2_have_max_bins(iris, tmp_path):
    fitted = RandomThresholds(3, random_state=0).fit(iris[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitted, "get_params", lambda deep: {"n_clusters": 3, "max_bins": None})
        neonxc.save(fitted, tmp_path / "old.safetensors")
    assert np.array_equal(neonxc.load(tmp_path / "old.safetensors").predict(iris[0]), fitted.labels_)


# --- trade-offs ------------------------------------------------------------------------------------------------


def test_the_front(iris):
    X, model = iris
    candidates = {"short": ExShallow(3, depth_factor=1.0), "IMM": IMM(3), "deep": ExKMC(3, max_leaves=9)}
    found = trade_off(X, centers=model.cluster_centers_, candidates=candidates)
    measures = [(one.cost_ratio, one.waes) for one in found]
    assert measures == sorted(measures)
    for one in found:
        own = one.cost_ratio, one.waes
        beaten = any(cost <= own[0] and size <= own[1] for cost, size in {*measures} - {own})
        assert one.on_front is not beaten
        assert one.cost_ratio == pytest.approx(cost_ratio(X, one.explainer.labels_, model.cluster_centers_))
    assert found.to_markdown().count("\n") == 4
    axes = found.plot()
    assert pyplot.gcf() is axes.figure
    named = [name for text in axes.get_legend().get_texts() for name in text.get_text().splitlines()]
    assert named[: len(found.front)] == [c.name for c in sorted(found.front, key=lambda c: c.waes)]
    assert named[len(found.front) :] == ["not on the front"] * (len(found.front) < 3)
    assert not hasattr(candidates["IMM"], "tree_")  # what is passed stays unfitted


def test_default_candidates(iris):
    X, model = iris
    found = trade_off(pd.DataFrame(X, columns=list("abcd")), labels=model.labels_)
    assert len(found) == 14
    assert found[0].explainer.tree_.feature_names == tuple("abcd")
    refused("one of labels, centers and reference", trade_off, X)
    refused("reference needs a clusterer", trade_off, X, reference="kmeans")


def test_costs_are_measured_where_the_reference_is():
    wine = load_wine(as_frame=True).data
    reference = make_pipeline(StandardScaler(), KMeans(3, n_init=1, random_state=0))
    fitted = clone(reference).fit(wine)
    weight = np.arange(178) % 3 + 0.5
    mixed = pd.DataFrame({"age": np.where(np.arange(178) % 7, wine["alcohol"], np.nan), "work": list("ab") * 89})
    labels = mixed["age"].fillna(13) > 13
    candidates = {"IMM": IMM(3), "refined": ExShallow(3, refine=True)}
    for table, given in (
        (wine, {"reference": reference}),
        (wine, {"reference": fitted, "sample_weight": weight}),
        (mixed, {"labels": labels}),
        (wine, {"labels": np.where(wine["alcohol"] > 14, -1, labels)}),  # noise costs nothing
    ):
        for one in trade_off(table, candidates=candidates, **given):
            assert one.cost_ratio == pytest.approx(one.explainer.tree_.cost_ratio)
    with pytest.warns(UserWarning, match=r"costs 0\.51 times as much as the reference.* pass that pipeline"):
        trade_off(wine, labels=fitted.predict(wine), candidates={"IMM": IMM(3), "ExShallow": ExShallow(3)})


# --- files -----------------------------------------------------------------------------------------------------


def test_files_lack_the_pipeline_of_the_reference(iris, tmp_path):
    """What else they have is tested for every explainer in `test_tree_frames.py`."""
    X = iris[0]
    file = tmp_path / "explainer.safetensors"
    refused("fitted", neonxc.save, IMM(), file, error=NotFittedError)
    fitted = IMM(3, reference=make_pipeline(StandardScaler(), KMeans(3, n_init=1, random_state=0))).fit(X)
    neonxc.save(fitted, file)
    loaded = neonxc.load(file)
    assert np.array_equal(loaded.predict(X), fitted.labels_)
    refused("without the pipeline", loaded.score, X)
