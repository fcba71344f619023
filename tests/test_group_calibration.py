"""Calibration over the rows of several processes, against one process with all of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch.distributed as dist
from sklearn.cluster import DBSCAN, KMeans
from sklearn.datasets import load_iris, load_wine
from sklearn.preprocessing import scale

import neonxc

WINE = scale(load_wine().data)
IRIS = load_iris(as_frame=True).data
PARTS = {"an empty rank": [0, 31, 31], "one rank": [0, 0, 0], "all ranks": [0, 40, 45]}


def own_rows(X, starts):
    """The rows of this rank, in the order of the ranks."""
    rank = dist.get_rank()
    ends = [*starts[1:], len(X)]
    rows = slice(min(starts[rank], len(X)), min(ends[rank], len(X)))
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


@pytest.fixture(scope="module")
def net():
    return neonxc.neuralize(KMeans(4, n_init=3, random_state=0).fit(WINE), WINE)


def every(found):
    """What all ranks return, which is the same."""
    for one in found:
        if isinstance(one, Exception):
            raise one
        assert repr(one) == repr(found[0])
    return found[0]


def calibrate(group, net, X, starts, contrast):
    return net.calibrate(own_rows(X, starts), contrast, group=group).beta


@pytest.mark.parametrize(
    ("contrast", "rows"), [("harmonic", "an empty rank"), ("least", "all ranks"), ("median", "one rank")]
)
def test_calibrate(ranks, net, contrast, rows):
    found = every(ranks(calibrate, net, WINE, PARTS[rows], contrast))
    assert found == pytest.approx(net.heuristic_beta(WINE, contrast))
    noisy = neonxc.neuralize(labels=DBSCAN(0.5).fit_predict(IRIS), X=IRIS)
    for X in (IRIS, IRIS[noisy.predict(IRIS) == -1]):  # noise counts if there is nothing else
        assert every(ranks(calibrate, noisy, X, [0, 3, 3], contrast)) == pytest.approx(
            noisy.heuristic_beta(X, contrast)
        )


def spoiled(group, net, kind):
    rank, X, contrast = dist.get_rank(), WINE[:20], "least"
    if kind == "contrast":
        contrast = ["least", "median", "median"][rank]
    elif kind == "empty":
        X = X[:0]
    elif rank == 1 and kind != "group":
        X = {"NaN": np.where(X[3, 4] == X, np.nan, X), "columns": X[:, :3], "dtype": X.astype(np.float32)}[kind]
    return net.calibrate(X, contrast, group="world" if kind == "group" else group)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("NaN", "not finite.* .on rank 1 of 3"),
        ("columns", "X has 3 features"),
        ("dtype", "dtype of X differs between processes: torch.float64 .*on rank 0"),
        ("empty", "X is empty: no rank of the group has rows"),
        ("contrast", "contrast differs between processes: least on rank 0, median on rank 1"),
        ("group", "group needs a process group"),
    ],
)
def test_one_error_on_all_ranks(ranks, net, kind, message):
    found = ranks(spoiled, net, kind)
    assert len({str(error) for error in found}) == 1
    for error in found:
        with pytest.raises(ValueError, match=message):
            raise error
