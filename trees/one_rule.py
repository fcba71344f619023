"""The one rule that describes some rows best: the best leaf of small trees that separate them from all others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from neonxc.common.types import TableLike
from neonxc.rules.collection import counted
from neonxc.rules.condition import Condition
from neonxc.trees.estimator import grown_to
from neonxc.trees.explainers.expanding import CART

BETTER = 0.05  # score that another condition must add; with 0.01 a rule finds fewer of the rows held out


def best_rule(
    X: TableLike,
    inside: np.ndarray,
    *,
    length: int = 3,
    beta: float = 1.0,
    names: list[str] | None = None,
    sample_weight: np.ndarray | None = None,
    format: str | None = None,
) -> tuple[tuple[Condition, ...], float]:
    """Find the conditions that describe the rows `inside` best, and their F-beta score; none if none does.

    They are a leaf of trees of 2 to ``length + 1`` leaves. Rows `inside` weigh r^beta times as much as others,
    where r is the ratio of the others' number to theirs: with equal sums of weights, beta = 1, rules of small
    groups have a low precision, and without weights, beta = 0, a low coverage.

    Parameters
    ----------
    X : data frame, array or sparse matrix [n, d]
    inside : ndarray [n] of bool
    length : int
        Maximum number of conditions.
    beta : float
        Weight of the coverage against the precision.
    names : list of str, optional
        Names of the columns if X has none.
    sample_weight : ndarray [n], optional
        Weights of the rows, in place of their number.
    format : str, optional
        How the table was read from a file, if X does not say it, for the units and marks of numbers.
    """
    best: tuple[Condition, ...] = ()
    best_score = 0.0
    mass = np.ones(len(inside)) if sample_weight is None else sample_weight
    ratio = mass[~inside].sum() / mass[inside].sum()
    weight = mass * np.where(inside, ratio ** min(beta, 1), 1.0)
    for explainer in grown_to(CART(2), range(2, length + 2), X, inside, weight):
        tree = replace(explainer.tree_, table_format=explainer.tree_.table_format or format)
        new_names = None if tree.feature_names else names
        leaves = tree.rules(feature_names=new_names)
        rules = [(True, rule.conditions) for rule in leaves if bool(rule.label)]
        for rule in counted(rules, X, inside, sample_weight=sample_weight):
            score = rule.counts.f_score(beta)
            if score > best_score + BETTER:
                best = rule.conditions
                best_score = score
    return best, best_score
