"""Trees of rows that are distributed over processes: bit for bit those of one process."""

import contextlib
import io
import os
import re
import subprocess
import sys
import time
from itertools import cycle, product
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
import torch.distributed as dist
from processes import Processes
from sklearn.cluster import KMeans
from sklearn.datasets import load_wine, make_blobs
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from neonxc.common.processes import Ranks
from neonxc.trees import CART, CUBT, EMN, IMM, ExGreedy, ExKMC, ExShallow, KDTree, RandomThresholds, SpExClique
from neonxc.trees.cuts.bins import Sketch

ROOT = Path(__file__).resolve().parent.parent
REFINED = {
    "refined": (IMM, {"refine": True}),
}
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
    "RandomThresholds": (RandomThresholds, {"random_state": 0, "n_trials": 10}),
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


def assert_equal(one, many):
    for name in EXACT:
        ours, theirs = getattr(many.tree_, name), getattr(one.tree_, name)
        assert torch.equal(ours.nan_to_num(nan=7.0), theirs.nan_to_num(nan=7.0)), name
    assert np.array_equal(many.cluster_centers_, one.cluster_centers_)
    assert many.inertia_ == one.inertia_


@pytest.mark.parametrize(
    ("name", "shares"), [*zip(EXPLAINERS, cycle(SHARES), strict=False), *product(["IMM"], list(SHARES)[1:])]
)
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


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int8])
def test_centers_become_the_values_of_other_processes(ranks, dtype):
    X, labels = table(np.float64)
    X = (X.round(1) if dtype is np.float64 else X.round()).astype(dtype)
    labels[::20] = np.arange(6, 12)  # clusters of one point, which few processes have
    weights = np.random.default_rng(0).integers(1, 10, len(X)) / 10
    for arguments in ({"labels": labels}, {"labels": labels, "sample_weight": weights}):
        one = EMN().fit(X, **arguments)
        assert (one.tree_.samples[one.tree_.leaves] > 0).all()
        for many, _ in results(ranks(fitted, EMN, {}, X, SHARES["one is empty"], arguments)):
            assert_equal(one, many)


@pytest.mark.parametrize("name", REFINED)
def test_refined_trees(ranks, name):
    model, parameters = REFINED[name]
    X, labels = table(np.float64)
    arguments = {"labels": labels, "sample_weight": np.random.default_rng(0).random(len(X))}
    one = model(**parameters).fit(X, **arguments)
    for many, _ in results(ranks(fitted, model, parameters, X, SHARES["uneven"], arguments)):
        assert_equal(one, many)


@pytest.mark.parametrize(
    ("name", "dtype", "max_bins"),
    [
        ("IMM", np.float32, 16),
        ("IMM", np.int8, None),
        ("ExShallow", np.int8, 16),
        ("ExShallow", np.float32, None),
        ("CART", np.float64, 16),
        ("ExKMC", np.float64, None),
    ],
)
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


def test_kmeans_is_the_default_reference(ranks):
    X = load_wine().data
    X = (X - X.mean(0)) / X.std(0)
    one = ExShallow(3, random_state=0).fit(X)
    answers = results(ranks(fitted, ExShallow, {"n_clusters": 3, "random_state": 0}, X, SHARES["uneven"], {}))
    for many, _ in answers:
        assert_equal(answers[0][0], many)
        assert many.inertia_ <= 1.05 * one.inertia_


@pytest.mark.parametrize(("name", "scaled"), [("IMM", True), ("ExShallow", True), ("KDTree", False)])
def test_a_fitted_clusterer_is_a_reference(ranks, name, scaled):
    """With its own centers, and behind its own scaler."""
    X, _ = table(np.float64)
    X[:, 0] *= 30
    reference = KMeans(5, n_init=1, random_state=0)
    reference = (make_pipeline(StandardScaler(), reference) if scaled else reference).fit(X)
    parameters = EXPLAINERS[name][1] | {"reference": reference}
    one = EXPLAINERS[name][0](**parameters).fit(X)
    for many, rows in results(ranks(fitted, EXPLAINERS[name][0], parameters, X, SHARES["one is empty"], {})):
        assert_equal(one, many)
        assert len(rows) == 0 or many.score(X[rows]) == one.score(X[rows])


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


def streamed(group, model, parameters, X, shares, arguments, spoil=None):
    """A tree of batches that every process reads on its own."""
    rows = rows_of(group, X, shares)
    own = {name: value if name == "centers" else value[rows] for name, value in arguments.items()}
    mine = X[rows]
    if spoil is not None and dist.get_rank(group) == 1:
        mine = mine[:, :3] if spoil == "columns" else np.where(mine > 3, np.nan, mine)

    def batches():
        return (mine[first : first + 37] for first in range(0, len(mine), 37))

    return model(**parameters).fit(batches, group=group, **own), rows


@pytest.mark.parametrize(
    ("name", "shares"),
    [*zip(["IMM", "ExShallow", "CART", "ExKMC", "SpExClique"], cycle(["uneven", "one is empty"]), strict=False)],
)
def test_streams_of_several_processes(ranks, name, shares):
    """The same tree as from memory in one process, with the same bins."""
    model, parameters = EXPLAINERS[name]
    parameters = {**parameters, "max_bins": 32}
    X, labels = table(np.float32)
    for arguments in ({"centers": X[:5]}, {"labels": labels}):
        one = model(**parameters).fit(X, **arguments)
        alone = model(**parameters).fit(lambda: iter([X]), **arguments)
        for many, rows in results(ranks(streamed, model, parameters, X, SHARES[shares], arguments)):
            for tree in (one.tree_, alone.tree_):
                assert torch.equal(many.tree_.feature, tree.feature)
                assert torch.equal(many.tree_.threshold.nan_to_num(), tree.threshold.nan_to_num())
                assert torch.equal(many.tree_.samples, tree.samples)
            assert np.array_equal(many.cluster_centers_, alone.cluster_centers_)
            assert np.array_equal(many.labels_, one.labels_[rows])


