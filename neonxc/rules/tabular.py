"""Convert rules to a data frame, and to and from a dictionary for JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from itertools import chain
from math import inf, isfinite, nan
from typing import Any

import pandas as pd

from neonxc.data.kinds import plain
from neonxc.rules.condition import Column, Condition
from neonxc.rules.rule import Counts, Rule, RuleSet

FORMAT, VERSION = "neonxc.rules", 1


def frame(rules: RuleSet) -> pd.DataFrame:
    """Return rules as a table; see :meth:`Rules.to_frame`."""
    none = Counts(0, 0, 1, 1)
    held_out = None if rules.held_out_totals is None else none
    described = [*chain(*rules.clusters.values())]
    described += [Rule(label, name, (), none, held_out) for label, name in rules.without_rule]
    measures = ["samples", *["mistakes"] * rules.divide, "support", "coverage", "precision"]
    if any(counts.noise for rule in described for counts in (rule.counts, rule.held_out or none)):
        measures.append("precision_with_noise")
    rows = []
    for rule in described:
        text = rule.text() if rule.label in rules.clusters else None
        row = {"cluster": rule.label, "name": rule.name, "rule": text}
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

    def plainly(value: Any) -> Any:
        """Fields by name, lists instead of tuples, and None instead of infinity and NaN, which JSON lacks."""
        if isinstance(value, Condition):
            names = ["intervals"] + ["missing"] * value.missing if value.values is None else ["values", "negated"]
            return {"column": position[value.column]} | {name: plainly(getattr(value, name)) for name in names}
        if is_dataclass(value):
            named = {field.name: plainly(getattr(value, field.name)) for field in fields(value)}
            return named if named.pop("term", False) is False else named | {"term": True}
        if isinstance(value, Mapping):  # the counts of each label
            return [{"label": plain(label)} | plainly(counts) for label, counts in value.items()]
        if isinstance(value, list | tuple):
            return [*map(plainly, value)]
        return None if isinstance(value, float) and not isfinite(value) else plain(value)

    described = {"format": FORMAT, "version": VERSION, "columns": plainly(columns), **plainly(rules)}
    del described["table_format"]  # of files, about which rules say nothing
    without = [{"label": label, "name": name} for label, name in described["without_rule"]]
    return described | {"without_rule": without}


def fields_of(described: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of rules that a dictionary describes; see :meth:`Rules.from_dict`."""
    form = described.get("format") if isinstance(described, Mapping) else None
    if form != FORMAT:
        raise ValueError(f"the dictionary does not describe rules: its format is {form!r}, not {FORMAT!r}")
    if (version := described.get("version")) != VERSION:
        raise ValueError(f"the rules have format version {version!r}; this version of neonxc reads {VERSION}")
    try:
        return _restored(described)
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"the description of rules is damaged: {error!r}") from error


def _restored(described: Mapping[str, Any]) -> dict[str, Any]:
    columns = [
        Column(**column | {"gaps": tuple((bound, *_open(pair)) for bound, *pair in column["gaps"])})
        for column in described["columns"]
    ]

    def counts(values: Any) -> Any:
        return values and Counts(*(nan if (n := values[field.name]) is None else n for field in fields(Counts)))

    def condition(column: int, intervals: Any = (), **choice: Any) -> Condition:
        return Condition(columns[column], tuple(map(_open, intervals)), **choice)

    rules = [
        Rule(
            **rule
            | {"conditions": tuple(condition(**test) for test in rule["conditions"])}
            | {"leaves": tuple(rule["leaves"])}
            | {name: counts(rule[name]) for name in ("counts", "held_out")}
        )
        for rule in described["rules"]
    ]
    restored: dict[str, Any] = {name: described[name] for name in ("divide", "cost_ratio", "n_noise")}
    for name in ("totals", "held_out_totals"):
        totals = described[name]
        restored[name] = None if totals is None else {values["label"]: counts(values) for values in totals}
    without = tuple((cluster["label"], cluster["name"]) for cluster in described["without_rule"])
    return {"rules": tuple(rules), **restored, "without_rule": without}


def _open(pair: Any) -> tuple[float, float]:
    low, high = pair
    return -inf if low is None else low, inf if high is None else high
