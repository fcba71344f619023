"""Export rules as pandas query expressions, as the source of a Python function, and as SQL.

A :class:`Language` has a template for each kind of condition on a column `x`, which :func:`expression` fills in::

    intervals     one test for each interval, joined by "or"; one for missing values if the condition allows them
    values        a test for the categories, which also tests for missing values if None is one of them

The conditions of a rule are joined by "and", and the rules of a cluster by "or".

A bound b lies halfway between two numbers, and may need 17 digits, as 4730.389999999999 does. SQL then has the
nearest number c of 15 digits, if it separates the same training values::

    c > b    x < c   in place of x <= b,   x >= c  in place of x > b
    c < b    x <= c  in place of x <= b,   x > c   in place of x > b

Both select the same rows, but for numbers between b and c, which have more than 15 digits themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from keyword import iskeyword
from math import isfinite
from typing import NamedTuple

import numpy as np
import pandas as pd

from neonxc.common.arguments import result_names
from neonxc.common.types import Label
from neonxc.data.kinds import plain
from neonxc.rules.condition import Column, Condition
from neonxc.rules.rendering import no_rule, precision
from neonxc.rules.rule import Rule, RuleSet
from neonxc.rules.wording import one_line

Templates = tuple[tuple[str, str], ...]
DIGITS = 15
"""Significant digits that every number of float64 keeps: those of tables have no more."""
EXACT = 2.0**53
"""Number from which on not all integers are numbers of float64, with which trees compute."""


class Language(NamedTuple):
    """The templates of conditions on the column ``{x}`` in a language."""

    missing: str
    never: str
    either: str
    intervals: Templates
    """Without and with a lower bound, each without and with an upper bound."""
    one_of: Templates
    """No category, one, and several ``{values}``, each without and with None among them."""
    none_of: Templates


class Bound(NamedTuple):
    """A bound of an interval as it is written, and the comparisons of numbers up to it, and beyond it."""

    literal: str
    up_to: str = "<="
    beyond: str = ">"


def expression(
    condition: Condition,
    x: str,
    language: Language,
    literal: Callable[[object], str] = repr,
    written: Callable[[Column, float], Bound] = lambda column, bound: Bound(repr(bound)),
) -> str:
    """Write a condition on a column `x`; `literal` writes categories, and `written` bounds."""
    if condition.values is not None:
        values = [literal(value) for value in condition.values if value is not None]
        has_none = len(values) < len(condition.values)
        templates = language.none_of if condition.negated else language.one_of
        template = templates[min(len(values), 2)][has_none]
        return template.format(x=x, values=", ".join(values))

    texts = []
    for low, high in condition.intervals:
        template = language.intervals[isfinite(low)][isfinite(high)]
        lower, upper = (written(condition.column, float(bound)) for bound in (low, high))
        text = template.format(x=x, low=lower.literal, beyond=lower.beyond, high=upper.literal, up_to=upper.up_to)
        texts.append(text)
    if condition.missing:
        texts.append(language.missing.format(x=x))
    if not texts:
        return language.never.format(x=x)
    text = language.either.join(texts)
    return f"({text})" if len(texts) > 1 else text


def any_of(texts: list[str], either: str) -> str:
    """Join the texts of a cluster's rules by an "or"; several ones are put in parentheses."""
    if len(texts) == 1:
        return texts[0]
    return either.join(f"({text})" for text in texts)


FUNCTION = '''\
def {name}(row):
    """Return the cluster of a row, which maps {keys} to values, or None if the row meets no rule."""
{helpers}{columns}{tests}    return None
'''
ALWAYS = "(index == index or index != index)"  # true for every row, even if its index is NaN
VALUE = """
    def value(name):
        try:
            return row[name]
        except KeyError:  # the column name is a number
            return row[int(name)]
"""
KINDS = {
    "number": """
    def number(value):
        try:
            return float(value)
        except TypeError:  # a missing value; NaN lies in no interval
            return float("nan")
""",
    "category": """
    def category(value):
        try:
            return value if value == value else None
        except TypeError:  # a missing value
            return None
""",
}


