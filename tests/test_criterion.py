"""The contract of a criterion: explainers of one's own against all cuts, tried one by one."""

import inspect
import pydoc
import re
from dataclasses import KW_ONLY
from functools import partial
from importlib import import_module
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_tree_explainers import PATHS, limits
from tree_witnesses import CLASSES, data, grow, parts_of, same_cuts, separating, tables
from tree_witnesses import cuts as all_cuts

from neonxc.trees import CART, CUBT, EMN, IMM, CLTree, ExGreedy, ExKMC, ExShallow, KDTree
from neonxc.trees.criteria.centers import InducedCost
from neonxc.trees.criteria.criterion import Criterion, Pruning
from neonxc.trees.criteria.sums import Sum, channels, clusters, parted, points
from neonxc.trees.cuts import codes
from neonxc.trees.cuts.growth import root
from neonxc.trees.cuts.search import Search
from neonxc.trees.explainers.center_based import CenterTree
from neonxc.trees.explainers.expanding import BestFirst
from neonxc.trees.parameters import explainer

EVERY_LEAF = 10**6


@explainer(criterion="callable\nOf a problem.", n_clusters="object\nOf no account.")
class Growing(BestFirst):
    """The leaf of least score is cut first, by a criterion of one's own."""

    n_clusters: Any = "some"
    _: KW_ONLY
    leaf_labels: str = "own"
    criterion: Any = None

    def _criterion(self, problem):
        return self.criterion(problem)


@explainer(criterion="callable\nOf a problem.")
class Separating(CenterTree):
    """A leaf for every center, by a criterion of one's own."""

    _: KW_ONLY
    criterion: Any = None

    def _criterion(self, problem):
        return self.criterion(problem)


def grown(model, case):
    """The tree by the package: nested (feature, threshold, left, right), with the rows of a leaf."""
    return parts_of(model.fit(case.X, labels=case.labels, sample_weight=case.weight).tree_, case.values)


class Witness:
    """Grows trees by trying all cuts; `score` of (witness, rows, left, centers, centers_left, cut, path)."""

    def __init__(self, case, score):
        self.X = case.values
        self.mass = case.mass
        self.labels = case.labels
        self.centers = case.centers
        self.score = score
        self.values = values_of(case).numpy()
        self.groups = groups_of(case).numpy()

    def best(self, rows, centers, path):
        """The first of the best cuts, or None; scores that differ by less than 1e-9 differ by rounding."""
        X = self.X[rows]
        own = self.centers[centers]
        found = []
        for cut in separating(X, own) if len(centers) else all_cuts(X, own):
            left = X[:, cut[0]] <= cut[1]
            centers_left = own[:, cut[0]] <= cut[1]
            found.append((self.score(self, rows, left, centers, centers_left, cut, path), cut))
        least = min((score for score, _ in found), default=np.inf)
        return next(((score, cut) for score, cut in found if score <= least + 1e-9 < np.inf), None)

    def grow(self, with_centers, most):
        return grow(self.X, self.best, most, self.centers if with_centers else None)


# --- criteria, and what they are by definition -------------------------------------------------------------


def fewer(points):
    """Points that are not of the most frequent cluster, which a node without points has none of."""
    return points.sum(0) - (points.amax(0) if len(points) else 0)


class Errors(Criterion):
    """Points that are not of the most frequent cluster of their side."""

    def score(self, node, cuts):
        return fewer(cuts.left) + fewer(cuts.right)


def errors(witness, rows, left, *_):
    labels = witness.labels[rows]
    mass = witness.mass[rows]
    sides = [np.bincount(labels[side], mass[side]) for side in (left, ~left) if side.any()]
    return sum(counts.sum() - counts.max() for counts in sides)


class Spread(Criterion):
    """Squared differences from the mean of a value, summed over both sides: a regression tree, by channels."""

    def __init__(self, problem, case):
        super().__init__(problem)
        values = values_of(case)
        weight = torch.from_numpy(case.mass)
        self.parts = torch.stack([weight, weight * values, weight * values**2])  # sums of which are exact

    def open(self, node):
        return self.parts[:, node.rows]

    def sums(self, node):
        return (channels(node, node.state),)

    def score(self, node, cuts):
        return sum(
            squares - values**2 / torch.where(mass > 0, mass, 1)
            for mass, values, squares in (cuts.left, cuts.right)
        )

    def size(self, node):
        return float(node.state[2].sum())


def values_of(case):
    return torch.from_numpy(np.random.default_rng(len(case.X)).integers(-40, 40, len(case.X)) / 8)


def groups_of(case):
    return torch.from_numpy(np.random.default_rng(len(case.X) + 1).integers(0, 3, len(case.X)))


