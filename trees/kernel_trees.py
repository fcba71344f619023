"""Trees that explain kernel clusterings: Kernel IMM, Kernel ExKMC and Kernel Expand."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import KW_ONLY, replace
from typing import Any

import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from neonxc.parameters import check_number, check_whole
from neonxc.ranks import ALONE, Ranks
from neonxc.trees import reference as references
from neonxc.trees.builder import TreeBuilder
from neonxc.trees.codes import dense_codes
from neonxc.trees.criteria.mistakes import Mistakes
from neonxc.trees.estimator import TreeExplainer
from neonxc.trees.growth import Step, best_first, replayed, separate_centers
from neonxc.trees.interval_search import IntervalSearch, cut_of
from neonxc.trees.kernel_distances import KERNELS, feature_space_distances
from neonxc.trees.kernel_features import anchors_of, surrogate_columns
from neonxc.trees.labelling import label_leaves
from neonxc.trees.parameters import explainer
from neonxc.trees.preparation import plain
from neonxc.trees.problem import Node, Problem
from neonxc.trees.reference import Reference
from neonxc.trees.search import Search
from neonxc.trees.table import Table
from neonxc.warned import warn

SAMPLE = 1000  # different points whose distances a default gamma is made of
Grown = tuple[TreeBuilder, list[Node], dict[int, int] | None]

DESCRIBED = {
    "reference": """{"kernel_kmeans", "kmeans", "spectral"} or estimator
    The clustering that is explained, unless `fit` gets labels or centers.""",
    "kernel": """{"gaussian", "laplace"}
    ``exp(-gamma |x - y|^2)``, or ``exp(-gamma |x - y|_1)``.""",
    "gamma": """float, optional
    Default: that of the reference if it is a Gaussian kernel k-means, else one over the median distance of points
    (squared for the Gaussian kernel).""",
    "features": """{"anchors", "taylor"}
    The columns that Kernel IMM cuts: kernels of a column's values and of some of them, or the first terms of the
    Gaussian kernel's expansion.""",
    "n_features": """int
    Anchors, or terms, per column.""",
}
EXPANDED = """int, optional
Default: two per cluster."""
BASE = """{"imm", "none"}
The tree that is expanded: that of :class:`KernelIMM`, or a single leaf."""


