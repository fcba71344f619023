"""One cluster against another, and two explanations side by side."""

from html import escape

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose
from refusals import refused
from scipy.sparse import csr_matrix
from scipy.stats import spearmanr
from sklearn.cluster import KMeans
from sklearn.datasets import load_wine, make_blobs
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from neonxc import NEON, contrast, neuralize
from neonxc.evaluation import agreement
from neonxc.trees import CART, IMM, ExShallow


@pytest.fixture(scope="module")
def wine():
    X = load_wine(as_frame=True).data
    model = make_pipeline(StandardScaler(), KMeans(3, n_init=10, random_state=0)).fit(X)
    return X, model, neuralize(model, X)


def test_contrast_is_the_mean_of_attributions_and_the_smallest_tree_that_does(wine):
    X, _, net = wine
    labels = net.predict(X)
    found = contrast(net, X, 2, 0)
    for own, other in ((2, 0), (0, 2)):
        relevance = NEON(net).attribute(X, target=own, competitor=other)[labels == own]
        assert_allclose(found.relevance[str(own)], relevance.mean(), rtol=1e-6)
    told = found.tree.predict(X)
    shares = [(told[labels == label] == label).mean() for label in (0, 2)]
    assert found.accuracy == pytest.approx(np.mean(shares))
    assert found.accuracy >= 0.95
    assert found.tree.n_leaves == 2  # one cut is enough for these two
    assert "2 against 0" in str(found)


def test_a_contrast_in_a_notebook(wine):
    X = wine[0].set_axis(["<b>", *wine[0].columns[1:]], axis=1)
    found = contrast(neuralize(X.iloc[[0, 80, 170]].to_numpy(), X), X, 0, 1)
    html = found._repr_html_()
    assert "0 against 1" in html
    assert "<b>" not in html
    assert found.rules.to_html() in html
    assert all(f"<th>{escape(name)}</th>" in html for name in found.top().index)
    assert repr(found) == str(found)


def test_clusters_of_different_sizes_count_the_same():
    X = np.random.default_rng(0).normal(size=(2020, 3))
    X[2000:, 0] += 6
    found = contrast(neuralize(np.array([[0.0, 0, 0], [6, 0, 0]]), X), X, 0, 1)
    assert found.accuracy > 0.95
    assert {rule.label for rule in found.rules} == {0, 1}


def test_contrast_on_the_features_of_a_network():
    features = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.ReLU()).eval()
    x = torch.randn(60, 6)
    net = neuralize(features(x[:3]).detach(), x, features)
    found = contrast(net, x, 0, 1)
    assert list(found.relevance.index) == ["x0", "x1", "x2", "x3"]
    assert found.tree.n_features == 4


def test_refusals(wine):
    X, model, net = wine
    refused("same cluster", contrast, net, X, 0, 0)
    refused(r"b needs labels among \[0, 1, 2\], got 7", contrast, net, X, 0, 7)
    refused("a needs labels among", contrast, net, X, "a", 1)
    refused("no points of cluster", contrast, net, X[net.predict(X) == 0], 0, 1)
    refused("columns", agreement, net, IMM(3).fit(X.iloc[:, :5]), X)
    refused("accuracy", contrast, net, X, 0, 1, accuracy=2)
    refused("needs a network", contrast, model, X, 0, 1, error=TypeError)
    refused("label_agreement", agreement, model.predict(X), model.predict(X), X, error=TypeError)


def test_agreement_by_hand(wine):
    X, model, net = wine
    explainer = ExShallow(3, reference=model).fit(X)
    found = agreement(net, explainer, X)
    labels = net.predict(X)
    leaves = explainer.predict(X)
    for k in range(3):
        shares = []
        for network, own in ((net, labels), (neuralize(explainer, X), leaves)):
            mean = NEON(network).attribute(X).to_numpy()[own == k].mean(0).clip(min=0)
            shares.append(mean / mean.sum())
        assert_allclose([found.network.iloc[k], found.tree.iloc[k]], shares, rtol=1e-6)
        assert found.correlation[k] == pytest.approx(spearmanr(*shares).statistic)
        assert found.same[k] == pytest.approx((leaves[labels == k] == k).mean())
    assert found.rows.tolist() == np.flatnonzero(labels != leaves).tolist()
    assert found.to_frame().loc[0, "tree"] in X.columns


def test_a_tree_agrees_with_itself_and_not_where_a_cluster_has_no_leaf():
    X, y = make_blobs(200, 4, centers=3, random_state=0)
    tree = CART(3).fit(X, labels=y)
    found = agreement(neuralize(tree, X), tree, X)
    assert_allclose(found.correlation, 1)
    assert not len(found.rows)
    y[y == 2] = 1
    y[:3] = 2  # scattered, so that no leaf is theirs
    tree = CART(3, max_leaves=2).fit(X, labels=y)
    found = agreement(neuralize(GaussianMixture(3, random_state=0).fit(X), X), tree, X)
    empty = [*{0, 1, 2} - {rule.label for rule in tree.tree_.rules()}]
    assert np.isnan(found.correlation[empty]).all()
    assert (found.tree.loc[empty] == 0).all(axis=None)


@pytest.mark.filterwarnings("ignore:the surrogate")
@pytest.mark.parametrize("kind", [np.asarray, csr_matrix, torch.tensor, pd.DataFrame, "categories"])
def test_the_tree_of_a_wide_contrast_tests_the_most_relevant_columns(kind):
    X = np.random.default_rng(0).normal(size=(60, 500))
    labels = np.repeat([0, 1], 30)
    X[:30, 333] += 40
    centers = np.array([X[:30].mean(0), X[30:].mean(0)])
    if kind == "categories":
        data = pd.DataFrame(X).add_prefix("column ").assign(**{"column 7": np.array(["a", "b"])[labels]})
        net = neuralize(labels=labels, X=data)
    else:
        data = kind(X)
        net = neuralize(centers, data)
    found = contrast(net, data, 0, 1)
    assert found.tree.n_features == 500
    assert "of the 200 most relevant of 500 columns" in str(found)
    assert next(iter(found.rules)).text().startswith(("x333", "333", "column 333", "column 7"))
    np.testing.assert_array_equal(np.asarray(found.tree.predict(data)), np.asarray(net.predict(data)))
    assert neuralize(found.tree, data).fidelity_ is None
