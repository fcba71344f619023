"""Codes of columns and the sweep over all cuts of a node, against loops."""

from contextlib import ExitStack
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tree_witnesses import ceil_div, data, eval_wad

from neonxc.trees.criteria.depth import estimated_depth
from neonxc.trees.cuts import codes as codes_module
from neonxc.trees.cuts import histograms
from neonxc.trees.cuts import ranks as ranks_module
from neonxc.trees.cuts.codes import code_columns
from neonxc.trees.cuts.exact_sums import rounded
from neonxc.trees.cuts.histograms import transposed
from neonxc.trees.cuts.nodes import between
from neonxc.trees.fit import points as matrix_module
from neonxc.trees.fit.sparse_points import as_points

seeds = st.integers(0, 2**32 - 1)
INTEGER_TYPES = [torch.uint8, torch.int16, torch.int32, torch.int64]


def problem(seed, f=None, n=None, k=None, bins=None, dtype=torch.int64, weighted=False):
    """Random codes, labels, centers' codes and weights."""
    rng = np.random.default_rng(seed)
    f, n = f or int(rng.integers(1, 5)), int(rng.integers(1, 40)) if n is None else n
    k, bins = k or int(rng.integers(1, 6)), bins or int(rng.integers(1, 12))
    codes = torch.from_numpy(rng.integers(0, bins, (f, n))).to(dtype)
    labels, centers = torch.from_numpy(rng.integers(0, k, n)), torch.from_numpy(rng.integers(0, bins, (f, k)))
    weight = torch.from_numpy(rng.integers(0, 5, n) / 4) if weighted else None
    return codes, bins, labels, k, centers, weight


def masses(labels, weight):
    return [1] * len(labels) if weight is None else weight.tolist()


def slow_separated(codes, bins, labels, centers, weight):
    result = np.zeros((len(codes), bins))
    mass = masses(labels, weight)
    for f in range(len(codes)):
        for b in range(bins):
            for i in range(len(labels)):
                if (codes[f, i] <= b) != (centers[f, labels[i]] <= b):
                    result[f, b] += mass[i]
    return result


# --- codes -------------------------------------------------------------------------------------------------


@given(
    seeds,
    st.integers(1, 40),
    st.integers(1, 5),
    st.integers(1, 6),
    st.sampled_from(["grid", "fine"]),
    st.sampled_from([np.float32, np.float64, np.float16, np.int8, np.uint8, np.int16, np.int64]),
    st.booleans(),
    st.booleans(),
)
def test_codes_order_points_and_centers_as_their_values_do(seed, n, d, k, kind, dtype, sorts, in_bins):
    case = data(seed, n, d, k, kind=kind, dtype=dtype)
    centers = torch.from_numpy(case.centers)
    bins = {"FEW": 3, "COARSE": 3, "HISTOGRAM": 1} if in_bins else {"FEW": codes_module.FEW}
    with ExitStack() as patches:
        patches.enter_context(mock.patch.multiple(codes_module, **bins))
        patches.enter_context(mock.patch.object(ranks_module, "INTEGERS", 0 if sorts else 1 << 10))
        patches.enter_context(mock.patch.object(matrix_module, "CHUNK", 2 * len(case.X)))
        found, _ = code_columns(as_points(torch.from_numpy(case.X)), centers)
    values = np.concatenate([case.values, case.centers])
    codes = torch.stack([found.column(f).to(torch.int64) for f in range(d)])
    ranks_of = torch.cat([codes, found.centers], 1).numpy()
    assert ranks_of.min() >= 0
    assert (ranks_of.max(1) < found.size.numpy()).all()
    for column, ranks in zip(values.T, ranks_of, strict=True):
        assert np.array_equal(column[:, None] < column, ranks[:, None] < ranks)
    assert sorted(torch.cat([block.features for block in found.blocks]).tolist()) == list(range(d))
    some = torch.arange(0, len(case.X), 2)
    for block in found.blocks:
        width, own = 1 if block.width is None else block.width[:, None], codes[block.features]
        assert torch.equal(block.coarse.to(torch.int64), own.div(width, rounding_mode="floor"))
        assert torch.equal(block.centers, found.centers[block.features].div(width, rounding_mode="floor"))
        assert int(block.coarse.max()) < block.places
        assert block.width is None or bool((block.width > 1).any())
        assert torch.equal(histograms.gathered(block.coarse, some), block.coarse[:, some])
        if in_bins:
            assert block.places <= 3


