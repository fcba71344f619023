"""Conditions and texts of a tree: what its tests ask of the table that it encodes, and names of clusters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from math import inf, nan
from typing import Any

from torch import Tensor

from neonxc.common.colours import colors
from neonxc.data.inputs import is_missing
from neonxc.pipelines.parts import Number
from neonxc.rules.condition import Column, Condition, printed_bounds
from neonxc.rules.intervals import EVERYTHING, Intervals, complement
from neonxc.rules.wording import counts, one_line
from neonxc.trees.fitted.tree import ThresholdTree

MISTAKES = (
    "mistakes: at a leaf, samples of other clusters; at a test, samples that it sends where no leaf has their "
    "cluster"
)
THINNEST, THICKEST = 0.8, 6.0  # width of edges that no point takes, and that all points take
Decode = Callable[[Intervals], Condition]
"""Translates a test of one column of a tree."""


def tree_columns(
    tree: ThresholdTree, names: Sequence[str] | None = None, units: Mapping[str, str] | None = None
) -> list[Column]:
    """Return the columns of a tree's table, with given or own names, and the gaps around bounds."""
    n, units = tree.n_features, dict(units or {})
    given = tree.feature_names if names is None else _as_many(names, n, "feature_names", "features")
    keys: Sequence[str | int] = tree.feature_names or given or range(n)
    gaps: dict[int, list[tuple[float, float, float]]] = defaultdict(list)
    whole = [False] * n
    for tested, *gap, is_whole in [] if tree.bounds is None else tree.bounds.tolist():
        column = int(tested) if tree.encoding is None else tree.encoding.parts[int(tested)].column
        gaps[column].append((gap[0], gap[1], gap[2]))
        whole[column] = bool(is_whole)
    columns = []
    for i, key in enumerate(keys):
        name = given[i] if given else f"x[{i}]"
        unit = next((units.pop(known) for known in (str(key), name, i) if known in units), "")
        columns.append(Column(i, key, name, unit, whole[i], tuple(gaps[i])))
    if units:
        raise ValueError(f"units names columns that the tree does not have: {sorted(map(str, units))}")
    return columns


def cluster_texts(tree: ThresholdTree, names: Sequence[str] | None = None) -> list[str]:
    """Return the names of a tree's clusters: the given names, or their labels ("cluster 0" for a number)."""
    if names is None:
        names = [label if isinstance(label, str) else f"cluster {label}" for label in tree.classes.tolist()]
    return list(map(one_line, _as_many(names, len(tree.classes), "class_names", "clusters")))


def _as_many(names: Sequence[str], needed: int, argument: str, things: str) -> list[str]:
    if isinstance(names, str):  # a string is a sequence of its letters
        raise ValueError(f"{argument} must be a sequence of names, got the string {names!r}")
    if len(names) != needed:
        raise ValueError(
            f"{argument} has {len(names)} names, the tree needs one for each of its {needed} {things}"
        )
    return list(map(str, names))


class Decoding:
    """Translates the tests of a tree to conditions on its table.

    Parameters
    ----------
    tree : ThresholdTree
    columns : sequence of Column
        Columns of the table.
    categories : mapping
        The caller's categories of columns that were encoded before the tree was fitted.

    Raises
    ------
    ValueError
        If the tree knows its categories, or if no column of the tree holds the codes or the one-hot encoding of a
        column in `categories`.
    """

    def __init__(
        self, tree: ThresholdTree, columns: Sequence[Column], categories: Mapping[str, Sequence[Any]]
    ) -> None:
        self.encoded = bool(categories)  # whether the conditions are on another table than the tree's
        self.numbers: set[int] = set()  # columns of a table with gaps
        if tree.encoding is None:
            self.decode = _of_categories(columns, categories, tree.boolean)
            return
        if categories:
            raise ValueError("categories are known to a tree of a table with categories; leave them out")
        self.numbers = {part.column for part in tree.encoding.parts if isinstance(part, Number)}
        self.decode = []
        for part in tree.encoding.parts:
            column = columns[part.column]
            if isinstance(part, Number):
                self.decode.append(partial(_number, column, part.fill))
            elif part.column in self.numbers:  # the indicator is 1 where the number is missing
                self.decode.append(partial(_gap, column))
            else:
                self.decode.append(partial(_listed, column, part.numbers, part.other))

    def one(self, feature: int, test: Intervals) -> Condition:
        """Translate a single test."""
        return self._on_missing(self.decode[feature](test))

    def all(self, tests: Mapping[int, Intervals]) -> tuple[Condition, ...]:
        """Translate the tests of a rule, at most one per column of the tree, to one condition per column."""
        found: dict[Column, Condition] = {}
        for feature, test in tests.items():
            new = self.decode[feature](test)
            found[new.column] = found[new.column].intersect(new) if new.column in found else new
        return tuple(one for one in map(self._on_missing, found.values()) if not one.is_always_met)

    def _on_missing(self, condition: Condition) -> Condition:
        """Rewrite a condition that only depends on whether a number is missing."""
        missing, intervals = condition.missing, condition.intervals
        if condition.feature in self.numbers and intervals in ((), EVERYTHING) and missing != bool(intervals):
            return Condition(condition.column, values=(None,), negated=not missing)
        return condition


