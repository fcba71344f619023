"""Convert rules to a data frame, and to and from a dictionary for JSON.

The dictionary has these fields, in which None stands for infinity and NaN, which JSON lacks::

    format, version               FORMAT and VERSION
    columns                       the fields of each column that a rule uses
    rules                         the fields of each rule; a condition has the position of its column in `columns`,
                                  and only the fields of its kind
    totals, held_out_totals       a list with the label and the counts of each cluster
    without_rule                  a list with the label and the name of each cluster
    divide, cost_ratio, n_noise   as in Rules
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from itertools import chain
from math import inf, isfinite, nan
from typing import Any

import pandas as pd

from neonxc.common.locales import Marks
from neonxc.data.kinds import plain
from neonxc.rules.condition import Column, Condition
from neonxc.rules.rule import Counts, Rule, RuleSet

FORMAT = "neonxc.rules"
VERSION = 1


def frame(rules: RuleSet) -> pd.DataFrame:
    """Return rules as a table; see :meth:`Rules.to_frame`."""
    none = Counts(0, 0, 1, 1)  # of a cluster without a rule: its measures are 0, and its precision NaN
    held_out = none if rules.held_out_totals is not None else None
    described = [*chain(*rules.clusters.values())]
    described += [Rule(label, name, (), none, held_out) for label, name in rules.without_rule]

    measures = ["samples", "mistakes", "support", "coverage", "precision"]
    if not rules.divide:
        measures.remove("mistakes")
    if any(counts.noise for rule in described for counts in (rule.counts, rule.held_out or none)):
        measures.append("precision_with_noise")
    rows = []
    for rule in described:
        row: dict[str, Any] = {"cluster": rule.label, "name": rule.name, "rule": None}
        if rule.label in rules.clusters:
            row["rule"] = rule.text()
        for prefix, counts in (("", rule.counts), ("held_out_", rule.held_out)):
            if counts is not None:
                row |= {prefix + measure: getattr(counts, measure) for measure in measures}
        rows.append(row)

    table = pd.DataFrame(rows)
    for name in table.columns:
        if name.endswith(("samples", "mistakes")) and (table[name] % 1 == 0).all():  # counts, not sums of weights
            table[name] = table[name].astype(int)
    return table


def to_dict(rules: RuleSet) -> dict[str, Any]:
    """Return rules as a dictionary that JSON can store; see :meth:`Rules.to_dict`."""
    columns = rules.columns
    position = {column: i for i, column in enumerate(columns)}

    def plainly(value: object) -> Any:
        """Convert a value to dictionaries, lists and plain values, with None for infinity and NaN."""
        if isinstance(value, Condition):
            names = ["intervals"]
            if value.missing:
                names.append("missing")
            if value.values is not None:
                names = ["values", "negated"]
            return {"column": position[value.column]} | {name: plainly(getattr(value, name)) for name in names}
        if is_dataclass(value):
            named = {field.name: plainly(getattr(value, field.name)) for field in fields(value)}
            is_term = named.pop("term", False)  # of a column
            if is_term is not False:
                named["term"] = True
            if named.get("marks", 0) is None:  # of a column that is not from a file
                del named["marks"]
            return named
        if isinstance(value, Mapping):  # the counts of each label
            return [{"label": plain(label)} | plainly(counts) for label, counts in value.items()]
        if isinstance(value, list | tuple):
            return [*map(plainly, value)]
        if isinstance(value, float) and not isfinite(value):
            return None
        return plain(value)

    described = {"format": FORMAT, "version": VERSION, "columns": plainly(columns), **plainly(rules)}
    del described["table_format"]  # of files, about which rules say nothing
    described["without_rule"] = [{"label": label, "name": name} for label, name in described["without_rule"]]
    return described


def fields_of(described: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of rules that a dictionary describes; see :meth:`Rules.from_dict`."""
    name = described.get("format") if isinstance(described, Mapping) else None
    if name != FORMAT:
        raise ValueError(f"the dictionary does not describe rules: its format is {name!r}, not {FORMAT!r}")
    version = described.get("version")
    if version != VERSION:
        raise ValueError(f"the rules have format version {version!r}; this version of neonxc reads {VERSION}")
    try:
        return _restored(described)
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"the description of rules is damaged: {error!r}") from error


def _restored(described: Mapping[str, Any]) -> dict[str, Any]:
    """Build the fields of rules; a damaged description raises errors of several kinds."""
    columns = [_column(column) for column in described["columns"]]
    rules = tuple(_rule(rule, columns) for rule in described["rules"])
    restored: dict[str, Any] = {name: described[name] for name in ("divide", "cost_ratio", "n_noise")}
    for name in ("totals", "held_out_totals"):
        totals = described[name]
        if totals is None:
            restored[name] = None
        else:
            restored[name] = {values["label"]: _counts(values) for values in totals}
    without_rule = tuple((cluster["label"], cluster["name"]) for cluster in described["without_rule"])
    return {"rules": rules, **restored, "without_rule": without_rule}


def _column(described: Mapping[str, Any]) -> Column:
    """Build a column from its fields."""
    gaps = tuple((bound, *_interval(pair)) for bound, *pair in described["gaps"])
    marks = described.get("marks")
    if marks is not None:
        marks = Marks(*marks)
    return Column(**{**described, "gaps": gaps, "marks": marks})


def _rule(described: Mapping[str, Any], columns: Sequence[Column]) -> Rule:
    """Build a rule from its fields."""
    changed = {
        "conditions": tuple(_condition(condition, columns) for condition in described["conditions"]),
        "leaves": tuple(described["leaves"]),
        "counts": _counts(described["counts"]),
        "held_out": _counts(described["held_out"]),
    }
    return Rule(**{**described, **changed})


def _condition(described: Mapping[str, Any], columns: Sequence[Column]) -> Condition:
    """Build a condition from its fields; `columns` are those of all rules."""
    changed = {
        "column": columns[described["column"]],
        "intervals": tuple(map(_interval, described.get("intervals", ()))),
    }
    return Condition(**{**described, **changed})


def _counts(described: Mapping[str, float | None] | None) -> Any:
    """Build counts from their fields, where None stands for NaN; None stays None."""
    if not described:
        return described
    numbers: dict[str, Any] = {field.name: described[field.name] for field in fields(Counts)}
    numbers |= {name: nan for name, number in numbers.items() if number is None}
    return Counts(**numbers)


def _interval(pair: Iterable[float | None]) -> tuple[float, float]:
    """Return an interval, where None stands for infinity."""
    low, high = pair
    if low is None:
        low = -inf
    if high is None:
        high = inf
    return low, high