def _language(number: str, category: str) -> Language:
    """Return how Python writes conditions; `number` and `category` test for a missing value."""
    one_of = ("{x} in [{values}]", f"({{x}} in [{{values}}] or {category})")
    none_of = ("{x} not in [{values}]", f"({{x}} not in [{{values}}] and not {category})")
    return Language(
        missing=number,
        never="{x} in []",
        either=" or ",
        intervals=(
            ("{x} == {x}", "{x} <= {high}"),  # NaN is not equal to itself
            ("{x} > {low}", "{low} < {x} <= {high}"),
        ),
        one_of=(("{x} in []", category), one_of, one_of),
        none_of=(("{x} not in []", f"not {category}"), none_of, none_of),
    )


PANDAS = _language(number="{x}.isna()", category="{x}.isna()")
PYTHON = _language(number="{x} != {x}", category="{x} is None")


def queries(rules: RuleSet) -> dict[Label, str]:
    """Write a pandas query expression for each cluster; see :meth:`Rules.to_query`."""
    _check_names([column.key for column in rules.columns])

    def query(rule: Rule) -> str:
        tests = []
        for condition in rule.conditions:
            name = f"`{condition.column.key}`"
            tests.append(expression(condition, name, PANDAS, _escaped))
        return " and ".join(tests) or ALWAYS

    return {label: any_of([*map(query, of_label)], " or ") for label, of_label in rules.clusters.items()}


def _check_names(keys: Sequence[str | int | None]) -> None:
    """Refuse names of columns that pandas cannot quote, or that it takes for something else or for one another.

    How pandas reads a name depends on its version, so every name is tried on a small table.
    """
    table = pd.DataFrame(np.eye(len(keys) + 1, len(keys)), columns=keys)
    for i, key in enumerate(keys):
        rows: list[int] | None = None
        if isinstance(key, str) and key.isprintable() and "`" not in key:
            with suppress(Exception):  # pandas raises errors of many kinds
                query = f"`{key}` > 0.5 and `{key}` > 0.5"  # two quotes may look like the ends of a text
                rows = table.query(query, engine="python").index.tolist()
        if rows != [i]:
            raise ValueError(
                f"DataFrame.query cannot quote the name of column {key!r}; rename it to a string without "
                "backticks and line breaks that pandas takes neither for a constant nor for another column"
            )


def _escaped(value: object) -> str:
    """Write a category such that pandas, which looks for backticks, quotes and line breaks itself, finds none."""
    if not isinstance(value, str):
        return repr(value)
    signs = r"[\\'\"`#\x00-\x1f\x7f-\x9f\u2028\u2029]"
    escaped = re.sub(signs, lambda sign: f"\\u{ord(sign[0]):04x}", value)
    return f"'{escaped}'"


def function(rules: RuleSet, name: str) -> str:
    """Write rules as a Python function; see :meth:`Rules.to_python`."""
    if not name.isidentifier() or iskeyword(name):
        raise ValueError(f"name must be a valid name of a Python function, got {name!r}")
    used = {_use(condition) for rule in rules.rules for condition in rule.conditions}
    uses = [(column, kind) for column in rules.columns for kind in KINDS if (column, kind) in used]
    variables = {use: f"x{i}" for i, use in enumerate(uses)}

    helpers = ""
    if any(_may_be_number(column) for column, _ in uses):
        helpers += VALUE
    for kind, helper in KINDS.items():
        if any(use[1] == kind for use in uses):
            helpers += helper
    if helpers:
        helpers += "\n"
    columns = []
    for (column, kind), x in variables.items():
        unit = f"  # in {column.unit}" if kind == "number" and column.unit else ""
        columns.append(f"    {x} = {kind}({_read(column)}){unit}\n")
    tests = []
    for rule in rules.rules:
        conditions = [expression(test, variables[_use(test)], PYTHON) for test in rule.conditions]
        test = " and ".join(conditions) or "True"
        tests.append(f"    if {test}:\n        return {plain(rule.label)!r}\n")
    has_names = any(isinstance(column.key, str) for column in rules.columns)
    keys = "names of columns" if has_names else "positions of columns"
    return FUNCTION.format(name=name, keys=keys, helpers=helpers, columns="".join(columns), tests="".join(tests))


def _may_be_number(column: Column) -> bool:
    """Whether a column name may stand for an integer, as in data frames without column names."""
    return isinstance(column.key, str) and column.key.isdecimal() and str(int(column.key)) == column.key


def _read(column: Column) -> str:
    """Write the expression that reads a column from a row."""
    if _may_be_number(column):
        return f"value({column.key!r})"
    return f"row[{column.key!r}]"


