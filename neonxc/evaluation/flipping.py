"""Pixel-flipping: how soon a decision comes about as features are added, the most relevant ones first.

The NEON paper's Algorithm 1, here for N inputs, groups of features, and steps of several groups:

1. Features are ranked by their relevance, groups of features by the sum over their features (Algorithm 1 takes one
   feature at a time). Step s adds the groups of rank e_(s-1) to e_s - 1, where 0 = e_0 < ... < e_S = G are spaced
   about evenly.
2. After step s, the features that are added so far are known. The others are drawn by an imputer, `repeats` times.
   (mode="remove" swaps the known features and the others.)
3. hits[i, s]    fraction of the repeats in which the largest logit of input i is that of its target
   logits[i, s]  mean over the repeats of the logit of its target
4. AUC of input i = 100 mean_s hits[i, s], and the AUC is the mean of these over the inputs.

Algorithm 1 returns 100 / d times the area under the curve, which is the mean over d steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Literal

import numpy as np
import pandas as pd
import torch
from sklearn.utils import check_random_state
from torch import Tensor, nn

from neonxc.common.arguments import check_whole
from neonxc.common.memory import at_once, network_bytes
from neonxc.common.modules import evaluated
from neonxc.common.numbers import mean_error, plural
from neonxc.common.result import Result
from neonxc.common.targets import as_positions
from neonxc.common.types import ArrayLike, Label, RandomState, TableLike
from neonxc.data.table import Table
from neonxc.evaluation.imputers import Imputer, imputer_of
from neonxc.inputs import Inputs, inputs_of
from neonxc.inputs.groups import groups_of
from neonxc.network import NeuralizedClustering


@dataclass(frozen=True, repr=False)
class Flipping(Result):
    """A curve of pixel-flipping, and the area under it.

    Attributes
    ----------
    auc : float
        100 times the mean of `curve`: 0 ... 100.
    auc_stderr : float
        Standard error of `auc` over the inputs; the AUC of an input is the mean over its repeats.
    auc_per_input : ndarray [N]
        AUC of each input.
    curve : ndarray [steps]
        Fraction of the inputs (and repeats) that are in the target cluster after each step.
    logit_curve : ndarray [steps]
        Mean logit of the target after each step.
    logit_per_input : ndarray [N, steps]
        Logit of each input's target after each step, the mean over the repeats.
    known : ndarray [steps]
        Fraction of the features (groups) that are known after each step.
    """

    auc: float
    auc_stderr: float
    auc_per_input: np.ndarray
    curve: np.ndarray
    logit_curve: np.ndarray
    logit_per_input: np.ndarray
    known: np.ndarray

    def to_frame(self) -> pd.DataFrame:
        """Return one row per step.

        Returns
        -------
        DataFrame
            Index: the step, from 1. Columns: "known", "curve" and "logit" (`logit_curve`), as in the attributes.
        """
        steps = pd.RangeIndex(1, len(self.curve) + 1, name="step")
        columns = {"known": self.known, "curve": self.curve, "logit": self.logit_curve}
        return pd.DataFrame(columns, steps)

    def _remarks(self) -> list[str]:
        n_inputs = plural(len(self.auc_per_input), "input")
        return [f"AUC {self.auc:.2f} ± {self.auc_stderr:.2f} ({n_inputs})"]


@torch.no_grad()
def pixel_flipping(
    net: nn.Module,
    X: TableLike,
    relevance: TableLike,
    imputer: Imputer | None = None,
    repeats: int = 10,
    *,
    groups: str | int | ArrayLike | None = None,
    target: Label | ArrayLike | None = None,
    mode: Literal["insert", "remove"] = "insert",
    order: Literal["most", "least"] = "most",
    steps: int | None = None,
    random_state: RandomState = 0,
) -> Flipping:
    """Compute the curve of pixel-flipping and the area under it (NEON paper, Algorithm 1).

    Parameters
    ----------
    net : nn.Module
        A network from inputs to logits [N, K], such as :func:`neonxc.neuralize` makes. An input belongs to the
        cluster of its largest logit.
    X : array, frame or tensor [N, ...]
    relevance : array, frame or tensor, shaped like X, or [N, G] with `groups`
        Relevance of the features of X for the target.
    imputer : Imputer, optional
        Fills in missing features. The default is a :class:`KDEImputer` of X for points [N, d], a
        :class:`WordImputer` of X for word numbers, and zeros for all else. If there are more than 4000 inputs, the
        first two know 4000 of them, drawn at random.
    repeats : int
        Number of draws per step, for imputers that draw.
    groups : str, int or array of int, optional
        Features that are added together. "pixels": all channels of a pixel (the default for images), "channels":
        all pixels of a channel; a number: square patches with a side of so many pixels; or group numbers from 0 to
        G - 1 shaped like one input, or like X (superpixels).
        The relevance of a group is the sum over its features.
    target : label or array [N] of labels, optional
        Label of the cluster (for another network, the number of its output). By default, the target of an input is
        the cluster that it is assigned to.
    mode : {"insert", "remove"}
        Whether features are added to an input of which nothing is known, or taken away from a known input.
    order : {"most", "least"}
        Whether the most or the least relevant features come first.
    steps : int, optional
        Number of steps, in each of which about equally many groups are added; default: one group per step.
    random_state : int, RandomState or None
        Seed of the draws. The same number gives the same draws for any relevance, so that methods are compared on
        common random numbers.

    Returns
    -------
    Flipping

    Raises
    ------
    ValueError
        If relevance or groups have another shape, a target is not a cluster, or an option is unknown.
    """
    if mode not in ("insert", "remove"):
        raise ValueError(f'mode needs "insert" or "remove", got {mode!r}')
    if order not in ("most", "least"):
        raise ValueError(f'order needs "most" or "least", got {order!r}')
    check_whole("repeats", repeats)
    check_whole("steps", steps, optional=True)
    inputs = inputs_of(net)
    table = inputs.dense(X)
    x: Tensor = table.tensor
    values = relevance_of_inputs(inputs, relevance, table)
    imputer = imputer_of(imputer, inputs, x)
    positions = targets_of(net, x, target)
    group_numbers = groups_of(net, groups, x)
    seed = fixed_seed(random_state)
    return flipped(net, x, values, imputer, repeats, group_numbers, positions, mode, order, steps, seed)


@torch.no_grad()
def flipped(
    net: nn.Module,
    x: Tensor,
    relevance: Tensor,
    imputer: Imputer,
    repeats: int,
    groups: Tensor,
    target: Tensor,
    mode: str,
    order: str,
    steps: int | None,
    seed: int,
    weight: np.ndarray | None = None,
) -> Flipping:
    """Compute the curve of :func:`pixel_flipping` on arguments that are read.

    Parameters
    ----------
    x : Tensor [N, ...]
        The inputs as the network computes on them.
    relevance : Tensor, shaped like x, or [N, G]
    groups : Tensor [D] or [N, D]
        The group of every feature, as :func:`groups_of` returns them.
    target : Tensor [N]
        Positions of the clusters among the outputs.
    weight : ndarray [N], optional
        Weights of the inputs, for the means over them.
    """
    groups = groups.expand(len(x), -1)  # [N, D]
    n_groups = int(groups.max()) + 1
    n_steps = steps or n_groups
    ends = np.linspace(0, n_groups, n_steps + 1)
    ends = np.unique(np.round(ends).astype(int))  # e_0 ... e_S; steps without a group are left out
    group_steps = flipping_steps(relevance, x, groups, ends, order)  # [N, G]

    def known(rows: slice, block: Tensor) -> Tensor:
        feature_steps = group_steps[rows].gather(1, groups[rows])  # [B, D]
        is_flipped = feature_steps <= block[:, None, None]  # [S, B, D]
        return is_flipped if mode == "insert" else ~is_flipped

    draw_seed = int(check_random_state(seed).randint(2**31 - 1))
    hits, logits = imputed_decisions(net, x, target, known, len(ends) - 1, imputer, repeats, draw_seed)
    auc_per_input = 100 * hits.mean(1).numpy()
    auc, auc_stderr = mean_error(auc_per_input, weight)

    fraction = ends[1:] / n_groups
    if mode == "remove":
        fraction = 1 - fraction
    return Flipping(
        auc,
        auc_stderr,
        auc_per_input,
        _mean(hits, weight),
        _mean(logits, weight),
        logits.numpy(),
        fraction,
    )


def _mean(values: Tensor, weight: np.ndarray | None) -> np.ndarray:
    """Average values [N, steps] over the inputs, which may have weights [N]."""
    if weight is None:
        return values.mean(0).numpy()
    return np.average(values.numpy(), axis=0, weights=weight)


@torch.no_grad()
def imputed_decisions(
    net: nn.Module,
    x: Tensor,
    target: Tensor,
    known: Callable[[slice, Tensor], Tensor],
    steps: int,
    imputer: Imputer,
    repeats: int,
    seed: int,
) -> tuple[Tensor, Tensor]:
    """Compute hits and logits [N, steps] of inputs of which other features are imputed in each step.

    `known` returns which features [S, B, D] of a slice of B inputs are known in each of S steps. The hits are the
    fraction of the repeats in which an input is assigned to its target, and the logits are the mean logit of its
    target.
    """
    if not imputer.random:
        repeats = 1
    n_at_once = batch_size(net, x)
    n_rows = max(1, min(n_at_once // repeats, imputer.points_at_once(), len(x)))
    n_steps = max(1, n_at_once // (repeats * n_rows))
    step_blocks = torch.arange(steps, device=x.device).split(n_steps)

    hits = torch.zeros(len(x), steps, dtype=torch.float64)
    logits = torch.zeros_like(hits)
    for first in range(0, len(x), n_rows):
        rows = slice(first, first + n_rows)
        generator = torch.Generator(x.device).manual_seed(seed + first)
        filling = imputer.start(x[rows])
        for block in step_blocks:
            filled = filling.fill(known(rows, block), repeats, generator)  # [S, repeats, B, D]
            outputs = net(filled.reshape(-1, *x.shape[1:])).unflatten(0, filled.shape[:3])  # [S, repeats, B, K]
            targets = target[rows].expand(outputs.shape[:3])
            is_hit = outputs.argmax(3) == targets
            target_logits = outputs.gather(3, targets[..., None])[..., 0]

            columns = block.cpu()
            hits[rows, columns] = is_hit.double().mean(1).T.cpu()
            logits[rows, columns] = target_logits.double().mean(1).T.cpu()
    return hits, logits


def fixed_seed(random_state: RandomState) -> int:
    """Return a number with which several calls draw the same: the number that was passed, or one drawn once."""
    if isinstance(random_state, Integral):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


@torch.no_grad()
def targets_of(net: nn.Module, x: Tensor, target: Label | ArrayLike | None) -> Tensor:
    """Return the positions [N] of the target clusters from labels; None selects the cluster of each input."""
    logits = evaluated(net, x[:1])
    if logits.ndim != 2:
        raise ValueError(f"net needs logits [N, K], one decision per input, got shape {list(logits.shape)}")
    if target is None:
        blocks = x.split(batch_size(net, x))
        if isinstance(net, NeuralizedClustering):
            return torch.cat([net.assign(block) for block in blocks])
        return torch.cat([net(block).argmax(1) for block in blocks])  # any classifier: the largest logit
    if isinstance(net, NeuralizedClustering):
        target = net.positions(target)
    return as_positions(target, len(x), logits.shape[1], "target", x.device)


def batch_size(net: nn.Module, x: Tensor) -> int:
    """Return the number of inputs that a network may compute on at once."""
    if isinstance(net, NeuralizedClustering) and net.features is None:
        return at_once(4 * x.element_size() * net.head.width, x.device)
    return at_once(network_bytes(x), x.device)


def relevance_of_inputs(inputs: Inputs, relevance: TableLike, table: Table, name: str = "relevance") -> Tensor:
    """Return relevance of a network's inputs from that of the user's columns; data frames are matched by name."""
    names = table.column_names or inputs.names
    aligned = Table.read(relevance, name=name).aligned(names, table)
    return inputs.spread(aligned).to(table.tensor.device)


def flipping_steps(relevance: Tensor, x: Tensor, groups: Tensor, ends: np.ndarray, order: str) -> Tensor:
    """Return the step in which each group is flipped, [N, G].

    `groups` [N, D] is the group of each feature; `ends` [steps + 1] is the number of groups that are flipped after
    each step, beginning with 0.
    """
    sums = group_sums(relevance, x, groups)
    # a stable order, so that ties go to the group with the smaller number
    ranking = sums.argsort(dim=1, descending=order == "most", stable=True)
    n_steps = len(ends) - 1
    steps = torch.from_numpy(np.arange(n_steps).repeat(np.diff(ends)))  # [G], of each rank
    return torch.empty_like(ranking).scatter_(1, ranking, steps.to(ranking).expand_as(ranking))


def group_sums(relevance: Tensor, x: Tensor, groups: Tensor) -> Tensor:
    """Sum relevance of features over their groups [N, D], to [N, G]; relevance of groups is returned as it is."""
    n_groups = int(groups.max()) + 1
    if relevance.shape == x.shape:
        relevance = relevance.flatten(1).double()
        return relevance.new_zeros(len(x), n_groups).scatter_add_(1, groups, relevance)
    if relevance.shape != (len(x), n_groups):
        raise ValueError(
            f"relevance needs the shape of X, {list(x.shape)}, or of groups, [{len(x)}, {n_groups}]; "
            f"got {list(relevance.shape)}"
        )
    return relevance
