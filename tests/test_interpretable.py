"""Beta-interpretable and strongly interpretable clustering, their files and errors."""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from interpretable_witnesses import partitions, radius, score
from numpy.random import default_rng
from refusals import refused
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import neonxc
from neonxc import save
from neonxc.common.registry import pack, unpack
from neonxc.evaluation import interpretabilities, interpretability, kmeans_cost
from neonxc.models import BetaInterpretable, KCenter, StronglyInterpretable
from neonxc.models.interpretable.local_search import assign_points
from neonxc.models.interpretable.problem import max_size

RNG = default_rng(0)
X, GROUP = make_blobs(150, 3, centers=5, cluster_std=2.0, random_state=0)
FOI = np.where(RNG.random(150) < 0.6, GROUP % 3, RNG.integers(0, 3, 150))
FRAME = pd.DataFrame(
    {
        "age": RNG.integers(18, 70, 120),
        "wage": np.where(RNG.random(120) < 0.1, np.nan, RNG.normal(size=120)),
        "job": RNG.choice(["cook", "nurse", "clerk"], 120),
        "member": RNG.random(120) < 0.5,
    }
)
OBJECTIVES = ["kcenter", "kmeans", "kmedian"]


def objective(data, labels, name):
    """From the labels alone."""
    if name == "kmeans":
        return kmeans_cost(data, labels)
    far = cdist(data, data)
    if name == "kcenter":
        return radius(far, labels)
    return sum(far[np.ix_(labels == c, labels == c)].sum(0).min() for c in set(labels.tolist()))


def check(model, data, foi, n_clusters, beta):
    """What holds of every fit."""
    labels = np.asarray(model.labels_)
    k = len(model.classes_)
    assert set(labels.tolist()) == set(range(k)) == set(model.classes_.tolist())
    assert 1 <= k <= n_clusters
    own = score(labels.tolist(), np.asarray(foi).tolist())
    assert model.interpretability_ == interpretability(labels, foi) == own >= beta
    assert model.interpretabilities_.tolist() == interpretabilities(labels, foi).tolist()
    for cluster in range(k):
        counts = np.bincount(model.foi_codes_[labels == cluster])
        assert counts[model.majority_[cluster]] == counts.max()
    assert model.objective_ == pytest.approx(objective(np.asarray(data), labels, model.objective), rel=1e-9)


@given(
    st.integers(0, 10**6),
    st.integers(5, 30),
    st.integers(1, 5),
    st.integers(1, 6),
    st.floats(0, 1),
    st.sampled_from(OBJECTIVES),
    st.booleans(),
)
def test_beta_is_reached_wherever_it_can_be(seed, n, k, n_values, share, name, grid):
    rng = default_rng(seed)
    data = rng.normal(size=(n, 2))
    data = data.round() if grid else data  # with equal points
    foi = rng.integers(0, n_values, n)
    most = BetaInterpretable(k, 0.0).fit(data, foi=foi).beta_max_
    for beta in {share * most, most}:  # the greatest possible beta is the hardest
        check(BetaInterpretable(k, beta, name).fit(data, foi=foi), data, foi, k, beta)
    if most < 1:
        refused(
            r"cannot be reached: with n_clusters=\d and \d values .* the maximum is [\d.]+;",
            BetaInterpretable(k, min(1.0, most + 1e-9), name).fit,
            data,
            foi=foi,
        )


@given(st.integers(0, 10**6), st.sampled_from([0.5, 0.6, 0.75, 1.0]))
def test_near_the_best_of_all_partitions(seed, beta):
    rng = default_rng(seed)
    data = rng.normal(size=(8, 2))
    foi = rng.integers(0, 2, 8)
    far = cdist(data, data)
    best = min(radius(far, labels) for labels in partitions(8, 3) if score(labels, foi.tolist()) >= beta)
    found = BetaInterpretable(3, beta).fit(data, foi=foi).objective_
    assert best - 1e-12 <= found <= 2 * best + 1e-12


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_order_of_points_does_not_matter(name):
    order = default_rng(0).permutation(150)
    one, two = (BetaInterpretable(5, 0.6, name).fit(X[rows], foi=FOI[rows]) for rows in (np.arange(150), order))
    assert (one.labels_[order] == two.labels_).all()
    assert np.allclose(one.cluster_centers_, two.cluster_centers_)
    assert one.n_iter_ == two.n_iter_


