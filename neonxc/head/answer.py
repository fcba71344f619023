"""What is asked of a head, and its answer: values, contrasts, weights and relevance of points, computed once.

The answer to a question at a block of points follows the layers of the head and back:

1. Detection and grouping compute the values that compete, [n, G].
2. The competition computes the contrasts h of the explained cluster with its competitors, [n, L].
3. A rule, by default that of the NEON paper (Eq. 2), divides the decision among the contrasts: multipliers s.
4. The weights [n, M] of the neurons follow, as contrasts are differences of values, and values are minima of
   neurons. The decision is ``sum_m weights_m a_m(x)``.
5. Detection divides this sum among the columns: relevance, or multipliers by the linear rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from neonxc.common.targets import as_positions, check_place, part
from neonxc.data.inputs import check_width
from neonxc.data.sparse import SparseRows
from neonxc.head.competition import TAKE_MOST, ContrastRule, softmin

if TYPE_CHECKING:
    from neonxc.head.head import Head


Positions = int | Tensor
"""Clusters as positions of outputs: one for all inputs, or one for each."""


class Question(NamedTuple):
    """What is asked of every input: why this cluster, and not that one; clusters are positions of outputs.

    Attributes
    ----------
    target : int or Tensor [N] or [N, ...], optional
        The cluster to explain: of all inputs, of each, or of each location of a map of features. On a map, one
        cluster per input selects the locations that are assigned to it. Default: the cluster that a point is
        assigned to.
    competitor : int or Tensor [N], optional
        The only competitor. Default: all other clusters compete.
    where : Tensor [N, ...] of bool, optional
        The locations of a map that are explained; the others get no relevance. Default: as `target` says.
    neurons : Tensor [M] of bool, optional
        The neurons whose contribution is asked for. Default: all.
    location : tuple (row, column, ...), optional
        The only location of a map that is explained, of all inputs. Default: as `where` and `target` say.
    """

    target: Positions | None = None
    competitor: Positions | None = None
    where: Tensor | None = None
    neurons: Tensor | None = None
    location: tuple[int, ...] | None = None

    def of_block(self, block: slice, n: int | None = None) -> Question:
        """Return the question about a block of n inputs."""
        if self is OWN:
            return self
        target = part(self.target, "target", block, n)
        competitor = part(self.competitor, "competitor", block, n)
        where = part(self.where, "where", block, n)
        return self._replace(target=target, competitor=competitor, where=where)


OWN = Question()
"""Why each point is in the cluster that it is assigned to."""


class Answer:
    """The head at n points, and its decision for one cluster of each, as a weighted sum of M neurons.

    Attributes
    ----------
    x : Tensor or SparseRows [n, d]
        The points.
    block : slice
        Their positions among all points of the question.
    values : Tensor [n, G]
        What competes: the values of clusters, of which the least wins, or those of the tests of a tree.
    cluster : Tensor [n] of int64
        The cluster that is explained.
    competitor : Tensor [n] of int64, or None
        Its only competitor.
    """

    def __init__(
        self,
        head: Head,
        x: Tensor | SparseRows,
        cluster: Tensor | None = None,
        competitor: Tensor | None = None,
        *,
        beta: float = 1.0,
        rule: ContrastRule = TAKE_MOST,
        block: slice = slice(None),
    ) -> None:
        self.head = head
        self.x = x
        self.block = block
        self.competitor = competitor
        self.beta = beta
        self._rule = rule
        self._at = head.detection.located(x)
        self.values, self._shares = head.grouped(head.detection.neurons(self._at))
        self._asks_for_assigned = cluster is None and competitor is None and rule is TAKE_MOST
        self.cluster = self.assigned if cluster is None else cluster
        self.kept: Tensor | None = None  # [n, 1 or M]: the points and neurons that are explained

    @cached_property
    def assigned(self) -> Tensor:
        """The cluster [n] that each point is assigned to."""
        return self.head.competition.assign(self.values)

    @cached_property
    def logits(self) -> Tensor:
        """The logits [n, K] of all clusters."""
        logits: Tensor = self.head.competition(self.values)
        return logits

    @cached_property
    def logit(self) -> Tensor:
        """The logit [n] of the cluster that is explained."""
        return self.logits.gather(1, self.cluster[:, None])[:, 0]

    @property
    def contrasts(self) -> Tensor:
        """The contrasts [n, L] of the cluster with each competitor or test; infinite for what does not compete."""
        contrasts, _, _ = self._evidence
        return contrasts

    @cached_property
    def _evidence(self) -> tuple[Tensor, Tensor | None, Tensor | None]:
        return self.head.competition.evidence(self.values, self.cluster, self.competitor)

    @cached_property
    def weights(self) -> Tensor:
        """The weight [n, M] of every neuron in the decision."""
        competition = self.head.competition
        if self._asks_for_assigned and competition.has_assigned_weights(self.beta):
            weights = competition.assigned_weights(self.values, self.cluster, self.beta)
        else:
            weights = self._weights_of_values()
        if self._shares is not None:
            weights = weights[:, self.head.groups] * self._shares
        return weights if self.kept is None else weights * self.kept

    def _weights_of_values(self) -> Tensor:
        """Compute the weights [n, G] of the values that compete, from the multipliers of the contrasts."""
        contrasts, signs, is_target = self._evidence
        if self.head.competition.threshold is None:
            multipliers = self._rule(contrasts, self.beta)
        else:  # the gradient of the soft minimum that a threshold implies
            multipliers = softmin(contrasts, 1.0).nan_to_num()
        if is_target is not None:  # sum_k s_k (E_k - E_c)
            return multipliers - is_target * multipliers.sum(dim=1, keepdim=True)
        if signs is not None:
            return multipliers * signs
        return multipliers

    @cached_property
    def target_weights(self) -> Tensor | None:
        """The weights [n, M] of the target's neurons in each contrast, if the relevance depends on them."""
        if not (self.head.detection.by_contrast and self.head.competition.by_contrast):
            return None
        is_of_target = (self.head.groups == self.cluster[:, None]).to(self.values)
        return is_of_target if self._shares is None else is_of_target * self._shares

    def relevance(self) -> Tensor:
        """Compute the relevance [n, d] by the midpoint rule (NEON paper, Eqs. 2 and 4).

        The closed form needs no tensor of clusters by features for each point.
        """
        return self.head.detection.relevance(self._at, self.weights, self.target_weights)

    def multiplier(self) -> Tensor:
        """Compute the multipliers [n, d] of the standard linear rule, where the bias absorbs its share."""
        return self.head.detection.multiplier(self._at, self.weights)

    def evidence(self) -> Tensor:
        """Compute the contribution [n, M] of every neuron to the decision."""
        return self.weights * self.head.detection.neurons(self._at)

    def among_parts(self, parts: Tensor) -> Tensor:
        """Compute the contributions [n, P] of parts [P, d] to decisions at points that are means of such parts."""
        return self.head.detection.among_parts(self._at, parts, self.weights)


