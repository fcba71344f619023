"""The contract of a criterion: own ones against all cuts tried one by one, in every way through the code."""

import inspect
import pydoc
import re
import threading
from dataclasses import KW_ONLY, replace
from typing import Any, Literal
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from test_tree_explainers import PATHS, limits
from tree_witnesses import CLASSES, data, same_cuts, separating
from tree_witnesses import cuts as all_cuts

from neonxc.common.processes import Ranks
from neonxc.trees.criteria import surrogate as surrogate_module
from neonxc.trees.criteria.centers import CostAndDepth, InducedCost, Mistakes
from neonxc.trees.criteria.criterion import Criterion
from neonxc.trees.criteria.labels import CliqueConductance, Gini
from neonxc.trees.criteria.sums import Sum, channels, clusters, parted, points
from neonxc.trees.criteria.unsupervised import Median
from neonxc.trees.cuts import histograms
from neonxc.trees.cuts.codes import code_columns
from neonxc.trees.cuts.exact_sums import rounded
from neonxc.trees.cuts.growth import Grown, best_first, label_leaves, separate_centers
from neonxc.trees.cuts.nodes import root
from neonxc.trees.cuts.search import Search
from neonxc.trees.explainers.expanding import BestFirst
from neonxc.trees.fit.problem import Problem
from neonxc.trees.fit.reference import Reference
from neonxc.trees.fit.sparse_points import as_points
from neonxc.trees.parameters import Fraction, explainer

seeds = st.integers(0, 2**32 - 1)
DTYPES = [np.float64, np.float32, np.float16, np.uint8, np.int64]
EVERY_LEAF = 10**6


@st.composite
def tables(draw, most=18):
    case = data(
        draw(seeds),
        draw(st.integers(2, most)),
        draw(st.integers(1, 3)),
        draw(st.integers(2, 5)),
        kind=draw(st.sampled_from(["grid", "fine"])),
        dtype=draw(st.sampled_from(DTYPES)),
        weighted=draw(st.booleans()),
        random_labels=draw(st.booleans()),
    )
    return case


def problem_of(case, weight=None):
    table, centers = as_points(torch.from_numpy(case.X)), torch.from_numpy(case.centers)
    weight = case.weight if weight is None else weight
    weight = None if weight is None else torch.from_numpy(weight).double()
    labels = torch.from_numpy(case.labels)
    columns, centers = code_columns(table, centers)
    found = Reference(labels, centers, np.arange(len(centers)), table, centers)
    return Problem(table, columns, found, weight)


# --- every cut tried ---------------------------------------------------------------------------------------


class Witness:
    """Grows trees by trying all cuts; `score` of (witness, rows, left, centers, centers_left, cut, path)."""

    def __init__(self, case, score, features=None, size=None):
        self.X, self.mass, self.labels = case.values, case.mass, case.labels
        self.case, self.centers, self.of = case, case.centers, score
        self.features = features or (lambda path: range(self.X.shape[1]))
        self.size = size or (lambda rows: self.mass[rows].sum())

    def best(self, rows, centers, path):
        """The first of the best cuts, or None."""
        X, own = self.X[rows], self.centers[centers]
        found = []
        for cut in separating(X, own) if len(centers) else all_cuts(X, own):
            if cut[0] in self.features(path):
                left, centers_left = X[:, cut[0]] <= cut[1], own[:, cut[0]] <= cut[1]
                found.append((self.of(self, rows, left, centers, centers_left, cut, path), cut))
        least = min((score for score, _ in found), default=np.inf)
        if least == np.inf:
            return None
        return next((score, cut) for score, cut in found if score <= least + 1e-12 * self.size(rows))

    def grow(self, with_centers, most=EVERY_LEAF):
        """Nested (feature, low, high, left, right), with the rows of a leaf; best first by minus the score."""
        every = np.arange(len(self.X)), np.arange(len(self.centers) if with_centers else 0), ()
        nodes, children, open_ = [every], {}, [0]
        best = [self.best(*every)]
        while True:
            if with_centers:
                ready = [node for node in open_ if len(nodes[node][1]) > 1]
            else:
                ready = [node for node in open_ if best[node] is not None] if len(open_) < most else []
                ready.sort(key=lambda node: (best[node][0], node))
            if not ready:
                break
            node = ready[0]
            rows, centers, path = nodes[node]
            feature, low, _ = best[node][1]
            left, centers_left = self.X[rows, feature] <= low, self.centers[centers, feature] <= low
            children[node] = len(nodes), len(nodes) + 1
            open_.remove(node)
            open_ += children[node]
            for side, centers_side, is_left in ((left, centers_left, True), (~left, ~centers_left, False)):
                nodes.append((rows[side], centers[centers_side], (*path, (feature, is_left))))
                best.append(self.best(*nodes[-1]))

        def nested(node):
            if node not in children:
                return nodes[node][0]
            return (*best[node][1], *map(nested, children[node]))

        return nested(0)


