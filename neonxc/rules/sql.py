"""Export rules as SQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from neonxc.rules.code import Language, expression
from neonxc.rules.condition import Condition
from neonxc.rules.rendering import no_rule, precision
from neonxc.rules.rule import RuleSet
from neonxc.rules.wording import one_line


class SQL(str):
    """A script of SQL statements, which gives access to its parts.

    Attributes
    ----------
    case : str
        CASE expression that gives the label of a row, or NULL if the row meets no rule.
    selects : dict
        SELECT statement of each label, which returns the rows that meet one of its rules.
    """

    case: str
    selects: dict[Any, str]


class Dialect(NamedTuple):
    """How a SQL dialect quotes names and strings and writes Boolean values."""

    name: Callable[[str], str]
    string: Callable[[str], str]
    true: str = "TRUE"
    false: str = "FALSE"


def _doubled(text: str, opening: str, closing: str | None = None) -> str:
    closing = closing or opening
    return opening + text.replace(closing, 2 * closing) + closing


def _escaped(text: str, quote: str) -> str:
    for plain, written in (("\\", "\\\\"), (quote, "\\" + quote), ("\n", "\\n"), ("\r", "\\r")):
        text = text.replace(plain, written)
    return quote + text + quote


BACKTICKS = Dialect(lambda name: _doubled(name, "`"), lambda text: _escaped(text, "'"))
DIALECTS = {
    "ansi": Dialect(lambda name: _doubled(name, '"'), lambda text: _doubled(text, "'")),
    "mysql": BACKTICKS,
    "spark": BACKTICKS,
    "bigquery": Dialect(lambda name: _escaped(name, "`"), lambda text: _escaped(text, "'")),
    "tsql": Dialect(lambda name: _doubled(name, "[", "]"), lambda text: "N" + _doubled(text, "'"), "1", "0"),
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
    if dialect not in DIALECTS:
        raise ValueError(f"dialect must be one of {list(DIALECTS)}, got {dialect!r}")
    words = DIALECTS[dialect]
    if not table or not all(isinstance(part, str) and part for part in table):
        raise ValueError(f"table must be the name of a table, or the parts of a qualified name, got {table!r}")
    source = ".".join(words.name(part) for part in ([table] if isinstance(table, str) else table))
    whens = [
        f"  WHEN {_conjunction(rule.conditions, words)} THEN {_literal(rule.label, words)}" for rule in rules.rules
    ]
    case = "\n".join(["CASE", *whens, "END"]) if whens else "NULL"
    selects = {}
    statements = [f"SELECT *,\n{case} AS {words.name('cluster')}\nFROM {source};"]
    for label, own in rules.clusters.items():
        several = len(own) > 1
        expressions = [_conjunction(rule.conditions, words) for rule in own]
        where = "\n   OR ".join(f"({one})" if several else one for one in expressions)
        selects[label] = f"SELECT *\nFROM {source}\nWHERE {where}"
        counts = rules.totals.get(label)
        shares = f": precision {precision(counts)}" if counts is not None and counts.noise else ""
        statements.append(f"-- {_comment(own[0].name)}{shares}\n{selects[label]};")
    absent = "".join(f"-- {_comment(name)}: {what}\n" for name, what in no_rule(rules))
    script = SQL(absent + "\n\n".join(statements) + "\n")
    script.case, script.selects = case, selects
    return script


def _comment(name: str) -> str:
    return one_line(name).rstrip("\\")  # Spark continues a comment that ends with a backslash


def _conjunction(conditions: Sequence[Condition], words: Dialect) -> str:
    literal = partial(_literal, words=words)
    tests = [expression(one, words.name(str(one.column.key)), EXPRESSIONS, literal) for one in conditions]
    return " AND ".join(tests) or "1 = 1"


def _literal(value: Any, words: Dialect) -> str:
    """Write a label, category or bound as a literal.

    Numbers that are the same in single precision and as a short decimal are written so. Others get an exponent,
    which makes them double-precision literals: databases do not round these, but they may round a decimal
    literal to the precision of the column that it is compared with.
    """
    if isinstance(value, bool | np.bool_):
        return words.true if value else words.false
    if isinstance(value, int | np.integer):
        return str(int(value))
    if isinstance(value, float | np.floating):
        number = float(value) + 0.0  # not -0.0
        if abs(number) < 2**24 and float(np.float32(number)) == number and (256 * number).is_integer():
            return repr(number).removesuffix(".0")
        return repr(number) if "e" in repr(number) else f"{number!r}e0"
    return words.string(str(value))
