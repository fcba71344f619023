"""Every explainer fits the trees that were recorded; `recorded_trees.py` tells how to record others."""

import gzip
import json
from copy import deepcopy
from math import isclose
from pathlib import Path

import pytest
from recorded_trees import built, fitted, groups, name_of

import neonxc.trees

FILE = Path(__file__).parent / "data" / "recorded_trees.json.gz"
SHOWN = 10  # differences of a group, of which there may be many


@pytest.fixture(scope="module")
def recorded():
    return json.loads(gzip.decompress(FILE.read_bytes()))


def nodes(columns):
    """Test, threshold (0 of a leaf), samples and mistakes of every node."""
    tests, samples, mistakes, thresholds = columns
    thresholds = iter(thresholds)
    between = [next(thresholds) if test >= 0 else 0.0 for test in tests]
    return list(zip(tests, between, samples, mistakes, strict=True))


def told(node):
    test, threshold, samples, mistakes = node
    what = f"x[{test}] <= {threshold:.12g}" if test >= 0 else f"leaf of cluster {-1 - test}"
    return f"{what}, {samples:.12g} samples, {mistakes:.12g} mistakes"


def difference(then, now):
    """The first node, in preorder, in which two trees differ by more than rounding; empty if there is none."""
    samples, threshold = then[1][0], max(map(abs, then[3]), default=0.0)
    rounding = [1e-12 * size for size in (0, threshold, samples, samples)]
    for place, (one, other) in enumerate(zip(nodes(then), nodes(now), strict=False)):
        close = [isclose(a, b, rel_tol=1e-9, abs_tol=c) for a, b, c in zip(one, other, rounding, strict=True)]
        if not all(close):
            return f"node {place}: recorded {told(one)}; now {told(other)}"
    return ""


@pytest.mark.parametrize("group", groups())
@pytest.mark.parametrize("part", ["a third", pytest.param("the others", marks=pytest.mark.slow)])
def test_trees_are_as_recorded(group, part, recorded):
    trees, different = recorded["trees"][group], []
    fits = groups()[group]
    assert [name_of(fit) for fit in fits] == list(trees), "the cases are others: record them again"
    fits = [fit for place, fit in enumerate(fits) if (place % 3 == 0) == (part == "a third")]
    for fit in fits:
        name, case = name_of(fit), fit[2]
        assert built(case)[2] == recorded["data"][str(case)], f"the data of {case} are not those recorded"
        try:
            found = difference(trees[name], fitted(neonxc.trees, fit))
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
        if found:
            different.append(f"{name}: {found}")
    lines = "\n  ".join(different[:SHOWN])
    assert not different, f"{len(different)} of {len(fits)} fits differ from those recorded:\n  {lines}"


def test_all_groups_are_recorded(recorded):
    assert list(recorded["trees"]) == list(groups())


TREE = [[2, -1, 0, -3, -2], [9, 3, 6, 2, 4], [1, 0, 1, 0, 1], [0.75, -4.5]]


@pytest.mark.parametrize(
    ("column", "place", "value", "told"),
    [
        (0, 2, 1, "node 2: recorded x[0] <= -4.5, 6 samples, 1 mistakes; now x[1] <= -4.5, 6 samples, 1 mistakes"),
        (0, 1, -2, "node 1: recorded leaf of cluster 0, 3 samples, 0 mistakes; now leaf of cluster 1"),
        (1, 4, 3, "node 4"),
        (2, 3, 1e-9, "node 3"),
        (3, 1, -4.50000001, "node 2"),
        (3, 1, -4.5000000000001, ""),
        (2, 3, 1e-15, ""),
    ],
)
def test_difference_names_the_first_node(column, place, value, told):
    changed = deepcopy(TREE)
    changed[column][place] = value
    found = difference(TREE, changed)
    assert found.startswith(told)
    assert bool(found) == bool(told)
