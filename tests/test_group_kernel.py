"""KernelKMeans on the rows of several processes, against one process that has them all."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
import torch.distributed as dist
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits, load_iris, make_blobs
from sklearn.exceptions import ConvergenceWarning

from neonxc.clusterings.supports import uniform
from neonxc.common.processes import Ranks
from neonxc.models import KernelKMeans
from neonxc.models.kernel.em import em
from neonxc.models.kernel.seeding import Sample, median_gamma, plus_plus

IRIS, SPECIES = load_iris(return_X_y=True)
BLOBS = make_blobs(300, 3, centers=12, cluster_std=2, random_state=0)[0]
UNEVEN = [55, 0, 245]  # of 300 rows; a rank without any
PARTS = [slice(0, 55), slice(0, 0), slice(55, None)]
FITTED = (
    "support_vectors_",
    "support_weights_",
    "support_labels_",
    "gamma_",
    "objective_",
    "history_",
    "classes_",
)


def shares(n, counts):
    """The rows of every rank, of n rows in a random order."""
    counts = (np.array(counts) * n / sum(counts)).astype(int)
    return np.split(np.random.default_rng(0).permutation(n), counts.cumsum()[:-1])


def fit(group, model, X, shards, options):
    """Fit to this rank's rows; the model, with options [n] of which each rank takes its own rows as well."""
    own = shards[dist.get_rank(group)]
    options = {name: np.asarray(values)[own] for name, values in options.items()}
    if not isinstance(model.init, str):
        model.set_params(init=model.init[own])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X.iloc[own] if hasattr(X, "iloc") else X[own], group=group, **options)


def fitted(ranks, model, X, counts=UNEVEN, **options):
    """The model of a group, and the labels of all rows; all ranks have the same to the last bit."""
    shards = shares(len(X), counts)
    found = ranks(fit, model, X, shards, options)
    for one in found:
        if isinstance(one, Exception):
            raise one
        for name in FITTED:
            assert np.array_equal(getattr(one, name), getattr(found[0], name)), name
    labels = np.empty(len(X), dtype=found[0].classes_.dtype)
    for own, one in zip(shards, found, strict=True):
        assert len(one.labels_) == len(own)
        labels[own] = one.labels_
    return found[0], labels


def close(one, other, rtol):
    """Whether two fits are the same but for rounding."""
    names = ("support_vectors_", "support_weights_", "gamma_", "objective_")
    return all(np.allclose(getattr(one, name), getattr(other, name), rtol=rtol, atol=rtol) for name in names)


@pytest.mark.parametrize(
    ("counts", "dtype", "rtol"),
    [(UNEVEN, np.float64, 1e-9), ([1, 1, 1], np.float32, 1e-3), ([0, 0, 1], np.float64, 1e-9)],
)
def test_given_first_labels(ranks, counts, dtype, rtol):
    X, first = BLOBS.astype(dtype), np.arange(300) % 5
    first[:250] = KMeans(5, n_init=1, random_state=3).fit_predict(X[:250])
    model = KernelKMeans(5, 1, init=first, random_state=0)
    together, labels = fitted(ranks, model, X, counts)
    alone = model.fit(X)
    assert close(together, alone, rtol)
    assert (labels == alone.labels_).mean() > 0.99
    assert together.support_vectors_.dtype == dtype
    assert len(together.history_) > 2


@pytest.mark.parametrize("kinds", [[7, 3, 5], ["setosa", "versicolor", "virginica"]])
def test_given_labels(ranks, kinds):
    """Classes that no single rank has all of, points without a class, and weights."""
    labels = np.array(kinds, dtype=object)[SPECIES]
    labels[::7] = -1
    weight = np.random.default_rng(0).integers(0, 3, 150)
    model = KernelKMeans(n_support=1, random_state=0)
    together, found = fitted(ranks, model, IRIS, labels=labels, sample_weight=weight)
    alone = model.fit(IRIS, labels=labels, sample_weight=weight)
    assert close(together, alone, 1e-9)
    assert together.classes_.tolist() == sorted(kinds)
    assert (found == alone.labels_).all()


def test_ranks_with_one_class_each(ranks):
    order = np.argsort(SPECIES, kind="stable")
    X, y = IRIS[order], SPECIES[order]
    model = KernelKMeans(n_support=1)
    for one in ranks(fit, model, X, np.split(np.arange(150), 3), {"labels": y}):
        assert close(one, model.fit(X, labels=y), 1e-9)
        assert len(one.labels_) == 50