def spread(witness, rows, left, *_):
    total = 0.0
    for side in (rows[left], rows[~left]):
        if len(side):
            values = witness.values[side]
            mass = witness.mass[side]
            total += (mass * (values - np.average(values, weights=mass)) ** 2).sum()
    return total


class Margins(Criterion):
    """The widest gap first, of columns that no test above has asked for, with a tenth of the points on each side.

    By `features`, `sides`, `gap`, and infinite scores.
    """

    def sums(self, node):
        return (points(self.problem, node),)

    def features(self, node):
        asked = {feature for feature, _ in node.sides}
        return torch.tensor([f for f in range(self.problem.table.d) if f not in asked], dtype=torch.int64)

    def score(self, node, cuts):
        below, above = cuts.gap()
        score = (below - above).clamp(min=-1e9)
        least = torch.minimum(cuts.mass_left, node.mass - cuts.mass_left)
        return score.masked_fill(10 * least < node.mass, torch.inf)

    def size(self, node):
        return 1.0


def margin(witness, rows, left, centers, centers_left, cut, path):
    X = witness.X[rows, cut[0]]
    mass = witness.mass[rows]
    asked = {step[0] for step in path}
    if cut[0] in asked or 10 * min(mass[left].sum(), mass[~left].sum()) < mass.sum():
        return np.inf
    return max(-1e9, X[left].max() - X[~left].min())


class Alternating(Criterion):
    """The evenest cut at even depths, the most uneven at odd ones; depth is handed on by `split`."""

    def open(self, node):
        return node.state or 0

    def split(self, node, cut, children):
        for child in children:
            child.state = node.state + 1

    def score(self, node, cuts):
        return (2 * cuts.mass_left - node.mass).abs() * (-1) ** node.state


def alternating(witness, rows, left, centers, centers_left, cut, path):
    return abs(2 * witness.mass[rows][left].sum() - witness.mass[rows].sum()) * (-1) ** len(path)


class Fair(Criterion):
    """Errors, and three times the points by which the groups on the left differ in number; an own sum."""

    def __init__(self, problem, case):
        super().__init__(problem)
        self.groups = groups_of(case)

    def sums(self, node):
        own = self.groups[node.rows]
        return Sum(lambda columns: columns.counts(node.rows, own, 3).cumsum_(2), 3), clusters(self.problem, node)

    def score(self, node, cuts):
        in_groups = cuts.left[:3]
        return 3 * (in_groups.amax(0) - in_groups.amin(0)) + fewer(cuts.left[3:]) + fewer(cuts.right[3:])

    def size(self, node):
        return 4 * node.mass + 3 * node.n


def fair(witness, rows, left, *_):
    counts = np.bincount(witness.groups[rows][left], minlength=3)
    return 3 * (counts.max() - counts.min()) + errors(witness, rows, left)


class Stages(Pruning):
    """Two lower bounds of `Staged`: the mistakes, and how uneven the centers are."""

    @property
    def bounds(self):
        return self.criterion.mistakes, self.criterion.uneven

    def score(self, node, cuts):
        return cuts.bound + self.criterion.rest(node, cuts)

    def bound_inside(self, node, least, feature):
        return least[0]


class Staged(Criterion):
    """Mistakes, uneven centers, a sum over the left side, and the numbers of the centers there."""

    pruning = Stages

    def __init__(self, problem, case, pruning=Stages):
        super().__init__(problem)
        self.values = values_of(case).abs()
        self.pruning = pruning

    def sums(self, node):
        return (parted(self.problem, node),)

    def mistakes(self, node, cuts):
        return cuts.left[0]

    def uneven(self, node, cuts):
        return self.mistakes(node, cuts) + (2 * cuts.centers_left - len(node.centers)).abs()

    def score(self, node, cuts):
        return self.uneven(node, cuts) + self.rest(node, cuts)

    def rest(self, node, cuts):
        both = torch.stack([self.values[node.rows], self.values[node.rows] / 2])
        which = (cuts.feature + cuts.centers_left) % 2
        numbers = (cuts.sides() * node.centers).sum(-1)
        return cuts.sum_left(both, which, False) + numbers

    def size(self, node):
        return node.mass + float(self.values.sum()) + self.problem.k**2


def staged(witness, rows, left, centers, centers_left, cut, path):
    labels = witness.labels[rows]
    mass = witness.mass[rows]
    still = np.isin(witness.labels[rows], centers)
    own_left = centers_left[np.searchsorted(centers, labels[still])]
    score = abs(2 * centers_left.sum() - len(centers)) + centers[centers_left].sum()
    score += mass[still][own_left != left[still]].sum()
    values = np.abs(witness.values)[rows][left].sum()
    return score + values / (1 + (cut[0] + centers_left.sum()) % 2)


