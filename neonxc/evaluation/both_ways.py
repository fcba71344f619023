"""Insertion and removal of several methods, compared at the cost of little more than one.

With the groups of features in steps 1 ... S, the most relevant first, and K_s, the groups of the first s steps:

    inserted    after step s, the groups K_s are known
    removed     after step s, all groups but K_s are known

Both ways of all methods share what they can: the distances of an imputer to known features are those to all
features less those to the others, and noise is drawn once. The curve of removal is in the order S - 1 ... 0 of
the removed steps, so that both curves end with everything known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from neonxc.evaluation.flipping import batch_size, flipping_steps
from neonxc.evaluation.imputers import Imputer


class BothWays(NamedTuple):
    """Fractions of the repeats in which inputs are assigned to their targets."""

    fraction: np.ndarray  # [S], of the groups in K_1 ... K_S
    inserted: Tensor  # [N, S], K_1 ... K_S are known
    removed: Tensor  # [N, S], all but K_(S - 1) ... K_0 are known


@torch.no_grad()
def both_ways(
    net: nn.Module,
    x: Tensor,
    relevances: Mapping[str, Tensor],
    imputer: Imputer,
    repeats: int,
    groups: Tensor,
    target: Tensor,
    n_steps: int,
    seed: int,
) -> dict[str, BothWays]:
    """Flip the groups of inputs in the order of their relevance by several methods, given by name.

    The other arguments are those of :func:`neonxc.evaluation.flipping.flipped`.
    """
    groups = groups.expand(len(x), -1)  # [N, D]
    n_groups = int(groups.max()) + 1
    ends = np.linspace(0, n_groups, n_steps + 1)
    ends = np.unique(np.round(ends).astype(int))
    n_steps = len(ends) - 1
    if not imputer.random:
        repeats = 1
    fraction = ends[1:] / n_groups
    # both curves end with everything known; all other columns are computed below
    is_target = (net(x).argmax(1) == target).double().cpu()[:, None]
    results = {name: BothWays(fraction, *is_target.repeat(2, 1, n_steps)) for name in relevances}

    n_at_once = max(1, batch_size(net, x) // (2 * repeats))
    n_inputs = max(1, min(n_at_once, imputer.points_at_once()))
    n_blocks = max(1, n_at_once // n_inputs)  # of steps
    for first in range(0, len(x), n_inputs):
        rows = slice(first, first + n_inputs)
        filling = imputer.start(x[rows])
        for name, relevance in relevances.items():
            steps = flipping_steps(relevance[rows], x[rows], groups[rows], ends, "most")
            steps = steps.gather(1, groups[rows])  # [B, D], of the features
            generator = torch.Generator(x.device).manual_seed(seed + first)
            for block in torch.arange(1, n_steps, device=x.device).split(n_blocks):
                known = steps < block[:, None, None]  # [S, B, D]
                filled = filling.fill_both(known, repeats, generator)  # [2, S, repeats, B, D]
                outputs = net(filled.reshape(-1, *x.shape[1:])).unflatten(0, filled.shape[:4])
                hits = (outputs.argmax(4) == target[rows]).double().mean(2).cpu()  # [2, S, B]
                after = block.cpu()
                results[name].inserted[rows, after - 1] = hits[0].T
                results[name].removed[rows, n_steps - 1 - after] = hits[1].T
    return results
