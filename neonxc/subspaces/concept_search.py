"""The search for concepts: passes over the inputs that find, rotate and measure the directions of a layer.

At a location p of an input of a cluster, the layer has values a_p [D], and LRP propagates multipliers m_p to it.
The relevance of the location is ``a_p m_p``, and that along a direction u is ``(u a_p) (u m_p)``.

1. The n orthonormal directions with the largest sums of relevance over all inputs of the cluster and all locations
   are found from the sum of ``a_p m_p'`` (:func:`~neonxc.subspaces.relevant.principal`).
2. They are rotated within their subspace so that the relevance of a location lies on few of them
   (:func:`~neonxc.subspaces.relevant.separated`), and sorted by their relevance.
3. The relevance of the cluster along a direction is its sum over the locations, as a mean over the inputs. The
   references are the inputs and locations, or the words, where it is largest.
4. The first k directions are removed from the layer, for k = 1, 2, ... n: every location gets the coordinates of
   the mean mu of the locations that are not in the cluster, ``a_p - sum_i (u_i (a_p - mu)) u_i``. Two fractions
   are measured: of the cluster's points, those that stay in it; of all others, those that keep their cluster.

Coordinates of zero instead of those of mu are values that the layer has nowhere, and move points of all clusters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from neonxc.common.progress import progress_bar
from neonxc.common.types import Label
from neonxc.head.answer import Question
from neonxc.inputs.base import How
from neonxc.network import NeuralizedClustering
from neonxc.subspaces.references import REFERENCES, ConceptReference, best_words, center
from neonxc.subspaces.relevant import principal, separated
from neonxc.subspaces.split_network import Layer

if TYPE_CHECKING:
    from neonxc.lrp import Composite


class LayerBlock(NamedTuple):
    """A block of N inputs, and the values and multipliers of the layer for the n inputs of one cluster."""

    cluster: int
    x: Tensor  # [N, ...]
    in_cluster: Tensor  # [N], whether an input has a point in the cluster
    a: Tensor  # [n, P, D]
    m: Tensor  # [n, P, D]
    rows: np.ndarray  # [n], rows of X
    shape: tuple[int, ...]  # of the P locations
    lower: Callable[[Tensor], Tensor]  # from multipliers [N, P, D] to the relevance of the inputs


class AlongDirections(NamedTuple):
    """The n inputs of a block and of one cluster, in the coordinates of k directions."""

    a: Tensor  # [n, P, k], u a_p
    m: Tensor  # [n, P, k], u m_p
    total: Tensor  # [n], the relevance of all D directions
    rows: np.ndarray  # [n], rows of X
    shape: tuple[int, ...]  # of the P locations


class Measured(NamedTuple):
    """The concepts of a cluster."""

    directions: Tensor  # [k, D]
    relevance: np.ndarray  # [k], mean over the inputs
    total: float  # mean relevance of all D directions
    references: list[list[ConceptReference]]


class Retained(NamedTuple):
    """What stays as it was without the first 1, 2, ... k directions of a cluster; NaN where there is no point."""

    left: np.ndarray  # [k], fraction of the points of the cluster that stay in it
    unchanged: np.ndarray  # [k], fraction of the other points that keep their cluster


class ConceptSearch:
    """The network, the layer and the inputs that concepts are found on.

    Parameters
    ----------
    net : NeuralizedClustering
    layer : Layer
    x : Tensor [n, ...]
        The inputs.
    rows : ndarray [n]
        Their rows in X.
    questions : list of Question
        One for each cluster.
    composite : neonxc.lrp.Composite, optional
    """

    def __init__(
        self,
        net: NeuralizedClustering,
        layer: Layer,
        x: Tensor,
        rows: np.ndarray,
        questions: list[Question],
        composite: Composite | None,
    ) -> None:
        self.net = net
        self.layer = layer
        self.x = x
        self.rows = rows
        self.questions = questions
        self.composite = composite

    def passes(self, clusters: Sequence[int], name: str) -> Iterator[LayerBlock]:
        """Run all inputs, and yield the values and multipliers of the layer for each cluster."""
        blocks = self.net.inputs.blocks(self.x)
        for block in progress_bar(blocks, desc=name, disable=len(blocks) < 2):
            halves = self.layer.halves(self.x[block], self.composite)
            position = self.net.head.assign(halves.features)
            for c in clusters:
                is_target = torch.eq(position, self._target(c))  # [N], or [N, h, w] for locations
                in_cluster = is_target.view(len(is_target), -1).any(1)
                if not in_cluster.any():
                    continue
                start = start_of(self.net, halves.features, self.questions[c], self.composite)
                yield LayerBlock(
                    cluster=c,
                    x=self.x[block],
                    in_cluster=in_cluster,
                    a=halves.values[in_cluster],
                    m=halves.upper(start)[in_cluster],
                    rows=self.rows[block][in_cluster.cpu().numpy()],
                    shape=halves.shape,
                    lower=halves.lower,
                )

    def directions(self, n: int, shared: bool) -> list[Tensor]:
        """Find the n most relevant directions [n, D] of every cluster, or those of all clusters together."""
        sums: list[Any] = [None] * len(self.questions)  # of a m', [D, D]
        for block in self.passes(range(len(sums)), "directions"):
            D = block.a.shape[2]
            if n > D:
                raise ValueError(f"n_concepts needs at most {D}, the channels of the layer, got {n}")
            c = block.cluster
            a = block.a.flatten(0, 1).double()
            m = block.m.flatten(0, 1).double()
            products = a.mT @ m
            sums[c] = products if sums[c] is None else sums[c] + products
        if shared:
            sums = [sum(sums)] * len(sums)
        return [principal(total, n) for total in sums]

    def measured(self, directions: list[Tensor], shared: bool) -> list[Measured]:
        """Rotate the directions so that the relevance of a location lies on few of them, and measure them."""
        by_cluster: list[list[AlongDirections]] = [[] for _ in directions]
        for block in self.passes(range(len(directions)), "relevance"):
            axes = directions[block.cluster].to(block.a)
            along = AlongDirections(
                a=block.a @ axes.mT,
                m=block.m @ axes.mT,
                total=(block.a * block.m).sum((1, 2)),
                rows=block.rows,
                shape=block.shape,
            )
            by_cluster[block.cluster].append(along)

        if shared:
            rotations = [_rotation([*chain(*by_cluster)])] * len(by_cluster)
        else:
            rotations = [_rotation(blocks) for blocks in by_cluster]
        return [
            _measured(blocks, rotation, axes)
            for blocks, rotation, axes in zip(by_cluster, rotations, directions, strict=True)
        ]

    def words(self, c: int, axes: Tensor) -> list[list[ConceptReference]]:
        """Find the words of the highest mean relevance through each direction."""
        by_axis: list[list[tuple[Tensor, Tensor]]] = [[] for _ in axes]
        for block in self.passes([c], "words"):
            for pairs, axis in zip(by_axis, axes.to(block.m), strict=True):
                m = block.m.new_zeros(len(block.x), *block.m.shape[1:])
                m[block.in_cluster] = (block.m @ axis)[..., None] * axis
                relevance = block.lower(m)
                pairs.append((block.x[block.in_cluster], relevance[block.in_cluster]))
        return [best_words(self.net.inputs, pairs) for pairs in by_axis]

    def _target(self, c: int) -> int:
        """Return the position of a cluster among the outputs of the network."""
        target = self.questions[c].target
        assert isinstance(target, int)
        return target

    def means_of_others(self) -> Tensor:
        """Compute the mean value [C, D] of the layer at all locations that are not in a cluster.

        If the inputs have none, it is zero.
        """
        sums: Any = 0.0  # [C, D]
        counts: Any = 0.0  # [C]
        for block in self.net.inputs.blocks(self.x):
            values, shape, features = self.layer.observed(self.x[block])
            position = self.net.head.assign(features)
            is_other = [~at_layer(position == self._target(c), shape) for c in range(len(self.questions))]
            weights = torch.stack(is_other).to(values.device, torch.float64)  # [C, n, P]
            sums = sums + torch.einsum("cnp,npd->cd", weights, values.double())
            counts = counts + weights.sum((1, 2))
        return sums / counts.clamp(min=1)[:, None]

    def retained(self, x: Tensor, c: int, axes: Tensor, mean: Tensor) -> Retained:
        """Count the points that keep their cluster without the first 1, 2, ... axes [k, D] of a cluster.

        The axes are removed to the coordinates of a mean [D].
        """
        n_left = np.zeros(len(axes))
        n_unchanged = np.zeros(len(axes))
        n = 0
        n_others = 0
        target = self._target(c)
        for block in self.net.inputs.blocks(x):
            position = self.net.head.assign(self.net.inputs.features(x[block]))
            in_cluster = torch.eq(position, target)
            n += int(in_cluster.sum())
            n_others += int((~in_cluster).sum())
            for i in range(len(axes)):
                without = self.net.head.assign(self.layer.without(x[block], axes[: i + 1], mean))
                is_same = without == position
                n_left[i] += int((is_same & in_cluster).sum())
                n_unchanged[i] += int((is_same & ~in_cluster).sum())
        with np.errstate(invalid="ignore"):  # 0 / 0: there is no such point
            return Retained(n_left / n, n_unchanged / n_others)


def at_layer(in_cluster: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Find the locations [n, P] of a layer that are in a cluster, from those of the features [n, ...].

    An input with one decision is in the cluster as a whole. Locations of another resolution are the nearest ones;
    tokens that have no location, before those of a square, are in the cluster if any location is.
    """
    n_locations = math.prod(shape)
    n_dimensions = in_cluster.ndim - 1
    anywhere = in_cluster.reshape(len(in_cluster), -1).any(1)
    if n_dimensions == 0 or len(shape) > n_dimensions:
        return anywhere[:, None].expand(-1, n_locations)

    n_before = 0
    if len(shape) < n_dimensions:
        side = math.isqrt(n_locations)
        n_before = n_locations - side**2
        shape = (side, side)
    nearest = F.interpolate(in_cluster[:, None].float(), shape, mode="nearest")
    before = anywhere[:, None].expand(-1, n_before)
    return torch.cat([before, nearest.flatten(1) > 0], dim=1)