def grow(problem, criterion, with_centers, most=EVERY_LEAF):
    """The tree by the package: nested (feature, threshold, left, right), with the rows of a leaf."""
    search = Search(problem, criterion)
    builder = separate_centers(search) if with_centers else best_first(search, Grown([root(problem)]), most)
    rows = {leaf.id: leaf.rows.numpy() for leaf in builder.leaves}

    def nested(node):
        if builder.feature[node] < 0:
            return rows[node]
        children = nested(builder.left[node]), nested(builder.right[node])
        return (builder.feature[node], builder.threshold[node], *children)

    return nested(0)


def assert_same(ours, expected):
    assert same_cuts(ours, expected), (ours, expected)


def distinct_centers(case):
    return len(np.unique(case.centers, axis=0)) == case.k


# --- criteria of one's own ---------------------------------------------------------------------------------


def fewer(points):
    """Points that are not of the most frequent cluster, which a node without points has none of."""
    return points.sum(0) - (points.amax(0) if len(points) else 0)


class Errors(Criterion):
    """Points that are not of the most frequent cluster of their side."""

    def score(self, node, cuts):
        return fewer(cuts.left) + fewer(cuts.right)


def errors(witness, rows, left, *_):
    labels, mass = witness.labels[rows], witness.mass[rows]
    sides = [np.bincount(labels[side], mass[side]) for side in (left, ~left) if side.any()]
    return sum(counts.sum() - counts.max() for counts in sides)


class BoundedErrors(Errors):
    """The same, with a bound of what is gained; leaves without errors stay leaves."""

    def open(self, node):
        mass = self.problem.clusters(node)[1]
        return float(mass.sum() - mass.max()) if len(mass) else 0.0

    def bound(self, node):
        return node.state if node.state > 0 else -np.inf

    def gain(self, node, score):
        return node.state - score


class Spread(Criterion):
    """Squared differences from the mean of a value, summed over both sides: a regression tree, by channels."""

    def __init__(self, problem, values):
        super().__init__(problem)
        weight = torch.ones_like(values) if problem.weight is None else problem.weight
        self.parts = torch.stack([weight, weight * values, weight * values**2])

    def open(self, node):
        return rounded(self.parts[:, node.rows])

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
    return np.random.default_rng(len(case.X)).integers(-40, 40, len(case.X)) / 8


def spread(witness, rows, left, *_):
    values, mass, total = values_of(witness.case)[rows], witness.mass[rows], 0.0
    for side in (left, ~left):
        if side.any():
            mean = np.average(values[side], weights=mass[side])
            total += (mass[side] * (values[side] - mean) ** 2).sum()
    return total


class InTurns(Criterion):
    """Halves of the points, by columns that no test above has asked for; by `features`, `sides` and `mass`."""

    def sums(self, node):
        return (points(self.problem, node),)

    def features(self, node):
        asked = {feature for feature, _ in node.sides}
        return torch.tensor([f for f in range(self.problem.table.d) if f not in asked], dtype=torch.int64)

    def score(self, node, cuts):
        return (2 * cuts.mass_left - node.mass).abs()


def halves(witness, rows, left, *_):
    return abs(2 * witness.mass[rows][left].sum() - witness.mass[rows].sum())


