"""Frequent patterns of clusters: which there are, which are chosen, and what is said of them."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from neonxc.models import patterns


def people(n=200, seed=0):
    rng = np.random.default_rng(seed)
    works = pd.Series(rng.choice(["private", "public", None], n, p=[0.6, 0.3, 0.1]), dtype=object)
    return pd.DataFrame(
        {
            "age": rng.integers(18, 80, n),
            "works": works,
            "married": rng.random(n) < 0.5,
            "children": rng.integers(0, 3, n),
            "income": rng.normal(40, 10, n),
        }
    )


def witness(masks, inside, min_support, max_length):
    """Patterns of items by trying all of them, chosen one by one; as sets of items."""
    frequent = [
        pattern
        for size in range(1, max_length + 1)
        for pattern in combinations(range(masks.shape[1]), size)
        if masks[inside][:, pattern].all(1).mean() >= min_support
    ]
    covered, chosen = np.zeros(len(inside), dtype=bool), []
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
    masks = np.concatenate([X[:, [column]] == np.unique(X[:, column]) for column in range(4)], axis=1)
    items = [(column, value) for column in range(4) for value in np.unique(X[:, column]).tolist()]
    found = patterns(X, labels, min_support=support, max_length=length)
    for label in np.unique(labels).tolist():
        got = {
            tuple((one.feature, one.values[0]) for one in rule.conditions) for rule in found if rule.label == label
        }
        wanted = witness(masks, labels == label, support, length)
        assert got == {tuple(items[item] for item in pattern) for pattern in wanted}


def test_a_single_column_gives_all_of_its_frequent_values():
    shares = {"a": 0.5, "b": 0.3, "c": 0.19, "d": 0.01}
    column = pd.DataFrame({"foi": np.repeat(list(shares), [round(100 * share) for share in shares.values()])})
    found = patterns(column, np.zeros(100, dtype=int), columns="foi")
    assert [str(rule.conditions[0]) for rule in found] == ["foi is a", "foi is b"]
    assert [rule.coverage for rule in found] == [0.5, 0.3]
    assert found.totals[0].coverage == 0.8
    assert not found.divide


def test_measures_are_those_of_the_points_that_match():
    X, labels = people(), np.random.default_rng(1).integers(-1, 3, 200)
    found = patterns(X, labels)
    assert {rule.label for rule in found} == {0, 1, 2}
    for rule in found:
        every, own = rule.matches(X), labels == rule.label
        met = every & (labels >= 0)
        assert (rule.samples, rule.counts.noise) == (met.sum(), (every & (labels < 0)).sum())
        assert rule.counts.precision_with_noise == (met & own).sum() / every.sum()
        assert rule.mistakes == (met & ~own).sum()
        assert (met & own).sum() >= 0.2 * own.sum()
        assert rule.coverage == (met & own).sum() / own.sum()
        assert rule.precision == (met & own).sum() / met.sum()
        assert rule.support == met.sum() / (labels >= 0).sum()
    for label, own in found.clusters.items():
        together = np.any([rule.matches(X) for rule in own], axis=0)
        assert found.totals[label].samples == (together & (labels >= 0)).sum()
        assert [rule.coverage for rule in own] == sorted((rule.coverage for rule in own), reverse=True)
    assert found.measure(X, labels).held_out_totals == found.totals


def test_forms_agree_where_a_column_has_bins_and_missing_values():
    import duckdb

    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x": rng.normal(size=300), "y": rng.normal(size=300) + 5})
    X.loc[rng.random(300) < 0.4, "x"] = np.nan
    found = patterns(X, rng.integers(0, 2, 300), columns="x", min_support=0.1)
    assert any(condition.values == (None,) for rule in found for condition in rule.conditions)
    assert any(
        condition.values is None and condition.name == "x" for rule in found for condition in rule.conditions
    )
    found = replace(found, rules=found.rules[::-1])  # other rules come first
    wanted = found.predict(X).tolist()
    scope = {}
    exec(found.to_python(), scope)
    assert [scope["cluster"](row) for row in X.to_dict("records")] == wanted
    table = X.astype(object).where(X.notna(), None)
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t (i INTEGER, x DOUBLE, y DOUBLE)")
    connection.executemany(
        "INSERT INTO t VALUES (?, ?, ?)", [[i, *row] for i, row in enumerate(table.values.tolist())]
    )
    script = found.to_sql("t")
    assert [row[0] for row in connection.execute(f"SELECT {script.case} FROM t ORDER BY i").fetchall()] == wanted
    for label, query in found.to_query().items():
        together = np.any([rule.matches(X) for rule in found.clusters[label]], axis=0)
        assert X.query(query).index.tolist() == np.flatnonzero(together).tolist()


def test_arrays_and_tensors_have_positions():
    X = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    labels = (X[:, 1] > 0).astype(int)
    found = patterns(X, labels)
    assert found.to_dict() == patterns(torch.from_numpy(X), torch.from_numpy(labels)).to_dict()
    assert "x[1]" in str(found)
    assert {column.position for column in patterns(X, labels, columns=[-1, 0]).columns} <= {0, 2}
    with pytest.raises(ValueError, match="2 features"):
        found[0].matches(X[:, :2])


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pd.date_range("2020-01-01", periods=200), "column 'day' holds dates or times"),
        ([[i % 2] for i in range(200)], "column 'day' holds lists or other objects"),
    ],
)
def test_columns_that_no_query_could_ask_for_are_refused(column, message):
    X = people().assign(day=column)
    with pytest.raises(ValueError, match=message):
        patterns(X, np.zeros(200))
    assert len(patterns(X.assign(day=X["day"].astype(str)), np.zeros(200)))


@pytest.mark.parametrize("support", [0.07, 0.14, 0.28, 0.55, 0.57])  # times 100 they are no whole numbers
def test_a_pattern_of_just_the_least_support_is_found(support):
    column = pd.DataFrame(
        {"foi": np.where(np.arange(100) < round(100 * support), "a", np.arange(100).astype(str))}
    )
    assert [str(rule.conditions[0]) for rule in patterns(column, np.zeros(100), min_support=support)] == [
        "foi is a"
    ]


def test_a_column_of_names_takes_no_memory():
    n = 50_000
    X = pd.DataFrame({"id": [f"n{i}" for i in range(n)], "half": np.arange(n) % 2})
    found = patterns(X, np.arange(n) % 2)
    assert [str(rule.conditions[0]) for rule in found] == ["half is 0", "half is 1"]


def test_names_of_clusters_and_noise():
    X = people()
    names = np.where(X["age"] > 48, "old", "young")
    found = patterns(X, names, columns="age")
    assert list(found.clusters) == ["old", "young"]
    assert str(found).startswith("old: ")
    labels = np.where(X["age"] > 48, 0, -1)
    assert list(patterns(X, labels).clusters) == [0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_support": 0}, r"min_support needs a number in \(0, 1\], got 0"),
        ({"max_length": 0}, "max_length needs a whole number >= 1, got 0"),
        ({"n_bins": 1}, "n_bins needs a whole number >= 2, got 1"),
        ({"columns": "height"}, r"columns: X has no column \['height'\]"),
        ({"columns": []}, r"columns needs one or more distinct columns, got \[\]"),
        ({"labels": np.zeros(3)}, "labels needs one label per point"),
        ({"X": np.zeros(3)}, r"X needs shape \[points, features\], got \[3\]"),
    ],
)
def test_errors_name_the_argument(options, message):
    with pytest.raises(ValueError, match=message):
        patterns(**({"X": people(), "labels": np.zeros(200)} | options))
