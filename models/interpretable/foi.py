"""Values of interest, one of which the points of an interpretable cluster have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from neonxc.data.table import Table

from .columns import Coding, column_key, column_positions, fit_coding

EVERYTHING = "any value"


@dataclass(frozen=True)
class Interest:
    """The features of interest and the values of interest, which are the occurring combinations of their values.

    Attributes
    ----------
    columns : list of int
        Table of X that are features of interest; empty if the values were passed as an array, or by default.
    codings : list of Coding
        Coding of each feature of interest.
    codes : ndarray [F, features]
        Combination of codes of each value of interest.
    values : list of str
        Description of each value of interest, [F].
    """

    columns: list[int]
    codings: list[Coding]
    codes: np.ndarray
    values: list[str]

    def read(self, table: Table, foi: Any = None) -> np.ndarray | None:
        """Values of interest of new points, [n], -1 for unknown ones; None if they can't be determined."""
        if foi is not None:
            given = [_values(foi, len(table))]
            if len(self.codings) != 1:
                raise ValueError(f"foi in predict needs one feature of interest, but fit had {len(self.codings)}")
        elif self.columns:
            given = [table.column(column) for column in self.columns]
        else:
            return None
        known = pd.MultiIndex.from_arrays(self.codes.T)
        return known.get_indexer(pd.MultiIndex.from_arrays(_codes(self.codings, given).T))


def find_interest(table: Table, foi: Any, n_bins: int | Sequence[float]) -> tuple[Interest, np.ndarray]:
    """Find the values of interest, and their codes for all points, [n].

    Raises
    ------
    ValueError
        If a column is unknown, a name is given but the columns have none, or an array has a wrong length.
    """
    if foi is None:
        return Interest([], [], np.zeros((1, 0), np.int64), [EVERYTHING]), np.zeros(len(table), np.int64)
    columns = _columns(table, foi)
    names: list[str | int]
    if columns is None:
        given, names = [_values(foi, len(table))], [str(getattr(foi, "name", None) or "foi")]
        # Integers are names of groups, like labels, unless edges of bins are given; floats are binned
        dtype = given[0].dtype
        floating = dtype.is_floating_point if isinstance(given[0], Tensor) else dtype.kind == "f"
        if isinstance(n_bins, Integral) and not floating:
            n_bins = len(table)
    else:
        given, names = (
            [table.column(column) for column in columns],
            [column_key(table, column) for column in columns],
        )
    codings = [fit_coding(column, n_bins, name) for column, name in zip(given, names, strict=True)]
    occurring, positions = np.unique(_codes(codings, given), axis=0, return_inverse=True)
    texts = [list(map(str, coding.conditions(name))) for coding, name in zip(codings, names, strict=True)]
    rows = occurring.tolist()
    values = [" and ".join(text[code] for text, code in zip(texts, row, strict=True)) for row in rows]
    return Interest(columns or [], codings, occurring, values), positions.reshape(-1).astype(np.int64)


def _codes(codings: Sequence[Coding], columns: Sequence[Any]) -> np.ndarray:
    """Codes of columns, [n, features]."""
    return np.stack([coding.codes(column) for coding, column in zip(codings, columns, strict=True)], axis=1)


def _columns(table: Table, foi: Any) -> list[int] | None:
    """Table of X that `foi` names or numbers; None if `foi` is an array of values."""
    one = isinstance(foi, str | Integral) and not isinstance(foi, bool)
    several = isinstance(foi, list | tuple) or (np.ndim(foi) == 1 and all(isinstance(item, str) for item in foi))
    if one or (several and len(foi) != len(table)):
        return column_positions(table, foi, "foi", f" or an array of {len(table)} values")
    return None


def _values(foi: Any, n: int) -> Any:
    """Check values of interest that are given as an array, one per point."""
    if isinstance(foi, list | tuple) and not all(isinstance(item, Real) for item in foi):
        foi = pd.Series(foi, dtype=object)  # keeps the items of a mixed list, for example with None
    values = foi if isinstance(foi, pd.Series | Tensor) else np.asarray(foi)
    if tuple(values.shape) != (n,):
        raise ValueError(f"foi needs one value per point, shape ({n},), got {tuple(values.shape)}")
    return values
