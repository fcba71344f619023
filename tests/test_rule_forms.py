"""Rules as SQL, as queries of pandas, as a Python function, as JSON, files, tables; measured on other points."""

import ast
import builtins
import contextlib
import importlib.util
import json
import math
import sqlite3
import warnings
from collections import Counter
from html.parser import HTMLParser
from math import inf, nan

import duckdb
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from refusals import refused
from scipy.sparse import csr_matrix
from tree_witnesses import data

import neonxc
from neonxc.models import patterns
from neonxc.rules import SQL, Column, Condition, Counts, Rule, Rules, render_rules
from neonxc.trees import CART, ExKMC, KernelExKMC

NAMES = [
    "a b",
    "it's",
    'say "x"',
    "line\nbreak",
    "a.b",
    "select",
    "ünï ✓",
    "back`tick",
    "100%",
    "x;--",
    "[b]",
    "0",
]
QUERIED = [name for name in NAMES if name.isprintable() and "`" not in name]
ENGINES = ["python"] + ["numexpr"] * (importlib.util.find_spec("numexpr") is not None)
LABELS = {
    "names": ["it's", 'say "x"', "line\nbreak", "back\\slash"],
    "letters": ["a", "b", "c", "d"],
    "whole": [7, 2, 3, 10**12],
    "floats": [1.0, 2.0, 3.0, 4.0],
}


def fitted(seed, *, names=NAMES, labels="letters", kind="grid", dtype=np.float64, model="CART", n=60, d=4):
    """Rules of a tree on random points, the tree, and the frame that it was fitted to."""
    rng = np.random.default_rng(seed)
    case = data(seed, n, d, 4, kind=kind)
    scale = 10.0 ** rng.integers(-3, 4, d) if kind == "fine" else 1
    frame = pd.DataFrame((case.X * scale).astype(dtype), columns=list(rng.choice(names, d, replace=False)))
    given_ = np.array(LABELS[labels])[case.labels]
    explainer = {
        "CART": CART(4, max_leaves=9),
        "ExKMC": ExKMC(4, max_leaves=9),
        "KernelExKMC": KernelExKMC(4, max_leaves=9),
    }[model]
    tree = explainer.fit(frame, labels=given_).tree_
    return tree.rules(merge=bool(seed % 2)), tree, frame


def with_gaps(frame, seed, share=0.2):
    """The frame with values missing at random."""
    return frame.mask(np.random.default_rng(seed).random(frame.shape) < share)


def witness(rules, frame):
    """Labels by a loop over rows, rules and conditions."""

    def met(condition, value):
        missing = value is None or value is pd.NA or value != value
        if condition.values is None:
            return not missing and any(low < float(value) <= high for low, high in condition.intervals)
        return ((None if missing else value) in condition.values) != condition.negated

    found = []
    for row in frame.to_dict("records"):
        labels = (r.label for r in rules if all(met(c, row[c.column.key]) for c in r.conditions))
        found.append(next(labels, None))
    return found


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


class Sqlite:
    def __init__(self, frame, table="t"):
        self.connection = sqlite3.connect(":memory:")
        kinds = ["REAL" if pd.api.types.is_numeric_dtype(dtype) else "TEXT" for dtype in frame.dtypes]
        columns = ", ".join(f"{quoted(name)} {kind}" for name, kind in zip(frame, kinds, strict=True))
        self.connection.execute(f"CREATE TABLE {quoted(table)} ({quoted('row id')} INTEGER, {columns})")
        rows = [
            [i, *(None if pd.isna(value) else value for value in row)]
            for i, row in enumerate(frame.astype(object).to_numpy().tolist())
        ]
        marks = ", ".join("?" * (frame.shape[1] + 1))
        self.connection.executemany(f"INSERT INTO {quoted(table)} VALUES ({marks})", rows)

    def ask(self, query):
        return self.connection.execute(query).fetchall()


class Duckdb:
    def __init__(self, frame, table="t"):
        self.connection = duckdb.connect()
        self.connection.register("given", frame.assign(**{"row id": range(len(frame))}))
        self.connection.execute(f"CREATE TABLE {quoted(table)} AS SELECT * FROM given")

    def ask(self, query):
        return self.connection.execute(query).fetchall()


DATABASES = [Sqlite, Duckdb]


def assert_sql(rules, frame, expected, database, table="t"):
    """CASE gives the labels, SELECT the rows of each; the script has both."""
    found = database(frame, table)
    sql = rules.to_sql(table)
    rows = found.ask(f'SELECT {sql.case}, "row id" FROM {quoted(table)} ORDER BY "row id"')
    assert [label for label, _ in rows] == expected
    place = (frame.shape[1]) if database is Duckdb else 0
    for label, select in sql.selects.items():
        ids = sorted(row[place] for row in found.ask(select))
        assert ids == [i for i, other in enumerate(expected) if other == label]
        assert select in sql
    assert sql.case in sql
    first, *others = sql.split(";\n\n-- ")
    assert Counter(row[-1] for row in found.ask(first)) == Counter(expected)
    assert len(others) == len(sql.selects)


