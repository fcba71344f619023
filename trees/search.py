"""Search for the best cut of a node, which reuses the parent's sums and skips cuts by bounds of their scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from neonxc.trees.criterion import Criterion, Cuts
from neonxc.trees.cut_sums import CutSums, Cutting
from neonxc.trees.node import Cut, Node
from neonxc.trees.node_columns import (
    CandidateCuts,
    NodeColumns,
    concatenate,
)
from neonxc.trees.problem import Problem
from neonxc.trees.stored_sums import StoredSums, split_sums

SAMPLE = 16  # cuts that are scored completely to get a first upper limit of the best score


@dataclass(frozen=True, order=True)
class Best:
    """The best cut of a node."""

    score: float
    feature: int
    code: int


class Search:
    """Finds the cut of a node with the lowest score.

    Parameters
    ----------
    problem : Problem
    criterion : Criterion
    """

    def __init__(self, problem: Problem, criterion: Criterion) -> None:
        self.problem, self.criterion = problem, criterion
        self._cut_sums = CutSums(problem, criterion)

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
        statistics = self.criterion.statistics(node)
        if node.stored is None:
            node.stored = [
                StoredSums(s, s.elements(node), s.groups(node), {}) if s.kept else None for s in statistics
            ]
        rounding = 64.0 if all(s.whole for s in statistics) else max(64.0, 4.0 * (node.n + 1))
        node.slack = rounding * torch.finfo(torch.float64).eps * self.criterion.size(node)
        only = self.criterion.features(node)
        if only is not None:
            return self._least(node, self._cut_sums.code_by_code(node, statistics, only), None)
        inside: list[tuple[Tensor, Tensor]] = []
        found = self._least(node, self._cut_sums.bin_by_bin(node, statistics, inside), None)
        if inside:
            bound, features = (torch.cat(values) for values in zip(*inside, strict=True))
            promising = features[_may_win(bound, features, found, node.slack)]
            if len(promising):
                found = self._least(node, self._cut_sums.code_by_code(node, statistics, promising), found)
        return found

    def gain(self, node: Node, best: Best) -> float:
        """Gain of a node's best cut."""
        return self.criterion.gain(node, best.score)

    def cut(self, node: Node, best: Best) -> Cut:
        """A node's best cut with its threshold."""
        return self.problem.cut(node, best.feature, best.code)

    def split(
        self, node: Node, cut: Cut, children: tuple[Node, Node], go_on: Sequence[bool] = (True, True)
    ) -> None:
        """Pass the stored sums of a node on to those of its children that will be cut, as told by `go_on`."""
        self.criterion.split(node, cut, children)
        stored, node.stored, node.views = node.stored, None, {}
        if stored is None or not any(go_on):
            return
        left = self.problem.goes_left(node, cut)
        if node.entries is not None:
            entries, node.entries = node.entries, None
            for child, side, used in zip(children, (left, ~left), go_on, strict=True):
                child.entries = entries.subset(side, len(child.rows), child.centers) if used else None
        centers_left = torch.zeros(self.problem.k, dtype=torch.bool, device=left.device)
        if len(node.centers):
            centers_left[node.centers] = cut.centers_left
        parts = [
            (None, None) if own is None else split_sums(self.problem, own, left, centers_left, children)
            for own in stored
        ]
        for child, own, used in zip(children, zip(*parts, strict=True), go_on, strict=True):
            child.stored = list(own) if used else None

    # --- the lowest score ----------------------------------------------------------------------------------

    def _least(self, node: Node, cuttings: Iterator[Cutting], found: Best | None) -> Best | None:
        """The best cut of the given columns, or `found` if that is better."""
        first_stage, *others = self.criterion.stages
        open_: list[CandidateCuts] = []
        for part, cuts, impossible in cuttings:
            score = first_stage(node, cuts).to(torch.float64).masked_fill_(impossible, torch.inf)
            if not others:
                found = _better(found, self._first(part, cuts, score, impossible, found), node.slack)
                continue
            limit = torch.inf if found is None else found.score + node.slack
            row, place = ((score <= limit) & ~impossible).nonzero(as_tuple=True)
            if len(row):
                mass_left = None if cuts.mass_left is None else cuts.mass_left[row, place]
                sums_left = cuts.left[:, row, place]
                open_.append(CandidateCuts(part, row, place, sums_left, cuts.total, mass_left, score[row, place]))
        return self._narrowed(node, open_, found) if open_ else found

    def _first(
        self, part: NodeColumns, cuts: Cuts, score: Tensor, impossible: Tensor, found: Best | None
    ) -> Best | None:
        """The first cut with the lowest score among those of the given columns."""
        node, least = part.node, float(score.min())
        further = self.criterion.further(node, least if found is None else min(found.score, least))
        if further:
            numbers = [self.problem.reduce(own.once(part.view, node.rows, None)) for own in further]
            cuts = part.all_cuts(concatenate([cuts.left, *numbers]), cuts.mass_left, False)[0]
            score = self.criterion.score(node, cuts).masked_fill_(impossible, torch.inf)
            least = float(score.min())
        if not least < torch.inf:
            return None
        at = int((score <= least + node.slack).view(torch.uint8).argmax())
        row, place = at // score.shape[1], at % score.shape[1]
        return Best(least, int(part.features[row]), part.table_code(row, place))

    def _narrowed(self, node: Node, open_: list[CandidateCuts], found: Best | None) -> Best | None:
        """The best cut among candidates of which only bounds of the scores are known."""
        last = len(self.criterion.stages) - 1
        best = torch.inf if found is None else found.score
        if last > 1:
            best = min([best, *(self._sampled(cuts) for cuts in open_)])
        for stage in range(1, last + 1):
            open_ = [cuts.up_to(best + node.slack) for cuts in open_]
            if stage == last:
                likeliest = [cuts[cuts.score.argmin()[None]] for cuts in open_ if len(cuts.row)]
                best = min([best, *(float(self._staged(cuts, last).score) for cuts in likeliest)])
                open_ = [cuts.up_to(best + node.slack) for cuts in open_]
            open_ = [self._staged(cuts, stage) for cuts in open_ if len(cuts.row)]
        for cuts in open_:
            least = float(cuts.score.min())
            if least < torch.inf:
                at = int((cuts.score <= least + node.slack).to(torch.uint8).argmax())
                row, place = int(cuts.row[at]), int(cuts.place[at])
                own = Best(least, int(cuts.part.features[row]), cuts.part.table_code(row, place))
                found = _better(found, own, node.slack)
        return found

    def _sampled(self, cuts: CandidateCuts) -> float:
        """Upper limit of the best score: the lowest score among the most promising cuts of every column."""
        of_row = cuts.score.new_full((len(cuts.part.features),), torch.inf)
        of_row.scatter_reduce_(0, cuts.row, cuts.score, "amin")
        cuts = cuts[(cuts.score == of_row.index_select(0, cuts.row)).nonzero()[:, 0]]
        last = len(self.criterion.stages) - 1
        for stage in range(1, last + 1):
            if stage == last:
                cuts = cuts[cuts.score.topk(min(SAMPLE, len(cuts.row)), largest=False).indices]
            cuts = self._staged(cuts, stage)
        return float(cuts.score.min())

    def _staged(self, cuts: CandidateCuts, stage: int) -> CandidateCuts:
        """The candidates with the bounds (or scores) of a later stage."""
        return replace(cuts, score=self.criterion.stages[stage](cuts.part.node, cuts.cuts()))


def _may_win(bound: Tensor, features: Tensor, found: Best | None, slack: float) -> Tensor:
    """Whether a column may have a better cut than the one found, or an equal one that comes first."""
    if found is None:
        return bound < torch.inf
    equal = (bound <= found.score + slack) & (features <= found.feature)
    return (bound < found.score - slack) | equal


def _better(one: Best | None, other: Best | None, slack: float) -> Best | None:
    """The better of two cuts; ties go to the one in the lower column, then at the lower code."""
    if one is None or other is None:
        return other if one is None else one
    if abs(one.score - other.score) <= slack:
        return min(one, other, key=lambda best: (best.feature, best.code))
    return min(one, other)
