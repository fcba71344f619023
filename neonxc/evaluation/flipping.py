"""Pixel-flipping: how soon a decision comes about as features are added, the most relevant ones first."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, Literal

import numpy as np
import torch
from sklearn.utils import check_random_state
from torch import Tensor, nn

from neonxc.blocks import at_once, network_bytes
from neonxc.evaluation.imputers import Imputer, default_imputer
from neonxc.inputs import as_batch
from neonxc.network import NeuralizedClustering
from neonxc.targets import as_columns


@dataclass(frozen=True)
class Flipping:
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
    auc_per_input: np.ndarray = field(repr=False)
    curve: np.ndarray = field(repr=False)
    logit_curve: np.ndarray = field(repr=False)
    logit_per_input: np.ndarray = field(repr=False)
    known: np.ndarray = field(repr=False)


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
        :class:`WordImputer` of X for word numbers, else zeros.
    repeats : int
        Fillings per step, of imputers that draw.
    groups : str, int or array of int, optional
        Features that are added together. "pixels": all channels of a place (the default for images), "channels":
        all places of a channel; a number: patches of so many pixels, squared; or group numbers from 0 to G - 1
        shaped like one input, or like X (superpixels).
        The relevance of a group is the sum over its features.
    target : int or array [N], optional
        Column of the cluster; default: each input's own.
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
    _check_options(mode, order, repeats, steps)
    x = inputs_of(net, X)
    groups = groups_of(own_groups(net) if groups is None else groups, x)
    ranking = _ranking(_of_inputs(net, relevance), x, groups, order)
    imputer = imputer or default_imputer(net, x)
    repeats = repeats if imputer.random else 1
    n, G = ranking.shape
    ends = np.unique(np.round(np.linspace(0, G, (steps or G) + 1)).astype(int))
    columns = targets_of(net, x, target)
    hits = torch.zeros(n, len(ends) - 1, dtype=torch.float64)
    logits = torch.zeros_like(hits)
    seed = int(check_random_state(random_state).randint(2**31 - 1))
    K = _width(net, x)
    for rows, at_a_time in _blocks(net, x, imputer, repeats):
        generator = torch.Generator(x.device).manual_seed(seed + rows.start)
        filling = imputer.start(x[rows])
        flipped_at = _steps(ranking[rows], ends, groups if groups.ndim == 1 else groups[rows])
        for some in torch.arange(len(ends) - 1, device=x.device).split(at_a_time):
            flipped = flipped_at <= some[:, None, None]
            filled = filling.fill(flipped if mode == "insert" else ~flipped, repeats, generator)
            found = net(filled.reshape(-1, *x.shape[1:])).view(len(some), repeats, -1, K)
            own = columns[rows].expand(len(some), repeats, -1)
            at = (slice(rows.start, rows.stop), slice(int(some[0]), int(some[-1]) + 1))
            hits[at] = (found.argmax(3) == own).double().mean(1).T.cpu()
            logits[at] = found.gather(3, own[..., None])[..., 0].double().mean(1).T.cpu()
    return _result(hits, logits, ends[1:] / G if mode == "insert" else 1 - ends[1:] / G)


def fixed_seed(random_state: Any) -> int:
    """A number, with which several calls of :func:`pixel_flipping` draw the same; one that is given stays."""
    if isinstance(random_state, Integral):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def _result(hits: Tensor, logits: Tensor, known: np.ndarray) -> Flipping:
    per_input = 100 * hits.mean(1)
    error = float(per_input.std()) / math.sqrt(len(per_input)) if len(per_input) > 1 else math.nan
    return Flipping(
        float(per_input.mean()),
        error,
        per_input.numpy(),
        hits.mean(0).numpy(),
        logits.mean(0).numpy(),
        logits.numpy(),
        known,
    )


def inputs_of(net: nn.Module, X: Any) -> Tensor:
    """Checked inputs of a network, on its device."""
    return net.batch(X).tensor if isinstance(net, NeuralizedClustering) else as_batch(X).tensor


def own_groups(net: nn.Module) -> Tensor | None:
    """Group numbers of the inputs' columns, if a network has units of flipping of its own."""
    return net.carrier.groups if isinstance(net, NeuralizedClustering) else None


