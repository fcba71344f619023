"""Rules as expressions for pandas and as the source of a Python function."""

from __future__ import annotations

from keyword import iskeyword
from math import isfinite
from typing import Any

import numpy as np

from neonxc.rules.collection import Rules
from neonxc.rules.condition import Column, Condition
from neonxc.rules.rule import Rule

FUNCTION = '''\
def {name}(row):
    """Cluster of a row, which maps {keys} to values; None where no rule is met."""
{helpers}{columns}{tests}    return None
'''
ALWAYS = "(index == index or index != index)"  # of every row, also of one whose index is missing
VALUE = """
    def value(name):
        try:
            return row[name]
        except KeyError:  # the column's name is a number
            return row[int(name)]
"""
NUMBER = """
    def number(value):
        try:
            return float(value)
        except TypeError:  # a missing value, which lies in no interval
            return float("nan")
"""
CATEGORY = """
    def category(value):
        try:
            return value if value == value else None
        except TypeError:  # a missing value
            return None
"""


def queries(rules: Rules) -> dict[Any, str]:
    """Write the rules of every cluster for pandas; see :meth:`Rules.to_query`."""
    for column in rules.columns:
        if not isinstance(column.key, str) or "`" in column.key or not column.key.isprintable():
            raise ValueError(
                f"column {column.key!r} has no name that DataFrame.query can quote; "
                "give it one, without backticks, tabs and line breaks"
            )

    def asked(condition: Condition) -> str:
        column = f"`{condition.column.key}`"
        return _asked(condition, column, missing=f"{column}.isna()")

    found = {}
    for label, own in rules.clusters.items():
        several = len(own) > 1
        texts = [" and ".join(map(asked, rule.conditions)) or ALWAYS for rule in own]
        found[label] = " or ".join(f"({text})" if several else text for text in texts)
    return found


def function(rules: Rules, name: str) -> str:
    """Write rules as a function; see :meth:`Rules.to_python`."""
    if not name.isidentifier() or iskeyword(name):
        raise ValueError(f"name needs the name of a Python function, got {name!r}")
    used = {_use(condition) for rule in rules for condition in rule.conditions}
    uses = [
        (column, kind) for column in rules.columns for kind in ("number", "category") if (column, kind) in used
    ]
    variables = {use: f"x{i}" for i, use in enumerate(uses)}
    columns = [f"    {name} = {kind}({_read(column)})\n" for (column, kind), name in variables.items()]

    def test(rule: Rule) -> str:
        asked = [_test(one, variables[_use(one)]) for one in rule.conditions]
        label = rule.label.item() if isinstance(rule.label, np.generic) else rule.label
        return f"    if {' and '.join(asked) or 'True'}:\n        return {label!r}\n"

    kinds = {kind for _, kind in uses}
    helpers = VALUE * any(_may_be_number(column) for column, _ in uses)
    helpers += NUMBER * ("number" in kinds) + CATEGORY * ("category" in kinds)
    return FUNCTION.format(
        name=name,
        keys="names of columns"
        if any(isinstance(column.key, str) for column in rules.columns)
        else "positions of columns",
        helpers=helpers + "\n" * bool(helpers),
        columns="".join(columns),
        tests="".join(map(test, rules)),
    )


def _may_be_number(column: Column) -> bool:
    """Whether a name was made of a whole number, as those of data frames without names are."""
    return isinstance(column.key, str) and column.key.isdecimal() and str(int(column.key)) == column.key


def _read(column: Column) -> str:
    """Write how a row's value of a column is read."""
    return f"value({column.key!r})" if _may_be_number(column) else f"row[{column.key!r}]"


def _use(condition: Condition) -> tuple[Column, str]:
    """A column, and what it is read as; a column of numbers may also be asked whether a value is missing."""
    return condition.column, "number" if condition.values is None else "category"


def _test(condition: Condition, variable: str) -> str:
    """Write a condition on a variable that holds a number, NaN for a missing one, or a category, or None."""
    return _asked(condition, variable, f"{variable} {f'!= {variable}' if condition.values is None else 'is None'}")


def _asked(condition: Condition, column: str, missing: str) -> str:
    """Write a condition on `column` in Python; `missing` asks whether there is no value."""
    if condition.values is None:
        parts = [_between(low, high, column) for low, high in condition.intervals] + [missing] * condition.missing
    else:
        gone, known = None in condition.values, [value for value in condition.values if value is not None]
        sign, join = ("not in", "and") if condition.negated else ("in", "or")
        parts = [f"{column} {sign} {known!r}"] * bool(known)
        parts += [("not " if condition.negated else "") + missing] * gone
        if len(parts) > 1:
            return f"({f' {join} '.join(parts)})"
        return parts[0] if parts else f"{column} {sign} []"
    return f"({' or '.join(parts)})" if len(parts) > 1 else parts[0] if parts else f"{column} in []"


def _between(low: float, high: float, column: str) -> str:
    low, high = float(low), float(high)  # the numbers of NumPy print their type
    if isfinite(low) and isfinite(high):
        return f"{low!r} < {column} <= {high!r}"
    if isfinite(high):
        return f"{column} <= {high!r}"
    return f"{column} > {low!r}" if isfinite(low) else f"{column} == {column}"