def _use(condition: Condition) -> tuple[Column, str]:
    """Return the column of a condition, and whether it is read as a number or as a category."""
    kind = "number" if condition.values is None else "category"
    return condition.column, kind


class SQL(str):
    """A script of SQL statements, which gives access to its parts.

    Attributes
    ----------
    case : str
        CASE expression that gives the label of a row, or NULL if the row meets no rule.
    selects : dict
        SELECT statement of each label, which returns the rows that meet one of its rules.
    dialects : list of str
        The dialects that this text is for.
    """

    case: str
    selects: dict[Label, str]
    dialects: list[str]


class Dialect(NamedTuple):
    """The quotes of names and strings in a SQL dialect, and its Boolean values."""

    name: Callable[[str], str]
    string: Callable[[str], str]
    true: str = "TRUE"
    false: str = "FALSE"
    double: str = ""
    """Type to which integers beyond 2^53 are cast, if they are compared exactly otherwise; trees round them."""


def _doubled(text: str, opening: str, closing: str) -> str:
    """Quote a text, in which quotes are doubled."""
    return opening + text.replace(closing, 2 * closing) + closing


def _backslashed(text: str, quote: str) -> str:
    """Quote a text, in which quotes and line breaks are escaped with backslashes."""
    for sign, escaped in (("\\", "\\\\"), (quote, f"\\{quote}"), ("\n", "\\n"), ("\r", "\\r")):
        text = text.replace(sign, escaped)
    return quote + text + quote


ANSI = Dialect(
    name=lambda name: _doubled(name, '"', '"'),
    string=lambda text: _doubled(text, "'", "'"),
    double="DOUBLE PRECISION",
)
BACKTICKS = Dialect(name=lambda name: _doubled(name, "`", "`"), string=lambda text: _backslashed(text, "'"))
DIALECTS = {
    **dict.fromkeys(("ansi", "duckdb", "postgres", "sqlite", "trino"), ANSI),
    **dict.fromkeys(("mysql", "spark", "databricks"), BACKTICKS),
    "snowflake": Dialect(ANSI.name, BACKTICKS.string),
    "bigquery": Dialect(lambda name: _backslashed(name, "`"), BACKTICKS.string),
    "tsql": Dialect(
        name=lambda name: _doubled(name, "[", "]"),
        string=lambda text: f"N{ANSI.string(text)}",
        true="1",
        false="0",
    ),
}

EXPRESSIONS = Language(
    missing="{x} IS NULL",
    never="1 = 0",
    either=" OR ",  # AND binds more tightly
    intervals=(
        ("{x} IS NOT NULL", "{x} {up_to} {high}"),
        ("{x} {beyond} {low}", "{x} {beyond} {low} AND {x} {up_to} {high}"),
    ),
    one_of=(
        ("1 = 0", "{x} IS NULL"),
        ("{x} = {values}", "({x} = {values} OR {x} IS NULL)"),
        ("{x} IN ({values})", "({x} IN ({values}) OR {x} IS NULL)"),
    ),
    none_of=(  # comparisons with NULL are not true
        ("1 = 1", "{x} IS NOT NULL"),
        ("({x} <> {values} OR {x} IS NULL)", "{x} <> {values}"),
        ("({x} NOT IN ({values}) OR {x} IS NULL)", "{x} NOT IN ({values})"),
    ),
)


def sql(rules: RuleSet, table: str | Sequence[str], dialect: str) -> SQL:
    """Write rules as SQL; see :meth:`Rules.to_sql`."""
    words, source = _dialect(table, dialect)
    whens = []
    for rule in rules.rules:
        whens.append(f"  WHEN {_conjunction(rule, words)} THEN {_literal(rule.label, words)}")
    case = "\n".join(["CASE", *whens, "END"]) if whens else "NULL"
    taken = {str(column.key).casefold() for column in rules.columns}  # most databases take CLUSTER for it
    (cluster,) = result_names(["cluster"], taken)

    statements = [f"SELECT *,\n{case} AS {words.name(cluster)}\nFROM {source};"]
    selects = {}
    for label, of_label in rules.clusters.items():
        where = any_of([_conjunction(rule, words) for rule in of_label], "\n   OR ")
        selects[label] = f"SELECT *\nFROM {source}\nWHERE {where}"
        comment = _comment(of_label[0].name)
        counts = rules.totals.get(label)
        if counts is not None and counts.noise:
            comment += f": precision {precision(counts)}"
        statements.append(f"-- {comment}\n{selects[label]};")

    dialects = [name for name, same in DIALECTS.items() if same == words]
    comments = [f"-- SQL for {', '.join(dialects)}\n"]
    comments += [f"-- {_comment(f'{column.name} is in {column.unit}')}\n" for column in _with_units(rules)]
    comments += [f"-- {_comment(name)}: {why}\n" for name, why in no_rule(rules)]
    script = SQL("".join(comments) + "\n\n".join(statements) + "\n")
    script.case = case
    script.selects = selects
    script.dialects = dialects
    return script


