"""Comparison of two clusterings, beside refits of the first."""

from itertools import permutations

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose
from refusals import refused
from scipy.sparse import csr_matrix
from sklearn.cluster import DBSCAN, AgglomerativeClustering, KMeans
from sklearn.datasets import load_wine, make_blobs
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from neonxc import compare_clusterings, neuralize
from neonxc.trees import IMM

X, Y = make_blobs(300, 3, centers=5, cluster_std=0.5, random_state=0)


def test_equal_clusterings_are_kept():
    found = compare_clusterings(Y, (Y + 2) % 5, X)
    assert (found.ari, found.ami) == (pytest.approx(1), pytest.approx(1))
    assert found.to_frame()["kind"].eq("kept").all()
    assert (found.to_frame()["jaccard"] == 1).all()
    assert "no refits of a for comparison: pass a clusterer" in str(found)


def labelled(text):
    """Labels, each as often as the number behind it says."""
    return np.array([*"".join(part[0] * int(part[1:]) for part in text.split())])


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("x80 y20", "x40 z40 y20", "a x split: x z, a y kept: y"),
        ("x40 z40 y20", "x80 y20", "a x merged: x, a z merged: x"),
        ("x40 t2", "x42", "a t merged: x, a x kept: x"),  # absorbed
        ("x200", "x160 z40", "b z born: x"),
        ("s30 x120", "x10 y10 z10 x40 y40 z40", "a s died"),
    ],
)
def test_kinds(a, b, expected):
    found = compare_clusterings(labelled(a), labelled(b), np.zeros((len(labelled(a)), 1))).to_frame()
    told = ", ".join(f"{' '.join(row.Index)} {row.kind}: {' '.join(row.partners)}" for row in found.itertuples())
    assert all(one in told for one in expected.split(", ")), told


def test_noise_is_matched_with_nothing():
    a, b = np.where(Y == 0, -1, Y), np.where(Y == 1, -1, Y)
    found = compare_clusterings(a, b, X)
    assert found.table.loc[-1, 0] == 60
    assert [*found.to_frame().index] == [("a", 1), ("a", 2), ("a", 3), ("a", 4), ("b", 0)]
    assert found.to_frame()["kind"].tolist() == ["died", "kept", "kept", "kept", "born"]


def test_matching_is_the_best_of_all():
    table = np.random.default_rng(0).integers(1, 30, (5, 5))
    a, b = (np.repeat(index.ravel(), table.ravel()) for index in np.indices((5, 5)))
    jaccard = table / (table.sum(1)[:, None] + table.sum(0) - table)
    best = max(sum(jaccard[i, j] for i, j in enumerate(order)) for order in permutations(range(5)))
    found = compare_clusterings(a, b, np.zeros((len(a), 1)))
    assert found.to_frame().loc["a", "jaccard"].sum() == pytest.approx(best)


def test_refits_tell_a_change_from_another_seed():
    clear = KMeans(5, n_init=3, random_state=0).fit(X)
    found = compare_clusterings(clear, KMeans(3, n_init=3, random_state=0).fit(X), X, random_state=0)
    assert_allclose(found.refits, 1)
    assert "and that of the number of clusters" in str(found)
    assert_allclose(found.to_frame().loc["a", "refits"], 1)
    noise = np.random.default_rng(0).random((300, 3))
    one, other = (KMeans(6, n_init=1, random_state=seed).fit(noise) for seed in range(2))
    again = [compare_clusterings(one, other, noise, refits=4, random_state=0) for _ in range(2)]
    pd.testing.assert_frame_equal(again[0].refits, again[1].refits)
    assert again[0].refits.shape == (4, 2)
    assert again[0].refits["ARI"].max() < 0.95
    assert "within that between refits" in str(again[0])
    assert "<pre>" in again[0]._repr_html_()


def test_few_mere_refits_are_called_larger():
    wine = StandardScaler().fit_transform(load_wine().data)
    first, *others = (KMeans(6, n_init=1, random_state=seed).fit(wine) for seed in range(17))
    texts = [str(compare_clusterings(first, other, wine, random_state=n)) for n, other in enumerate(others)]
    assert not any("larger than that between refits" in one for one in texts)
    assert any("b is another solution of it" in one for one in texts)


def test_all_kinds_of_models():
    wine = load_wine(as_frame=True).data
    pipeline = make_pipeline(StandardScaler(), KMeans(3, n_init=2, random_state=0)).fit(wine)
    tree, net = IMM(3, reference=pipeline, random_state=0).fit(wine), neuralize(pipeline, wine)
    for model in (pipeline, tree):
        assert compare_clusterings(model, net, wine, refits=1).refits.shape == (1, 2)
    for X in (torch.tensor(wine.to_numpy()), csr_matrix(wine)):
        model = KMeans(2, random_state=0).fit(X)
        assert (compare_clusterings(model, model, X, refits=1).refits.iloc[0] > 0.9).all()
    assert compare_clusterings(net, pipeline, wine).ari == 1
    for model in (net, IMM(3).fit(wine, labels=net.predict(wine))):
        assert "pass a clusterer" in compare_clusterings(model, pipeline, wine).reason
    for model in (DBSCAN(2.2), AgglomerativeClustering(3)):
        found = compare_clusterings(make_pipeline(StandardScaler(), model).fit(wine), pipeline, wine)
        assert found.reason.endswith("has no seed")
    assert compare_clusterings(pipeline, net, wine, refits=0).reason == "no refits were asked for"


def test_refused():
    refused("b needs one label per row of X, 300, got shape", compare_clusterings, Y, Y[:5], X)
    refused("a needs one label per row of X", compare_clusterings, DBSCAN().fit(X[:9]), Y, X)
    refused("refits needs a whole number >= 0", compare_clusterings, Y, Y, X, refits=-1)
    refused("not fitted yet", compare_clusterings, KMeans(2), Y, X)
    refused("not fitted yet", compare_clusterings, DBSCAN(), Y, X)
    refused("b has no clusters: all rows are noise", compare_clusterings, Y, Y * 0 - 1, X)


@pytest.mark.parametrize("final", [KMeans(3, n_init=2, random_state=0), DBSCAN(0.3), AgglomerativeClustering(3)])
def test_a_pipeline_inside_a_pipeline(final):
    flat = make_pipeline(StandardScaler(), MinMaxScaler(), final).fit(X)
    nested = make_pipeline(StandardScaler(), make_pipeline(MinMaxScaler(), make_pipeline(final))).fit(X)
    for pair in ((nested, Y), (Y, nested)):
        expected = compare_clusterings(*(flat if model is nested else model for model in pair), X, random_state=0)
        found = compare_clusterings(*pair, X, random_state=0)
        pd.testing.assert_frame_equal(found.table, expected.table)
        assert (found.refits is None) == (expected.refits is None)
        assert found.refits is None or found.refits.equals(expected.refits)
