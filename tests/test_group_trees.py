"""Trees of rows that are distributed over processes: bit for bit those of one process."""

import os
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch.distributed as dist
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import load_wine, make_blobs
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tree_witnesses import GROUPED, STREAMED, assert_same
from turns import in_turns

from neonxc.trees import CUBT, EMN, IMM, ExGreedy, ExKMC, ExShallow, KDTree

ROOT = Path(__file__).resolve().parent.parent
SHARES = {"even": (0.34, 0.67), "uneven": (0.02, 0.9), "one is empty": (0.4, 0.4), "two are empty": (0.0, 1.0)}


def rows_of(group, X, shares):
    """The rows of this process: neighbouring ones of a shuffled order."""
    rank = dist.get_rank(group)
    n = len(X)
    order = np.random.default_rng(7).permutation(n)
    ends = [0, *(int(n * share) for share in shares), n]
    return order[ends[rank] : ends[rank + 1]]


def fitted(group, model, X, shares, arguments, batch=None):
    """A fitted explainer, and the rows that it was given, in batches of some size or at once."""
    rows = rows_of(group, X, shares)
    own = {name: value if name == "centers" else value[rows] for name, value in arguments.items()}
    mine = X[rows]
    batches = [mine[first : first + batch] for first in range(0, len(mine), batch)] if batch else None
    return model.fit((lambda: batches) if batch else mine, group=group, **own), rows


def table(dtype, n=90, seed=0):
    """Groups of points, some columns coarse, so that there are ties."""
    X, labels = make_blobs(n, n_features=5, centers=6, cluster_std=2.5, random_state=seed)
    X[:, 1:3] = X[:, 1:3].round()
    return (X * 8).round().clip(-100, 100).astype(dtype) if dtype is np.int8 else X.astype(dtype), labels


def answered(answers):
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    return answers


def assert_that_of_one_process(ranks, model, X, shares, arguments):
    one = deepcopy(model).fit(X, **arguments)
    for many, rows in answered(ranks(fitted, model, X, SHARES[shares], arguments)):
        assert_same(one, many, costs=0)
        assert np.array_equal(many.labels_, one.labels_[rows])
        if len(rows):
            assert np.array_equal(many.predict(X[rows]), one.labels_[rows])
            assert many.score(X[rows]) == one.score(X[rows])
    return one


