"""Rules and texts of trees: what their tests ask of the table that they were fitted on.

1. The tests on the path to a leaf are intersected, column by column of the tree, into intervals.
2. Rules of one cluster that differ in one column are merged, if that is asked for.
3. The intervals of an encoded column are translated to a condition on the column of the table (`Decode`):

       a number                      the interval, and whether its fill, which stands for missing, is inside
       whether a number is missing   missing or not
       whether a category is equal   the categories whose code is inside

4. The conditions on one column of the table are combined.
"""

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
from neonxc.common.shortening import shortened
from neonxc.data.files.format import column_formats
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
GREY = "#737373"  # of tests
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
        Units that are printed after numbers: ``{"age": "years"}``. Default: those in the file that the table was
        read from.
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
    columns = tree_columns(tree, feature_names, units, terms)
    decode = decodings(tree, columns, categories or {})
    classes = tree.classes.tolist()  # Python's own numbers and strings
    clusters = cluster_texts(tree, class_names)
    n_features = None if categories else tree.n_features
    paths = list(_paths(tree))
    if merge:
        paths = _merged(paths)
    rules = []
    for path in paths:
        all_conditions = conditions(tree, decode, path.tests)
        asked = tuple(condition for condition in all_conditions if not condition.is_always_met)
        label = classes[path.label]
        name = clusters[path.label]
        rules.append(Rule(label, name, asked, path.counts, leaves=path.leaves, n_features=n_features))

    by_class = [rule for label in classes for rule in rules if rule.label == label]
    totals = summed((rule.label, rule.counts) for rule in by_class)
    without = [(label, name) for label, name in zip(classes, clusters, strict=True) if label not in totals]
    return Rules(
        tuple(rules), totals, True, None, tree.cost_ratio, tree.n_noise, tuple(without), tree.table_format
    )


def with_noise(tree: ThresholdTree, X: Any, weight: np.ndarray | None = None) -> ThresholdTree:
    """Count points of noise, X [n, d], or their weights [n], in the leaves of a tree fitted without them."""
    mass = np.ones(X.shape[0]) if weight is None else weight
    noise = torch.zeros_like(tree.samples)
    for rule in rules(tree):  # which, unlike `apply`, take any missing value
        is_inside = as_array(rule.matches(X))
        noise[list(rule.leaves)] = float(mass[is_inside].sum())
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
    labels = tree.label.tolist()
    left = tree.left.tolist()
    right = tree.right.tolist()
    samples = tree.samples.tolist()
    mistakes = tree.mistakes.tolist()
    noise_of_node = noise.tolist()
    for node, feature in enumerate(tree.feature.tolist()):  # parents come first
        path = tests.pop(node)
        if feature >= 0:
            inside = tree.tests[node]
            allowed = path.get(feature, EVERYTHING)
            tests[left[node]] = {**path, feature: intersection(allowed, inside)}
            tests[right[node]] = {**path, feature: intersection(allowed, complement(inside))}
            continue
        label = labels[node]
        of_cluster = nan if tree.class_samples is None else tree.class_samples[label].item()
        leaf_counts = Counts(samples[node], mistakes[node], of_cluster, samples[0], noise_of_node[node])
        yield LeafPath(label, _without_everything(path), leaf_counts, (node,))


def _merged(paths: list[LeafPath]) -> list[LeafPath]:
    """Merge the rules of one cluster that differ in one column, if no condition becomes longer."""
    before = len(paths) + 1
    while len(paths) < before:
        before = len(paths)
        for feature in {feature for path in paths for feature in path.tests}:
            paths = _merged_along(feature, paths)
    return sorted(paths, key=lambda path: path.leaves)


def _merged_along(feature: int, paths: list[LeafPath]) -> list[LeafPath]:
    """Merge the rules of one cluster whose tests differ in no column but this one."""
    merged: list[LeafPath] = []
    groups: dict[Any, list[LeafPath]] = defaultdict(list)  # by label and the tests of all other columns
    for path in paths:
        if path.tests.get(feature):  # a condition that no point meets must not be merged
            rest = frozenset(path.tests.items()) - {(feature, path.tests[feature])}
            groups[path.label, rest].append(path)
        else:
            merged.append(path)
    for group in groups.values():
        merged += _merged_group(feature, group)
    return merged


def _merged_group(feature: int, group: list[LeafPath]) -> list[LeafPath]:
    """Merge rules that differ in a column only, in ascending order, each into the first that it fits."""
    merged: list[LeafPath] = []
    for path in sorted(group, key=lambda path: path.tests[feature][0][0]):
        for i, target in enumerate(merged):
            joined = _joined(feature, target, path)
            if joined is not None:
                merged[i] = joined
                break
        else:
            merged.append(path)
    return merged


def _joined(feature: int, a: LeafPath, b: LeafPath) -> LeafPath | None:
    """Join two rules that differ in a column only; None if that takes more intervals than the longer one."""
    intervals = a.tests.get(feature, EVERYTHING)
    further = b.tests[feature]
    both = union(intervals + further)
    if len(both) > max(len(intervals), len(further)):
        return None
    tests = _without_everything(a.tests | {feature: both})
    leaves = tuple(sorted(a.leaves + b.leaves))
    return LeafPath(b.label, tests, a.counts + b.counts, leaves)


