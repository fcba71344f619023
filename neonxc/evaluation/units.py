"""Units of pixel-flipping: groups of features, and the order in which they are flipped."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from neonxc.data.table import Table
from neonxc.network import NeuralizedClustering


def groups_of(net: nn.Module, groups: Any, x: Tensor) -> Tensor:
    """Return the group numbers of the flattened features, [D] or [N, D]; by default those of the network."""
    shape = x.shape[1:]
    if groups is None and isinstance(net, NeuralizedClustering):
        groups = net.carrier.groups
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


def spread(net: nn.Module, relevance: Any) -> Any:
    """Return relevance of the network's input columns from that of the caller's columns."""
    return net.carrier.spread(relevance) if isinstance(net, NeuralizedClustering) else relevance


def flipping_steps(
    net: nn.Module, relevance: Any, x: Tensor, groups: Tensor, ends: np.ndarray, order: str
) -> Tensor:
    """Return the step in which each group is flipped, [N, G].

    `groups` [N, D] has the group of each feature; `ends` [steps + 1] is the number of groups that are flipped
    after each step, beginning with 0.
    """
    values, number = Table.read(spread(net, relevance), name="relevance").tensor.to(x.device), int(ends[-1])
    if values.shape == x.shape:
        values = values.flatten(1).double()
        values = values.new_zeros(len(x), number).scatter_add_(1, groups, values)
    elif values.shape != (len(x), number):
        raise ValueError(
            f"relevance needs the shape of X, {list(x.shape)}, or of groups, [{len(x)}, {number}]; "
            f"got {list(values.shape)}"
        )
    ranking = values.argsort(dim=1, descending=order == "most", stable=True)
    steps = torch.as_tensor(np.repeat(np.arange(len(ends) - 1), np.diff(ends)), device=x.device)
    return torch.empty_like(ranking).scatter_(1, ranking, steps.expand_as(ranking))