@given(seeds, st.integers(2, 60), st.integers(2, 8))
def test_fewer_bins_keep_the_order_and_equal_values_together(seed, n, bins):
    case = data(seed, n, 3, 2, kind="grid" if seed % 2 else "fine")
    with mock.patch.object(ranks_module, "INTEGERS", 0):
        found, _ = code_columns(as_points(torch.from_numpy(case.X)), torch.from_numpy(case.centers), bins)
    values = np.concatenate([case.values, case.centers])
    own = torch.stack([found.column(f).to(torch.int64) for f in range(3)])
    codes = torch.cat([own, found.centers], 1).T.numpy()
    for size, column, points in zip(found.size.tolist(), values.T, case.values.T, strict=True):
        assert size == len(np.unique(column)) if len(np.unique(points)) <= bins else size <= max(bins, 3)
    for column, ranks in zip(values.T, codes.T, strict=True):
        order = np.argsort(column, kind="stable")
        assert (np.diff(ranks[order]) >= 0).all()
        assert (np.diff(ranks[order])[np.diff(column[order]) == 0] == 0).all()


@pytest.mark.parametrize("shape", [(1, 1), (3, 700), (700, 3), (257, 300)])
def test_transposed_in_blocks(shape):
    codes = torch.randint(0, 100, shape)
    assert torch.equal(transposed(codes), codes.T)


def test_codes_use_the_smallest_type():
    for bins, dtype in [(200, torch.uint8), (300, torch.int16), (40_000, torch.int32)]:
        values = torch.arange(bins, dtype=torch.float64)[:, None] / 8
        assert code_columns(as_points(values), values[:1])[0].codes[0].dtype == dtype


# --- statistics of all cuts --------------------------------------------------------------------------------


@given(seeds, st.booleans(), st.sampled_from(INTEGER_TYPES), st.sampled_from([1, 7, 280_000]))
def test_histogram_counts(seed, weighted, dtype, buffer):
    codes, bins, labels, k, _, weight = problem(seed, dtype=dtype, weighted=weighted)
    with mock.patch.object(histograms, "BUFFER", buffer):
        found = histograms.histogram(codes, bins, labels, k, weight)
    expected = np.zeros((len(codes), k, bins))
    for f in range(len(codes)):
        for i, mass in enumerate(masses(labels, weight)):
            expected[f, labels[i], codes[f, i]] += mass
    assert found.dtype == (torch.float64 if weighted else torch.int32)
    assert np.array_equal(found, expected)


@given(seeds, st.sampled_from(INTEGER_TYPES), st.sampled_from([1, 7, 280_000]))
def test_channels_sum(seed, dtype, buffer):
    codes, bins, labels, m, _, _ = problem(seed, dtype=dtype)
    values = torch.from_numpy(np.random.default_rng(seed).integers(-8, 9, (m, len(labels))) / 8)
    with mock.patch.object(histograms, "BUFFER", buffer):
        found = histograms.channels(codes, bins, values)
    expected = np.zeros((len(codes), m, bins))
    for f in range(len(codes)):
        for i in range(len(labels)):
            expected[f, :, codes[f, i]] += values[:, i].numpy()
    assert np.array_equal(found, expected)


