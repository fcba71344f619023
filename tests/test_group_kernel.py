"""KernelKMeans and calibration on the rows of several processes, against one process that has them all."""

from __future__ import annotations

import warnings
from functools import partial
from unittest import mock

import numpy as np
import pandas as pd
import pytest
import torch
import torch.distributed as dist
from sklearn.cluster import DBSCAN, KMeans
from sklearn.datasets import load_iris, make_blobs
from sklearn.exceptions import ConvergenceWarning

import neonxc
from neonxc.models import KernelKMeans

IRIS, SPECIES = load_iris(return_X_y=True)
BLOBS = make_blobs(300, 3, centers=12, cluster_std=2, random_state=0)[0]
UNEVEN = [55, 0, 245]  # of 300 rows; a rank without any
FITTED = "support_vectors_", "support_weights_", "support_labels_", "gamma_", "objective_", "history_", "classes_"


seeded = partial(KernelKMeans, random_state=0)


def shares(n, counts):
    """The rows of every rank, of n rows in a random order."""
    counts = (np.array(counts) * n / sum(counts)).astype(int)
    return np.split(np.random.default_rng(0).permutation(n), counts.cumsum()[:-1])


def rows(X, own):
    return X.iloc[own] if hasattr(X, "iloc") else X[own]


def fit(group, model, X, shards, options):
    """Fit to this rank's rows; the model, with options [n] of which each rank takes its own rows as well."""
    own = shards[dist.get_rank(group)]
    options = {name: np.asarray(values)[own] for name, values in options.items()}
    if not isinstance(model.init, str):
        model.set_params(init=model.init[own])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(rows(X, own), group=group, **options)


def answers(found):
    """What the ranks return, unless that is an error."""
    for one in found:
        if isinstance(one, Exception):
            raise one
    return found


def fitted(ranks, model, X, counts=UNEVEN, **options):
    """The model of a group, and the labels of all rows; all ranks have the same to the last bit."""
    shards = shares(len(X), counts)
    found = answers(ranks(fit, model, X, shards, options))
    labels = np.empty(len(X), dtype=found[0].classes_.dtype)
    for own, one in zip(shards, found, strict=True):
        labels[own] = one.labels_
        for name in FITTED:
            assert np.array_equal(getattr(one, name), getattr(found[0], name)), name
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
    X = BLOBS.astype(dtype)
    first = np.arange(300) % 5
    first[:250] = KMeans(5, n_init=1, random_state=3).fit_predict(X[:250])
    model = seeded(5, 1, init=first)
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
    model = seeded(n_support=1)
    together, found = fitted(ranks, model, IRIS, labels=labels, sample_weight=weight)
    alone = model.fit(IRIS, labels=labels, sample_weight=weight)
    assert close(together, alone, 1e-9)
    assert together.classes_.tolist() == sorted(kinds)
    assert (found == alone.labels_).all()


