"""Sketches: the same for any order and any batches of the rows, and bins as full as they should be."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from neonxc.trees.cuts import bins as bins_module
from neonxc.trees.cuts.bins import Bins, Sketch
from neonxc.trees.cuts.nodes import between

seeds = st.integers(0, 2**32 - 1)


def sketched(values, max_bins, batches=1):
    sketch = Sketch(values.shape[1], max_bins)
    for part in np.array_split(values, batches):
        sketch.add(torch.from_numpy(part))
    return sketch


def table(seed, n, dtype=np.float64):
    rng = np.random.default_rng(seed)
    columns = [rng.normal(size=n), rng.integers(-3, 4, n), rng.normal(size=n).round(1), np.zeros(n)]
    columns.append(np.where(rng.random(n) < 0.5, -0.0, 0.0))
    return np.stack(columns, 1).astype(dtype)


def assert_same(one, other):
    assert torch.equal(one.few, other.few)
    assert all(map(torch.equal, one.sample(), other.sample()))
    centers = one.sample()[2][:3] + 0.01
    ours, theirs = (sketch.bins(centers, torch.float32, torch.tensor(1)) for sketch in (one, other))
    for name in ("edge", "low", "high", "size", "centers"):
        assert torch.equal(getattr(ours, name), getattr(theirs, name)), name


@given(seeds, st.integers(1, 200), st.integers(2, 40), st.integers(1, 9), st.integers(5, 60))
def test_order_and_batches_do_not_matter(seed, n, max_bins, batches, most):
    values = table(seed, n, np.float32 if seed % 2 else np.float64)
    values = values[np.random.default_rng(seed).integers(n, size=2 * n)]  # some rows several times
    shuffled = values[np.random.default_rng(seed).permutation(len(values))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bins_module, "ROWS", most)
        patch.setattr(bins_module, "PIECE", 50)
        assert_same(sketched(values, max_bins), sketched(shuffled, max_bins, batches))
        # float32 rows are the same rows in float64
        assert_same(sketched(values.astype(np.float64), max_bins), sketched(shuffled, max_bins, batches))


@given(seeds, st.integers(1, 300), st.integers(5, 80))
def test_the_sample_counts_its_rows_right(seed, n, most):
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 12, (n, 2)).astype(np.float64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bins_module, "ROWS", most)
        patch.setattr(bins_module, "PIECE", 10)
        _, counts, rows = sketched(values, 4, 3).sample()
    distinct, times = np.unique(values, axis=0, return_counts=True)
    known = {tuple(row): count for row, count in zip(distinct.tolist(), times.tolist(), strict=True)}
    assert len(rows) == min(most, len(distinct))
    assert len({tuple(row) for row in rows.tolist()}) == len(rows)
    assert [known[tuple(row)] for row in rows.tolist()] == counts.tolist()


@given(seeds, st.integers(1, 200), st.integers(2, 30), st.integers(1, 12))
def test_few_values_have_a_bin_each_and_many_at_most_max_bins(seed, n, max_bins, k):
    values, rng = table(seed, n), np.random.default_rng(seed)
    centers = torch.from_numpy(rng.normal(size=(k, 5)).round(1) + 0.0)
    bins = sketched(values, max_bins, 2).bins(centers, torch.float64, torch.tensor(1))
    for column in range(5):
        own, upper = np.unique(values[:, column]), bins.high[column][: bins.size[column]].numpy()
        middles = np.unique(centers[:, column].numpy())
        assert (np.diff(upper) > 0).all()
        assert np.isin(middles, upper).all()
        if len(own) <= max_bins:
            assert np.array_equal(upper, np.unique(np.concatenate([own, middles])))
        else:
            assert len(upper) <= max(max_bins, len(middles) + 1)
        assert upper[-1] >= own[-1]


COLUMNS = {
    "normal": lambda rng, n: rng.normal(size=n),
    "heavy tails": lambda rng, n: rng.standard_cauchy(n),
    "far away": lambda rng, n: 1e9 + rng.normal(size=n),
    "mostly zeros": lambda rng, n: np.where(rng.random(n) < 0.9, 0, rng.lognormal(size=n)),
    "zeros in the middle": lambda rng, n: np.where(rng.random(n) < 0.6, 0, rng.normal(size=n)),
    "tiny": lambda rng, n: rng.normal(size=n) * 1e-200,
    "sizes of all kinds": lambda rng, n: np.exp(rng.normal(size=n) * 50),
}


def test_bins_of_a_sample_are_about_equally_full():
    """A bin has its share of the points, as far as a sample of 4,096 rows can tell, or a value of many points."""
    rng, n, max_bins = np.random.default_rng(0), 60_000, 64
    values = np.stack([column(rng, n) for column in COLUMNS.values()], 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bins_module, "ROWS", 4096)
        bins = sketched(values, max_bins, 3).bins(torch.zeros(0, len(COLUMNS)), torch.float64, torch.tensor(1))
    places = coded(bins, torch.from_numpy(values.T.copy()))
    for column, name in enumerate(COLUMNS):
        own = values[:, column]
        heaviest = np.unique(own, return_counts=True)[1].max()
        rest = n - heaviest if heaviest > 1 else n
        counts = np.bincount(places[column], minlength=max_bins)
        assert bins.size[column] > 0.8 * max_bins, name
        counts[places[column][own == 0]] = 0
        share = rest / int(bins.size[column])
        assert counts.max() < share * (1 + 5 / np.sqrt(share * 4096 / n)), name


def coded(bins, values):
    return bins.code(values, torch.empty(values.shape, dtype=torch.int64))


@given(seeds, st.integers(1, 70), st.sampled_from([np.float32, np.float64]), st.sampled_from(list(COLUMNS)))
def test_codes_are_those_of_a_search(seed, most, dtype, kind):
    rng = np.random.default_rng(seed)
    with np.errstate(over="ignore"):
        upper = np.sort(COLUMNS[kind](rng, 3 * most)).reshape(3, most)
        values = np.concatenate([COLUMNS[kind](rng, 900).reshape(3, 300), upper], 1).astype(dtype)
    values = np.clip(values, -np.finfo(dtype).max, np.finfo(dtype).max)
    upper[np.arange(most) >= rng.integers(0, most, 3)[:, None]] = np.inf
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bins_module, "CACHED", 50)
        found = coded(Bins(torch.from_numpy(upper), *[torch.empty(0)] * 4), torch.from_numpy(values))
    expected = [np.searchsorted(e, v) for e, v in zip(upper, values.astype(np.float64), strict=True)]
    assert np.array_equal(found.numpy(), np.stack(expected))


def columns(seed, n, dtype):
    if np.dtype(dtype).kind == "i":
        return np.random.default_rng(seed).integers(-400, 400, (n, 5)).astype(dtype)
    return table(seed, n, dtype)


@given(seeds, st.sampled_from([np.float16, np.float32, np.float64, np.int16]), st.integers(5, 400))
def test_thresholds_between_known_values_separate_the_others_as_well(seed, dtype, most):
    """Rows outside the sample are on the side of their code, wherever a threshold is between two codes."""
    rng = np.random.default_rng(seed)
    values = columns(seed, 300, dtype)
    kind = torch.from_numpy(values[:0]).dtype
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bins_module, "ROWS", most)
        bins = sketched(values, 9).bins(torch.from_numpy(rng.normal(size=(3, 5)) * 3), kind, torch.tensor(1))
    codes = coded(bins, torch.from_numpy(values.T.copy())).numpy()
    for column in range(5):
        own, size = values[:, column].astype(np.float64), int(bins.size[column])
        assert (bins.low[column, 1:size] > bins.high[column, : size - 1]).all()
        for below in range(size - 1):
            above = int(rng.integers(below + 1, size))
            low, high = float(bins.high[column, below]), float(bins.low[column, above])
            threshold = between(low, high, kind)
            assert (own[codes[column] <= below] <= threshold).all()
            assert (own[codes[column] >= above] > threshold).all()


def test_known_values_are_those_of_the_codes():
    rng = np.random.default_rng(1)
    values, centers = table(1, 500), rng.normal(size=(3, 5))
    bins = sketched(values, 9).bins(torch.from_numpy(centers), torch.float64, torch.tensor(1))
    both = torch.from_numpy(np.concatenate([values, centers]).T.copy())
    codes = coded(bins, both)
    assert torch.equal(codes[:, 500:], bins.centers)
    for column in range(5):
        for code in range(int(bins.size[column])):
            own = both[column][codes[column] == code]
            assert float(bins.high[column, code]) == float(own.max())
            assert code == 0 or float(bins.low[column, code]) == float(own.min())
