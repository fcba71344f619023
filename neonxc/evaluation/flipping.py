"""Pixel-flipping: how soon a decision comes about as features are added, the most relevant ones first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal

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
        Standard error of `auc` over the inputs (each input's own is its mean over the repeats).
    auc_per_input : ndarray [N]
    curve : ndarray [steps]
        Share of inputs (and repeats) in the target cluster after each step.
    logit_curve : ndarray [steps]
        Mean logit of the target after each step.
    logit_per_input : ndarray [N, steps]
    known : ndarray [steps]
        Share of the features (groups) that are known after each step.
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
        return pd.DataFrame({"known": self.known, "curve": self.curve, "logit": self.logit_curve}, steps)

    def _remarks(self) -> list[str]:
        return [f"AUC {self.auc:.2f} ± {self.auc_stderr:.2f} ({plural(len(self.auc_per_input), 'input')})"]


@torch.no_grad()
def pixel_flipping(
    net: nn.Module,
    X: Any,
    relevance: Any,
    imputer: Imputer | None = None,
    repeats: int = 10,
    *,
    groups: Any = None,
    target: Any = None,
    mode: Literal["insert", "remove"] = "insert",
    order: Literal["most", "least"] = "most",
    steps: int | None = None,
    random_state: Any = 0,
) -> Flipping:
    """Area under the pixel-flipping curve (NEON paper, Algorithm 1).

    Parameters
    ----------
    net : nn.Module
        Inputs to logits [N, K], such as :func:`neonxc.neuralize` makes: the greatest one decides.
    X : array, frame or tensor [N, ...]
    relevance : array, frame or tensor, shaped like X, or [N, G] with `groups`
        Of X's features, for the target.
    imputer : Imputer, optional
        What stands in for missing features; default: a :class:`KDEImputer` of X for points [N, d], a
        :class:`WordImputer` of X for word numbers, else zeros. The first two know 4000 inputs, drawn at random,
        if there are more.
    repeats : int
        Fillings per step, of imputers that draw.
    groups : str, int or array of int, optional
        Features that are added together. "pixels": all channels of a place (the default for images), "channels":
        all places of a channel; a number: patches of so many pixels, squared; or group numbers from 0 to G - 1
        shaped like one input, or like X (superpixels).
        The relevance of a group is the sum over its features.
    target : label or array [N] of labels, optional
        Label of the cluster (for another network, the number of its output); default: each input's own.
    mode : {"insert", "remove"}
        Start from nothing and add features, or from the input and take them away.
    order : {"most", "least"}
        The most relevant first, or the least relevant.
    steps : int, optional
        Number of steps, of about equally many groups; default: one group at a time.
    random_state : int, RandomState or None
        The same number gives the same draws, for any relevance: methods are compared on common random numbers.

    Returns
    -------
    Flipping

    Raises
    ------
    ValueError
        Relevance or groups of another shape, a target that is no column, unknown options.
    """
    if mode not in ("insert", "remove"):
        raise ValueError(f'mode needs "insert" or "remove", got {mode!r}')
    if order not in ("most", "least"):
        raise ValueError(f'order needs "most" or "least", got {order!r}')
    check_whole("repeats", repeats)
    check_whole("steps", steps, optional=True)
    inputs = inputs_of(net)
    table = inputs_of(net).dense(X)
    x: Tensor = table.tensor
    values = relevance_of_inputs(inputs, relevance, table)
    imputer = imputer_of(imputer, inputs, x)
    positions = targets_of(net, x, target)
    groups = groups_of(net, groups, x)
    seed = fixed_seed(random_state)
    return flipped(net, x, values, imputer, repeats, groups, positions, mode, order, steps, seed)


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
    """:func:`pixel_flipping` of what a network computes on; targets are positions, groups as of `groups_of`.

    Means over the inputs may have weights [N].
    """
    groups = groups.expand(len(x), -1)
    number = int(groups.max()) + 1
    ends = np.unique(np.round(np.linspace(0, number, (steps or number) + 1)).astype(int))
    flipped_in = _flipping_steps(relevance, x, groups, ends, order)

    def known(rows: slice, block: Tensor) -> Tensor:
        flipped = flipped_in[rows].gather(1, groups[rows]) <= block[:, None, None]
        return flipped if mode == "insert" else ~flipped

    draw = int(check_random_state(seed).randint(2**31 - 1))
    hits, logits = asked_again(net, x, target, known, len(ends) - 1, imputer, repeats, draw)
    per_input = 100 * hits.mean(1).numpy()
    share = ends[1:] / number
    return Flipping(
        *mean_error(per_input, weight),
        per_input,
        _mean(hits, weight),
        _mean(logits, weight),
        logits.numpy(),
        share if mode == "insert" else 1 - share,
    )


def _mean(values: Tensor, weight: np.ndarray | None) -> np.ndarray:
    """Mean [steps] of values [N, steps] over the inputs, which may have weights [N]."""
    if weight is None:
        return values.mean(0).numpy()
    return np.average(values.numpy(), axis=0, weights=weight)


@torch.no_grad()
def asked_again(
    net: nn.Module,
    x: Tensor,
    target: Tensor,
    known: Callable[[slice, Tensor], Tensor],
    steps: int,
    imputer: Imputer,
    repeats: int,
    seed: int,
) -> tuple[Tensor, Tensor]:
    """Ask a network again, in each step with other features of its inputs replaced.

    `known` returns which features [S, B, D] of some inputs stay in some of the steps. Returns the share of repeats
    in which an input is in its target, and the mean logit of its target, [N, steps].
    """
    repeats = repeats if imputer.random else 1
    most = room(net, x)
    hits = torch.zeros(len(x), steps, dtype=torch.float64)
    logits = torch.zeros_like(hits)
    size = max(1, min(most // repeats, imputer.points_at_once(), len(x)))
    for first in range(0, len(x), size):
        rows = slice(first, first + size)
        generator = torch.Generator(x.device).manual_seed(seed + first)
        filling = imputer.start(x[rows])
        for block in torch.arange(steps, device=x.device).split(max(1, most // (repeats * size))):
            filled = filling.fill(known(rows, block), repeats, generator)
            outputs = net(filled.reshape(-1, *x.shape[1:])).unflatten(0, filled.shape[:3])
            targets = target[rows].expand(outputs.shape[:3])
            entries = rows, block.cpu()
            hits[entries] = (outputs.argmax(3) == targets).double().mean(1).T.cpu()
            logits[entries] = outputs.gather(3, targets[..., None])[..., 0].double().mean(1).T.cpu()
    return hits, logits


def fixed_seed(random_state: Any) -> int:
    """A number, with which several calls of :func:`pixel_flipping` draw the same; one that is given stays."""
    if isinstance(random_state, Integral):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


@torch.no_grad()
def targets_of(net: nn.Module, x: Tensor, target: Any) -> Tensor:
    """Positions [N] of the clusters that are to be explained, from labels; None: each input's own."""
    logits = evaluated(net, x[:1])
    if logits.ndim != 2:
        raise ValueError(f"net needs logits [N, K], one decision per input, got shape {list(logits.shape)}")
    if target is None:
        blocks = x.split(room(net, x))
        if isinstance(net, NeuralizedClustering):
            return torch.cat([net.assign(block) for block in blocks])
        return torch.cat([net(block).argmax(1) for block in blocks])  # any classifier: the largest logit
    if isinstance(net, NeuralizedClustering):
        target = net.positions(target)
    return as_positions(target, len(x), logits.shape[1], "target", x.device)