@pytest.mark.filterwarnings("ignore:the tree has no points in clusters", "ignore:labels has")
@pytest.mark.parametrize(
    ("model", "shares", "dtype", "max_bins", "given_"),
    in_turns(
        [*GROUPED, IMM(), IMM()],
        SHARES,
        [np.float64, np.float32, np.int8],
        [None, None, None, None, 16],
        [("centers", "labels"), ("labels", "centers")],
    ),
    ids=str,
)
@pytest.mark.parametrize("turn", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_the_tree_is_that_of_one_process(ranks, model, shares, dtype, max_bins, given_, turn):
    """Given centers, or labels with noise and weights, some of which are 0."""
    X, labels = table(dtype, seed=1)
    arguments = {"labels": labels}
    if given_[turn] == "centers":
        arguments = {"centers": KMeans(6, n_init=1, random_state=0).fit(X).cluster_centers_}
    elif "Random" not in str(model):  # whose costs of trials are rounded
        weight = np.random.default_rng(0).random(len(X)) * (np.arange(len(X)) % 7 > 0)
        arguments = {"labels": np.where(np.arange(len(X)) % 11 == 3, -1, labels), "sample_weight": weight}
    model = clone(model).set_params(**{} if max_bins is None else {"max_bins": max_bins})
    assert_that_of_one_process(ranks, model, X, shares, arguments)


@pytest.mark.parametrize("dtype", [np.float64, np.int8])
def test_centers_become_the_values_of_other_processes(ranks, dtype):
    X, labels = table(np.float64)
    X = (X.round(1) if dtype is np.float64 else X.round()).astype(dtype)
    labels[::15] = np.arange(6, 12)  # clusters of one point, which few processes have
    weights = np.random.default_rng(0).integers(1, 10, len(X)) / 10
    for arguments in ({"labels": labels}, {"labels": labels, "sample_weight": weights}):
        one = assert_that_of_one_process(ranks, EMN(), X, "one is empty", arguments)
        assert (one.tree_.samples[one.tree_.leaves] > 0).all()


def test_kmeans_is_the_default_reference(ranks):
    X = load_wine().data
    X = (X - X.mean(0)) / X.std(0)
    one = ExShallow(3, random_state=0).fit(X)
    answers = answered(ranks(fitted, ExShallow(3, random_state=0), X, SHARES["uneven"], {}))
    for many, _ in answers:
        assert_same(answers[0][0], many, costs=0)
        assert many.inertia_ <= 1.05 * one.inertia_


@pytest.mark.parametrize(("model", "scaled"), [(IMM, True), (ExShallow, True), (KDTree, False)])
def test_a_fitted_clusterer_is_a_reference(ranks, model, scaled):
    """With its own centers, and behind its own scaler."""
    X, _ = table(np.float64)
    X[:, 0] *= 30
    reference = KMeans(5, n_init=1, random_state=0)
    reference = (make_pipeline(StandardScaler(), reference) if scaled else reference).fit(X)
    assert_that_of_one_process(ranks, model(reference=reference), X, "one is empty", {})


# --- streams -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "shares", "reference"), in_turns(STREAMED, SHARES, ["centers", "labels", "centers"]), ids=str
)
def test_streams_of_several_processes(ranks, model, shares, reference):
    """The same tree as from memory in one process, with the same bins."""
    X, labels = table(np.float32)
    model = clone(model).set_params(max_bins=32)
    arguments = {reference: X[:5]}
    arguments |= {"labels": labels} if reference == "labels" else {}
    one, alone = (clone(model).fit(given, **arguments) for given in (X, lambda: iter([X])))
    for many, rows in answered(ranks(fitted, model, X, SHARES[shares], arguments, 37)):
        assert_same(many, one)
        assert_same(many, alone)
        assert np.array_equal(many.cluster_centers_, alone.cluster_centers_)
        assert np.array_equal(many.labels_, one.labels_[rows])


# --- errors --------------------------------------------------------------------------------------------------


