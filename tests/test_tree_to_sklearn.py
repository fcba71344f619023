"""Threshold trees as scikit-learn's: the same decisions, on the training points and on all float32 numbers."""

import pickle
import warnings
from functools import cache
from math import inf

import numpy as np
import pandas as pd
import pytest
import torch
from hand_trees import grown, random_splits
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.tree import DecisionTreeClassifier
from sklearn.tree import export_text as sklearn_text
from sklearn.tree import plot_tree as sklearn_plot
from tree_witnesses import CLASSES, data, inner_nodes, passed, seeds
from turns import in_turns

from neonxc.trees import CART, IMM, KernelIMM


@cache
def wine():
    return load_wine(return_X_y=True)


def around(tree, rng, n=200):
    """Points of float32 numbers, many of which are next to a threshold, or the nearest to it."""
    points = rng.normal(size=(n, tree.n_features)).astype(np.float32)
    for node in inner_nodes(tree):
        nearest = np.float32([end for pair in tree.tests[node] for end in pair if np.isfinite(end)])
        values = [nearest, *(np.nextafter(nearest, np.float32(side)) for side in (-inf, inf))]
        rows = rng.permutation(n)[: n // 4]
        points[rows, int(tree.feature[node])] = rng.choice(np.concatenate(values), len(rows))
    return points


def assert_same(tree, model, X):
    np.testing.assert_array_equal(model.predict(X), tree.predict(X))
    assert model.predict(X).dtype == tree.predict(X).dtype
    if tree.intervals is None:
        np.testing.assert_array_equal(model.apply(X), tree.apply(X))


@pytest.mark.parametrize(("explainer", "dtype"), in_turns(CLASSES, [np.float32, np.float64]))
def test_every_explainer(explainer, dtype):
    case = data(2, 90, 3, 4, kind="fine", dtype=dtype)
    tree = explainer().fit(case.X, labels=case.labels).tree_
    others = around(tree, np.random.default_rng(0)) if dtype == np.float32 else case.X[:, [1, 2, 0]]
    assert_same(tree, tree.to_sklearn(), np.concatenate([case.X, others]))
    assert tree.to_sklearn().tree_.node_count < 20 * tree.n_nodes


@given(
    seed=seeds, n=st.integers(2, 60), span=st.integers(1, 60), k=st.integers(2, 4), share=st.sampled_from([1, 4])
)
@settings(max_examples=3 * settings().max_examples)
def test_numbers_about_as_close_as_float32(seed, n, span, k, share):
    """They agree, or there is a test that no float32 number makes: one of the two, as a loop over tests says."""
    rng = np.random.default_rng(seed)
    start = float(np.float32(rng.normal() * 10.0 ** rng.integers(-6, 6)))
    X = start + rng.integers(0, span + 1, (n, 1)) * float(np.spacing(np.float32(abs(start)))) / share
    X = X.astype(np.float32 if share == 1 else np.float64)
    tree = CART(max_leaves=12).fit(X, labels=rng.integers(0, k, n)).tree_
    possible = True
    for node in inner_nodes(tree):
        goes_left = X[:, 0] <= float(tree.threshold[node])
        low = X[goes_left, 0].astype(np.float32)
        high = X[~goes_left, 0].astype(np.float32)
        possible &= low.max() < high.min()
    if possible:
        assert_same(tree, tree.to_sklearn(), X)
        if share == 1:
            assert_same(tree, tree.to_sklearn(), around(tree, rng))
    else:
        refused("are equal in float32", tree.to_sklearn)


@pytest.mark.parametrize("side", [-1, 1])
def test_a_threshold_moves_where_float32_rounds_across_it(side):
    """Of two training values, the one next to the threshold rounds to its other side."""
    one = np.float64(np.float32(0.1))
    step = side * np.spacing(np.float32(0.1))
    X = np.array([[one + step / 1024, 0], [one - 100 * step, 0]])  # the first rounds to one
    tree = CART(2).fit(X, labels=[0, 1]).tree_
    moved = tree.threshold.clone()
    bounds = tree.bounds.clone()
    moved[0] = bounds[0, 1] = one + step / 2048
    tree = type(tree)(**(tree.__getstate__() | {"threshold": moved, "bounds": bounds}))
    kept = type(tree)(**(tree.__getstate__() | {"bounds": None})).to_sklearn()
    assert kept.tree_.threshold[0] == moved[0]
    assert (kept.predict(X) != tree.predict(X)).any()  # without the table of bounds nothing is known of the points
    assert_same(tree, tree.to_sklearn(), X)


@pytest.mark.parametrize("seed", range(5))
def test_intervals_become_chains(seed):
    splits, label, X = random_splits(seed, 12)
    tree, _ = grown(splits, label, X)
    assert tree.intervals is not None
    model = tree.to_sklearn()
    np.testing.assert_array_equal(model.predict(X), tree.predict(X))
    # a leaf of the chains lies in one leaf of the tree
    pairs = set(zip(model.apply(X).tolist(), tree.apply(X).tolist(), strict=True))
    assert len(pairs) == len({leaf for leaf, _ in pairs})
    np.testing.assert_allclose(model.tree_.weighted_n_node_samples[0], len(X))


def test_chains_have_no_test_that_is_answered_already():
    splits = [(0, 0, ((0.0, 1.0),)), (1, 0, ((0.5, 2.0),))]  # numbers 0 < x <= 1, then 0.5 < x <= 2
    X = np.linspace(-1, 3, 33)[:, None]
    tree, _ = grown(splits, [0, 0, 2, 0, 1], X)
    model = tree.to_sklearn()
    assert model.tree_.threshold.tolist() == [0, -2, 1, 0.5, -2, -2, -2]
    np.testing.assert_array_equal(model.predict(X), np.select([X <= 0, X <= 0.5, X <= 1], [2, 1, 0], 2)[:, 0])
    np.testing.assert_array_equal(model.predict(X), tree.predict(X))


def test_nodes_are_those_of_the_tree():
    X, labels = wine()
    weight = np.arange(len(X)) % 4 * 0.5
    tree = CART(max_leaves=9).fit(X, labels=labels, sample_weight=weight).tree_
    model = tree.to_sklearn()
    found = tree.predict(X)
    own = model.tree_
    np.testing.assert_array_equal([tree.left, tree.right], [own.children_left, own.children_right])
    np.testing.assert_array_equal(torch.where(tree.feature < 0, -2, tree.feature), own.feature)
    np.testing.assert_allclose(own.weighted_n_node_samples, tree.samples)
    paths = passed(tree, X)
    np.testing.assert_array_equal(model.decision_path(X).toarray(), paths)
    for node, inside in enumerate(paths.T):
        mean = np.bincount(found[inside], weight[inside], minlength=3) / weight[inside].sum()
        np.testing.assert_allclose(own.value[node, 0], mean)
        np.testing.assert_allclose(own.impurity[node], 1 - np.square(mean).sum(), atol=1e-12)
    assert own.n_node_samples.min() >= 1
    np.testing.assert_allclose(model.feature_importances_.sum(), 1)


def test_tools_of_sklearn():
    X, labels = load_wine(return_X_y=True, as_frame=True)
    tree = IMM().fit(X, labels=np.array(["a", "b", "c"])[labels]).tree_
    model = tree.to_sklearn()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same(tree, model, X)
        assert_same(tree, pickle.loads(pickle.dumps(model)), X)
    assert model.feature_names_in_.tolist() == X.columns.tolist()
    assert model.classes_.tolist() == ["a", "b", "c"]
    refused("feature names", model.predict, X[X.columns[::-1]])
    probabilities = model.predict_proba(X)
    assert set(probabilities.ravel().tolist()) == {0.0, 1.0}
    np.testing.assert_array_equal(model.classes_[probabilities.argmax(1)], model.predict(X))
    text = sklearn_text(model, decimals=6)
    assert text.count("class:") == tree.n_leaves
    assert all(f"feature_{feature} <= " in text for feature in tree.feature.tolist() if feature >= 0)
    assert len(sklearn_plot(model)) >= tree.n_nodes
    fresh = clone(model)
    assert not hasattr(fresh, "tree_")
    assert fresh.fit(X, labels).score(X, labels) == 1
    X = X.to_numpy()
    tree = IMM().fit(X, labels=labels).tree_
    assert not hasattr(tree.to_sklearn(), "feature_names_in_")
    assert_same(tree, tree.to_sklearn(), csr_matrix(X.astype(np.float32)))
    close = np.array([[2.0**24, 5.0], [2.0**24 + 1, 5.0]])
    message = r"the values 16777216\.0 and 16777217\.0 on the two sides.*are equal in float32.*to_python"
    for table, name in ((close, "0"), (pd.DataFrame(close, columns=["id", "other"]), "'id'")):
        refused(f"column {name} has {message}", CART(2).fit(table, labels=[0, 1]).tree_.to_sklearn)


def test_one_leaf():
    X = np.arange(6.0)[:, None]
    model = IMM(1).fit(X, labels=["all"] * 6).tree_.to_sklearn()
    assert model.predict(X).tolist() == ["all"] * 6
    assert model.predict_proba(X).tolist() == [[1.0]] * 6
    assert model.feature_importances_.tolist() == [0.0]
    assert sklearn_text(model) == sklearn_text(DecisionTreeClassifier().fit(X, ["all"] * 6))
    assert sklearn_plot(model)


def test_leaves_without_points():
    X = np.array([[0.0, 0], [1, 0], [4, 0], [5, 0]])
    tree = IMM(3).fit(X, centers=[[0.5, 0], [4.5, 0], [4.5, 9]]).tree_
    assert 0 in tree.samples[tree.leaves]
    model = tree.to_sklearn()
    far = np.array([[4.5, 9.0], [0, 9], [4, 0]])
    assert_same(tree, model, far)
    assert (model.tree_.weighted_n_node_samples > 0).all()
    np.testing.assert_allclose(model.tree_.value[0, 0], [0.5, 0.5, 0], atol=1e-12)
    assert np.isfinite(model.feature_importances_).all()


@pytest.mark.parametrize("explainer", [CART, KernelIMM])
@pytest.mark.filterwarnings("ignore")  # of other packages
def test_shap(explainer):
    shap = pytest.importorskip("shap")
    X, labels = wine()
    model = explainer().fit(X, labels=labels).tree_.to_sklearn()
    for background in ({}, {"data": X[::6]}):
        shares = shap.TreeExplainer(model, **background)
        values = shares.shap_values(X)
        np.testing.assert_allclose(values.sum(1) + shares.expected_value, model.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize("explainer", [CART, KernelIMM])
@pytest.mark.filterwarnings("ignore")  # of other packages
def test_onnx(explainer):
    skl2onnx = pytest.importorskip("skl2onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    X, labels = wine()
    tree = explainer().fit(X.astype(np.float32), labels=np.array(["a", "b", "c"])[labels]).tree_
    points = np.concatenate([X.astype(np.float32), around(tree, np.random.default_rng(0))])
    network = skl2onnx.to_onnx(tree.to_sklearn(), points[:1])
    session = onnxruntime.InferenceSession(network.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(session.run(None, {"X": points})[0], tree.predict(points))
