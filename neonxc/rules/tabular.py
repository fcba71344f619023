"""Convert rules to a data frame, and to and from a dictionary for JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from math import inf, isfinite, nan
from typing import TYPE_CHECKING, Any

from neonxc.data.inputs import plain
from neonxc.rules.condition import Column, Condition
from neonxc.rules.rule import Counts, Rule, RuleSet

if TYPE_CHECKING:
    import pandas as pd

FORMAT, VERSION = "neonxc.rules", 1


def frame(rules: RuleSet) -> pd.DataFrame:
    """Return rules as a table; see :meth:`Rules.to_frame`."""
    import pandas as pd  # takes long

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
    for name in table.columns.intersection(numbers + [f"held_out_{number}" for number in numbers]):
        if (table[name] % 1 == 0).all():  # counts, not sums of weights
            table[name] = table[name].astype(int)
    return table


def to_dict(rules: RuleSet) -> dict[str, Any]:
    """Return rules as a dictionary that JSON can store; see :meth:`Rules.to_dict`."""
    columns = rules.columns
    position = {column: i for i, column in enumerate(columns)}
    held_out = rules.held_out_totals
    return {
        "format": FORMAT,
        "version": VERSION,
        "divide": rules.divide,
        "cost_ratio": rules.cost_ratio,
        "n_noise": rules.n_noise,
        "columns": [_finite(asdict(column)) for column in columns],
        "rules": [_rule(rule, position) for rule in rules.rules],
        "totals": _totals(rules.totals),
        "without_rule": [{"label": plain(label), "name": name} for label, name in rules.without_rule],
        "held_out_totals": None if held_out is None else _totals(held_out),
    }


def _rule(rule: Rule, position: Mapping[Column, int]) -> dict[str, Any]:
    conditions = []
    for condition in rule.conditions:
        if condition.values is None:
            what: dict[str, Any] = {"intervals": _finite(condition.intervals)}
            what |= {"missing": True} if condition.missing else {}
        else:
            what = {"values": list(condition.values), "negated": condition.negated}
        conditions.append({"column": position[condition.column], **what})
    described = asdict(replace(rule, label=plain(rule.label), conditions=()))
    return _finite(described) | {"conditions": conditions}


def _totals(totals: Mapping[Any, Counts]) -> list[dict[str, Any]]:
    return [{"label": plain(label)} | _finite(asdict(counts)) for label, counts in totals.items()]


def _finite(value: Any) -> Any:
    """Replace infinity and NaN, which JSON lacks, by None, and tuples by lists."""
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not isfinite(value) else value


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
    held_out = described["held_out_totals"]
    return {name: described[name] for name in ("divide", "cost_ratio", "n_noise")} | {
        "rules": tuple(_restored_rule(one, columns) for one in described["rules"]),
        "totals": _restored_totals(described["totals"]),
        "held_out_totals": None if held_out is None else _restored_totals(held_out),
        "without_rule": tuple((one["label"], one["name"]) for one in described["without_rule"]),
    }


def _restored_rule(one: dict[str, Any], columns: list[Column]) -> Rule:
    restored = {
        "conditions": tuple(_restored_condition(columns[what["column"]], what) for what in one["conditions"]),
        "counts": _restored_counts(one["counts"]),
        "held_out": None if one["held_out"] is None else _restored_counts(one["held_out"]),
        "leaves": tuple(one["leaves"]),
    }
    rule = Rule(**one | restored)
    hash(rule)  # fails now if a list is in place of a value
    return rule


def _restored_condition(column: Column, what: Mapping[str, Any]) -> Condition:
    if "values" in what:
        return Condition(column, values=tuple(what["values"]), negated=what["negated"])
    return Condition(column, tuple(map(_open, what["intervals"])), missing=what.get("missing", False))


def _restored_totals(totals: list[dict[str, Any]]) -> dict[Any, Counts]:
    return {one["label"]: _restored_counts({k: v for k, v in one.items() if k != "label"}) for one in totals}


def _restored_counts(counts: Mapping[str, float | None]) -> Counts:
    return Counts(**{name: nan if value is None else value for name, value in counts.items()})


def _open(pair: Any) -> tuple[float, float]:
    low, high = pair
    return -inf if low is None else low, inf if high is None else high
