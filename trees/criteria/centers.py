"""Points that a cut separates from their centers, and their cost: criteria of IMM, EMN, ExGreedy and ExShallow.

A cut sends the points x of a node, and its reference centers, to the left or to the right. With the distances
D(x, c), the n points of a node and its k centers, of which k_L go left, the scores are

===========  =================================================================================================
mistakes     number of points whose center is on the other side (IMM)
ratio        mistakes / min(k_L, k - k_L) (EMN)
cost         I = sum over x of min over the centers c on the side of x of D(x, c) (ExGreedy)
price        I / I_0 + depth_factor * DExp, where I_0 is the cost with all centers of the node (ExShallow)
===========  =================================================================================================

DExp is the depth that is expected below the cut, WAD, less the fraction of points for which a test above becomes
redundant (:func:`estimated_depth`; ExShallow paper, Algorithms 2 and 3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from neonxc.trees.criteria.criterion import Criterion, Pruning
from neonxc.trees.criteria.sums import Separated, Sum, of_centers, parted_from, points
from neonxc.trees.cuts.growth import Cut, Node
from neonxc.trees.cuts.search import Cuts
from neonxc.trees.fit.problem import Problem


class MistakesBound(Pruning):
    """Bounds of the mistakes of all cuts inside a bin, from the points that all of them separate."""

    criterion: Mistakes

    def bound_inside(self, node: Node, least: Tensor, feature: Tensor) -> Tensor:
        """Least number of mistakes; for EMN, divided by the most centers that the smaller side can have."""
        if not self.criterion.shared:
            return least[0]
        return least[0] / (node.n_centers // 2)


class Mistakes(Criterion):
    """Number of mistakes (IMM), or mistakes divided by the smaller number of centers on a side (EMN).

    A mistake is a point that a cut separates from its center. Every point is counted at most once: points that an
    earlier cut has separated from their center are ignored.

    Parameters
    ----------
    problem : Problem
    shared : bool
        Whether to divide by the smaller number of centers on a side (EMN).

    References
    ----------
    .. [1] M. Moshkovitz, S. Dasgupta, C. Rashtchian, N. Frost, "Explainable k-means and k-medians clustering",
       ICML 2020, Algorithm 1.
    .. [2] H. Esfandiari, V. Mirrokni, S. Narayanan, "Almost tight approximation algorithms for explainable
       clustering", SODA 2022.
    """

    pruning = MistakesBound

    def __init__(self, problem: Problem, shared: bool = False) -> None:
        super().__init__(problem)
        self.shared = shared
        self.separated = Separated(problem)

    def sums(self, node: Node) -> Sequence[Sum]:
        """Number of points that are separated from their centers."""
        return (self.separated.sum(node, node.state),)

    def open(self, node: Node) -> Tensor:
        """The points outside of the node whose centers are in it; none at the root."""
        lost: Tensor = node.rows[:0] if node.state is None else node.state
        return lost

    def split(self, node: Node, cut: Cut, children: tuple[Node, Node]) -> None:
        """Add the points of the other side to those that a child has lost."""
        for child, sibling in zip(children, reversed(children), strict=True):
            if child.n_centers > 1:  # otherwise it is a leaf
                outside = torch.cat([node.state, sibling.rows])
                child.state = of_centers(self.problem, outside, child.centers)
        node.state = None

    def score(self, node: Node, cuts: Cuts) -> Tensor:
        """Number of mistakes, or the ratio of EMN."""
        mistakes = cuts.left[0]
        if not self.shared:
            return mistakes
        centers_right = node.n_centers - cuts.centers_left
        return mistakes / torch.minimum(cuts.centers_left, centers_right)


ROWS = 1 << 18  # number of points that are processed at a time, which limits temporary copies


@dataclass
class NodeCosts:
    """Costs of the points of a node.

    Attributes
    ----------
    distances : Tensor [centers, points]
        Distances of the points to the node's centers.
    total : float
        Cost of the points at their nearest centers.
    extent : float
        Cost of the points at their farthest centers.
    separated : Sum
        Difference between the distances to the second nearest and the nearest center, summed over the points that
        a cut separates from their nearest center.
    scale : float
        Factor by which costs are multiplied in a score.
    used : Tensor [2, d] or None
        Whether the path to the node goes left (right) at a test of the column.
    points : Sum or None
        Number of points.
    """

    distances: Tensor
    total: float
    extent: float
    separated: Sum
    scale: float
    used: Tensor | None = None
    points: Sum | None = None


class CostBound(Pruning):
    """Lower bounds of the induced cost from the two nearest centers of every point.

    Notes
    -----
    Let ``D_1 <= D_2 <= ...`` be the sorted distances of a point to the node's centers. If a cut
    separates the point from its r nearest centers, but not from the next one, its cost becomes

        D_(r+1)  =  D_1 + (D_2 - D_1) + ... + (D_(r+1) - D_r),

    of which no difference is below 0. The first difference is there if r is at least 1, so that

        I  >=  I_0 + sum over the points that are separated from their nearest center of (D_2 - D_1).

    This is the number of mistakes with the weights ``D_2 - D_1``, one histogram for all cuts. The cost itself
    is only computed for the few cuts that the bound does not exclude.

    With weights, ``w D_1``, ``w D_2`` and the costs of a cut are rounded, and not their differences. The bound
    and the cost are then exact sums of one rounded number per point, so that the inequality holds for what is
    computed: rounding keeps the order of ``w D_2`` and a greater cost.
    """

    @property
    def bounds(self) -> Sequence[Callable[[Node, Cuts], Tensor]]:
        """The bound above."""
        return (self.least_cost,)

    def least_cost(self, node: Node, cuts: Cuts) -> Tensor:
        """Cost if points that are separated from their nearest center move to the second nearest."""
        return node.state.total + cuts.left[0]

    def bound_inside(self, node: Node, least: Tensor, feature: Tensor) -> Tensor:
        """The same bound with the points that all cuts inside a bin separate."""
        bound: Tensor = node.state.total + least[0]
        return bound


class InducedCost(Criterion):
    """Cost of the points when each moves to the nearest center on its side of the cut (ExGreedy).

    Parameters
    ----------
    problem : Problem

    References
    ----------
    .. [1] E. Laber, L. Murtinho, "On the price of explainability for some clustering problems", ICML 2021.
    """

    pruning = CostBound

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.by_center = problem.distances.T.contiguous()  # [k, n]

    def open(self, node: Node) -> NodeCosts:
        """Distances of the node's points to its centers, and their current cost."""
        distances = self._distances(node)
        chunks = [_nearest(chunk) for chunk in distances.split(ROWS, dim=1)]
        current, second, farthest, nearest = (torch.cat(parts) for parts in zip(*chunks, strict=True))
        if self.problem.weight is not None:
            costs = torch.stack([current, second, farthest])
            current, second, farthest = self.problem.weighted(costs, node.rows)
        costs_of_node = torch.stack([current.sum(), farthest.sum()])
        if self.problem.sharded:
            costs_of_node = self.problem.reduce(costs_of_node)
        total, extent = costs_of_node.tolist()
        return NodeCosts(distances, total, extent, parted_from(node, nearest, second - current), 1.0)

    def sums(self, node: Node) -> Sequence[Sum]:
        """Additional cost of the points that are separated from their nearest center."""
        return (node.state.separated,)

    def size(self, node: Node) -> float:
        """Cost of the points at their farthest centers."""
        return float(node.state.extent)

    def score(self, node: Node, cuts: Cuts) -> Tensor:
        """Cost with every point at the nearest center on its side.

        Cuts that divide the centers alike share two rows of costs, those of points on the left and on the
        right: the score is the sum of the latter over all points, plus the sum over the left of the difference
        of the two.
        """
        state: NodeCosts = node.state
        sides = cuts.sides()
        partitions, partition = torch.unique(sides.flatten(0, -2), dim=0, return_inverse=True)
        partition = partition.view(sides.shape[:-1])

        costs = _nearest_of(state.distances, torch.cat([partitions, ~partitions]))
        if self.problem.weight is not None:
            costs = self.problem.weighted(costs, node.rows, state.extent)
        on_left, on_right = costs.chunk(2)  # [partitions, points] each
        change = on_left - on_right
        total_on_right = on_right.sum(1)
        if self.problem.sharded:
            total_on_right = self.problem.reduce(total_on_right)
        return total_on_right[partition] + cuts.sum_left(change, partition, True)

    def _distances(self, node: Node) -> Tensor:
        """Distances of the node's points to its centers, [centers, points]."""
        k, n = self.by_center.shape
        has_few_centers = node.n_centers * n < k * len(node.rows)
        distances = self.by_center
        if has_few_centers:
            distances = distances.index_select(0, node.centers)
        if len(node.rows) < n:  # several times faster than `index_select` of columns
            distances = distances.gather(1, node.rows.expand(len(distances), -1))
        if len(distances) > node.n_centers:
            distances = distances.index_select(0, node.centers)
        return distances