class Margins(Criterion):
    """The widest gap first, with a tenth of the points on each side at least; by `gap`, and infinite scores."""

    def score(self, node, cuts):
        below, above = cuts.gap()
        left, right = cuts.left.sum(0), cuts.right.sum(0)
        score = (below - above).clamp(min=-1e9)
        return score.masked_fill(10 * torch.minimum(left, right) < node.mass, torch.inf)

    def size(self, node):
        return 1.0


def margin(witness, rows, left, centers, centers_left, cut, path):
    X, mass = witness.X[rows, cut[0]], witness.mass[rows]
    if 10 * min(mass[left].sum(), mass[~left].sum()) < mass.sum():
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
    return halves(witness, rows, left) * (-1) ** len(path)


class Fair(Criterion):
    """Errors, and three times the points by which the groups on the left differ in number; an own sum."""

    def __init__(self, problem, groups):
        super().__init__(problem)
        self.groups = groups

    def sums(self, node):
        own = self.groups[node.rows]
        return Sum(lambda columns: columns.counts(node.rows, own, 3).cumsum_(2), 3), clusters(self.problem, node)

    def score(self, node, cuts):
        in_groups = cuts.left[:3]
        return 3 * (in_groups.amax(0) - in_groups.amin(0)) + fewer(cuts.left[3:]) + fewer(cuts.right[3:])

    def size(self, node):
        return 4 * node.mass + 3 * node.n


def groups_of(case):
    return np.random.default_rng(len(case.X) + 1).integers(0, 3, len(case.X))


def fair(witness, rows, left, *_):
    counts = np.bincount(groups_of(witness.case)[rows][left], minlength=3)
    return 3 * (counts.max() - counts.min()) + errors(witness, rows, left)


class Nothing(Criterion):
    """All cuts are equally good."""

    def score(self, node, cuts):
        return torch.zeros(cuts.left.shape[1:], dtype=torch.float64)


def nothing(*_):
    return 0.0


class Staged(Criterion):
    """Mistakes, uneven centers, a sum over the left side, the numbers of the centers there; in three stages."""

    def __init__(self, problem, values, coarse=True, staged=True):
        super().__init__(problem)
        self.values, self.coarse = values.abs(), coarse
        self.staged = staged

    def sums(self, node):
        return (parted(self.problem, node),)

    @property
    def stages(self):
        return (self.mistakes, self.uneven, self.score) if self.staged else (self.score,)

    def mistakes(self, node, cuts):
        return cuts.left[0]

    def uneven(self, node, cuts):
        return self.mistakes(node, cuts) + (2 * cuts.centers_left - len(node.centers)).abs()

    def score(self, node, cuts):
        both = torch.stack([self.values[node.rows], self.values[node.rows] / 2])
        which = (cuts.feature + cuts.centers_left) % 2
        numbers = (cuts.sides() * node.centers).sum(-1)
        before = cuts.bound if self.staged else self.uneven(node, cuts)
        return before + cuts.sum_left(both, which, False) + numbers

    def within(self, node, least, feature):
        return least[0]

    def size(self, node):
        return node.mass + float(self.values.sum()) + self.problem.k**2


def staged(witness, rows, left, centers, centers_left, cut, path):
    place = {int(c): i for i, c in enumerate(centers)}
    score = abs(2 * centers_left.sum() - len(centers)) + centers[centers_left].sum()
    for i, on_left in zip(rows, left, strict=True):
        c = int(witness.labels[i])
        score += witness.mass[i] * (c in place and centers_left[place[c]] != on_left)
    values = np.abs(values_of(witness.case))[rows][left].sum()
    return score + values / (1 + (cut[0] + centers_left.sum()) % 2)


