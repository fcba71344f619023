"""A threshold tree as rules that a person can read: what a point of every leaf has in common."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Any

import torch

from neonxc.inputs import as_batch, check_names, check_width
from neonxc.trees.intervals import EVERYTHING, Intervals, complement, contains, intersection, union
from neonxc.trees.tree import ThresholdTree, as_tree
from neonxc.trees.wording import Numbers, cluster_texts, counts, feature_texts, interval_texts, readable

if TYPE_CHECKING:
    from neonxc.trees.estimator import TreeExplainer


@dataclass(frozen=True)
class Condition:
    """Where one column lies: in an interval ``low < x <= high``, or in one of several.

    Attributes
    ----------
    feature : int
        The column.
    name : str
        What the column is called.
    intervals : tuple of (low, high)
        Disjoint, from low to high; bounds are infinite where an interval is open. Intervals that touch or overlap
        are joined. None at all: no point meets the condition.

    Examples
    --------
    >>> from math import inf
    >>> from neonxc.trees import Condition
    >>> print(Condition(3, "petal width", ((0.8, 1.65),)))
    0.8 < petal width <= 1.65
    >>> print(Condition(3, "petal width", ((-inf, 0.8), (1.65, inf))))
    petal width <= 0.8 or petal width > 1.65
    """

    feature: int
    name: str
    intervals: Intervals = EVERYTHING

    def __post_init__(self) -> None:
        object.__setattr__(self, "intervals", union(self.intervals))

    @property
    def low(self) -> float:
        """What the column is above wherever the condition is met; infinite where there is no such bound."""
        return self.intervals[0][0] if self.intervals else inf

    @property
    def high(self) -> float:
        """What the column is at most wherever the condition is met; infinite where there is no such bound."""
        return self.intervals[-1][1] if self.intervals else -inf

    def text(self, precision: int = 4) -> str:
        """Say the condition, such as ``0.8 < petal width <= 1.65`` or ``width <= 1 or width > 3``.

        Parameters
        ----------
        precision : int
            Significant digits; more where the bounds would not differ, and tenths are never rounded away.
        """
        return self._say(readable(chain(*self.intervals), precision), self.name)

    def __str__(self) -> str:
        return self.text()

    def _say(self, numbers: Numbers, name: str) -> str:
        return " or ".join(interval_texts(self.intervals, name, numbers))


@dataclass(frozen=True)
class Rule:
    """The conditions that the points of one leaf, and no others, meet.

    Attributes
    ----------
    label : object
        The cluster, as `ThresholdTree.predict` says it.
    name : str
        What the cluster is called.
    leaves : tuple of int
        The leaf's node; several where `rules` merged leaves.
    conditions : tuple of Condition
        One for every column that is tested, in the order in which the path first tests it.
    samples : float
        Training points, or the sum of their weights.
    mistakes : float
        Those of them that are of other clusters.
    n_features : int
        Columns of the data.
    feature_names : tuple of str or None
        The columns that a data frame must have.
    """

    label: Any
    name: str
    leaves: tuple[int, ...]
    conditions: tuple[Condition, ...]
    samples: float
    mistakes: float
    n_features: int = field(repr=False)
    feature_names: tuple[str, ...] | None = field(default=None, repr=False)

    @property
    def leaf(self) -> int:
        """The leaf's node; the first one where leaves were merged."""
        return self.leaves[0]

    @property
    def purity(self) -> float:
        """Share of the training points that are of the rule's cluster; 1 where there are none."""
        return 1 - self.mistakes / self.samples if self.samples > 0 else 1.0

    def text(self, precision: int = 4) -> str:
        """Say the conditions in one line; "always" where there are none."""
        return " and ".join(self._said(lambda condition: condition.text(precision))) or "always"

    def __str__(self) -> str:
        return f"{self.name}: {self.text()} ({counts(self.samples, self.mistakes)})"

    def matches(self, X: Any) -> Any:
        """Whether points meet all conditions, [N] of bool; an array for an array, a tensor for a tensor.

        Parameters
        ----------
        X : array-like, data frame or tensor [N, features]
            In the columns and units of the training data.

        Raises
        ------
        ValueError
            Another number of columns, other names, or values that are not finite.
        """
        batch = as_batch(X)
        check_width(batch.tensor.shape[1], self.n_features)
        check_names(batch.names, self.feature_names)
        inside = torch.ones(len(batch.tensor), dtype=torch.bool, device=batch.tensor.device)
        for condition in self.conditions:
            inside &= contains(condition.intervals, batch.tensor[:, condition.feature])
        return batch.labels(inside.cpu().numpy())

    def _said(self, say: Callable[[Condition], str]) -> list[str]:
        """The texts of the conditions, to be joined by "and": with brackets around those that have an "or"."""
        several = len(self.conditions) > 1
        return [f"({say(one)})" if several and len(one.intervals) > 1 else say(one) for one in self.conditions]


