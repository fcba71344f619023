"""The same problem, handed to `fit` in another way, has the same tree: every explainer by every route."""

from functools import cache

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from tree_witnesses import EXPLAINERS, STREAMED, WEIGHTED, assert_same, entries

K = 5


def cases():
    """A table of few entries and one of many, in whole numbers: sums are exact in any order."""
    rng = np.random.default_rng(0)
    labels = np.r_[np.arange(K), rng.integers(0, K, 95)]
    dense = (rng.normal(size=(100, 4)) * 3 + rng.normal(size=(K, 4))[labels] * 8).round().clip(-90, 90)
    dense[0, 0] = -0.0
    for X in (entries(0)[0].toarray() * 8, dense):
        yield X, {"labels": labels}
        yield X, {"labels": labels, "sample_weight": rng.integers(0, 4, 100) / 2}
        yield X, {"centers": rng.normal(size=(K, X.shape[1])).round(2) * 8 + X.mean(0)}


CASES = [*cases()]
ALL = np.arange(100)
LABELS = CASES[0][1]


def of_rows(given, rows, **more):
    return {name: value if name == "centers" else value[rows] for name, value in given.items()} | more


def formed(form):
    return lambda X, given: ((X, given), (form(X), given), ALL)


def typed(dtype):
    """Numbers of another type are those numbers."""

    def route(X, given):
        form = torch.from_numpy if isinstance(dtype, torch.dtype) else np.asarray
        X = getattr(form(np.abs(X)), "to" if form is torch.from_numpy else "astype")(dtype)
        plain = X.double() if form is torch.from_numpy else X.astype(np.float64)
        return (plain, LABELS), (X, LABELS), ALL

    return route


def named(names):
    return lambda X, given: ((X, LABELS), (X, {"labels": np.array(names)[LABELS["labels"]]}), ALL)


def argument(change):
    """Labels, centers and weights in other containers."""
    return lambda X, given: ((X, given), (X, {name: change(value) for name, value in given.items()}), ALL)


def twice(X, given):
    """A sparse matrix whose indices are in no order, of 64 bits, some of them there twice."""
    rows, columns = np.nonzero(X)
    order = np.random.default_rng(0).permutation(np.repeat(np.arange(len(rows)), 2))
    order = order[np.argsort(rows[order], kind="stable")]
    starts = np.r_[0, np.bincount(rows[order], minlength=len(X)).cumsum()]
    found = sp.csr_array((X[rows, columns][order] / 2, columns[order].astype(np.int64), starts), shape=X.shape)
    assert not found.has_sorted_indices
    return (X, given), (found, given), ALL


def shuffled(X, given):
    rows = np.random.default_rng(1).permutation(100)
    return (X, given), (X[rows], of_rows(given, rows)), rows


def batches(dtype):
    def route(X, given):
        X = np.abs(X).astype(dtype) if dtype == np.uint8 else X
        plain, (mixed, own), rows = shuffled(X, {name: given[name] for name in given if name != "sample_weight"})
        return plain, (lambda: iter(np.array_split(mixed, 7)), own), rows

    return route


def repeated(X, given):
    weight = np.random.default_rng(2).integers(0, 4, 100)
    rows = ALL.repeat(weight)
    own = of_rows(given, rows, sample_weight=np.ones(len(rows)))
    return (X, given | {"sample_weight": weight}), (X[rows], own), rows


def weightless(X, given):
    """Points of no weight, far from all others, and in any cluster."""
    weight = given.get("sample_weight", np.ones(100))
    far = np.random.default_rng(3).integers(-900, 900, (5, X.shape[1]))
    own = given | {"sample_weight": np.r_[weight, np.zeros(5)]}
    own |= {"labels": np.r_[given["labels"], np.arange(5)]} if "labels" in given else {}
    return (X, given | {"sample_weight": weight}), (np.r_[X, far], own), np.r_[ALL, [-1] * 5]


def noisy(X, given):
    return (X, LABELS), (np.r_[X, X[:9]], {"labels": np.r_[LABELS["labels"], np.full(9, -1)]}), np.r_[ALL, :9]


