"""How columns, clusters, numbers and tests are worded in rules and drawings."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import isfinite

from neonxc.trees.intervals import Intervals, complement
from neonxc.trees.tree import ThresholdTree

Numbers = Mapping[float, str]  # how the bounds of a column are printed


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


def interval_texts(intervals: Intervals, name: str, numbers: Numbers, at_most: str = "<=") -> list[str]:
    """Say of each interval that a column lies in it: ``["x <= 1", "2 < x <= 3", "x > 5"]``; one text at least."""

    def text(low: float, high: float) -> str:
        if isfinite(low) and isfinite(high):
            return f"{numbers[low]} < {name} {at_most} {numbers[high]}"
        if isfinite(high):
            return f"{name} {at_most} {numbers[high]}"
        return f"{name} > {numbers[low]}" if isfinite(low) else f"any value of {name}"

    return [text(low, high) for low, high in intervals] or [f"no value of {name}"]


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


@dataclass(frozen=True)
class NodeWords:
    """What is said of a node."""

    name: str  # of a leaf's cluster, of a test's column
    cluster: int | None  # a leaf's
    test: Intervals  # the numbers that go left
    numbers: Numbers  # of a test's column
    samples: float
    mistakes: float

    def title(self, at_most: str = "<=") -> list[str]:
        """A leaf's cluster, or what a test asks: a line for every interval."""
        if self.cluster is not None:
            return [self.name]
        first, *others = interval_texts(self.test, self.name, self.numbers, at_most)
        return [first, *(f"or {other}" for other in others)]

    def branch(self, left: bool) -> str:
        """What the points have in common that a test sends to one side."""
        side = self.test if left else complement(self.test)
        return " or ".join(interval_texts(side, self.name, self.numbers))

    @property
    def details(self) -> list[str]:
        """The counts; mistakes of a test only where there are any."""
        lines = counts(self.samples, self.mistakes).split(", ")
        return lines if self.cluster is not None or self.mistakes else lines[:1]


def node_words(
    tree: ThresholdTree, feature_names: Sequence[str] | None, class_names: Sequence[str] | None, precision: int
) -> list[NodeWords]:
    """What is said of every node of a tree, where all bounds of a column can be told apart."""
    features, clusters = feature_texts(tree, feature_names), cluster_texts(tree, class_names)
    bounds: dict[int, set[float]] = defaultdict(set)
    for feature, test in zip(tree.feature.tolist(), tree.tests, strict=True):
        bounds[feature].update(chain(*test))
    numbers = {feature: readable(values, precision) for feature, values in bounds.items()}
    words = []
    columns = (column.tolist() for column in (tree.feature, tree.label, tree.samples, tree.mistakes))
    for test, feature, label, samples, mistakes in zip(tree.tests, *columns, strict=True):
        name, cluster = (clusters[label], label) if feature < 0 else (features[feature], None)
        words.append(NodeWords(name, cluster, test, numbers[feature], samples, mistakes))
    return words
