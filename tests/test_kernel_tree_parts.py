"""Surrogate columns, distances in feature space and the interval scan: against definitions and loops."""

import math
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import poisson

from neonxc.models import KernelKMeans
from neonxc.trees.cuts import intervals as kernel_intervals
from neonxc.trees.cuts.intervals import best_interval, intervals_of, pair_floors
from neonxc.trees.fit import kernel_features as kernel_features
from neonxc.trees.fit.kernel_features import KernelFeatures, anchors_of, feature_space_distances, kernel_of

seeds = st.integers(0, 2**32 - 1)
TYPES = [torch.float16, torch.float32, torch.float64, torch.int32, torch.uint8]


def taylor_features(x, gamma, terms):
    """The first Taylor features of the Gaussian kernel, which need no correction for single numbers."""
    m = torch.arange(terms, dtype=torch.float64)
    x = x.to(torch.float64)[..., None]
    size = kernel_features._taylor(x.abs(), gamma, m)
    return torch.where(m % 2 == 1, x.sign() * size, size)


def anchor_features(x, anchors, kernel, gamma):
    return kernel_of((x.to(torch.float64)[..., None] - anchors).abs(), kernel, gamma)


def surrogate_columns(table, kind, gamma, size, kernel="gaussian"):
    return KernelFeatures(table.double(), kind, kernel, gamma, size).rows(slice(None))


# --- surrogate columns -------------------------------------------------------------------------------------


@pytest.mark.parametrize("gamma", [0.03, 1.0, 7.5])
def test_taylor_features_are_their_definition(gamma):
    x = [-2.5, -1.0, -1e-3, 0.0, 0.2, 1.0, 3.0]
    features = taylor_features(torch.tensor(x, dtype=torch.float64), gamma, 12)
    for value, row in zip(x, features.tolist(), strict=True):
        for m, feature in enumerate(row):
            expected = math.sqrt((2 * gamma) ** m / math.factorial(m)) * value**m * math.exp(-gamma * value**2)
            assert feature == pytest.approx(expected, rel=1e-12, abs=1e-300)


@given(st.floats(-6, 6), st.floats(-6, 6), st.floats(1e-3, 3), st.integers(1, 60))
def test_terms_left_out_are_worth_a_poisson_tail(x, y, gamma, terms):
    first, second = taylor_features(torch.tensor([x, y]), gamma, terms)
    x, y = torch.tensor([x, y]).double().tolist()  # as float32 has them
    error = abs(float(first @ second) - math.exp(-gamma * (x - y) ** 2))
    tails = [poisson.sf(terms - 1, 2 * gamma * value**2) for value in (x, y)]
    assert error <= math.sqrt(tails[0] * tails[1]) + 1e-12


def test_a_few_more_terms_than_the_greatest_mean_are_the_kernel():
    x = torch.linspace(-3, 3, 50, dtype=torch.float64)
    features = taylor_features(x, 1.0, 18 + 6 * 5)  # the greatest mean is 18
    torch.testing.assert_close(features @ features.T, (-(x[:, None] - x).square()).exp(), atol=1e-7, rtol=0)


def test_taylor_features_do_not_overflow():
    x = torch.tensor([1e-320, 1e-200, 1e-30, 1.0, 1e3, 1e30, 1e200, 1e308], dtype=torch.float64)
    features = taylor_features(torch.cat([x, -x]), 1.0, 200)
    assert features.isfinite().all()
    assert features.abs().max() <= 1
    assert (features[4:8] == 0).all()  # why columns have to be centred
    assert taylor_features(torch.tensor([10.0]), 1.0, 250)[0, 200] > 0.1  # 2^200 10^200 / sqrt(200!) exp(-100)