KINDS = {
    "Errors": (Errors, errors),
    "Spread": (Spread, spread),
    "Margins": (Margins, margin),
    "Fair": (Fair, fair),
    "Alternating": (Alternating, alternating),
    "Staged": (Staged, staged),
}
WITH_CENTERS = ["Errors", "Spread", "Staged", "Fair", "Alternating"]


def assert_grown(case, name, path, with_centers, most=EVERY_LEAF, **ways):
    kind, score = KINDS[name]
    criterion = partial(kind, case=case, **ways) if kind in (Spread, Fair, Staged) else kind
    model = Separating(criterion=criterion) if with_centers else Growing(criterion=criterion, max_leaves=most)
    expected = Witness(case, score).grow(with_centers, most)
    with limits(path):
        ours = grown(model, case)
    assert same_cuts(ours, expected), (ours, expected)


@pytest.mark.parametrize("name", WITH_CENTERS)
@given(case=tables(18, 3, separable=True), path=st.sampled_from(list(PATHS)))
def test_own_criteria_with_centers(name, case, path):
    """Of `Staged` also without its bounds, which change no tree."""
    assert_grown(case, name, path, True)
    if name == "Staged":
        assert_grown(case, name, path, True, pruning=Pruning)


@pytest.mark.parametrize("name", list(KINDS)[:-1])
@given(case=tables(18, 3), path=st.sampled_from(list(PATHS)), most=st.integers(1, 8))
def test_own_criteria_without_centers(name, case, path, most):
    """The leaf of least score is cut first; scores that are no whole numbers may be equal but for rounding."""
    assert_grown(case, name, path, False)
    if name == "Errors":
        assert_grown(case, name, path, False, most)


@pytest.mark.parametrize("name", WITH_CENTERS)
def test_own_criteria_on_columns_of_many_values(name):
    """Codes are renumbered in nodes that have few of them."""
    path = "bins" if name in ("Errors", "Staged") else "more_bins"
    case = data(1, 300, 2, 8, kind="fine", weighted=True)
    with mock.patch.object(codes, "renumber_codes", wraps=codes.renumber_codes) as renumbered:
        assert_grown(case, name, path, name == "Staged", 12)
    assert renumbered.called


class ErrorsBound(Pruning):
    """No cut gains more than all errors of a leaf."""

    def gain_bound(self, node):
        return node.state


class Bounded(Errors):
    """Errors, with a bound of what is gained; leaves without errors stay leaves."""

    pruning = ErrorsBound

    def open(self, node):
        mass = self.problem.clusters(node)[1]
        return float(mass.sum() - mass.max()) if len(mass) else 0.0

    def score(self, node, cuts):
        type(self).scored += 1
        return super().score(node, cuts)

    def gain(self, node, score):
        return node.state - score if node.state > 0 else -np.inf


@given(case=tables(18, 3), most=st.integers(1, 9))
def test_a_bound_spares_searches_and_changes_no_tree(case, most):
    class Unbounded(Bounded):
        pruning = Pruning
        scored = 0

    Bounded.scored = 0
    trees = [grown(Growing(criterion=kind, max_leaves=most), case) for kind in (Bounded, Unbounded)]
    assert repr(trees[0]) == repr(trees[1])
    assert Bounded.scored <= Unbounded.scored


def kinds_of(criterion):
    """All criteria of the package that are loaded."""
    for kind in criterion.__subclasses__():
        if kind.__module__.startswith("neonxc."):
            yield kind
        yield from kinds_of(kind)


PRUNED = {kind.__name__: kind for kind in kinds_of(Criterion) if kind.pruning is not Pruning}
MODELS = {
    "Mistakes": [IMM, EMN],
    "InducedCost": [ExGreedy],
    "CostAndDepth": [ExShallow],
    "Surrogate": [ExKMC],
    "Gini": [CART],
    "Median": [KDTree],
    "Deviance": [CUBT],
    "EmptySpace": [CLTree],
}


@pytest.mark.parametrize(
    ("name", "path"),
    [
        # by default, every criterion takes one way through the code, in turns
        pytest.param(name, path, marks=[pytest.mark.slow] * ((i + j) % 3 > 0))
        for i, name in enumerate(MODELS)
        for j, path in enumerate(["as_it_is", "bins", "few_centers"])
    ],
)
@given(case=tables(18, 3, separable=True))
def test_without_its_bounds_a_criterion_grows_the_same_tree(name, path, case):
    def trees():
        return repr([grown(model(case.k), case) for model in MODELS[name]])

    with limits(path):
        bounded = trees()
        with mock.patch.object(PRUNED[name], "pruning", Pruning):
            assert trees() == bounded