# --- labels ------------------------------------------------------------------------------------------------


@given(
    seed=st.integers(0, 10**6),
    model=st.sampled_from(["CART", "KernelExKMC"]),
    kind=st.sampled_from(["grid", "fine"]),
)
def test_predict_is_a_loop_over_rows_and_the_trees_where_nothing_is_missing(seed, model, kind):
    rules, tree, frame = fitted(seed, model=model, kind=kind)
    assert rules.predict(frame).tolist() == tree.predict(frame).tolist() == witness(rules, frame)
    missing = with_gaps(frame, seed)
    assert rules.predict(missing).tolist() == witness(rules, missing)
    shuffled = missing[missing.columns[::-1]].assign(other="text")
    assert rules.predict(shuffled).tolist() == witness(rules, missing)


def test_predict_takes_arrays_tensors_and_sparse_matrices():
    rules, tree, frame = fitted(4, labels="whole", kind="fine")
    X, expected = frame.to_numpy(copy=True), tree.predict(frame)
    for same in (
        X,
        X.tolist(),
        csr_matrix(X),
        np.asfortranarray(X),
        frame.astype("Float64"),
        frame.astype(object),
    ):
        assert_array_equal(rules.predict(same), expected)
    for same in (torch.from_numpy(X), torch.from_numpy(X).requires_grad_()):
        assert isinstance(rules.predict(same), torch.Tensor)
        assert rules.predict(same).tolist() == expected.tolist()
    single = X.astype(np.float32)
    for same in (single, torch.from_numpy(single), torch.from_numpy(single).bfloat16()):
        assert_array_equal(rules.predict(same), tree.predict(same))
    missing = X.copy()
    missing[3] = nan
    assert rules.predict(missing)[3] is None
    assert rules.predict(X[:0]).tolist() == rules.predict(frame[:0]).tolist() == []
    refused("X has 3 features", rules.predict, X[:, :3])


def test_trees_without_names_read_frames_by_position():
    X = np.array([[0.0, 5], [1, 5], [4, 5], [5, 5]])
    rules = CART(2).fit(X, labels=[0, 0, 1, 1]).tree_.rules()
    assert rules.predict(pd.DataFrame(X, columns=["u", "v"])).tolist() == [0, 0, 1, 1]
    assert [column.key for column in rules.columns] == [0]
    named = CART(2).fit(X, labels=[0, 0, 1, 1]).tree_.rules(feature_names=["line\nbreak", "v"])
    assert (named.columns[0].key, named.columns[0].name) == ("line\nbreak", "line break")
    assert named.predict(pd.DataFrame({"v": X[:, 1], "line\nbreak": X[:, 0]})).tolist() == [0, 0, 1, 1]


# --- SQL ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("database", DATABASES)
@given(
    seed=st.integers(0, 10**6),
    model=st.sampled_from(["CART", "ExKMC", "KernelExKMC"]),
    kind=st.sampled_from(["grid", "fine"]),
    labels=st.sampled_from(sorted(LABELS)),
    dtype=st.sampled_from([np.float64, np.float32]),
)
def test_sql_says_what_the_tree_predicts_and_null_where_no_rule_is_met(database, seed, model, kind, labels, dtype):
    rules, tree, frame = fitted(seed, model=model, kind=kind, labels=labels, dtype=dtype)
    assert_sql(rules, frame, tree.predict(frame).tolist(), database)
    missing = with_gaps(frame, seed)
    expected = rules.predict(missing).tolist()
    assert None in expected or tree.n_leaves == 1
    assert_sql(rules, missing, expected, database)


@pytest.mark.parametrize("database", DATABASES)
@pytest.mark.parametrize("table", ["order", 'my "own" table', "line\nbreak", "it's"])
def test_names_of_tables(database, table):
    rules, tree, frame = fitted(1)
    assert_sql(rules, frame, tree.predict(frame).tolist(), database, table)


def test_qualified_tables():
    rules, _, frame = fitted(1, names=list("abcd"))
    found = Duckdb(frame)
    found.connection.execute('CREATE SCHEMA "my.own"; CREATE TABLE "my.own".t AS SELECT * FROM t')
    rows = [row for select in rules.to_sql(("my.own", "t")).selects.values() for row in found.ask(select)]
    assert len(rows) == len(frame)


