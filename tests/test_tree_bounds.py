"""What a fitted tree keeps of the training values around its bounds, against a loop over points and bounds.

That it is the same for sparse tables, tensors, weights and noise is tested in `test_tree_routes.py`.
"""

import math
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tree_witnesses import CLASSES, data
from turns import in_turns

import neonxc
from neonxc import trees
from neonxc.trees import CART, IMM

EXPLAINERS = sorted(model.__name__ for model in CLASSES)


def fitted(name, X, labels, weight=None, **parameters):
    weighted = {} if weight is None else {"sample_weight": weight}
    return getattr(trees, name)(**parameters).fit(X, labels=labels, **weighted)


def witness(tree, X):
    """The rows of the table, one bound and one point at a time; X: the points that count, in float64."""
    bounds = set()
    for column, threshold, test in zip(tree.feature.tolist(), tree.threshold.tolist(), tree.tests, strict=True):
        bounds |= {(column, threshold)} if math.isfinite(threshold) else set()
        bounds |= {(column, float(bound)) for pair in test for bound in pair if math.isfinite(bound)}
    rows = []
    for column, bound in sorted(bounds):
        below, above, whole = -math.inf, math.inf, 1.0
        for value in X[:, column].tolist():
            if value <= bound:
                below = max(below, value)
            else:
                above = min(above, value)
            whole = whole if value == math.floor(value) else 0.0
        rows.append((column, bound, below, above, whole))
    return np.array(rows, dtype=np.float64).reshape(-1, 5)


def assert_table(tree, X):
    assert tree.bounds.dtype == torch.float64
    assert tree.bounds.device.type == "cpu"
    np.testing.assert_array_equal(tree.bounds.numpy(), witness(tree, X))


@pytest.mark.parametrize(
    ("kind", "dtype", "name"),
    in_turns(["grid", "fine"], [np.float64, np.float32, np.float16, np.uint8, np.int64], EXPLAINERS),
)
def test_every_explainer(name, dtype, kind):
    case = data(3, 70, 3, 4, kind=kind, dtype=dtype)
    tree = fitted(name, case.X, case.labels).tree_
    assert tree.n_leaves > 1
    assert len(tree.bounds)
    assert_table(tree, case.values)


@pytest.mark.parametrize("parameters", [{"refine": True}, {"max_leaves": 9}, {"max_bins": 4}])
def test_refined_expanded_and_binned_trees(parameters):
    case = data(11, 90, 3, 4, kind="fine")
    assert_table(fitted("ExGreedy", case.X, case.labels, **parameters).tree_, case.X)


@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(2, 40),
    kind=st.sampled_from(["grid", "fine"]),
    dtype=st.sampled_from([np.float64, np.float32]),
    weighted=st.booleans(),
    name=st.sampled_from(["CART", "KDTree", "CLTree"]),
)
def test_random_tables(seed, n, kind, dtype, weighted, name):
    case = data(seed, n, 3, 3, kind=kind, dtype=dtype, weighted=weighted)
    assert_table(fitted(name, case.X, case.labels, case.weight).tree_, case.values)


def test_a_bound_where_no_training_point_is_beyond():
    X = np.array([[0.0, 0], [1, 0], [4, 0], [5, 0]])
    tree = IMM(3).fit(X, centers=[[0.5, 0], [4.5, 0], [4.5, 9]]).tree_
    assert tree.bounds.tolist() == [[0, 2.5, 1, 4, 1], [1, 4.5, 0, math.inf, 1]]


def test_one_leaf():
    tree = IMM(1, random_state=0).fit(np.arange(6.0)[:, None]).tree_
    assert tree.bounds.shape == (0, 5)


def test_copies_and_files_keep_it(tmp_path):
    case = data(1, 60, 3, 3, kind="fine")
    tree = CART(3).fit(case.X, labels=case.labels).tree_
    neonxc.save(tree, tmp_path / "tree")
    for copy in (
        tree.relabel(tree.label, np.array(list("abc"))),
        pickle.loads(pickle.dumps(tree)),
        neonxc.load(tmp_path / "tree"),
    ):
        torch.testing.assert_close(copy.bounds, tree.bounds, rtol=0, atol=0)


def test_trees_from_before_have_none():
    case = data(1, 60, 3, 3, kind="fine")
    tree = CART(3).fit(case.X, labels=case.labels).tree_
    state = {name: value for name, value in tree.__getstate__().items() if name != "bounds"}
    old = object.__new__(type(tree))
    old.__dict__.update(state)
    again = pickle.loads(pickle.dumps(old))
    assert again.bounds is None
    np.testing.assert_array_equal(again.predict(case.X), tree.predict(case.X))