def test_without_constraint_it_is_kmeans():
    model = BetaInterpretable(5, 0.0, "kmeans", init="random", n_init=10, random_state=0).fit(X, foi=FOI)
    assert model.objective_ <= 1.02 * KMeans(5, n_init=10, random_state=0).fit(X).inertia_
    far = cdist(X + 0.1, model.cluster_centers_, "sqeuclidean")
    assert (model.predict(X + 0.1) == far.argmin(1)).all()
    assert model.score(X + 0.1) == pytest.approx(-far.min(1).sum())


def test_without_features_of_interest_it_is_kcenter_and_better():
    model = BetaInterpretable(5).fit(X)
    check(model, X, np.zeros(150), 5, 0.8)
    assert model.objective_ <= KCenter(5).fit(X).radius_


def test_algorithm_1_alone(monkeypatch):
    """The search of the paper reaches beta itself, and a failing one is not reported as success."""
    assert all(BetaInterpretable(4, beta).fit(X, foi=FOI).converged_ for beta in (0.4, 0.6, 0.8, 1.0))
    for name in ("boost_majority", "reduce_minority", "boost_interpretability"):
        monkeypatch.setattr(
            f"neonxc.models.interpretable.local_search.{name}", lambda problem, labels, cluster: labels
        )
    model = BetaInterpretable(4, 0.9).fit(X, foi=FOI)
    assert not model.converged_
    check(model, X, FOI, 4, 0.9)


def test_frames():
    model = BetaInterpretable(5, 0.7, metric="gower", foi_bins=2).fit(FRAME, foi=["age", "job"])
    assert len(model.foi_values_) == 6
    assert model.foi_values_[0].startswith("age ≤ ")
    assert model.foi_values_[0].endswith(" and job is clerk")
    assert isinstance(model.cluster_centers_, pd.DataFrame)
    assert interpretability(model.labels_, model.foi_codes_) >= 0.7
    changed = FRAME.assign(job=FRAME["job"].to_numpy()[::-1])
    assert (model.predict(FRAME) != model.predict(changed)).any()


def test_categories_that_do_not_count_in_the_distance():
    frame = FRAME[["age", "member", "job"]]
    for options in ({"objective": "kmeans"}, {"metric": "gower"}):
        model = BetaInterpretable(4, 0.6, **options, foi_in_distance=False).fit(frame, foi="job")
        assert (model.predict(frame) == model.predict(frame.assign(job="clerk"))).all()
    refused(r"not numeric: \['job'\]", BetaInterpretable(4, 0.6).fit, frame, foi="job")
    refused("leaves no column", BetaInterpretable(4, 0.6, foi_in_distance=False).fit, frame[["job"]], foi="job")


DATES = pd.DataFrame({"when": pd.date_range("2020-01-01", periods=20), "b": np.arange(20)})


