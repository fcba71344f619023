"""Every explainer fits the trees that were recorded; `recorded_trees.py` tells how to record others."""

import gzip
import json
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
from recorded_trees import built, fitted, groups, name_of

import neonxc.trees

FILE = Path(__file__).parent / "data" / "recorded_trees.json.gz"
SHOWN = 10  # differences of a group, of which there may be many


@pytest.fixture(scope="module")
def recorded():
    return json.loads(gzip.decompress(FILE.read_bytes()))


def same(then, now):
    """Whether lists of tests, samples, mistakes and thresholds differ by no more than rounding."""
    samples = then[1][0]
    threshold = max(map(abs, then[3]), default=0.0)
    return all(
        len(one) == len(other) and np.allclose(one, other, rtol=1e-9, atol=1e-12 * size)
        for one, other, size in zip(then, now, (0, samples, samples, threshold), strict=True)
    )


@pytest.mark.parametrize("group", groups())
@pytest.mark.parametrize("part", ["a fifth", pytest.param("the others", marks=pytest.mark.slow)])
def test_trees_are_as_recorded(group, part, recorded):
    trees = recorded["trees"][group]
    different = []
    fits = groups()[group]
    assert [name_of(fit) for fit in fits] == list(trees), "the cases are others: record them again"
    fits = [fit for place, fit in enumerate(fits) if (place % 5 == 0) == (part == "a fifth")]
    for fit in fits:
        name = name_of(fit)
        case = fit[2]
        assert built(case)[2] == recorded["data"][str(case)], f"the data of {case} are not those recorded"
        found = fitted(neonxc.trees, fit)
        if not same(trees[name], found):
            different.append(f"{name}: recorded {trees[name]}; now {found}")
    lines = "\n  ".join(different[:SHOWN])
    assert not different, f"{len(different)} of {len(fits)} fits differ from those recorded:\n  {lines}"


def test_all_groups_are_recorded(recorded):
    assert list(recorded["trees"]) == list(groups())


@pytest.mark.parametrize(("column", "place", "value"), [(0, 2, 1), (1, 4, 3), (2, 3, 1e-9), (3, 1, -4.50000001)])
def test_a_difference_is_noticed(column, place, value):
    tree = [[2, -1, 0, -3, -2], [9, 3, 6, 2, 4], [1, 0, 1, 0, 1], [0.75, -4.5]]
    changed = deepcopy(tree)
    changed[column][place] = value
    assert not same(tree, changed)
    changed[column][place] = tree[column][place] * (1 + 1e-14)
    assert same(tree, changed)
