"""Units of pixel-flipping: groups of features, and the order in which they are flipped."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from neonxc.data.inputs import as_batch
from neonxc.network import NeuralizedClustering


def own_groups(net: nn.Module) -> Tensor | None:
    """Return the group numbers of the inputs' columns if the network defines groups."""
    return net.carrier.groups if isinstance(net, NeuralizedClustering) else None


def groups_of(groups: Any, x: Tensor) -> Tensor:
    """Return the group numbers of the flattened features, [D] or [N, D]."""
    shape = x.shape[1:]
    if groups is None:
        groups = "pixels" if x.ndim > 2 else torch.arange(shape[0])
    if isinstance(groups, str):
        if groups not in ("pixels", "channels") or x.ndim < 3:
            raise ValueError(
                f'groups needs "pixels" or "channels" (of maps [N, C, ...]) or numbers, got {groups!r}'
            )
        places = shape[1:].numel()
        numbers = torch.arange(places)[None] if groups == "pixels" else torch.arange(shape[0])[:, None]
        return numbers.expand(shape[0], places).flatten().to(x.device)
    if isinstance(groups, Integral):
        return _patches(int(groups), x)
    numbers = torch.as_tensor(groups, device=x.device)
    if numbers.is_floating_point() or numbers.shape not in (shape, x.shape) or int(numbers.min()) < 0:
        raise ValueError(
            f"groups needs whole numbers >= 0 shaped like an input, {list(shape)}, or like X; "
            f"got {numbers.dtype} {list(numbers.shape)}"
        )
    return numbers.long().flatten(-len(shape))


def _patches(size: int, x: Tensor) -> Tensor:
    """Return the group numbers of square patches, row by row; the last patches may be smaller."""
    if x.ndim != 4 or size < 1:
        raise ValueError(f"groups={size} needs images [N, C, H, W] and a size of at least 1, got {list(x.shape)}")
    rows, columns = (torch.arange(length, device=x.device) // size for length in x.shape[2:])
    numbers = rows[:, None] * (int(columns[-1]) + 1) + columns
    return numbers.expand(x.shape[1:]).flatten()


def group_sums(relevance: Tensor, groups: Tensor, number: int) -> Tensor:
    """Sum the relevance of flattened features [N, D] by group, [N, number]."""
    total = relevance.new_zeros(len(relevance), number)
    return total.scatter_add_(1, groups.expand_as(relevance), relevance)


def ranking_of(net: nn.Module, relevance: Any, x: Tensor, groups: Tensor, number: int, order: str) -> Tensor:
    """Return the groups in the order in which they are flipped, [N, number]."""
    own = net.carrier.spread(relevance) if isinstance(net, NeuralizedClustering) else relevance
    values = as_batch(own, name="relevance", device=x.device).tensor
    if values.shape == x.shape:
        values = group_sums(values.flatten(1).double(), groups, number)
    elif values.shape != (len(x), number):
        raise ValueError(
            f"relevance needs the shape of X, {list(x.shape)}, or of groups, [{len(x)}, {number}]; "
            f"got {list(values.shape)}"
        )
    return values.argsort(dim=1, descending=order == "most", stable=True)


@dataclass(frozen=True)
class Order:
    """The order in which features are flipped, and the steps."""

    ranking: Tensor  # [N, G]: groups in the order of flipping
    groups: Tensor  # [D] or [N, D]: group of every feature
    ends: np.ndarray  # [steps + 1]: number of flipped groups after each step, beginning with 0

    def flipped_at(self, rows: slice) -> Tensor:
        """Return the step [B, D] in which each feature of B inputs is flipped."""
        ranking = self.ranking[rows]
        groups = self.groups if self.groups.ndim == 1 else self.groups[rows]
        lengths = torch.as_tensor(np.diff(self.ends), device=ranking.device)
        numbers = torch.arange(len(lengths), device=ranking.device).repeat_interleave(lengths)
        of_group = torch.empty_like(ranking).scatter_(1, ranking, numbers.expand_as(ranking))
        return of_group.gather(1, groups.expand(len(ranking), -1))
