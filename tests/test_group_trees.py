"""Trees of rows that are distributed over processes: bit for bit those of one process."""

import contextlib
import io
import os
import re
import subprocess
import sys
import time
from copy import deepcopy
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
import torch.distributed as dist
from processes import Processes
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import load_wine, make_blobs
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tree_witnesses import GROUPED, STREAMED, assert_same
from turns import in_turns

from neonxc.common.processes import Ranks
from neonxc.trees import CART, CUBT, EMN, IMM, ExGreedy, ExKMC, ExShallow, KDTree
from neonxc.trees.cuts.bins import Sketch

ROOT = Path(__file__).resolve().parent.parent
SHARES = {"even": (0.34, 0.67), "uneven": (0.02, 0.9), "one is empty": (0.4, 0.4), "two are empty": (0.0, 1.0)}


def rows_of(group, X, shares):
    """The rows of this process: neighbouring ones of a shuffled order."""
    rank, n = dist.get_rank(group), len(X)
    order = np.random.default_rng(7).permutation(n)
    ends = [0, *(int(n * share) for share in shares), n]
    return order[ends[rank] : ends[rank + 1]]


def fitted(group, model, X, shares, arguments, spoil=None, batch=None):
    """A fitted explainer, and the rows that it was given, in batches of some size or at once."""
    rows = rows_of(group, X, shares)
    own = {name: value if name == "centers" else value[rows] for name, value in arguments.items()}
    mine = X[rows]
    if spoil is not None and dist.get_rank(group) == 1:
        mine = mine[:, :3] if spoil == "columns" else np.where(mine > 3, np.nan, mine)

    def batches():
        return (mine[first : first + batch] for first in range(0, len(mine), batch))

    return model.fit(mine if batch is None else batches, group=group, **own), rows


def table(dtype, n=120, seed=0):
    """Groups of points, some columns coarse, so that there are ties."""
    X, labels = make_blobs(n, n_features=5, centers=6, cluster_std=2.5, random_state=seed)
    X[:, 1:3] = X[:, 1:3].round()
    return (X * 8).round().clip(-100, 100).astype(dtype) if dtype is np.int8 else X.astype(dtype), labels


def results(answers):
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    return answers


def assert_that_of_one_process(ranks, model, X, shares, arguments):
    one = deepcopy(model).fit(X, **arguments)
    for many, rows in results(ranks(fitted, model, X, SHARES[shares], arguments)):
        assert_same(one, many, costs=0)
        assert np.array_equal(many.labels_, one.labels_[rows])
        assert len(rows) == 0 or np.array_equal(many.predict(X[rows]), one.labels_[rows])
        assert len(rows) == 0 or many.score(X[rows]) == one.score(X[rows])
    return one


@pytest.mark.filterwarnings("ignore:the tree has no points in clusters", "ignore:labels has")
@pytest.mark.parametrize(
    ("model", "shares", "dtype", "max_bins"),
    in_turns([*GROUPED, IMM(), IMM()], SHARES, [np.float64, np.float32, np.int8], [None, None, None, None, 16]),
    ids=str,
)
def test_the_tree_is_that_of_one_process(ranks, model, shares, dtype, max_bins):
    """Whatever it is given: centers, labels, or labels with noise and weights, some of which are 0."""
    X, labels = table(dtype, seed=1)
    weight = np.random.default_rng(0).random(len(X)) * (np.arange(len(X)) % 7 > 0)
    noisy = {"labels": np.where(np.arange(len(X)) % 11 == 3, -1, labels), "sample_weight": weight}
    centers = KMeans(6, n_init=1, random_state=0).fit(X).cluster_centers_
    model = clone(model).set_params(**{} if max_bins is None else {"max_bins": max_bins})
    everything = [{"centers": centers}, {"labels": labels}, noisy]
    for arguments in everything[: 2 if "Random" in str(model) else 3]:  # whose costs of trials are rounded
        assert_that_of_one_process(ranks, model, X, shares, arguments)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int8])
def test_centers_become_the_values_of_other_processes(ranks, dtype):
    X, labels = table(np.float64)
    X = (X.round(1) if dtype is np.float64 else X.round()).astype(dtype)
    labels[::20] = np.arange(6, 12)  # clusters of one point, which few processes have
    weights = np.random.default_rng(0).integers(1, 10, len(X)) / 10
    for arguments in ({"labels": labels}, {"labels": labels, "sample_weight": weights}):
        one = assert_that_of_one_process(ranks, EMN(), X, "one is empty", arguments)
        assert (one.tree_.samples[one.tree_.leaves] > 0).all()


