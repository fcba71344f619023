"""A threshold tree as rules that a person can read: what a point of every leaf has in common."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf, isfinite
from typing import Any, Literal

import torch

from neonxc.inputs import as_batch, check_names, check_width
from neonxc.trees.tree import ThresholdTree

WIDTH = 88  # characters of a printed rule before it goes on in the next line
HTML = """\
<style>
.neonxc-rules { border-collapse: collapse; font: 14px/1.45 system-ui, sans-serif; text-align: left; }
.neonxc-rules th, .neonxc-rules td { padding: 5px 14px; vertical-align: top; text-align: left; }
.neonxc-rules thead th { border-bottom: 2px solid #8888; }
.neonxc-rules tbody { border-bottom: 1px solid #8885; }
.neonxc-rules td.count, .neonxc-rules th.count { text-align: right; font-variant-numeric: tabular-nums; }
.neonxc-rules tbody th { min-width: 6em; }
.neonxc-rules .test { display: inline-block; }
.neonxc-rules .word { font-weight: normal; opacity: 0.6; }
</style>
<table class="neonxc-rules">
<thead><tr><th>cluster</th><th>rule</th><th class="count">samples</th><th class="count">mistakes</th></tr></thead>
{% for rules in clusters %}
<tbody>
{% for rule in rules %}
<tr>
{% if loop.first %}
<th rowspan="{{ rules|length }}" scope="rowgroup">{{ rule.name }}
{% for part in total(rules).split(", ") if rules|length > 1 %}
<div class="word">{{ part }}</div>
{% endfor %}
</th>
{% endif %}
<td>{% if not loop.first %}<span class="word">or</span> {% endif %}
{% for test in said(rule) %}
<span class="test">{% if not loop.first %}<span class="word">and</span> {% endif %}{{ test }}</span>
{% else %}
always
{% endfor %}
</td>
<td class="count">{{ number(rule.samples) }}</td>
<td class="count">{{ number(rule.mistakes) }}</td>
</tr>
{% endfor %}
</tbody>
{% endfor %}
</table>
"""

Numbers = Mapping[int, Mapping[float, str]]  # {column: {bound: how it is printed}}


@dataclass(frozen=True)
class Condition:
    """An interval of one column: ``low < x <= high``.

    Attributes
    ----------
    feature : int
        The column.
    name : str
        What the column is called.
    low, high : float
        Infinite where the interval is open.
    """

    feature: int
    name: str
    low: float = -inf
    high: float = inf

    def text(self, precision: int = 4) -> str:
        """Say the condition, such as ``0.8 < petal width <= 1.65``.

        Parameters
        ----------
        precision : int
            Significant digits; more where the bounds would not differ, and tenths are never rounded away.
        """
        return self._say(readable((self.low, self.high), precision), self.name)

    def __str__(self) -> str:
        return self.text()

    def _say(self, numbers: Mapping[float, str], name: str) -> str:
        if not isfinite(self.low):
            return f"{name} <= {numbers[self.high]}"
        if not isfinite(self.high):
            return f"{name} > {numbers[self.low]}"
        return f"{numbers[self.low]} < {name} <= {numbers[self.high]}"


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
        return " and ".join(condition.text(precision) for condition in self.conditions) or "always"

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
            column = batch.tensor[:, condition.feature].double()  # float32 would round the bounds
            inside &= (column > condition.low) & (column <= condition.high)
        return batch.labels(inside.cpu().numpy())


def rules(
    tree: ThresholdTree,
    *,
    feature_names: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
    merge: bool = False,
) -> list[Rule]:
    """Write a tree as one rule for every leaf, from left to right.

    Tests of one column become one interval, so that a rule says of every column at most once what it asks.

    Parameters
    ----------
    tree : ThresholdTree
    feature_names : sequence of str, one per column, optional
        Default: the tree's own, or x[0], x[1], ...
    class_names : sequence of str, one per cluster, optional
        In the order of ``tree.classes``, which are the default.
    merge : bool
        Whether two rules of a cluster become one wherever a single interval can say both: the tests between
        them make no difference. The rules still cover every point once.

    Returns
    -------
    list of Rule

    Raises
    ------
    ValueError
        Names that are too few or too many.
    """
    features, clusters = feature_texts(tree, feature_names), cluster_texts(tree, class_names)
    found: list[Rule] = []
    classes = tree.classes.tolist()  # Python's own numbers and strings
    paths: dict[int, dict[int, Condition]] = {0: {}}
    tests = (column.tolist() for column in (tree.feature, tree.threshold, tree.left, tree.right))
    for node, (feature, threshold, left, right) in enumerate(zip(*tests, strict=True)):  # parents come first
        path = paths.pop(node)
        if feature >= 0:
            old = path.get(feature, Condition(feature, features[feature]))
            paths[left] = {**path, feature: replace(old, high=min(old.high, threshold))}
            paths[right] = {**path, feature: replace(old, low=max(old.low, threshold))}
            continue
        label, samples, mistakes = int(tree.label[node]), tree.samples[node].item(), tree.mistakes[node].item()
        of_leaf = (classes[label], clusters[label], (node,), tuple(path.values()), samples, mistakes)
        found.append(Rule(*of_leaf, tree.n_features, tree.feature_names))
    return _merged(found) if merge else found


def render_rules(
    rules: Iterable[Rule], format: Literal["text", "markdown", "html"] = "text", precision: int = 4
) -> str:
    """Write rules for people, cluster by cluster.

    Parameters
    ----------
    rules : iterable of Rule
    format : {"text", "markdown", "html"}
        HTML is a fragment with a style of its own, to be put anywhere in a page.
    precision : int
        Significant digits of thresholds; more where two thresholds of one column would look the same.

    Returns
    -------
    str

    Examples
    --------
    >>> import numpy as np
    >>> from neonxc.trees import IMM
    >>> from neonxc.trees.rules import render_rules, rules
    >>> X = np.array([[0.0, 0], [0, 1], [4, 0], [4, 1]])
    >>> tree = IMM(n_clusters=2, random_state=0).fit(X, labels=[0, 0, 1, 1]).tree_
    >>> print(render_rules(rules(tree, feature_names=["width", "height"])))
    cluster 0: 2 samples, 0 mistakes
        width <= 2
    <BLANKLINE>
    cluster 1: 2 samples, 0 mistakes
        width > 2
    """
    rules = list(rules)
    writers = {"text": _as_text, "markdown": _as_markdown, "html": _as_html}
    if format not in writers:
        raise ValueError(f"format must be one of {list(writers)}, got {format!r}")
    bounds: dict[int, set[float]] = defaultdict(set)
    for condition in (condition for rule in rules for condition in rule.conditions):
        bounds[condition.feature] |= {condition.low, condition.high}
    numbers = {feature: readable(values, precision) for feature, values in bounds.items()}
    clusters: dict[Any, list[Rule]] = defaultdict(list)
    for rule in sorted(rules, key=lambda rule: rule.label):  # stable: leaves stay in their order
        clusters[rule.label].append(rule)
    return writers[format](list(clusters.values()), numbers)


def _merged(rules: list[Rule]) -> list[Rule]:
    """Join rules of one cluster that are the same but for intervals of one column that touch."""
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
        if own is None or own.low >= own.high:  # no point meets such a condition, and none shall after a merge
            kept.append(rule)
        else:
            alike[rule.label, frozenset(rule.conditions) - {own}].append((own, rule))
    for group in alike.values():
        group.sort(key=lambda pair: pair[0].low)
        joined = group[:1]
        for condition, rule in group[1:]:
            last, into = joined[-1]
            if last.high == condition.low:
                joined[-1] = _join(last, into, condition, rule)
            else:
                joined.append((condition, rule))
        kept += [rule for _, rule in joined]
    return kept


def _join(last: Condition, into: Rule, condition: Condition, rule: Rule) -> tuple[Condition, Rule]:
    wide = replace(last, high=condition.high)
    conditions = [wide if old == last else old for old in into.conditions]
    return wide, replace(
        into,
        leaves=tuple(sorted(into.leaves + rule.leaves)),
        conditions=tuple(one for one in conditions if isfinite(one.low) or isfinite(one.high)),
        samples=into.samples + rule.samples,
        mistakes=into.mistakes + rule.mistakes,
    )


def _as_text(clusters: list[list[Rule]], numbers: Numbers) -> str:
    blocks = []
    for rules in clusters:
        lines = [f"{rules[0].name}: {_total(rules)}"]
        bodies = [_wrapped(_said(rule, numbers) or ["always"]) for rule in rules]
        width = max(len(line) for body in bodies for line in body)
        amounts = [readable_number(rule.samples) for rule in rules]
        for rule, body, amount in zip(rules, bodies, amounts, strict=True):
            lines += [("    " if rule is rules[0] else "or  ") + body[0], *("    " + line for line in body[1:])]
            if len(rules) > 1:  # a single rule's counts are the cluster's
                indent = " " * (max(map(len, amounts)) - len(amount))
                lines[-len(body)] = f"{lines[-len(body)]:{width + 7}}{indent}{counts(rule.samples, rule.mistakes)}"
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _wrapped(conditions: list[str]) -> list[str]:
    lines = conditions[:1]
    for condition in conditions[1:]:
        if len(lines[-1]) + len(condition) + 5 <= WIDTH:
            lines[-1] += f" and {condition}"
        else:
            lines.append(f"and {condition}")
    return lines


def _as_markdown(clusters: list[list[Rule]], numbers: Numbers) -> str:
    blocks = []
    for rules in clusters:
        lines = [f"### {_no_markdown(rules[0].name)}", "", _total(rules), ""]
        for rule in rules:
            text = " **and** ".join(_said(rule, numbers, _no_markdown)) or "always"
            own = f" ({counts(rule.samples, rule.mistakes)})" if len(rules) > 1 else ""
            lines.append(f"- {'' if rule is rules[0] else '**or** '}{text}{own}")
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _no_markdown(name: str) -> str:
    name = re.sub(r"([\\`*_\[\]<>|~$&#])", r"\\\1", name)
    return re.sub(r"^(\d*)([-+.)])", r"\1\\\2", name)  # "- x" and "1. x" would begin a list


def _as_html(clusters: list[list[Rule]], numbers: Numbers) -> str:
    # PyTorch needs jinja2, so it is there; only a page that is really written has to wait for its import.
    from jinja2 import Environment

    template = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(HTML)
    said = partial(_said, numbers=numbers)
    return template.render(clusters=clusters, said=said, number=readable_number, total=_total)


def _said(rule: Rule, numbers: Numbers, escape: Callable[[str], str] = str) -> list[str]:
    return [one._say(numbers[one.feature], escape(one.name)) for one in rule.conditions]


def _total(rules: list[Rule]) -> str:
    return counts(sum(rule.samples for rule in rules), sum(rule.mistakes for rule in rules))


def feature_texts(tree: ThresholdTree, names: Sequence[str] | None = None) -> list[str]:
    """Names of a tree's columns: those given, else its own, else x[0], x[1], ..."""
    if names is None:
        names = tree.feature_names or [f"x[{i}]" for i in range(tree.n_features)]
    return _as_many(names, tree.n_features, "feature_names", "features")


def cluster_texts(tree: ThresholdTree, names: Sequence[str] | None = None) -> list[str]:
    """Names of a tree's clusters: those given, else their labels; a number is told to be a cluster's."""
    if names is None:
        names = [label if isinstance(label, str) else f"cluster {label}" for label in tree.classes.tolist()]
    return _as_many(names, len(tree.classes), "class_names", "clusters")


def _as_many(names: Sequence[str], needed: int, argument: str, things: str) -> list[str]:
    if isinstance(names, str):  # would pass for a sequence of its letters
        raise ValueError(f"{argument} must be a sequence of names, got the string {names!r}")
    if len(names) != needed:
        raise ValueError(
            f"{argument} has {len(names)} names, the tree needs one for each of its {needed} {things}"
        )
    return [" ".join(str(name).split()) for name in names]  # a line break would tear rules and drawings apart


def readable(values: Iterable[float], precision: int = 4) -> dict[float, str]:
    """Print the finite ones of a column's numbers with few digits, but no two of them alike.

    Parameters
    ----------
    values : iterable of float
    precision : int
        Significant digits of those that no other is close to.
    """
    if precision < 1:
        raise ValueError(f"precision must be at least 1, got {precision}")
    texts: dict[float, str] = {}
    todo = {value for value in values if isfinite(value)}
    while todo:  # 17 digits tell any two apart
        new = {value: readable_number(value, precision) for value in todo}
        often = Counter(new.values())
        texts |= {value: text for value, text in new.items() if often[text] == 1}
        todo -= texts.keys()
        precision += 1
    return texts


def readable_number(value: float, precision: int = 4) -> str:
    """Print a number with few digits: tenths stay, so that 1985.5 still lies between 1985 and 1986."""
    if value == 0 or not 1e-4 <= abs(value) < 1e15:
        return format(value + 0.0, f".{precision}g")  # + 0.0: no sign for -0.0
    exponent = int(f"{value:.{precision - 1}e}".partition("e")[2])
    return f"{value:.{max(precision - 1 - exponent, 1)}f}".rstrip("0").rstrip(".")


def counts(samples: float, mistakes: float | None = None) -> str:
    """Say how many training points there are, and how many of them are mistakes: ``50 samples, 1 mistake``."""
    words = [(samples, "sample")] + ([] if mistakes is None else [(mistakes, "mistake")])
    return ", ".join(f"{readable_number(n)} {noun}{'' if n == 1 else 's'}" for n, noun in words)