class Surrogates:
    """A table of the features of a kernel that depend on one column each; made a few columns at a time.

    Parameters
    ----------
    points : Tensor [n, d] of float64
        Centred for Taylor features.
    kind : {"anchors", "taylor"}
    kernel : {"gaussian", "laplace"}
    gamma : float
    size : int
        Features per column, at most.
    """

    dtype = torch.float64

    def __init__(self, points: Tensor, kind: str, kernel: str, gamma: float, size: int) -> None:
        self.points, self.kind, self.kernel, self.gamma = points, kind, kernel, gamma
        self.anchors = anchors_of(points, size) if kind == "anchors" else None
        self.size = size if self.anchors is None else self.anchors.shape[1]
        self.n, self.d = len(points), points.shape[1] * self.size

    @property
    def device(self) -> torch.device:
        """Where the points are."""
        return self.points.device

    def chunks(self, ranks: Ranks = ALONE) -> Any:
        """Ranges of features: those of one column each."""
        return ((first, first + self.size) for first in range(0, self.d, self.size))

    def columns(self, first: int, last: int) -> Tensor:
        """Features `first` to `last`, one per row."""
        raw = slice(first // self.size, (last - 1) // self.size + 1)
        made = surrogate_columns(
            self.points,
            self.kind,
            self.gamma,
            terms=self.size,
            anchors=self.anchors,
            kernel=self.kernel,
            columns=raw,
        )
        return made.T[first - raw.start * self.size : last - raw.start * self.size].contiguous()

    def column(self, feature: int) -> Tensor:
        """One feature, [n]."""
        return self.columns(feature, feature + 1)[0]

    def rows(self, part: slice) -> Tensor:
        """The features of some points, [points, d]."""
        return torch.cat([self.columns(*chunk)[:, part] for chunk in self.chunks()]).T

    def means(self, labels: Tensor, k: int, weight: Tensor | None) -> Tensor:
        """Means of the features of every cluster, [k, d]."""
        member = torch.nn.functional.one_hot(labels, k).to(torch.float64)
        member = member if weight is None else member * weight[:, None]
        sums = torch.cat([self.columns(*chunk) @ member for chunk in self.chunks()])
        return (sums / member.sum(0)).T.contiguous()


@explainer(**DESCRIBED)
class KernelTree(TreeExplainer):
    """What the trees have in common: the kernel, and the tree of Kernel IMM."""

    _alone_because = "kernel distances take all points"
    _has_price = False

    n_clusters: int = 8
    _: KW_ONLY
    reference: Any = "kernel_kmeans"
    kernel: str = "gaussian"
    gamma: float | None = None
    features: str = "anchors"
    n_features: int = 32
    max_bins: int | None = None
    random_state: Any = None

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_whole("n_features", self.n_features)
        if self.kernel not in KERNELS:
            raise ValueError(f"kernel needs one of {', '.join(KERNELS)}, got {self.kernel!r}")
        if self.features not in ("anchors", "taylor"):
            raise ValueError(f'features needs "anchors" or "taylor", got {self.features!r}')
        if self.features == "taylor" and self.kernel != "gaussian":
            raise ValueError(f'features="taylor" are those of the Gaussian kernel, got kernel={self.kernel!r}')
        if self.gamma is not None:
            check_number("gamma", self.gamma)
            if self.gamma == 0:
                raise ValueError("gamma needs a number > 0, got 0")

    def _read(self, X: Any, reset: bool) -> tuple[Any, Any, Any]:
        points, names, give = super()._read(X, reset)
        return (references.tensor_of(points) if hasattr(points, "tocsc") else points), names, give

    def _reference(
        self, table: Table, X: Any, labels: Any, centers: Any, weight: Tensor | None, kept: Tensor | None
    ) -> Reference:
        if not self._given and isinstance(self.reference, str) and self.reference == "kernel_kmeans":
            found = self._kernel_kmeans(table, weight)
        else:
            found = super()._reference(table, X, labels, centers, weight, kept)
        if self.gamma is not None:
            self.gamma_ = float(self.gamma)
        elif self.kernel == "gaussian" and found.gamma is not None:
            self.gamma_ = float(found.gamma)
        else:
            self.gamma_ = median_gamma(found.space, self.kernel, weight)
        return found

    def _kernel_kmeans(self, table: Table, weight: Tensor | None) -> Reference:
        """Kernel k-means, with as many clusters as there are different points at most."""
        k, different = self.n_clusters, len(torch.unique(table.data, dim=0))
        if different < k <= table.n:
            warn(
                f"X has {different} distinct points, fewer than n_clusters={k}: using {different} clusters",
                ConvergenceWarning,
            )
            k = different
        X = plain(table.data)
        return references.from_estimator(table, X, "kernel_kmeans", k, self.metric, weight, self.random_state)

    def _separated(self, problem: Problem) -> tuple[TreeBuilder, list[Node]]:
        """The tree of Kernel IMM on the raw columns, one leaf per cluster."""
        points = _scaled(problem, self.features)
        features = Surrogates(points, self.features, self.kernel, self.gamma_, self.n_features)
        centers = features.means(problem.labels, problem.k, problem.weight)
        table: Any = features
        columns = dense_codes(table, centers, self.max_bins)
        surrogate = replace(problem, table=table, columns=columns, centers=centers, mixed=None)
        builder = TreeBuilder()
        leaves = separate_centers(Search(surrogate, Mistakes(surrogate)), builder)
        if len(leaves) == 1:
            return builder, leaves

        def test(place: int, node: Node) -> Step | None:
            feature, threshold = builder.feature[place], builder.code[place]
            if feature < 0:
                return None
            left = columns.column(feature).index_select(0, node.rows) <= threshold
            centers_left = columns.centers[feature].index_select(0, node.centers) <= threshold
            cut, swapped = cut_of(problem, node, feature // features.size, left, centers_left)
            sides = builder.left[place], builder.right[place]
            return cut, *(sides[::-1] if swapped else sides)

        raw, placed = replayed(problem, 0, test)
        return raw, [leaf for _, leaf in placed]

    def _distances(self, problem: Problem) -> Tensor:
        """Of all points to the clusters' means in feature space, [n, k]."""
        points = problem.space.columns(0, problem.space.d).T
        return feature_space_distances(points, problem.labels, problem.k, self.kernel, self.gamma_, problem.weight)


def median_gamma(table: Table, kernel: str, weight: Tensor | None = None) -> float:
    """One over the median distance of some of the points, squared for the Gaussian kernel."""
    points, place = torch.unique(table.columns(0, table.d).T, dim=0, return_inverse=True)
    some = slice(None, None, max(1, len(points) // SAMPLE))
    points, mass = points[some].to(torch.float64), torch.bincount(place, weight)[some].to(torch.float64)
    far = torch.pdist(points, 1.0) if kernel == "laplace" else torch.pdist(points).square()
    one, other = torch.triu_indices(len(points), len(points), 1, device=table.device)
    far, order = far.sort()
    pairs = (mass[one] * mass[other])[order].masked_fill(far == 0, 0).cumsum(0)
    if not len(far) or not far[-1] > 0:
        return 1.0
    return 1 / float(far[torch.searchsorted(pairs, pairs[-1:] / 2)])


def _scaled(problem: Problem, features: str) -> Tensor:
    """Raw columns; behind a scaler, in units of their spread, as the kernel has them.

    For Taylor features they are shifted to mean 0. Features of anchors need no shift, and its rounding would tell
    apart values that are equally far from an anchor on its two sides.
    """
    points = problem.table.columns(0, problem.table.d).T.to(torch.float64)
    weight = torch.ones_like(points[:, 0]) if problem.weight is None else problem.weight
    share = weight / weight.sum()
    centred = points - share @ points
    points = centred if features == "taylor" else points
    if problem.space is problem.table:
        return points
    spread = (share @ centred.square()).sqrt()
    return points / torch.where(spread > 0, spread, 1)


@explainer()
class KernelIMM(KernelTree):
    """IMM on features of the kernel that depend on one column each, with the clusters' means as centers.

    A threshold on a feature is an interval of its column, or two: rules read "1 < x <= 2".

    Attributes
    ----------
    tree_, labels_, cluster_centers_, inertia_
        As for :class:`IMM`.
    gamma_ : float
        The kernel's.

    References
    ----------
    .. [1] M. Fleissner, L. C. Vankadara, D. Ghoshdastidar, "Explaining kernel clustering via decision trees", ICLR
       2024.

    Examples
    --------
    >>> from sklearn.datasets import make_circles
    >>> from neonxc.trees import KernelIMM
    >>> X, ring = make_circles(400, factor=0.3, noise=0.05, random_state=0)
    >>> tree = KernelIMM(2).fit(X, labels=ring).tree_
    >>> print(tree.rules()[0].text(2))
    x[0] in (-0.35, 0.37]
    """

    def _grow(self, problem: Problem) -> Grown:
        builder, leaves = self._separated(problem)
        return builder, leaves, {leaf.id: int(leaf.centers[0]) for leaf in leaves}


@explainer(max_leaves=EXPANDED, base=BASE)
class ExpandedKernelTree(KernelTree):
    """Growth by intervals from the tree of Kernel IMM, or from a single leaf."""

    _: KW_ONLY
    max_leaves: int | None = None
    base: str = "imm"

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.base not in ("imm", "none"):
            raise ValueError(f'base needs "imm" or "none", got {self.base!r}')

    @abstractmethod
    def _costs(self, problem: Problem) -> Tensor:
        """What a point costs under each label, [n, k]."""

    def _grow(self, problem: Problem) -> Grown:
        builder, leaves = TreeBuilder(), [problem.root()]
        if self.base == "imm":
            builder, leaves = self._separated(problem)
        most = 2 * problem.k if self.max_leaves is None else self.max_leaves
        if most < len(leaves):
            needed = f"at least the number of leaves of base, {len(leaves)}"
            raise ValueError(f"max_leaves must be {needed}, got {most}")
        costs = self._costs(problem)
        priced = replace(problem, given_distances=costs)
        nodes = [leaf.without_centers() for leaf in leaves]
        leaves = best_first(IntervalSearch(priced, costs), builder, nodes, most)
        return builder, leaves, label_leaves(priced, leaves, "surrogate")


@explainer()
class KernelExKMC(ExpandedKernelTree):
    """Expand the tree of Kernel IMM by intervals that lower the cost in feature space most.

    A leaf costs the squared distances of its points to a cluster's mean in the kernel's feature space, for the
    cluster at which that is least.

    Attributes
    ----------
    tree_, labels_, cluster_centers_, inertia_
        As for :class:`IMM`.
    gamma_ : float
        The kernel's.

    References
    ----------
    .. [1] M. Fleissner, L. C. Vankadara, D. Ghoshdastidar, "Explaining kernel clustering via decision trees", ICLR
       2024.
    """

    def _costs(self, problem: Problem) -> Tensor:
        return self._distances(problem)


@explainer()
class KernelExpand(ExpandedKernelTree):
    """Expand the tree of Kernel IMM by intervals that leave the fewest mistakes.

    Attributes
    ----------
    tree_, labels_, cluster_centers_, inertia_
        As for :class:`IMM`.
    gamma_ : float
        The kernel's.

    References
    ----------
    .. [1] M. Fleissner, L. C. Vankadara, D. Ghoshdastidar, "Explaining kernel clustering via decision trees", ICLR
       2024.
    """

    def _costs(self, problem: Problem) -> Tensor:
        return 1 - torch.nn.functional.one_hot(problem.labels, problem.k).to(torch.float64)