def from_same_supports(group, x, start, gamma, weight, weighted, labels):
    ranks = Ranks(group)
    own = PARTS[ranks.rank]
    label = None if labels is None else labels[own]
    fit = em(x[own], uniform(start, gamma), label, weight[own], weighted=weighted, max_iter=8, tol=0, ranks=ranks)
    return fit.model.points, fit.model.log_weights, fit.objective, fit.history


@pytest.mark.parametrize(
    ("weighted", "gamma", "given"),
    [(False, math.inf, False), (True, 0.05, False), (False, 0.05, True), (True, math.inf, True)],
)
def test_em_from_the_same_supports(ranks, weighted, gamma, given):
    """Dead clusters and dead supports among them: they start again at the farthest points of all ranks."""
    x = torch.tensor(BLOBS)
    start = x[:12].clone().reshape(4, 3, 3)
    start[3], start[0, 1] = 500.0, -400.0
    weight = torch.rand(300, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.1
    labels = torch.arange(300) % 4 if given else None
    alone = em(x, uniform(start, gamma), labels, weight, weighted=weighted, max_iter=8, tol=0)
    found = ranks(from_same_supports, x, start, gamma, weight, weighted, labels)
    for points, log_weights, objective, history in found:
        assert torch.equal(points, found[0][0])
        assert torch.equal(log_weights, found[0][1])
        assert torch.allclose(points, alone.model.points)
        assert torch.allclose(log_weights, alone.model.log_weights)
        assert objective == pytest.approx(alone.objective)
        assert history == pytest.approx(alone.history)
    assert (np.diff(alone.history) <= 1e-9 * alone.history[0]).all()


@pytest.mark.parametrize(
    ("options", "dtype"),
    [
        ({}, np.float32),
        ({"init": "random"}, np.float64),
        ({"weighted": True, "gamma": 0.3}, np.float32),
        ({"n_init": 2}, np.float64),
    ],
)
def test_the_objective_never_rises(ranks, options, dtype):
    X = BLOBS.astype(dtype)
    model = KernelKMeans(5, 4, random_state=0, **options)
    together, labels = fitted(ranks, model, X)
    history = np.array(together.history_)
    assert (np.diff(history) <= (1e-9 if dtype == np.float64 else 1e-5) * abs(history[0])).all()
    assert together.objective_ == pytest.approx(-together.score(X), rel=1e-4)
    assert (labels == together.predict(X)).all()
    assert together.objective_ < 1.2 * model.fit(X).objective_


def test_the_same_again(ranks):
    one, other = (fitted(ranks, KernelKMeans(5, 3, random_state=7), BLOBS)[0] for _ in range(2))
    assert np.array_equal(one.support_vectors_, other.support_vectors_)
    without = [fitted(ranks, KernelKMeans(5, 3), BLOBS)[0] for _ in range(2)]
    assert not np.array_equal(*(model.support_vectors_ for model in without))


def sums(group, x, weighted):
    """How often the ranks communicate in five iterations and a last look."""
    ranks, calls = Ranks(group), []
    every, dist.all_reduce = dist.all_reduce, lambda *args, **kwargs: calls.append(1) or every(*args, **kwargs)
    try:
        start = uniform(x[:6].reshape(2, 3, 3), 0.1)
        em(x[PARTS[ranks.rank]], start, weighted=weighted, max_iter=5, tol=-1.0, ranks=ranks)
    finally:
        dist.all_reduce = every
    return len(calls)


@pytest.mark.parametrize("weighted", [False, True])
def test_one_sum_an_iteration(ranks, weighted):
    assert ranks(sums, torch.tensor(BLOBS), weighted) == [6, 6, 6]


def test_one_support_is_kmeans(ranks):
    X = load_digits().data[:400]
    together, labels = fitted(ranks, KernelKMeans(10, 1, n_init=4, random_state=0), X)
    assert together.objective_ == pytest.approx(((X - together.support_vectors_[labels]) ** 2).sum())
    assert together.objective_ <= 1.01 * KMeans(10, n_init=10, random_state=0).fit(X).inertia_


def greedy(group, x, k, seeds):
    ranks = Ranks(group)
    own = x[PARTS[ranks.rank]]
    weight = own.new_ones(len(own))
    return [plus_plus(Sample(own, weight, torch.Generator().manual_seed(seed), ranks), k) for seed in seeds]


def test_plus_plus_over_ranks(ranks):
    """It draws what one process does from the rows in the order of the ranks."""
    x = torch.tensor(BLOBS)
    found = ranks(greedy, x, 12, range(5))
    for seed in range(5):
        alone = plus_plus(Sample(x, x.new_ones(len(x)), torch.Generator().manual_seed(seed)), 12)
        for one in found:
            assert torch.equal(one[seed], alone)


def medians(group, parts):
    ranks = Ranks(group)
    return median_gamma(*[part[ranks.rank] for part in parts], ranks=ranks)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("n", [7, 8])
def test_median_over_ranks(ranks, n, dtype):
    fine, coarse = torch.zeros(n, dtype=dtype), torch.rand(n, generator=torch.Generator().manual_seed(n)).to(dtype)
    for kinds in ((coarse,), (fine, coarse), (fine, fine)):
        parts = [[kind[:2], kind[:0], kind[2:]] for kind in kinds]
        assert ranks(medians, parts) == [median_gamma(*kinds)] * 3


def test_fewer_different_points_than_clusters(ranks):
    X = np.repeat([[0.0, 1.0], [2.0, 3.0], [9.0, 9.0]], [5, 4, 6], axis=0)
    together, labels = fitted(ranks, KernelKMeans(8, random_state=0), X)
    assert together.classes_.tolist() == [0, 1, 2]
    assert len(set(labels)) == 3
    assert together.objective_ == pytest.approx(0, abs=1e-12)


def test_frames_and_tensors(ranks):
    frame = pd.DataFrame(IRIS, columns=list("abcd"))
    together, _ = fitted(ranks, KernelKMeans(3, random_state=0), frame)
    assert together.feature_names_in_.tolist() == list("abcd")
    with_tensor, _ = fitted(ranks, KernelKMeans(3, random_state=0), torch.tensor(IRIS))
    assert np.allclose(with_tensor.support_vectors_, together.support_vectors_)


def bad(group, kind):
    rank, X, options, fits = dist.get_rank(group), IRIS[:50], {"n_clusters": 3}, {}
    if rank == 1:
        X = {
            "NaN": np.where(np.arange(200).reshape(50, 4) == 9, np.nan, X),
            "columns": X[:, :3],
            "dtype": X.astype(np.float32),
            "names": pd.DataFrame(X, columns=list("abcd")),
        }.get(kind, X)
        options = {"parameters": {"n_clusters": 4}, "clusters": {"n_clusters": 0}}.get(kind, options)
        fits = {"labels": {"labels": np.zeros(50)}, "length": {"labels": [0, 1]}}.get(kind, fits)
    options = options | {"objective": {"objective": "feature"}, "batches": {"batch_size": 9}}.get(kind, {})
    if kind in ("length", "kinds"):
        fits = fits or {"labels": np.array(["a", "b"])[np.arange(50) % 2] if rank else np.arange(50) % 2}
    fits |= {"noise": {"labels": np.full(50, -1)}, "weights": {"sample_weight": np.zeros(50)}}.get(kind, {})
    X = {"empty": X[:0], "few": X[:1], "far": X + 1e200 * (rank == 1)}.get(kind, X)
    options = options | ({"n_clusters": 4} if kind == "few" else {})
    return KernelKMeans(**options).fit(X, group=group, **fits)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("NaN", "contains NaN"),
        ("columns", "columns differs between processes: 4 on rank 0, 3 on rank 1"),
        ("dtype", "dtype of X differs between processes: torch.float64 on rank 0, torch.float32 on rank 1"),
        ("names", r"columns differs between processes: 4 on rank 0, \['a', 'b', 'c', 'd'\] on rank 1"),
        ("parameters", r"model differs between processes: KernelKMeans\(n_clusters=3\) on rank 0"),
        ("clusters", "'n_clusters' parameter .* Got 0 instead. .on rank 1 of 3"),
        ("labels", "labels differs between processes: None on rank 0, given on rank 1"),
        ("length", r"labels needs one label per point, shape \(50,\), got \(2,\)"),
        ("kinds", "labels needs whole numbers or names, got both"),
        ("noise", "labels has no point that counts in a cluster"),
        ("weights", "sample_weight is zero everywhere"),
        ("empty", "X is empty: no rank of the group has rows"),
        ("few", "X has n_samples=3 points that count, fewer than n_clusters=4"),
        ("far", "squared distances overflow"),
        ("objective", 'group applies to objective="lme" alone'),
        ("batches", "batch_size does not apply to a group"),
    ],
)
def test_one_error_on_all_ranks(ranks, kind, message):
    found = ranks(bad, kind)
    assert len({str(error) for error in found}) == 1
    for error in found:
        with pytest.raises(ValueError, match=message):
            raise error
