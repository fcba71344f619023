"""Values of interest: what the points of an interpretable cluster have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
from torch import Tensor

from .columns import Coding, coded, conditions
from .table import Table

EVERYTHING = "any value"


@dataclass(frozen=True)
class Interest:
    """The features of interest, and those combinations of their values that occur.

    Attributes
    ----------
    columns : list of int
        Columns of X; empty where the values were given, or are all one.
    codings : list of Coding
        One for each feature.
    codes : ndarray [F, features]
        The combination of codes that each value of interest stands for.
    values : list of str
        What the values of interest are called, [F].
    """

    columns: list[int]
    codings: list[Coding]
    codes: np.ndarray
    values: list[str]

    def read(self, table: Table, foi: Any = None) -> np.ndarray | None:
        """Values of interest [n] of other points, -1 for one that is not known; None where nothing tells them."""
        if foi is not None:
            given = [_values(foi, len(table))]
            if len(self.codings) != 1:
                raise ValueError(f"foi of predict needs one feature of interest, fit had {len(self.codings)}")
        elif self.columns:
            given = [table.column(column) for column in self.columns]
        else:
            return None
        columns = [coding.codes(column) for coding, column in zip(self.codings, given, strict=True)]
        found = np.stack(columns, axis=1)
        known = {tuple(row): value for value, row in enumerate(self.codes.tolist())}
        different, positions = np.unique(found, axis=0, return_inverse=True)
        return np.array([known.get(tuple(row), -1) for row in different.tolist()])[positions.reshape(-1)]


def interest(table: Table, foi: Any, n_bins: int | Sequence[float]) -> tuple[Interest, np.ndarray]:
    """Values of interest of the points, and their codes [n].

    Raises
    ------
    ValueError
        An unknown column, a name where columns have none, or an array of another length.
    """
    if foi is None:
        return Interest([], [], np.zeros((1, 0), np.int64), [EVERYTHING]), np.zeros(len(table), np.int64)
    columns = _columns(table, foi)
    if columns is None:
        values = _values(foi, len(table))
        # integers are the names of groups, as labels are, unless edges say otherwise; floats are measured
        cut = len(table) if isinstance(n_bins, Integral) and not _are_floats(values) else n_bins
        given, names = [values], [str(getattr(foi, "name", None) or "foi")]
        codings = [coded(values, cut, names[0])]
    else:
        given, names = [table.column(column) for column in columns], [table.name(column) for column in columns]
        codings = [coded(column, n_bins, name) for column, name in zip(given, names, strict=True)]
    codes = np.stack([coding.codes(column) for coding, column in zip(codings, given, strict=True)], axis=1)
    occurring, positions = np.unique(codes, axis=0, return_inverse=True)
    texts = [
        [str(condition) for condition in conditions(coding, name)]
        for coding, name in zip(codings, names, strict=True)
    ]
    said = [" and ".join(text[code] for text, code in zip(texts, row, strict=True)) for row in occurring.tolist()]
    return Interest(columns or [], codings, occurring, said), positions.reshape(-1).astype(np.int64)


def _columns(table: Table, foi: Any) -> list[int] | None:
    """Columns of X that are named or numbered; None where `foi` is an array of values."""
    one = isinstance(foi, str | Integral) and not isinstance(foi, bool)
    several = isinstance(foi, list | tuple) or (np.ndim(foi) == 1 and all(isinstance(item, str) for item in foi))
    if one or (several and len(foi) != len(table)):
        return table.positions(foi, "foi", f" or an array of {len(table)} values")
    return None


def _values(foi: Any, n: int) -> Any:
    """Given values, one per point."""
    values = foi if isinstance(foi, Tensor) or hasattr(foi, "iloc") else _as_objects(foi)
    if tuple(values.shape) != (n,):
        raise ValueError(f"foi needs one value per point, shape ({n},), got {tuple(values.shape)}")
    return values


def _as_objects(foi: Any) -> np.ndarray:
    """An array; a list of several kinds (with None, say) keeps its items."""
    if isinstance(foi, list | tuple) and not all(isinstance(item, Real) for item in foi):
        values = np.empty(len(foi), dtype=object)
        values[:] = foi
        return values
    return np.asarray(foi)


def _are_floats(values: Any) -> bool:
    return values.is_floating_point() if isinstance(values, Tensor) else getattr(values.dtype, "kind", "O") == "f"
