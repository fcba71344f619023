"""Conversion of threshold trees to rules, one for every leaf."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import nan
from typing import TYPE_CHECKING, Any

import torch

from neonxc.rules.collection import Rules
from neonxc.rules.condition import Column, Condition
from neonxc.rules.counting import summed
from neonxc.rules.intervals import complement, intersection, union
from neonxc.rules.rule import Counts, Rule
from neonxc.trees.fitted.tree import ThresholdTree, as_tree
from neonxc.trees.rules.decoding import Categories
from neonxc.trees.rules.wording import cluster_texts, decoder, tree_columns

if TYPE_CHECKING:
    from neonxc.trees.estimator import TreeExplainer


def rules(
    tree: ThresholdTree | TreeExplainer,
    *,
    feature_names: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
    units: Mapping[str, str] | None = None,
    categories: Mapping[str, Sequence[Any]] | None = None,
    merge: bool = False,
) -> Rules:
    """Convert a tree to one rule per leaf, from left to right.

    All tests of a column are combined into one condition, so that a rule has at most one condition per column.

    Parameters
    ----------
    tree : ThresholdTree or fitted tree explainer
    feature_names : sequence of str, one per column, optional
        Names of the columns in texts, and in SQL and code if the tree has no names. Default: the tree's names, or
        x[0], x[1], ...
    class_names : sequence of str, one per cluster, optional
        Names of the clusters in the order of ``tree.classes``, which are the default.
    units : mapping from columns to units, optional
        Units that are printed after numbers: ``{"age": "years"}``.
    categories : mapping from columns to their categories, optional
        Categories of columns that were encoded before the tree was fitted. A column of codes 0, 1, ... has the
        categories in this order (``OrdinalEncoder``, ``Series.cat.codes``); a missing category, None or NaN, has
        the code -1. Columns such as ``workclass_Private`` are replaced by ``workclass`` (``OneHotEncoder``,
        ``pandas.get_dummies``). Rules, SQL and code then refer to the table before it was encoded, ``workclass is
        Private``. A tree that was fitted on strings knows its categories.
    merge : bool
        Whether to merge two rules of a cluster that differ in a single column, if one condition with no more
        intervals can replace both. The rules still cover every point once.

    Returns
    -------
    Rules

    Raises
    ------
    ValueError
        Names that are too few or too many, or units or categories of columns that the tree does not have.
    """
    tree = as_tree(tree)
    columns, clusters = tree_columns(tree, feature_names, units), cluster_texts(tree, class_names)
    made = decoder(tree, columns, categories or {})
    if tree.encoding is not None:
        columns = [Column(i) for i in range(tree.n_columns)]
    found: list[Rule] = []
    classes = tree.classes.tolist()  # Python's own numbers and strings
    paths: dict[int, dict[int, Condition]] = {0: {}}
    nodes = (column.tolist() for column in (tree.feature, tree.left, tree.right))
    for node, (feature, left, right) in enumerate(zip(*nodes, strict=True)):  # parents come first
        path = paths.pop(node)
        if feature >= 0:
            old, test = path.get(feature, Condition(columns[feature])), tree.tests[node]
            for child, side in ((left, test), (right, complement(test))):
                paths[child] = {**path, feature: replace(old, intervals=intersection(old.intervals, side))}
            continue
        label = int(tree.label[node])
        n_features = None if isinstance(made, Categories) and made.known else tree.n_features
        counts = _counts(tree, node, label)
        found.append(
            Rule(
                classes[label],
                clusters[label],
                _without_always_met(path.values()),
                counts,
                None,
                (node,),
                n_features,
            )
        )
    found = _merged(found) if merge else found
    totals = summed((rule.label, rule.counts) for label in classes for rule in found if rule.label == label)
    found = [replace(rule, conditions=made.decoded(rule.conditions)) for rule in found]
    without = tuple(pair for pair in zip(classes, clusters, strict=True) if pair[0] not in totals)
    return Rules(tuple(found), totals, cost_ratio=tree.cost_ratio, n_noise=tree.n_noise, without_rule=without)


def with_noise(tree: ThresholdTree, X: Any) -> ThresholdTree:
    """Count points of noise, X [n, d], in the leaves of a tree that was fitted without them."""
    noise = torch.zeros_like(tree.samples)
    for rule in rules(tree):  # which, unlike `apply`, take any missing value
        noise[list(rule.leaves)] = float(rule.matches(X).sum())
    return replace(tree, noise=noise, n_noise=X.shape[0])


def _counts(tree: ThresholdTree, leaf: int, label: int) -> Counts:
    of_cluster = nan if tree.class_samples is None else tree.class_samples[label].item()
    noise = 0.0 if tree.noise is None else tree.noise[leaf].item()
    return Counts(tree.samples[leaf].item(), tree.mistakes[leaf].item(), of_cluster, tree.samples[0].item(), noise)


def _merged(rules: list[Rule]) -> list[Rule]:
    """Merge rules of one cluster that differ in one column, if no condition becomes longer."""
    before = len(rules) + 1
    while len(rules) < before:
        before = len(rules)
        for feature in {condition.feature for rule in rules for condition in rule.conditions}:
            rules = _merged_along(feature, rules)
    return sorted(rules, key=lambda rule: rule.leaves)


def _merged_along(feature: int, rules: list[Rule]) -> list[Rule]:
    alike: dict[Any, list[tuple[Condition, Rule]]] = defaultdict(list)
    kept = []
    for rule in rules:
        own = next((condition for condition in rule.conditions if condition.feature == feature), None)
        if own is None or not own.intervals:  # a condition that no point meets must not be merged
            kept.append(rule)
        else:
            alike[rule.label, frozenset(rule.conditions) - {own}].append((own, rule))
    for group in alike.values():
        group.sort(key=lambda pair: pair[0].low)
        joined = group[:1]
        for condition, rule in group[1:]:
            for i, (other, into) in enumerate(joined):
                both = replace(other, intervals=union(other.intervals + condition.intervals))
                if len(both.intervals) <= max(len(other.intervals), len(condition.intervals)):
                    joined[i] = both, _joined(into, other, both, rule)
                    break
            else:
                joined.append((condition, rule))
        kept += [rule for _, rule in joined]
    return kept


def _joined(into: Rule, old: Condition, new: Condition, rule: Rule) -> Rule:
    return replace(
        into,
        leaves=tuple(sorted(into.leaves + rule.leaves)),
        conditions=_without_always_met(new if one == old else one for one in into.conditions),
        counts=into.counts + rule.counts,
    )


def _without_always_met(conditions: Iterable[Condition]) -> tuple[Condition, ...]:
    """Leave out conditions that every point meets."""
    return tuple(condition for condition in conditions if not condition.is_always_met)
