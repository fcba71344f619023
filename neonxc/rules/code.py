"""Export rules as pandas query expressions, as the source of a Python function, and as SQL."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from keyword import iskeyword
from math import isfinite
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from neonxc.common.arguments import result_names
from neonxc.data.kinds import plain
from neonxc.rules.condition import Column, Condition
from neonxc.rules.rendering import no_rule, precision
from neonxc.rules.rule import Rule, RuleSet
from neonxc.rules.wording import one_line

Templates = tuple[tuple[str, str], ...]
WHOLE = 2.0**53
"""Number from which on not all integers are numbers of float64, with which trees compute."""


class Language(NamedTuple):
    """How a language writes a condition on the column ``{x}``."""

    missing: str
    never: str
    either: str
    intervals: Templates
    """Without and with a lower bound, each without and with an upper bound."""
    one_of: Templates
    """No category, one, and several ``{values}``, each without and with None among them."""
    none_of: Templates


def expression(condition: Condition, x: str, language: Language, literal: Callable[[Any], str] = repr) -> str:
    """Write a condition on a column `x`; `literal` writes bounds and categories."""
    if condition.values is not None:
        listed = [literal(value) for value in condition.values if value is not None]
        templates = language.none_of if condition.negated else language.one_of
        template = templates[min(len(listed), 2)][len(listed) < len(condition.values)]
        return template.format(x=x, values=", ".join(listed))
    texts = [
        language.intervals[isfinite(low)][isfinite(high)].format(
            x=x, low=literal(float(low)), high=literal(float(high))
        )
        for low, high in condition.intervals
    ]
    texts += [language.missing.format(x=x)] * condition.missing
    text = language.either.join(texts) or language.never.format(x=x)
    return f"({text})" if len(texts) > 1 else text


def any_of(texts: list[str], either: str) -> str:
    """Join the texts of a cluster's rules by an "or"; several ones are put in parentheses."""
    return either.join(map("({})".format, texts)) if len(texts) > 1 else texts[0]


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
    one_of = "{x} in [{values}]", f"({{x}} in [{{values}}] or {category})"
    none_of = "{x} not in [{values}]", f"({{x}} not in [{{values}}] and not {category})"
    return Language(
        number,
        "{x} in []",
        " or ",
        (("{x} == {x}", "{x} <= {high}"), ("{x} > {low}", "{low} < {x} <= {high}")),
        (("{x} in []", category), one_of, one_of),
        (("{x} not in []", f"not {category}"), none_of, none_of),
    )


PANDAS, PYTHON = _language("{x}.isna()", "{x}.isna()"), _language("{x} != {x}", "{x} is None")


def queries(rules: RuleSet) -> dict[Any, str]:
    """Write a pandas query expression for each cluster; see :meth:`Rules.to_query`."""
    _check_names([column.key for column in rules.columns])

    def query(rule: Rule) -> str:
        tests = [expression(test, f"`{test.column.key}`", PANDAS, _escaped) for test in rule.conditions]
        return " and ".join(tests) or ALWAYS

    return {label: any_of([*map(query, of_label)], " or ") for label, of_label in rules.clusters.items()}


def _check_names(keys: Sequence[Any]) -> None:
    """Refuse names of columns that pandas cannot quote, or that it takes for something else or for one another.

    How pandas reads a name depends on its version, so every name is tried on a small table.
    """
    table = pd.DataFrame(np.eye(len(keys) + 1, len(keys)), columns=keys)
    for i, key in enumerate(keys):
        rows: Any = None
        if isinstance(key, str) and key.isprintable() and "`" not in key:
            with suppress(Exception):  # pandas raises errors of many kinds
                twice = f"`{key}` > 0.5 and `{key}` > 0.5"  # two quotes may look like the ends of a text
                rows = table.query(twice, engine="python").index.tolist()
        if rows != [i]:
            raise ValueError(
                f"DataFrame.query cannot quote the name of column {key!r}; rename it to a string without "
                "backticks and line breaks that pandas takes neither for a constant nor for another column"
            )


