"""The search for the best cut of a node: sums of all cuts, kept from parent to child, and bounds that spare most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

import neonxc.trees.sums as sums
from neonxc.trees.codes import Block
from neonxc.trees.criterion import Criterion, Cuts
from neonxc.trees.problem import Cut, Node, Problem
from neonxc.trees.statistics import Statistic, View

SMALL, ROOM = 1 << 17, 3  # entries of kept sums: always few enough, and for every code of the table
SAMPLE = 16  # cuts that are scored in full for a first idea of the best score


@dataclass
class Kept:
    """A statistic's sums of a node, from which its children's are told.

    Attributes
    ----------
    statistic : Statistic
    elements : Tensor
        Points or edges that are added up.
    groups : Tensor or None
        What is summed apart: rows of `terms`.
    terms : dict of int to Tensor [f, groups, bins]
        By block of columns.
    """

    statistic: Statistic
    elements: Tensor
    groups: Tensor | None
    terms: dict[int, Tensor]

    def of(self, elements: Tensor, groups: Tensor | None) -> Kept:
        """The same statistic, of a child."""
        return Kept(self.statistic, elements, groups, {})


@dataclass(frozen=True, order=True)
class Best:
    """A node's best cut."""

    score: float
    feature: int
    code: int


@dataclass(frozen=True)
class _Part:
    """Columns of a node whose cuts are looked at together."""

    features: Tensor  # [f]
    view: View
    original: Tensor | None  # [f, bins]: codes of the table, where they have been renumbered
    width: Tensor  # [f]: codes per bin

    def some(self, part: slice) -> _Part:
        """A range of the columns."""
        original = None if self.original is None else self.original[part]
        return _Part(self.features[part], self.view.some(part), original, self.width[part])

    def code(self, row: int, place: int) -> int:
        """A cut of one of the columns as a cut between codes of the table."""
        if self.original is not None:
            return int(self.original[row, place])
        return int(self.width[row]) * (place + 1) - 1 if self.view.coarse else place


@dataclass(frozen=True)
class _Open:
    """Cuts of a part that may still be the best: their places, and bounds of their scores."""

    part: _Part
    row: Tensor
    place: Tensor
    left: Tensor  # [m, cuts]
    total: Tensor  # [m]
    mass_left: Tensor | None
    score: Tensor

    def __getitem__(self, which: Tensor) -> _Open:
        row, place, score = (values.index_select(0, which) for values in (self.row, self.place, self.score))
        mass_left = None if self.mass_left is None else self.mass_left.index_select(0, which)
        return _Open(self.part, row, place, self.left.index_select(1, which), self.total, mass_left, score)

    def up_to(self, limit: float) -> _Open:
        """The cuts whose score may be so low."""
        return self[(self.score <= limit).nonzero()[:, 0]]