def test_kmeans_is_the_default_reference(ranks):
    X = load_wine().data
    X = (X - X.mean(0)) / X.std(0)
    one = ExShallow(3, random_state=0).fit(X)
    answers = results(ranks(fitted, ExShallow(3, random_state=0), X, SHARES["uneven"], {}))
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


def sketched(group, X, shares):
    """The sketch of all rows and its bins; `group` is None for a process alone."""
    sketch = Sketch(X.shape[1], 20)
    sketch.add(torch.from_numpy(X[rows_of(group, X, shares)] if group is not None else X))
    sketch = sketch.merged(Ranks(group))
    bins = sketch.bins(torch.zeros(2, X.shape[1]), torch.float64, torch.tensor(1))
    return *sketch.sample(), sketch.few, bins.edge, bins.low, bins.high, bins.size, bins.centers


@pytest.mark.parametrize("shares", SHARES)
def test_sketches_of_several_processes(ranks, shares):
    rng = np.random.default_rng(5)
    X = np.stack([rng.normal(size=400), rng.integers(-3, 4, 400), rng.normal(size=400).round(1)], 1)
    expected = sketched(None, X, None)
    for found in results(ranks(sketched, X, SHARES[shares])):
        assert all(map(torch.equal, found, expected))


@pytest.mark.parametrize(("model", "shares"), in_turns(STREAMED, ["uneven", "one is empty"]), ids=str)
def test_streams_of_several_processes(ranks, model, shares):
    """The same tree as from memory in one process, with the same bins."""
    X, labels = table(np.float32)
    model = clone(model).set_params(max_bins=32)
    for arguments in ({"centers": X[:5]}, {"labels": labels}):
        one, alone = (clone(model).fit(given, **arguments) for given in (X, lambda: iter([X])))
        for many, rows in results(ranks(fitted, model, X, SHARES[shares], arguments, None, 37)):
            assert_same(many, one)
            assert_same(many, alone)
            assert np.array_equal(many.cluster_centers_, alone.cluster_centers_)
            assert np.array_equal(many.labels_, one.labels_[rows])


@pytest.mark.parametrize(
    ("spoil", "message"), [("NaN", "rank 1 of 3"), ("columns", "columns differs|rank 1 of 3")]
)
def test_a_stream_that_one_process_spoils(ranks, spoil, message):
    X, _ = table(np.float32)
    arguments = {"centers": X[:5]} if spoil == "NaN" else {"labels": np.arange(len(X)) % 3}
    for error in ranks(fitted, CART(), X, SHARES["even"], arguments, spoil, 37):
        assert isinstance(error, ValueError)
        assert re.search(message, str(error)), str(error)


# --- errors --------------------------------------------------------------------------------------------------


def spoiled(group, what):
    """A fit that one process of three spoils."""
    X, labels = table(np.float64, 60)
    if what == "no rows":
        X = np.empty((0, 5))
    rows = rows_of(group, X, SHARES["one is empty" if what in ("base", "text") else "even"])
    X, labels, model, arguments = X[rows], labels[rows], IMM(4), {"centers": np.eye(4, 5)}
    if what in ALL_SPOIL:
        model, given = ALL_SPOIL[what]
        return model.fit(X, **{"group": group} | given)
    if what == "base":
        own = table(np.float64, 60)
        tree = IMM().fit(own[0], labels=own[1] if dist.get_rank(group) != 1 else (own[0][:, 0] > 0) * 1).tree_
        model, arguments = ExKMC(base=tree), {"centers": own[0][:6]}
    elif dist.get_rank(group) == 1 and what != "no rows":
        X, arguments, model = {
            "NaN": (np.where(X > 3, np.nan, X), arguments, model),
            "columns": (X[:, :3], {"centers": np.eye(4, 3)}, model),
            "types": (X.astype(np.float32), arguments, model),
            "centers": (X, {"centers": np.eye(4, 5) + 1e-9}, model),
            "text": (X, {"centers": [["a"] * 5]}, model),
            "parameters": (X, arguments, IMM(4, max_leaves=6)),
            "arguments": (X, {"labels": labels}, model),
            "weights": (X, {**arguments, "sample_weight": np.ones(len(X))}, model),
            "shape": (np.arange(5.0), arguments, model),
            "models": (X, arguments, EMN(4)),
            "both": (X, {**arguments, "labels": labels}, model),
            "invalid parameters": (X, arguments, IMM(4, max_bins=1)),
            "batches": (lambda: iter([X]), arguments, model),
        }[what]
    return model.fit(X, group=group, **arguments)