# What the second of three processes changes in a fit, by the error of all
ONE_SPOILS = {
    "NaN.*on rank 1 of 3": lambda X, labels: {"X": np.where(X > 3, np.nan, X)},
    "centers differs between processes: .*5.*on rank 0, .*3.*on rank 1": lambda X, labels: {
        "X": X[:, :3],
        "centers": np.eye(4, 3),
    },
    "the dtype of X differs between processes: torch.float64 on rank 0, torch.float32 on rank 1": (
        lambda X, labels: {"X": X.astype(np.float32)}
    ),
    "centers differs between processes": lambda X, labels: {"centers": np.eye(4, 5) + 1e-9},
    "centers can't be read as an array of numbers.*on rank 1 of 3": lambda X, labels: {
        "X": X[:0],
        "centers": [["a"] * 5],
    },
    "model differs between processes: IMM.*'max_leaves': None.*'max_leaves': 6": lambda X, labels: {
        "model": IMM(4, max_leaves=6)
    },
    "centers differs between processes: given on rank 0, missing on rank 1": lambda X, labels: {
        "centers": None,
        "labels": labels,
    },
    "sample_weight differs between processes: missing on rank 0, given on rank 1": lambda X, labels: {
        "sample_weight": np.ones(len(X))
    },
    "on rank 1 of 3": lambda X, labels: {"X": np.arange(5.0)},
    "model differs between processes: IMM.*EMN": lambda X, labels: {"model": EMN(4)},
    "fit takes labels or centers, not both.*on rank 1 of 3": lambda X, labels: {"labels": labels},
    "max_bins needs.*on rank 1 of 3": lambda X, labels: {"model": IMM(4, max_bins=1)},
    "X is read in batches by some processes and in memory by others": lambda X, labels: {"X": lambda: iter([X])},
}
# What all of them do
ALL_SPOIL = {
    "labels needs whole numbers or names, got both": lambda X, labels, second: {
        "centers": None,
        "labels": labels.astype(str) if second else labels,
    },
    "base differs between processes: a tree of 6 leaves": lambda X, labels, second: {
        "X": X[:0] if second else X,
        "model": ExKMC(base=IMM().fit(POINTS[0], labels=POINTS[1] // (2 if second else 1)).tree_),
        "centers": POINTS[0][:6],
    },
    "group needs a process group": lambda *_: {"model": ExShallow(4), "group": "all"},
    "reference in a group needs to be fitted": lambda *_: {"model": IMM(reference=KMeans(3)), "centers": None},
    "CUBT takes no group: finding its own clusters takes all points": lambda *_: {
        "model": CUBT(4),
        "centers": None,
    },
    "reference in a group needs": lambda *_: {"model": ExKMC(4, reference="spectral"), "centers": None},
    r"^X is empty: no rank of the group has rows\n": lambda X, *_: {"X": X[:0]},
    "batch 1.*nan.*rank 1 of 3": lambda X, labels, second: {
        "X": lambda: [X[:5], X[5:] * (np.nan if second else 1)]
    },
    "columns differs|rank 1 of 3": lambda X, labels, second: {
        "X": lambda: [X[:, : 3 if second else 5]],
        "centers": None,
        "labels": labels,
    },
}
POINTS = table(np.float64, 60)


def spoiled(group, message):
    """A fit that ends in an error."""
    X, labels = (values[rows_of(group, POINTS[0], SHARES["even"])] for values in POINTS)
    arguments = {"X": X, "model": IMM(4), "centers": np.eye(4, 5), "group": group}
    second = dist.get_rank(group) == 1
    if message in ALL_SPOIL:
        arguments |= ALL_SPOIL[message](X, labels, second)
    elif second:
        arguments |= ONE_SPOILS[message](X, labels)
    return arguments.pop("model").fit(**arguments)


@pytest.mark.parametrize("message", [*ONE_SPOILS, *ALL_SPOIL])
def test_what_one_process_spoils_is_an_error_of_all(ranks, message):
    for error in ranks(spoiled, message):
        with pytest.raises(ValueError, match=message):
            raise error


@pytest.mark.parametrize("without", ["weights", "labels"])
def test_points_of_one_process_that_do_not_count(ranks, without):
    X, labels = table(np.float64)
    first = np.zeros(len(X), dtype=bool)
    first[np.random.default_rng(7).permutation(len(X))[:6]] = True  # those of rank 0
    if without == "weights":
        arguments = {"labels": labels, "sample_weight": np.where(first, 0.0, 2.0)}
    else:
        arguments = {"labels": np.where(first, -1, labels)}
    assert_that_of_one_process(ranks, IMM(), X, "uneven", arguments)


# --- what is sent --------------------------------------------------------------------------------------------


def calls(group, model, X, centers):
    """How often processes communicate in a fit, and how many bytes."""
    with mock.patch.object(dist, "all_reduce", wraps=dist.all_reduce) as reduce:
        model(max_leaves=None).fit(X[rows_of(group, X, SHARES["even"])], centers=centers, group=group)
    return reduce.call_count, sum(call.args[0].nbytes for call in reduce.call_args_list)


def test_few_and_small_reductions(ranks):
    """16 clusters on a grid: 4 levels, 15 cuts."""
    X = np.stack(np.meshgrid(*[np.arange(32)] * 2), -1).reshape(-1, 2).astype(np.float64)
    centers = np.stack(np.meshgrid(*[np.arange(4) * 8 + 3.6] * 2), -1).reshape(-1, 2)
    for model, most in ((IMM, 120), (ExGreedy, 240)):
        number, sent = ranks(calls, model, X, centers)[0]
        assert number <= most
        assert sent < 100_000


@pytest.mark.slow
def test_the_example_runs_under_torchrun(tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    run = subprocess.run(
        [*command, str(ROOT / "examples" / "distributed.py"), "--quick"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr
    assert "one process with all rows grows the same tree: True" in run.stdout
