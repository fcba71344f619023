"""Slow, literal re-implementations of what the papers on trees define: loops over cuts, points and nodes.

But for the explainers at the end nothing here comes from the package; NumPy in float64 throughout. A cut is
(feature, low, high): points and centers with a value of at most `low` go left, the others, of at least `high`, go
right.
"""

from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume
from hypothesis import strategies as st

from neonxc import trees
from neonxc.trees import (
    CART,
    CUBT,
    EMN,
    IMM,
    CLTree,
    ExGreedy,
    ExKMC,
    ExShallow,
    KDTree,
    KernelExKMC,
    KernelExpand,
    KernelIMM,
    RandomThresholds,
    SpExClique,
    SpExGraph,
    SpExKNN,
)

TIE = 1e-12
seeds = st.integers(0, 2**32 - 1)
DTYPES = [np.float64, np.float32, np.float16, np.int8, np.uint8, np.int32, np.int64]

# --- data --------------------------------------------------------------------------------------------------


@dataclass
class Data:
    """Points, their reference labels and weights. Sums of values are exact, so that means have one value only."""

    X: np.ndarray
    labels: np.ndarray
    weight: np.ndarray | None = None

    @property
    def values(self):
        return self.X.astype(np.float64)

    @property
    def mass(self):
        return np.ones(len(self.X)) if self.weight is None else self.weight.astype(np.float64)

    @property
    def k(self):
        return int(self.labels.max()) + 1

    @property
    def centers(self):
        return means(self.values, self.labels, self.k, self.mass)


def means(X, labels, k, mass):
    return np.stack([np.average(X[labels == c], axis=0, weights=mass[labels == c]) for c in range(k)])


def data(seed, n, d, k, *, kind="grid", dtype=np.float64, weighted=False, random_labels=False):
    """Random points; `kind` "grid": few distinct values, repeated rows and columns; "fine": hardly any ties."""
    rng = np.random.default_rng(seed)
    n = max(n, k)
    if kind == "grid":
        X = rng.integers(0, rng.integers(2, 8), (n, d)).astype(np.float64)
        if np.dtype(dtype).kind == "f":
            X /= 4
        X[rng.random(n) < 0.3] = X[0]
        if d > 1 and rng.random() < 0.4:
            X[:, rng.integers(1, d)] = X[:, 0]
        if d > 1 and rng.random() < 0.3:
            X[:, rng.integers(d)] = 3
    else:
        spread = rng.normal(size=(k, d))[rng.integers(k, size=n)] * rng.integers(0, 3)
        X = np.round((rng.normal(size=(n, d)) + spread) * 2**16) / 2**16
        if np.dtype(dtype).kind != "f":
            X = np.round(X * 2**4).clip(-100, 100)
    X = X.astype(dtype)
    places = X[rng.permutation(n)[:k]].astype(np.float64)
    labels = ((X.astype(np.float64)[:, None] - places) ** 2).sum(2).argmin(1)
    if random_labels:
        labels = rng.integers(0, k, n)
    labels[rng.permutation(n)[:k]] = np.arange(k)
    weight = rng.integers(1, 4, n) if weighted else None
    return Data(X, labels, weight)


@st.composite
def tables(draw, most=60, columns=5, clusters=2, weighted=None, separable=False, dtypes=tuple(DTYPES)):
    """Tables of every kind; `separable`: their clusters have different means."""
    case = data(
        draw(seeds),
        draw(st.integers(2, most)),
        draw(st.integers(1, columns)),
        draw(st.integers(clusters, 6)),
        kind=draw(st.sampled_from(["grid", "fine"])),
        dtype=draw(st.sampled_from(dtypes)),
        weighted=draw(st.booleans()) if weighted is None else weighted,
        random_labels=draw(st.booleans()),
    )
    if separable:
        assume(len(np.unique(case.centers, axis=0)) == case.k)
    return case


def distances(X, centers):
    """Squared distance of every point to every center."""
    return ((X[:, None] - centers) ** 2).sum(2)


# --- cuts --------------------------------------------------------------------------------------------------


def cuts(X, centers):
    """All cuts of a node that differ: the gaps between neighbouring values of its points and centers."""
    columns = enumerate(np.concatenate([X, centers]).T)
    return [(feature, *gap) for feature, values in columns for gap in pairwise(np.unique(values).tolist())]