def test_every_criterion_with_bounds_is_grown_without_them():
    assert set(PRUNED) == set(MODELS)


@pytest.mark.parametrize(
    ("former", "name", "module"),
    [("nodes", "Node", "growth"), ("cuts", "Cuts", "search"), ("columns", "Columns", "histograms")],
)
def test_names_in_their_former_modules(former, name, module):
    moved = import_module(f"neonxc.trees.cuts.{former}")
    with pytest.warns(DeprecationWarning, match=rf"use neonxc\.trees\.cuts\.{module}\.{name}$"):
        value = getattr(moved, name)
    assert value is getattr(import_module(f"neonxc.trees.cuts.{module}"), name)
    with pytest.raises(AttributeError, match="has no attribute 'Other'"):
        moved.Other  # noqa: B018


def test_bounds_by_their_former_names_are_those_of_the_pruning():
    with pytest.warns(DeprecationWarning, match="stages, coarse, within of a criterion is deprecated"):

        class Former(Staged):
            coarse = True

            def __init__(self, problem, case):
                Criterion.__init__(self, problem)
                self.values = values_of(case).abs()

            @property
            def stages(self):
                return self.mistakes, self.uneven, self.score

            def score(self, node, cuts):
                return cuts.bound + self.rest(node, cuts)

            def within(self, node, least, feature):
                return least[0]

    case = data(1, 60, 2, 5, kind="fine", weighted=True)
    with limits("bins"):
        trees = [grown(Separating(criterion=partial(kind, case=case)), case) for kind in (Former, Staged)]
    assert repr(trees[0]) == repr(trees[1])

    with pytest.warns(DeprecationWarning, match="bound of a criterion"):

        class FormerBound(Bounded):
            scored = 0

            def bound(self, node):
                return ErrorsBound(self).gain_bound(node)

    trees = [grown(Growing(criterion=kind, max_leaves=9), case) for kind in (FormerBound, Bounded)]
    assert repr(trees[0]) == repr(trees[1])


# --- what all explainers have in common --------------------------------------------------------------------


@pytest.mark.parametrize("model", [*CLASSES, Growing, Separating], ids=lambda model: model.__name__)
def test_every_parameter_is_described_once(model):
    names = list(inspect.signature(model).parameters)
    assert sorted(model().get_params()) == sorted(names)
    text = inspect.cleandoc(model.__doc__)
    assert text.count("Parameters\n----------") == 1
    section = re.split(r"\n(?=\w+\n-{3,}\n)", text.split("Parameters\n----------")[1])[0]
    heads = [line for line in section.splitlines()[1:] if re.match(r"\w", line)]
    described = [name for head in heads for name in head.split(" : ")[0].split(", ")]
    assert sorted(described) == sorted(names)
    assert all(name in pydoc.render_doc(model, renderer=pydoc.plaintext) for name in names)


@pytest.mark.parametrize(
    ("model", "head"),
    [
        (Growing, "n_clusters : object\n    Of no account."),
        (Growing, "max_leaves : int, optional\n    Default"),  # as in the base class
        (Growing, 'leaf_labels : {"surrogate", "majority", "own"}\n    How'),
        (CUBT, "n_clusters : int or None\n    Leaves"),
        (CUBT, "min_dev : float in [0, 1]\n    Minimum"),
        (IMM, 'metric : {"l2", "l1"}\n'),
        (IMM, "max_bins : int >= 2, optional\n"),
        (ExKMC, 'base : {"imm", "none"}, ThresholdTree or fitted tree explainer\n    The tree'),
    ],
)
def test_types_of_parameters_are_those_of_the_annotations(model, head):
    assert head in inspect.cleandoc(model.__doc__)


@pytest.mark.parametrize("weighted", [False, True])
def test_no_bound_of_the_cost_is_above_it(weighted):
    """Not even by rounding: the costs of points are rounded, which keeps their order, and sums are exact."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(300, 6))
    weight = generator.uniform(0.1, 10, 300) if weighted else None
    _, problem = ExGreedy()._prepare(X, None, X[:7], weight)
    criterion = InducedCost(problem)
    search = Search(problem, criterion)
    node = root(problem)
    search.open(node)
    node.sums = criterion.sums(node)
    for columns in problem.columns.chunks(problem, node, 1):
        cuts, impossible = search._bounded(node, columns(), [node.sums[0].of(columns())])
        possible = cuts.at(*(~impossible).nonzero(as_tuple=True))
        assert (possible.bound <= criterion.score(node, possible)).all()
        assert (possible.bound == criterion.score(node, possible)).any()  # where two centers are enough