@pytest.mark.parametrize(
    ("message", "model", "arguments"),
    [
        ('needs metric="euclidean"', BetaInterpretable(objective="kmeans", metric="manhattan"), {}),
        ("increasing inner edges", BetaInterpretable(foi_bins=[2, 1]), {}),
        ("'beta' parameter", BetaInterpretable(beta=1.1), {}),
        ("no names", BetaInterpretable(), {"foi": "age"}),
        (r"n_clusters=2 or more.* beta up to 0\.666\b", StronglyInterpretable(1), {"foi": np.arange(150) % 3 > 1}),
        (r"n_clusters=2 or more.* beta up to 0\.7\b", StronglyInterpretable(1), {"foi": np.arange(150) % 10 > 2}),
        ("numbers below 3", BetaInterpretable(), {"foi": 4}),
        ("distinct columns", BetaInterpretable(), {"foi": [0, 0]}),
        ("distinct columns", BetaInterpretable(), {"foi": []}),
        (r"shape \(150,\)", BetaInterpretable(), {"foi": np.zeros(3)}),
        ("columns of X", BetaInterpretable(), {"foi": [1.5, 2]}),
        ("fewer than n_clusters=151", BetaInterpretable(151), {}),
        ("foi as an array", BetaInterpretable(3, metric="precomputed"), {"X": cdist(X, X), "foi": 0}),
        ("'when' holds dates or times; convert it", BetaInterpretable(2, metric="gower"), {"X": DATES}),
        ("'when' holds dates", BetaInterpretable(2, foi_in_distance=False), {"X": DATES, "foi": "when"}),
    ],
)
def test_errors(message, model, arguments):
    refused(message, model.fit, **{"X": X} | arguments)
    refused("not fitted", model.predict, X, error=NotFittedError)


def greedy_radii(points, k):
    """Of 1, 2, ... k centers: first the point farthest from the mean, then always the farthest one."""
    far = cdist(points, points)
    centers = [((points - points.mean(0)) ** 2).sum(1).argmax()]
    while len(centers) < k:
        centers.append(far[centers].min(0).argmax())
    return [far[centers[: s + 1]].min(0).max() for s in range(k)]


@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(0, 3))
def test_strong_is_the_best_way_to_share_centers(seed, n_values, more):
    """Equal to trying every way, and within twice the best of all partitions."""
    rng = default_rng(seed)
    data = rng.normal(size=(8, 2))
    foi = np.append(np.arange(n_values), rng.integers(0, n_values, 8 - n_values))
    k = n_values + more
    far = cdist(data, data)
    model = StronglyInterpretable(k).fit(data, foi=foi)
    radii = [greedy_radii(data[foi == value], k) for value in range(n_values)]
    ways = [way for way in product(range(k), repeat=n_values) if sum(way) + n_values <= k]
    assert model.radius_ == pytest.approx(min(max(map(list.__getitem__, radii, way)) for way in ways))
    best = min(radius(far, labels) for labels in partitions(8, k) if score(labels, foi.tolist()) == 1)
    assert model.radius_ <= 2 * best + 1e-12
    assert interpretability(model.labels_, foi) == 1
    assert model.radius_ == pytest.approx(cdist(data, model.cluster_centers_)[np.arange(8), model.labels_].max())


def test_strong_predicts_by_the_value_of_interest():
    model = StronglyInterpretable(6, metric="gower").fit(FRAME, foi="job")
    assert (model.predict(FRAME) == model.labels_).all()
    said = np.array(model.foi_values_)[model.majority_[model.labels_]]
    assert (said == "job is " + FRAME["job"]).all()
    assert model.predict(FRAME.assign(job="pilot")).shape == (120,)
    given = StronglyInterpretable(6).fit(X, foi=FOI)
    assert (given.predict(X, foi=FOI) == given.labels_).all()
    assert (given.predict(X) == cdist(X, given.cluster_centers_).argmin(1)).all()
    assert (given.predict(X, foi=np.full(150, 77)) == given.predict(X)).all()  # an unknown value
    assert (given.majority_[given.predict(X, foi=np.ones(150, int))] == 1).all()


def test_strong_with_few_distinct_points():
    with pytest.warns(ConvergenceWarning, match=r"\(3\) found smaller than n_clusters \(5\)"):
        model = StronglyInterpretable(5).fit(np.array([[0.0], [0], [1], [1], [1]]), foi=[0, 1, 1, 1, 1.0])
    assert model.radius_ == 0


