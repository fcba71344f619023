"""Numbers of trees: sums in any order, estimated depths and thresholds."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from tree_witnesses import eval_wad, seeds

from neonxc.trees.criteria.centers import estimated_depth
from neonxc.trees.cuts.exact_sums import rounded
from neonxc.trees.cuts.growth import between
from neonxc.trees.fit.points import Dense


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


class RoundsByPosition(TorchDispatchMode):
    """Matrix products as on some processors: every second row adds its terms in another order."""

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        options = options or {}
        product = function(*arguments, **options)
        if function not in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default):
            return product
        *added, left, right = arguments
        backwards = function(*added, left.flip(1), right.flip(0), **options)
        is_odd = torch.arange(len(product))[:, None] % 2 == 1
        return torch.where(is_odd, backwards, product)


@pytest.mark.parametrize("metric", ["l2", "l1"])
@pytest.mark.parametrize(("n", "d"), [(12, 40), (300, 7), (9000, 50)])
def test_a_distance_does_not_depend_on_the_other_rows(metric, n, d):
    rng = np.random.default_rng(0)
    X = torch.from_numpy(rng.normal(size=(n, d)))
    centers = torch.from_numpy(rng.normal(size=(4, d)))
    rows = torch.from_numpy(rng.permutation(n)[: n // 2])
    misaligned = torch.cat([X.new_zeros(1), X[rows].flatten()])[1:].view(-1, d)
    with RoundsByPosition():
        expected = Dense(X).distances(centers, metric)[rows]
        assert torch.equal(Dense(X[rows]).distances(centers, metric), expected)
        assert torch.equal(Dense(misaligned).distances(centers, metric), expected)
    power = 1 if metric == "l1" else 2
    witness = (X[rows, None] - centers).abs().pow(power).sum(2)
    torch.testing.assert_close(expected, witness, rtol=1e-13, atol=0)


@given(st.integers(0, 10**6), st.integers(2, 60), st.data())
def test_estimated_depth_is_the_recursion(points, centers, draw):
    left = draw.draw(st.lists(st.integers(0, points), min_size=3, max_size=3))
    own = draw.draw(st.lists(st.integers(1, centers - 1), min_size=3, max_size=3))
    found = estimated_depth(torch.tensor(left).double(), torch.tensor(own), float(points), centers)
    expected = [eval_wad(points, centers, a, points, b, centers) for a, b in zip(left, own, strict=True)]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


finite = st.floats(width=32, allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize(("dtype", "kind"), [(torch.float32, np.float32), (torch.float64, np.float64)])
@given(low=finite, high=st.none() | finite, share=st.floats(0, 1, exclude_max=True))
def test_the_number_between_two_floats_is_one_of_their_type(dtype, kind, low, high, share):
    """Neighbouring ones or others, or a center that lies between neighbouring ones, and the upper of these."""
    low, above = kind(low), np.nextafter(kind(low), kind(np.inf))
    high = above if high is None else kind(high)
    assume(low != high and np.isfinite(above))
    low, high = sorted((low, high))
    middle = between(float(low), float(high), dtype)
    assert low <= kind(middle) < high
    assert float(kind(middle)) == middle
    if high == above:
        center = float(low) + share * (float(high) - float(low))
        assert center >= high or low <= kind(between(center, float(high), dtype)) < high


@given(st.integers(-(2**40), 2**40), st.integers(1, 2**40))
def test_the_number_between_two_integers(low, gap):
    assert low <= between(float(low), float(low + gap), torch.int64) < low + gap