BOUNDS = [
    0.1,
    1 / 3,
    2 / 3 * 1e-7,
    1e300,
    -1e300,
    5e-324,
    1e-300,
    2.0**53 + 2,
    2.0**24 + 3,
    123456789.12345679,
    -0.5,
    0.0,
]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("database", DATABASES)
def test_bounds_are_exact(database, dtype):
    """Rows on a bound and next to it, of which half go left."""
    for bound in BOUNDS:
        with np.errstate(over="ignore"):
            near = dtype(bound)
        around = np.array([np.nextafter(near, dtype(-inf)), near, np.nextafter(near, dtype(inf))])
        frame = pd.DataFrame({"x": around[np.isfinite(around)]})
        column, counts = Column(0, "x"), Counts(1, 0)
        both = [Rule(1, "in", (Condition(column, ((-inf, bound),)),), counts)]
        both += [Rule(0, "out", (Condition(column, ((bound, inf),)),), counts)]
        rules = Rules(tuple(both), {})
        expected = [int(float(value) <= bound) for value in frame["x"]]
        assert rules.predict(frame).tolist() == expected
        assert_sql(rules, frame, expected, database)
        assert run(rules, frame.to_dict("records")) == expected
        if float(near) == bound:  # pandas compares single precision with single precision
            assert frame.query(rules.to_query()[1]).index.tolist() == np.flatnonzero(expected).tolist()


def test_dialects():
    column = Column(0, 'a"b`c]d\\e')
    conditions = (Condition(column, ((0.5, 3.0),)), Condition(Column(1, "w"), values=("it's\n", True)))
    rules = Rules((Rule("x\\y'z", "-- x\ny", conditions, Counts(1, 0)),), {})
    written = {
        dialect: rules.to_sql(("s", "t"), dialect) for dialect in ("ansi", "mysql", "bigquery", "tsql", "spark")
    }
    assert written["ansi"].case == (
        'CASE\n  WHEN "a""b`c]d\\e" > 0.5 AND "a""b`c]d\\e" <= 3 AND "w" IN (\'it\'\'s\n\', TRUE)'
        " THEN 'x\\y''z'\nEND"
    )
    assert written["mysql"].case == (
        "CASE\n  WHEN `a\"b``c]d\\e` > 0.5 AND `a\"b``c]d\\e` <= 3 AND `w` IN ('it\\'s\\n', TRUE)"
        " THEN 'x\\\\y\\'z'\nEND"
    )
    assert written["bigquery"].case == (
        "CASE\n  WHEN `a\"b\\`c]d\\\\e` > 0.5 AND `a\"b\\`c]d\\\\e` <= 3 AND `w` IN ('it\\'s\\n', TRUE)"
        " THEN 'x\\\\y\\'z'\nEND"
    )
    assert written["tsql"].case == (
        "CASE\n  WHEN [a\"b`c]]d\\e] > 0.5 AND [a\"b`c]]d\\e] <= 3 AND [w] IN (N'it''s\n', 1) THEN N'x\\y''z'\nEND"
    )
    assert written["spark"].case == written["mysql"].case
    for dialect, source in zip(written, ('"s"."t"', "`s`.`t`", "`s`.`t`", "[s].[t]", "`s`.`t`"), strict=True):
        assert isinstance(written[dialect], SQL)
        assert written[dialect].selects["x\\y'z"].startswith(f"SELECT *\nFROM {source}\nWHERE ")
        assert "\n-- -- x y\nSELECT" in written[dialect]  # no line of a name leaves its comment
    refused(r"dialect must be one of \['ansi', 'duckdb', .*'tsql'\], got 'ms'", rules.to_sql, "t", "ms")


@pytest.mark.parametrize("database", DATABASES)
def test_rules_that_all_or_no_rows_meet(database):
    column, counts = Column(0, "x"), Counts(1, 0)
    never, some = Rule("n", "n", (Condition(column, ()),), counts), Rule("s", "s", (Condition(column),), counts)
    always = Rule("a", "a", (), counts)
    frame = pd.DataFrame({"x": [1.0, nan, 2.0]})
    for kept, expected in (
        ((never,), [None] * 3),
        ((never, some), ["s", None, "s"]),
        ((some, always), ["s", "a", "s"]),
    ):
        rules = Rules(kept, {})
        assert rules.predict(frame).tolist() == expected == run(rules, frame.to_dict("records"))
        case = rules.to_sql("t").case
        rows = database(frame).ask(f'SELECT {case} FROM t ORDER BY "row id"')
        assert [label for (label,) in rows] == expected
        for label, query in rules.to_query().items():
            own = next(rule for rule in kept if rule.label == label)
            assert frame.query(query).index.tolist() == np.flatnonzero(own.matches(frame)).tolist()
    assert Rules((), {}).to_sql("t").case == "NULL"
    assert Rules((), {}).predict(frame).tolist() == [None] * 3


# --- pandas ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "float32", "Float64", "object"])
@given(
    seed=st.integers(0, 10**6),
    model=st.sampled_from(["CART", "KernelExKMC"]),
    labels=st.sampled_from(sorted(LABELS)),
)
def test_queries_find_the_rows_of_every_cluster(dtype, seed, model, labels):
    rules, _, frame = fitted(seed, names=QUERIED, model=model, labels=labels)
    missing = with_gaps(frame, seed).astype(dtype)
    expected = rules.predict(missing)
    assert set(rules.to_query()) == set(rules.clusters)
    for label, query in rules.to_query().items():
        assert missing.query(query).index.tolist() == [i for i, own in enumerate(expected) if own == label]


