"""Rules and texts of trees: what their tests ask of the table that they were fitted on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from math import inf, nan
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from neonxc.common.colours import colors
from neonxc.common.numbers import is_missing
from neonxc.common.processes import short
from neonxc.data.inputs import as_array
from neonxc.pipelines.parts import Number
from neonxc.rules.collection import Rules
from neonxc.rules.condition import Column, Condition, printed_bounds
from neonxc.rules.intervals import EVERYTHING, Intervals, complement, intersection, union
from neonxc.rules.rule import Counts, Rule, summed
from neonxc.rules.wording import counts, one_line
from neonxc.trees.tree import ThresholdTree, as_tree

if TYPE_CHECKING:
    from neonxc.trees.estimator import TreeExplainer

Names = Sequence[str] | Mapping[Any, str] | None
"""Names of columns or of clusters: all of them, or some by their own names."""
MISTAKES = (
    "mistakes: at a leaf, samples of other clusters; at a test, samples that it sends where no leaf has their "
    "cluster"
)
# width of edges that no point takes, and that all points take
THINNEST = 0.8
THICKEST = 6.0
Decode = Callable[[Intervals], Condition]
"""Translates a test of one column of a tree."""


def rules(
    tree: ThresholdTree | TreeExplainer,
    *,
    feature_names: Names = None,
    class_names: Names = None,
    units: Mapping[str, str] | None = None,
    categories: Mapping[str, Sequence[Any]] | None = None,
    terms: bool = False,
    merge: bool = False,
) -> Rules:
    """Convert a tree to one rule per leaf, from left to right.

    All tests of a column are combined into one condition, so that a rule has at most one condition per column.

    Parameters
    ----------
    tree : ThresholdTree or fitted tree explainer
    feature_names : sequence of str, one per column, or mapping, optional
        Names of the columns in texts, and in SQL and code if the tree has no names. A mapping gives new names to
        some columns, by their own names or their positions. Default: the tree's names, or x[0], x[1], ...
    class_names : sequence of str, one per cluster, or mapping, optional
        Names of the clusters in the order of ``tree.classes``, or by their labels, which are the default.
    units : mapping from columns to units, optional
        Units that are printed after numbers: ``{"age": "years"}``.
    categories : mapping from columns to their categories, optional
        Categories of columns that were encoded before the tree was fitted. A column of codes 0, 1, ... has the
        categories in this order (``OrdinalEncoder``, ``Series.cat.codes``); a missing category, None or NaN, has
        the code -1. Columns such as ``workclass_Private`` are replaced by ``workclass`` (``OneHotEncoder``,
        ``pandas.get_dummies``). Rules, SQL and code then refer to the table before it was encoded, ``workclass is
        Private``. A tree that was fitted on strings knows its categories.
    terms : bool
        Whether the columns are terms or words of texts, of which rules say "with" and "without" in place of a
        comparison with zero.
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
    decode = decodings(tree, tree_columns(tree, feature_names, units, terms), categories or {})
    # Python's own numbers and strings
    classes = tree.classes.tolist()
    clusters = cluster_texts(tree, class_names)
    paths = list(_paths(tree))
    found = tuple(
        Rule(
            classes[path.label],
            clusters[path.label],
            tuple(one for one in conditions(tree, decode, path.tests) if not one.is_always_met),
            path.counts,
            leaves=path.leaves,
            n_features=None if categories else tree.n_features,
        )
        for path in (_merged(paths) if merge else paths)
    )
    totals = summed((rule.label, rule.counts) for label in classes for rule in found if rule.label == label)
    without = tuple(pair for pair in zip(classes, clusters, strict=True) if pair[0] not in totals)
    return Rules(found, totals, True, None, tree.cost_ratio, tree.n_noise, without, tree.table_format)


