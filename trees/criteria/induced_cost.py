"""What a cut costs if every point goes to the nearest center left on its side: ExGreedy and ExShallow."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from neonxc.trees import sweep
from neonxc.trees.depth import estimated_depth, two_levels
from neonxc.trees.problem import Cut, Node, Problem


@dataclass
class Cuts:
    """All cuts of a node that separate centers, with a lower bound of their cost.

    Attributes
    ----------
    feature, code : Tensor [cuts]
        `code` in the node's own codes.
    bound : Tensor [cuts]
        At most the induced cost.
    centers_left, points_left : Tensor [cuts]
    """

    feature: Tensor
    code: Tensor
    bound: Tensor
    centers_left: Tensor
    points_left: Tensor

    def __getitem__(self, which: Tensor) -> Cuts:
        """Some of the cuts, by their places."""
        return Cuts(*(values.index_select(0, which) for values in vars(self).values()))


@dataclass
class Memory:
    """Points by code, [d, bins], and the codes of the node's points where they are at hand."""

    counts: Tensor
    codes: Tensor | None = None


class InducedCost:
    """The least induced cost (ExGreedy), or its ratio to the current cost plus an estimate of depth (ExShallow).

    Parameters
    ----------
    problem : Problem
    depth_factor : float or None
        Cost ratio that one test less is worth; None: ExGreedy, the cost alone.

    Notes
    -----
    With a point's distances to the node's centers sorted, ``D_1 <= D_2 <= ...``, a cut that leaves it none of its
    r nearest centers costs it at least ``D_(r+1) - D_1``. For r = 1 that is a weighted count of points cut from
    their nearest center: one sweep bounds the cost of all cuts from below, and the few cuts whose bound is not
    above the best cost found are computed in full.

    References
    ----------
    .. [1] E. Laber, L. Murtinho, "On the price of explainability for some clustering problems", ICML 2021.
    .. [2] E. S. Laber, L. Murtinho, F. Oliveira, "Shallow decision trees for explainable k-means clustering",
       Pattern Recognition, 2023, Eqs. 4 to 7.
    """

    def __init__(self, problem: Problem, depth_factor: float | None = None) -> None:
        self.problem = problem
        self.columns = problem.columns
        self.depth_factor = depth_factor
        self.by_center = problem.distances.T.contiguous()
        # The estimate of depth counts whole points: the lightest one is the unit
        self.unit = 1.0 if problem.weight is None else min(1.0, float(problem.weight.min()))

    def cut(self, node: Node) -> Cut | None:
        """The best cut that separates two of the node's centers; None if there is none."""
        codes, centers, original = self._codes(node)
        distances, weight = self._distances(node), self.problem.weights(node.rows)
        current, nearest = distances.min(0)
        gap = distances.scatter(0, nearest[None], torch.inf).amin(0) - current
        if weight is not None:
            gap, current = gap * weight, current * weight
        total = float(current.sum())
        # Of n signed terms that add up to at most `extent` in size, any order of summing errs by less than this
        farthest = distances.amax(0)
        extent = float((farthest if weight is None else farthest * weight).sum())
        slack = 4 * (len(node.rows) + 1) * torch.finfo(torch.float64).eps * extent
        if self.depth_factor is not None and node.memory is None and self.columns.separated:
            node.memory = Memory(self._points(codes, weight))
        counts = None if node.memory is None else node.memory.counts
        cuts = self._bounded(codes, centers, nearest, gap, total, weight, counts)
        if not len(cuts.feature):
            return None
        if self.depth_factor is None:
            scale, extra = 1.0, torch.zeros_like(cuts.bound)
        else:
            scale = 1 / total if total > slack else 1.0
            cuts, extra = self._with_depth(node, cuts, codes, centers, distances, weight, scale, slack)
        first = (cuts.bound * scale + extra).argmin()[None]
        known = self._cost(cuts[first], codes, centers, distances, weight) * scale + extra[first]
        open_ = (cuts.bound * scale + extra <= _allowed(known, slack * scale)).nonzero()[:, 0]
        cuts, extra = cuts[open_], extra[open_]
        score = self._cost(cuts, codes, centers, distances, weight) * scale + extra
        best = int((score <= _allowed(score.min(), slack * scale)).to(torch.uint8).argmax())
        feature, code = int(cuts.feature[best]), int(cuts.code[best])
        return self.problem.cut(node, feature, code if original is None else int(original[feature, code]))

    def split(self, node: Node, cut: Cut, children: tuple[Node, Node]) -> None:
        """Count the smaller child by codes; the larger one has the rest."""
        if node.memory is not None and any(len(child.centers) > 1 for child in children):
            small, large = sorted(children, key=lambda child: len(child.rows))
            codes = self.columns.at(small.rows)
            counts = self._points(codes, self.problem.weights(small.rows))
            small.memory = Memory(counts, codes if len(small.centers) > 1 else None)
            large.memory = Memory(node.memory.counts - counts)
        node.memory = None

    def _points(self, codes: Tensor, weight: Tensor | None) -> Tensor:
        """Points by code, [d, bins]."""
        alike = torch.zeros(codes.shape[1], dtype=torch.int64, device=codes.device)
        return sweep.histogram(codes, self.columns.bins, alike, 1, weight)[:, 0]

    def _distances(self, node: Node) -> Tensor:
        """Distances of the node's points to its centers, [centers, points]."""
        k, n = self.by_center.shape
        if len(node.centers) * n < k * len(node.rows):
            return self.by_center.index_select(0, node.centers).index_select(1, node.rows)
        return self.by_center.index_select(1, node.rows).index_select(0, node.centers)

    def _codes(self, node: Node) -> tuple[Tensor, Tensor, Tensor | None]:
        known = None if node.memory is None else node.memory.codes
        codes = self.columns.at(node.rows) if known is None else known
        centers = self.columns.centers[:, node.centers]
        return (codes, centers, None) if self.columns.separated else sweep.compressed(codes, centers)

    def _bounded(
        self,
        codes: Tensor,
        centers: Tensor,
        nearest: Tensor,
        gap: Tensor,
        total: float,
        weight: Tensor | None,
        counts: Tensor | None,
    ) -> Cuts:
        """All cuts that separate centers."""
        bins = sweep.number_of_bins(codes, centers)
        k = centers.shape[1]
        by_label = k * bins <= len(nearest)  # else the histogram would be larger than the node
        step = max(1, sweep.CACHED // max(1, k * bins if by_label else len(nearest)))
        parts = []
        for first in range(0, len(codes), step):
            part, own = codes[first : first + step], centers[first : first + step]
            if by_label:
                bound = sweep.separated(sweep.histogram(part, bins, nearest, k, gap), own)
            else:
                bound = sweep.separated_directly(part, bins, nearest, own, gap)
            left = sweep.centers_left(own, bins)
            apart = (left > 0) & (left < k)
            points = torch.zeros_like(bound)
            if self.depth_factor is not None:
                if counts is None:
                    own_counts = sweep.histogram(part, bins, torch.zeros_like(nearest), 1, weight)[:, 0]
                else:
                    own_counts = counts[first : first + step, :bins]
                points = own_counts.to(torch.float64).cumsum(1)
                # Of cuts between the same points and centers the first one will do
                apart &= (own_counts > 0).scatter_(1, own, True)
            feature, code = apart.nonzero(as_tuple=True)
            place = (feature, code)
            parts.append(Cuts(feature + first, code, total + bound[place], left[place], points[place]))
        return Cuts(*(torch.cat(values) for values in zip(*(vars(p).values() for p in parts), strict=True)))

    def _with_depth(
        self,
        node: Node,
        cuts: Cuts,
        codes: Tensor,
        centers: Tensor,
        distances: Tensor,
        weight: Tensor | None,
        scale: float,
        slack: float,
    ) -> tuple[Cuts, Tensor]:
        """The cuts that may be the best, and their depth terms; two levels of the estimate bound the whole."""
        assert self.depth_factor is not None
        k, points = len(node.centers), float(len(node.rows) if weight is None else weight.sum())
        share = cuts.points_left / max(points, torch.finfo(torch.float64).tiny)
        saved = self._saved(node, cuts.feature, share)
        whole = round(points / self.unit, 9)
        cuts.points_left = (cuts.points_left / self.unit).round(decimals=9)
        least = two_levels(cuts.points_left, cuts.centers_left, whole, k)
        floor = cuts.bound * scale + self.depth_factor * (least - saved)
        # A good cut that leaves few others open: of every column's likeliest one, those of the least full bound
        of_column = floor.new_full((len(codes),), torch.inf).scatter_reduce_(0, cuts.feature, floor, "amin")
        few = (floor == of_column.index_select(0, cuts.feature)).nonzero()[:, 0]
        depth = estimated_depth(cuts.points_left[few], cuts.centers_left[few], whole, k) - saved[few]
        best = (cuts.bound[few] * scale + self.depth_factor * depth).topk(min(16, len(few)), largest=False).indices
        few, depth = few[best], depth[best]
        known = self._cost(cuts[few], codes, centers, distances, weight) * scale + self.depth_factor * depth
        open_ = (floor <= _allowed(known.min(), slack * scale)).nonzero()[:, 0]
        cuts, saved = cuts[open_], saved[open_]
        depth = estimated_depth(cuts.points_left, cuts.centers_left, whole, k) - saved
        return cuts, self.depth_factor * depth

    def _saved(self, node: Node, feature: Tensor, share_left: Tensor) -> Tensor:
        """Share of points for which a cut makes an earlier test redundant."""
        used = torch.zeros(2, self.problem.table.d, dtype=torch.float64, device=feature.device)
        for column, left in node.sides:
            used[0 if left else 1, column] = 1
        return used[0, feature] * share_left + used[1, feature] * (1 - share_left)

    def _cost(
        self, cuts: Cuts, codes: Tensor, centers: Tensor, distances: Tensor, weight: Tensor | None
    ) -> Tensor:
        """Induced cost in full, [cuts]. Cuts of a column that part the centers alike share the work."""
        k, n = distances.shape
        group, member = torch.unique(cuts.feature * k + cuts.centers_left, return_inverse=True)
        feature = group // k
        ranked = centers[feature].sort(dim=1).values
        left = centers[feature] <= ranked.gather(1, (group % k - 1)[:, None])  # up to the greatest one on the left
        parts, part_of = torch.unique(left, dim=0, return_inverse=True)
        on_right = torch.stack([distances[~part].amin(0) for part in parts])
        change = torch.stack([distances[part].amin(0) for part in parts]) - on_right
        if weight is not None:
            on_right, change = on_right * weight, change * weight
        cost = on_right.sum(1)[part_of][member]
        bins = sweep.number_of_bins(codes, centers)
        step = max(1, sweep.BUDGET // 4 // max(n, bins))
        for first in range(0, len(group), step):
            some = slice(first, first + step)
            place = codes.index_select(0, feature[some]).to(torch.int64)
            sums = torch.zeros(len(place), bins, dtype=torch.float64, device=codes.device)
            sums.scatter_add_(1, place, change.index_select(0, part_of[some])).cumsum_(1)
            here = ((member >= first) & (member < first + step)).nonzero()[:, 0]
            cost[here] += sums[member[here] - first, cuts.code[here]]
        return cost


def _allowed(score: Tensor, slack: float) -> Tensor:
    """What equals a score but for rounding, in the sums (`slack`) and in what is made of them."""
    return score + slack + 16 * torch.finfo(score.dtype).eps * score.abs()
