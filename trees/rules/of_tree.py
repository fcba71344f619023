"""Conversion of threshold trees to rules, one for every leaf."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import nan
from typing import TYPE_CHECKING, Any

import torch

from neonxc.rules.collection import Rules
from neonxc.rules.intervals import EVERYTHING, Intervals, complement, intersection, union
from neonxc.rules.rule import Counts, Rule, summed
from neonxc.trees.fitted.tree import ThresholdTree, as_tree
from neonxc.trees.rules.wording import Decoding, cluster_texts, tree_columns

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
    decoding = Decoding(tree, tree_columns(tree, feature_names, units), categories or {})
    classes, clusters = tree.classes.tolist(), cluster_texts(tree, class_names)  # Python's own numbers and strings
    paths = list(_paths(tree))
    n_features = None if decoding.encoded else tree.n_features
    found = tuple(
        Rule(
            classes[path.label],
            clusters[path.label],
            decoding.all(path.tests),
            path.counts,
            leaves=path.leaves,
            n_features=n_features,
        )
        for path in (_merged(paths) if merge else paths)
    )
    totals = summed((rule.label, rule.counts) for label in classes for rule in found if rule.label == label)
    without = tuple(pair for pair in zip(classes, clusters, strict=True) if pair[0] not in totals)
    return Rules(found, totals, cost_ratio=tree.cost_ratio, n_noise=tree.n_noise, without_rule=without)


def with_noise(tree: ThresholdTree, X: Any) -> ThresholdTree:
    """Count points of noise, X [n, d], in the leaves of a tree that was fitted without them."""
    noise = torch.zeros_like(tree.samples)
    for rule in rules(tree):  # which, unlike `apply`, take any missing value
        noise[list(rule.leaves)] = float(rule.matches(X).sum())
    return replace(tree, noise=noise, n_noise=X.shape[0])


@dataclass
class Path:
    """The tests of one leaf, or of several merged ones: the intervals of every column that is tested."""

    label: int
    tests: dict[int, Intervals]
    counts: Counts
    leaves: tuple[int, ...]


def _paths(tree: ThresholdTree) -> Iterator[Path]:
    """Find the leaves of a tree, from left to right, and the tests that lead to them."""
    tests: dict[int, dict[int, Intervals]] = {0: {}}
    noise = torch.zeros_like(tree.samples) if tree.noise is None else tree.noise
    of_nodes = (tree.feature, tree.left, tree.right, tree.label, tree.samples, tree.mistakes, noise)
    rows = zip(*(column.tolist() for column in of_nodes), strict=True)
    for node, (feature, left, right, label, samples, mistakes, among) in enumerate(rows):  # parents come first
        own = tests.pop(node)
        if feature >= 0:
            for child, side in ((left, tree.tests[node]), (right, complement(tree.tests[node]))):
                tests[child] = {**own, feature: intersection(own.get(feature, EVERYTHING), side)}
            continue
        of_cluster = nan if tree.class_samples is None else tree.class_samples[label].item()
        counts = Counts(samples, mistakes, of_cluster, tree.samples[0].item(), among)
        yield Path(label, _without_everything(own), counts, (node,))


def _merged(paths: list[Path]) -> list[Path]:
    """Merge the rules of one cluster that differ in one column, if no condition becomes longer."""
    before = len(paths) + 1
    while len(paths) < before:
        before = len(paths)
        for feature in {feature for path in paths for feature in path.tests}:
            paths = _merged_along(feature, paths)
    return sorted(paths, key=lambda path: path.leaves)


def _merged_along(feature: int, paths: list[Path]) -> list[Path]:
    kept: list[Path] = []
    alike: dict[Any, list[Path]] = defaultdict(list)
    for path in paths:
        if path.tests.get(feature):  # a condition that no point meets must not be merged
            rest = frozenset(path.tests.items()) - {(feature, path.tests[feature])}
            alike[path.label, rest].append(path)
        else:
            kept.append(path)
    for group in alike.values():
        joined: list[Path] = []
        for path in sorted(group, key=lambda path: path.tests[feature][0][0]):
            for i, into in enumerate(joined):
                one, other = into.tests.get(feature, EVERYTHING), path.tests[feature]
                both = union(one + other)
                if len(both) <= max(len(one), len(other)):
                    leaves = tuple(sorted(into.leaves + path.leaves))
                    tests = _without_everything(into.tests | {feature: both})
                    joined[i] = Path(path.label, tests, into.counts + path.counts, leaves)
                    break
            else:
                joined.append(path)
        kept += joined
    return kept


def _without_everything(tests: dict[int, Intervals]) -> dict[int, Intervals]:
    """Leave out tests that every number passes."""
    return {feature: test for feature, test in tests.items() if test != EVERYTHING}