def _of_categories(
    columns: Sequence[Column], categories: Mapping[str, Sequence[Any]], boolean: Tensor | None
) -> list[Decode]:
    """Read categories of columns with codes or a one-hot encoding; other columns are translated to themselves."""
    decode: list[Decode] = [partial(Condition, column) for column in columns]
    for position in [] if boolean is None else boolean.nonzero()[:, 0].tolist():  # a missing value meets neither
        decode[position] = partial(_listed, columns[position], {False: 0, True: 1}, nan)
    positions = {str(column.key): column.position for column in columns}
    if not isinstance(categories, Mapping):
        raise TypeError(f"categories needs a mapping {{column: categories}}, got {type(categories).__name__}")
    for key, values in categories.items():
        if isinstance(values, str) or len(set(values)) < len(values):
            raise ValueError(f"categories[{key!r}] needs a sequence of distinct categories, got {values!r}")
        if key in positions:
            codes = {value: code for code, value in enumerate(v for v in values if not is_missing(v))}
            codes |= {None: -1} if any(map(is_missing, values)) else {}
            own = columns[positions[key]]
            decode[own.position] = partial(_listed, Column(-1, key, own.name), codes, inf)
            continue
        names = [(f"{key}_{value}", value) for value in values]
        names += [(f"{key}_nan", value) for value in values if is_missing(value)]
        one_hot = {positions[name]: value for name, value in names if name in positions}
        if not one_hot:
            raise ValueError(
                f"categories: the tree has no column {key!r} of codes, and no column "
                f"{f'{key}_{next(iter(values), None)}'!r} of zeros and ones"
            )
        for position, value in one_hot.items():
            decode[position] = partial(_listed, Column(-1, key), {value: 1}, 0)
    return decode


def _number(column: Column, fill: float | None, test: Intervals) -> Condition:
    return Condition(column, test, missing=fill is not None and _holds(test, fill))


def _gap(column: Column, test: Intervals) -> Condition:
    return Condition(column, EVERYTHING if _holds(test, 0) else (), missing=_holds(test, 1))


def _listed(column: Column, codes: Mapping[Any, float], other: float, test: Intervals) -> Condition:
    """Translate a test of codes; `other` is the code of values that are not listed, NaN if there are none."""
    sides: dict[bool, list[Any]] = {True: [], False: []}
    for value, code in codes.items():
        sides[_holds(test, code)].append(value)
    negated = _holds(test, other)
    if other == inf:  # of a column of codes, which should list all values, the shorter side is written
        negated = len(sides[False]) < len(sides[True]) + negated
    return Condition(column, values=tuple(sides[not negated]), negated=negated)


def _holds(intervals: Intervals, number: float) -> bool:
    """Whether a number lies in one of the intervals."""
    return any(low < number <= high for low, high in intervals)


@dataclass(frozen=True)
class NodeWords:
    """The texts of a node, and what drawings show of it besides."""

    title: list[str]  # the cluster of a leaf, or the condition of a test with a line for every interval
    details: list[str]  # the counts; the mistakes of a test only if there are any
    branches: tuple[str, ...]  # the conditions of the points that a test sends left, and right
    sides: tuple[Condition, ...]  # the same as conditions
    samples: float
    mistakes: float
    children: tuple[int, ...]  # the nodes on the left and on the right of a test; none of a leaf
    edge: float  # width of the edge that leads to the node, in points
    look: tuple[str, str]  # colours of the line and the face; leaves are paler the more mistakes they make


def node_words(
    tree: ThresholdTree,
    feature_names: Sequence[str] | None,
    class_names: Sequence[str] | None,
    precision: int | None,
) -> list[NodeWords]:
    """Return the texts of every node, with enough digits to distinguish all bounds of a column."""
    columns, clusters = tree_columns(tree, feature_names), cluster_texts(tree, class_names)
    decoding, features = Decoding(tree, columns, {}), tree.feature.tolist()
    sides = [
        () if feature < 0 else tuple(decoding.one(feature, side) for side in (test, complement(test)))
        for feature, test in zip(features, tree.tests, strict=True)
    ]
    numbers, table = printed_bounds(chain(*sides), precision), colors(len(clusters))
    words, root = [], max(float(tree.samples[0]), 1e-300)
    nodes = (tree.label, tree.samples, tree.mistakes, tree.left, tree.right)
    rows = zip(sides, *(column.tolist() for column in nodes), strict=True)
    for asked, label, samples, mistakes, *children in rows:
        printed = numbers[asked[0].column] if asked else {}
        title = "\nor ".join(asked[0].alternatives(printed)) if asked else clusters[label]
        details = counts(samples, mistakes).split(", ")
        words.append(
            NodeWords(
                title.split("\n"),
                details[:1] if asked and not mistakes else details,
                tuple(side.render(printed) for side in asked),
                asked,
                samples,
                mistakes,
                tuple(children) if asked else (),
                max(THINNEST, THICKEST * samples / root),
                ("#737373", "#ffffff") if asked else _pale(table[label], mistakes / samples if samples else 0),
            )
        )
    return words


def _pale(line: str, impurity: float) -> tuple[str, str]:
    """A colour, and the same so pale that black text can be read on it."""
    strength = 0.08 + 0.42 * (1 - impurity) ** 2
    parts = [round(255 * (1 - strength * (1 - int(line[at : at + 2], 16) / 255))) for at in (1, 3, 5)]
    return line, "#{:02x}{:02x}{:02x}".format(*parts)


def caption(words: list[NodeWords]) -> str:
    """Return what the mistakes of a node are, if there are any at a test."""
    return MISTAKES if any(word.children and word.mistakes for word in words) else ""
