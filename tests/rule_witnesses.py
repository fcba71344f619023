"""What rules say, by a loop over rows and conditions, and the same said by all their forms."""

import ast
import builtins
import json
import sqlite3
from collections import Counter

import duckdb
import numpy as np
import pandas as pd

from neonxc.rules import Rules


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


def sqlite(frame, table="t"):
    """A database with a table of a frame."""
    connection = sqlite3.connect(":memory:")
    frame.to_sql(table, connection, index=False)
    return connection


def in_duckdb(frame, table="t"):
    connection = duckdb.connect()
    connection.register("given", frame)
    connection.execute(f"CREATE TABLE {quoted(table)} AS SELECT * FROM given")
    return connection


def rows_of(rules, frame):
    """The rows that meet a rule of each cluster."""
    return {
        label: np.flatnonzero(np.any([rule.matches(frame) for rule in own], axis=0)).tolist()
        for label, own in rules.clusters.items()
    }


def assert_sql(rules, frame, expected, table="t", databases=(sqlite, in_duckdb)):
    """CASE gives the labels, SELECT the rows of each; the script has both."""
    sql = rules.to_sql(table)
    first, *others = sql.split(";\n\n-- ")
    assert len(others) == len(sql.selects)
    assert sql.case in first
    for database in databases:
        ask = database(frame.assign(**{"row id": range(len(frame))}), table).execute
        rows = ask(f'SELECT {sql.case} FROM {quoted(table)} ORDER BY "row id"').fetchall()
        assert [label for (label,) in rows] == expected
        selected = {label: sorted(row[-1] for row in ask(sql.selects[label]).fetchall()) for label in sql.selects}
        assert selected == rows_of(rules, frame)
        assert all(select in sql for select in sql.selects.values())
        assert Counter(row[-1] for row in ask(first).fetchall()) == Counter(expected)


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


def assert_meets(rules, frame, expected, queries=True):
    """The first rule that a row meets gives its label, and queries of pandas find the rows that meet any."""
    assert rules.predict(frame).tolist() == expected
    if queries:
        found = {label: frame.query(query).index.tolist() for label, query in rules.to_query().items()}
        assert found == rows_of(rules, frame)


def assert_said(rules, frame, expected, queries=True, **options):
    """Rules, SQL, queries of pandas, the function, and rules of a file say the same of a table."""
    assert_meets(rules, frame, expected, queries)
    assert_sql(rules, frame, expected, **options)
    assert run(rules, frame.to_dict("records")) == expected
    assert Rules.from_dict(json.loads(json.dumps(rules.to_dict(), allow_nan=False))) == rules
