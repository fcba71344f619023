"""The task of :func:`neonxc.counterfactual`: points, their targets, and constraints on the changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from neonxc.common.arguments import listed, similar
from neonxc.common.shortening import shortened
from neonxc.data.frames import is_path
from neonxc.data.inputs import as_array, spreads
from neonxc.inputs.space import Space
from neonxc.network import NeuralizedClustering

Column: TypeAlias = str | int | np.integer
"""A column of the user's table, by name or position."""

Bounds: TypeAlias = Mapping[Column, Sequence[float | None] | np.ndarray] | str | None
"""Lower and upper bounds of columns, None for none; or "data"."""


class Candidates(NamedTuple):
    """Points inside the targets."""

    points: Tensor  # [n, c, d]
    found: Tensor  # [n, c], whether there are as many
    exact: Tensor  # [n], whether the first one is the nearest point, or there is none


@dataclass(frozen=True)
class Task:
    """Points and the constraints on their changes.

    Attributes
    ----------
    x : Tensor [n, d] of float64
        The points.
    dtype : torch.dtype
        The dtype in which the points were given and are returned.
    targets : Tensor [n, K] of bool
        The clusters that are targets of each point; it has to reach one of them.
    margin : Tensor [n] of float64
        How deep inside their targets points have to be.
    spread : Tensor [d] of float64
        Units of the changes.
    low, high : Tensor [d] of float64
        Bounds of the columns, whole numbers where these are needed.
    fixed, integer : Tensor [d] of bool
        Columns that can't change, and columns that need whole numbers.
    max_columns : int or None
        Largest number of columns of a point that may change.
    column : Tensor [d] of int64
        The user's column that each column is of.
    is_category : Tensor [d] of bool
        Columns that are codes of categories, which change together.
    """

    x: Tensor
    dtype: torch.dtype
    targets: Tensor
    margin: Tensor
    spread: Tensor
    low: Tensor
    high: Tensor
    fixed: Tensor
    integer: Tensor
    max_columns: int | None
    column: Tensor
    is_category: Tensor

    def take(self, subset: Tensor | slice) -> Task:
        """Return the task of some of the points."""
        return replace(self, x=self.x[subset], targets=self.targets[subset], margin=self.margin[subset])

    @property
    def discrete(self) -> bool:
        """Whether the problem has discrete choices: whole numbers, or columns to change."""
        return self.max_columns is not None or bool(self.integer.any())

    def box(self) -> tuple[Tensor, Tensor]:
        """Return the lower and upper bounds [n, d] of the changes, in units of `spread`."""
        low = (self.low - self.x) / self.spread
        high = (self.high - self.x) / self.spread
        return torch.where(self.fixed, 0.0, low), torch.where(self.fixed, 0.0, high)

    def moved(self, u: Tensor) -> Tensor:
        """Return the points [n, d] after changes u, in units of `spread`."""
        moved = (self.x + u * self.spread).clamp(self.low, self.high)
        y = torch.where(u == 0, self.x, moved)
        return torch.where(self.integer, y.round(), y)

    def distance(self, y: Tensor) -> Tensor:
        """Return the distances [n] of points y from x, in units of `spread`."""
        return torch.linalg.vector_norm((y - self.x) / self.spread, dim=1)


def position(column: Column, names: Sequence[str], name: str) -> int:
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


def mask(value: Column | Iterable[Column], space: Space, name: str) -> Tensor:
    """Return the mask [D] of the head's columns that a user's argument, one or several columns, selects."""
    selected = torch.zeros_like(space.is_fixed)
    if isinstance(value, (str, int, np.integer)):
        value = [value]
    for column in value:
        selected[space.positions(position(column, space.names, name), name)] = True
    return selected


def bounds_of(
    bounds: Bounds, space: Space, ranges: np.ndarray | None
) -> tuple[Tensor, dict[int, tuple[float, float]]]:
    """Return lower and upper bounds [2, D] of the head's columns in float64, and those of the user's columns.

    The first are infinite where there are none; the second are by position. The bounds "data" are `ranges`.

    Raises
    ------
    ValueError
        Unknown columns, values that are not ordered pairs of numbers, or no `ranges` where these are needed.
    """
    unbounded = (-np.inf, np.inf)
    encoded = dict.fromkeys(range(len(space.is_fixed)), unbounded)  # of the head's columns
    of_user: dict[int, tuple[float, float]] = {}
    if isinstance(bounds, str) and bounds == "data":
        if ranges is None:
            raise ValueError(
                'bounds="data" needs the ranges of the columns, which a network has if it was made with X in this '
                "form, neonxc.neuralize(model, X), and not by an earlier version; or pass {column: (low, high)}"
            )
        movable = np.unique(space.owner[~space.is_fixed.cpu().numpy()])
        bounds = {int(column): ranges[:, column] for column in movable if np.isfinite(ranges[0, column])}
    if bounds is not None and not isinstance(bounds, Mapping):
        raise ValueError(
            f'bounds needs a dict of columns to (low, high), or "data", got {shortened(repr(bounds), 60)}'
        )
    for column, pair in (bounds or {}).items():
        index = position(column, space.names, "bounds")
        (encoded_index,) = space.positions(index, "bounds")
        low, high = _as_pair(pair)
        if not low <= high:
            raise ValueError(
                f"bounds of column {space.names[index]!r} need a pair (low, high) of numbers with low <= high, "
                f"got {pair!r}"
            )
        of_user[index] = (low, high)
        encoded[encoded_index] = (low, high)
    values = [[space.apply(index, end) for end in pair] for index, pair in encoded.items()]
    return torch.tensor(values, dtype=torch.float64).T, of_user


def _as_pair(pair: Sequence[float | None] | np.ndarray) -> tuple[float, float]:
    """Convert the bounds of a column to numbers; NaN if they are not a pair of numbers."""
    try:
        low, high = pair
        return (
            -np.inf if low is None else float(low),
            np.inf if high is None else float(high),
        )
    except (TypeError, ValueError):
        return np.nan, np.nan


def spread_of(spread: Any, net: NeuralizedClustering) -> Tensor:
    """Return the units [D] of the head's columns in float64: as given, from data, or from the network.

    Raises
    ------
    ValueError
        Another number of values than columns, or values that are not positive and finite.
    """
    if spread is None and net.spread_ is None:
        return net.head.detection.spreads()
    if spread is None:
        return torch.as_tensor(net.spread_)
    if np.ndim(spread) == 2 or is_path(spread):
        return spreads(net.batch(spread).tensor)
    names = net.inputs.units
    if isinstance(spread, pd.Series) and len(names) == net.head.n_features:
        by_name = spread.rename(index=str)
        if {*names} <= {*by_name.index}:
            spread = by_name[names]
    try:
        units = as_array(spread).astype(np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"spread needs one number per column, or data, got {spread!r}") from None
    D = net.head.n_features
    if units.shape != (D,) or not ((units > 0) & (units < np.inf)).all():
        raise ValueError(f"spread needs a number > 0 for each of {D} columns, or data, got {spread!r}")
    return torch.from_numpy(units)
