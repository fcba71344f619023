"""The cuts of a node, described by the sums on their left, and the search for the best of them.

Cut (i, b) of some columns sends the points whose bin in column i is at most b to the left. There are two forms:

=====  ====================  ===================================  ==============================================
form   shape [...]           for                                  indexed by
=====  ====================  ===================================  ==============================================
grid   [f, bins]             all cuts of f columns                :meth:`Cuts.at` (columns and bins)
list   [cuts]                candidates that were selected        :meth:`Cuts.take` (positions in the list)
=====  ====================  ===================================  ==============================================

The search skips cuts by lower bounds of their scores. :meth:`Search.best` takes three steps:

1. *Bound.* Every cut between two bins of the histograms gets the first lower bound of its score; if the
   criterion has no bounds, it gets the score.
2. *Score.* Cuts whose bound is not above the lowest score so far are scored, those of the lowest bounds first.
3. *Open.* Inside a bin of several codes there are more cuts. Columns in which one of these may beat the best
   cut so far, by a bound of all of them, are searched again by their codes: steps 1 and 2 for these columns.

Scores that differ by at most ``node.slack`` are ties, which go to the lowest feature, then to the lowest code.

Why no best cut is lost: let s be the exact score of a cut, b <= s its exact bound, s_best the lowest exact score
of all cuts, and e the largest rounding error of a computed bound or score. Every computed score, also the lowest
so far, is at least s_best - e. A cut with s = s_best therefore has

    computed bound  <=  b + e  <=  s_best + e  <=  lowest score so far + 2 e.

It is not skipped if only cuts with a bound above ``lowest + slack`` are, and ``slack >= 2 e``. The slack is
``max(64, 4 (n + 1)) * eps * size``, where eps is 2**-52 and size bounds the terms of a score:

- The sums are exact, because values are rounded to multiples of a unit before they are added
  (:func:`neonxc.trees.cuts.exact_sums.rounded`). A bound adds up the rounded values of the score, or others whose
  order rounding keeps, so that b <= s holds for the rounded values, too.
- An operation on sums, as in ``total + left``, is off by at most ``eps / 2`` of its result. The 64 are 128
  operations, in a bound and a score together, of which each result is at most as large as the size.
- Scores that are equal before values are rounded are ties, and the slack is for ties as well. Each of the n values
  of a score is rounded by at most ``2 * eps * size``, which makes 4 n for two scores; the 4 beside it are 8
  operations. Counts are integers, which are not rounded, so that n does not enter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from neonxc.trees.cuts.growth import cut_above
from neonxc.trees.cuts.histograms import Coarse, Columns

if TYPE_CHECKING:
    from neonxc.trees.criteria.criterion import Criterion
    from neonxc.trees.cuts.growth import Cut, Node
    from neonxc.trees.fit.problem import Problem

FIRST = 16
"""Number of candidates that are scored first: their scores exclude most of the others."""
GROWTH = 128
"""Factor by which more candidates are scored each time."""
MIN_SLACK = 64 * torch.finfo(torch.float64).eps
"""Lowest relative difference between scores that are not ties, as derived above."""


class Best(NamedTuple):
    """The best cut of a node."""

    score: float
    feature: int
    code: int


@dataclass(eq=False)
class Cuts:
    """Cuts of one node: a grid [f, bins] of all cuts of some columns, or a list [cuts] of candidates among them.

    Attributes
    ----------
    columns : Columns
    column, bin : Tensor
        Position of every cut's column in `columns`, and the last bin on its left, which are broadcast to [...].
    feature : Tensor
        Feature of every cut, which is broadcast to [...].
    left : Tensor [m, ...]
        Sums over the points on the left.
    total : Tensor [m]
        The same sums over all points of the node.
    centers_left : Tensor of int64
        Number of the node's centers on the left, which is broadcast to [...].
    mass_left : Tensor [...] or None
        Number (or weight) of points on the left, if one of the sums counts points.
    bound : Tensor [...]
        Lower bounds of the scores, or the scores: whichever was computed last.
    """

    columns: Columns
    column: Tensor
    bin: Tensor
    feature: Tensor
    left: Tensor
    total: Tensor
    centers_left: Tensor
    mass_left: Tensor | None
    bound: Tensor = field(init=False)

    @property
    def right(self) -> Tensor:
        """Sums over the points on the right, [m, ...]."""
        each_cut = (1,) * (self.left.ndim - 1)
        return self.total.view(-1, *each_cut) - self.left

    def sides(self) -> Tensor:
        """Whether each of the node's centers is on the left, [..., centers]."""
        return self.columns.center_bins[self.column] <= self.bin[..., None]

    def gap(self) -> tuple[Tensor, Tensor]:
        """Return the node's values below and above every cut, [...] each; infinite where a side is empty."""
        below, above = self.columns.adjacent_values()
        return below[self.column, self.bin], above[self.column, self.bin]

    def sum_left(self, values: Tensor, which: Tensor, exact: bool) -> Tensor:
        """Sum over the points on the left, [...].

        Parameters
        ----------
        values : Tensor [m, points] of float64
            Values of the node's points.
        which : Tensor [...] of int64
            The row of `values` that a cut sums.
        exact : bool
            Whether sums of the values are exact without rounding them first.
        """
        columns = self.columns
        m = len(values)
        if not exact:
            values = columns.problem.exact(values)
        # Cuts of the same column that sum the same row share their prefix sums.
        pairs, pair = torch.unique(self.column * m + which, return_inverse=True)
        pair_column = pairs.div(m, rounding_mode="floor")
        pair_row = pairs % m
        sums = columns.chosen_channels(columns.node.rows, values, pair_column, pair_row)  # [pairs, bins]
        return sums[pair, self.bin]

    def best(self, slack: float) -> Best | None:
        """Return the first cut whose score is within `slack` of the lowest; None if all scores are infinite."""
        lowest = float(self.bound.min())
        if not lowest < torch.inf:
            return None
        is_best = self.bound <= lowest + slack
        first = int(is_best.view(torch.uint8).argmax())
        if self.bound.ndim == 1:
            column = int(self.column[first])
            bin = int(self.bin[first])
        else:
            column, bin = divmod(first, self.bound.shape[1])
        return Best(lowest, int(self.columns.features[column]), self.columns.code(column, bin))

    def at(self, column: Tensor, bin: Tensor) -> Cuts:
        """Select cuts of a grid, by column and bin."""
        return self._selected(column, bin, (column, bin))

    def take(self, which: Tensor) -> Cuts:
        """Select cuts of a list, by position."""
        return self._selected(self.column[which], self.bin[which], (which,))

    def _selected(self, column: Tensor, bin: Tensor, index: tuple[Tensor, ...]) -> Cuts:
        of_all_sums: tuple[slice | Tensor, ...] = (slice(None), *index)
        mass_left = self.mass_left
        if mass_left is not None:
            mass_left = mass_left[index]
        selected = Cuts(
            self.columns,
            column,
            bin,
            self.columns.features[column],
            self.left[of_all_sums],
            self.total,
            self.centers_left.expand_as(self.bound)[index],
            mass_left,
        )
        selected.bound = self.bound[index]
        return selected


