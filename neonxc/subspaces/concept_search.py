"""The search for concepts: passes over the inputs that find, rotate and measure the directions of a layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from neonxc.common.progress import progress_bar
from neonxc.head.answer import Question
from neonxc.inputs.base import How
from neonxc.network import NeuralizedClustering
from neonxc.subspaces.references import REFERENCES, ConceptReference, best_words, center
from neonxc.subspaces.relevant import principal, separated
from neonxc.subspaces.split_network import Layer


class LayerBlock(NamedTuple):
    """A block of inputs, those of a cluster, and values and multipliers [n, P, D] of the layer for the latter."""

    cluster: int
    x: Tensor
    own: Tensor
    a: Tensor
    m: Tensor
    rows: np.ndarray
    shape: tuple[int, ...]
    lower: Any
    total: Tensor | None = None


class Measured(NamedTuple):
    """The directions [k, D] of a cluster, their mean relevance [k] and that of all directions, and references."""

    directions: Tensor
    relevance: np.ndarray
    total: float
    references: list[list[ConceptReference]]


class ConceptSearch:
    """The network, the layer and the inputs that concepts are found on, with their rows in X."""

    def __init__(
        self,
        net: NeuralizedClustering,
        at: Layer,
        x: Tensor,
        rows: np.ndarray,
        questions: list[Question],
        rules: Any,
    ) -> None:
        self.net, self.layer, self.x, self.rows = net, at, x, rows
        self.questions, self.composite = questions, rules

    def passes(self, clusters: Sequence[int], name: str) -> Iterator[LayerBlock]:
        """Run the inputs of each cluster."""
        blocks = self.net.inputs.blocks(self.x)
        for block in progress_bar(blocks, desc=name, disable=len(blocks) < 2):
            halves = self.layer.halves(self.x[block], self.composite)
            position = self.net.head.assign(halves.features)
            for c in clusters:
                target = self.questions[c].target
                assert target is not None
                own = (position == target).view(len(position), -1).any(1)
                if own.any():
                    m = halves.upper(start_of(self.net, halves.features, self.questions[c], self.composite))
                    rows = self.rows[block][own.cpu().numpy()]
                    yield LayerBlock(
                        c, self.x[block], own, halves.values[own], m[own], rows, halves.shape, halves.lower
                    )

    def directions(self, n: int, shared: bool) -> list[Tensor]:
        """The most relevant directions [n, D] of every cluster."""
        sums: list[Any] = [None] * len(self.questions)
        for c, _, _, a, m, *_ in self.passes(range(len(sums)), "directions"):
            if n > a.shape[2]:
                raise ValueError(f"n_concepts needs at most {a.shape[2]}, the channels of the layer, got {n}")
            products = a.flatten(0, 1).double().mT @ m.flatten(0, 1).double()
            sums[c] = products if sums[c] is None else sums[c] + products
        return [principal(total, n) for total in ([sum(sums)] * len(sums) if shared else sums)]

    def measured(self, directions: list[Tensor], shared: bool) -> list[Measured]:
        """Rotate the directions so that the relevance of a place lies on few of them, and measure them."""
        found: list[list[LayerBlock]] = [[] for _ in directions]
        for one in self.passes(range(len(directions)), "relevance"):
            axes = directions[one.cluster].to(one.a)
            a, m, total = one.a @ axes.mT, one.m @ axes.mT, (one.a * one.m).sum((1, 2))
            one = one._replace(a=a, m=m, total=total, lower=None)  # which would keep the values of the network
            found[one.cluster].append(one)
        turns = [_rotation([*chain(*found)])] * len(found) if shared else map(_rotation, found)
        return [_measured(own, turn, axes) for own, turn, axes in zip(found, turns, directions, strict=True)]

    def words(self, c: int, axes: Tensor) -> list[list[ConceptReference]]:
        """The words of the highest mean relevance through each direction."""
        inputs: Any = self.net.inputs
        sums: list[Any] = []
        for one in self.passes([c], "words"):
            for axis in axes.to(one.m):
                whole = one.m.new_zeros(len(one.x), *one.m.shape[1:])
                whole[one.own] = (one.m @ axis)[..., None] * axis
                sums.append((one.x[one.own], one.lower(whole)[one.own]))
        return [best_words(inputs, sums[i :: len(axes)]) for i in range(len(axes))]

    def left(self, x: Tensor, c: int, axes: Tensor) -> np.ndarray:
        """Share of the points of a cluster that stay in it without the first 1, 2, ... directions."""
        stay, n, target = np.zeros(len(axes)), 0, self.questions[c].target
        assert target is not None
        for block in self.net.inputs.blocks(x):
            own = self.net.head.assign(self.net.inputs.features(x[block])) == target
            n += int(own.sum())
            for i in range(len(axes) if own.any() else 0):
                without = self.net.head.assign(self.layer.without(x[block], axes[: i + 1]))
                stay[i] += int((without[own] == target).sum())
        return stay / n if n else np.full(len(axes), np.nan)


def _rotation(passes: list[LayerBlock]) -> Tensor:
    """The rotation [k, k] of directions, from values and multipliers along them, the most relevant first."""
    a, m = (torch.cat([getattr(one, name).flatten(0, 1) for one in passes]) for name in ("a", "m"))
    used = (m != 0).any(1)
    rotation = separated(a[used], m[used])
    return rotation[((a @ rotation.mT) * (m @ rotation.mT)).sum(0).argsort(descending=True)]


def _measured(passes: list[LayerBlock], rotation: Tensor, axes: Tensor) -> Measured:
    """Measure the rotated directions, and find where their relevance is largest in every input."""
    along = [(one.a @ rotation.mT) * (one.m @ rotation.mT) for one in passes]
    n = sum(map(len, along))
    mean = torch.stack([part.sum((0, 1)) for part in along]).sum(0) / n
    references: list[list[ConceptReference]] = []
    for k in range(len(mean)):
        best = []
        for one, part in zip(passes, along, strict=True):
            value, place = part[..., k].max(1)
            for row, i, size in zip(one.rows.tolist(), place.tolist(), value.tolist(), strict=True):
                best.append(ConceptReference(row, *center(i, part.shape[1], one.shape), size))
        references.append(sorted(best, key=lambda one: -one.relevance)[:REFERENCES])
    total = float(torch.cat([one.total for one in passes if one.total is not None]).mean())
    return Measured(rotation.to(axes) @ axes, mean.double().cpu().numpy(), total, references)


def start_of(net: NeuralizedClustering, features: Tensor, question: Question, composite: Any) -> Tensor:
    """The multipliers of the features, where propagation starts."""
    inputs: Any = net.inputs
    start: Tensor = inputs.start(features, question, How("linear", float(net._beta), composite))
    return start


def question_of(net: NeuralizedClustering, label: Any, competitor: Any) -> Question:
    """Why a cluster, by its label, and not one competitor or any other."""
    return Question(int(net.positions(label, "cluster")), net.positions(competitor, "competitor"))