ALL_SPOIL = {
    "groups": (ExShallow(4), {"group": "all", "centers": np.eye(4, 5)}),
    "an unfitted reference": (IMM(reference=KMeans(3)), {}),
    "graphs": (CUBT(4), {}),
    "spectral": (ExKMC(4, reference="spectral"), {}),
}


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("NaN", "NaN.*on rank 1 of 3"),
        ("columns", "centers differs between processes: .*5.*on rank 0, .*3.*on rank 1"),
        ("types", "the dtype of X differs between processes: torch.float64 on rank 0, torch.float32 on rank 1"),
        ("centers", "centers differs between processes"),
        ("text", "centers can't be read as an array of numbers.*on rank 1 of 3"),
        ("parameters", "model differs between processes: IMM.*'max_leaves': None.*'max_leaves': 6"),
        ("arguments", "centers differs between processes: given on rank 0, missing on rank 1"),
        ("weights", "sample_weight differs between processes: missing on rank 0, given on rank 1"),
        ("shape", "on rank 1 of 3"),
        ("models", "model differs between processes: IMM.*EMN"),
        ("both", "fit takes labels or centers, not both.*on rank 1 of 3"),
        ("invalid parameters", "max_bins needs.*on rank 1 of 3"),
        ("batches", "X is read in batches by some processes and in memory by others"),
        ("base", "base differs between processes: a tree of 6 leaves"),
        ("groups", "group needs a process group"),
        ("an unfitted reference", "reference in a group needs to be fitted"),
        ("graphs", "CUBT takes no group: finding its own clusters takes all points"),
        ("spectral", "reference in a group needs"),
        ("no rows", "^X is empty: no rank of the group has rows$"),
    ],
)
def test_what_one_process_spoils_is_an_error_of_all(ranks, what, message):
    for error in ranks(spoiled, what):
        assert isinstance(error, ValueError)
        assert re.search(message, str(error)), str(error)


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


def broken_off(group, X, centers):
    """A fit in which one process ends at the third search."""
    import os

    from neonxc.trees.cuts.search import Search

    searched, best = [], Search.best

    def counted(search, node):
        searched.append(node.id)
        if len(searched) == 3 and dist.get_rank(group) == 1:
            os._exit(1)
        return best(search, node)

    Search.best = counted
    return ExShallow(max_leaves=9).fit(X[rows_of(group, X, SHARES["uneven"])], centers=centers, group=group)


def test_a_process_that_dies_within_a_fit():
    X, _ = table(np.float64)
    processes, start = Processes(3, timeout=20), time.perf_counter()
    try:
        answers = processes(broken_off, X, X[:6])
    finally:
        processes.close()
    assert time.perf_counter() - start < 60
    assert isinstance(answers[1], EOFError)
    for error in answers[::2]:
        assert isinstance(error, RuntimeError)
        assert "another process of the group has ended" in str(error)


# --- what is sent --------------------------------------------------------------------------------------------


def calls(group, model, X, centers):
    """How often processes communicate in a fit."""
    counted, reduce = [], Ranks._reduced

    def counting(self, values, operation):
        counted.append(values.numel() * values.element_size())
        return reduce(self, values, operation)

    Ranks._reduced = counting
    try:
        model(max_leaves=None).fit(X[rows_of(group, X, SHARES["even"])], centers=centers, group=group)
    finally:
        Ranks._reduced = reduce
    return len(counted), sum(counted)


def test_few_and_small_reductions(ranks):
    """16 clusters on a grid: 4 levels, 15 cuts."""
    X = np.stack(np.meshgrid(*[np.arange(32)] * 2), -1).reshape(-1, 2).astype(np.float64)
    centers = np.stack(np.meshgrid(*[np.arange(4) * 8 + 3.6] * 2), -1).reshape(-1, 2)
    for model, most in ((IMM, 120), (ExGreedy, 240)):
        number, sent = ranks(calls, model, X, centers)[0]
        assert number <= most
        assert sent < 100_000


def run_example(group):
    """The example in this process, which is in its group already; what it prints."""
    with (
        contextlib.redirect_stdout(io.StringIO()) as out,
        mock.patch.object(sys, "path", [str(ROOT / "examples"), *sys.path]),
        mock.patch.multiple(dist, init_process_group=mock.DEFAULT, destroy_process_group=mock.DEFAULT),
    ):
        import distributed

        distributed.main(rows=0, quick=True)
    return out.getvalue()


def test_the_example(ranks):
    said = results(ranks(run_example))
    assert "one process with all rows grows the same tree: True" in said[0]
    assert said[1:] == ["", ""]


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