def made(name, case, problem):
    """A criterion, and its witness."""
    values = torch.from_numpy(values_of(case))
    total = float(np.abs(values_of(case)).sum())
    match name:
        case "Spread":
            squares = values_of(case) ** 2 * case.mass
            return Spread(problem, values), Witness(case, spread, size=lambda rows: squares[rows].sum())
        case "InTurns":
            free = lambda path: set(range(case.X.shape[1])) - {feature for feature, _ in path}  # noqa: E731
            return InTurns(problem), Witness(case, halves, features=free)
        case "Fair":
            size = lambda rows: 4 * case.mass[rows].sum() + 3 * len(rows)  # noqa: E731
            return Fair(problem, torch.from_numpy(groups_of(case))), Witness(case, fair, size=size)
        case "Staged":
            size = lambda rows: case.mass[rows].sum() + total + case.k**2  # noqa: E731
            return Staged(problem, values), Witness(case, staged, size=size)
        case "Margins":
            return Margins(problem), Witness(case, margin, size=lambda rows: 1.0)
    kinds = {"Errors": (Errors, errors), "Alternating": (Alternating, alternating), "Nothing": (Nothing, nothing)}
    return kinds[name][0](problem), Witness(case, kinds[name][1])


@pytest.mark.parametrize("name", ["Errors", "Spread", "Staged", "Fair", "Alternating", "Nothing"])
@given(case=tables(), path=st.sampled_from(list(PATHS)))
def test_own_criteria_with_centers(name, case, path):
    assume(distinct_centers(case))
    with limits(path):
        problem = problem_of(case)
        criterion, witness = made(name, case, problem)
        ours = grow(problem, criterion, True)
    assert_same(ours, witness.grow(True))


@pytest.mark.parametrize("name", ["Errors", "Spread", "InTurns", "Margins", "Fair", "Alternating", "Nothing"])
@given(case=tables(), path=st.sampled_from(list(PATHS)))
def test_own_criteria_without_centers(name, case, path):
    with limits(path):
        problem = problem_of(case)
        criterion, witness = made(name, case, problem)
        ours = grow(problem, criterion, False)
    assert_same(ours, witness.grow(False))


@given(case=tables(), most=st.integers(1, 8))
def test_the_leaf_of_least_score_is_cut_first(case, most):
    problem = problem_of(case)
    assert_same(grow(problem, Errors(problem), False, most), Witness(case, errors).grow(False, most))


@pytest.mark.parametrize("name", ["Errors", "Spread", "Staged", "Fair", "Alternating"])
def test_own_criteria_on_columns_of_many_values(name):
    """Codes are renumbered in nodes that have few of them."""
    path = "bins" if name in ("Errors", "Staged") else "more_bins"
    case = data(1, 300, 2, 8, kind="fine", weighted=True)
    with (
        limits(path),
        mock.patch.object(histograms, "renumber_codes", wraps=histograms.renumber_codes) as renumbered,
    ):
        problem = problem_of(case)
        criterion, witness = made(name, case, problem)
        ours = grow(problem, criterion, name == "Staged", 12)
    assert renumbered.called
    assert_same(ours, witness.grow(name == "Staged", 12))


@given(case=tables(), path=st.sampled_from(list(PATHS)))
def test_stages_and_bounds_within_bins_change_no_tree(case, path):
    assume(distinct_centers(case))
    values = torch.from_numpy(values_of(case))
    trees = []
    for coarse, in_stages in ((False, False), (True, False), (False, True), (True, True)):
        with limits(path):
            problem = problem_of(case)
            trees.append(grow(problem, Staged(problem, values, coarse, in_stages), True))
    for tree in trees[1:]:
        assert repr(tree) == repr(trees[0])


@given(case=tables(), most=st.integers(1, 9))
def test_a_bound_spares_searches_and_changes_no_tree(case, most):
    problem = problem_of(case)
    bounded = BoundedErrors(problem)
    with mock.patch.object(BoundedErrors, "score", autospec=True, side_effect=BoundedErrors.score) as scored:
        ours = grow(problem, bounded, False, most)
    unbounded = BoundedErrors(problem)
    with (
        mock.patch.object(BoundedErrors, "bound", lambda self, node: np.inf if node.state > 0 else -np.inf),
        mock.patch.object(BoundedErrors, "score", autospec=True, side_effect=BoundedErrors.score) as scored_all,
    ):
        assert repr(grow(problem, unbounded, False, most)) == repr(ours)
    assert scored.call_count <= scored_all.call_count


