"""Effect sizes beside relevance, and permutation as a second opinion."""

from functools import cache

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from refusals import refused
from scipy.sparse import csr_matrix
from scipy.stats import chi2_contingency
from sklearn.cluster import KMeans
from sklearn.datasets import load_wine
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import neonxc
from neonxc import NEON, explain, neuralize

WINE = load_wine(as_frame=True).data


@cache
def wine():
    return neuralize(make_pipeline(StandardScaler(), KMeans(3, n_init=3, random_state=0)).fit(WINE), WINE)


def d_of(own, others):
    n = len(own)
    m = len(others)
    pooled = (n * np.var(own, axis=0) + m * np.var(others, axis=0)) / (n + m - 2)
    return (np.mean(own, axis=0) - np.mean(others, axis=0)) / pooled**0.5


def of_csr(X):
    return csr_matrix(X.to_numpy())


@pytest.mark.parametrize(
    ("kind", "shift"),
    [(lambda X: X, 0), (of_csr, 0), (np.asarray, 1e9), (of_csr, 1e8)],
)
def test_cohens_d(kind, shift, monkeypatch):
    if shift:  # in parts
        monkeypatch.setattr("neonxc.common.memory.CPU", 70 * 13 * 8 * 3)
    Z = pd.DataFrame(StandardScaler().fit_transform(WINE), columns=WINE.columns)
    X = kind(Z + shift)
    net = neuralize(Z.to_numpy()[[0, 80, 170]] + shift)
    own = net.predict(X)
    effects = NEON(net).summary(X).values.effects
    expected = [d_of(Z[own == k], Z[own != k]) for k in range(3)]
    assert_allclose(effects, expected, rtol=1e-5 if shift else 1e-9, atol=1e-6 if shift else 1e-12)


@pytest.mark.parametrize("weighted", [False, True])
def test_cohens_d_of_zeros_and_large_numbers(weighted, monkeypatch):
    """Both in columns of a sparse matrix whose other values differ by 1, in chunks and with weights."""
    monkeypatch.setattr("neonxc.common.memory.CPU", 50 * 3 * 8 * 3)
    draw = np.random.default_rng(0)
    label = np.repeat([0.0, 1.0], 100)
    noise = draw.normal(size=(200, 3))
    weight = draw.integers(1, 4, 200) if weighted else np.ones(200, int)
    X = np.c_[label * 3, noise] + [0, 1e8, 1e8, 0]
    X[::10, 2] = 0
    X[::3, 3] = 0
    effects = NEON(neuralize(np.array([[0.0, 1e8, 1e8, 0], [3.0, 1e8, 1e8, 0]]))).summary(
        csr_matrix(X), sample_weight=weight if weighted else None
    )
    every = X.repeat(weight, axis=0) - [0, 1e8, 0, 0]
    own = label.repeat(weight)
    assert_allclose(effects.values.effects[1, 1:], d_of(every[own == 1], every[own == 0])[1:], rtol=1e-6)


@pytest.mark.parametrize("value", [7.1, 54.07756347836874, -1e9 / 3, 1.1e-7])
def test_a_constant_column_has_no_effect(value):
    for size in range(20, 400, 35):
        X = np.c_[np.arange(size), np.full(size, value)]
        net = neuralize(np.array([[size / 6, value], [size * 2 / 3, value]]))
        assert_array_equal(NEON(net).summary(X).values.effects[:, 1], 0)


def test_constant_and_missing_values():
    apart = np.repeat([[1.0], [4.0]], 3, axis=0)  # each cluster is one point, several times
    effects = NEON(neuralize([[1.0], [4.0]])).summary(apart).values.effects
    assert_array_equal(effects, [[-np.inf], [np.inf]])
    X = pd.DataFrame({"a": np.repeat([0, 1], 30) + np.linspace(0, 0.1, 60), "b": np.arange(60.0)})
    X.loc[::2, "b"] = np.nan
    X["town"] = np.repeat(["Rome", "Oslo", "Oslo", None], 15)
    net = neuralize(labels=np.repeat([0, 1], 30), X=X)
    own = net.predict(X)
    values = NEON(net).summary(X).values
    assert values.effects[0, 1] == pytest.approx(d_of(*(X["b"][own == k].dropna() for k in (0, 1))))
    table = pd.crosstab(own == 0, X["town"].fillna("missing"))
    chi2 = chi2_contingency(table, correction=False).statistic
    assert values.effects[0, 2] == pytest.approx((chi2 / 60) ** 0.5)
    assert values.effect(0, 2).startswith("V = ")


def test_printed_and_tabulated():
    net = wine()
    summary = NEON(net).summary(WINE)
    frame = summary.to_frame()
    assert f"d = {frame['effect'].iloc[0]:.2g}" in summary.reasons(0, 1)[0]
    assert frame.loc[0, "points"].eq(summary.sizes[0]).all()
    own = net.predict(WINE)
    found = neonxc.contrast(net, WINE, 0, 2)
    wanted = d_of(WINE["proline"][own == 0], WINE["proline"][own == 2])
    assert found.effects["proline"] == pytest.approx(wanted)
    assert f"effect {wanted:.2g}" in str(found)
    report = explain(net, WINE, fast=True)
    first = report.description.clusters[0].statements[0]
    assert first.effect == f"d = {summary.values.effects[0, first.column]:.2g}"
    assert first.effect.replace("-", "−") in report.html()


def test_words():
    texts = ["star moon", "moon star", "star sun", "salt soup", "soup bread", "salt bread moon"]
    net = neuralize(make_pipeline(TfidfVectorizer(), KMeans(2, n_init=3, random_state=0)).fit(texts), texts)
    summary = NEON(net).summary(texts)
    own = net.predict(texts)
    place = summary.feature_names.index("star")
    k = own[0]
    wanted = abs(np.corrcoef(["star" in text for text in texts], own == k)[0, 1])  # the same for two categories
    assert summary.values.effects[k, place] == pytest.approx(wanted)
    assert summary.values.effect(k, place) == f"V = {wanted:.2g}"


@pytest.mark.parametrize("kind", [lambda X: X, np.asarray, lambda X: torch.tensor(X.to_numpy())])
def test_permutation_is_the_share_of_points_that_leave(kind):
    X = WINE.to_numpy()
    given = kind(WINE)
    net = wine()
    own = np.asarray(net.predict(given))
    found = NEON(net).summary(given, method="permute")
    draw = np.random.default_rng(0)
    draw.permutation(178)  # the points that are taken: all of them
    orders = [draw.permutation(178) for _ in range(5)]
    for column in (0, 12):
        left = np.zeros(3)
        for order in orders:
            moved = X.copy()
            moved[:, column] = moved[order, column]
            left += [(net.predict(moved) != own)[own == k].mean() / 5 for k in range(3)]
        assert_allclose(found.relevance[:, column], left)
    assert found.method == "permute"
    assert "the share of points that leave" in str(found)


def test_permutation_agrees_on_a_planted_column():
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 4)), columns=list("abcd"))
    X.loc[30:, "c"] += 30
    net = neuralize(KMeans(2, n_init=2, random_state=0).fit(X), X)
    found = NEON(net).summary(X, method="permute")
    assert found.relevance[:, [0, 1, 3]].max() == 0


def test_refused():
    refused('method needs "lrp" or "permute"', NEON(wine()).summary, WINE, method="shap")
    features = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()).eval()
    of_images = NEON(neuralize(torch.eye(3), features=features))
    refused("needs a table", of_images.summary, torch.randn(8, 3, 4, 4), method="permute")
