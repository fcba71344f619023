"""Trees of rows that are distributed over processes: bit for bit those of one process."""

import numpy as np
import pytest
import torch
import torch.distributed as dist
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs

from neonxc.trees import CART, EMN, IMM, ExGreedy, ExKMC, ExShallow, KDTree, RandomThresholds, SpExClique

EXPLAINERS = {
    "IMM": (IMM, {}),
    "EMN": (EMN, {}),
    "ExGreedy": (ExGreedy, {}),
    "ExShallow": (ExShallow, {}),
    "ExShallow, more leaves": (ExShallow, {"max_leaves": 9}),
    "ExKMC": (ExKMC, {}),
    "CART": (CART, {"max_leaves": 7}),
    "KDTree": (KDTree, {"max_leaves": 6}),
    "SpExClique": (SpExClique, {}),
    "RandomThresholds": (RandomThresholds, {"random_state": 0}),
}
SHARES = {"even": (0.34, 0.67), "uneven": (0.02, 0.9), "one is empty": (0.4, 0.4), "two are empty": (0.0, 1.0)}
EXACT = (
    "feature",
    "threshold",
    "left",
    "right",
    "label",
    "samples",
    "mistakes",
    "spread",
    "bounds",
    "class_samples",
)


def rows_of(group, X, shares):
    """The rows of this process: neighbouring ones of a shuffled order."""
    rank, n = dist.get_rank(group), len(X)
    order = np.random.default_rng(7).permutation(n)
    ends = [0, *(int(n * share) for share in shares), n]
    return order[ends[rank] : ends[rank + 1]]


def fitted(group, model, parameters, X, shares, arguments):
    """A fitted explainer, and the rows that it was given."""
    rows = rows_of(group, X, shares)
    own = {name: value if name == "centers" else value[rows] for name, value in arguments.items()}
    return model(**parameters).fit(X[rows], group=group, **own), rows


def table(dtype, n=300, seed=0):
    """Groups of points, some columns coarse, so that there are ties."""
    X, labels = make_blobs(n, n_features=5, centers=6, cluster_std=2.5, random_state=seed)
    X[:, 1:3] = X[:, 1:3].round()
    return (X * 8).round().clip(-100, 100).astype(dtype) if dtype is np.int8 else X.astype(dtype), labels


def results(answers):
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    return answers


def assert_equal(one, many):
    for name in EXACT:
        ours, theirs = getattr(many.tree_, name), getattr(one.tree_, name)
        assert torch.equal(ours.nan_to_num(nan=7.0), theirs.nan_to_num(nan=7.0)), name
    assert np.array_equal(many.cluster_centers_, one.cluster_centers_)
    assert many.inertia_ == one.inertia_


@pytest.mark.parametrize("name", EXPLAINERS)
@pytest.mark.parametrize("shares", SHARES)
def test_the_tree_is_that_of_one_process(ranks, name, shares):
    model, parameters = EXPLAINERS[name]
    X, labels = table(np.float64)
    centers = KMeans(6, n_init=1, random_state=0).fit(X).cluster_centers_
    for arguments in ({"centers": centers}, {"labels": labels}):
        one = model(**parameters).fit(X, **arguments)
        for many, rows in results(ranks(fitted, model, parameters, X, SHARES[shares], arguments)):
            assert_equal(one, many)
            assert np.array_equal(many.labels_, one.labels_[rows])
            assert len(rows) == 0 or np.array_equal(many.predict(X[rows]), one.labels_[rows])


@pytest.mark.parametrize("name", ["IMM", "ExShallow", "CART", "ExKMC"])
@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.float64])
@pytest.mark.parametrize("max_bins", [None, 16])
def test_types_weights_and_bins(ranks, name, dtype, max_bins):
    model, parameters = EXPLAINERS[name]
    parameters = {**parameters, "max_bins": max_bins}
    X, labels = table(dtype, seed=1)
    weight = np.random.default_rng(0).random(len(X)) * (np.arange(len(X)) % 7 > 0)
    labels = np.where(np.arange(len(X)) % 11 == 3, -1, labels)
    arguments = {"labels": labels, "sample_weight": weight}
    one = model(**parameters).fit(X, **arguments)
    for many, _ in results(ranks(fitted, model, parameters, X, SHARES["uneven"], arguments)):
        assert_equal(one, many)