def _escaped(value: Any) -> str:
    """Write a category such that pandas, which looks for backticks, quotes and line breaks itself, finds none."""
    if not isinstance(value, str):
        return repr(value)
    hidden = r"[\\'\"`#\x00-\x1f\x7f-\x9f\u2028\u2029]"
    return "'" + re.sub(hidden, lambda sign: f"\\u{ord(sign[0]):04x}", value) + "'"


def function(rules: RuleSet, name: str) -> str:
    """Write rules as a Python function; see :meth:`Rules.to_python`."""
    if not name.isidentifier() or iskeyword(name):
        raise ValueError(f"name must be a valid name of a Python function, got {name!r}")
    used = {_use(condition) for rule in rules.rules for condition in rule.conditions}
    uses = [(column, kind) for column in rules.columns for kind in KINDS if (column, kind) in used]
    variables = {use: f"x{i}" for i, use in enumerate(uses)}

    def test(rule: Rule) -> str:
        tests = [expression(test, variables[_use(test)], PYTHON) for test in rule.conditions]
        return f"    if {' and '.join(tests) or 'True'}:\n        return {plain(rule.label)!r}\n"

    helpers = VALUE * any(_may_be_number(column) for column, _ in uses)
    helpers += "".join(helper for kind, helper in KINDS.items() if any(use[1] == kind for use in uses))
    named = any(isinstance(column.key, str) for column in rules.columns)
    return FUNCTION.format(
        name=name,
        keys="names of columns" if named else "positions of columns",
        helpers=helpers + "\n" * bool(helpers),
        columns="".join(f"    {x} = {kind}({_read(column)})\n" for (column, kind), x in variables.items()),
        tests="".join(map(test, rules.rules)),
    )


def _may_be_number(column: Column) -> bool:
    """Whether a column name may stand for an integer, as in data frames without column names."""
    return isinstance(column.key, str) and column.key.isdecimal() and str(int(column.key)) == column.key


def _read(column: Column) -> str:
    """Write the expression that reads a column from a row."""
    return f"value({column.key!r})" if _may_be_number(column) else f"row[{column.key!r}]"


def _use(condition: Condition) -> tuple[Column, str]:
    """Return the column of a condition, and whether it is read as a number or as a category."""
    return condition.column, "number" if condition.values is None else "category"


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
    selects: dict[Any, str]
    dialects: list[str]


class Dialect(NamedTuple):
    """How a SQL dialect quotes names and strings and writes Boolean values."""

    name: Callable[[str], str]
    string: Callable[[str], str]
    true: str = "TRUE"
    false: str = "FALSE"
    double: str = ""
    """Type to which integers beyond 2^53 are cast, if they are compared exactly otherwise; trees round them."""


def _doubled(text: str, opening: str, closing: str) -> str:
    return opening + text.replace(closing, 2 * closing) + closing


def _backslashed(text: str, quote: str) -> str:
    text = text.replace("\\", "\\\\").replace(quote, f"\\{quote}").replace("\n", "\\n").replace("\r", "\\r")
    return quote + text + quote


ANSI = Dialect(
    lambda name: _doubled(name, '"', '"'), lambda text: _doubled(text, "'", "'"), double="DOUBLE PRECISION"
)
BACKTICKS = Dialect(lambda name: _doubled(name, "`", "`"), lambda text: _backslashed(text, "'"))
DIALECTS = {
    **dict.fromkeys(("ansi", "duckdb", "postgres", "sqlite", "trino"), ANSI),
    **dict.fromkeys(("mysql", "spark", "databricks"), BACKTICKS),
    "snowflake": Dialect(ANSI.name, BACKTICKS.string),
    "bigquery": Dialect(lambda name: _backslashed(name, "`"), BACKTICKS.string),
    "tsql": Dialect(lambda name: _doubled(name, "[", "]"), lambda text: f"N{ANSI.string(text)}", "1", "0"),
}

