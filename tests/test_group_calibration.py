"""Calibration over the rows of several processes, against one process with all of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.distributed as dist
from sklearn.cluster import DBSCAN, KMeans
from sklearn.datasets import load_iris, load_wine
from sklearn.preprocessing import scale

import neonxc
from neonxc.common.processes import Ranks
from neonxc.data.distributed import common_classes, greatest

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


def raised(found, message):
    assert len({str(error) for error in found}) == 1
    for error in found:
        with pytest.raises(ValueError, match=message):
            raise error


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


BAD = {
    "NaN": (
        lambda X: np.where(np.arange(X.size).reshape(X.shape) == 7, np.nan, X),
        "not finite.* .on rank 1 of 3",
    ),
    "columns": (lambda X: X[:, :3], "X has 3 features"),
    "dtype": (lambda X: X.astype(np.float32), "dtype of X differs between processes: torch.float64 .*on rank 0"),
    "empty": (None, "X is empty: no rank of the group has rows"),
}


def bad(group, net, kind):
    X = WINE[:20] if kind != "empty" else WINE[:0]
    if dist.get_rank() == 1 and kind != "empty":
        X = BAD[kind][0](X)
    return net.calibrate(X, group=group)


@pytest.mark.parametrize("kind", BAD)
def test_one_error_on_all_ranks(ranks, net, kind):
    raised(ranks(bad, net, kind), BAD[kind][1])


def differing(group, net, kind):
    contrast = ["least", "median", "median"][dist.get_rank()] if kind == "contrast" else "least"
    return net.calibrate(WINE[:20], contrast, group="world" if kind == "group" else group)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("contrast", "contrast differs between processes: least on rank 0, median on rank 1"),
        ("group", "group needs a process group"),
    ],
)
def test_what_differs_between_ranks(ranks, net, kind, message):
    raised(ranks(differing, net, kind), message)


def chosen(group, x, scores):
    ranks = Ranks(group)
    own = [slice(0, 4), slice(4, 4), slice(4, None)][ranks.rank]
    return greatest(x[own], scores[own], 5, ranks)


def test_rows_of_all_ranks(ranks):
    x, scores = torch.arange(20.0)[:, None], torch.randperm(20, generator=torch.Generator().manual_seed(0)) / 20
    assert torch.equal(every(ranks(chosen, x, scores)), x[scores.argsort(descending=True)[:5]])
    for kinds, expected in (([[3, 1], [], [2, 3]], [1, 2, 3]), ([["b"], ["long"], ["a"]], ["a", "b", "long"])):
        assert every(ranks(classes, kinds)).tolist() == expected
    raised(ranks(classes, [[1], ["a"], []]), "labels needs whole numbers or names, got both")


def classes(group, kinds):
    return common_classes(np.array(kinds[dist.get_rank()]), Ranks(group))
