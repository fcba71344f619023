"""What a fitted tree keeps of the training values around its bounds, against a loop over points and bounds.

That it is the same for sparse tables, tensors, weights and noise is tested in `test_tree_routes.py`.
"""

import math
import pickle
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from tree_witnesses import CLASSES, WEIGHTLESS, data, tables
from turns import every

from neonxc.trees import CART, IMM, ExGreedy


def witness(tree, X):
    """The rows of the table, one bound and one point at a time; X: the points that count, in float64."""
    bounds = set()
    for column, threshold, test in zip(tree.feature.tolist(), tree.threshold.tolist(), tree.tests, strict=True):
        bounds |= {(column, threshold)} if math.isfinite(threshold) else set()
        bounds |= {(column, float(bound)) for pair in test for bound in pair if math.isfinite(bound)}
    rows = []
    for column, bound in sorted(bounds):
        below = -math.inf
        above = math.inf
        whole = 1.0
        for value in X[:, column].tolist():
            if value <= bound:
                below = max(below, value)
            else:
                above = min(above, value)
            whole = whole if value == math.floor(value) else 0.0
        rows.append((column, bound, below, above, whole))
    return np.array(rows, dtype=np.float64).reshape(-1, 5)


@pytest.mark.parametrize(
    "model", every(2, [*CLASSES, partial(ExGreedy, refine=True), partial(ExGreedy, max_bins=4)])
)
@given(case=tables(40, 3, clusters=3, separable=True))
@example(case=data(3, 70, 3, 4, kind="fine"))
@settings(max_examples=3)
def test_every_explainer(model, case):
    weight = {} if model in WEIGHTLESS else {"sample_weight": case.weight}
    tree = model().fit(case.X, labels=case.labels, **weight).tree_
    assert tree.bounds.dtype == torch.float64
    np.testing.assert_array_equal(tree.bounds.numpy(), witness(tree, case.values))


def test_a_bound_where_no_training_point_is_beyond():
    X = np.array([[0.0, 0], [1, 0], [4, 0], [5, 0]])
    tree = IMM(3).fit(X, centers=[[0.5, 0], [4.5, 0], [4.5, 9]]).tree_
    assert tree.bounds.tolist() == [[0, 2.5, 1, 4, 1], [1, 4.5, 0, math.inf, 1]]


def test_one_leaf():
    tree = IMM(1, random_state=0).fit(np.arange(6.0)[:, None]).tree_
    assert tree.bounds.shape == (0, 5)


def test_trees_from_before_have_none():
    case = data(1, 60, 3, 3, kind="fine")
    tree = CART(3).fit(case.X, labels=case.labels).tree_
    state = {name: value for name, value in tree.__getstate__().items() if name != "bounds"}
    old = object.__new__(type(tree))
    old.__dict__.update(state)
    again = pickle.loads(pickle.dumps(old))
    assert again.bounds is None
    np.testing.assert_array_equal(again.predict(case.X), tree.predict(case.X))