def _with_units(rules: RuleSet) -> list[Column]:
    """Return the columns of numbers that have a unit, each once."""
    numeric = {test.column for rule in rules.rules for test in rule.conditions if test.values is None}
    return [column for column in rules.columns if column in numeric and column.unit]


def counting(rules: RuleSet, table: str | Sequence[str], dialect: str, weight: str | None = None) -> str:
    """Write the SELECT statement of one row, with the number of rows, or sum of weights, that meet each rule."""
    words, source = _dialect(table, dialect)
    amount = "1" if weight is None else words.name(weight)
    counts = [
        f"COALESCE(SUM(CASE WHEN {_conjunction(rule, words)} THEN {amount} ELSE 0 END), 0)" for rule in rules.rules
    ]
    return f"SELECT {', '.join(counts)} FROM {source}"


def _dialect(table: str | Sequence[str], dialect: str) -> tuple[Dialect, str]:
    """Return a dialect by its name, and the quoted name of a table."""
    if dialect not in DIALECTS:
        raise ValueError(f"dialect must be one of {list(DIALECTS)}, got {dialect!r}")
    if not table or not all(isinstance(part, str) and part for part in table):
        raise ValueError(f"table must be the name of a table, or the parts of a qualified name, got {table!r}")
    words = DIALECTS[dialect]
    parts = [table] if isinstance(table, str) else table
    return words, ".".join(map(words.name, parts))


def _comment(name: str) -> str:
    """Write the name of a cluster in a comment."""
    return one_line(name).rstrip("\\")  # Spark continues a comment that ends with a backslash


def _conjunction(rule: Rule, words: Dialect) -> str:
    """Write all conditions of a rule."""
    literal = partial(_literal, words=words)
    written = partial(_short_bound, words=words)
    tests = [expression(test, _column(test, words), EXPRESSIONS, literal, written) for test in rule.conditions]
    return " AND ".join(tests) or "1 = 1"


def _column(condition: Condition, words: Dialect) -> str:
    """Write the column of a condition, as a floating-point number if integers near a bound are rounded."""
    name = words.name(str(condition.column.key))
    bounds = [abs(bound) for interval in condition.intervals for bound in interval if isfinite(bound)]
    is_large = condition.values is None and max(bounds, default=0) >= EXACT
    if is_large and words.double:
        return f"CAST({name} AS {words.double})"
    return name


def _short_bound(column: Column, bound: float, words: Dialect) -> Bound:
    """Write a bound, as the nearest number of 15 digits if this separates the same training values."""
    short = float(f"{bound:.{DIGITS}g}")
    around = {value: (below, above) for value, below, above in column.gaps}
    below, above = around.get(bound, (bound, bound))
    if short == bound or not below <= short < above:
        return Bound(_literal(bound, words))
    if short > bound:
        return Bound(_literal(short, words), up_to="<", beyond=">=")
    return Bound(_literal(short, words))


def _literal(value: object, words: Dialect) -> str:
    """Write a label, category or bound as a literal.

    Numbers that are the same in single precision and as a short decimal are written so. Others get an exponent,
    which makes them double-precision literals: databases do not round these, but they may round a decimal
    literal to the precision of the column that it is compared with.
    """
    value = plain(value)
    if isinstance(value, bool):
        return words.true if value else words.false
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        number = repr(value + 0.0)  # not -0.0
        # the same in single precision, and with at most eight binary places
        is_short = abs(value) < 2**24 and np.float32(value) == value and (256 * value).is_integer()
        if is_short:
            return number.removesuffix(".0")
        return number if "e" in number else f"{number}e0"
    return words.string(str(value))