def _without_everything(tests: dict[int, Intervals]) -> dict[int, Intervals]:
    """Leave out tests that every number passes."""
    return {feature: test for feature, test in tests.items() if test != EVERYTHING}


def tree_columns(
    tree: ThresholdTree,
    names: Names = None,
    units: Mapping[str, str] | None = None,
    terms: bool = False,
) -> list[Column]:
    """Return the columns of a tree's table, with the tree's or new names, and the values next to its bounds.

    Units are those of the caller, or else of the file that the table was read from.
    """
    n = tree.n_features
    default_names = tree.feature_names or [f"x[{i}]" for i in range(n)]
    printed: Sequence[str] | None = tree.feature_names
    if names is not None:
        printed = _names_of_all(names, default_names, "feature_names", "features")
    keys: Sequence[str | int] = tree.feature_names or printed or range(n)

    margins: dict[int, list[tuple[float, float, float]]] = defaultdict(list)  # (bound, below, above)
    are_integers = [False] * n
    bounds = [] if tree.bounds is None else tree.bounds.tolist()
    for tested, bound, below, above, is_integer in bounds:
        column = int(tested)
        if tree.encoding is not None:
            column = tree.encoding.parts[column].column
        margins[column].append((bound, below, above))
        are_integers[column] = bool(is_integer)

    formats = column_formats(tree.table_format, default_names)
    remaining = dict(units or {})
    columns = []
    for i, key in enumerate(keys):
        name = printed[i] if printed else f"x[{i}]"
        unit, marks = formats[i]
        for known in (str(key), name, i):
            if known in remaining:
                unit = remaining.pop(known)
                break
        columns.append(Column(i, key, name, unit, are_integers[i], tuple(margins[i]), terms, marks))
    if remaining:
        raise ValueError(f"units names columns that the tree does not have: {sorted(map(str, remaining))}")
    return columns


def cluster_texts(tree: ThresholdTree, names: Names = None) -> list[str]:
    """Return the names of a tree's clusters: the given names, or their labels ("cluster 0" for a number)."""
    labels = tree.classes.tolist()
    texts = [label if isinstance(label, str) else f"cluster {label}" for label in labels]
    if isinstance(names, Mapping):
        unknown = [label for label in names if label not in labels]
        if unknown:
            raise ValueError(f"class_names names {unknown[0]!r}, and the labels are {shortened(str(labels), 200)}")
        texts = [names.get(label, text) for label, text in zip(labels, texts, strict=True)]
    elif names is not None:
        texts = _names_of_all(names, texts, "class_names", "clusters")
    return [one_line(str(text)) for text in texts]


def _names_of_all(
    names: Sequence[str] | Mapping[Any, str], default: Sequence[str], argument: str, plural: str
) -> list[str]:
    """Return the names of all columns: new ones for all, or a mapping of some names or positions to new ones."""
    if isinstance(names, str):  # a string is a sequence of its letters
        raise ValueError(f"{argument} must be a sequence of names or a mapping, got the string {names!r}")
    if isinstance(names, Mapping):
        by_name = {name: i for i, name in enumerate(default)}
        position = by_name | {i: i for i in range(len(default))}
        unknown = [name for name in names if name not in position]
        if unknown:
            raise ValueError(
                f"{argument} names {unknown[0]!r}, and the {plural} are {shortened(str(list(default)), 200)}"
            )
        renamed = {position[name]: new for name, new in names.items()}
        return [str(renamed.get(i, name)) for i, name in enumerate(default)]
    if len(names) != len(default):
        raise ValueError(
            f"{argument} needs one name for each of the {len(default)} {plural} of the tree, got {len(names)}"
        )
    return list(map(str, names))