class InsideBound(NamedTuple):
    """Lower bounds [f] of the scores of all cuts inside the bins of some columns."""

    features: Tensor
    bound: Tensor


class Bounded(NamedTuple):
    """The cuts between the bins of a node's columns after the first bound."""

    candidates: list[Cuts]  # cuts that still have to be scored, one list per chunk of columns
    best: Best | None  # the best of the cuts that need no further score
    inside: list[InsideBound]  # bounds of the cuts inside bins of several codes


class Search:
    """Finds the cut of a node with the lowest score.

    Parameters
    ----------
    problem : Problem
    criterion : Criterion

    Attributes
    ----------
    problem : Problem
    criterion : Criterion
    pruning : Pruning
        What the criterion knows about its scores.
    bounds : sequence of callables
        Its lower bounds of scores, cheap ones first.
    bounds_bins : bool
        Whether it also bounds the scores of all cuts inside a bin.
    """

    def __init__(self, problem: Problem, criterion: Criterion) -> None:
        self.problem = problem
        self.criterion = criterion
        self.pruning = criterion.pruning(criterion)
        self.bounds_bins = self.pruning.bounds_bins
        self.bounds = self.pruning.bounds

    # --- interface for growth ------------------------------------------------------------------------------

    def open(self, node: Node) -> None:
        """Compute the criterion's state of a node, once."""
        if not node.opened:
            node.state = self.criterion.open(node)
            node.opened = True

    def bound(self, node: Node) -> float:
        """Return an upper bound of the gain of splitting a node; minus infinity if it stays a leaf."""
        self.open(node)
        return self.pruning.gain_bound(node)

    def best(self, node: Node) -> Best | None:
        """Find the cut with the lowest score; None if there is no cut."""
        self.open(node)
        if not node.n_centers and node.n < 2:
            return None
        features = self.criterion.features(node)
        node.sums = self.pruning.sums(node)
        size = self.criterion.size(node)
        relative_slack = MIN_SLACK
        if not all(each.whole for each in node.sums):
            relative_slack = max(MIN_SLACK, node.relative_rounding)
        node.slack = relative_slack * size

        coarse = features is None and self.bounds_bins
        bounded = self._bound(node, features, coarse, None)
        best = self._score(node, bounded)

        promising = _promising(bounded.inside, best, node.slack)
        if len(promising):
            best = self._score(node, self._bound(node, promising, False, best))
        return best

    def gain(self, node: Node, best: Best) -> float:
        """Return the gain of a node's best cut."""
        return self.criterion.gain(node, best.score)

    def cut(self, node: Node, best: Best) -> Cut:
        """Return a node's best cut with its threshold."""
        return cut_above(self.problem, node, best.feature, best.code)

    def split(
        self, node: Node, cut: Cut, children: tuple[Node, Node], go_on: Sequence[bool] = (True, True)
    ) -> None:
        """Tell the criterion of a cut, and pass entries on to the children that `go_on` says will be cut."""
        self.criterion.split(node, cut, children)
        node.sums = ()
        if node.entries is None:
            return
        is_left = torch.zeros(self.problem.n, dtype=torch.bool)
        is_left[node.rows[cut.left]] = True
        for child, is_in_child, will_be_cut in zip(children, (is_left, ~is_left), go_on, strict=True):
            if will_be_cut:
                child.entries = node.entries.subset(is_in_child, len(child.rows), child.centers)
        node.entries = None

    # --- step 1: bound all cuts ----------------------------------------------------------------------------

    def _bound(self, node: Node, features: Tensor | None, coarse: bool, best: Best | None) -> Bounded:
        """Bound all cuts between bins.

        Parameters
        ----------
        node : Node
        features : Tensor of int64 or None
            The columns. None: all.
        coarse : bool
            Whether columns of many codes have bins of several codes.
        best : Best or None
            The best cut so far, which is kept if no other is better.
        """
        n_sums = sum(each.numbers for each in node.sums)
        has_bounds = len(self.bounds) > 0
        candidates: list[Cuts] = []
        inside: list[InsideBound] = []
        for columns_of_chunk in self.problem.columns.chunks(self.problem, node, n_sums, features, coarse):
            columns = columns_of_chunk()
            sums, bound_inside = self._sums(node, columns)
            if bound_inside is not None:
                inside.append(InsideBound(columns.features, bound_inside))

            cuts, impossible = self._bounded(node, columns, sums)
            if has_bounds:
                candidates.append(_within(cuts, best, node.slack))
            else:  # the bound is the score
                scored = self._with_further_sums(node, cuts, impossible, best)
                best = _better(best, scored.best(node.slack), node.slack)
        return Bounded(candidates, best, inside)

    def _sums(self, node: Node, columns: Columns) -> tuple[list[Tensor], Tensor | None]:
        """Sums on the left of all cuts, and for bins of several codes a bound [f] of the cuts inside them."""
        if not isinstance(columns, Coarse):
            return [each.of(columns) for each in node.sums], None
        left = []
        least_inside = []
        for each in node.sums:
            left_of_cut, least = each.coarse(columns)
            left.append(left_of_cut)
            least_inside.append(least)
        return left, self._bound_inside(node, columns, concatenated(least_inside))

    def _bounded(self, node: Node, columns: Columns, sums: list[Tensor]) -> tuple[Cuts, Tensor]:
        """All cuts of some columns with their first bound, and a mask of those that are impossible."""
        counts = [left for each, left in zip(node.sums, sums, strict=True) if each.counts]
        mass_left = counts[0].sum(1, dtype=counts[0].dtype) if counts else None
        cuts = all_cuts(columns, concatenated(sums), mass_left)
        impossible = empty_sides(cuts)

        if self.bounds:
            first = self.bounds[0]
            repetitions = repeated(cuts)
            if repetitions is not None:  # scores cost much, also of cuts that only repeat another one
                impossible |= repetitions
        else:
            first = self.pruning.score
        cuts.bound = first(node, cuts).to(torch.float64).masked_fill_(impossible, torch.inf)
        return cuts, impossible

    def _bound_inside(self, node: Node, columns: Coarse, least: Tensor) -> Tensor:
        """Lower bound [f] of the scores of all cuts inside bins, from lower bounds [m, f, bins] of their sums."""
        bound = self.pruning.bound_inside(node, least, columns.features[:, None])
        if node.n_centers:  # cuts that separate no centers are impossible
            low, high = columns.center_bins.aminmax(dim=1)
        else:
            low, high = columns.bin_range()
        bins = torch.arange(columns.n_bins, device=bound.device)
        is_outside = (bins < low[:, None]) | (bins > high[:, None])
        lowest = bound.to(torch.float64).masked_fill(is_outside, torch.inf).amin(1)
        return lowest.where(columns.width > 1, torch.inf)

    def _with_further_sums(self, node: Node, cuts: Cuts, impossible: Tensor, best: Best | None) -> Cuts:
        """Score all cuts again with further sums, if a better cut may need these."""
        lowest = float(cuts.bound.min())
        if best is not None:
            lowest = min(best.score, lowest)
        further = self.pruning.further_sums(node, lowest)
        if not further:
            return cuts
        sums = [each.of(cuts.columns).movedim(1, 0) for each in further]
        cuts = all_cuts(cuts.columns, torch.cat([cuts.left, *sums]), cuts.mass_left)
        cuts.bound = self.pruning.score(node, cuts).masked_fill_(impossible, torch.inf)
        return cuts

    # --- step 2: score the candidates ----------------------------------------------------------------------

    def _score(self, node: Node, bounded: Bounded) -> Best | None:
        """Score the candidates that may be the best, and return the best cut."""
        best = bounded.best
        lowest = torch.inf if best is None else best.score
        candidates = [cuts for cuts in bounded.candidates if len(cuts.bound)]
        for cuts in sorted(candidates, key=lambda cuts: float(cuts.bound.min())):
            scores, lowest = self._scores(node, cuts, lowest)
            cuts.bound = scores
            best = _better(best, cuts.best(node.slack), node.slack)
        return best

    def _scores(self, node: Node, cuts: Cuts, lowest: float) -> tuple[Tensor, float]:
        """Score those of a list of cuts that may be the best.

        Parameters
        ----------
        node : Node
        cuts : Cuts
            Candidates with their first bounds.
        lowest : float
            The lowest score so far.

        Returns
        -------
        scores : Tensor [cuts]
            Infinite for cuts that are excluded by a bound.
        lowest : float
        """
        later_bounds = self.bounds[1:]
        score = self.pruning.score
        scores = torch.full_like(cuts.bound, torch.inf)
        waiting = cuts.bound.clone()  # infinite for cuts that had their turn
        size = FIRST
        is_last = False
        while not is_last:
            which = ((waiting <= lowest + node.slack) & (waiting < torch.inf)).nonzero()[:, 0]
            if not len(which):
                break
            is_last = len(which) <= size
            if not is_last:  # few of them will be needed: sorting all would take longer
                which = which[waiting[which].topk(size, largest=False, sorted=False).indices]
                waiting[which] = torch.inf
            size *= GROWTH

            batch = cuts.take(which)
            for bound in later_bounds:
                batch.bound = bound(node, batch)
                batch, which = _remaining(batch, which, lowest + node.slack)
            # The scores of a few exclude most of the others. Without later bounds, the few with the lowest bounds
            # have been scored in the round before
            if later_bounds and len(which) > FIRST:
                few = batch.take(batch.bound.topk(FIRST, largest=False, sorted=False).indices)
                lowest = min(lowest, float(score(node, few).min()))
                batch, which = _remaining(batch, which, lowest + node.slack)
            if len(which):
                scores[which] = score(node, batch)
                lowest = min(lowest, float(scores[which].min()))
        return scores, lowest


