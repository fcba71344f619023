"""The task of :func:`neonxc.counterfactual`: points, their targets, and constraints on the changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neonxc.common.arguments import listed, similar
from neonxc.data.frames import is_path
from neonxc.data.inputs import as_array, spreads
from neonxc.inputs.space import Space
from neonxc.network import NeuralizedClustering


@dataclass(frozen=True)
class Task:
    """Points and the constraints on their changes.

    Attributes
    ----------
    x : Tensor [n, d] of float64
        The points.
    dtype : torch.dtype
        The dtype in which the points were given and are returned.
    wanted : Tensor [n, K] of bool
        The clusters that are targets of each point; it has to reach one of them.
    spread : Tensor [d] of float64
        Units of the changes.
    low, high : Tensor [d] of float64
        Bounds of the columns, whole numbers where these are needed.
    fixed, integer : Tensor [d] of bool
        Columns that can't change, and columns that need whole numbers.
    most : int or None
        Largest number of columns of a point that may change.
    """

    x: Tensor
    dtype: torch.dtype
    wanted: Tensor
    spread: Tensor
    low: Tensor
    high: Tensor
    fixed: Tensor
    integer: Tensor
    most: int | None

    def take(self, subset: Tensor | slice) -> Task:
        """Return the task of some of the points."""
        return replace(self, x=self.x[subset], wanted=self.wanted[subset])

    @property
    def discrete(self) -> bool:
        """Whether the problem has discrete choices: whole numbers, or columns to change."""
        return self.most is not None or bool(self.integer.any())

    def box(self) -> tuple[Tensor, Tensor]:
        """Return the lower and upper bounds [n, d] of the changes, in units of `spread`."""
        low, high = ((end - self.x) / self.spread for end in (self.low, self.high))
        return torch.where(self.fixed, 0.0, low), torch.where(self.fixed, 0.0, high)

    def moved(self, u: Tensor) -> Tensor:
        """Return the points [n, d] after changes u, in units of `spread`."""
        y = torch.where(u == 0, self.x, (self.x + u * self.spread).clamp(self.low, self.high))
        return torch.where(self.integer, y.round(), y)

    def distance(self, y: Tensor) -> Tensor:
        """Return the distances [n] of points y from x, in units of `spread`."""
        return torch.linalg.vector_norm((y - self.x) / self.spread, dim=1)


def position(column: Any, names: Sequence[str], name: str) -> int:
    """Return the position of a column, given by name or position.

    Raises
    ------
    ValueError
        There is no such column.
    """
    if isinstance(column, str) and column in names:
        return list(names).index(column)
    if isinstance(column, (int, np.integer)) and not isinstance(column, bool) and 0 <= column < len(names):
        return int(column)
    columns = listed([*map(repr, names)])
    raise ValueError(f"{name} has an unknown column {column!r}{similar([column], names)}; columns are {columns}")


def mask(value: Any, space: Space, name: str) -> Tensor:
    """Return the mask [D] of the head's columns that a user's argument, one or several columns, selects."""
    selected = torch.zeros_like(space.is_fixed)
    for column in [value] if isinstance(value, (str, int, np.integer)) else value:
        selected[space.positions(position(column, space.names, name), name)] = True
    return selected


def bounds_of(
    bounds: Any, space: Space, ranges: np.ndarray | None
) -> tuple[Tensor, dict[int, tuple[float, float]]]:
    """Return lower and upper bounds [2, D] of the head's columns in float64, and those of the user's columns.

    The first are infinite where there are none; the second are by position. The bounds "data" are `ranges`.

    Raises
    ------
    ValueError
        Unknown columns, values that are no ordered pairs of numbers, or no `ranges` where these are needed.
    """
    ends = -np.inf, np.inf
    encoded = dict.fromkeys(range(len(space.is_fixed)), ends)
    if isinstance(bounds, str) and bounds == "data":
        if ranges is None:
            raise ValueError(
                'bounds="data" needs the ranges of the columns, which a network has if it was made with X in this '
                "form, neonxc.neuralize(model, X), and not by an earlier version; or pass {column: (low, high)}"
            )
        movable = np.unique(space.owner[~space.is_fixed.cpu().numpy()])
        bounds = {int(column): ranges[:, column] for column in movable if np.isfinite(ranges[0, column])}
    if bounds is not None and not isinstance(bounds, Mapping):
        raise ValueError(f'bounds needs a dict of columns to (low, high), or "data", got {bounds!r:.60}')
    given: dict[int, tuple[float, float]] = {}
    for column, pair in (bounds or {}).items():
        at = position(column, space.names, "bounds")
        (place,) = space.positions(at, "bounds")
        try:
            low, high = (end if value is None else float(value) for end, value in zip(ends, pair, strict=True))
        except (TypeError, ValueError):
            low = high = np.nan
        if not low <= high:
            raise ValueError(
                f"bounds of column {space.names[at]!r} need a pair (low, high) of numbers with low <= high, "
                f"got {pair!r}"
            )
        encoded[place] = given[at] = low, high
    values = [[space.apply(place, end) for end in pair] for place, pair in encoded.items()]
    return torch.tensor(values, dtype=torch.float64).T, given


def spread_of(spread: Any, net: NeuralizedClustering) -> Tensor:
    """Return the units [D] of the head's columns in float64: as given, from data, or from the network.

    Raises
    ------
    ValueError
        Another number of values than columns, or values that are not positive and finite.
    """
    if spread is None:
        return net.head.detection.spreads() if net.spread_ is None else torch.as_tensor(net.spread_)
    if np.ndim(spread) == 2 or is_path(spread):
        return spreads(net.batch(spread).tensor)
    try:
        units = as_array(spread).astype(np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"spread needs one number per column, or data, got {spread!r}") from None
    D = net.head.n_features
    if units.shape != (D,) or not ((units > 0) & (units < np.inf)).all():
        raise ValueError(f"spread needs a number > 0 for each of {D} columns, or data, got {spread!r}")
    return torch.from_numpy(units)
