"""Comparison of two clusterings, beside refits of the first."""

from itertools import permutations

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_matrix
from sklearn.cluster import DBSCAN, AgglomerativeClustering, KMeans
from sklearn.datasets import load_wine, make_blobs
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import neonxc
from neonxc import compare_clusterings
from neonxc.evaluation.transitions import matched
from neonxc.trees import IMM

X, Y = make_blobs(300, 3, centers=5, cluster_std=0.5, random_state=0)


def kinds(a, b):
    found = compare_clusterings(np.array(a), np.array(b), np.zeros((len(a), 1)))
    return {key: (row["kind"], row["partners"]) for key, row in found.clusters.iterrows()}


def test_equal_clusterings_are_kept():
    found = compare_clusterings(Y, (Y + 2) % 5, X)
    assert (found.ari, found.ami) == (pytest.approx(1), pytest.approx(1))
    assert found.clusters["kind"].eq("kept").all()
    assert (found.clusters["jaccard"] == 1).all()
    assert "no refits of a for comparison: pass a clusterer" in str(found)


def test_kinds():
    big = ["x"] * 40
    assert kinds(big * 2 + ["y"] * 20, big + ["z"] * 40 + ["y"] * 20) == {
        ("a", "x"): ("split", ["x", "z"]),
        ("a", "y"): ("kept", ["y"]),
    }
    assert kinds(big + ["z"] * 30 + ["y"] * 20, big + ["x"] * 30 + ["y"] * 20) == {
        ("a", "x"): ("merged", ["x"]),
        ("a", "y"): ("kept", ["y"]),
        ("a", "z"): ("merged", ["x"]),
    }
    assert kinds(big + ["t"] * 2, big + ["x"] * 2)["a", "t"] == ("merged", ["x"])  # a small cluster is absorbed
    assert kinds(big + ["t"] * 2, big + ["x"] * 2)["a", "x"] == ("kept", ["x"])
    assert kinds(big * 5, big * 4 + ["n"] * 40)["b", "n"] == ("born", ["x"])
    scattered = kinds(["s"] * 30 + ["x"] * 90, ["x", "y", "z"] * 10 + ["x"] * 30 + ["y"] * 30 + ["z"] * 30)
    assert scattered["a", "s"][0] == "died"


def test_noise_is_matched_with_nothing():
    a, b = np.where(Y == 0, -1, Y), np.where(Y == 1, -1, Y)
    found = compare_clusterings(a, b, X)
    assert found.table.loc[-1, 0] == 60
    assert [*found.clusters.index] == [("a", 1), ("a", 2), ("a", 3), ("a", 4), ("b", 0)]
    assert found.clusters["kind"].tolist() == ["died", "kept", "kept", "kept", "born"]


def test_matching_is_the_best_of_all():
    table = pd.DataFrame(np.random.default_rng(0).integers(0, 30, (5, 5)))
    sizes, others = table.sum(axis=1).to_numpy(), table.sum().to_numpy()
    jaccard = table.to_numpy() / (sizes[:, None] + others - table.to_numpy())
    best = max(sum(jaccard[i, j] for i, j in enumerate(order)) for order in permutations(range(5)))
    assert matched(table)[1].sum() == pytest.approx(best)


def test_refits_tell_a_change_from_another_seed():
    clear = KMeans(5, n_init=3, random_state=0).fit(X)
    found = compare_clusterings(clear, KMeans(3, n_init=3, random_state=0).fit(X), X, random_state=0)
    np.testing.assert_allclose(found.refits, 1)
    assert "larger than that between refits" in str(found)
    np.testing.assert_allclose(found.clusters.loc["a", "refits"], 1)
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
    models = [KMeans(6, n_init=1, random_state=seed).fit(wine) for seed in range(25)]
    texts = [
        str(compare_clusterings(models[0], other, wine, random_state=seed))
        for seed, other in enumerate(models[1:])
    ]
    assert sum("larger than that between refits" in one for one in texts) <= 2
    assert any("as it is for one in 6 refits by chance" in one for one in texts)


def test_all_kinds_of_models():
    wine = load_wine(as_frame=True).data
    pipeline = make_pipeline(StandardScaler(), KMeans(3, n_init=2, random_state=0)).fit(wine)
    tree = IMM(3, reference=pipeline, random_state=0).fit(wine)
    net = neonxc.neuralize(pipeline, wine)
    assert compare_clusterings(pipeline, tree, wine, refits=1).refits.shape == (1, 2)
    assert compare_clusterings(tree, net, wine, refits=1).refits is not None
    given = IMM(3).fit(wine, labels=net.predict(wine))
    assert "pass a clusterer" in compare_clusterings(given, net, wine).reason
    tensor = torch.tensor(wine.to_numpy())
    assert (
        compare_clusterings(KMeans(2, random_state=0).fit(tensor), [0] * 178, tensor, refits=1).refits is not None
    )
    assert compare_clusterings(net, pipeline, wine).ari == 1
    assert "pass a clusterer" in compare_clusterings(net, pipeline, wine).reason
    sparse = csr_matrix(wine)
    assert compare_clusterings(*[KMeans(2, random_state=0).fit(sparse)] * 2, sparse, refits=1).ari == 1
    for model in (DBSCAN(2.2), AgglomerativeClustering(3)):
        found = compare_clusterings(make_pipeline(StandardScaler(), model).fit(wine), pipeline, wine)
        assert found.reason.endswith("has no seed")
    assert compare_clusterings(pipeline, net, wine, refits=0).reason == "no refits were asked for"


def test_refused():
    with pytest.raises(ValueError, match="b needs one label per row of X, 300, got shape"):
        compare_clusterings(Y, Y[:5], X)
    with pytest.raises(ValueError, match="a needs one label per row of X"):
        compare_clusterings(DBSCAN().fit(X[:9]), Y, X)
    with pytest.raises(ValueError, match="refits needs a whole number >= 0"):
        compare_clusterings(Y, Y, X, refits=-1)
    for model in (KMeans(2), DBSCAN()):
        with pytest.raises(ValueError, match="not fitted yet"):
            compare_clusterings(model, Y, X)
    with pytest.raises(ValueError, match="b has no clusters: all rows are noise"):
        compare_clusterings(Y, np.full(300, -1), X)