def _rotation(blocks: list[AlongDirections]) -> Tensor:
    """Find the rotation [k, k] of directions, with the most relevant direction first."""
    a = torch.cat([block.a.flatten(0, 1) for block in blocks])
    m = torch.cat([block.m.flatten(0, 1) for block in blocks])
    used = (m != 0).any(1)
    rotation = separated(a[used], m[used])
    relevance = ((a @ rotation.mT) * (m @ rotation.mT)).sum(0)
    return rotation[relevance.argsort(descending=True)]


def _measured(blocks: list[AlongDirections], rotation: Tensor, axes: Tensor) -> Measured:
    """Measure the rotated directions, and find where their relevance is largest in every input."""
    relevance = [(block.a @ rotation.mT) * (block.m @ rotation.mT) for block in blocks]  # [n, P, k] each
    n = sum(map(len, relevance))
    sums = torch.stack([of_block.sum((0, 1)) for of_block in relevance])
    mean = sums.sum(0) / n

    references: list[list[ConceptReference]] = []
    for k in range(len(mean)):
        of_inputs = []
        for block, of_block in zip(blocks, relevance, strict=True):
            largest, location = of_block[..., k].max(1)
            for row, index, value in zip(block.rows.tolist(), location.tolist(), largest.tolist(), strict=True):
                y, x = center(index, of_block.shape[1], block.shape)
                of_inputs.append(ConceptReference(row, y, x, value))
        of_inputs.sort(key=lambda reference: -reference.relevance)
        references.append(of_inputs[:REFERENCES])

    total = float(torch.cat([block.total for block in blocks]).mean())
    return Measured(rotation.to(axes) @ axes, mean.double().cpu().numpy(), total, references)


def start_of(
    net: NeuralizedClustering, features: Tensor, question: Question, composite: Composite | None
) -> Tensor:
    """Compute the multipliers of the features, where propagation starts."""
    inputs: Any = net.inputs
    start: Tensor = inputs.start(features, question, How("linear", float(net._beta), composite))
    return start


def question_of(net: NeuralizedClustering, label: Label, competitor: Label | None) -> Question:
    """Return the question why a cluster, by its label, and not one competitor or any other."""
    target = int(net.positions(label, "cluster"))
    return Question(target, net.positions(competitor, "competitor"))
