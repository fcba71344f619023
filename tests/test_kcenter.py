"""Metrics, against definitions and SciPy, and k-center clustering with them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from interpretable_witnesses import gower, least_radius
from refusals import refusals
from scipy.spatial.distance import cdist
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import pairwise_distances

import neonxc
from neonxc.models import KCenter

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


def assert_distances(data, metric, expected, params=None, atol=1e-12):
    """Distances of all points to some, by the score of a single center."""
    for seed in range(3):
        model = KCenter(1, metric=metric, init="random", metric_params=params, random_state=seed).fit(data)
        far = [-model.score(data[n : n + 1]) for n in range(len(data))]
        np.testing.assert_allclose(far, expected[:, model.center_indices_[0]], atol=atol)


def test_gower_value_by_value():
    assert PEOPLE["job"].isna().any()
    assert_distances(PEOPLE, "gower", gower(PEOPLE))
    alone = pd.DataFrame({"a": [1.0, np.nan, 2.0], "b": ["x", None, "x"], "c": [np.nan, 3.0, np.nan]})
    assert_distances(alone, "gower", gower(alone))  # without a common column


def test_gower_of_new_points():
    """Unknown categories differ from all, and numbers beyond the range count 1; gaps may be new."""
    fit = pd.DataFrame({"a": [0.0, 1.0, 0.2, 0.8], "b": ["x", "y", "x", "y"]})
    model = KCenter(2, metric="gower").fit(fit)
    new = pd.DataFrame({"a": [0.3, np.nan, 9.0, 0.9], "b": ["y", "x", "zebra", None]})
    known = new["b"].notna()
    far = []
    for a, b in model.cluster_centers_.itertuples(index=False):
        parts = pd.DataFrame({"a": (new["a"] - a).abs().clip(upper=1), "b": (new["b"] != b).where(known)})
        far.append(parts.astype(float).mean(axis=1))
    assert model.predict(new).tolist() == np.argmin(far, axis=0).tolist()


@pytest.mark.parametrize(
    ("metric", "params"),
    [
        *((name, {}) for name in ["euclidean", "manhattan", "chebyshev", "cosine"]),
        *(pytest.param(name, {}, marks=pytest.mark.slow) for name in ["l2", "cityblock", "l1"]),  # other names
        *((name, {}) for name in ["canberra", "braycurtis", "seuclidean", "mahalanobis"]),
        ("minkowski", {"p": 3}),
        ("seuclidean", {"V": [1, 2, 3, 4]}),
    ],
)
def test_metrics_are_those_of_scikit_learn(metric, params):
    assert_distances(X, metric, pairwise_distances(X, metric=metric, **params), params or None)


def test_metrics_of_other_numbers():
    assert_distances((X > 0).astype(float), "jaccard", pairwise_distances(X > 0, metric="jaccard"))
    assert_distances(X, lambda a, b: float(np.abs(a - b).max()), cdist(X, X, "chebyshev"))
    far = cdist(X, X, "cityblock")
    assert_distances(far, "precomputed", far)
    zeros = np.array([[0.0, 0], [1, 0], [0, 0], [-2, 0]])
    cosines = np.array([[0, 1, 0, 1], [1, 0, 1, 2], [0, 1, 0, 1], [1, 2, 1, 0]])
    assert_distances(zeros, "cosine", cosines)
    near = RNG.integers(0, 8, (50, 3)).astype(np.float32)
    assert_distances(near + np.float32(2**20), "euclidean", cdist(near, near), atol=1e-6)  # far from the origin


def precomputed(far):
    return lambda: KCenter(2, metric="precomputed").fit(np.array(far))


test_unusable = refusals(
    {
        "square": precomputed(X),
        ">= 0": precomputed([[0.0, -1], [-1, 0]]),
        "zeros on the diagonal": precomputed([[1.0, 2], [2, 0]]),
        "symmetric": precomputed([[0.0, 1], [2, 0]]),
        r"\['job', 'city'\].*metric=\"gower\"": lambda: KCenter(2).fit(PEOPLE[["age", "job", "city"]]),
        r"labels=model\.labels_": lambda: neonxc.neuralize(KCenter(6, metric="manhattan").fit(X)),
        "fewer than n_clusters=5": lambda: KCenter(5).fit(X[:3]),
        "metric_params does not apply": lambda: KCenter(2, metric_params={"p": 3}).fit(X),
        "too large": lambda: KCenter(2).fit(X * 1e200),
        "not finite in column 'wage'": lambda: KCenter(2, metric="gower").fit(PEOPLE.assign(wage=np.inf)),
        r"shape \[points, features\]": lambda: KCenter(2).fit(torch.zeros(3)),
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
    assert radii[0] > radii[1] >= radii[2]
    assert KCenter(6, n_init=20, random_state=0).fit(X).radius_ <= KCenter(6).fit(X).radius_


def test_the_order_of_points_does_not_matter():
    order = RNG.permutation(40)
    one, two = (KCenter(6, metric="gower").fit(data) for data in (PEOPLE, PEOPLE.iloc[order]))
    assert (one.labels_[order] == two.labels_).all()
    pd.testing.assert_frame_equal(one.cluster_centers_, PEOPLE.iloc[order[two.center_indices_]])


def test_fewer_distinct_points_than_clusters():
    with pytest.warns(ConvergenceWarning, match=r"clusters \(2\) found smaller than n_clusters \(3\)"):
        model = KCenter(3).fit(np.repeat([[0.0], [1]], 3, axis=0))
    assert len(model.cluster_centers_) == len(model.classes_) == 2
    assert model.radius_ == 0