@pytest.mark.parametrize(
    ("spoil", "message"), [("NaN", "rank 1 of 3"), ("columns", "columns differs|rank 1 of 3")]
)
def test_a_stream_that_one_process_spoils(ranks, spoil, message):
    X, _ = table(np.float32)
    arguments = {"centers": X[:5]} if spoil == "NaN" else {"labels": np.arange(len(X)) % 3}
    for error in ranks(streamed, CART, {}, X, SHARES["even"], arguments, spoil):
        assert isinstance(error, ValueError)
        assert re.search(message, str(error)), str(error)


# --- errors --------------------------------------------------------------------------------------------------


def spoiled(group, what):
    """A fit that one process of three spoils."""
    X, labels = table(np.float64, 60)
    rows, rank = rows_of(group, X, SHARES["even"]), dist.get_rank(group)
    X, labels, model, arguments = X[rows], labels[rows], IMM(4), {"centers": X[:4]}
    if what == "groups":
        return ExShallow(4).fit(X, group="all", centers=X[:4])
    if what == "an unfitted reference":
        return IMM(reference=KMeans(3)).fit(X, group=group)
    if what == "graphs":
        return CUBT(4).fit(X, group=group)
    if what == "medians":
        return ExKMC(4).set_params(reference="spectral").fit(X, group=group)
    if rank == 1:
        X, arguments, model = {
            "NaN": (np.where(X > 3, np.nan, X), arguments, model),
            "columns": (X[:, :3], {"centers": X[:4, :3]}, model),
            "types": (X.astype(np.float32), arguments, model),
            "centers": (X, {"centers": X[:4] + 1e-9}, model),
            "parameters": (X, arguments, IMM(4, max_leaves=6)),
            "arguments": (X, {"labels": labels}, model),
            "weights": (X, {**arguments, "sample_weight": np.ones(len(X))}, model),
            "shape": (X[0], arguments, model),
            "models": (X, arguments, EMN(4)),
            "both": (X, {**arguments, "labels": labels}, model),
            "invalid parameters": (X, arguments, IMM(4, max_bins=1)),
            "batches": (lambda: iter([X]), arguments, model),
        }[what]
    return model.fit(X, group=group, **arguments)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("NaN", "NaN.*on rank 1 of 3"),
        ("columns", "centers differs between processes: .*5.*on rank 0, .*3.*on rank 1"),
        ("types", "the dtype of X differs between processes: torch.float64 on rank 0, torch.float32 on rank 1"),
        ("centers", "centers differs between processes"),
        ("parameters", "model differs between processes: IMM.*'max_leaves': None.*'max_leaves': 6"),
        ("arguments", "centers differs between processes: given on rank 0, missing on rank 1"),
        ("weights", "sample_weight differs between processes: missing on rank 0, given on rank 1"),
        ("models", "model differs between processes: IMM.*EMN"),
        ("both", "fit takes labels or centers, not both.*on rank 1 of 3"),
        ("invalid parameters", "max_bins needs.*on rank 1 of 3"),
        ("batches", "X is read in batches by some processes and in memory by others"),
        ("groups", "group needs a process group"),
        ("an unfitted reference", "reference in a group needs to be fitted"),
        ("graphs", "CUBT takes no group: finding its own clusters takes all points"),
        ("medians", "reference in a group needs"),
    ],
)
def test_what_one_process_spoils_is_an_error_of_all(ranks, what, message):
    for error in ranks(spoiled, what):
        assert isinstance(error, ValueError)
        assert re.search(message, str(error)), str(error)


def spoiled_in_part(group, what):
    """A fit of which one process has something that the others have not; they communicate on regardless."""
    X, labels = table(np.float64, 60)
    rows, rank = rows_of(group, X, SHARES["one is empty"]), dist.get_rank(group)
    own = X[rows], labels[rows]
    if what == "centers":
        return IMM().fit(own[0], centers=[["a"] * 5] if rank == 1 else X[:4], group=group)
    if what == "base":
        tree = IMM().fit(X, labels=labels if rank != 1 else (X[:, 0] > 0) * 1).tree_
        return ExKMC(base=tree).fit(own[0], centers=X[:6], group=group)


@pytest.mark.parametrize(
    ("what", "kind", "message"),
    [
        ("centers", ValueError, "centers can't be read as an array of numbers.*on rank 1 of 3"),
        ("base", ValueError, "base differs between processes: a tree of 6 leaves"),
    ],
)
def test_what_only_some_processes_find_out(ranks, what, kind, message):
    for error in ranks(spoiled_in_part, what):
        assert isinstance(error, kind)
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
    one = IMM().fit(X, **arguments)
    for many, _ in results(ranks(fitted, IMM, {}, X, SHARES["uneven"], arguments)):
        assert_equal(one, many)


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


def test_no_rows_at_all(ranks):
    X = np.empty((0, 3))
    for error in ranks(fitted, IMM, {}, X, SHARES["even"], {"centers": np.eye(3)}):
        assert str(error) == "X is empty: no rank of the group has rows"


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