def room(net: nn.Module, x: Tensor) -> int:
    """Inputs that a network may be given at once."""
    if isinstance(net, NeuralizedClustering) and net.features is None:
        return at_once(4 * x.element_size() * net.head.width, x.device)
    return at_once(network_bytes(x), x.device)


def relevance_of_inputs(inputs: Inputs, relevance: Any, table: Table, name: str = "relevance") -> Tensor:
    """Return relevance of a network's inputs from that of the caller's columns; frames go by their names."""
    names = table.names or inputs.names
    return inputs.spread(Table.read(relevance, name=name).aligned(names, table)).to(table.tensor.device)


def _flipping_steps(values: Tensor, x: Tensor, groups: Tensor, ends: np.ndarray, order: str) -> Tensor:
    """Return the step in which each group is flipped, [N, G].

    `groups` [N, D] has the group of each feature; `ends` [steps + 1] is the number of groups that are flipped
    after each step, beginning with 0.
    """
    ranking = group_sums(values, x, groups).argsort(dim=1, descending=order == "most", stable=True)
    steps = torch.as_tensor(np.arange(len(ends) - 1).repeat(np.diff(ends)), device=x.device)
    return steps[ranking.argsort(1)]  # of each group's rank


def group_sums(relevance: Tensor, x: Tensor, groups: Tensor) -> Tensor:
    """Relevance [N, G] of groups, which `groups` [N, D] has for each feature; that of groups stays as it is."""
    number = int(groups.max()) + 1
    if relevance.shape == x.shape:
        relevance = relevance.flatten(1).double()
        return relevance.new_zeros(len(x), number).scatter_add_(1, groups, relevance)
    if relevance.shape != (len(x), number):
        raise ValueError(
            f"relevance needs the shape of X, {list(x.shape)}, or of groups, [{len(x)}, {number}]; "
            f"got {list(relevance.shape)}"
        )
    return relevance