def _within(cuts: Cuts, best: Best | None, slack: float) -> Cuts:
    """Select the cuts of a grid whose bounds do not exclude that they are the best."""
    limit = torch.inf if best is None else best.score + slack
    column, bin = ((cuts.bound <= limit) & (cuts.bound < torch.inf)).nonzero(as_tuple=True)
    return cuts.at(column, bin)


def _remaining(cuts: Cuts, which: Tensor, limit: float) -> tuple[Cuts, Tensor]:
    """Select the cuts of a list whose bounds are within a limit, and their entries of `which`."""
    kept = (cuts.bound <= limit).nonzero()[:, 0]
    return cuts.take(kept), which[kept]


def _promising(inside: list[InsideBound], best: Best | None, slack: float) -> Tensor:
    """The columns that may have a cut inside a bin that is better, or equal and of a lower column or code."""
    if not inside:
        return torch.empty(0, dtype=torch.int64)
    features = torch.cat([part.features for part in inside])
    bound = torch.cat([part.bound for part in inside])
    if best is None:
        return features[bound < torch.inf]
    may_tie = (bound <= best.score + slack) & (features <= best.feature)
    return features[(bound < best.score - slack) | may_tie]


def _better(best: Best | None, other: Best | None, slack: float) -> Best | None:
    """Return the better of two cuts; ties go to the lower feature, then to the lower code."""
    if best is None or other is None:
        return best or other
    if abs(best.score - other.score) <= slack:
        return min(best, other, key=lambda cut: (cut.feature, cut.code))
    return min(best, other)