@pytest.mark.parametrize("path", PATHS)
def test_of_equal_cuts_the_first(path):
    """The lowest column that has a cut, and there the lowest threshold."""
    X = np.array([[3.0, 1, 5], [3, 2, 4], [3, 4, 1], [3, 8, 0]])
    case = data(0, 4, 3, 2)
    case.X, case.labels, case.weight = X, np.array([0, 0, 1, 1]), None
    with limits(path):
        problem = problem_of(case)
        chain_ = grow(problem, Nothing(problem), False)
        with_centers = grow(problem, Nothing(problem), True)
    assert [chain_[:2], chain_[3][:2], chain_[3][3][:2]] == [(1, 1.5), (1, 3.0), (1, 6.0)]
    assert with_centers[:2] == (1, 1.75)  # between the center at 1.5 and the point at 2


# --- fractional weights ------------------------------------------------------------------------------------


@pytest.mark.parametrize("criterion", [Gini, CliqueConductance, Errors])
@given(seed=seeds, n=st.integers(4, 30), tenths=st.booleans())
def test_fractional_weights_leave_no_side_empty(criterion, seed, n, tenths):
    """Sums that are subtracted may leave 1e-17 where there is nothing: no cut may take that for a point."""
    case = data(seed, n, 2, 3, random_labels=True)
    rng = np.random.default_rng(seed)
    weight = rng.integers(1, 10, len(case.X)) / 10 if tenths else rng.random(len(case.X)) + 1e-3
    problem = problem_of(case, weight)

    def sizes(tree):
        return [len(tree)] if isinstance(tree, np.ndarray) else sizes(tree[2]) + sizes(tree[3])

    assert min(sizes(grow(problem, criterion(problem), False, 12))) > 0


# --- shards ------------------------------------------------------------------------------------------------


