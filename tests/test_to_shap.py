"""Relevance as an explanation of shap."""

import sys
from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from numpy.testing import assert_allclose
from refusals import refused
from sklearn.cluster import KMeans
from sklearn.datasets import load_iris
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline

import neonxc
from neonxc import NEON, neuralize
from neonxc.models import KernelKMeans

IRIS = load_iris(as_frame=True)
X = IRIS.data
VALUES = X.to_numpy()


@cache
def kmeans():
    return KMeans(3, n_init=2, random_state=0).fit(X)


@pytest.fixture
def explanation():
    return pytest.importorskip("shap").Explanation


@pytest.mark.parametrize("kind", ["frame", "float32", "sparse"])
def test_points(kind, explanation):
    given = {"frame": X, "float32": torch.tensor(VALUES).float(), "sparse": sp.csr_matrix(VALUES)}[kind]
    net = neuralize(kmeans(), X)
    found = neonxc.to_shap(NEON(net).attribute(given), net, given)
    assert isinstance(found, explanation)
    tolerance = 1e-4 if kind == "float32" else 1e-10
    logits = net(torch.tensor(VALUES)).amax(1)
    assert_allclose(found.values.sum(1) + found.base_values, logits, atol=tolerance)
    assert_allclose(found.base_values, 0, atol=tolerance)
    assert_allclose(found.data, VALUES, rtol=1e-6)
    assert found.feature_names == list(X.columns)


@pytest.mark.parametrize("target", [1, np.arange(150) % 3])
def test_targets_and_what_no_column_has(target, explanation):
    net = neuralize(KernelKMeans(3, n_support=3, random_state=0).fit(VALUES), VALUES)
    neon = NEON(net)
    found = neonxc.to_shap(neon.attribute(VALUES, target), net, VALUES, target)
    assert_allclose(found.base_values, neon.residual(VALUES, target), atol=1e-9)
    assert np.abs(found.base_values).max() > 1e-3
    assert found.feature_names == ["x0", "x1", "x2", "x3"]


def test_texts(explanation):
    texts = ["salt the soup", "stir the soup", "stars shine", "the stars and the sun shine"]
    pipeline = make_pipeline(TfidfVectorizer(), KMeans(2, n_init=2, random_state=0)).fit(texts)
    net = neuralize(pipeline, texts)
    found = neonxc.to_shap(NEON(net).attribute(texts), net, texts)
    assert found.feature_names == list(pipeline[0].get_feature_names_out())
    np.testing.assert_array_equal(found.data, net.inputs.encoding.encode(texts).toarray())
    assert_allclose(found.base_values, 0, atol=1e-12)


@pytest.mark.filterwarnings("ignore")
def test_plots_take_it(explanation):
    import shap

    net = neuralize(kmeans(), X)
    found = neonxc.to_shap(NEON(net).attribute(X), net, X)
    for plot, some in ((shap.plots.bar, found), (shap.plots.waterfall, found[0]), (shap.plots.beeswarm, found)):
        plot(some, show=False)


def test_errors(explanation, monkeypatch):
    net = neuralize(kmeans(), X)
    relevance = np.zeros((150, 4))
    refused(r"relevance needs shape \(150, 4\), got \(10, 4\)", neonxc.to_shap, relevance[:10], net, X)
    refused("target needs labels among", neonxc.to_shap, relevance, net, X, 5)
    deep = neuralize(kmeans(), VALUES, torch.nn.Identity())
    refused("to_shap needs a network without feature network", neonxc.to_shap, relevance, deep, VALUES)
    monkeypatch.setitem(sys.modules, "shap", None)
    missing = r'to_shap needs shap: in a checkout, pip install -e "\.\[shap\]"'
    refused(missing, neonxc.to_shap, relevance, net, X, error=ImportError)