# --- cuts ---


def all_cuts(columns: Columns, left: Tensor, mass_left: Tensor | None) -> Cuts:
    """Describe all cuts of some columns [f, bins] by the sums on their left."""
    node = columns.node
    _, f, n_bins = left.shape
    if node.n_centers:  # a histogram of the centers, and its prefix sums
        centers_left = node.centers.new_zeros(f, n_bins)
        centers_left.scatter_add_(1, columns.center_bins, torch.ones_like(columns.center_bins)).cumsum_(1)
    else:
        centers_left = node.centers.new_zeros(1, 1)
    column = torch.arange(f, device=left.device)[:, None]
    bin = torch.arange(n_bins, device=left.device)
    total = left[:, 0, -1]  # left of the last cut of any column
    return Cuts(columns, column, bin, columns.features[:, None], left, total, centers_left, mass_left)


def empty_sides(cuts: Cuts) -> Tensor:
    """Mask the cuts [f, bins] that leave a side empty: without centers if the node has some, or without points."""
    n_centers = cuts.columns.node.n_centers
    if n_centers:
        return (cuts.centers_left == 0) | (cuts.centers_left == n_centers)
    if cuts.mass_left is not None:
        return (cuts.mass_left <= 0) | (cuts.mass_left >= cuts.mass_left[:, -1:])
    low, high = cuts.columns.bin_range()
    return (cuts.bin < low[:, None]) | (cuts.bin >= high[:, None])


def repeated(cuts: Cuts) -> Tensor | None:
    """Mask the cuts [f, bins] that divide points and centers like the cut before; None if that is not known."""
    node = cuts.columns.node
    if not node.n_centers or cuts.mass_left is None:
        return None
    first = torch.zeros_like(cuts.mass_left[:, :1])
    is_new = cuts.mass_left.diff(dim=1, prepend=first) > 0
    return ~is_new.scatter_(1, cuts.columns.center_bins, True)


def concatenated(sums: Sequence[Tensor]) -> Tensor:
    """Concatenate sums [f, m, bins] to [m, f, bins]."""
    if len(sums) == 1:
        return sums[0].movedim(1, 0)
    return torch.cat([each.movedim(1, 0).to(torch.float64) for each in sums])