def _nearest(distances: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Distances to the nearest, the second nearest and the farthest center, and the nearest center."""
    current, nearest = distances.min(0)
    second = distances.scatter(0, nearest[None], torch.inf).amin(0)
    return current, second, distances.amax(0), nearest


def _nearest_of(distances: Tensor, subsets: Tensor) -> Tensor:
    """Distances [subsets, points] to the nearest center of each subset of centers; infinite for an empty one.

    Parameters
    ----------
    distances : Tensor [centers, points]
    subsets : Tensor [subsets, centers] of bool
    """
    members = subsets.nonzero()[:, 1].split(subsets.sum(1).tolist())
    nearest = distances.new_empty(len(subsets), distances.shape[1])
    for centers, row in zip(members, nearest, strict=True):
        if len(centers):
            torch.amin(distances.index_select(0, centers), 0, out=row)
        else:  # of a cut that is impossible
            row.fill_(torch.inf)
    return nearest


class CostAndDepthBound(CostBound):
    """Lower bounds of the cost ratio and of the depth.

    Notes
    -----
    All points of the node pass the cut, so that a tree below it has an average depth of at least 1
    (of 0 without points). A test above that becomes redundant on the left saves the fraction p of the points,
    one on the right saves 1 - p, which is at most 1 together. The depth is therefore at least

        1 - max(u_L, u_R),

    where u_L (u_R) is 1 if the path to the node goes left (right) at a test of the cut's column, and 0
    otherwise. This bound needs no numbers of points; the estimated depth needs a loop over the levels of a
    tree.
    """

    criterion: CostAndDepth

    @property
    def bounds(self) -> Sequence[Callable[[Node, Cuts], Tensor]]:
        """The bounds of cost and depth; then the bound of the cost with the estimated depth."""
        return self.least_cost_and_least_depth, self.least_cost_and_depth

    def least_cost_and_least_depth(self, node: Node, cuts: Cuts) -> Tensor:
        """Lower bound that needs only the sum of a cut and its column."""
        least_depth = self._least_depth(node, cuts.feature)
        return self._least_ratio(node, cuts) + self.criterion.depth_factor * least_depth

    def least_cost_and_depth(self, node: Node, cuts: Cuts) -> Tensor:
        """Lower bound with the estimated depth."""
        depth = self.criterion.depth(node, cuts)
        return self._least_ratio(node, cuts) + self.criterion.depth_factor * depth

    def score(self, node: Node, cuts: Cuts) -> Tensor:
        """Replace the bound of the cost ratio, which is part of the last bound, by the ratio itself."""
        least_ratio = self._least_ratio(node, cuts)
        return cuts.bound + self.criterion.cost_ratio(node, cuts) - least_ratio

    def bound_inside(self, node: Node, least: Tensor, feature: Tensor) -> Tensor:
        """The first bound for all cuts inside a bin."""
        ratio = super().bound_inside(node, least, feature) * node.state.scale
        return ratio + self.criterion.depth_factor * self._least_depth(node, feature)

    def _least_ratio(self, node: Node, cuts: Cuts) -> Tensor:
        return self.least_cost(node, cuts) * node.state.scale

    def _least_depth(self, node: Node, feature: Tensor) -> Tensor:
        return min(node.n, 1) - node.state.used.amax(0)[feature]


class CostAndDepth(InducedCost):
    """Ratio of the cost after a cut to the cost before it, plus a penalty for depth (ExShallow).

    Parameters
    ----------
    problem : Problem
    depth_factor : float
        Weight of the estimated depth below the cut.

    References
    ----------
    .. [1] E. S. Laber, L. Murtinho, F. Oliveira, "Shallow decision trees for explainable k-means clustering",
       Pattern Recognition, 2023, Eqs. 4 to 7.
    """

    pruning = CostAndDepthBound

    def __init__(self, problem: Problem, depth_factor: float) -> None:
        super().__init__(problem)
        self.depth_factor = depth_factor
        # The depth estimate needs a number of points: weights are divided by the smallest one
        self.unit = 1.0 if problem.weight is None else min(1.0, problem.least(problem.weight))

    def open(self, node: Node) -> NodeCosts:
        """As for the induced cost. If every point lies on a center, costs are used instead of ratios."""
        used = self._used(node)
        state = super().open(node)
        if state.total > node.relative_rounding * state.extent:
            state.scale = 1 / state.total
        state.used = used
        state.points = points(self.problem, node)
        return state

    def sums(self, node: Node) -> Sequence[Sum]:
        """Additional cost of the points that are separated from their nearest center, and number of points."""
        return node.state.separated, node.state.points

    def size(self, node: Node) -> float:
        """Largest possible cost ratio plus the largest possible depth penalty."""
        return float(node.state.scale * node.state.extent + self.depth_factor * node.n_centers)

    def score(self, node: Node, cuts: Cuts) -> Tensor:
        """Cost ratio plus the weighted depth."""
        return self.cost_ratio(node, cuts) + self.depth_factor * self.depth(node, cuts)

    def cost_ratio(self, node: Node, cuts: Cuts) -> Tensor:
        """Induced cost of the cut divided by the node's cost."""
        ratio: Tensor = super().score(node, cuts) * node.state.scale
        return ratio

    def depth(self, node: Node, cuts: Cuts) -> Tensor:
        """Estimated depth below a cut, minus the fraction of points for which a test above becomes redundant.

        A test above is redundant on the left if it tests the same column and the path to the node goes left there,
        because the cut's threshold is the smaller one; on the right if the path goes right (Algorithm 3).
        """
        assert cuts.mass_left is not None
        mass_left = cuts.mass_left.to(torch.float64)
        left = mass_left / max(node.mass, torch.finfo(torch.float64).tiny)
        used_left, used_right = node.state.used[:, cuts.feature]
        saved = used_left * left + used_right * (1 - left)

        # rounded, so that 0.3 / 0.1, which is 2.9999999999999996 in float64, is 3: the estimate rounds up
        n_points = round(node.mass / self.unit, 9)
        points_left = (mass_left / self.unit).round(decimals=9)
        centers_left = cuts.centers_left.expand_as(points_left)
        depth = estimated_depth(points_left.flatten(), centers_left.flatten(), n_points, node.n_centers)
        return depth.view_as(points_left) - saved

    def _used(self, node: Node) -> Tensor:
        """Whether the path to the node goes left (row 0) or right (row 1) at a test of each column, [2, d]."""
        used = torch.zeros(2, self.problem.table.d, dtype=torch.float64)
        for column, is_left in node.sides:
            used[0 if is_left else 1, column] = 1
        used = used.to(self.problem.device)
        if self.problem.mixed is None:
            return used
        return used[:, list(self.problem.canonical_columns)]


def estimated_depth(points_left: Tensor, centers_left: Tensor, points: float, centers: int) -> Tensor:
    """Weighted average depth of a tree all of whose cuts split points and centers in the proportions of one cut.

    Parameters
    ----------
    points_left : Tensor [cuts] of float64
        Number (or weight) of points that a cut sends to the left, out of `points`.
    centers_left : Tensor [cuts] of int64
        Number of centers that it sends to the left, out of `centers`; at least one on either side.

    Returns
    -------
    Tensor [cuts] of float64

    Notes
    -----
    The average depth WAD(N, K) of a tree for N points and K centers, of whose nodes all divide
    points and centers in the fractions p and c of the cut, is

        WAD(N, 1)  =  0,
        WAD(N, K)  =  1 + (N_L WAD(N_L, K_L) + N_R WAD(N_R, K_R)) / N,
        K_L = min(max(ceil(K c), 1), K - 1),   N_L = min(max(ceil(N p), 1), N - 1),

    and the rest goes right. It is the number of points at each inner node, summed over the inner nodes, and
    divided by the number of all points; the nodes are visited level by level, those of all cuts at once. The
    paper's ``K c`` and ``N p`` are rounded up here, and limited so that each side keeps at least one point and
    one center: otherwise the recursion does not end. A single point goes to the side with more centers.

    References
    ----------
    .. [1] E. S. Laber, L. Murtinho, F. Oliveira, "Shallow decision trees for explainable k-means clustering",
       Pattern Recognition, 2023, Algorithm 2.
    """
    if points == 0:
        return torch.zeros_like(points_left)
    total = torch.zeros_like(points_left)  # points at the inner nodes
    cut = torch.arange(len(points_left), device=points_left.device)  # the cut whose tree a node is of
    left_of_cut = torch.stack([points_left, centers_left.to(torch.float64)])  # exact in float64
    # points N and centers K of each node of a level, [2, nodes]; the roots are inner nodes
    nodes = left_of_cut.new_tensor([[points], [centers]]).expand_as(left_of_cut)
    while len(cut):
        total.index_add_(0, cut, nodes[0])
        left = _left(nodes, left_of_cut.index_select(1, cut), points, centers)
        nodes = torch.cat([left, nodes - left], 1)
        inner = ((nodes[0] > 0) & (nodes[1] > 1)).nonzero()[:, 0]
        nodes = nodes.index_select(1, inner)
        cut = torch.cat([cut, cut]).index_select(0, inner)
    return total / points


def _left(nodes: Tensor, left_of_cut: Tensor, points: float, centers: int) -> Tensor:
    """Return the numbers of points and centers [2, nodes] that go left.

    Parameters
    ----------
    nodes : Tensor [2, nodes]
        Points and centers of every node.
    left_of_cut : Tensor [2, nodes]
        Points and centers that the node's cut sends to the left, of `points` and `centers`.
    """
    N, K = nodes
    points_left, centers_left = left_of_cut
    # ceil(K c) in integers, so that it does not depend on rounding
    k_left = (K * centers_left + (centers - 1)).div(centers, rounding_mode="floor")
    k_left = k_left.clamp(min=1).minimum(K - 1)
    n_left = (N * points_left / points).ceil()
    n_left = torch.minimum(n_left.clamp(min=1), N - 1)
    # 2 K_L > K: more centers are on the left
    n_left = torch.where(N <= 1, N * (2 * k_left > K), n_left)
    return torch.stack([n_left, k_left])
