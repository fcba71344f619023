"""Numbers of clusters side by side: measures by their definitions, and suggestions where the answer is known."""

import numpy as np
import pandas as pd
import pytest
import torch
from refusals import refused
from sklearn.cluster import KMeans
from sklearn.datasets import load_wine, make_blobs
from sklearn.metrics import adjusted_rand_score, silhouette_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from turns import slow

import neonxc
from neonxc.data.preparation import prepare
from neonxc.evaluation import choose_k, kmeans_cost, null_reference
from neonxc.evaluation.choice import suggested
from neonxc.trees import ExShallow


@pytest.fixture(scope="module")
def blobs():
    return make_blobs(150, centers=4, cluster_std=0.7, random_state=2)[0]


def test_measures_are_what_they_say(blobs):
    choice = choose_k(blobs, [2, 4], random_state=0)
    assert (choice.k, choice.rows, choice.to_frame().index.tolist()) == (4, 150, [2, 4])
    halves = [np.sort(np.random.default_rng(i).permutation(150)[:75]) for i in range(5)]
    for k, found in choice.to_frame().iterrows():
        model = KMeans(k, n_init=10, random_state=0).fit(blobs)
        assert found["inertia"] == pytest.approx(model.inertia_)
        assert found["silhouette"] == pytest.approx(silhouette_score(blobs, model.labels_))
        refits = [KMeans(k, n_init=10, random_state=i).fit_predict(blobs[half]) for i, half in enumerate(halves)]
        pairs = zip(halves, refits, strict=True)
        stability = np.mean([adjusted_rand_score(model.labels_[half], refit) for half, refit in pairs])
        assert found["stability"] == pytest.approx(stability)
        assert (stability < 0.9) == (k == 2)
        tree = ExShallow(k).fit(blobs, centers=model.cluster_centers_)
        assert found["cost_ratio"] == pytest.approx(kmeans_cost(blobs, tree.labels_) / model.inertia_)


def test_wine_has_three_clusters():
    choice = choose_k(load_wine(as_frame=True).data, range(2, 5), preprocessing=StandardScaler())
    told = "k = 3 has the greatest silhouette (0.28) of those that are found again on half of the rows"
    assert (choice.k, choice.reason) == (3, told)
    assert told in str(choice)
    assert len(choice.plot().axes) == 4


@pytest.mark.parametrize("weight", [None, *slow(np.arange(178) % 3 + 1.0)])
def test_what_is_said_of_the_suggestion_is_what_a_report_says(weight):
    wine = load_wine(as_frame=True).data
    choice = choose_k(wine, range(3, 5), preprocessing=StandardScaler(), sample_weight=weight)
    model = make_pipeline(StandardScaler(), KMeans(choice.k, n_init=10, random_state=0))
    expected = null_reference(model, wine, sample_weight=weight).lines()
    if weight is None:  # the density between clusters has no weights
        found = neonxc.describe(model.fit(wine), wine, fast=True).trust
        expected = [*found.reality, *found.names]
    assert choice.trust[: len(expected)] == expected
    assert "names pass" in choice.trust[-1]
    assert str(choice).endswith("\n".join([choice.reason, *choice.trust]))


def test_the_suggestion():
    frame = pd.DataFrame({"silhouette": [0.5, 0.4, 0.3], "stability": [0.79, 0.8, 0.9]}, index=[2, 3, 4])
    assert suggested(frame)[0] == 3  # 2 is not stable
    frame["stability"] -= 0.2
    told = "k = 4 is the most stable (adjusted Rand index 0.70); none is found again reliably"
    assert suggested(frame) == (4, told)


def test_what_goes_in_does_not_matter(blobs):
    expected = choose_k(blobs, [2, 3]).to_frame()
    for X in (pd.DataFrame(blobs, columns=["a", "b"]), torch.tensor(blobs)):
        pd.testing.assert_frame_equal(choose_k(X, [3, 2, 3]).to_frame(), expected)


def test_rows_are_drawn_from_many(blobs):
    choice = choose_k(blobs, [4], max_rows=60)
    assert choice.rows == 60
    drawn = np.sort(np.random.RandomState(0).choice(150, 60, replace=False))
    assert choice.to_frame()["inertia"][4] == pytest.approx(
        KMeans(4, n_init=10, random_state=0).fit(blobs[drawn]).inertia_
    )


def test_a_table_with_words_and_gaps(blobs):
    frame = pd.DataFrame({"a": blobs[:, 0], "b": blobs[:, 1], "word": np.where(blobs[:, 0] > 0, "x", "y")})
    frame.loc[::7, "a"] = np.nan
    frame.loc[::9, "word"] = None
    prepared = prepare(frame)
    choice = choose_k(prepared.frame, [2, 3], preprocessing=prepared.pipeline)
    assert (choice.to_frame()["cost_ratio"] >= 1 - 1e-9).all()
    points = prepared.pipeline.fit_transform(prepared.frame)
    assert choice.to_frame()["inertia"][2] == pytest.approx(
        KMeans(2, n_init=10, random_state=0).fit(points).inertia_
    )


@pytest.mark.parametrize(
    ("X", "clusters", "message"),
    [
        (np.eye(4), [1, 2], "clusters needs numbers of at least 2"),
        (np.eye(4), [], "clusters needs numbers of at least 2"),
        (np.eye(9), 5, "clusters needs several numbers of clusters, such as range"),
        (np.eye(9), "2-8", "clusters needs several numbers of clusters, such as range"),
        (np.eye(4), [2, 4], "up to 4 clusters needs more than 4 different rows, got 4"),
        (np.eye(5), [2, 3], "up to 3 clusters needs at least 6 rows, because stability is measured on"),
        (np.array([[1.0, np.nan]] * 5), [2], "not finite"),
        (np.array([["a"], ["b"]]), [2], "numbers"),
    ],
)
def test_errors(X, clusters, message):
    refused(message, choose_k, X, clusters, error=ValueError if isinstance(clusters, list) else TypeError)