def targets_of(net: nn.Module, x: Tensor, target: Any) -> Tensor:
    """Columns [N] of the clusters that are to be explained; None: each input's own."""
    if target is None:
        return torch.cat([net(part).argmax(1) for part in x.split(room(net, x))])
    return as_columns(target, len(x), _width(net, x), "target", x.device)


def _width(net: nn.Module, x: Tensor) -> int:
    if isinstance(net, NeuralizedClustering):
        return net.head.n_clusters
    logits = net(x[:1])
    if logits.ndim != 2:
        raise ValueError(f"net needs logits [N, K], one decision per input, got shape {list(logits.shape)}")
    return int(logits.shape[1])


def room(net: nn.Module, x: Tensor) -> int:
    """Inputs that a network may be given at once."""
    if isinstance(net, NeuralizedClustering) and net.features is None:
        return at_once(4 * x.element_size() * net.head.width, x.device)
    return at_once(network_bytes(x), x.device)


def _blocks(net: nn.Module, x: Tensor, imputer: Imputer, repeats: int) -> Iterator[tuple[slice, int]]:
    """Parts of the inputs, and steps, that memory has room for at once."""
    most = room(net, x)
    size = max(1, min(most // repeats, imputer.points_at_once(), len(x)))
    for first in range(0, len(x), size):
        yield slice(first, min(first + size, len(x))), max(1, most // (repeats * size))


def groups_of(groups: Any, x: Tensor) -> Tensor:
    """Group numbers of the flattened features, [D] or [N, D]."""
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
    """Group numbers of squares, row by row; the last ones may be cut off."""
    if x.ndim != 4 or size < 1:
        raise ValueError(f"groups={size} needs images [N, C, H, W] and a size of at least 1, got {list(x.shape)}")
    rows, columns = (torch.arange(length, device=x.device) // size for length in x.shape[2:])
    numbers = rows[:, None] * (int(columns[-1]) + 1) + columns
    return numbers.expand(x.shape[1:]).flatten()


def group_sums(relevance: Tensor, groups: Tensor) -> Tensor:
    """Relevance [N, G] of groups, from that of flattened features [N, D]."""
    total = relevance.new_zeros(len(relevance), int(groups.max()) + 1)
    return total.scatter_add_(1, groups.expand_as(relevance), relevance)


def _of_inputs(net: nn.Module, relevance: Any) -> Any:
    """Relevance of what the caller has, as that of the inputs' columns."""
    return net.carrier.spread(relevance) if isinstance(net, NeuralizedClustering) else relevance


def _ranking(relevance: Any, x: Tensor, groups: Tensor, order: str) -> Tensor:
    """Groups [N, G] in the order in which they are flipped."""
    values = as_batch(relevance, name="relevance", device=x.device).tensor
    G = int(groups.max()) + 1
    if values.shape == x.shape:
        values = group_sums(values.flatten(1).double(), groups)
    elif values.shape != (len(x), G):
        raise ValueError(
            f"relevance needs the shape of X, {list(x.shape)}, or of groups, [{len(x)}, {G}]; "
            f"got {list(values.shape)}"
        )
    return values.argsort(dim=1, descending=order == "most", stable=True)


def _steps(ranking: Tensor, ends: np.ndarray, groups: Tensor) -> Tensor:
    """The step [B, D] in which each feature is flipped; `ranking` [B, G] are the groups in order."""
    lengths = torch.as_tensor(np.diff(ends), device=ranking.device)
    numbers = torch.arange(len(lengths), device=ranking.device).repeat_interleave(lengths)
    of_group = torch.empty_like(ranking).scatter_(1, ranking, numbers.expand_as(ranking))
    return of_group.gather(1, groups.expand(len(ranking), -1))


def _check_options(mode: str, order: str, repeats: int, steps: int | None) -> None:
    if mode not in ("insert", "remove"):
        raise ValueError(f'mode needs "insert" or "remove", got {mode!r}')
    if order not in ("most", "least"):
        raise ValueError(f'order needs "most" or "least", got {order!r}')
    for name, value in (("repeats", repeats), ("steps", 1 if steps is None else steps)):
        if not isinstance(value, (int, np.integer)) or value < 1:
            raise ValueError(f"{name} needs a whole number >= 1, got {value!r}")
