"""Trees that explain kernel clusterings: Kernel IMM, Kernel ExKMC and Kernel Expand."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import KW_ONLY, replace
from typing import Any

import torch
from torch import Tensor

from neonxc.parameters import check_number, check_whole
from neonxc.trees.builder import TreeBuilder
from neonxc.trees.codes import code
from neonxc.trees.criteria.mistakes import Mistakes
from neonxc.trees.estimator import TreeExplainer
from neonxc.trees.growth import Step, best_first, replayed, separate_centers
from neonxc.trees.interval_search import IntervalSearch, cut_of
from neonxc.trees.kernel_distances import KERNELS, feature_space_distances
from neonxc.trees.kernel_features import anchors_of, surrogate_columns
from neonxc.trees.labelling import label_leaves
from neonxc.trees.parameters import explainer
from neonxc.trees.problem import Node, Problem
from neonxc.trees.reference import Reference
from neonxc.trees.search import Search
from neonxc.trees.table import Table

SAMPLE = 1000  # points whose distances a default gamma is made of
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
        Centred.
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

    def chunks(self) -> Any:
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

    def means(self, labels: Tensor, k: int, weight: Tensor | None) -> Tensor:
        """Means of the features of every cluster, [k, d]."""
        member = torch.nn.functional.one_hot(labels, k).to(torch.float64)
        member = member if weight is None else member * weight[:, None]
        sums = torch.cat([self.columns(*chunk) @ member for chunk in self.chunks()])
        return (sums / member.sum(0)).T.contiguous()


@explainer(**DESCRIBED)
class KernelTree(TreeExplainer):
    """What the trees have in common: the kernel, and the tree of Kernel IMM."""

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

    def _reference(self, table: Table, *given: Any) -> Reference:
        found = super()._reference(table, *given)
        if self.gamma is not None:
            self.gamma_ = float(self.gamma)
        elif self.kernel == "gaussian" and found.gamma is not None:
            self.gamma_ = float(found.gamma)
        else:
            self.gamma_ = median_gamma(found.space, self.kernel)
        return found

    def _separated(self, problem: Problem) -> tuple[TreeBuilder, list[Node]]:
        """The tree of Kernel IMM on the raw columns, one leaf per cluster."""
        features = Surrogates(_scaled(problem), self.features, self.kernel, self.gamma_, self.n_features)
        centers = features.means(problem.labels, problem.k, problem.weight)
        table: Any = features
        columns = code(table, centers, self.max_bins)
        surrogate = replace(problem, table=table, columns=columns, centers=centers)
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


def median_gamma(table: Table, kernel: str) -> float:
    """One over the median distance of some of the points, squared for the Gaussian kernel."""
    some = table.columns(0, table.d).T[:: max(1, table.n // SAMPLE)].to(torch.float64).contiguous()
    far = torch.pdist(some, 1.0) if kernel == "laplace" else torch.pdist(some).square()
    far = far[far > 0]
    return 1 / float(far.median()) if len(far) else 1.0


def _scaled(problem: Problem) -> Tensor:
    """Raw columns around their means; behind a scaler, in units of their spread, as the kernel has them."""
    points = problem.table.columns(0, problem.table.d).T.to(torch.float64)
    points = points - points.mean(0)
    if problem.space is problem.table:
        return points
    spread = points.square().mean(0).sqrt()
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
    -0.35 < x[0] <= 0.37
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
            raise ValueError(f"max_leaves needs at least the leaves of the base, {len(leaves)}, got {most}")
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