@given(seed=st.integers(0, 10**6))
def test_queries_of_single_precision(seed):
    rules, tree, frame = fitted(seed, names=QUERIED, dtype=np.float32, kind="fine")
    for label, query in rules.to_query().items():
        assert frame.query(query).index.tolist() == np.flatnonzero(tree.predict(frame) == label).tolist()


def test_queries_of_nullable_whole_numbers():
    frame = pd.DataFrame({"index": [1, 2, 3, 4, 5, 6], "b": [0, 0, 1, 1, 1, 1]})
    rules = CART(2).fit(frame, labels=[0, 0, 0, 1, 1, 1]).tree_.rules()
    frame = frame.astype("Int64")
    frame.loc[[0, 4], "index"] = pd.NA
    assert rules.predict(frame).tolist() == [None, 0, 0, 1, None, 1] == witness(rules, frame)
    assert [frame.query(query).index.tolist() for query in rules.to_query().values()] == [[1, 2], [3, 5]]


NASTY = ["inf", "Inf", "nan", "True", "None", "class", "index", "sin", "'''", "a\\", "@x", "#"]
NASTY += ["a b", "1 y", "1_y", "²", "`"]


@given(
    names=st.lists(st.sampled_from(NASTY) | st.text(max_size=4), min_size=2, max_size=4, unique=True),
    categories=st.lists(st.text("ab '\"\\`#@\n✓", max_size=4), min_size=1, max_size=3, unique=True),
    negated=st.booleans(),
)
@example(names=["a", "b"], categories=["\n"], negated=False)
def test_queries_of_any_names_and_categories_find_the_rows_or_name_a_column(names, categories, negated):
    words = [categories[i % len(categories)] + "x" * (i // 4) for i in range(8)]
    frame = pd.DataFrame({name: np.roll(np.arange(8.0), i) for i, name in enumerate(names)} | {names[0]: words})
    conditions = [Condition(Column(0, names[0]), values=tuple(categories), negated=negated)]
    conditions += [Condition(Column(i, name), ((0.5 * i, 6.5),)) for i, name in enumerate(names) if i]
    rules = Rules((Rule("a", "a", tuple(conditions), Counts(1, 0)),), {})
    refused = ""
    try:
        (query,) = rules.to_query().values()
    except ValueError as error:
        refused = str(error)
    if refused:
        assert any(f"the name of column {name!r};" in refused for name in names)
        return
    for engine in ENGINES:
        assert frame.query(query, engine=engine).index.tolist() == np.flatnonzero(rules[0].matches(frame)).tolist()


@pytest.mark.parametrize("name", ["back`tick", "line\nbreak", "tab\t", "inf", "Inf"])
def test_names_that_pandas_cannot_quote(name):
    rules = CART(2).fit(pd.DataFrame({name: [0.0, 1.0]}), labels=[0, 1]).tree_.rules()
    refused(r"DataFrame.query cannot quote the name of column .*; rename it", rules.to_query)
    refused("cannot quote the name of column 0", CART(2).fit([[0.0], [1.0]], labels=[0, 1]).tree_.rules().to_query)


@pytest.mark.parametrize("model", [CART, KernelExKMC])
def test_truth_values(model):
    frame = pd.DataFrame({"b": [True, True, False, False, True], "c": [False, True, False, True, False], "x": 1.0})
    tree = model(3, max_leaves=4).fit(frame, labels=[0, 1, 2, 2, 0]).tree_
    rules = tree.rules()
    assert {one for rule in rules for one in rule.text().split(" and ")} == {
        "b is true", "b is false", "c is true", "c is false",
    }  # fmt: skip
    expected = tree.predict(frame).tolist()
    for table in (frame, frame.astype(float), frame.to_numpy(float), torch.tensor(frame.to_numpy(float))):
        assert rules.predict(table).tolist() == expected
    assert run(rules, frame.to_dict("records")) == expected
    assert_sql(rules, frame, expected, Duckdb)
    for label, query in rules.to_query().items():
        assert frame.query(query).index.tolist() == np.flatnonzero(tree.predict(frame) == label).tolist()
    gaps = frame.astype({"b": "boolean"})
    gaps.loc[0, "b"] = pd.NA
    assert rules.predict(gaps).tolist()[0] is None


# --- Python ------------------------------------------------------------------------------------------------


def run(rules, rows):
    """What the function says of rows; it imports nothing and uses few of Python's own functions."""
    source = rules.to_python("find")
    tree = ast.parse(source)
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert used & set(dir(builtins)) <= {"float", "TypeError", "int", "KeyError"}
    namespace = {}
    exec(source, namespace)
    return [namespace["find"](row) for row in rows]


@given(
    seed=st.integers(0, 10**6),
    model=st.sampled_from(["CART", "KernelExKMC"]),
    labels=st.sampled_from(sorted(LABELS)),
)
def test_the_function_says_what_the_rules_predict(seed, model, labels):
    rules, tree, frame = fitted(seed, model=model, labels=labels)
    assert run(rules, frame.to_dict("records")) == tree.predict(frame).tolist()
    missing = with_gaps(frame, seed)
    expected = rules.predict(missing).tolist()
    for gone in (nan, None, pd.NA):
        rows = missing.astype(object).where(missing.notna(), gone).to_dict("records")
        assert run(rules, rows) == expected
    assert run(rules, (row for _, row in missing.iterrows())) == expected
    database = Sqlite(missing).connection
    database.row_factory = sqlite3.Row
    assert run(rules, database.execute("SELECT * FROM t ORDER BY 1").fetchall()) == expected


def test_columns_of_numbers_that_may_be_missing():
    column, counts = Column(0, "x"), Counts(1, 0)
    gone, low = Condition(column, values=(None,)), Condition(column, ((-inf, 2.0),))
    rules = Rules((Rule("gone", "g", (gone,), counts), Rule("low", "l", (low,), counts)), {})
    for chosen in (rules, Rules(rules.rules[::-1], {})):
        frame = pd.DataFrame({"x": [1.0, nan, 3.0]})
        assert chosen.predict(frame).tolist() == ["low", "gone", None]
        assert run(chosen, [{"x": 1}, {"x": None}, {"x": 3}]) == ["low", "gone", None]
        assert run(chosen, frame.to_dict("records")) == ["low", "gone", None]


def test_functions_for_rows_without_names_and_their_own_names():
    X = np.array([[0.0, 5], [1, 5], [4, 5], [5, 5]])
    rules = CART(2).fit(X, labels=[0, 0, 1, 1]).tree_.rules()
    assert "maps positions of columns to values" in rules.to_python()
    assert run(rules, X) == run(rules, X.tolist()) == [0, 0, 1, 1]
    frame = pd.DataFrame(X, columns=[3, 7])  # names that are numbers, which rules write as text
    tree = CART(2).fit(frame, labels=[0, 0, 1, 1]).tree_
    namespace = {}
    exec(tree.rules().to_python(), namespace)
    for rows in ([row for _, row in frame.iterrows()], frame.to_dict("records"), [{"3": x} for x in X[:, 0]]):
        assert [namespace["cluster"](row) for row in rows] == tree.predict(frame).tolist()
    for wrong in ("a b", "class", "", "1x"):
        refused("name must be a valid name of a Python function, got", rules.to_python, wrong)


# --- JSON and files ----------------------------------------------------------------------------------------


@given(
    seed=st.integers(0, 10**6),
    model=st.sampled_from(["CART", "KernelExKMC"]),
    labels=st.sampled_from(sorted(LABELS)),
    measured=st.booleans(),
)
def test_json_keeps_all(seed, model, labels, measured):
    rules, tree, frame = fitted(seed, model=model, labels=labels)
    if measured:
        rules = rules.measure(frame[:20], tree.predict(frame)[:20])
    text = json.dumps(rules.to_dict(), allow_nan=False)
    again = Rules.from_dict(json.loads(text))
    assert again == rules
    assert json.dumps(again.to_dict()) == text
    assert [str(rule) for rule in again] == [str(rule) for rule in rules]
    assert again.predict(frame).tolist() == rules.predict(frame).tolist()


def test_json_of_categories_and_of_what_is_not_known():
    column = Column(-1, "w", unit="m", whole=True, gaps=((0.5, -inf, inf),))
    conditions = (Condition(column, values=(None, "a", 1, True, 0.5), negated=True),)
    rules = Rules((Rule("x", "x", conditions, Counts(1, 0)),), {"x": Counts(1, 0)}, divide=False)
    assert Rules.from_dict(json.loads(json.dumps(rules.to_dict(), allow_nan=False))) == rules


def test_what_describes_no_rules():
    whole = fitted(1)[0].to_dict()
    for wrong in ({}, {"format": "other"}, [], None, "neonxc.rules"):
        refused("the dictionary does not describe rules: its format is", Rules.from_dict, wrong)
    refused(
        "the rules have format version 2; this version of neonxc reads 1", Rules.from_dict, whole | {"version": 2}
    )
    for damaged in ({"columns": []}, {"rules": [{}]}, {"rules": None}):
        refused("the description of rules is damaged", Rules.from_dict, whole | damaged)
    del whole["totals"]
    refused("damaged: KeyError", Rules.from_dict, whole)


def test_files(tmp_path):
    rules, tree, frame = fitted(7, model="KernelExKMC")
    rules = rules.measure(frame, tree.predict(frame))
    neonxc.save(rules, tmp_path / "rules.safetensors")
    assert neonxc.load(tmp_path / "rules.safetensors") == rules


# --- a collection and its table ----------------------------------------------------------------------------


def test_a_collection_is_a_sequence():
    rules, tree, _ = fitted(3)
    assert len(rules) == len(list(rules)) == len(rules.rules)
    assert rules[0] is rules.rules[0]
    assert rules[-1] in rules
    assert list(rules.clusters) == sorted(set(tree.classes) & {rule.label for rule in rules})
    assert [rule for own in rules.clusters.values() for rule in own] == sorted(rules, key=lambda rule: rule.label)
    assert str(rules) == rules.to_text() == render_rules(rules) == render_rules(tree.rules(merge=True))
    assert rules._repr_html_() == rules.to_html() == render_rules(rules, "html")
    assert rules.to_markdown(2) == render_rules(rules, "markdown", 2)


def test_some_of_the_rules_are_a_collection_with_their_own_totals():
    frame = pd.DataFrame({"x": np.arange(10)})
    tree = CART(2, max_leaves=4).fit(frame, labels=[0, 0, 1, 1, 1, 0, 0, 1, 1, 1]).tree_
    rules = tree.rules().measure(frame, [0] * 10)
    assert rules[:] == rules
    part = rules[1:]
    assert isinstance(part, type(rules))
    assert part.rules == rules.rules[1:]
    assert part.totals[1] == rules.totals[1]
    assert part.held_out_totals[1] == rules.held_out_totals[1]
    assert (part.totals[0].samples, rules.totals[0].samples) == (2, 4)
    assert part.held_out_totals[0].samples == 2
    assert (part.agreement, part.cost_ratio) == (1, None)
    assert "total: 8 samples" in part.to_text()
    assert "cost ratio" not in part.to_text()
    overlapping = patterns(frame, [0] * 5 + [1] * 5)
    single = overlapping[:1]
    assert next(iter(single.totals.values())) == overlapping[0].counts
    assert np.isnan(overlapping.agreement)


def test_table():
    rules, tree, frame = fitted(3)
    table = rules.to_frame()
    measures = ["samples", "mistakes", "support", "coverage", "precision"]
    assert list(table) == ["cluster", "name", "rule", *measures]
    ordered = [rule for own in rules.clusters.values() for rule in own]
    assert table["cluster"].tolist() == [rule.label for rule in ordered]
    assert table["rule"].tolist() == [rule.text() for rule in ordered]
    for name in measures:
        assert table[name].tolist() == [getattr(rule, name) for rule in ordered]
    assert table["samples"].sum() == len(frame)
    both = rules.measure(frame[:9], tree.predict(frame)[:9]).to_frame()
    assert list(both) == [*table, *(f"held_out_{name}" for name in measures)]
    assert both["held_out_samples"].sum() == 9
    overlapping = Rules(rules.rules, rules.totals, divide=False).to_frame()
    assert list(overlapping) == [name for name in table if name != "mistakes"]


# --- held-out points ---------------------------------------------------------------------------------------


@given(seed=st.integers(0, 10**6), weighted=st.booleans(), labels=st.sampled_from(sorted(LABELS)))
def test_measures_of_other_points_are_those_of_a_loop(seed, weighted, labels):
    rules, _, frame = fitted(seed, labels=labels)
    rng = np.random.default_rng(seed)
    other = with_gaps(frame.sample(40, replace=True, random_state=seed).reset_index(drop=True), seed)
    own = rng.choice(np.array(LABELS[labels]), 40)
    weight = rng.integers(0, 4, 40) / 2 if weighted else None
    found = rules.measure(other, own, weight)
    mass = np.ones(40) if weight is None else weight

    def expected(chosen, label):
        met = [i for i in range(40) if any(rule.matches(other[i : i + 1])[0] for rule in chosen)]
        of = [i for i in range(40) if own[i] == label]
        return (
            sum(mass[i] for i in met),
            sum(mass[i] for i in met if i not in of),
            sum(mass[i] for i in of),
            sum(mass),
        )

    for rule, before in zip(found, rules, strict=True):
        got, wanted = rule.held_out, expected([before], rule.label)
        assert (got.samples, got.mistakes, got.of_cluster, got.total) == pytest.approx(wanted)
        assert rule.counts == before.counts
        for share, part, whole in (
            (got.support, wanted[0], wanted[3]),
            (got.coverage, wanted[0] - wanted[1], wanted[2]),
            (got.precision, wanted[0] - wanted[1], wanted[0]),
        ):
            assert share == pytest.approx(part / whole) if whole else math.isnan(share)
    for label, total in found.held_out_totals.items():
        wanted = expected(rules.clusters[label], label)
        assert (total.samples, total.mistakes, total.of_cluster, total.total) == pytest.approx(wanted)


def test_a_point_that_meets_several_rules_counts_once_in_their_total():
    column = Column(0, "x")
    rules = Rules(tuple(Rule("a", "a", (Condition(column, ((low, 9),)),), Counts(1, 0)) for low in (0, 1)), {})
    found = rules.measure([[0.5], [2], [3], [12]], ["a", "a", "b", "a"])
    assert [rule.held_out for rule in found] == [Counts(3, 1, 3, 4), Counts(2, 1, 3, 4)]
    assert found.held_out_totals == {"a": Counts(3, 1, 3, 4)}


@pytest.mark.parametrize("missing", [None, nan, pd.NA])
def test_labels_of_other_points(missing):
    X = [[0.0], [1], [4], [5]]
    names = CART(2).fit(X, labels=list("aabb")).tree_.rules()
    found = names.measure(X, np.array(["a", missing, "b", "c"], dtype=object))
    assert [rule.held_out for rule in found] == [Counts(1, 0, 1, 3, 1), Counts(2, 1, 1, 3)]
    numbers = CART(2).fit(X, labels=[0, 0, 1, 1]).tree_.rules()
    for labels in ([0, -1, 1, 1], torch.tensor([0, -1, 1, 1]), pd.Series([0, -1, 1, 1], dtype="Int64")):
        found = [rule.held_out for rule in numbers.measure(torch.tensor(X), labels)]
        assert found == [Counts(1, 0, 1, 3, 1), Counts(2, 0, 2, 3)]


def test_wrong_labels_and_weights():
    rules, tree, frame = fitted(1)
    labels = tree.predict(frame)
    refused(r"labels needs shape \(60,\), one value per point, got \(59,\)", rules.measure, frame, labels[1:])
    refused(
        r"sample_weight needs one weight per point, shape \(60,\), got \(2,\)",
        rules.measure,
        frame,
        labels,
        [1, 2],
    )
    for wrong in (-1.0, nan, inf):
        refused(r"sample_weight (needs weights >= 0|contains)", rules.measure, frame, labels, [wrong] * 60)


class Rows(HTMLParser):
    """Cells of a table."""

    def __init__(self, page):
        super().__init__()
        self.rows, self.inside = [], False
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, text):
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += " ".join(text.split())


def test_reports_of_held_out_points():
    X = pd.DataFrame({"age": [17, 35, 36, 70, 71], "size": [1, 1, 1, 1, 9]})
    tree = CART(2, max_leaves=3).fit(X, labels=["young", "young", "old", "old", "young"]).tree_
    rules = tree.rules().measure(X[["size", "age"]][:4], ["young", "old", "old", "old"])
    assert rules.to_text() == (
        "old: 2 samples (40%), 0 mistakes, coverage 100%, precision 100%\n"
        "    held out: 2 samples (50%), 0 mistakes, coverage 67%, precision 100%\n"
        "    age in [36, 70]\n"
        "\n"
        "young: 3 samples (60%), 0 mistakes, coverage 100%, precision 100%\n"
        "    held out: 2 samples (50%), 1 mistake, coverage 100%, precision 50%\n"
        "    age ≤ 35   2 samples, 0 mistakes, coverage 67%; "
        "held out: coverage 100%, precision 50%\n"
        "or  age > 70   1 sample, 0 mistakes, coverage 33%; held out: coverage 0%\n"
        "\n"
        "total: 5 samples, 0 mistakes, agreement 100%, cost ratio 1\n"
        "    held out: 4 samples, 1 mistake, agreement 75%"
    )
    assert rules.to_markdown().startswith(
        "### old\n\n2 samples (40%), 0 mistakes, coverage 100%, precision 100%\n\n"
        "Held out: 2 samples (50%), 0 mistakes, coverage 67%, precision 100%\n\n- age in [36, 70]\n\n"
    )
    header, *rows = Rows(rules.to_html()).rows[:-3]
    measures = ["samples", "mistakes", "coverage", "precision"]
    assert header == ["cluster", "rule", *measures, *(f"held-out {name}" for name in measures)]
    assert rows[0] == ["old", "age in [36, 70]", "2", "0", "100%", "100%", "2", "0", "67%", "100%"]
    assert rows[2][-8:] == ["1", "0", "33%", "100%", "0", "0", "0%", "–"]
    assert {len(rows[0]), len(rows[1]), len(rows[2]) + 1} == {10}
    again = render_rules(list(rules))  # any iterable of a tree's rules
    assert again == rules.to_text().replace(", cost ratio 1", "")  # which single rules do not know
    rows = Rows(render_rules(list(rules), "html")).rows[:-3]
    assert len({len(row) + (i == 3) for i, row in enumerate(rows)}) == 1


# --- noise, and clusters without a rule --------------------------------------------------------------------


def noisy(weight=None):
    """Rules of points of which two of five that meet the first rule are noise; cluster 2 has no leaf."""
    X = np.array([[0.0], [1], [2], [0.5], [1.5], [10], [11], [12], [13], [11.5]])
    labels = [0, 0, 2, -1, -1, 1, 1, 1, 1, 1]
    with pytest.warns(UserWarning, match="2 points of noise"):
        tree = CART(3, max_leaves=2).fit(X, labels=labels, sample_weight=weight).tree_
    return tree.rules(), X, labels


def test_precision_is_given_with_noise_and_without():
    rules, X, labels = noisy()
    low = rules.clusters[0][0]
    assert low.counts == Counts(3, 1, 2, 8, noise=2)
    assert (low.precision, low.counts.precision_with_noise) == (2 / 3, 2 / 5)
    text = rules.to_text()
    assert "cluster 0: 3 samples (38%), 1 mistake, coverage 100%, precision 67% (40% with noise)\n" in text
    assert "precision 100%\n" in text  # no noise meets the rule of cluster 1
    assert "agreement 88% (70% with noise)" in text
    assert "only the shares with noise count them" in text
    assert rules.to_markdown().count("67% (40% with noise)") == rules.to_html().count("67% (40% with noise)") == 1
    assert rules.to_frame()["precision_with_noise"].tolist()[:2] == [2 / 5, 1]
    assert "-- cluster 0: precision 67% (40% with noise)\nSELECT" in rules.to_sql("t")
    assert "-- cluster 1\nSELECT" in rules.to_sql("t")
    assert Rules.from_dict(json.loads(json.dumps(rules.to_dict()))) == rules
    assert rules.measure(X, labels)[0].held_out == low.counts
    (merged,) = rules[:1].totals.values()
    assert merged.noise == 2
    weighted, *_ = noisy(np.where(np.array(labels) == -1, 3.0, 1.0))
    assert weighted.clusters[0][0].counts == Counts(3, 1, 2, 8, noise=6)
    found = patterns(pd.DataFrame(X, columns=["x"]), labels, n_bins=2)
    assert found.clusters[0][0].counts.noise == 2
    assert "(40% with noise)" in found.to_text()


def test_clusters_without_a_rule_are_listed():
    rules, X, _ = noisy()
    assert rules.without_rule == ((2, "cluster 2"),)
    said = "cluster 2: no rule: no leaf of the tree has this cluster"
    assert f"\n\n{said}\n\ntotal" in rules.to_text()
    assert "### cluster 2\n\nNo rule: no leaf of the tree has this cluster.\n\n" in rules.to_markdown()
    assert ["cluster 2", "no rule: no leaf of the tree has this cluster"] in Rows(rules.to_html()).rows
    assert f"\n-- {said}\nSELECT" in rules.to_sql("t")
    for table in (rules.to_frame(), rules.measure(X[:6], [0, 0, 0, 0, 0, 1]).to_frame()):
        last = table.iloc[2]
        assert (last["cluster"], last["samples"], last["coverage"], pd.isna(last["rule"])) == (2, 0, 0, True)
        assert table["samples"].dtype == int
        assert not table.drop(columns="rule").iloc[:2].isna().any(axis=None)
    assert rules[:1].without_rule == ()
    assert CART(2).fit(X[:2], labels=["a", "b"]).tree_.rules().without_rule == ()


@pytest.mark.parametrize("sign", [1, -1])
def test_integers_beyond_doubles_in_databases(sign):
    first = 2**53
    X = pd.DataFrame({"id": sign * (first + np.arange(8).repeat(4)), "width": np.arange(32)})
    tree = CART(2).fit(X, labels=(X["id"].astype(float) > sign * (first + 2)).astype(int))
    rules = tree.tree_.rules()
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        X.to_sql("ids", database, index=False)
        (found,) = pd.read_sql(f"SELECT {rules.to_sql('ids', 'sqlite').case} FROM ids", database).to_numpy().T
    assert (found == tree.predict(X)).all()
    assert 'CAST("id" AS DOUBLE PRECISION)' in rules.to_sql("ids").case
    assert "CAST" not in rules.to_sql("ids", "mysql").case
    assert "CAST" not in CART(2).fit(X[["width"]], labels=[0] * 16 + [1] * 16).tree_.rules().to_sql("ids").case


def test_labels_of_another_numbering_are_told():
    frame = pd.DataFrame({"a": np.arange(40.0)})
    labels = np.arange(40) // 10
    rules = CART(4).fit(frame, labels=labels).tree_.rules()
    for other in ((labels + 1) % 4, labels + 2, np.array(["p", "q", 2, 3], object)[labels]):
        with pytest.warns(UserWarning, match=r"and for 100% if the clusters of the rules get other numbers"):
            rules.measure(frame, other)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rules.measure(frame, np.where(labels == 3, -1, labels))
        rules.measure(frame, np.random.default_rng(0).integers(0, 4, 40))