@pytest.mark.parametrize(("kernel", "power"), [("gaussian", 2), ("laplace", 1)])
def test_kernels_of_anchors_multiply_to_the_kernel(kernel, power):
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(5, 3)), rng.normal(size=(4, 3))
    features = anchor_features(torch.from_numpy(X), torch.from_numpy(Y.T), kernel, 0.7)
    assert features.shape == (5, 3, 4)
    expected = np.exp(-0.7 * (np.abs(X[:, None] - Y) ** power).sum(2))
    np.testing.assert_allclose(features.prod(1).numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("kind", ["taylor", "anchors"])
def test_surrogate_columns_are_the_features_column_by_column(kind):
    X = torch.from_numpy(np.random.default_rng(1).normal(size=(40, 5)))
    table = KernelFeatures(X, kind, "laplace", 0.8, 7)
    columns = table.rows(slice(None))
    assert columns.shape == (40, 35)
    assert columns.dtype == torch.float64
    plain = (
        taylor_features(X, 0.8, 7) if kind == "taylor" else anchor_features(X, anchors_of(X, 7), "laplace", 0.8)
    )
    torch.testing.assert_close(columns, plain.flatten(1), rtol=1e-12, atol=1e-300)
    for first, last in ((0, 1), (3, 17), (20, 35)):
        assert torch.equal(table.columns(first, last).T, columns[:, first:last])


def raw_column(rng, dtype, n):
    """Values with repeats, or of neighbouring numbers around a few others, or of all sizes."""
    if not dtype.is_floating_point:
        return torch.from_numpy(rng.integers(0, rng.integers(2, 30), n)).to(dtype)
    kind = rng.integers(3)
    if kind == 0:
        values = rng.integers(-5, 6, n) / 4
    elif kind == 1:
        eps = torch.finfo(dtype).eps
        values = rng.choice([-1.5, -1, 0.5, 1, math.sqrt(3 / 2)], n) * (1 + eps * rng.integers(-8, 9, n))
    else:
        values = rng.normal(size=n) * 10 ** rng.uniform(-3, 2, n)
    return torch.from_numpy(np.asarray(values)).to(dtype)


def within(values, intervals):
    values = values.double()
    return torch.stack([(low < values) & (values <= high) for low, high in intervals]).any(0)


@given(
    seeds,
    st.sampled_from(TYPES),
    st.integers(1, 60),
    st.sampled_from([("taylor", "gaussian"), ("anchors", "gaussian"), ("anchors", "laplace")]),
)
def test_every_threshold_is_at_most_two_intervals(seed, dtype, n, kind):
    rng = np.random.default_rng(seed)
    values = raw_column(rng, dtype, n)
    table, gamma = values[:, None], float(rng.choice([0.1, 1.0, 5.0]))
    columns = surrogate_columns(table, kind[0], gamma, 6, kind[1])
    for column in columns.T:
        for threshold in column.unique():
            left = column <= threshold
            intervals, swapped = intervals_of(left, values)
            assert len(intervals) <= (2 if kind[0] == "taylor" else 1)
            assert torch.equal(within(values, intervals), left != swapped)


def test_neighbouring_numbers_at_a_summit_are_in_order():
    # As computed, features of numbers that hardly differ are a random walk there: many intervals, if not mended
    summit = math.sqrt(3 / 2)
    x = summit * (1 + torch.finfo(torch.float64).eps * torch.arange(-300, 301, dtype=torch.float64))
    plain = taylor_features(x, 1.0, 4)[:, 3]
    mended = surrogate_columns(x[:, None], "taylor", 1.0, 4)[:, 3]
    torch.testing.assert_close(plain, mended, rtol=1e-14, atol=0)
    turns = mended.diff().sign()
    turns = turns[turns != 0]
    assert (turns.diff() != 0).sum() <= 1
    for threshold in mended.unique():
        assert len(intervals_of(mended <= threshold, x)[0]) == 1


@pytest.mark.parametrize(("kind", "function"), [("taylor", "_taylor"), ("anchors", "kernel_of")])
def test_surrogate_columns_do_not_depend_on_exact_exponentials(kind, function):
    # Libraries may round the exponential of one number differently from place to place
    rng = np.random.default_rng(4)
    plain = getattr(kernel_features, function)

    def rounded(*args):
        values = plain(*args)
        return values * (1 + torch.from_numpy(rng.integers(-3, 4, values.shape)).double() * 1e-14)

    x = torch.from_numpy(rng.integers(-20, 21, 200) / 8)
    with mock.patch.object(kernel_features, function, rounded):
        columns = surrogate_columns(x[:, None], kind, 1.0, 6)
    torch.testing.assert_close(columns, surrogate_columns(x[:, None], kind, 1.0, 6), rtol=1e-12, atol=0)
    for column in columns.T:
        for threshold in column.unique()[::3]:
            intervals, swapped = intervals_of(column <= threshold, x)
            assert torch.equal(within(x, intervals), (column <= threshold) != swapped)


@pytest.mark.parametrize("kind", ["taylor", "anchors"])
def test_surrogate_columns_keep_their_shape_in_float32(kind):
    x = torch.from_numpy(np.random.default_rng(3).normal(size=(100, 1)))
    columns = surrogate_columns(x, kind, 1.0, 8).float()
    for column in columns.T:
        for threshold in column.unique()[::7]:
            intervals, swapped = intervals_of(column <= threshold, x[:, 0])
            assert torch.equal(within(x[:, 0], intervals), (column <= threshold) != swapped)


@given(seeds, st.integers(1, 40), st.integers(1, 4), st.integers(1, 12), st.sampled_from(TYPES))
def test_anchors_are_quantiles_of_distinct_values(seed, n, d, most, dtype):
    rng = np.random.default_rng(seed)
    table = torch.stack([raw_column(rng, dtype, n) for _ in range(d)], 1)
    anchors = anchors_of(table, most)
    distinct = [column.unique() for column in table.T]
    assert anchors.shape == (d, min(most, max(len(values) for values in distinct)))
    for row, values in zip(anchors, distinct, strict=True):
        if len(values) <= most:
            assert torch.equal(row.unique(), values)
        else:
            assert torch.equal(row, values[[int((j + 0.5) * len(values) / most) for j in range(most)]])


# --- intervals ---------------------------------------------------------------------------------------------


def slow_runs(left, values):
    """Stretches of distinct values of one side: [(side, least, greatest)]."""
    runs = []
    for value in sorted(set(values.tolist())):
        side = bool(left[values.tolist().index(value)])
        if runs and runs[-1][0] == side:
            runs[-1] = (side, runs[-1][1], value)
        else:
            runs.append((side, value, value))
    return runs


@given(seeds, st.sampled_from(TYPES), st.integers(1, 12))
def test_intervals_are_the_side_with_fewer(seed, dtype, n):
    rng = np.random.default_rng(seed)
    values = raw_column(rng, dtype, n)
    distinct, place = values.unique(return_inverse=True)
    left = torch.from_numpy(rng.random(len(distinct)) < 0.5)[place]
    runs = slow_runs(left, values)
    sides = {side: [run for run in runs if run[0] == side] for side in (True, False)}
    intervals, swapped = intervals_of(left, values)
    assert torch.equal(within(values, intervals), left != swapped)
    assert list(intervals) == sorted(intervals)
    if len(runs) == 1:
        assert not swapped
        return
    side = min(sides, key=lambda side: (len(sides[side]), side != runs[0][0]))
    assert swapped == (not side)
    assert len(intervals) == len(sides[side])
    for (low, high), (_, least, greatest) in zip(intervals, sides[side], strict=True):
        below = max((run[2] for run in runs if run[2] < least), default=-math.inf)
        above = min((run[1] for run in runs if run[1] > greatest), default=math.inf)
        eps = torch.finfo(dtype).eps if dtype.is_floating_point else 0
        for bound, start, end in ((low, below, least), (high, greatest, above)):
            middle = (start + end) / 2
            assert bound == middle or abs(bound - middle) <= eps * abs(middle) + 1e-300
            assert math.isinf(bound) or torch.tensor(bound, dtype=dtype if eps else torch.float64).item() == bound


def test_intervals_without_a_point_on_a_side():
    values = torch.tensor([3.0, -1.0])
    for left in (torch.tensor([True, True]), torch.tensor([False, False])):
        ((low, high),), swapped = intervals_of(left, values)
        assert low == -math.inf
        assert math.isfinite(high)
        assert torch.equal(within(values, ((low, high),)), left != swapped)
    assert intervals_of(torch.tensor([], dtype=torch.bool), values[:0]) == (((-math.inf, 1.0),), False)


# --- distances in feature space ----------------------------------------------------------------------------


def dense(X, labels, k, kernel, gamma, weight):
    """The definition, with the whole matrix of kernels."""
    apart = X[:, None] - X
    K = np.exp(-gamma * ((apart**2).sum(2) if kernel == "gaussian" else np.abs(apart).sum(2)))
    result = np.zeros((len(X), k))
    for c in range(k):
        member = np.where(labels == c, weight, 0) / weight[labels == c].sum()
        result[:, c] = np.diag(K) - 2 * K @ member + member @ K @ member
    return result


@given(seeds, st.sampled_from(["gaussian", "laplace"]), st.booleans(), st.sampled_from([1, 9, 10_000]))
def test_distances_are_the_dense_formula(seed, kernel, weighted, block):
    rng = np.random.default_rng(seed)
    k = int(rng.integers(1, 5))
    n, d = int(rng.integers(k, 30)), int(rng.integers(1, 5))
    X, gamma = rng.normal(size=(n, d)), float(rng.uniform(0.05, 3))
    labels = rng.permutation(np.concatenate([np.arange(k), rng.integers(0, k, n - k)]))
    weight = rng.uniform(0.5, 3, n) if weighted else np.ones(n)
    expected = dense(X, labels, k, kernel, gamma, weight)
    with mock.patch.object(kernel_features, "BLOCK", block):
        distances = feature_space_distances(
            *map(torch.from_numpy, (X, labels)),
            *(k, kernel, gamma),
            torch.from_numpy(weight) if weighted else None,
        )
    assert distances.dtype == torch.float64
    np.testing.assert_allclose(distances.numpy(), expected, atol=1e-12)
    assert (distances >= 0).all()


def test_a_weight_is_so_many_points():
    X, labels = torch.randn(20, 3, generator=torch.Generator().manual_seed(0)), torch.arange(20) % 3
    times = torch.arange(20) % 4 + 1
    weighted = feature_space_distances(X, labels, 3, "laplace", 0.5, times)
    repeated = feature_space_distances(
        X.repeat_interleave(times, 0), labels.repeat_interleave(times), 3, "laplace", 0.5
    )
    torch.testing.assert_close(weighted.repeat_interleave(times, 0), repeated, rtol=0, atol=1e-12)


def test_distances_far_from_the_origin():
    X, labels = (
        torch.randn(30, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1)),
        torch.arange(30) % 2,
    )
    X = (X * 2**20).round() / 2**20  # what the shift leaves exact
    near, far = (feature_space_distances(X + shift, labels, 2, "gaussian", 1.0) for shift in (0.0, 2.0**30))
    torch.testing.assert_close(near, far, rtol=0, atol=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
def test_distances_are_those_of_kernel_kmeans(weighted):
    rng = np.random.default_rng(2)
    X, labels = rng.normal(size=(60, 3)), rng.integers(0, 4, 60)
    weight = rng.uniform(0.5, 2, 60) if weighted else None
    model = KernelKMeans(objective="feature", gamma=0.4).fit(X, labels=labels, sample_weight=weight)
    distances = feature_space_distances(
        torch.from_numpy(X),
        torch.from_numpy(labels),
        *(4, "gaussian", 0.4),
        None if weight is None else torch.from_numpy(weight),
    )
    np.testing.assert_allclose(distances.numpy(), model.transform(X), atol=1e-12)
    own = distances.gather(1, torch.from_numpy(labels)[:, None])[:, 0].numpy()
    assert (own * (1 if weight is None else weight)).sum() == pytest.approx(model.objective_, rel=1e-9)


# --- the interval scan -------------------------------------------------------------------------------------


def node(seed, *, whole=True, mistakes=False):
    """Codes [f, n] and costs [n, m] of the points of a node; many codes are absent, columns and labels repeat."""
    rng = np.random.default_rng(seed)
    n, f, m, bins = (int(rng.integers(low, high)) for low, high in ((1, 14), (1, 4), (1, 5), (1, 9)))
    codes = rng.integers(0, bins, (f, n))
    if f > 1 and rng.random() < 0.3:
        codes[1] = codes[0] if rng.random() < 0.5 else bins - 1
    if mistakes:
        costs = (rng.integers(0, m, n)[:, None] != np.arange(m)) * rng.integers(1, 3, n)[:, None]
    elif whole:
        costs = rng.integers(0, 4, (n, m))
    else:
        costs = rng.integers(0, 1 << 30, (n, m)) / (1 << 30)  # whose sums are exact
    return codes, costs.astype(np.float64), bins


def sums(codes, costs, bins):
    """The arguments `left`, `total` and `codes_present`, by the definition."""
    left = np.array([[costs[row <= b].sum(0) for b in range(bins)] for row in codes]).transpose(2, 0, 1)
    present = np.array([[(row == b).any() for b in range(bins)] for row in codes])
    return [torch.from_numpy(np.ascontiguousarray(part)) for part in (left, costs.sum(0), present)]


def slow_best(codes, costs, bins):
    """All pairs of thresholds and of labels, tried one after the other."""
    tried = []
    for column, row in enumerate(codes):
        for a in range(-1, bins):
            for b in range(a + 1, bins):
                inside = (a < row) & (row <= b)
                if inside.all() or not inside.any():
                    continue
                for p in range(costs.shape[1]):
                    for q in range(costs.shape[1]):
                        if p != q:
                            tried.append((costs[inside, p].sum() + costs[~inside, q].sum(), column, a, b, p, q))
    return min(tried, default=None)


def no_floors(costs):
    return torch.zeros(2 * costs.shape[1:], dtype=torch.float64)


@given(seeds, st.booleans(), st.booleans(), st.sampled_from([1, 6, 1 << 17]), st.booleans())
def test_the_best_interval_is_that_of_all_pairs_of_thresholds(seed, whole, mistakes, cached, with_floors):
    codes, costs, bins = node(seed, whole=whole, mistakes=mistakes)
    floors = pair_floors(torch.from_numpy(costs).T.contiguous()) if with_floors else no_floors(costs)
    with mock.patch.object(kernel_intervals, "CACHED", cached):
        best = best_interval(*sums(codes, costs, bins), floors)
    assert best == slow_best(codes, costs, bins)


@given(seeds)
def test_rounding_at_absent_codes_decides_nothing(seed):
    # Sums of a node that were subtracted from its parent's are not quite constant there
    codes, costs, bins = node(seed)
    left, total, present = sums(codes, costs, bins)
    noise = torch.from_numpy(np.random.default_rng(seed).normal(size=left.shape) * 1e-13)
    best = best_interval(left + noise.masked_fill(present, 0), total, present, no_floors(costs))
    assert best == slow_best(codes, costs, bins)


def test_floors_leave_pairs_out():
    codes, costs, bins = np.arange(40)[None], (np.arange(40)[:, None] // 10 != np.arange(4)) * 1.0, 40
    costs[:18, 0] = costs[18:, 1] = 0  # the two labels that make no mistakes
    left, total, present = sums(codes, costs, bins)
    floors = pair_floors(torch.from_numpy(costs).T.contiguous())
    wrapped = mock.patch.object(kernel_intervals, "_least", wraps=kernel_intervals._least)
    with wrapped as scan, mock.patch.object(kernel_intervals, "CACHED", 1):
        assert best_interval(left, total, present, floors) == (0.0, 0, -1, 9, 0, 1)
    assert [(int(p), int(q)) for call in scan.call_args_list for p, q in zip(*call.args[3:], strict=True)] == [
        (0, 1)
    ]


@given(seeds)
def test_a_floor_is_the_better_of_two_labels_for_every_point(seed):
    _, costs, _ = node(seed, whole=False)
    m = costs.shape[1]
    expected = [[np.minimum(costs[:, p], costs[:, q]).sum() for q in range(m)] for p in range(m)]
    np.testing.assert_allclose(pair_floors(torch.from_numpy(costs.T.copy())).numpy(), expected, atol=1e-12)


def test_the_floor_of_mistakes_is_the_weight_of_other_labels():
    rng = np.random.default_rng(0)
    labels, weight = rng.integers(0, 5, 200), rng.integers(1, 5, 200)
    costs = torch.from_numpy((labels[:, None] != np.arange(5)) * weight[:, None]).double()
    mass = torch.from_numpy(np.bincount(labels, weight))
    expected = weight.sum() - mass[:, None] - mass
    off = ~torch.eye(5, dtype=torch.bool)
    assert torch.equal(pair_floors(costs.T.contiguous())[off], expected[off])