def in_shards(problem, parts, work):
    """What `work` of a shard's problem gives, for shards (masks of rows) that reduce their sums together."""
    barrier, given_, results = threading.Barrier(len(parts), timeout=20), [None] * len(parts), [None] * len(parts)

    def run(number, rows):
        rows = torch.from_numpy(np.flatnonzero(rows))

        class Threads(Ranks):
            """Shards in threads."""

            alone = False

            def _reduced(self, values, operation):
                given_[number] = operation, values
                barrier.wait()
                asked = [(operation, tuple(values.shape), values.dtype) for operation, values in given_]
                every = [values for _, values in given_]
                barrier.wait()
                assert len(set(asked)) == 1, f"shards reduce different sums: {asked}"
                stacked = torch.stack(every)
                return stacked.amax(0) if operation == "MAX" else stacked.sum(0, dtype=values.dtype)

        columns = problem.columns
        blocks = [replace(block, coarse=block.coarse[:, rows].contiguous()) for block in columns.blocks]
        columns = replace(columns, codes=[codes[:, rows].contiguous() for codes in columns.codes], blocks=blocks)
        table = problem.table.take(rows)
        weight = None if problem.weight is None else problem.weight[rows]
        found = replace(problem.reference, labels=problem.labels[rows], space=table)
        shard = Problem(table, columns, found, weight, ranks=Threads())
        try:
            results[number] = work(shard)
        except Exception as error:
            results[number] = error
            barrier.abort()

    threads = [threading.Thread(target=run, args=shard) for shard in enumerate(parts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    broken = [result for result in results if isinstance(result, Exception)]
    for error in sorted(broken, key=lambda error: isinstance(error, threading.BrokenBarrierError)):
        raise error
    return results


def work_of(with_centers, criterion, most):
    """Work for a shard: the tests of the tree, and its leaves."""

    def work(problem):
        search = Search(problem, criterion(problem))
        builder = separate_centers(search) if with_centers else best_first(search, Grown([root(problem)]), most)
        sizes = [(leaf.id, leaf.n, leaf.mass, leaf.centers.tolist()) for leaf in builder.leaves]
        return builder.feature, np.nan_to_num(builder.threshold).tolist(), builder.left, sizes

    return work


SHARDED = {
    "IMM": (True, Mistakes),
    "EMN": (True, lambda problem: Mistakes(problem, shared=True)),
    "ExGreedy": (True, InducedCost),
    "ExShallow": (True, lambda problem: CostAndDepth(problem, 0.03)),
    "CART": (False, Gini),
    "ExKMC": (False, surrogate_module.Surrogate),
    "KDTree": (False, Median),
    "SpExClique": (False, CliqueConductance),
    "SpExClique by size": (False, lambda problem: CliqueConductance(problem, by_size=True)),
}


def divided(seed, kind, weights, share):
    """A table of some points, and which of them are in the first of two shards."""
    case = data(seed, 50, 3, 4, kind=kind, random_labels=seed % 2 == 0)
    rng = np.random.default_rng(seed)
    first = rng.random(len(case.X)) < share
    first[0], first[-1] = True, False
    return case, rng.random(len(case.X)) if weights else None, first


@pytest.mark.parametrize("name", SHARDED)
@given(
    path=st.sampled_from(list(PATHS)),
    seed=seeds,
    kind=st.sampled_from(["grid", "fine"]),
    weights=st.booleans(),
    share=st.floats(0.02, 0.5),
)
def test_shards_grow_the_tree_of_all_points(name, path, seed, kind, weights, share):
    case, weight, first = divided(seed, kind, weights, share)
    assume(distinct_centers(case))
    with limits(path):
        problem = problem_of(case, weight)
        work = work_of(*SHARDED[name], most=7)
        shards = in_shards(problem, (first, ~first), work)
    assert shards[0] == shards[1] == work(problem)


@pytest.mark.parametrize("name", ["IMM", "CART"])
def test_shards_of_few_points_grow_the_tree_of_all_points(name):
    case, _, first = divided(0, "grid", False, 0.05)
    problem = problem_of(case)
    work = work_of(*SHARDED[name], most=7)
    shards = in_shards(problem, (first, ~first), work)
    assert shards[0] == shards[1] == work(problem)


def test_labels_of_leaves_that_a_shard_has_no_points_of():
    case, weight, first = divided(0, "fine", True, 0.05)

    def work(problem):
        grown = best_first(Search(problem, Gini(problem)), Grown([root(problem)]), 8)
        return label_leaves(problem, grown, "majority").clusters

    problem = problem_of(case, weight)
    shards = in_shards(problem, (first, ~first), work)
    assert shards[0] == shards[1] == work(problem)


# --- what all explainers have in common --------------------------------------------------------------------


@pytest.mark.parametrize("model", CLASSES, ids=lambda model: model.__name__)
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


@explainer(share="A share.", prices="float or array-like\nPrices.", kinds="How.", max_leaves="list\nLeaves.")
class OwnTree(BestFirst):
    """Growth by rules of its own."""

    _: KW_ONLY
    leaf_labels: str = "own"
    share: Fraction | None = 0.5
    prices: Any = 0.0
    kinds: Literal["one", "two", "three"] = "one"
    max_leaves: Any = ()

    def _criterion(self, problem):
        raise NotImplementedError


def test_types_of_own_parameters_are_those_of_the_annotations():
    text = inspect.cleandoc(OwnTree.__doc__)
    for head in (
        "n_clusters : int\n",
        "share : float in [0, 1] or None\n    A share.",
        'kinds : {"one", "two", "three"}\n    How.',
        "prices : float or array-like\n    Prices.",
        'leaf_labels : {"surrogate", "majority", "own"}\n    How',  # as in the base class
        "max_leaves : list\n    Leaves.",
        "max_bins : int >= 2, optional\n",
    ):
        assert head in text
    OwnTree(share=None, prices="free", kinds="two", max_leaves=[], max_bins=None)._check_parameters()
    for wrong, message in (
        ({"share": 2}, r"share needs a number in \[0, 1\], got 2"),
        ({"kinds": "four"}, 'kinds needs "one", "two" or "three", got .four'),
        ({"leaf_labels": "best"}, 'leaf_labels needs "surrogate", "majority" or "own", got .best'),
        ({"max_bins": 1}, "max_bins needs a whole number >= 2 or None, got 1"),
        ({"n_clusters": None}, "n_clusters needs a whole number >= 1, got None"),
    ):
        with pytest.raises(ValueError, match=message):
            OwnTree(**wrong)._check_parameters()
