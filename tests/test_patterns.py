"""Frequent patterns of clusters: which there are, which are chosen, and what is said of them."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused
from rule_witnesses import assert_said

from neonxc.models import patterns
from neonxc.rules import Counts


def people():
    rng = np.random.default_rng(0)
    n = 200
    works = pd.Series(rng.choice(["private", "public", None], n, p=[0.6, 0.3, 0.1]), dtype=object)
    numbers = {"age": rng.integers(18, 80, n), "children": rng.integers(0, 3, n), "income": rng.normal(40, 10, n)}
    return pd.DataFrame({"works": works, "married": rng.random(n) < 0.5, **numbers})


def witness(masks, inside, min_support, max_length):
    """Patterns of items by trying all of them, chosen one by one; as sets of items."""
    frequent = [
        pattern
        for size in range(1, max_length + 1)
        for pattern in combinations(range(masks.shape[1]), size)
        if masks[inside][:, pattern].all(1).mean() >= min_support
    ]
    covered = np.zeros(len(inside), dtype=bool)
    chosen = []
    while True:
        best = None
        for pattern in frequent:
            met = masks[:, pattern].all(1)
            new = (met & inside & ~covered).sum()
            score = new * (met & inside).sum() / met.sum()
            if new >= min_support * inside.sum() and (best is None or score > best[0] + 1e-12):
                best = score, pattern, met
        if best is None:
            return {one for one in chosen if not any(set(other) < set(one) for other in chosen)}
        chosen.append(best[1])
        covered |= best[2]


@given(
    seed=st.integers(0, 10**6),
    k=st.integers(1, 4),
    support=st.sampled_from([0.1, 0.2, 0.5]),
    length=st.integers(1, 3),
)
def test_the_choice_is_that_of_a_witness(seed, k, support, length):
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 3, (40, 4))
    labels = rng.integers(0, k, 40)
    items = [(column, value) for column in range(4) for value in range(3)]
    masks = np.stack([X[:, column] == value for column, value in items], axis=1)
    found = patterns(X, labels, min_support=support, max_length=length)
    for label in np.unique(labels).tolist():
        got = {
            tuple((one.feature, one.values[0]) for one in rule.conditions)
            for rule in found.clusters.get(label, ())
        }
        wanted = witness(masks, labels == label, support, length)
        assert got == {tuple(items[item] for item in pattern) for pattern in wanted}


def test_a_single_column_gives_all_of_its_frequent_values():
    column = pd.DataFrame({"foi": np.repeat([*"abcd"], [50, 30, 19, 1])})
    found = patterns(column, ["all"] * 100, columns="foi")
    assert str(found).startswith("all: ")
    assert [(str(rule.conditions[0]), rule.coverage) for rule in found] == [("foi is a", 0.5), ("foi is b", 0.3)]
    assert found.totals["all"].coverage == 0.8
    assert not found.divide


def test_measures_are_those_of_the_points_that_match():
    X = people()
    labels = np.random.default_rng(1).integers(-1, 3, 200)
    found = patterns(X, labels)
    assert list(found.clusters) == [0, 1, 2]
    for label, rules in found.clusters.items():
        met = np.any([rule.matches(X) for rule in rules], axis=0)
        own = labels == label
        noise = labels < 0
        parts = met & ~noise, met & ~own & ~noise, own, ~noise, met & noise
        assert found.totals[label] == Counts(*(part.sum() for part in parts))
        coverage = [rule.coverage for rule in rules]
        assert coverage == sorted(coverage, reverse=True)
        assert coverage[-1] >= 0.2
    measured = found.measure(X, labels)
    assert measured.held_out_totals == found.totals
    assert [rule.held_out for rule in measured] == [rule.counts for rule in found]


def test_forms_agree_where_a_column_has_bins_and_missing_values():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x": rng.normal(size=300), "y": rng.normal(size=300) + 5})
    X.loc[rng.random(300) < 0.4, "x"] = np.nan
    found = patterns(X, rng.integers(0, 2, 300), columns="x", min_support=0.1)
    assert {condition.values for rule in found for condition in rule.conditions} == {None, (None,)}
    found = replace(found, rules=found.rules[::-1])  # other rules come first
    assert_said(found, X, found.predict(X).tolist())


def test_arrays_and_tensors_have_positions():
    X = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    labels = (X[:, 1] > 0).astype(int)
    found = patterns(X, labels)
    assert found.to_dict() == patterns(torch.from_numpy(X), torch.from_numpy(labels)).to_dict()
    assert "x[1]" in str(found)
    assert {column.position for column in patterns(X, labels, columns=[-1, 0]).columns} <= {0, 2}
    refused("2 features", found[0].matches, X[:, :2])


@pytest.mark.parametrize("support", [0.07, 0.14, 0.28, 0.55, 0.57])  # times 100 they are no whole numbers
def test_a_pattern_of_just_the_least_support_is_found(support):
    n = round(100 * support)
    column = pd.DataFrame({"foi": ["a"] * n + [*map(str, range(100 - n))]})
    found = patterns(column, np.zeros(100), min_support=support)
    assert [str(rule.conditions[0]) for rule in found] == ["foi is a"]


def test_a_column_of_names_takes_no_memory():
    n = 50_000
    X = pd.DataFrame({"id": [f"n{i}" for i in range(n)], "half": np.arange(n) % 2})
    found = patterns(X, np.arange(n) % 2)
    assert [str(rule.conditions[0]) for rule in found] == ["half is 0", "half is 1"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_support": 0}, r"min_support needs a number in \(0, 1\], got 0"),
        ({"max_length": 0}, "max_length needs a whole number >= 1, got 0"),
        ({"n_bins": 1}, "n_bins needs a whole number >= 2, got 1"),
        ({"columns": "height"}, r"columns: X has no column \['height'\]"),
        ({"columns": []}, r"columns needs one or more distinct columns, got \[\]"),
        ({"labels": np.zeros(3)}, "labels needs one label per point"),
        ({"X": people().assign(day=pd.Timestamp(0))}, "column 'day' holds dates or times"),
        ({"X": people().assign(day=[[0]] * 200)}, "column 'day' holds lists or other objects"),
        ({"X": np.zeros(3)}, r"X needs shape \[points, features\], got \[3\]"),
    ],
)
def test_errors_name_the_argument(options, message):
    refused(message, patterns, **({"X": people(), "labels": np.zeros(200)} | options))