@given(seeds, st.booleans(), st.sampled_from(INTEGER_TYPES))
def test_separated_from_their_centers(seed, weighted, dtype):
    codes, bins, labels, k, centers, weight = problem(seed, dtype=dtype, weighted=weighted)
    expected = slow_separated(codes, bins, labels, centers, weight)
    assert np.array_equal(histograms.parted(codes, bins, labels, centers, weight), expected)
    assert np.array_equal(histograms._parted_directly(codes, bins, labels, centers, weight), expected)
    lost = histograms.parted(codes, bins, labels, centers, weight, by_center=True)
    assert np.array_equal(lost.sum(1), expected)
    for one in range(k):
        own = slow_separated(
            codes[:, labels == one],
            bins,
            labels[labels == one],
            centers,
            None if weight is None else weight[labels == one],
        )
        assert np.array_equal(lost[:, one], own)


@given(seeds, st.integers(1, 5), st.booleans())
def test_no_cut_within_a_bin_separates_less_than_its_bound(seed, width, weighted):
    codes, bins, labels, _, centers, weight = problem(seed, weighted=weighted)
    coarse = ceil_div(bins, width)
    lost = histograms.parted(codes // width, coarse, labels, centers // width, weight, by_center=True)
    bound = histograms.least_within(lost).numpy()
    exact = slow_separated(codes, bins, labels, centers, weight)
    for b in range(bins):
        if (b + 1) % width:  # a cut between two codes of one bin
            assert (bound[:, b // width] <= exact[:, b]).all()


def test_the_bound_of_a_bin_counts_what_no_cut_in_it_can_save():
    codes = torch.tensor([[0] * 5 + [1] * 7 + [2] * 3])
    labels = torch.zeros(15, dtype=torch.int64)
    for center, bound in ((0, [0, 3, 0]), (1, [0, 3, 0]), (2, [0, 5, 0])):
        lost = histograms.parted(codes, 3, labels, torch.tensor([[center]]), by_center=True)
        assert histograms.least_within(lost).tolist() == [bound]


@given(seeds)
def test_centers_left(seed):
    _, bins, _, _, centers, _ = problem(seed)
    expected = [[sum(int(c) <= b for c in row) for b in range(bins)] for row in centers]
    assert histograms.centers_left(centers, bins).tolist() == expected


@given(seeds, st.sampled_from(INTEGER_TYPES))
def test_renumbered_codes_are_ranks_and_find_the_old_ones(seed, dtype):
    codes, bins, _, _, centers, _ = problem(seed, bins=100, dtype=dtype)
    new, new_centers, original = histograms.renumber_codes(codes, centers)
    assert {new.dtype, new_centers.dtype, original.dtype} == {torch.int64}
    for f in range(len(codes)):
        there = sorted(set(codes[f].tolist()) | set(centers[f].tolist()))
        assert new[f].tolist() == [there.index(value) for value in codes[f].tolist()]
        assert new_centers[f].tolist() == [there.index(value) for value in centers[f].tolist()]
        assert original[f, : len(there)].tolist() == there
    assert original.shape[1] <= bins


@given(seeds, st.integers(1, 200), st.integers(-300, 300))
def test_exact_sums_do_not_depend_on_the_order(seed, n, scale):
    rng = np.random.default_rng(seed)
    values = torch.from_numpy(rng.normal(size=(2, n)) * np.exp(rng.normal(size=n) * 5) * 2.0**scale)
    found = rounded(values)
    order = torch.from_numpy(rng.permutation(n))
    assert torch.equal(found.cumsum(1)[:, -1], found[:, order].cumsum(1)[:, -1])
    total = values.abs().sum(1, keepdim=True)
    assert ((found - values).abs() <= total * 2.0**-50).all()
    whole = torch.from_numpy(rng.integers(0, 1000, n)).double()
    assert torch.equal(rounded(whole), whole)


@pytest.mark.cuda
@pytest.mark.parametrize("weighted", [False, True])
def test_sweep_on_a_gpu_equals_the_cpu(weighted):
    codes, bins, labels, k, centers, weight = problem(3, f=4, n=500, k=5, bins=40, weighted=weighted)
    there = [None if value is None else value.cuda() for value in (codes, labels, centers, weight)]
    counts = histograms.histogram(codes, bins, labels, k, weight)
    on_gpu = histograms.histogram(there[0], bins, there[1], k, there[3])
    assert torch.equal(on_gpu.cpu(), counts)
    parted = histograms.parted(there[0], bins, there[1], there[2], there[3])
    assert torch.equal(parted.cpu(), histograms.parted(codes, bins, labels, centers, weight))
    lost = histograms.parted(there[0], bins, there[1], there[2], there[3], by_center=True)
    expected = histograms.parted(codes, bins, labels, centers, weight, by_center=True)
    assert torch.equal(lost.cpu(), expected)
    assert torch.equal(histograms.least_within(lost).cpu(), histograms.least_within(expected))
    for ours, theirs in zip(
        histograms.renumber_codes(there[0], there[2]), histograms.renumber_codes(codes, centers), strict=True
    ):
        assert torch.equal(ours.cpu(), theirs)


# --- the estimate of depth ---------------------------------------------------------------------------------


@pytest.mark.parametrize("centers", range(2, 8))
def test_estimated_depth_is_the_recursion(centers):
    for points in range(1, 13):
        grid = [(left, own) for left in range(points + 1) for own in range(1, centers)]
        left, own = (torch.tensor(values) for values in zip(*grid, strict=True))
        found = estimated_depth(left.to(torch.float64), own, float(points), centers)
        expected = [eval_wad(points, centers, a, points, b, centers) for a, b in grid]
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@given(st.integers(1, 10**6), st.integers(2, 60), st.data())
def test_estimated_depth_of_large_nodes(points, centers, draw):
    left, own = draw.draw(st.integers(0, points)), draw.draw(st.integers(1, centers - 1))
    found = estimated_depth(torch.tensor([left]).double(), torch.tensor([own]), float(points), centers)
    assert found.item() == pytest.approx(eval_wad(points, centers, left, points, own, centers), rel=1e-12)


def test_estimated_depth_of_the_paper_s_figure():
    # 4 centers, 128 points; halves: two tests for all; quarters: three levels, most points in the deepest leaf
    halves, quarters = torch.tensor([[64.0], [32.0]]).double()
    assert estimated_depth(halves, torch.tensor([2]), 128.0, 4).item() == 2
    assert estimated_depth(quarters, torch.tensor([1]), 128.0, 4).item() == (128 + 96 + 72) / 128


def test_estimated_depth_without_points_is_0():
    assert estimated_depth(torch.zeros(2, dtype=torch.float64), torch.tensor([1, 2]), 0.0, 4).tolist() == [0, 0]


# --- thresholds --------------------------------------------------------------------------------------------


@given(
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.floats(width=32, allow_nan=False, allow_infinity=False),
)
def test_the_number_between_two_floats_is_one_of_their_type(low, high):
    low, high = sorted((np.float32(low), np.float32(high)))
    if low == high:
        return
    for dtype, kind in [(torch.float32, np.float32), (torch.float64, np.float64)]:
        middle = between(float(low), float(high), dtype)
        assert low <= kind(middle) < high
        assert float(kind(middle)) == middle


@given(st.integers(-(2**23), 2**23), st.integers(-20, 20), st.floats(0, 1, exclude_max=True))
def test_a_center_between_two_neighbouring_floats(mantissa, exponent, share):
    point = np.float32(mantissa) * np.float32(2.0) ** np.float32(exponent)
    after = np.nextafter(point, np.float32(np.inf))
    center = float(point) + share * (float(after) - float(point))
    if center >= float(after):
        return
    threshold = np.float32(between(center, float(after), torch.float32))
    assert point <= threshold < after


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
def test_the_number_between_two_doubles(low, high):
    low, high = sorted((low, high))
    if low < high:
        assert low <= between(low, high, torch.float64) < high


@given(st.integers(-(2**40), 2**40), st.integers(1, 2**40))
def test_the_number_between_two_integers(low, gap):
    assert low <= between(float(low), float(low + gap), torch.int64) < low + gap
