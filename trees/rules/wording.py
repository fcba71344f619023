"""Texts for columns, clusters and tests of a tree in rules and drawings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from neonxc.rules.condition import Column, Condition, printed_bounds
from neonxc.rules.intervals import complement
from neonxc.rules.wording import Numbers, counts, one_line
from neonxc.trees.fitted.tree import ThresholdTree
from neonxc.trees.rules.decoding import Decoding

MISTAKES = (
    "mistakes: at a leaf, samples of other clusters; at a test, samples that it sends where no leaf has their "
    "cluster"
)
THINNEST, THICKEST = 0.8, 6.0  # width of edges that no point takes, and that all points take


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


@dataclass(frozen=True)
class NodeWords:
    """The texts of a node."""

    name: str  # of a leaf's cluster, of a test's column
    cluster: int | None  # a leaf's
    sides: tuple[Condition, ...]  # what a test asks of points that go left, and right
    numbers: Numbers  # of its column
    samples: float
    mistakes: float
    children: tuple[int, ...]  # of a test: the nodes on its left and on its right
    edge: float  # width of the edge that leads to the node, in points

    def title(self) -> list[str]:
        """Return the cluster of a leaf, or the condition of a test, with a line for every interval."""
        if not self.sides:
            return [self.name]
        first, *others = self.sides[0].alternatives(self.numbers)
        return [first, *(f"or {other}" for other in others)]

    def branch(self, left: bool) -> str:
        """Return the condition of the points that a test sends to one side."""
        return self.sides[0 if left else 1].render(self.numbers)

    @property
    def details(self) -> list[str]:
        """Return the counts; the mistakes of a test only if there are any."""
        lines = counts(self.samples, self.mistakes).split(", ")
        return lines if self.cluster is not None or self.mistakes else lines[:1]


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
    numbers = printed_bounds(chain(*sides), precision)
    words, root = [], max(float(tree.samples[0]), 1e-300)
    nodes = (tree.label, tree.samples, tree.mistakes, tree.left, tree.right)
    of_nodes = (column.tolist() for column in nodes)
    for asked, label, samples, mistakes, *children in zip(sides, *of_nodes, strict=True):
        counted = (samples, mistakes, tuple(children) if asked else (), max(THINNEST, THICKEST * samples / root))
        if asked:
            column = asked[0].column
            words.append(NodeWords(column.name, None, asked, numbers[column], *counted))
        else:
            words.append(NodeWords(clusters[label], label, (), {}, *counted))
    return words


def caption(words: list[NodeWords]) -> str:
    """Return what the mistakes of a node are, if there are any at a test."""
    return MISTAKES if any(word.cluster is None and word.mistakes for word in words) else ""
