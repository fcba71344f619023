"""Sums over processes, errors that all of them raise, and trees of shards that are those of all points."""

import gc

import numpy as np
import pytest
import torch
import torch.distributed as dist
from sklearn.base import clone
from test_tree_explainers import limits
from tree_witnesses import assert_same, data

import neonxc
from neonxc.common.processes import Ranks
from neonxc.models import KernelKMeans
from neonxc.trees import CART, EMN, IMM, ExGreedy, ExKMC, ExShallow, KDTree, SpExClique


def reductions(group):
    ranks = Ranks(group)
    own = torch.tensor([ranks.rank, 1, -5 * ranks.rank])
    return ranks.rank, ranks.size, *[f(own).tolist() for f in (ranks.sum, ranks.max, ranks.min)], own.tolist()


def types(group):
    ranks = Ranks(group)
    kinds = (torch.bool, torch.uint8, torch.int16, torch.int32, torch.float32, torch.float64)
    own = torch.tensor([ranks.rank == 1, False])
    found = [ranks.max(own.to(kind)) for kind in kinds]
    return [most.tolist() == [1, 0] and most.dtype == kind for most, kind in zip(found, kinds, strict=True)]


def gathered(group):
    ranks = Ranks(group)
    rows = torch.full((ranks.rank, 2), float(ranks.rank))
    parts = ranks.gather(rows)
    return [part.tolist() for part in parts], [part.shape for part in ranks.gather(rows[:0])]


def texts(group):
    return Ranks(group).texts("é" * dist.get_rank(group))


def failing(group, kind):
    ranks = Ranks(group)
    with ranks.agreed():
        if ranks.rank == 1:
            raise kind("X holds NaN")


def differing(group):
    ranks = Ranks(group)
    ranks.same(columns=3, dtype="float64" if ranks.rank < 2 else "float32")


MODELS = [IMM(), EMN(), ExGreedy(), ExShallow(), CART(), ExKMC(max_leaves=6), KDTree(), SpExClique()]


def still_held(group):
    """Objects that hold the group after everything that takes one has run, without garbage collection.

    A group that is still held when its process ends is destroyed after the interpreter: its threads then abort.
    """
    generator = np.random.default_rng(dist.get_rank(group))
    X = generator.normal(size=(40, 3))
    labels = np.arange(40) % 3
    gc.collect()
    gc.disable()
    try:
        for model in MODELS:
            clone(model).fit(X, labels=labels, group=group)
        model = KernelKMeans(3, 1, n_init=1, random_state=0).fit(X, group=group)
        neonxc.neuralize(model).calibrate(X, group=group)
        return [type(held).__name__ for held in gc.get_objects() if type(held) is Ranks and not held.alone]
    finally:
        gc.enable()


def fitted(group, path, arguments):
    """Trees of this process's rows, few or many, by some way through the code."""
    own = [slice(0, 2), slice(2, 20), slice(20, None)][dist.get_rank(group)]
    arguments = {name: value[own] for name, value in arguments.items()}
    with limits(path):
        return [clone(model).fit(group=group, **arguments) for model in MODELS]


def test_reductions(ranks):
    for number, (rank, size, total, most, least, own) in enumerate(ranks(reductions)):
        assert (rank, size, own) == (number, 3, [number, 1, -5 * number])
        assert (total, most, least) == ([3, 3, -15], [2, 1, 0], [0, 1, -10])


def test_types(ranks):
    assert ranks(types) == [[True] * 6] * 3


def test_rows_of_different_number(ranks):
    expected = [[], [[1.0, 1.0]], [[2.0, 2.0], [2.0, 2.0]]], [(0, 2)] * 3
    assert ranks(gathered) == [expected] * 3


def test_nothing_holds_a_group_that_has_been_used(ranks):
    assert ranks(still_held) == [[], [], []]


def test_texts(ranks):
    assert ranks(texts) == [["", "é", "éé"]] * 3


@pytest.mark.parametrize("kind", [ValueError, TypeError, KeyError])
def test_an_error_of_one_process_is_raised_by_all(ranks, kind):
    for error in ranks(failing, kind):
        assert isinstance(error, RuntimeError if kind is KeyError else kind)
        assert "X holds NaN" in str(error)
        assert "on rank 1 of 3" in str(error)


def test_what_differs_is_named(ranks):
    assert {str(error) for error in ranks(differing)} == {
        "dtype differs between processes: float64 on rank 0, float32 on rank 2"
    }


@pytest.mark.filterwarnings("ignore:the tree has no points in clusters")
@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("grid", "bins"),
        ("fine", "few_centers_in_chunks"),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in (("fine", "chunks"), ("grid", "small_cache"))),
    ],
)
def test_trees_of_all_ways_through_the_code(ranks, path, kind):
    case = data(3, 50, 3, 4, kind=kind, random_labels=True)
    arguments = {"X": case.X, "labels": case.labels, "sample_weight": np.random.default_rng(0).random(50)}
    one = [clone(model).fit(**arguments) for model in MODELS]
    for many in ranks(fitted, path, arguments):
        for alone, shared in zip(one, many, strict=True):
            assert_same(alone, shared, costs=1e-12)


def test_a_process_alone_needs_no_group():
    alone = Ranks()
    values = torch.ones(2)
    assert alone.alone
    assert alone.sum(values) is values
    assert alone.gather(values)[0] is values
    assert alone.texts("a") == ["a"]
    with pytest.raises(KeyError), alone.agreed():
        raise KeyError("as it is")


def test_what_is_no_group():
    with pytest.raises(ValueError, match="group needs a process group"):
        Ranks("world")