@pytest.mark.parametrize(
    ("model", "data"),
    [
        (KCenter(4, metric="seuclidean"), X),
        (BetaInterpretable(5, 0.7, "kmedian", "minkowski", metric_params={"p": 3}), torch.from_numpy(X)),
        (StronglyInterpretable(5, "gower"), FRAME),
    ],
)
def test_files(model, data, tmp_path):
    arguments = {} if isinstance(model, KCenter) else {"foi": ["job"] if data is FRAME else FOI}
    save(model.fit(data, **arguments), tmp_path / "model")
    back = neonxc.load(tmp_path / "model")
    for name in [name for name in vars(model) if name.endswith("_") and name[0] != "_"]:
        values = getattr(model, name), getattr(back, name)
        assert type(values[0]) is type(values[1]), name
        one, other = (pd.DataFrame(np.atleast_1d(np.asarray(value, dtype=object))) for value in values)
        assert one.equals(other), name
    assert np.array_equal(back.predict(data), model.predict(data))
    function = KCenter(2, lambda a, b: abs(a - b).sum()).fit(X[:10])
    refused("metric is a function", save, function, tmp_path / "model", error=TypeError)


def test_codings_in_files_of_version_0_2():
    model = KCenter(4, "gower").fit(FRAME)
    described, tensors = pack(model)
    metric = described["parts"]["_metric"]["values"]
    names = ("edges", "values", "missing")
    old = [one and dict(zip(names, one, strict=True)) | {"whole": False, "gaps": []} for one in metric["codings"]]
    metric |= {"codings": old, "gaps": [False] * len(old)}
    assert any(old)
    assert (unpack(described, tensors).predict(FRAME) == model.labels_).all()


# --- arithmetic of interpretability ------------------------------------------------------------------------


def test_interpretability_by_definition():
    labels = RNG.integers(0, 4, 50)
    jobs = RNG.choice(["a", "b", None], 50)
    assert interpretability(torch.from_numpy(labels), jobs) == score(labels.tolist(), [str(job) for job in jobs])
    assert interpretabilities([-1, 3, 3, 5], [1, 1, 2, 2]).tolist() == [0.5, 1.0]
    refused("one label per point", interpretability, [0, 1], [1, 2, 3])


@given(st.lists(st.integers(0, 4), min_size=4, max_size=8), st.integers(1, 4))
@example([0, 0, 0, 0, 0, 1, 2, 3, 4], 2)
def test_beta_max_is_the_best_of_all_partitions(codes, k):
    best = max(score(labels, codes) for labels in partitions(len(codes), k))
    assert BetaInterpretable(k, 0).fit(np.arange(len(codes))[:, None], foi=codes).beta_max_ == best


@given(st.integers(0, 500), st.floats(1e-3, 1) | st.sampled_from([0.1, 0.3, 0.7, 0.9, 1 / 3, 1.0]))
@example(9, 9 / 14)  # the quotient is a bit less than 14
@example(21, 0.7)
def test_room(m, beta):
    """The size of a cluster of which m points are enough."""
    size = max_size(m, beta)
    assert size == 0 if m == 0 else m / size >= beta > m / (size + 1)
    assert max_size(m, 0) == np.inf == max_size(m + 1, 1e-300)


def test_points_are_placed_where_there_is_room():
    """If too many ask for a cluster, it takes those for which the next one is worst, and welcome points anyway."""
    far = torch.tensor([[1.0, 5, 9], [2, 3, 9], [0, 9, 9], [4, 5, 6], [torch.inf, torch.inf, torch.inf]])
    welcome = torch.zeros(5, 3, dtype=torch.bool)
    welcome[2, 0] = True
    targets, left = assign_points(far, welcome, torch.tensor([1.0, 1, torch.inf]))
    assert targets.tolist() == [0, 1, 0, 2, -1]
    assert left.tolist() == [0, 0, np.inf]


