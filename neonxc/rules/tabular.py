"""Convert rules to a data frame, and to and from a dictionary for JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from math import inf, isfinite, nan
from typing import Any

import pandas as pd

from neonxc.data.inputs import plain
from neonxc.rules.condition import Column, Condition
from neonxc.rules.rule import Counts, Rule, RuleSet

FORMAT, VERSION = "neonxc.rules", 1


def frame(rules: RuleSet) -> pd.DataFrame:
    """Return rules as a table; see :meth:`Rules.to_frame`."""
    none = Counts(0, 0, 1, 1)
    held_out = None if rules.held_out_totals is None else none
    found = [rule for own in rules.clusters.values() for rule in own]
    found += [Rule(label, name, (), none, held_out) for label, name in rules.without_rule]
    numbers = ["samples", *["mistakes"] * rules.divide]
    shares = ["support", "coverage", "precision"]
    if any(counts.noise for rule in found for counts in (rule.counts, rule.held_out or none)):
        shares.append("precision_with_noise")
    rows = []
    for rule in found:
        text = rule.text() if rule.label in rules.clusters else None
        row = {"cluster": rule.label, "name": rule.name, "rule": text}
        for before, counts in (("", rule.counts), ("held_out_", rule.held_out)):
            if counts is not None:
                row |= {before + measure: getattr(counts, measure) for measure in numbers + shares}
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
            what = {"column": position[value.column]}
            if value.values is not None:
                return what | {"values": plainly(value.values), "negated": value.negated}
            return what | {"intervals": plainly(value.intervals)} | ({"missing": True} if value.missing else {})
        if is_dataclass(value):
            return {one.name: plainly(getattr(value, one.name)) for one in fields(value)}
        if isinstance(value, Mapping):  # the counts of each label
            return [{"label": plain(label)} | plainly(counts) for label, counts in value.items()]
        if isinstance(value, list | tuple):
            return [plainly(one) for one in value]
        return None if isinstance(value, float) and not isfinite(value) else plain(value)

    found = plainly(rules)
    without = [{"label": label, "name": name} for label, name in found["without_rule"]]
    return {"format": FORMAT, "version": VERSION, "columns": plainly(columns), **found, "without_rule": without}


def fields_of(described: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of rules that a dictionary describes; see :meth:`Rules.from_dict`."""
    found = described.get("format") if isinstance(described, Mapping) else None
    if found != FORMAT:
        raise ValueError(f"the dictionary does not describe rules: its format is {found!r}, not {FORMAT!r}")
    if described.get("version") != VERSION:
        raise ValueError(
            f"the rules have format version {described.get('version')!r}; this version of neonxc reads {VERSION}"
        )
    try:
        return _restored(described)
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"the description of rules is damaged: {error!r}") from error


def _restored(described: Mapping[str, Any]) -> dict[str, Any]:
    columns = [
        Column(**one | {"gaps": tuple((bound, *_open(pair)) for bound, *pair in one["gaps"])})
        for one in described["columns"]
    ]

    def counts(one: Any) -> Any:
        return one and Counts(*(nan if one[of.name] is None else one[of.name] for of in fields(Counts)))

    def condition(what: Mapping[str, Any]) -> Condition:
        intervals = tuple(map(_open, what.get("intervals", ())))
        values = tuple(what["values"]) if "values" in what else None
        flags = {name: what.get(name, False) for name in ("negated", "missing")}
        return Condition(columns[what["column"]], intervals, values, **flags)

    rules = [
        Rule(
            **one
            | {"conditions": tuple(map(condition, one["conditions"])), "leaves": tuple(one["leaves"])}
            | {name: counts(one[name]) for name in ("counts", "held_out")}
        )
        for one in described["rules"]
    ]
    restored: dict[str, Any] = {name: described[name] for name in ("divide", "cost_ratio", "n_noise")}
    for name in ("totals", "held_out_totals"):
        given = described[name]
        restored[name] = None if given is None else {one["label"]: counts(one) for one in given}
    restored["without_rule"] = tuple((one["label"], one["name"]) for one in described["without_rule"])
    return {"rules": tuple(rules), **restored}


def _open(pair: Any) -> tuple[float, float]:
    low, high = pair
    return -inf if low is None else low, inf if high is None else high