def decodings(
    tree: ThresholdTree, columns: Sequence[Column], categories: Mapping[str, Sequence[Any]]
) -> list[Decode]:
    """Return, for every column that a tree tests, a function that translates its tests to conditions.

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
            decode.append(partial(_missing, column))
        else:
            decode.append(partial(_listed, column, part.numbers, part.unknown_number))
    return decode


def conditions(tree: ThresholdTree, decode: list[Decode], tests: Mapping[int, Intervals]) -> list[Condition]:
    """Translate the tests of a rule, at most one per column of the tree, to one condition per column."""
    by_column: dict[Column, Condition] = {}
    for feature, test in tests.items():
        condition = decode[feature](test)
        column = condition.column
        if column in by_column:
            condition = by_column[column].intersect(condition)
        by_column[column] = condition
    if tree.encoding is None:
        return list(by_column.values())
    return [_about_missing(condition) for condition in by_column.values()]


def _about_missing(condition: Condition) -> Condition:
    """Say "missing" or "not missing" if a condition accepts all numbers but no missing ones, or the reverse."""
    accepts_numbers = bool(condition.intervals)
    no_number_matters = condition.values is None and condition.intervals in ((), EVERYTHING)
    if not no_number_matters or condition.missing == accepts_numbers:
        return condition
    return Condition(condition.column, values=(None,), negated=not condition.missing)


def _of_categories(
    columns: Sequence[Column], categories: Mapping[str, Sequence[Any]], boolean: Tensor | None
) -> list[Decode]:
    """Read categories of columns with codes or a one-hot encoding; other columns are translated to themselves."""
    decode: list[Decode] = [partial(Condition, column) for column in columns]
    truth_columns = [] if boolean is None else boolean.nonzero()[:, 0].tolist()
    for position in truth_columns:  # a missing value meets neither
        decode[position] = partial(_listed, columns[position], {False: 0, True: 1}, nan)
    positions = {str(column.key): column.position for column in columns}
    if not isinstance(categories, Mapping):
        raise TypeError(f"categories needs a mapping {{column: categories}}, got {type(categories).__name__}")
    for key, values in categories.items():
        if isinstance(values, str) or len(set(values)) < len(values):
            raise ValueError(f"categories[{key!r}] needs a sequence of distinct categories, got {values!r}")
        if key in positions:
            known = [value for value in values if not is_missing(value)]
            codes = {value: code for code, value in enumerate(known)}
            if len(known) < len(values):
                codes[None] = -1
            column = columns[positions[key]]
            decode[column.position] = partial(_listed, Column(-1, key, column.name), codes, inf)
            continue
        # the columns of a one-hot encoding, with the category of each
        names = [(f"{key}_{value}", value) for value in values]
        names += [(f"{key}_nan", value) for value in values if is_missing(value)]
        one_hot = {positions[name]: value for name, value in names if name in positions}
        if not one_hot:
            first_name = f"{key}_{next(iter(values), None)}"
            raise ValueError(
                f"categories: the tree has no column {key!r} of codes, and no column {first_name!r} of zeros "
                "and ones"
            )
        for position, value in one_hot.items():
            decode[position] = partial(_listed, Column(-1, key), {value: 1}, 0)
    return decode


def _number(column: Column, fill: float | None, test: Intervals) -> Condition:
    """Translate a test of a number, or of the fill that stands for a missing one."""
    return Condition(column, test, missing=fill is not None and _holds(test, fill))


def _missing(column: Column, test: Intervals) -> Condition:
    """Translate a test of the indicator that is 1 where a number is missing, and 0 elsewhere."""
    intervals = EVERYTHING if _holds(test, 0) else ()
    return Condition(column, intervals, missing=_holds(test, 1))


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
    branches: tuple[str, ...]  # the conditions of the points that a test sends left, and right; none of a leaf
    is_negated: bool  # whether a test is that a value is none of some categories, or is not missing
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
        purity = 1.0
        if self.samples > 0:
            purity = 1 - self.mistakes / self.samples
        strength = 0.08 + 0.42 * purity**2  # pale enough for black text
        faded = []
        for first in (1, 3, 5):  # the colour has the form #rrggbb
            channel = int(self.color[first : first + 2], 16) / 255
            faded.append(round(255 * (1 - strength * (1 - channel))))
        return self.color, "#{:02x}{:02x}{:02x}".format(*faded)


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
    sides = _sides(tree, columns)
    numbers = printed_bounds(chain(*sides.values()), precision)
    palette = colors(len(clusters))
    n_all = max(float(tree.samples[0]), 1e-300)  # of a tree whose points all weigh nothing
    labels = tree.label.tolist()
    left_children = tree.left.tolist()
    right_children = tree.right.tolist()
    words = []
    nodes = zip(tree.samples.tolist(), tree.mistakes.tolist(), strict=True)
    for node, (samples, mistakes) in enumerate(nodes):
        edge = max(THINNEST, THICKEST * samples / n_all)
        details = counts(samples, mistakes).split(", ")
        if node in sides:
            left, right = sides[node]
            printed = numbers[left.column]
            title = "\nor ".join(left.alternatives(printed)).split("\n")
            if not mistakes:
                details = details[:1]
            branches = (left.render(printed), right.render(printed))
            children = (left_children[node], right_children[node])
            text = NodeWords(title, details, branches, left.negated, samples, mistakes, children, edge, GREY)
        else:
            label = labels[node]
            title = clusters[label].split("\n")
            text = NodeWords(title, details, (), False, samples, mistakes, (), edge, palette[label])
        words.append(text)
    return words


def _sides(tree: ThresholdTree, columns: list[Column]) -> dict[int, tuple[Condition, Condition]]:
    """Return, for every test, the conditions of the points that it sends left and right."""
    decode = decodings(tree, columns, {})
    sides = {}
    for node in (tree.feature >= 0).nonzero()[:, 0].tolist():
        feature = int(tree.feature[node])
        test = tree.tests[node]
        (left,) = conditions(tree, decode, {feature: test})
        (right,) = conditions(tree, decode, {feature: complement(test)})
        sides[node] = (left, right)
    return sides


def caption(words: list[NodeWords]) -> str:
    """Return what the mistakes of a node are, if there are any at a test."""
    has_mistakes_at_test = any(word.children and word.mistakes for word in words)
    return MISTAKES if has_mistakes_at_test else ""
