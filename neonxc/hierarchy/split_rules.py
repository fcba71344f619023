"""Rules that tell the parts of a split, and how many held-out rows they tell rightly.

1. A quarter of the rows of each part are held out.
2. A decision list: for every part the one rule of at most LENGTH conditions that describes it best, in the order
   of their F1 scores. A row is in the part of the first rule that it meets. The last part has no rule: it has all
   other rows. Of two parts, one is told by one rule.
3. Of at most LEAVES parts, a tree of so many leaves replaces the list if it tells more than MARGIN more of the
   rows rightly. This is measured on a third of the rows that are not held out, by a list and a tree of the other
   two thirds. Rules of larger trees would be long.
4. Both accuracies are fractions of the held-out rows:

    accuracy     rows to which the rules give their part
    base         rows of the largest part: the accuracy of the answer that is always the same
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from neonxc.hierarchy.forks import Integers
from neonxc.rules.collection import Rules, counted
from neonxc.rules.condition import Condition, in_column
from neonxc.trees.estimator import grown_to
from neonxc.trees.explainers.expanding import CART
from neonxc.trees.one_rule import best_rule

HELD_OUT = 4
"""Every so many-th row of a part is held out, so that a part needs as many rows."""
CHECKED = 3
"""Every so many-th of the other rows tells whether the list or the tree is better."""
LENGTH = 3
LEAVES = 4
MARGIN = 0.02


class SplitRules(NamedTuple):
    """Rules of the parts of a split."""

    rules: Rules
    accuracy: float  # fraction of the held-out rows
    base: float  # that of the largest part


def divided(codes: Integers, every: int, generator: np.random.RandomState) -> tuple[Integers, Integers]:
    """Return the rows to learn from, and those that are held out: one in so many of each part, at random."""
    order = generator.permutation(len(codes))
    order = order[np.argsort(codes[order], kind="stable")]
    sizes = np.bincount(codes)
    starts = np.cumsum(sizes) - sizes
    number = np.arange(len(codes)) - starts[codes[order]]  # of each row in its part
    is_held_out = number % every == every - 1
    return np.sort(order[~is_held_out]), np.sort(order[is_held_out])


def rules_of(
    frame: pd.DataFrame, codes: Integers, parts: list[str], generator: np.random.RandomState
) -> SplitRules:
    """Find rules of the parts of a split, on rows that are not held out.

    Parameters
    ----------
    frame : DataFrame [n, d]
    codes : ndarray [n] of int
        Positions of the parts of the rows.
    parts : list of str
        Names of the parts.
    generator : RandomState
    """
    learning, held_out = divided(codes, HELD_OUT, generator)
    fitted, checked = divided(codes[learning], CHECKED, generator)
    of_fitted = learning[fitted]
    of_checked = learning[checked]
    find = decision_list
    if len(parts) <= LEAVES:
        gain = 0.0
        for sign, candidate in ((1, tree_rules), (-1, decision_list)):
            rules = candidate(frame.iloc[of_fitted], codes[of_fitted], parts)
            gain += sign * _accuracy(rules, frame.iloc[of_checked], codes[of_checked], parts)
        if gain > MARGIN:
            find = tree_rules
    rules = find(frame.iloc[learning], codes[learning], parts)

    accuracy = _accuracy(rules, frame.iloc[held_out], codes[held_out], parts)
    largest = np.bincount(codes[learning]).argmax()
    base = float((codes[held_out] == largest).mean())
    labels = np.array(parts, dtype=object)[codes[held_out]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of parts that seem to be exchanged, as they may in a few rows
        measured = rules.measure(frame.iloc[held_out], labels)
    return SplitRules(measured, accuracy, base)


def decision_list(frame: pd.DataFrame, codes: Integers, parts: list[str]) -> Rules:
    """Find one rule for each part; the last one has all rows that meet no other rule.

    Parts without a rule come last, the largest of them at the end; those before it are told by no rule.
    """
    ranked: list[tuple[float, int, int, tuple[Condition, ...]]] = []
    for part in np.unique(codes).tolist():
        inside = codes == part
        conditions, score = best_rule(frame, inside, length=LENGTH)
        ranked.append((score, -int(inside.sum()), part, conditions))
    ranked.sort(reverse=True, key=lambda rule: rule[:2])
    patterns = [(parts[part], conditions) for _, _, part, conditions in ranked[:-1] if conditions]
    last = ranked[-1][2]
    labels = np.array(parts, dtype=object)[codes]
    return counted([*patterns, (parts[last], ())], frame, labels)


def tree_rules(frame: pd.DataFrame, codes: Integers, parts: list[str]) -> Rules:
    """Return the rules of a tree of LEAVES leaves."""
    labels = np.array(parts, dtype=object)[codes]
    *_, explainer = grown_to(CART(len(np.unique(codes))), [LEAVES], frame, labels)
    return explainer.tree_.rules()


def _accuracy(rules: Rules, frame: pd.DataFrame, codes: Integers, parts: list[str]) -> float:
    """Return the fraction of rows to which rules give their part."""
    labels = np.array(parts, dtype=object)[codes]
    return float((np.asarray(rules.predict(frame)) == labels).mean())


def in_columns(rules: Rules, columns: Integers, of_terms: bool) -> Rules:
    """Return the same rules of a table of more columns, given the positions of those that were used."""
    moved = []
    for rule in rules:
        conditions = []
        for condition in rule.conditions:
            condition = in_column(condition, int(columns[condition.column.position]))
            column = replace(condition.column, term=of_terms)
            conditions.append(replace(condition, column=column))
        moved.append(replace(rule, conditions=tuple(conditions)))
    return replace(rules, rules=tuple(moved))