@torch.no_grad()
def answers(
    head: Head,
    a: Tensor | SparseRows,
    question: Question = OWN,
    beta: float = 1.0,
    rule: ContrastRule = TAKE_MOST,
) -> Iterator[Answer]:
    """Answer a question at the points of features, block by block.

    Parameters
    ----------
    head : Head
    a : Tensor or SparseRows [N, d], or Tensor [N, d, ...]
        Features; on a map every location is a point.
    question : Question
        With positions per input, for these N inputs.
    beta : float
        Stiffness of the competitors' shares.
    rule : ContrastRule
        Divides the decisions among the competitors.

    Yields
    ------
    Answer

    Raises
    ------
    ValueError
        Unknown clusters, or a location outside the map.
    """
    points = rows(a)
    if points.shape[1] != head.n_features:
        check_width(points.shape[1], head.n_features, name="x")
    on_map = a.ndim > 2
    where = question.where
    if question.location is not None and on_map:
        assert isinstance(a, Tensor)
        where = check_place(question.location, a)
    target = _per_point(question.target, a, head, "target")
    competitor = _per_point(question.competitor, a, head, "competitor")
    for block in head.blocks(points):
        x = points[block]
        cluster = None if target is None else target[block]
        rule_of_block = rule.of_block(block)
        competitor_of_block = None if competitor is None else competitor[block]
        answer = Answer(head, x, cluster, competitor_of_block, beta=beta, rule=rule_of_block, block=block)
        if where is not None:
            answer.kept = where.flatten()[block, None]
        elif on_map and target is not None:
            answer.kept = (answer.assigned == answer.cluster)[:, None]
        if question.neurons is not None:
            answer.kept = question.neurons if answer.kept is None else answer.kept & question.neurons
        yield answer


def _per_point(value: Positions | None, a: Tensor | SparseRows, head: Head, name: str) -> Tensor | None:
    """Return the position [n] of a cluster for each point, from one for all inputs, for each, or each location."""
    if value is None:
        return None
    if isinstance(value, Tensor) and a.ndim > 2 and value.ndim == a.ndim - 1:
        return value.flatten()
    positions = as_positions(value, a.shape[0], head.n_clusters, name, a.device)
    if a.ndim == 2:
        return positions
    n_locations = torch.Size(a.shape[2:]).numel()
    return positions.repeat_interleave(n_locations)


def rows(a: Tensor | SparseRows) -> Any:
    """Return the points [n, d] of features [N, d] or of a map [N, d, ...], image by image."""
    if isinstance(a, SparseRows) or a.ndim == 2:
        return a
    return a.movedim(1, -1).flatten(0, -2)


def unrows(values: Tensor, a: Tensor) -> Tensor:
    """Invert :func:`rows`: reshape values [n, K] of points to [N, K, ...], like the features `a`."""
    if a.ndim == 2:
        return values
    return values.reshape(a.shape[0], *a.shape[2:], -1).movedim(-1, 1)


def joined(parts: Iterator[Tensor], n: int) -> Tensor:
    """Concatenate parts with n rows in all, each of which is freed once it is copied."""
    part: Tensor | None = next(parts)
    assert part is not None
    if len(part) == n:
        return part
    result = part.new_empty(n, *part.shape[1:])
    start = 0
    while part is not None:
        result[start : start + len(part)] = part
        start += len(part)
        part = next(parts, None)
    return result