class Search:
    """Finds the best cuts of nodes by a criterion.

    Parameters
    ----------
    problem : Problem
    criterion : Criterion
    """

    def __init__(self, problem: Problem, criterion: Criterion) -> None:
        self.problem, self.criterion = problem, criterion

    # --- what growth asks for ------------------------------------------------------------------------------

    def best(self, node: Node) -> Best | None:
        """The cut of least score; of equals that in the lowest column, there at the lowest code. None: no cut."""
        self.open(node)
        if not len(node.centers) and node.n < 2:
            return None
        statistics = self.criterion.statistics(node)
        if node.kept is None:
            node.kept = [Kept(s, s.elements(node), s.groups(node), {}) if s.kept else None for s in statistics]
        rounding = 64.0 if all(s.whole for s in statistics) else max(64.0, 4.0 * (node.n + 1))
        self.slack = rounding * torch.finfo(torch.float64).eps * self.criterion.size(node)
        only = self.criterion.features(node)
        if only is not None:
            return self._least(node, self._exact(node, statistics, only), None)
        inside: list[tuple[Tensor, Tensor]] = []
        found = self._least(node, self._parts(node, statistics, inside), None)
        if inside:
            bound, features = (torch.cat(values) for values in zip(*inside, strict=True))
            chance = features[self._may_win(bound, features, found)]
            if len(chance):
                found = self._least(node, self._exact(node, statistics, chance), found)
        return found

    def bound(self, node: Node) -> float:
        """At most the gain of splitting a node; minus infinity where it stays a leaf."""
        self.open(node)
        return self.criterion.bound(node)

    def gain(self, node: Node, best: Best) -> float:
        """What its best cut gains."""
        return self.criterion.gain(node, best.score)

    def cut(self, node: Node, best: Best) -> Cut:
        """Its best cut, with a threshold."""
        return self.problem.cut(node, best.feature, best.code)

    def open(self, node: Node) -> None:
        """Make what the criterion keeps for a node."""
        if not node.opened:
            node.state, node.opened = self.criterion.open(node), True

    def split(
        self, node: Node, cut: Cut, children: tuple[Node, Node], go_on: Sequence[bool] = (True, True)
    ) -> None:
        """Hand the sums of a node on to those of its children that will be cut."""
        self.criterion.split(node, cut, children)
        kept, node.kept, node.views = node.kept, None, {}
        if kept is None or not any(go_on):
            return
        left = self.problem.goes_left(node, cut)
        centers_left = torch.zeros(self.problem.k, dtype=torch.bool, device=left.device)
        if len(node.centers):
            centers_left[node.centers] = cut.centers_left
        of_child: tuple[list[Kept | None], list[Kept | None]] = ([], [])
        for own in kept:
            divided = (None, None) if own is None else self._divided(own, left, centers_left, children)
            for parts, part in zip(of_child, divided, strict=True):
                parts.append(part)
        for child, parts, used in zip(children, of_child, go_on, strict=True):
            child.kept = parts if used else None

    # --- sums ----------------------------------------------------------------------------------------------

    def _divided(
        self, kept: Kept, left: Tensor, centers_left: Tensor, children: tuple[Node, Node]
    ) -> tuple[Kept, Kept]:
        """What the children keep: only the smaller one, and what neither has, is added up."""
        statistic = kept.statistic
        *own, gone = statistic.divided(kept.elements, left, centers_left, children)
        if statistic.by_center:
            assert kept.groups is not None
            side = centers_left.index_select(0, kept.groups)
            places = [side.nonzero()[:, 0], (~side).nonzero()[:, 0]]
            groups = [kept.groups.index_select(0, place) for place in places]
            parts = kept.of(own[0], groups[0]), kept.of(own[1], groups[1])
            for number, terms in kept.terms.items():
                if gone is not None and (len(gone) or self.problem.sharded):
                    terms -= self._terms(self._fresh(number), statistic, gone, kept.groups)
                for part, place in zip(parts, places, strict=True):
                    part.terms[number] = terms.index_select(1, place)
            return parts
        if not kept.terms:  # nothing is kept but what is added up
            return kept.of(own[0], statistic.groups(children[0])), kept.of(own[1], statistic.groups(children[1]))
        small, large = sorted((0, 1), key=lambda child: children[child].mass)
        parts = kept.of(own[0], kept.groups), kept.of(own[1], kept.groups)
        for number, terms in kept.terms.items():
            few = self._terms(self._view(children[small], number), statistic, own[small], kept.groups)
            rest = terms.sub_(few)
            if gone is not None and (len(gone) or self.problem.sharded):
                rest -= self._terms(self._fresh(number), statistic, gone, kept.groups)
            parts[small].terms[number], parts[large].terms[number] = few, rest
        return _without_empty(parts[0], children[0]), _without_empty(parts[1], children[1])

    def _terms(self, view: View, statistic: Statistic, elements: Tensor, groups: Tensor | None) -> Tensor:
        """Sums of elements in all columns of a block."""
        return self.problem.reduce(statistic.terms(view, elements, groups))

    def _view(self, node: Node, number: int) -> View:
        """A block of columns, with the codes of a node's points at hand."""
        if number not in node.views:
            node.views[number] = self._fresh(number)
        view: View = node.views[number]
        return view

    def _fresh(self, number: int) -> View:
        """A block of columns."""
        block = self.problem.columns.blocks[number]
        return View(block.by_point, block.centers, block.n_bins, not block.exact, lambda: block.bins)

    def _keeps(self, block: Block, kept: Kept) -> bool:
        """Whether sums are so few that they are worth keeping."""
        most = min(sums.BUDGET, max(SMALL, ROOM * block.bins.shape[0] * self.problem.n))
        return len(block.features) * block.n_bins * kept.statistic.entries(kept.groups) <= most

    # --- cuts of all columns, some columns at a time -------------------------------------------------------

    def _parts(
        self, node: Node, statistics: Sequence[Statistic], inside: list[tuple[Tensor, Tensor]]
    ) -> Iterator[tuple[_Part, Cuts, Tensor]]:
        """All columns; of those in bins the cuts between bins, and `inside` gets bounds of the others."""
        for number, block in enumerate(self.problem.columns.blocks):
            if not block.exact and not self.criterion.coarse:
                yield from self._exact(node, statistics, block.features)
                continue
            view = self._view(node, number)
            for kept in node.kept or []:
                if kept is not None and number not in kept.terms and self._keeps(block, kept):
                    kept.terms[number] = self._terms(view, kept.statistic, kept.elements, kept.groups)
            whole = _Part(block.features, view, None, block.width)
            for some in self._chunks(node, statistics, block.n_bins, len(block.features)):
                part, numbers, least = whole.some(some), [], []
                for statistic, kept in zip(statistics, node.kept or [], strict=True):
                    if kept is not None and number in kept.terms:
                        terms = kept.terms[number][some]
                    else:
                        elements, groups = (node.rows, None) if kept is None else (kept.elements, kept.groups)
                        if block.exact:
                            numbers.append(self.problem.reduce(statistic.once(part.view, elements, groups)))
                            continue
                        terms = self.problem.reduce(statistic.terms(part.view, elements, groups))
                    numbers.append(statistic.left(terms))
                    if not block.exact:
                        least.append(statistic.within(terms))
                if least:
                    inside.append((self._bound_inside(node, part, _together(least)), part.features))
                yield part, *self._cuts(node, part, statistics, numbers)

    def _exact(
        self, node: Node, statistics: Sequence[Statistic], features: Tensor
    ) -> Iterator[tuple[_Part, Cuts, Tensor]]:
        """Some columns, code by code."""
        columns = self.problem.columns
        for number, codes in enumerate(columns.codes):
            mine = features[columns.place[features, 0] == number]
            if not len(mine):
                continue
            bins = int(columns.size[mine].max())
            renumber = bins > max(256, 2 * node.n) and not self.problem.sharded
            for some in self._chunks(node, statistics, min(bins, 2 * node.n) if renumber else bins, len(mine)):
                own = mine[some]
                part = self._renumbered(node, codes, own) if renumber else self._as_coded(codes, own, bins)
                numbers = []
                for statistic, kept in zip(statistics, node.kept or [], strict=True):
                    elements, groups = (node.rows, None) if kept is None else (kept.elements, kept.groups)
                    numbers.append(self.problem.reduce(statistic.once(part.view, elements, groups)))
                yield part, *self._cuts(node, part, statistics, numbers)

    def _as_coded(self, codes: Tensor, features: Tensor, bins: int) -> _Part:
        own = codes.index_select(0, self.problem.columns.place[features, 1])
        view = View(
            lambda points: own.index_select(1, points).T,
            self.problem.columns.centers[features],
            bins,
            everything=lambda: own,
        )
        return _Part(features, view, None, torch.ones_like(features))

    def _renumbered(self, node: Node, codes: Tensor, features: Tensor) -> _Part:
        """The columns in the codes that the node's points and centers have."""
        columns = self.problem.columns
        own = codes.index_select(0, columns.place[features, 1]).index_select(1, node.rows)
        centers = columns.centers[features]
        new, new_centers, original = sums.renumbered(own, centers.index_select(1, node.centers))
        centers = centers.index_copy(1, node.centers, new_centers)

        def by_point(points: Tensor) -> Tensor:
            return new.T if points is node.rows else new.index_select(1, torch.searchsorted(node.rows, points)).T

        return _Part(features, View(by_point, centers, original.shape[1]), original, torch.ones_like(features))

    def _chunks(self, node: Node, statistics: Sequence[Statistic], bins: int, columns: int) -> Iterator[slice]:
        """Ranges of columns whose sums stay in a cache."""
        entries = 0
        for statistic, kept in zip(statistics, node.kept or [], strict=True):
            entries += statistic.entries(None if kept is None else kept.groups)
        step = max(1, min(sums.CACHED // max(1, bins * entries), sums.BUDGET // max(1, node.n)))
        for first in range(0, columns, step):
            yield slice(first, min(first + step, columns))

    # --- from sums to cuts ---------------------------------------------------------------------------------

    def _cuts(
        self, node: Node, part: _Part, statistics: Sequence[Statistic], numbers: list[Tensor]
    ) -> tuple[Cuts, Tensor]:
        """All cuts of some columns [f, bins], and which of them leave nothing on one side."""
        view, left = part.view, _together(numbers)
        counted = [own.sum(0, dtype=own.dtype) for s, own in zip(statistics, numbers, strict=False) if s.counts]
        mass_left = counted[0] if counted else None
        centers, n_centers = view.centers[:, :0], len(node.centers)
        if n_centers:
            centers = view.centers.index_select(1, node.centers)
            centers_left = sums.centers_left(centers, view.bins)
            impossible = (centers_left == 0) | (centers_left == n_centers)
            if mass_left is not None and len(self.criterion.stages) > 1:  # of equal cuts, the first one will do
                new = mass_left.diff(dim=1, prepend=torch.zeros_like(mass_left[:, :1])) > 0
                impossible |= ~new.scatter_(1, centers, True)
        else:
            centers_left = node.centers.new_zeros(()).expand(len(view.centers), view.bins)
            if mass_left is not None:
                impossible = (mass_left <= 0) | (mass_left >= mass_left[:, -1:])
            else:
                low, high = self._ends(node, view)
                place = torch.arange(view.bins, device=left.device)
                impossible = (place < low[:, None]) | (place >= high[:, None])
        cuts = Cuts(
            left,
            left[:, 0, -1],
            part.features[:, None],
            centers_left,
            mass_left,
            None,
            lambda: self._gaps(node, part),
            lambda: centers[:, None] <= torch.arange(view.bins, device=left.device)[:, None],
            lambda values, which, exact: self._sum_left(node, part, values, which, exact, None, None),
        )
        return cuts, impossible

    def _some(self, node: Node, cuts: _Open) -> Cuts:
        """Cuts that are still open, [cuts]."""
        part, row, place = cuts.part, cuts.row, cuts.place
        centers = part.view.centers.index_select(1, node.centers)
        sides = centers.index_select(0, row) <= place[:, None]
        return Cuts(
            cuts.left,
            cuts.total,
            part.features[row],
            sides.sum(1),
            cuts.mass_left,
            cuts.score,
            lambda: tuple(ends[row, place] for ends in self._gaps(node, part)),
            lambda: sides,
            lambda values, which, exact: self._sum_left(node, part, values, which, exact, row, place),
        )

    def _ends(self, node: Node, view: View) -> tuple[Tensor, Tensor]:
        """The least and the greatest code of the node's points, [f]."""
        codes = view.at(node.rows)
        if not self.problem.sharded:
            low, high = codes.aminmax(dim=1)
            return low.to(torch.int64), high.to(torch.int64)
        place = codes.to(torch.int64)
        none = place.new_full((len(codes), 1), view.bins)
        low = -self.problem.reduce(torch.cat([-place, -none], 1).amax(1), "max")
        return low, self.problem.reduce(torch.cat([place, none - view.bins - 1], 1).amax(1), "max")

    def _gaps(self, node: Node, part: _Part) -> tuple[Tensor, Tensor]:
        """The node's values next to every cut of some columns, [f, bins] each."""
        codes = part.view.at(node.rows).to(torch.int64)
        values = self.problem.table.at(part.features, node.rows).to(torch.float64)
        ends = []
        for sign in (1.0, -1.0):
            most = values.new_full((len(codes), part.view.bins), -torch.inf)
            most.scatter_reduce_(1, codes, sign * values, "amax")
            ends.append(sign * self.problem.reduce(most, "max"))
        above = ends[1].flip(1).cummin(1).values.flip(1).roll(-1, 1)
        above[:, -1] = torch.inf
        return ends[0].cummax(1).values, above

    def _sum_left(
        self,
        node: Node,
        part: _Part,
        values: Tensor,
        which: Tensor,
        exact: bool,
        row: Tensor | None,
        place: Tensor | None,
    ) -> Tensor:
        """Sums of one of several values over the points left of every cut."""
        codes = part.view.at(node.rows)
        if row is None or place is None:
            row, place = torch.meshgrid(
                *(torch.arange(n, device=which.device) for n in which.shape), indexing="ij"
            )
        group, member = torch.unique(row * len(values) + which, return_inverse=True)
        column = group.div(len(values), rounding_mode="floor")
        values = values if exact else sums.exact(values)
        totals = sums.of_groups(codes.index_select(0, column), part.view.bins, values, group % len(values))
        return self.problem.reduce(totals)[member, place]

    def _bound_inside(self, node: Node, part: _Part, least: Tensor) -> Tensor:
        """The least score that a cut between two codes of a bin may have, for every column."""
        bound = self.criterion.within(node, least, part.features[:, None])
        assert bound is not None
        if len(node.centers):
            centers = part.view.centers.index_select(1, node.centers)
            low, high = centers.amin(1), centers.amax(1)
        else:
            low, high = self._ends(node, part.view)
        place = torch.arange(part.view.bins, device=bound.device)
        outside = (place < low[:, None]) | (place > high[:, None])
        return bound.to(torch.float64).masked_fill(outside, torch.inf).amin(1).where(part.width > 1, torch.inf)

    def _may_win(self, bound: Tensor, features: Tensor, found: Best | None) -> Tensor:
        """Whether a column may have a better cut, or an equal one that comes first."""
        if found is None:
            return bound < torch.inf
        equal = (bound <= found.score + self.slack) & (features <= found.feature)
        return (bound < found.score - self.slack) | equal

    # --- the least score -----------------------------------------------------------------------------------

    def _least(self, node: Node, parts: Iterator[tuple[_Part, Cuts, Tensor]], found: Best | None) -> Best | None:
        """The best cut of some columns, or the one found before."""
        stages = self.criterion.stages
        open_: list[_Open] = []
        for part, cuts, impossible in parts:
            score = stages[0](node, cuts).to(torch.float64).masked_fill_(impossible, torch.inf)
            if len(stages) == 1:
                least = float(score.min())
                further = self.criterion.further(node, least if found is None else min(found.score, least))
                if further:
                    numbers = [self.problem.reduce(own.once(part.view, node.rows, None)) for own in further]
                    cuts = self._cuts(node, part, (), [cuts.left, *numbers])[0]
                    score = stages[0](node, cuts).masked_fill_(impossible, torch.inf)
                    least = float(score.min())
                found = self._better(found, self._first(part, score, least))
            else:
                limit = torch.inf if found is None else found.score + self.slack
                row, place = ((score <= limit) & ~impossible).nonzero(as_tuple=True)
                mass_left = None if cuts.mass_left is None else cuts.mass_left[row, place]
                left = cuts.left[:, row, place]
                open_.append(_Open(part, row, place, left, cuts.total, mass_left, score[row, place]))
        return self._narrowed(node, [cuts for cuts in open_ if len(cuts.row)], found)

    def _narrowed(self, node: Node, open_: list[_Open], found: Best | None) -> Best | None:
        """The best of cuts that are only bounded as yet."""
        last = len(self.criterion.stages) - 1
        best = torch.inf if found is None else found.score
        if last > 1:
            best = min([best, *(self._sampled(node, cuts) for cuts in open_)])
        for stage in range(1, last + 1):
            open_ = [cuts.up_to(best + self.slack) for cuts in open_]
            if stage == last:
                likeliest = [cuts[cuts.score.argmin()[None]] for cuts in open_ if len(cuts.row)]
                best = min([best, *(float(self._staged(node, cuts, last).score) for cuts in likeliest)])
                open_ = [cuts.up_to(best + self.slack) for cuts in open_]
            open_ = [self._staged(node, cuts, stage) for cuts in open_ if len(cuts.row)]
        for cuts in open_:
            least = cuts.score.min()
            if least < torch.inf:
                at = int((cuts.score <= least + self.slack).to(torch.uint8).argmax())
                row, place = int(cuts.row[at]), int(cuts.place[at])
                own = Best(float(least), int(cuts.part.features[row]), cuts.part.code(row, place))
                found = self._better(found, own)
        return found

    def _sampled(self, node: Node, cuts: _Open) -> float:
        """A score to beat: the best of every column's likeliest cuts, only a few of which are scored in full."""
        of_row = cuts.score.new_full((len(cuts.part.features),), torch.inf)
        of_row.scatter_reduce_(0, cuts.row, cuts.score, "amin")
        cuts = cuts[(cuts.score == of_row.index_select(0, cuts.row)).nonzero()[:, 0]]
        last = len(self.criterion.stages) - 1
        for stage in range(1, last + 1):
            if stage == last:
                cuts = cuts[cuts.score.topk(min(SAMPLE, len(cuts.row)), largest=False).indices]
            cuts = self._staged(node, cuts, stage)
        return float(cuts.score.min())

    def _staged(self, node: Node, cuts: _Open, stage: int) -> _Open:
        """Cuts with a tighter bound, or their score."""
        score = self.criterion.stages[stage](node, self._some(node, cuts))
        return replace(cuts, score=score)

    def _first(self, part: _Part, score: Tensor, least: float) -> Best | None:
        """The first of the cuts of some columns whose score is the least."""
        if not least < torch.inf:
            return None
        at = int((score <= least + self.slack).view(torch.uint8).argmax())
        row, place = at // score.shape[1], at % score.shape[1]
        return Best(least, int(part.features[row]), part.code(row, place))

    def _better(self, one: Best | None, other: Best | None) -> Best | None:
        """The better of two cuts; of equals the one that comes first."""
        if one is None or other is None:
            return other if one is None else one
        if abs(one.score - other.score) <= self.slack:
            return min(one, other, key=lambda best: (best.feature, best.code))
        return min(one, other)


def _together(numbers: list[Tensor]) -> Tensor:
    """The numbers of several statistics, [m, f, bins]."""
    if len(numbers) == 1:
        return numbers[0]
    return torch.cat([own.to(torch.float64) for own in numbers])


def _without_empty(kept: Kept, child: Node) -> Kept:
    """Leave out the clusters that a child has no points of, and tell it which it has."""
    if kept.groups is None:
        return kept
    mass = next(iter(kept.terms.values()))[0, :, -1].to(torch.float64)
    there = mass > 0
    if not bool(there.all()):
        terms = {number: own[:, there] for number, own in kept.terms.items()}
        kept, mass = replace(kept, groups=kept.groups[there], terms=terms), mass[there]
    if kept.groups is not None:
        child.clusters = kept.groups, mass
    return kept