def with_noise(tree: ThresholdTree, X: Any, weight: np.ndarray | None = None) -> ThresholdTree:
    """Count points of noise, X [n, d], or their weights [n], in the leaves of a tree fitted without them."""
    mass = np.ones(X.shape[0]) if weight is None else weight
    noise = torch.zeros_like(tree.samples)
    for rule in rules(tree):  # which, unlike `apply`, take any missing value
        noise[list(rule.leaves)] = float(mass[as_array(rule.matches(X))].sum())
    return replace(tree, noise=noise, n_noise=X.shape[0])


@dataclass
class LeafPath:
    """The tests of one leaf, or of several merged ones: the intervals of every column that is tested."""

    label: int
    tests: dict[int, Intervals]
    counts: Counts
    leaves: tuple[int, ...]


def _paths(tree: ThresholdTree) -> Iterator[LeafPath]:
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
        yield LeafPath(label, _without_everything(own), counts, (node,))


def _merged(paths: list[LeafPath]) -> list[LeafPath]:
    """Merge the rules of one cluster that differ in one column, if no condition becomes longer."""
    before = len(paths) + 1
    while len(paths) < before:
        before = len(paths)
        for feature in {feature for path in paths for feature in path.tests}:
            paths = _merged_along(feature, paths)
    return sorted(paths, key=lambda path: path.leaves)


def _merged_along(feature: int, paths: list[LeafPath]) -> list[LeafPath]:
    kept: list[LeafPath] = []
    alike: dict[Any, list[LeafPath]] = defaultdict(list)
    for path in paths:
        if path.tests.get(feature):  # a condition that no point meets must not be merged
            rest = frozenset(path.tests.items()) - {(feature, path.tests[feature])}
            alike[path.label, rest].append(path)
        else:
            kept.append(path)
    for group in alike.values():
        joined: list[LeafPath] = []
        for path in sorted(group, key=lambda path: path.tests[feature][0][0]):
            for i, into in enumerate(joined):
                one = into.tests.get(feature, EVERYTHING)
                other = path.tests[feature]
                both = union(one + other)
                if len(both) <= max(len(one), len(other)):
                    leaves = tuple(sorted(into.leaves + path.leaves))
                    tests = _without_everything(into.tests | {feature: both})
                    joined[i] = LeafPath(path.label, tests, into.counts + path.counts, leaves)
                    break
            else:
                joined.append(path)
        kept += joined
    return kept


def _without_everything(tests: dict[int, Intervals]) -> dict[int, Intervals]:
    """Leave out tests that every number passes."""
    return {feature: test for feature, test in tests.items() if test != EVERYTHING}


def tree_columns(
    tree: ThresholdTree,
    names: Names = None,
    units: Mapping[str, str] | None = None,
    terms: bool = False,
) -> list[Column]:
    """Return the columns of a tree's table, with given or own names, and the gaps around bounds."""
    n = tree.n_features
    units = dict(units or {})
    own = tree.feature_names or [f"x[{i}]" for i in range(n)]
    given = tree.feature_names if names is None else _as_many(names, own, "feature_names", "features")
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
        columns.append(Column(i, key, name, unit, whole[i], tuple(gaps[i]), terms))
    if units:
        raise ValueError(f"units names columns that the tree does not have: {sorted(map(str, units))}")
    return columns


def cluster_texts(tree: ThresholdTree, names: Names = None) -> list[str]:
    """Return the names of a tree's clusters: the given names, or their labels ("cluster 0" for a number)."""
    labels = tree.classes.tolist()
    texts = [label if isinstance(label, str) else f"cluster {label}" for label in labels]
    if isinstance(names, Mapping):
        unknown = [label for label in names if label not in labels]
        if unknown:
            raise ValueError(f"class_names names {unknown[0]!r}, and the labels are {short(str(labels))}")
        texts = [names.get(label, text) for label, text in zip(labels, texts, strict=True)]
    elif names is not None:
        texts = _as_many(names, texts, "class_names", "clusters")
    return [one_line(str(text)) for text in texts]


