"""Distances, traversals, values of interest, centers and the arithmetic of interpretability."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from interpretable_witnesses import gower, least_radius, partitions, score
from refusals import refusals, refused
from scipy.spatial.distance import cdist
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import pairwise_distances

import neonxc
from neonxc.data.table import Table
from neonxc.evaluation import interpretabilities, interpretability
from neonxc.models import KCenter
from neonxc.models.interpretable.columns import as_series, find_interest, fit_coding
from neonxc.models.interpretable.metric import fit_metric
from neonxc.models.interpretable.problem import allot, beta_max, max_size, medoid, one_center
from neonxc.models.interpretable.search import assign_points

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4))
PEOPLE = pd.DataFrame(
    {
        "age": RNG.integers(18, 70, 40),
        "wage": np.where(RNG.random(40) < 0.2, np.nan, RNG.normal(size=40)),
        "job": RNG.choice(["cook", "nurse", "clerk", None], 40),
        "city": pd.Categorical(RNG.choice(["Rome", "Oslo"], 40)),
        "member": RNG.random(40) < 0.5,
        "constant": 1.0,
    }
)


def points_of(data, metric="euclidean", params=None):
    table = Table(data)
    return fit_metric(table, metric, params).points(table)


def matrix(points):
    return points.distances_to(torch.arange(len(points))).numpy()


def test_gower_value_by_value():
    assert PEOPLE["job"].isna().any()
    assert np.allclose(matrix(points_of(PEOPLE, "gower")), gower(PEOPLE), atol=1e-14)


def test_gower_without_a_common_column():
    frame = pd.DataFrame({"a": [1.0, np.nan, 2.0], "b": ["x", None, "x"], "c": [np.nan, 3.0, np.nan]})
    far = matrix(points_of(frame, "gower"))
    assert far[0, 1] == far[1, 2] == 1
    assert np.allclose(far, np.where(np.eye(3), far, gower(frame)))


def test_gower_of_new_points():
    """Unknown categories differ from all, and numbers beyond the range count 1; gaps may be new."""
    fit = pd.DataFrame({"a": [0.0, 1.0, 0.2, 0.8], "b": ["x", "y", "x", "y"]})
    model = KCenter(2, metric="gower").fit(fit)
    centers = model.cluster_centers_
    new = pd.DataFrame({"a": [0.3, np.nan, 9.0, 0.9], "b": ["y", "x", "zebra", None]})
    expected = []
    for a, b in new.itertuples(index=False):
        far = []
        for a_c, b_c in centers.itertuples(index=False):
            parts = [] if pd.isna(a) else [min(abs(a - a_c), 1)]
            parts += [] if pd.isna(b) else [float(b != b_c)]
            far.append(np.mean(parts))
        expected.append(int(np.argmin(far)))
    assert model.predict(new).tolist() == expected


@pytest.mark.parametrize(
    "metric", ["euclidean", "l2", "manhattan", "cityblock", "l1", "chebyshev", "cosine", "canberra", "braycurtis"]
)
@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_metrics_by_name(metric, kind):
    data = X.astype(kind)
    assert np.allclose(matrix(points_of(data, metric)), pairwise_distances(data, metric=metric), atol=1e-6)


@pytest.mark.parametrize(
    ("metric", "params"),
    [
        ("minkowski", {"p": 3}),
        ("seuclidean", None),
        ("mahalanobis", None),
        ("jaccard", None),
        ("seuclidean", {"V": [1, 2, 3, 4]}),
    ],
)
def test_metrics_with_parameters(metric, params):
    data = (X > 0).astype(float) if metric == "jaccard" else X
    expected = pairwise_distances(data != 0 if metric == "jaccard" else data, metric=metric, **params or {})
    assert np.allclose(matrix(points_of(data, metric, params)), expected)


def test_a_metric_that_is_a_function():
    assert np.allclose(matrix(points_of(X, lambda a, b: float(np.abs(a - b).max()))), cdist(X, X, "chebyshev"))


def test_cosine_distance_of_zeros():
    data = np.array([[0.0, 0], [1, 0], [0, 0], [-2, 0]])
    expected = [[0, 1, 0, 1], [1, 0, 1, 2], [0, 1, 0, 1], [1, 2, 1, 0]]
    assert np.allclose(matrix(points_of(data, "cosine")), expected)


def test_float32_far_from_the_origin():
    near = RNG.integers(0, 8, (50, 3)).astype(np.float32)
    assert np.allclose(matrix(points_of(near + np.float32(2**20))), cdist(near, near))


@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "cosine"])
def test_precomputed_is_the_metric(metric):
    far = pairwise_distances(X, metric=metric)
    far = (far + far.T) / 2
    one = KCenter(7, metric=metric, init="random", n_init=3, random_state=0).fit(X)
    two = KCenter(7, metric="precomputed", init="random", n_init=3, random_state=0).fit(far)
    assert one.center_indices_.tolist() == two.center_indices_.tolist()
    assert (one.labels_ == two.labels_).all()
    assert one.radius_ == pytest.approx(two.radius_)
    assert (one.predict(X[:20]) == two.predict(far[:20])).all()


def precomputed(far):
    return lambda: KCenter(2, metric="precomputed").fit(np.array(far))


def interest(foi):
    return lambda: find_interest(Table(X), foi, 4)


test_unusable = refusals(
    {
        "square": precomputed(X),
        ">= 0": precomputed([[0.0, -1], [-1, 0]]),
        "zeros on the diagonal": precomputed([[1.0, 2], [2, 0]]),
        "symmetric": precomputed([[0.0, 1], [2, 0]]),
        r"\['job', 'city'\].*metric=\"gower\"": lambda: KCenter(2).fit(PEOPLE[["age", "job", "city"]]),
        "fewer than n_clusters=5": lambda: KCenter(5).fit(X[:3]),
        "metric_params does not apply": lambda: KCenter(2, metric_params={"p": 3}).fit(X),
        "too large": lambda: KCenter(2).fit(X * 1e200),
        "not finite in column 'wage'": lambda: KCenter(2, metric="gower").fit(PEOPLE.assign(wage=np.inf)),
        r"shape \[points, features\]": lambda: KCenter(2).fit(torch.zeros(3)),
        "no names": interest("age"),
        "numbers below 4": interest(4),
        "distinct columns": [interest([0, 0]), interest([])],
        r"shape \(60,\)": interest(np.zeros(3)),
        "columns of X": interest([1.5, 2]),
        "one label per point": lambda: interpretability([0, 1], [1, 2, 3]),
    }
)


@given(st.integers(0, 10**6), st.integers(1, 4), st.sampled_from(["farthest", "random"]))
def test_greedy_is_within_twice_the_optimum(seed, k, init):
    data = np.random.default_rng(seed).normal(size=(8, 2))
    model = KCenter(k, init=init, random_state=seed).fit(data)
    far = cdist(data, data)
    assert least_radius(far, k) - 1e-12 <= model.radius_ <= 2 * least_radius(far, k) + 1e-12
    assert model.radius_ == pytest.approx(far[:, model.center_indices_].min(1).max())
    assert (model.labels_ == far[:, model.center_indices_].argmin(1)).all()
    assert model.score(data) == pytest.approx(-model.radius_)


def test_more_starts_are_no_worse():
    radii = [KCenter(6, init="random", n_init=n, random_state=0).fit(X).radius_ for n in (1, 5, 20)]
    assert radii == sorted(radii, reverse=True)
    assert radii[-1] < radii[0]
    assert KCenter(6, n_init=20, random_state=0).fit(X).radius_ <= KCenter(6).fit(X).radius_


def test_the_order_of_points_does_not_matter():
    order = RNG.permutation(60)
    one, two = KCenter(6).fit(X), KCenter(6).fit(X[order])
    assert (one.labels_[order] == two.labels_).all()
    assert one.center_indices_.tolist() == order[two.center_indices_].tolist()


def test_fewer_distinct_points_than_clusters():
    with pytest.warns(ConvergenceWarning, match=r"clusters \(2\) found smaller than n_clusters \(3\)"):
        model = KCenter(3).fit(np.repeat([[0.0], [1]], 3, axis=0))
    assert len(model.cluster_centers_) == len(model.classes_) == 2
    assert model.radius_ == 0


def test_what_goes_in_comes_out():
    tensor = KCenter(3).fit(torch.from_numpy(X))
    assert isinstance(tensor.labels_, torch.Tensor)
    assert isinstance(tensor.cluster_centers_, torch.Tensor)
    array = KCenter(3).fit(X)
    assert (tensor.labels_.numpy() == array.labels_).all()
    assert (array.cluster_centers_ == X[array.center_indices_]).all()
    frame = KCenter(3, metric="gower").fit(PEOPLE)
    pd.testing.assert_frame_equal(frame.cluster_centers_, PEOPLE.iloc[frame.center_indices_])


def test_kcenter_is_a_network():
    for data in (X, X.astype(np.float32), torch.from_numpy(X)):
        model = KCenter(6).fit(data)
        net = neonxc.neuralize(model)
        assert (np.asarray(net.predict(data)) == np.asarray(model.predict(data))).all()
    refused(r"labels=model\.labels_", neonxc.neuralize, KCenter(6, metric="manhattan").fit(X))


@given(st.integers(0, 10**6), st.integers(1, 40), st.booleans())
def test_one_center_is_the_best(seed, n, grid):
    data = np.random.default_rng(seed).normal(size=(n, 3))
    data = data.round() if grid else data
    far = cdist(data, data)
    assert far[:, one_center(points_of(data))].max() == pytest.approx(far.max(0).min(), abs=1e-12)


def test_one_center_takes_few_columns(monkeypatch):
    points, calls = points_of(RNG.normal(size=(20_000, 5))), []
    column = type(points).distances_to
    monkeypatch.setattr(type(points), "distances_to", lambda self, i: calls.append(i) or column(self, i))
    one_center(points)
    assert len(calls) < 100


def test_medoids():
    far = cdist(X, X)
    assert far[:, medoid(points_of(X))].sum() == pytest.approx(far.sum(0).min())
    many = RNG.normal(size=(3000, 3)) ** 3  # more than are all tried
    sums = cdist(many, many).sum(0)
    assert sums[medoid(points_of(many))] <= 1.001 * sums.min()


@given(st.integers(0, 500), st.floats(1e-3, 1) | st.sampled_from([0.1, 0.3, 0.7, 0.9, 1 / 3, 1.0]))
def test_room(m, beta):
    size = max_size(m, beta)
    if m:
        assert m / size >= beta
        assert m / (size + 1) < beta
    else:
        assert size == 0
    assert max_size(m, 0) == math.inf == max_size(m + 1, 1e-300)


@pytest.mark.parametrize(
    ("m", "beta", "size"), [(7, 0.7, 10), (9, 0.9, 10), (3, 0.3, 10), (1, 0.1, 10), (21, 0.7, 30)]
)
def test_room_where_floats_are_not_exact(m, beta, size):
    assert max_size(m, beta) == size


@given(st.lists(st.integers(0, 4), min_size=1, max_size=8), st.integers(1, 4))
def test_beta_max_is_the_best_of_all_partitions(codes, k):
    frequencies = np.bincount(codes)
    best = max(score(labels, codes) for labels in partitions(len(codes), k))
    assert beta_max(frequencies[frequencies > 0].tolist(), k) == best


@given(st.lists(st.integers(1, 50), min_size=1, max_size=6), st.integers(0, 100))
def test_points_are_allotted_one_by_one(own, n):
    given_out = np.zeros(len(own), dtype=int)
    for _ in range(n):
        given_out[np.argmax(np.array(own) / (np.array(own) + given_out + 1))] += 1
    found = allot(own, n)
    assert found.sum() == n
    assert (np.array(own) / (np.array(own) + found)).min() == (np.array(own) / (np.array(own) + given_out)).min()


def test_points_are_placed_where_there_is_room():
    far = torch.tensor([[1.0, 5, 9], [2, 3, 9], [0, 9, 9], [4, 5, 6], [torch.inf, torch.inf, torch.inf]])
    welcome = torch.zeros(5, 3, dtype=torch.bool)
    welcome[2, 0] = True
    targets, left = assign_points(far, welcome, torch.tensor([1.0, 1, torch.inf]))
    assert targets.tolist() == [0, 1, 0, 2, -1]
    assert left.tolist() == [0, 0, np.inf]


def test_interpretability_by_definition():
    labels, jobs = RNG.integers(0, 4, 50), RNG.choice(["a", "b", None], 50)
    assert interpretability(labels, jobs) == score(labels.tolist(), [str(job) for job in jobs])
    assert interpretabilities(labels, jobs).min() == interpretability(torch.from_numpy(labels), jobs)
    assert interpretabilities([-1, 3, 3, 5], [1, 1, 2, 2]).tolist() == [0.5, 1.0]


def column_items(column, name, n_bins):
    series = as_series(column, name)
    coding, conditions = fit_coding(series, n_bins)
    return coding.codes(series), conditions


def said(column, n_bins, name="age"):
    codes, conditions = column_items(column, name, n_bins)
    return codes.tolist(), [str(condition) for condition in conditions]


def test_items_of_categories():
    assert said(["b", "a", "b"], 4) == ([1, 0, 1], ["age is a", "age is b"])
    assert said(pd.Series(["b", None, "a"]), 4) == ([1, 2, 0], ["age is a", "age is b", "age is missing"])
    ordered = pd.Categorical(["lo", "hi", "lo"], categories=["lo", "mid", "hi"], ordered=True)
    assert said(ordered, 4) == ([0, 1, 0], ["age is lo", "age is hi"])
    assert said([True, False, True], 4) == ([1, 0, 1], ["age is false", "age is true"])
    assert said([2, 1, 2], 4) == ([1, 0, 1], ["age is 1", "age is 2"])


@given(st.lists(st.integers(0, 12), min_size=1, max_size=60), st.integers(1, 6))
def test_bins_keep_equal_numbers_together(values, n_bins):
    codes, conditions = column_items(np.array(values, dtype=float), "age", n_bins)
    assert len(conditions) <= n_bins
    assert set(codes.tolist()) == set(range(len(conditions)))
    for value in set(values):
        (code,) = {code for code, other in zip(codes.tolist(), values, strict=True) if other == value}
        assert conditions[code].matches([float(value)]).tolist() == [True]
    assert (np.diff(codes[np.argsort(values)]) >= 0).all()


def test_bins_of_equal_frequency():
    values = RNG.permutation(1000) / 7
    codes, conditions = column_items(values, "age", 4)
    assert np.bincount(codes).tolist() == [250] * 4
    for code, condition in enumerate(conditions):
        assert (condition.matches(values) == (codes == code)).all()


def test_bins_by_their_edges():
    assert said([1.0, 2.5, 2.6, np.nan, 7], [2.5, 5])[0] == [0, 0, 1, 3, 2]
    assert said(pd.Series([1, None, 9], dtype="Int64"), [5]) == (
        [0, 2, 1],
        ["age ≤ 5", "age > 5", "age is missing"],
    )


def test_features_of_interest():
    table = Table(PEOPLE)
    found, codes = find_interest(table, ["city", "member"], 4)
    assert found.values == [
        f"city is {city} and member is {flag}" for city in ("Oslo", "Rome") for flag in ("false", "true")
    ]
    assert [found.values[code] for code in codes] == [
        f"city is {city} and member is {str(flag).lower()}"
        for city, flag in zip(PEOPLE["city"], PEOPLE["member"], strict=True)
    ]
    assert found.columns == [3, 4]
    by_number, same = find_interest(table, (3, -1), 4)
    assert by_number.columns == [3, 5]
    assert by_number.values[0] == "city is Oslo and constant is 1"
    assert len(set(same.tolist())) == 2
    everything, zeros = find_interest(table, None, 4)
    assert len(everything.values) == 1
    assert not zeros.any()


def test_given_values_of_interest():
    table = Table(X)
    groups = RNG.integers(0, 9, 60)
    found, codes = find_interest(table, groups, 2)  # whole numbers are not cut
    assert (np.unique(groups)[codes] == groups).all()
    assert (find_interest(table, groups.tolist(), 2)[1] == codes).all()
    assert (find_interest(table, torch.from_numpy(groups), 2)[1] == codes).all()
    named, _ = find_interest(table, pd.Series(X[:, 0], name="depth"), 2)
    assert len(named.values) == 2
    assert named.values[0].startswith("depth ≤ ")
    assert found.values[0] == "foi is 0"
