"""How a question about labels is made, and answered for inputs block by block.

1. Labels that have an index are put in the order of the inputs.
2. They become positions of the network's outputs, and the question is:

       target                    competitor    question
       None                      None          Why is each point in its own cluster?
       label(s)                  None          Why is it in this cluster, and in no other one?
       None                      label(s)      Why is it in its own cluster, and not in that one?
       label(s)                  label(s)      Why is it in this cluster, and not in that one?
       (label, row, column)      as above      The same, at one location of a map of features

3. The inputs are divided into blocks that fit into memory. Each is explained with its part of the question, and
   the results are joined in the order of the inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np
from torch import Tensor

from neonxc.common.progress import progress_bar
from neonxc.common.types import ArrayLike, Label
from neonxc.data.frames import in_order_of
from neonxc.data.inputs import as_array
from neonxc.data.table import Table
from neonxc.head.answer import OWN, Positions, Question, joined
from neonxc.network import NeuralizedClustering

Labels: TypeAlias = Label | ArrayLike
"""One label for all inputs, one for each, a tuple (label, row, column, ...), or None."""
Explain: TypeAlias = Callable[[Tensor, Question, slice], Iterator[Tensor]]
"""Explains a block of inputs [n, ...] by its part of the question; the slice tells which inputs these are.

The results come in parts, in the order of the inputs."""


def in_blocks(
    net: NeuralizedClustering, table: Table, explain: Explain, target: Labels = None, competitor: Labels = None
) -> Tensor:
    """Explain inputs block by block, and join the results [N, ...].

    Parameters
    ----------
    net : NeuralizedClustering
    table : Table
        Inputs as the network's ``inputs.read`` returns them.
    explain : callable
        Explains a block.
    target, competitor
        As for :meth:`neonxc.NEON.attribute`.
    """
    x = table.tensor
    n = len(x)
    target = in_order_of(target, table, "target")
    competitor = in_order_of(competitor, table, "competitor")
    blocks = net.inputs.blocks(x)
    if isinstance(target, tuple) and net.inputs.features(x[:1]).ndim < 3:
        target = list(target)  # points have no locations
    question = question_of(net, target, competitor)

    def explained() -> Iterator[Tensor]:
        bar = progress_bar(blocks, desc="NEON") if len(blocks) > 1 else blocks
        for block in bar:
            points = x[block]
            if not isinstance(points, Tensor):
                points = points.dense()
            yield from explain(points, question.of_block(block, n), block)

    return joined(explained(), n)


def question_of(net: NeuralizedClustering, target: Labels, competitor: Labels) -> Question:
    """Make the question about labels, one for all inputs or one for each."""
    if target is None and competitor is None:
        return OWN
    location = None
    if isinstance(target, tuple):
        target, *indices = target
        location = tuple(indices) or None
    target_position = net.positions(target)
    competitor_position = net.positions(competitor, "competitor")
    _check_different(target, target_position, competitor_position)
    return Question(target_position, competitor_position, location=location)


def _check_different(target: Labels, position: Positions | None, competitor: Positions | None) -> None:
    """Raise a ValueError if an input has the same target and competitor."""
    if position is None or competitor is None:
        return
    lengths = {np.shape(position), np.shape(competitor)} - {(), (1,)}
    if len(lengths) > 1:
        return  # where the inputs are known, another number of labels than that of inputs is an error
    is_same = np.asarray(position) == np.asarray(competitor)
    if np.any(is_same):
        labels = np.broadcast_to(as_array(target), np.shape(is_same))
        label = labels[is_same][0]
        raise ValueError(f"target and competitor are both {label}; a cluster does not compete with itself")