def _as_many(names: Any, own: Sequence[str], argument: str, things: str) -> list[str]:
    """The names of all columns: given ones, one for each, or a mapping of own names or positions to new ones."""
    if isinstance(names, str):  # a string is a sequence of its letters
        raise ValueError(f"{argument} must be a sequence of names or a mapping, got the string {names!r}")
    if isinstance(names, Mapping):
        known = {name: i for i, name in enumerate(own)} | {i: i for i in range(len(own))}
        if unknown := [name for name in names if name not in known]:
            raise ValueError(f"{argument} names {unknown[0]!r}, and the {things} are {short(str(list(own)))}")
        renamed = {known[name]: new for name, new in names.items()}
        return [str(renamed.get(i, name)) for i, name in enumerate(own)]
    if len(names) != len(own):
        raise ValueError(
            f"{argument} has {len(names)} names, the tree needs one for each of its {len(own)} {things}"
        )
    return list(map(str, names))


def decodings(
    tree: ThresholdTree, columns: Sequence[Column], categories: Mapping[str, Sequence[Any]]
) -> list[Decode]:
    """For every column that a tree tests, a function that translates its tests to conditions on the table.

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
    if tree.encoding is None:
        return _of_categories(columns, categories, tree.boolean)
    if categories:
        raise ValueError("categories are known to a tree of a table with categories; leave them out")
    numbers = {part.column for part in tree.encoding.parts if isinstance(part, Number)}
    decode: list[Decode] = []
    for part in tree.encoding.parts:
        column = columns[part.column]
        if isinstance(part, Number):
            decode.append(partial(_number, column, part.fill))
        elif part.column in numbers:  # the indicator is 1 where the number is missing
            decode.append(partial(_gap, column))
        else:
            decode.append(partial(_listed, column, part.numbers, part.unknown_number))
    return decode


def conditions(tree: ThresholdTree, decode: list[Decode], tests: Mapping[int, Intervals]) -> list[Condition]:
    """Translate the tests of a rule, at most one per column of the tree, to one condition per column."""
    found: dict[Column, Condition] = {}
    for feature, test in tests.items():
        new = decode[feature](test)
        found[new.column] = found[new.column].intersect(new) if new.column in found else new
    for column, one in found.items() if tree.encoding is not None else ():
        if one.values is None and one.intervals in ((), EVERYTHING) and one.missing != bool(one.intervals):
            found[column] = Condition(column, values=(None,), negated=not one.missing)  # no number matters
    return list(found.values())


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
    color: str

    @property
    def look(self) -> tuple[str, str]:
        """Colours of the line and the face; leaves are paler the more mistakes they make."""
        if self.children:
            return self.color, "#ffffff"
        purity = 1 - self.mistakes / self.samples if self.samples > 0 else 1.0
        strength = 0.08 + 0.42 * purity**2  # pale enough for black text
        parts = [round(255 * (1 - strength * (1 - int(self.color[at : at + 2], 16) / 255))) for at in (1, 3, 5)]
        return self.color, "#{:02x}{:02x}{:02x}".format(*parts)


def node_words(
    tree: ThresholdTree,
    feature_names: Names,
    class_names: Names,
    precision: int | None,
    terms: bool = False,
) -> list[NodeWords]:
    """Return the texts of every node, with enough digits to distinguish all bounds of a column."""
    columns = tree_columns(tree, feature_names, None, terms)
    clusters = cluster_texts(tree, class_names)
    decode = decodings(tree, columns, {})
    sides = [
        tuple(conditions(tree, decode, {feature: side})[0] for side in (test, complement(test)) if feature >= 0)
        for feature, test in zip(tree.feature.tolist(), tree.tests, strict=True)
    ]
    numbers = printed_bounds(chain(*sides), precision)
    table = colors(len(clusters))
    words = []
    root = max(float(tree.samples[0]), 1e-300)
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
                "#737373" if asked else table[label],
            )
        )
    return words


def caption(words: list[NodeWords]) -> str:
    """Return what the mistakes of a node are, if there are any at a test."""
    return MISTAKES if any(word.children and word.mistakes for word in words) else ""