NUMPY = (bool, np.uint8, np.int16, np.uint32, np.int64, np.float16, np.float32, ">f8", ">i4")
TORCH = (torch.bool, torch.uint8, torch.uint16, torch.int64, torch.float16, torch.bfloat16, torch.float32)
TYPES = {str(dtype): dtype for dtype in (*NUMPY, *TORCH)}
ROUTES = {
    **{name: formed(getattr(sp, name)) for name in ("csr_matrix", "csc_array", "coo_matrix")},
    **{name: typed(dtype) for name, dtype in TYPES.items()},
    "indices there twice": twice,
    "tensor": formed(torch.from_numpy),
    "list": formed(np.ndarray.tolist),
    "frame": formed(lambda X: pd.DataFrame(X).add_prefix("column ")),
    "arguments as lists": argument(np.ndarray.tolist),
    "arguments as tensors": argument(torch.from_numpy),
    "arguments as frames": argument(lambda values: pd.DataFrame(values) if values.ndim > 1 else pd.Series(values)),
    "labels as names": named(["ant", "bee", "cat", "dog", "eel"]),
    "labels as numbers": named([-7, 3, 5, 10, 1000]),
    "another order": shuffled,
    "batches": batches(np.float64),
    "batches of bytes": batches(np.uint8),
    "repeated rows": repeated,
    "points of no weight": weightless,
    "noise": noisy,
}


CONTAINERS = "list", "frame", "arguments as lists", "arguments as tensors", "arguments as frames"
# What is read before an explainer sees it: by default, few explainers take these routes, and all take the others
READ = "csc_array", "coo_matrix", "indices there twice", "tensor", "labels as names", "labels as numbers"
READ += "points of no weight", "noise"


def turns(route):
    """IMM, and every fifth of the others."""
    return [EXPLAINERS[0], *EXPLAINERS[1 + (list(ROUTES).index(route) + 2) % 5 :: 5]]


def explainers(route):
    """Those that a route is for; of types and containers, all take IMM and the others take turns."""
    if "batches" in route:
        return STREAMED
    if route in ("repeated rows", "points of no weight"):
        return WEIGHTED
    if route in TYPES or route in CONTAINERS:
        return turns(route)
    return EXPLAINERS


def is_slow(route, model):
    if route in TYPES:
        return model is not EXPLAINERS[0]
    return route in READ and model not in turns(route)


@cache
def fitted(number, case):
    """An explainer fitted to one of the cases as it is."""
    model = EXPLAINERS[number]
    (X, given) = CASES[case]
    return clone(model).fit(X, **weighing(model, given))


def weighing(model, given):
    return given if model in WEIGHTED else {name: given[name] for name in given if name != "sample_weight"}


@pytest.mark.filterwarnings("ignore:labels has 9 points of noise", "ignore:the tree has no points in clusters")
@pytest.mark.parametrize(
    ("route", "model"),
    [
        pytest.param(route, model, marks=[pytest.mark.slow] * is_slow(route, model))
        for route in ROUTES
        for model in explainers(route)
    ],
    ids=str,
)
def test_the_tree_is_the_same(route, model):
    number = EXPLAINERS.index(model)
    first = 3 if "l1" in str(model) else 0  # medians of few entries are all zero
    case = first + (list(ROUTES).index(route) + number) % (6 - first)
    X = CASES[case][0]
    given = weighing(model, CASES[case][1])
    (plain, arguments), (table, others), rows = ROUTES[route](X, given)
    as_it_is = plain is X and arguments is given
    one = fitted(number, case) if as_it_is else clone(model).fit(plain, **arguments)
    other = clone(model).fit(table, **others)
    assert_same(one, other, 1e-2 if "float16" in route else 1e-6 if "float32" in route else 0.0)
    assert isinstance(other.labels_, type(other.cluster_centers_))
    known = rows >= 0
    labels = np.asarray(other.labels_)
    assert np.array_equal(labels[known], np.asarray(other.tree_.classes)[np.asarray(one.labels_)[rows[known]]])
    assert np.array_equal(other.predict(table), labels)
    if "batches" not in route:
        found = other.tree_.predict(table)
        assert isinstance(found, torch.Tensor) == isinstance(other.labels_, torch.Tensor) == torch.is_tensor(table)
        assert np.array_equal(found, labels)
    if len(set(rows.tolist())) == len(rows) == 100:
        assert other.score(table) == pytest.approx(one.score(plain))
        if route in TYPES:
            assert np.array_equal(other.predict(np.asarray(plain)), labels)
        if "batches" not in route:
            assert np.array_equal(other.tree_.apply(table), np.asarray(one.tree_.apply(plain))[rows])
