"""What is asked of a head, and its answer: values, contrasts, weights and relevance of points, computed once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from neonxc.common.targets import as_positions, check_place, part
from neonxc.data.inputs import check_width
from neonxc.data.sparse import SparseRows
from neonxc.head.competition import Share, softmin, take_most

if TYPE_CHECKING:
    from neonxc.head.head import Head


class Question(NamedTuple):
    """What is asked of every input: why this cluster, and not that one; clusters are positions of outputs.

    Attributes
    ----------
    target : int, Tensor [N] or [N, ...], tuple, optional
        The cluster to explain: of all inputs, of each, or of each location of a map of features. On a map, one
        cluster per input selects the locations that are assigned to it, a tuple ``(cluster, row, column, ...)`` a
        single location. Default: the cluster that a point is assigned to.
    competitor : int or Tensor [N], optional
        The only competitor. Default: all other clusters compete.
    where : Tensor [N, ...] of bool, optional
        The locations of a map that are explained; the others get no relevance. Default: as `target` says.
    neurons : Tensor [M] of bool, optional
        The neurons whose contribution is asked for. Default: all.
    """

    target: Any = None
    competitor: Any = None
    where: Tensor | None = None
    neurons: Tensor | None = None

    def of_block(self, block: slice, n: int | None = None) -> Question:
        """Return the question about a block of n inputs."""
        per_input = ("target", "competitor", "where")
        return self._replace(**{name: part(getattr(self, name), name, block, n) for name in per_input})


OWN = Question()
"""Why each point is in its own cluster."""


class Answer:
    """The head at n points, and its decision for one cluster of each, as a weighted sum of M neurons.

    Attributes
    ----------
    x : Tensor or SparseRows [n, d]
        The points.
    block : slice
        Their places among all points of the question.
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
        share: Share = take_most,
        block: slice = slice(None),
    ) -> None:
        self.head = head
        self.x = x
        self.block = block
        self.competitor = competitor
        self.beta = beta
        self._share = share
        self._at = head.detection.located(x)
        neurons: Tensor = head.detection.neurons(self._at)
        grouping = head.grouping
        self.values: Tensor
        self._parts: Tensor | None
        self.values, self._parts = (neurons, None) if grouping is None else grouping(neurons)
        self._asks_for_own = cluster is None and competitor is None and share is take_most
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
        """What speaks for the cluster [n, L], by competitor or test; infinite for what does not compete."""
        return self._evidence[0]

    @cached_property
    def _evidence(self) -> tuple[Tensor, Tensor | None, Tensor | None]:
        return self.head.competition.evidence(self.values, self.cluster, self.competitor)

    @cached_property
    def weights(self) -> Tensor:
        """The weight [n, M] of every neuron in the decision."""
        competition = self.head.competition
        if self._asks_for_own and competition.has_own_weights(self.beta):
            weights = competition.own_weights(self.values, self.cluster, self.beta)
        else:
            contrasts, signs, own = self._evidence
            soft = competition.threshold is not None  # the gradient of the soft minimum that a threshold implies
            weights = softmin(contrasts, 1.0).nan_to_num() if soft else self._share(contrasts, self.beta)
            if own is not None:
                weights = weights - own * weights.sum(dim=1, keepdim=True)
            elif signs is not None:
                weights = weights * signs
        if self._parts is not None:
            weights = weights[:, self.head.groups] * self._parts
        return weights if self.kept is None else weights * self.kept

    @cached_property
    def own(self) -> Tensor | None:
        """The weights [n, M] of the cluster's own neurons in each contrast, if the relevance depends on them."""
        if not (self.head.detection.by_contrast and self.head.competition.by_contrast):
            return None
        own = (self.head.groups == self.cluster[:, None]).to(self.values)
        return own if self._parts is None else own * self._parts

    def relevance(self) -> Tensor:
        """Compute the relevance [n, d] by the midpoint rule (NEON paper, Eqs. 2 and 4).

        The closed form needs no tensor of clusters by features for each point.
        """
        return self.head.detection.relevance(self._at, self.weights, self.own)

    def multiplier(self) -> Tensor:
        """Compute the multipliers [n, d] of the standard linear rule, where the bias absorbs its share."""
        return self.head.detection.multiplier(self._at, self.weights)

    def evidence(self) -> Tensor:
        """The share [n, M] of every neuron in the decision."""
        return self.weights * self.head.detection.neurons(self._at)

    def among_parts(self, parts: Tensor) -> Tensor:
        """What parts [P, d] contribute to the decision of points that are means of such parts, [n, P]."""
        return self.head.detection.among_parts(self._at, parts, self.weights)


def take_most_of(block: slice) -> Share:
    """Return the rule that shares the minimum of contrasts, for any block of points."""
    return take_most


@torch.no_grad()
def answers(
    head: Head,
    a: Any,
    question: Question = OWN,
    beta: float = 1.0,
    share: Callable[[slice], Share] = take_most_of,
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
    share : callable
        Returns the function that computes the competitors' shares of a block of points.

    Yields
    ------
    Answer

    Raises
    ------
    ValueError
        Unknown clusters, or a location outside the map.
    """
    points = rows(a)
    target = question.target
    where = question.where
    if points.shape[1] != head.n_features:
        check_width(points.shape[1], head.n_features, name="x")
    on_map = a.ndim > 2
    if isinstance(target, tuple) and on_map:
        target, *place = target
        where = check_place(place, a)
    cluster = None if target is None else _per_point(target, a, head, "target")
    competitor = None if question.competitor is None else _per_point(question.competitor, a, head, "competitor")
    for block in head.blocks(points):
        own, other = (None if part is None else part[block] for part in (cluster, competitor))
        answer = Answer(head, points[block], own, other, beta=beta, share=share(block), block=block)
        if where is not None:
            answer.kept = where.flatten()[block, None]
        elif on_map and cluster is not None:
            answer.kept = (answer.assigned == answer.cluster)[:, None]
        if question.neurons is not None:
            answer.kept = question.neurons if answer.kept is None else answer.kept & question.neurons
        yield answer


def _per_point(value: Any, a: Any, head: Head, name: str) -> Tensor:
    """The position [n] of a cluster for each point, from one for all inputs, for each, or for each location."""
    if isinstance(value, Tensor) and a.ndim > 2 and value.ndim == a.ndim - 1:
        return value.flatten()
    positions = as_positions(value, a.shape[0], head.n_clusters, name, a.device)
    return positions.repeat_interleave(a.shape[2:].numel()) if a.ndim > 2 else positions


def rows(a: Any) -> Any:
    """Return the points [n, d] of features [N, d] or of a map [N, d, ...], image by image."""
    return a if a.ndim == 2 else a.movedim(1, -1).flatten(0, -2)


def unrows(values: Tensor, a: Tensor) -> Tensor:
    """Invert :func:`rows`: reshape values [n, K] of points to [N, K, ...], like the features `a`."""
    if a.ndim == 2:
        return values
    return values.reshape(a.shape[0], *a.shape[2:], -1).movedim(-1, 1)


def joined(parts: Iterator[Tensor], n: int) -> Tensor:
    """Concatenate parts with n rows in all, each of which is freed once it is copied."""
    first = next(parts)
    if len(first) == n:
        return first
    result = first.new_empty(n, *first.shape[1:])
    at = 0
    while True:
        result[at : at + len(first)] = first
        at += len(first)
        if (first := next(parts, None)) is None:  # type: ignore[assignment]
            return result