@pytest.mark.parametrize(
    ("n", "options"),
    [(300, {}), (299, {"init": np.arange(299) % 5}), (8, {"init": np.array([0, 0, 0, 1, 1, 2, 2, 2])})],
)
def test_the_result_is_that_of_one_process(ranks, n, options):
    """A start is drawn as from the rows in the order of the ranks; a cluster without points starts again alike."""
    X = np.array([[-1.0], [0], [1], [-10], [10], [30], [31], [32]])
    X = X if n == 8 else np.sort(BLOBS[:n, :1], axis=0)  # every rank sorts its points
    model = seeded(3 if n == 8 else 5, 1, **options)
    alone = KernelKMeans(**model.get_params()).fit(X)
    for one in ranks(fit, model, X, np.split(np.arange(n), [n // 6, n // 6]), {}):
        assert close(one, alone, 1e-9)
        assert one.history_ == pytest.approx(alone.history_)


@pytest.mark.parametrize("options", [{"init": "random"}, {"weighted": True, "gamma": 0.3}])
def test_the_objective_never_rises(ranks, options):
    model = seeded(5, 4, **options)
    together, labels = fitted(ranks, model, BLOBS)
    history = np.array(together.history_)
    assert (np.diff(history) <= 1e-9 * abs(history[0])).all()
    assert together.objective_ == pytest.approx(-together.score(BLOBS), rel=1e-4)
    assert (labels == together.predict(BLOBS)).all()
    assert together.objective_ < 1.2 * model.fit(BLOBS).objective_


def sums(group, max_iter, weighted):
    """How often the ranks communicate in a fit."""
    calls = []
    every = dist.all_reduce
    model = seeded(4, 3, 0.1, max_iter=max_iter, weighted=weighted, tol=0)
    with mock.patch.object(dist, "all_reduce", lambda *args, **kwargs: calls.append(1) or every(*args, **kwargs)):
        model.fit(BLOBS[dist.get_rank(group) * 50 :][:99], group=group)
    return len(calls)


@pytest.mark.parametrize("weighted", [False, True])
def test_one_sum_an_iteration(ranks, weighted):
    fewer, more = (ranks(sums, max_iter, weighted) for max_iter in (1, 4))
    assert np.subtract(more, fewer).tolist() == [3, 3, 3]


def test_another_start_without_a_number(ranks):
    one, other = (fitted(ranks, KernelKMeans(5, 3), BLOBS)[0] for _ in range(2))
    assert not np.array_equal(one.support_vectors_, other.support_vectors_)


def test_fewer_different_points_than_clusters(ranks):
    X = np.repeat([[0.0, 1.0], [2.0, 3.0], [9.0, 9.0]], [5, 4, 6], axis=0)
    together, labels = fitted(ranks, seeded(8), X)
    assert together.classes_.tolist() == sorted(set(labels)) == [0, 1, 2]
    assert together.objective_ == pytest.approx(0, abs=1e-12)


def test_frames_and_tensors(ranks):
    frame = pd.DataFrame(IRIS, columns=list("abcd"))
    together, _ = fitted(ranks, seeded(3), frame)
    assert together.feature_names_in_.tolist() == list("abcd")
    with_tensor, _ = fitted(ranks, seeded(3), torch.tensor(IRIS))
    assert np.allclose(with_tensor.support_vectors_, together.support_vectors_)


HALF = IRIS[:50]
PAIR = np.arange(50) % 2


def on_one(**wrong):
    return lambda rank: wrong if rank == 1 else {}


def on_all(**wrong):
    return lambda rank: wrong


UNUSABLE = {
    "contains NaN": on_one(X=np.where(HALF[2, 1] == HALF, np.nan, HALF)),
    "columns differs between processes: 4 on rank 0, 3 on rank 1": on_one(X=HALF[:, :3]),
    "dtype of X differs between processes: torch.float64 on rank 0, torch.float32 on rank 1": on_one(
        X=HALF.astype(np.float32)
    ),
    r"columns differs between processes: 4 on rank 0, \['a', 'b', 'c', 'd'\] on rank 1": on_one(
        X=pd.DataFrame(HALF, columns=list("abcd"))
    ),
    r"model differs between processes: KernelKMeans\(n_clusters=3\) on rank 0": on_one(n_clusters=4),
    "'n_clusters' parameter .* Got 0 instead. .on rank 1 of 3": on_one(n_clusters=0),
    "labels differs between processes: None on rank 0, given on rank 1": on_one(labels=PAIR),
    r"labels needs one label per point, shape \(50,\), got \(2,\)": lambda rank: {
        "labels": [0, 1] if rank == 1 else PAIR
    },
    "labels needs whole numbers or names, got both": lambda rank: {
        "labels": np.array(["a", "b"])[PAIR] if rank else PAIR
    },
    "labels has no point that counts in a cluster": on_all(labels=np.full(50, -1)),
    "sample_weight is zero everywhere": on_all(sample_weight=np.zeros(50)),
    "X is empty: no rank of the group has rows": on_all(X=HALF[:0]),
    "X has n_samples=3 points that count, fewer than n_clusters=4": on_all(X=HALF[:1], n_clusters=4),
    "squared distances overflow": on_one(X=HALF + 1e200),
    'group applies to objective="lme" alone': on_all(objective="feature"),
    "batch_size does not apply to a group": on_all(batch_size=9),
}


def unusable(group, message):
    given = {"X": HALF, "n_clusters": 3} | UNUSABLE[message](dist.get_rank(group))
    X = given.pop("X")
    fits = {name: given.pop(name) for name in ("labels", "sample_weight") if name in given}
    return KernelKMeans(**given).fit(X, group=group, **fits)


UNCALIBRATED = {
    "not finite.* .on rank 1 of 3": on_one(X=np.where(HALF[3, 1] == HALF, np.nan, HALF)),
    "X has 3 features": on_one(X=HALF[:, :3]),
    "dtype of X differs between processes: torch.float64 .*on rank 0": on_one(X=HALF.astype(np.float32)),
    "X is empty: no rank of the group has rows": on_all(X=HALF[:0]),
    "contrast differs between processes: least on rank 0, median on rank 1": on_one(contrast="median"),
    "group needs a process group": on_all(group="world"),
}


def uncalibrated(group, message):
    given = {"X": HALF, "contrast": "least", "group": group} | UNCALIBRATED[message](dist.get_rank(group))
    return neonxc.neuralize(IRIS[[0, 60, 120]]).calibrate(**given)


WORKS = [
    (work, message) for work, table in ((unusable, UNUSABLE), (uncalibrated, UNCALIBRATED)) for message in table
]


@pytest.mark.parametrize(("work", "message"), WORKS)
def test_one_error_on_all_ranks(ranks, work, message):
    found = ranks(work, message)
    assert len({str(error) for error in found}) == 1
    for error in found:
        with pytest.raises(ValueError, match=message):
            raise error


def calibrate(group, net, X, starts, contrast):
    own = np.split(np.arange(len(X)), starts)[dist.get_rank(group)]
    return net.calibrate(rows(X, own), contrast, group=group).beta


@pytest.mark.parametrize(("contrast", "starts"), [("harmonic", [31, 31]), ("least", [40, 45]), ("median", [0, 0])])
def test_calibrate(ranks, contrast, starts):
    frame = load_iris(as_frame=True).data
    net = neonxc.neuralize(labels=DBSCAN(0.5).fit_predict(frame), X=frame)
    kmeans = neonxc.neuralize(KMeans(4, n_init=3, random_state=0).fit(IRIS), IRIS)
    # noise counts if there is nothing else
    for one, X in ((kmeans, IRIS), (net, frame), (net, frame[net.predict(frame) == -1])):
        found = answers(ranks(calibrate, one, X, starts, contrast))
        assert len(set(found)) == 1
        assert found[0] == pytest.approx(one.heuristic_beta(X, contrast))
