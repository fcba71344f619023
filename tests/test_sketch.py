"""Sketches: a sample that counts its rows right, and bins as full as they should be.

That they are the same for any order and any batches of the rows is tested in `test_streams.py`, by their trees.
"""

from unittest import mock

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from neonxc.trees.cuts.bins import Sketch
from neonxc.trees.cuts.codes import SharedCodes, code_columns
from neonxc.trees.fit.points import Dense

seeds = st.integers(0, 2**32 - 1)


def limited(**limits):
    """Smaller samples and pieces."""
    return mock.patch.multiple("neonxc.trees.cuts.bins", **limits)


def sketched(values, max_bins, batches=1):
    sketch = Sketch(values.shape[1], max_bins)
    for part in np.array_split(values, batches):
        sketch.add(torch.from_numpy(part))
    return sketch


def coded(bins, values):
    """The bins of some rows, by column."""
    return bins.code(torch.from_numpy(values.T.copy()), torch.empty(values.T.shape, dtype=torch.int64)).numpy()


@given(seeds, st.integers(1, 300), st.integers(5, 80))
def test_the_sample_counts_its_rows_right(seed, n, most):
    values = np.random.default_rng(seed).integers(0, 12, (n, 2)).astype(np.float64)
    with limited(ROWS=most, PIECE=10):
        _, counts, rows = sketched(values, 4, 3).sample()
    distinct, times = np.unique(values, axis=0, return_counts=True)
    known = {tuple(row): count for row, count in zip(distinct.tolist(), times.tolist(), strict=True)}
    assert len(rows) == len({tuple(row) for row in rows.tolist()}) == min(most, len(distinct))
    assert [known[tuple(row)] for row in rows.tolist()] == counts.tolist()


@given(seeds, st.integers(1, 200), st.integers(2, 30), st.integers(1, 12))
def test_few_values_have_a_bin_each_and_many_at_most_max_bins(seed, n, max_bins, k):
    rng = np.random.default_rng(seed)
    values = np.stack([rng.normal(size=n), rng.integers(-3, 4, n), rng.normal(size=n).round(1), np.zeros(n)], 1)
    values[rng.random(n) < 0.5, 3] = -0.0
    centers = rng.normal(size=(k, 4)).round(1) + 0.0
    bins = sketched(values, max_bins, 2).bins(torch.from_numpy(centers), torch.float64, torch.tensor(1))
    both = np.concatenate([values, centers])
    codes = coded(bins, both)
    assert np.array_equal(codes[:, n:], bins.centers)
    for column in range(4):
        own = np.unique(values[:, column])
        upper = bins.high[column][: bins.size[column]].numpy()
        middles = np.unique(centers[:, column])
        assert (np.diff(upper) > 0).all()
        assert np.isin(middles, upper).all()
        if len(own) <= max_bins:
            assert np.array_equal(upper, np.unique(np.concatenate([own, middles])))
        else:
            assert len(upper) <= max(max_bins, len(middles) + 1)
        for code in range(len(upper)):  # the least and the greatest known values
            inside = both[codes[column] == code, column]
            assert (upper[code], bins.low[column, code] if code else min(inside)) == (max(inside), min(inside))


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
    rng = np.random.default_rng(0)
    n = 30_000
    max_bins = 64
    values = np.stack([column(rng, n) for column in COLUMNS.values()], 1)
    with limited(ROWS=4096):
        bins = sketched(values, max_bins, 3).bins(torch.zeros(0, len(COLUMNS)), torch.float64, torch.tensor(1))
    places = coded(bins, values)
    for column, name in enumerate(COLUMNS):
        own = values[:, column]
        heaviest = np.unique(own, return_counts=True)[1].max()
        rest = n - heaviest if heaviest > 1 else n
        counts = np.bincount(places[column], minlength=max_bins)
        assert bins.size[column] > 0.8 * max_bins, name
        counts[places[column][own == 0]] = 0
        share = rest / int(bins.size[column])
        assert counts.max() < share * (1 + 5 / np.sqrt(share * 4096 / n)), name


@given(seeds, st.integers(1, 70), st.sampled_from([np.float32, np.float64]), st.sampled_from(list(COLUMNS)))
def test_codes_are_those_of_a_search(seed, max_bins, dtype, kind):
    rng = np.random.default_rng(seed)
    with np.errstate(over="ignore"):
        values = COLUMNS[kind](rng, 900).reshape(300, 3).astype(dtype)
    values = np.clip(values, -np.finfo(dtype).max, np.finfo(dtype).max)
    own = torch.float32 if dtype is np.float32 else torch.float64
    with limited(CACHED=50):
        bins = sketched(values[:200], max_bins).bins(torch.zeros(0, 3), own, torch.tensor(1))
        found = coded(bins, values)
    for edge, column, codes in zip(bins.edge.numpy(), values.T.astype(np.float64), found, strict=True):
        assert np.array_equal(codes, np.searchsorted(edge, column))


def test_codes_are_shared_by_fits_to_the_same_points():
    rng = np.random.default_rng(0)
    values = torch.from_numpy(np.stack([rng.normal(size=300), rng.integers(0, 9, 300)], 1))
    centers = torch.from_numpy(rng.normal(size=(3, 2)))
    n = torch.full((3,), 300.0)
    weight = torch.from_numpy(rng.random(300))
    cases = {
        "the same": (values.clone(), centers.clone(), 16, weight.clone(), n),
        "other values": (values + 1, centers, 16, weight, n),
        "another type": (values.float(), centers, 16, weight, n),
        "fewer rows": (values[1:], centers, 16, weight[1:], n),
        "other centers": (values, centers + 0.1, 16, weight, n),
        "fewer bins": (values, centers, 12, weight, n),
        "every value": (values, centers, None, weight, n),
        "other weights": (values, centers, 16, weight.flip(0), n),
        "no weights": (values, centers, 16, None, n),
        "means of more points": (values, centers, 16, weight, n * 2),
    }
    for name, (rows, of_clusters, max_bins, mass, count) in cases.items():
        shared = SharedCodes()
        first, _ = shared.code_columns(Dense(values), centers, 16, weight, n)
        columns, snapped = shared.code_columns(Dense(rows), of_clusters, max_bins, mass, count)
        assert (columns is first) == (name == "the same"), name
        expected, expected_centers = code_columns(Dense(rows), of_clusters, max_bins, mass, n=count)
        assert all(torch.equal(a, b) for a, b in zip(columns.codes, expected.codes, strict=True)), name
        assert torch.equal(snapped, expected_centers), name