def rules(
    tree: ThresholdTree | TreeExplainer,
    *,
    feature_names: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
    merge: bool = False,
) -> list[Rule]:
    """Write a tree as one rule for every leaf, from left to right.

    Tests of one column become one condition, so that a rule says of every column at most once what it asks.

    Parameters
    ----------
    tree : ThresholdTree or fitted tree explainer
    feature_names : sequence of str, one per column, optional
        Default: the tree's own, or x[0], x[1], ...
    class_names : sequence of str, one per cluster, optional
        In the order of ``tree.classes``, which are the default.
    merge : bool
        Whether two rules of a cluster become one wherever they differ in a single column, and one condition of no
        more intervals can say both: the tests between them make no difference. The rules still cover every point
        once.

    Returns
    -------
    list of Rule

    Raises
    ------
    ValueError
        Names that are too few or too many.
    """
    tree = as_tree(tree)
    features, clusters = feature_texts(tree, feature_names), cluster_texts(tree, class_names)
    found: list[Rule] = []
    classes = tree.classes.tolist()  # Python's own numbers and strings
    paths: dict[int, dict[int, Condition]] = {0: {}}
    columns = (column.tolist() for column in (tree.feature, tree.left, tree.right))
    for node, (feature, left, right) in enumerate(zip(*columns, strict=True)):  # parents come first
        path = paths.pop(node)
        if feature >= 0:
            old, test = path.get(feature, Condition(feature, features[feature])), tree.tests[node]
            for child, side in ((left, test), (right, complement(test))):
                paths[child] = {**path, feature: replace(old, intervals=intersection(old.intervals, side))}
            continue
        label, samples, mistakes = int(tree.label[node]), tree.samples[node].item(), tree.mistakes[node].item()
        of_leaf = (classes[label], clusters[label], (node,), _asked(path.values()), samples, mistakes)
        found.append(Rule(*of_leaf, tree.n_features, tree.feature_names))
    return _merged(found) if merge else found


def _merged(rules: list[Rule]) -> list[Rule]:
    """Join rules of one cluster that are the same but for one column, where no condition grows longer by it."""
    before = len(rules) + 1
    while len(rules) < before:
        before = len(rules)
        for feature in {condition.feature for rule in rules for condition in rule.conditions}:
            rules = _merged_along(feature, rules)
    return sorted(rules, key=lambda rule: rule.leaf)


def _merged_along(feature: int, rules: list[Rule]) -> list[Rule]:
    alike: dict[Any, list[tuple[Condition, Rule]]] = defaultdict(list)
    kept = []
    for rule in rules:
        own = next((condition for condition in rule.conditions if condition.feature == feature), None)
        if own is None or not own.intervals:  # no point meets such a condition, and none shall after a merge
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
        conditions=_asked(new if one == old else one for one in into.conditions),
        samples=into.samples + rule.samples,
        mistakes=into.mistakes + rule.mistakes,
    )


def _asked(conditions: Iterable[Condition]) -> tuple[Condition, ...]:
    """Leave out what every point meets."""
    return tuple(condition for condition in conditions if condition.intervals != EVERYTHING)