def separating(X, centers):
    """Those of them that have centers on both sides."""
    return [cut for cut in cuts(X, centers) if 0 < (centers[:, cut[0]] <= cut[1]).sum() < len(centers)]


# --- what the points of a node cost at a cut, given who goes left ------------------------------------------


def current_cost(far, mass):
    """Eq. 6: every point to its nearest center; 1 where every point lies on a center."""
    return (far.min(1) * mass).sum() or 1.0


def induced_cost(far, left, centers_left, mass):
    """Eq. 7: every point to the nearest center on its side."""
    cost = 0.0
    if left.any():
        cost += (far[left][:, centers_left].min(1) * mass[left]).sum()
    if (~left).any():
        cost += (far[~left][:, ~centers_left].min(1) * mass[~left]).sum()
    return cost


def price(far, left, centers_left, mass):
    """Eq. 5; the induced cost itself where every point lies on a center."""
    return induced_cost(far, left, centers_left, mass) / current_cost(far, mass)


def eval_wad(N, K, left, points, centers_left, centers):
    """Algorithm 2, with the ratios left / points and centers_left / centers, all of them whole numbers."""
    if K == 1 or N == 0:
        return 0.0
    K_left = min(max(-(-K * centers_left // centers), 1), K - 1)
    if N == 1:
        N_left = 1 if K_left > K - K_left else 0
    else:
        N_left = min(max(-(-N * left // points), 1), N - 1)
    on_left = eval_wad(N_left, K_left, left, points, centers_left, centers)
    on_right = eval_wad(N - N_left, K - K_left, left, points, centers_left, centers)
    return 1 + (N_left * on_left + (N - N_left) * on_right) / N


def depth_estimate(feature, left, centers_left, mass, sides):
    """Algorithm 3; `sides`: (feature, whether to the left) of the tests on the way to the node."""
    points = int(mass.sum())
    points_left = int(mass[left].sum())
    depth = eval_wad(points, len(centers_left), points_left, points, int(centers_left.sum()), len(centers_left))
    on_sides = {True: points_left, False: points - points_left}
    killed = sum(on_side for is_left, on_side in on_sides.items() if (feature, is_left) in sides)
    return depth - killed / max(points, 1)


def surrogate_cost(far, mass):
    """Of a leaf: what its points cost at the one reference center that is best for all of them."""
    return (far * mass[:, None]).sum(0).min() if len(far) else 0.0


def surrogate_gain(far, left, mass):
    return (
        surrogate_cost(far, mass) - surrogate_cost(far[left], mass[left]) - surrogate_cost(far[~left], mass[~left])
    )


def gini(labels, mass):
    """Impurity, weighted by points."""
    total = mass.sum()
    if total == 0:
        return 0.0
    return total * (1 - ((np.bincount(labels, mass) / total) ** 2).sum())


def gini_gain(labels, left, mass):
    return gini(labels, mass) - gini(labels[left], mass[left]) - gini(labels[~left], mass[~left])


def kmeans_cost(X, clusters, mass=None):
    """To the means of the clusters."""
    mass = np.ones(len(X)) if mass is None else mass
    cost = 0.0
    for c in np.unique(clusters):
        own = X[clusters == c]
        weight = mass[clusters == c]
        cost += ((own - np.average(own, axis=0, weights=weight)) ** 2).sum(1) @ weight
    return cost


# --- criteria of a node with centers -----------------------------------------------------------------------


@dataclass
class Scorer:
    """The score of cuts by one of the explainers that separate centers: the least is the best."""

    name: str
    data: Data
    centers: np.ndarray
    depth_factor: float = 0.0

    def __post_init__(self):
        self.X, self.mass, self.labels = self.data.values, self.data.mass, self.data.labels
        self.far = distances(self.X, self.centers)

    def score(self, rows, centers, sides, cut):
        """Score of a cut of some of the rows and some of the centers."""
        left, centers_left = (values[:, cut[0]] <= cut[1] for values in (self.X[rows], self.centers[centers]))
        mass = self.mass[rows]
        far = self.far[np.ix_(rows, centers)]
        if self.name in ("IMM", "EMN"):
            still = np.isin(self.labels[rows], centers)
            own = centers_left[np.searchsorted(centers, self.labels[rows][still])]
            lost = mass[still][own != left[still]].sum()  # the weight of points that are cut from their center
            return lost if self.name == "IMM" else lost / min(centers_left.sum(), (~centers_left).sum())
        if self.name == "ExGreedy":
            return induced_cost(far, left, centers_left, mass)
        depth = depth_estimate(cut[0], left, centers_left, mass, sides)
        return price(far, left, centers_left, mass) + self.depth_factor * depth

    def size(self, rows, centers):
        """What a difference of scores is to be compared with."""
        if self.name in ("IMM", "EMN"):
            return self.mass[rows].sum()
        far = self.far[np.ix_(rows, centers)]
        mass = self.mass[rows]
        total = far.max(1) @ mass
        return total if self.name == "ExGreedy" else 1 + total / current_cost(far, mass)

    def best(self, rows, centers, path):
        """The first of the best cuts, lowest feature first, then lowest threshold."""
        possible = separating(self.X[rows], self.centers[centers])
        sides = {step[:2] for step in path}
        found = [(self.score(rows, centers, sides, cut), cut) for cut in possible]
        limit = min(found, default=(0.0,))[0] + TIE * self.size(rows, centers)
        return next(((score, cut) for score, cut in found if score <= limit), None)

    def grow(self):
        """The whole tree, as nested (feature, low, high, left, right) and centers at its leaves."""
        return grow(self.X, self.best, centers=self.centers, leaf=lambda _, own: int(own[0]))


# --- growth by any score -----------------------------------------------------------------------------------


def grow(X, best, most=10**6, centers=None, leaf=lambda rows, _: rows):
    """The tree as nested (feature, low, high, left, right), and `leaf` of the rows and centers of a leaf.

    `best` of (rows, centers, path): score and cut of a node's best cut, or None; a path has the cuts above it, as
    (feature, whether to the left, low, high). The leaf of least score is cut first, of equal ones that which was
    made first; with centers, every leaf that has several of them.
    """
    nodes = [(np.arange(len(X)), np.arange(0 if centers is None else len(centers)), ())]
    found = [best(*nodes[0])]
    children = {}
    open_ = [0]
    while True:
        if centers is None:
            ready = [node for node in open_ if found[node] is not None] if len(open_) < most else []
        else:
            ready = [node for node in open_ if len(nodes[node][1]) > 1]
        if not ready:
            break
        least = min(found[node][0] for node in ready)
        node = min(node for node in ready if found[node][0] <= least + TIE)
        (rows, own, path) = nodes[node]
        (feature, low, high) = found[node][1]
        left = X[rows, feature] <= low
        centers_left = own == own
        if centers is not None:
            centers_left = centers[own, feature] <= low
        children[node] = len(nodes), len(nodes) + 1
        open_.remove(node)
        open_ += children[node]
        for sides, is_left in (((left, centers_left), True), ((~left, ~centers_left), False)):
            nodes.append((rows[sides[0]], own[sides[1]], (*path, (feature, is_left, low, high))))
            found.append(best(*nodes[-1]))

    def nested(node):
        return (*found[node][1], *map(nested, children[node])) if node in children else leaf(*nodes[node][:2])

    return nested(0)


# --- SpEx, on dense adjacency matrices [n, n] --------------------------------------------------------------


def clique_adjacency(labels, weights="unit"):
    """Points of a cluster are adjacent; "size": with weight 1 / (|C| - 1), so that degrees are 1 (Cor. A.5)."""
    A = (labels[:, None] == labels).astype(np.float64)
    np.fill_diagonal(A, 0)
    return A / np.maximum(A.sum(1), 1)[:, None] if weights == "size" else A


def conductance(A, rows):
    """ψ of Eq. 1 of some points, on the whole graph: edges to others over degrees; 1 where there are no edges."""
    degrees = A[rows].sum()
    return 1 - A[np.ix_(rows, rows)].sum() / degrees if degrees > 0 else 1.0


def spex(X, A, max_leaves):
    """Algorithm 1: the leaf is split whose split lowers the sum of conductances most (Eq. 4)."""

    def best(rows, *_):
        found = []
        for cut in cuts(X[rows], X[:0]):
            left = X[rows, cut[0]] <= cut[1]
            found.append((conductance(A, rows[left]) + conductance(A, rows[~left]), cut))
        if not found:
            return None
        least = min(found)[0]
        return least - conductance(A, rows), next(cut for score, cut in found if score <= least + TIE)

    return grow(X, best, max_leaves)


# --- fitted trees, read from outside -----------------------------------------------------------------------


def inner_nodes(tree):
    return (tree.feature >= 0).nonzero()[:, 0].tolist()


def rows_of(tree, X):
    """The rows that reach each node; values are compared with bounds in float64."""
    rows = [np.arange(len(X))] * tree.n_nodes
    for node in inner_nodes(tree):
        values = X[rows[node], int(tree.feature[node])].astype(np.float64)
        left = np.logical_or.reduce([(low < values) & (values <= high) for low, high in tree.tests[node]])
        rows[int(tree.left[node])], rows[int(tree.right[node])] = rows[node][left], rows[node][~left]
    return rows


def labels_below(tree, node):
    """Labels of the leaves below a node."""
    if int(tree.feature[node]) < 0:
        return [int(tree.label[node])]
    return labels_below(tree, int(tree.left[node])) + labels_below(tree, int(tree.right[node]))


def above(tree, nodes):
    """All nodes on the paths to some nodes, these left out."""
    found = set()
    for node in nodes:
        while int(tree.parents[node]) >= 0:
            node = int(tree.parents[node])
            found.add(node)
    return found


def is_test(tree, node, cut):
    """Whether a node's test is a cut, whatever the threshold within its gap."""
    feature, low, high = cut
    return int(tree.feature[node]) == feature and low <= float(tree.threshold[node]) < high


def assert_best_first(tree, start, gains, rounding):
    """From the nodes `start` on, it is the leaf that gains most that is split, or one that gains alike."""
    seen = set()

    def in_some_order(open_):
        inner = [node for node in open_ if int(tree.feature[node]) >= 0]
        if open_ in seen or not inner:
            return open_ not in seen
        seen.add(open_)
        least = max(gains[node] for node in open_) - rounding
        ready = [node for node in inner if gains[node] >= least]
        return any(in_some_order(open_ - {node} | {int(tree.left[node]), int(tree.right[node])}) for node in ready)

    assert in_some_order(frozenset(start)), "another leaf gains more"


def nested(tree, leaves=None, node=0):
    """The tree as nested (feature, threshold, left, right), with labels or one of `leaves` at its leaves."""
    feature = int(tree.feature[node])
    if feature < 0:
        return int(tree.label[node]) if leaves is None else leaves[node]
    children = (nested(tree, leaves, int(side[node])) for side in (tree.left, tree.right))
    return (feature, float(tree.threshold[node]), *children)


def parts_of(tree, X):
    """The same, with rows at the leaves."""
    return nested(tree, rows_of(tree, X))


def same_cuts(ours, expected, X=None):
    """The same cuts, whatever the threshold within a gap, and leaves; any cuts will do where X has no points."""
    if not (isinstance(ours, tuple) and isinstance(expected, tuple)):
        return type(ours) is type(expected) and np.array_equal(ours, expected)
    if X is not None and not len(X):
        return True
    feature, low, high, *children = expected
    sides = (None, None) if X is None else (X[X[:, feature] <= low], X[X[:, feature] > low])
    return ours[0] == feature and low <= ours[1] < high and all(map(same_cuts, ours[2:], children, sides))


def shared_nodes(tree, base, node=0, other=0):
    """Nodes of a tree at which another tree, that it begins with, has leaves."""
    if int(base.feature[other]) < 0:
        return [node]
    assert int(tree.feature[node]) == int(base.feature[other])
    assert tree.tests[node] == base.tests[other]
    sides = ((tree.left, base.left), (tree.right, base.right))
    return [leaf for one, two in sides for leaf in shared_nodes(tree, base, int(one[node]), int(two[other]))]


def routed(tree, x, changed=None):
    """The leaf of a point; `changed`: (node, feature, low), another test at one node."""
    node = 0
    while int(tree.feature[node]) >= 0:
        feature = int(tree.feature[node])
        threshold = float(tree.threshold[node])
        if changed is not None and node == changed[0]:
            feature, threshold = changed[1:]
        node = int(tree.left[node] if x[feature] <= threshold else tree.right[node])
    return node


def passed(tree, X):
    """Whether points pass through the nodes of a fitted tree, [n, nodes]: their leaves and those above."""
    node = np.asarray(tree.apply(X))
    parents = np.asarray(tree.parents)
    found = np.zeros((len(node), tree.n_nodes), dtype=bool)
    rows = np.arange(len(node))
    while (inside := node >= 0).any():
        found[rows[inside], node[inside]] = True
        node = np.where(inside, parents[node], -1)
    return found


# --- the package's explainers, and what they have found -----------------------------------------------------

CLASSES = [
    found
    for found in (getattr(trees, name) for name in trees.__all__)
    if isinstance(found, type) and issubclass(found, trees.TreeExplainer)
]
UNGUIDED = [CUBT, CLTree]
WEIGHTLESS = [SpExKNN, SpExGraph]
CENTER_TREES = [IMM, EMN, ExGreedy, ExShallow]
KERNEL_TREES = [KernelIMM, KernelExKMC, KernelExpand]
GUIDED = [*CENTER_TREES, ExKMC, CART, KDTree, SpExClique]

STREAMED = [
    IMM(5),
    IMM(5, max_leaves=9),
    EMN(5),
    ExGreedy(5),
    ExShallow(5),
    ExKMC(5),
    CART(5, max_leaves=12),
    CART(5, leaf_labels="surrogate"),
    SpExClique(5),
]
GROUPED = [
    *STREAMED,
    ExShallow(5, max_leaves=9),
    IMM(5, refine=True),
    KDTree(5, max_leaves=6),
    RandomThresholds(5, n_trials=10, random_state=0),
]
WEIGHTED = [
    *GROUPED,
    IMM(5, metric="l1"),
    RandomThresholds(5, metric="l1", random_state=0),
    SpExClique(5, max_leaves=7, clique_weights="size"),
    CLTree(5),
    CUBT(5, max_leaves=9),
    KernelIMM(5),
    KernelIMM(5, features="taylor", gamma=0.5),
    KernelExKMC(5, kernel="laplace"),
    KernelExpand(5),
]
EXPLAINERS = [*WEIGHTED, *(model(5) for model in WEIGHTLESS)]
FIELDS = ("feature", "threshold", "left", "right", "label", "samples", "mistakes", "class_samples", "bounds")


def assert_same(one, other, rounding=0.0, costs=1e-9, fields=FIELDS):
    """Two fitted explainers have the same tree, and the same centers and costs."""
    for name in fields:
        ours, theirs = (getattr(model.tree_, name).nan_to_num(-9) for model in (one, other))
        assert ours.shape == theirs.shape, name
        np.testing.assert_allclose(ours, theirs, rtol=rounding, atol=rounding, err_msg=name)
    assert rounding or one.tree_.tests == other.tree_.tests
    gammas = [getattr(model, "gamma_", 1.0) for model in (one, other)]
    assert gammas[0] == pytest.approx(gammas[1])
    for name in ("cluster_centers_", "inertia_", "tree_.spread"):
        ours, theirs = (np.asarray(attrgetter(name)(model)) for model in (one, other))
        np.testing.assert_allclose(ours, theirs, rtol=costs, atol=costs and 1e-12, err_msg=name)


def entries(seed, n=100, d=30, density=0.06, kind="eighths"):
    """A sparse matrix with an empty column, entries given twice, and zeros among the entries; and labels."""
    rng = np.random.default_rng(seed)
    row, column = (rng.integers(0, size, int(density * n * d)) for size in (n, d - 1))
    if kind == "normal":
        values = rng.normal(size=len(row))
    else:  # sums of eighths have no rounding
        values = rng.integers(-8, 9, len(row)) / {"eighths": 8, "tenths": 10}[kind]
    labels = rng.integers(0, 5, n)
    column[:5] = 3
    row[:5] = np.arange(5)
    values[:5] = values[5]
    return sp.coo_matrix((values, (row, column)), shape=(n, d)), labels