def test_the_center_of_many_points():
    """A medoid is good, though not all points are tried; the center of least radius takes few distances."""
    many = RNG.normal(size=(3000, 3)) ** 3
    sums = cdist(many, many).sum(0)
    assert BetaInterpretable(1, objective="kmedian").fit(many).objective_ <= 1.001 * sums.min()
    calls = []
    model = BetaInterpretable(1, metric=lambda a, b: calls.append(1) or float(np.abs(a - b).max()))
    assert model.fit(many[:300]).objective_ == cdist(many[:300], many[:300], "chebyshev").max(0).min()
    assert len(calls) < 100 * 300


# --- values of interest ------------------------------------------------------------------------------------


def said(column, n_bins=4):
    """Codes of the values of a column, and what each value is."""
    column = pd.Series(column, name="age")
    model = BetaInterpretable(1, 0.0, foi_bins=n_bins).fit(np.arange(len(column))[:, None], foi=column)
    return np.asarray(model.foi_codes_).tolist(), [*model.foi_values_]


def test_values_of_interest_in_words():
    assert said(["b", "a", "b"]) == ([1, 0, 1], ["age is a", "age is b"])
    assert said(["b", None, "a"]) == ([1, 2, 0], ["age is a", "age is b", "age is missing"])
    ordered = pd.Categorical(["lo", "hi", "lo"], categories=["lo", "mid", "hi"], ordered=True)
    assert said(ordered) == ([0, 1, 0], ["age is lo", "age is hi"])
    assert said([True, False, True]) == ([1, 0, 1], ["age is false", "age is true"])
    assert said([2, 1, 2]) == ([1, 0, 1], ["age is 1", "age is 2"])
    assert said([1.0, 2.5, 2.6, np.nan, 7], [2.5, 5])[0] == [0, 0, 1, 3, 2]
    nullable = pd.Series([1, None, 9], dtype="Int64")
    assert said(nullable, [5]) == ([0, 2, 1], ["age ≤ 5", "age > 5", "age is missing"])
    groups = RNG.integers(0, 9, 60)
    assert len(set(zip(groups.tolist(), said(groups, 2)[0], strict=True))) == 9  # whole numbers are not cut


@given(st.lists(st.integers(0, 12), min_size=1, max_size=60), st.integers(1, 6))
def test_bins_keep_equal_numbers_together(values, n_bins):
    codes, found = said(np.array(values, dtype=float), n_bins)
    assert len(found) <= n_bins
    assert set(codes) == set(range(len(found)))
    assert len({*zip(values, codes, strict=True)}) == len({*values})
    assert (np.diff(np.array(codes)[np.argsort(values)]) >= 0).all()


def test_bins_of_equal_frequency():
    values = RNG.permutation(200) / 7
    codes, _ = said(values)
    assert (np.sort(values)[50 * np.array(codes)] <= values).all()
    assert np.bincount(codes).tolist() == [50] * 4


def test_features_of_interest():
    def fitted(foi, **options):
        return BetaInterpretable(4, 0.0, metric="gower", **options).fit(FRAME, foi=foi)

    model = fitted(["job", "member"])
    values = [
        f"job is {job} and member is {flag}" for job in ("clerk", "cook", "nurse") for flag in ("false", "true")
    ]
    assert model.foi_values_ == values
    said = "job is " + FRAME["job"] + " and member is " + FRAME["member"].astype(str).str.lower()
    assert [values[code] for code in model.foi_codes_] == said.tolist()
    for foi in ((2, -1), np.array(["job", "member"]), FRAME.columns[2:]):
        assert fitted(foi).foi_values_ == values
    assert fitted("age", foi_bins=[30, 50]).foi_values_ == ["age ≤ 30", "age in [31, 50]", "age > 50"]
    assert len(fitted(FRAME["age"].astype(float)).foi_values_) == 4  # numbers are cut
