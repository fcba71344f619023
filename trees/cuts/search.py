"""Search for the best cut of a node, which skips cuts by bounds of their scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from neonxc.trees.cuts.columns import Columns
from neonxc.trees.cuts.cuts import Best, Cuts, all_cuts, concatenated
from neonxc.trees.cuts.nodes import cut_above

if TYPE_CHECKING:
    from neonxc.trees.criteria.criterion import Criterion
    from neonxc.trees.cuts.nodes import Cut, Node
    from neonxc.trees.fit.problem import Problem

SAMPLE, GROWTH = 16, 128  # number of cuts that are scored first, and how much more are scored next
Cutting = tuple[Cuts, Tensor]
"""All cuts of some columns, and a mask of the cuts that leave a side empty."""


class Search:
    """Finds the cut of a node with the lowest score.

    Parameters
    ----------
    problem : Problem
    criterion : Criterion
    """

    def __init__(self, problem: Problem, criterion: Criterion) -> None:
        self.problem, self.criterion = problem, criterion

    # --- interface for growth ------------------------------------------------------------------------------

    def open(self, node: Node) -> None:
        """Compute the criterion's state of a node, once."""
        if not node.opened:
            node.state, node.opened = self.criterion.open(node), True

    def bound(self, node: Node) -> float:
        """Upper bound of the gain of splitting a node; minus infinity if it stays a leaf."""
        self.open(node)
        return self.criterion.bound(node)

    def best(self, node: Node) -> Best | None:
        """The cut with the lowest score; ties go to the lowest column, then code. None if there is no cut."""
        self.open(node)
        if not len(node.centers) and node.n < 2:
            return None
        node.sums = self.criterion.sums(node)
        rounding = 64.0 if all(own.whole for own in node.sums) else max(64.0, 4.0 * (node.n + 1))
        node.slack = rounding * torch.finfo(torch.float64).eps * self.criterion.size(node)
        only = self.criterion.features(node)
        if only is not None:
            return self._least(node, self._cuttings(node, only), None)
        inside: list[tuple[Tensor, Tensor]] = []
        found = self._least(node, self._cuttings(node, None, inside if self.criterion.coarse else None), None)
        if inside:
            bound, features = (torch.cat(values) for values in zip(*inside, strict=True))
            promising = features[_may_win(bound, features, found, node.slack)]
            if len(promising):
                found = self._least(node, self._cuttings(node, promising), found)
        return found

    def gain(self, node: Node, best: Best) -> float:
        """Gain of a node's best cut."""
        return self.criterion.gain(node, best.score)

    def cut(self, node: Node, best: Best) -> Cut:
        """A node's best cut with its threshold."""
        return cut_above(self.problem, node, best.feature, best.code)

    def split(
        self, node: Node, cut: Cut, children: tuple[Node, Node], go_on: Sequence[bool] = (True, True)
    ) -> None:
        """Tell the criterion of a cut, and pass entries on to the children that `go_on` says will be cut."""
        self.criterion.split(node, cut, children)
        node.sums = ()
        if node.entries is not None:
            left = torch.zeros(self.problem.n, dtype=torch.bool)
            left[node.rows[cut.left]] = True
            for child, side, used in zip(children, (left, ~left), go_on, strict=True):
                child.entries = node.entries.subset(side, len(child.rows), child.centers) if used else None
            node.entries = None

    # --- sums of the cuts ----------------------------------------------------------------------------------

    def _cuttings(
        self, node: Node, features: Tensor | None, inside: list[tuple[Tensor, Tensor]] | None = None
    ) -> Iterator[Cutting]:
        """Cuts between all codes of the given columns, or of all columns, None.

        With `inside`, columns of many codes are cut between coarse codes, and bounds of the scores of the cuts
        inside coarse codes are added to it.
        """
        numbers = sum(own.numbers for own in node.sums)
        for part in self.problem.columns.parts(self.problem, node, numbers, features, inside is not None):
            left: Sequence[Tensor]
            if part.width is None:
                left = [own.of(part) for own in node.sums]
            else:
                assert inside is not None
                left, least = zip(*(own.coarse(part) for own in node.sums), strict=True)
                inside.append((self._bound_inside(part, concatenated(least)), part.features))
            pairs = zip(node.sums, left, strict=True)
            mass_left = next((found.sum(1, dtype=found.dtype) for own, found in pairs if own.counts), None)
            yield all_cuts(part, concatenated(left), mass_left, len(self.criterion.stages) > 1)

    def _bound_inside(self, part: Columns, least: Tensor) -> Tensor:
        """Lower bound of the scores of all cuts inside coarse codes, for every column."""
        bound = self.criterion.within(part.node, least, part.features[:, None])
        assert bound is not None
        assert part.width is not None
        if len(part.node.centers):
            low, high = part.centers_of(part.node.centers).aminmax(dim=1)
        else:
            low, high = part.ends()
        place = torch.arange(part.places, device=bound.device)
        outside = (place < low[:, None]) | (place > high[:, None])
        return bound.to(torch.float64).masked_fill(outside, torch.inf).amin(1).where(part.width > 1, torch.inf)

    # --- the lowest score ----------------------------------------------------------------------------------

    def _least(self, node: Node, cuttings: Iterator[Cutting], found: Best | None) -> Best | None:
        """The best cut of the given columns, or `found` if that is better."""
        first_stage, *others = self.criterion.stages
        open_: list[Cuts] = []
        for cuts, impossible in cuttings:
            bound = first_stage(node, cuts).to(torch.float64).masked_fill_(impossible, torch.inf)
            cuts = replace(cuts, bound=bound)
            if others:
                limit = torch.inf if found is None else found.score + node.slack
                open_.append(cuts[((bound <= limit) & ~impossible).nonzero(as_tuple=True)])
            else:
                found = self._better(node, found, self._completed(cuts, impossible, found))
        return self._narrowed(node, [cuts for cuts in open_ if len(cuts.row)], found) if others else found

    def _completed(self, cuts: Cuts, impossible: Tensor, found: Best | None) -> Cuts:
        """All cuts of some columns, with scores from further sums, if a better cut may need these."""
        node, least = cuts.columns.node, float(cuts.bound.min())
        further = self.criterion.further(node, least if found is None else min(found.score, least))
        if not further:
            return cuts
        left = torch.cat([cuts.left, *(own.of(cuts.columns).movedim(1, 0) for own in further)])
        cuts = all_cuts(cuts.columns, left, cuts.mass_left, False)[0]
        return replace(cuts, bound=self.criterion.score(node, cuts).masked_fill_(impossible, torch.inf))

    def _narrowed(self, node: Node, open_: list[Cuts], found: Best | None) -> Best | None:
        """The best cut among candidates with bounds of their scores, in whose order they are scored."""
        *bounds, score = self.criterion.stages[1:]
        best = torch.inf if found is None else found.score
        for cuts in sorted(open_, key=lambda cuts: float(cuts.bound.min())):
            left, size, scores, more = cuts.bound.clone(), SAMPLE, torch.full_like(cuts.bound, torch.inf), True
            while more:
                which = ((left <= best + node.slack) & (left < torch.inf)).nonzero()[:, 0]
                more = len(which) > size
                if more:  # few of them are needed, and sorting all would take longer
                    which = which[left[which].topk(size, largest=False, sorted=False).indices]
                    left[which] = torch.inf
                elif not len(which):
                    break
                size *= GROWTH
                some = cuts[which,]
                for bound in bounds:
                    some = replace(some, bound=bound(node, some))
                    near = (some.bound <= best + node.slack).nonzero()[:, 0]
                    some, which = some[near,], which[near]
                if len(which) > SAMPLE:  # the scores of a few exclude most of the others
                    few = some.bound.topk(SAMPLE, largest=False, sorted=False).indices
                    best = min(best, float(score(node, some[few,]).min()))
                    near = (some.bound <= best + node.slack).nonzero()[:, 0]
                    some, which = some[near,], which[near]
                if len(which):
                    scores[which] = score(node, some)
                    best = min(best, float(scores[which].min()))
            found = self._better(node, found, replace(cuts, bound=scores))
        return found

    def _better(self, node: Node, found: Best | None, cuts: Cuts) -> Best | None:
        """The better of a cut and the first of the best cuts; ties go to the lower column, then the lower code."""
        other = cuts.best(node.slack)
        if found is None or other is None:
            return found or other
        if abs(found.score - other.score) <= node.slack:
            return min(found, other, key=lambda one: (one.feature, one.code))
        return min(found, other)


def _may_win(bound: Tensor, features: Tensor, found: Best | None, slack: float) -> Tensor:
    """Whether a column may have a better cut than the one found, or an equal one that comes first."""
    if found is None:
        return bound < torch.inf
    equal = (bound <= found.score + slack) & (features <= found.feature)
    return (bound < found.score - slack) | equal
