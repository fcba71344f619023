"""Sketches: the same for any order and any batches of the rows, and bins as full as they should be."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from neonxc.trees.coding import sketch as sketch_module
from neonxc.trees.coding.bins import BinEnds, Bins
from neonxc.trees.coding.sketch import Sketch

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
    assert one.n == other.n
    for name in ("low", "high", "whole", "few"):
        assert torch.equal(getattr(one, name), getattr(other, name)), name
    assert all(map(torch.equal, one.rows, other.rows))
    centers = one.rows[0][:3] + 0.01
    assert torch.equal(one.bins(centers).upper, other.bins(centers).upper)


@given(seeds, st.integers(1, 200), st.integers(2, 40), st.integers(1, 9), st.integers(5, 60))
def test_order_and_batches_do_not_matter(seed, n, max_bins, batches, most):
    values = table(seed, n, np.float32 if seed % 2 else np.float64)
    values = values[np.random.default_rng(seed).integers(n, size=2 * n)]  # some rows several times
    shuffled = values[np.random.default_rng(seed).permutation(len(values))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sketch_module, "ROWS", most)
        patch.setattr(sketch_module, "FIRST", 7)
        patch.setattr(sketch_module, "PIECE", 50)
        assert_same(sketched(values, max_bins), sketched(shuffled, max_bins, batches))
        # float32 rows are the same rows in float64
        assert_same(sketched(values.astype(np.float64), max_bins), sketched(shuffled, max_bins, batches))


@given(seeds, st.integers(1, 300), st.integers(5, 80))
def test_the_sample_counts_its_rows_right(seed, n, most):
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 12, (n, 2)).astype(np.float64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sketch_module, "ROWS", most)
        patch.setattr(sketch_module, "PIECE", 10)
        rows, counts = sketched(values, 4, 3).rows
    distinct, times = np.unique(values, axis=0, return_counts=True)
    known = {tuple(row): count for row, count in zip(distinct.tolist(), times.tolist(), strict=True)}
    assert len(rows) == min(most, len(distinct))
    assert len({tuple(row) for row in rows.tolist()}) == len(rows)
    assert [known[tuple(row)] for row in rows.tolist()] == counts.tolist()


@given(seeds, st.integers(1, 200), st.integers(2, 30), st.integers(1, 12))
def test_few_values_have_a_bin_each_and_many_at_most_max_bins(seed, n, max_bins, k):
    values, rng = table(seed, n), np.random.default_rng(seed)
    centers = torch.from_numpy(rng.normal(size=(k, 5)).round(1) + 0.0)
    bins = sketched(values, max_bins, 2).bins(centers)
    for column in range(5):
        own, upper = np.unique(values[:, column]), bins.upper[column][bins.upper[column].isfinite()].numpy()
        middles = np.unique(centers[:, column].numpy())
        assert len(upper) == bins.size[column]
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
        patch.setattr(sketch_module, "ROWS", 4096)
        bins = sketched(values, max_bins, 3).bins(torch.zeros(0, len(COLUMNS)))
    places = bins.places(torch.from_numpy(values.T.copy()))
    for column, name in enumerate(COLUMNS):
        own = values[:, column]
        heaviest = np.unique(own, return_counts=True)[1].max()
        rest = n - heaviest if heaviest > 1 else n
        counts = np.bincount(places[column], minlength=max_bins)
        assert bins.size[column] > 0.8 * max_bins, name
        counts[places[column][own == 0]] = 0
        share = rest / int(bins.size[column])
        assert counts.max() < share * (1 + 5 / np.sqrt(share * 4096 / n)), name


def positions(upper, values):
    return np.stack([np.searchsorted(e, v) for e, v in zip(upper, values, strict=True)])


@given(seeds, st.integers(1, 70), st.sampled_from([np.float32, np.float64]), st.sampled_from(list(COLUMNS)))
def test_places_are_those_of_a_search(seed, most, dtype, kind):
    rng = np.random.default_rng(seed)
    with np.errstate(over="ignore"):
        upper = np.sort(COLUMNS[kind](rng, 3 * most)).reshape(3, most)
        values = np.concatenate([COLUMNS[kind](rng, 900).reshape(3, 300), upper], 1).astype(dtype)
    values = np.clip(values, -np.finfo(dtype).max, np.finfo(dtype).max)
    size = torch.from_numpy(rng.integers(1, most + 1, 3))
    upper[np.arange(most) >= size.numpy()[:, None]] = np.inf
    found = Bins(torch.from_numpy(upper), size).places(torch.from_numpy(values))
    assert np.array_equal(found.numpy(), positions(upper, values.astype(np.float64)))


def test_ends_are_the_values_of_codes():
    rng = np.random.default_rng(1)
    values = torch.from_numpy(table(1, 500).T.copy())
    sketch = sketched(values.T.numpy(), 9)
    bins = sketch.bins(torch.from_numpy(rng.normal(size=(3, 5))))
    ends = BinEnds.empty(bins, sketch.whole)
    for part in values.split(130, dim=1):
        ends.add(bins.codes(part, torch.uint8), part)
    codes = bins.codes(values, torch.int64)
    for column in range(5):
        for code in range(int(bins.size[column])):
            own = values[column][codes[column] == code]
            low, high = float(ends.low[column, code]), float(ends.high[column, code])
            assert (low, high) == ((float(own.min()), float(own.max())) if len(own) else (np.inf, -np.inf))
    assert ends.whole.tolist() == [False, True, False, True, True]