EXPRESSIONS = Language(
    missing="{x} IS NULL",
    never="1 = 0",
    either=" OR ",  # AND binds more tightly
    intervals=(
        ("{x} IS NOT NULL", "{x} <= {high}"),
        ("{x} > {low}", "{x} > {low} AND {x} <= {high}"),
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
    whens = [f"  WHEN {_conjunction(rule, words)} THEN {_literal(rule.label, words)}" for rule in rules.rules]
    case = "\n".join(["CASE", *whens, "END"]) if whens else "NULL"
    selects = {}
    taken = {str(column.key).casefold() for column in rules.columns}  # most databases take CLUSTER for it
    (cluster,) = result_names(["cluster"], taken)
    statements = [f"SELECT *,\n{case} AS {words.name(cluster)}\nFROM {source};"]
    for label, of_label in rules.clusters.items():
        where = any_of([_conjunction(rule, words) for rule in of_label], "\n   OR ")
        selects[label] = f"SELECT *\nFROM {source}\nWHERE {where}"
        counts = rules.totals.get(label)
        shares = f": precision {precision(counts)}" if counts is not None and counts.noise else ""
        statements.append(f"-- {_comment(of_label[0].name)}{shares}\n{selects[label]};")
    absent = "".join(f"-- {_comment(name)}: {what}\n" for name, what in no_rule(rules))
    equal = [name for name, other in DIALECTS.items() if other == words]
    script = SQL(f"-- SQL for {', '.join(equal)}\n{absent}" + "\n\n".join(statements) + "\n")
    script.case, script.selects, script.dialects = case, selects, equal
    return script


def counting(rules: RuleSet, table: str | Sequence[str], dialect: str, weight: str | None = None) -> str:
    """Write the SELECT statement of one row, with the number of rows, or sum of weights, that meet each rule."""
    words, source = _dialect(table, dialect)
    one = "1" if weight is None else words.name(weight)
    counts = (
        f"COALESCE(SUM(CASE WHEN {_conjunction(rule, words)} THEN {one} ELSE 0 END), 0)" for rule in rules.rules
    )
    return f"SELECT {', '.join(counts)} FROM {source}"


def _dialect(table: str | Sequence[str], dialect: str) -> tuple[Dialect, str]:
    """The words of a dialect, and the quoted name of a table."""
    if dialect not in DIALECTS:
        raise ValueError(f"dialect must be one of {list(DIALECTS)}, got {dialect!r}")
    if not table or not all(isinstance(part, str) and part for part in table):
        raise ValueError(f"table must be the name of a table, or the parts of a qualified name, got {table!r}")
    words = DIALECTS[dialect]
    return words, ".".join(map(words.name, [table] if isinstance(table, str) else table))


def _comment(name: str) -> str:
    return one_line(name).rstrip("\\")  # Spark continues a comment that ends with a backslash


def _conjunction(rule: Rule, words: Dialect) -> str:
    literal = partial(_literal, words=words)
    tests = [expression(test, _column(test, words), EXPRESSIONS, literal) for test in rule.conditions]
    return " AND ".join(tests) or "1 = 1"


def _column(condition: Condition, words: Dialect) -> str:
    """Write the column of a condition, as a floating-point number if integers near a bound are rounded."""
    name = words.name(str(condition.column.key))
    ends = [abs(end) for interval in condition.intervals for end in interval if isfinite(end)]
    large = condition.values is None and max(ends, default=0) >= WHOLE
    return f"CAST({name} AS {words.double})" if large and words.double else name


def _literal(value: Any, words: Dialect) -> str:
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
        if abs(value) < 2**24 and np.float32(value) == value and (256 * value).is_integer():
            return number.removesuffix(".0")
        return number if "e" in number else f"{number}e0"
    return words.string(str(value))
